// One episode: its film, tokens and what-if; episodes side by side; keys and looks.
"use strict";

async function film(n, query) {
  const turn = drawn;
  const id = source;
  const data = await get(`s/${id}/film/${n}`);
  if (turn !== drawn) return;
  const q = Math.min(Number(query.q) || 0, data.questions.length - 1);
  const life = data.questions[q];
  const focus = [life.died, life.entered, life.seen, life.asked, 0].find((at) => at !== null && at < data.frames.length);
  let at = query.turn === undefined ? focus || 0 : Math.min(Number(query.turn) || 0, data.frames.length - 1);
  const strip = h("ol", { class: "strip", id: "strip", "aria-label": "Turns" });
  const detail = h("div", { id: "frame", "aria-live": "polite" });
  const select = (next, focusing) => {
    if (!data.frames.length) return;
    at = Math.max(0, Math.min(data.frames.length - 1, next));
    setQuery({ turn: at });
    [...strip.children].forEach((item, i) => item.firstChild.setAttribute("aria-current", i === at ? "step" : "false"));
    strip.children[at].scrollIntoView({ block: "nearest", inline: "nearest" });
    if (focusing) strip.children[at].firstChild.focus();
    detail.replaceChildren();
    add(detail, frame(id, data, q, at));
  };
  strip.replaceChildren(...data.frames.map((one, i) => h("li", {}, h("button", {
    type: "button", class: "turn" + (one.role === "answer" ? " answering" : ""), "aria-label": describe(data, life, i, q), onclick: () => select(i, false),
  }, h("span", { class: "name" }, turnName(data, i)), lanes(one, life, i, q)))));
  show(heading(id, n, data, q, life), strip, legend(), detail);
  if (data.frames.length) select(at, false);
  else add(detail, [h("p", { class: "soft" }, "No model was asked in this episode.")]);
  filmKeys = { previous: () => select(at - 1, true), next: () => select(at + 1, true), lost: () => life.died !== null && select(life.died, true) };
}

let filmKeys = null;

/** Name a turn: its context, and its number where the context has several. */
function turnName(data, at) {
  const one = data.frames[at];
  if (!one) return "the end";
  const several = data.frames.filter((other) => other.context === one.context).length > 1;
  return "\u21b3 ".repeat(one.depth || 0) + (one.label || one.role) + (several ? `, turn ${one.turn + 1}` : "");
}

function heading(id, n, data, q, life) {
  const where = [data.step !== null && data.step !== undefined ? `step ${data.step}` : "", data.split, data.set].filter(Boolean).join(" · ");
  return h("section", { class: "heading" },
    h("p", { class: "crumbs" }, h("a", { href: link(["episodes", id]) }, own(id).name), " / ", where, " / ", data.task),
    data.questions.length > 1 ? h("label", {}, "Question ", h("select", {
      onchange: (event) => { location.hash = link(["film", id, n], { q: event.target.value }); },
    }, data.questions.map((one, i) => h("option", { value: i, selected: i === q }, `${i + 1}. ${one.text.slice(0, 90)}`)))) : null,
    h("h1", {}, life.text),
    facts([["accepted", life.answers.some(Boolean) ? h("mark", {}, life.answers.join(" · ")) : null], ["answered", life.answer], ["score", verdict(life.score)],
      ["reward", data.reward === null ? null : number(data.reward)], ["reader", delta(data.measures)], ["failure", data.failure && `${data.failure.boundary}: ${data.failure.kind}: ${data.failure.message}`]]),
    h("p", { id: "story" }, life.cause ? [chip(life.cause), " "] : null, story(data, life)),
    h("p", { class: "bar" },
      data.siblings > 1 ? h("a", { class: "button", href: link(["siblings", id, n]) }, `${data.siblings} side by side`) : null,
      Object.keys(data.measures).length ? h("details", {}, h("summary", {}, "Measurements"), facts(Object.entries(data.measures).map(([name, value]) => [name, short(value)]))) : null));
}

/** A curator is rewarded for how much better a reader does with what it left. */
function delta(measures) {
  if (measures.before === undefined || measures.answer === undefined) return null;
  return `${number(measures.before, 2)} before, ${number(measures.answer, 2)} after` +
    (measures.efficiency === undefined ? "" : `, efficiency ${number(measures.efficiency, 2)}`);
}

function story(data, life) {
  const name = (at) => turnName(data, at);
  const parts = [];
  if (life.seen !== null) parts.push(`read in ${name(life.seen)}`);
  if (life.entered !== null) parts.push(`entered the memory in ${name(life.entered)}`);
  if (life.died !== null) parts.push(`died in ${name(life.died)}`);
  if (life.note) parts.push(life.note);
  const what = life.literal ? "The answer: " : "What the answer follows from: ";
  return parts.length ? what + parts.join(", ") + "." : "The answer is in nothing that was read or written.";
}

function lanes(one, life, i, q) {
  const born = life.entered === i, died = life.died === i;
  return [h("span", { class: "lane read" + (one.reads[q] ? " on" : "") }),
    h("span", { class: "lane held" + (one.holds[q] ? " on" : "") + (died ? " died" : "") }, born ? "●" : died ? "✕" : "")];
}

function describe(data, life, i, q) {
  const one = data.frames[i];
  const words = [turnName(data, i)];
  if (one.reads[q]) words.push("reads the answer");
  if (life.entered === i) words.push("the answer enters the memory");
  else if (life.died === i) words.push("the answer dies here");
  else words.push(one.holds[q] ? "the memory holds the answer" : "the memory does not hold the answer");
  return words.join(", ");
}

function legend() {
  return h("p", { class: "soft legend" }, h("span", { class: "lane read on" }), " reads the answer ",
    h("span", { class: "lane held on" }), " memory holds it ", h("span", { class: "lane held died" }, "✕"), " it dies ",
    h("mark", {}, "evidence"), " ", h("ins", {}, "added"), " ", h("del", {}, "removed"), " · keys ← → x");
}

function frame(id, data, q, at) {
  const one = data.frames[at];
  const read = one.read.length ? h("pre", {}, pieces(one.read))
    : h("p", { class: "soft" }, data.kind === "evaluation" ? "An evaluation stores no prompts, and the text of this turn cannot be made again." : "The prompt is not stored.");
  const memory = one.memory.length ? h("pre", { class: "memory" }, changed(one.memory)) : h("p", { class: "soft" }, "Nothing is written yet.");
  const steps = Object.entries(one.steps).map(([name, value]) => [name, number(value)]);
  return [h("div", { class: "columns" },
    h("section", {}, h("h2", {}, one.sent ? "Sent to the model" : "Text that it read"), read),
    h("section", {}, h("h2", {}, "Memory after ", turnName(data, at)), memory),
    h("section", {}, h("h2", {}, "Reply"), h("pre", {}, pieces(one.reply)),
      facts([["role", one.role + (one.trainable ? ", learns" : "")], ["tokens", `${one.tokens[0].toLocaleString("en")} read, ${one.tokens[1].toLocaleString("en")} written`],
        ["ended by", one.stop === "length" ? "its limit" : null], ["reward of this context", one.reward === null ? null : number(one.reward)], ...steps]))),
  programs(id, data, q, at), operations(one), results(one), saved ? null : h("div", { class: "columns" }, tokenPart(id, data, one), whatIf(id, data, q, at))];
}

/** Show a program, what came of it, and the chats in which parts of the text were read for it. */
function programs(id, data, q, at) {
  const one = data.frames[at];
  const name = (i) => h("a", { href: link(["film", id, data.n], { q, turn: i }) }, turnName(data, i));
  const by = data.frames.findIndex((other) => other.calls.includes(at));
  const called = by >= 0 ? h("p", { class: "soft" }, "Called by ", name(by), ".") : null;
  if (!one.program && !one.calls.length) return called;
  return [called, h("div", { class: "columns", id: "program" },
    one.program ? h("section", {}, h("h2", {}, "Program"), h("pre", {}, one.program)) : null,
    one.result !== null ? h("section", {}, h("h2", {}, "Its result"), h("pre", {}, one.result)) : null,
    one.calls.length ? h("section", {}, h("h2", {}, "Parts that this chat asked about"),
      h("ul", { class: "calls" }, one.calls.map((i) => h("li", {}, name(i), ": ", data.frames[i].reply.map(([text]) => text).join("").slice(0, 90))))) : null)];
}

function operations(one) {
  if (!one.edits.length || one.edits.every((edit) => edit.kind === "replace")) return null;
  return [h("h2", {}, "Operations"), table(["operation", "writes", "removes", "what"], one.edits.map((edit) =>
    h("tr", {}, h("td", {}, edit.kind), h("td", {}, edit.made.join(", ")), h("td", {}, edit.gone.join(", ")),
      h("td", { class: "text" }, edit.data.content || edit.data.text || JSON.stringify(edit.data)))), { id: "operations", label: "Operations" })];
}

function results(one) {
  if (!one.results.length) return null;
  return [h("h2", {}, "What the search returned"), table(["entry", "text", "written by"], one.results.map((hit) =>
    h("tr", {}, h("td", {}, hit.name), h("td", { class: "text" }, pieces(hit.text)), h("td", {}, hit.origin))), { id: "results", label: "Search results" })];
}

function tokenPart(id, data, one) {
  if (data.kind !== "run") return null;
  const place = h("div", { class: "tokens" });
  const load = async (compare) => {
    place.replaceChildren(h("p", { class: "soft" }, compare ? "asking the run's model …" : "loading …"));
    try {
      const found = await get(`s/${id}/tokens/${data.n}/${one.context}/${one.turn}${compare ? "?compare=1" : ""}`);
      place.replaceChildren();
      add(place, tokenTable(found, compare));
    } catch (error) { place.replaceChildren(problem(error)); }
  };
  return h("section", {}, h("h2", {}, "Token by token"),
    h("p", { class: "bar" }, h("button", { type: "button", id: "tokens", onclick: () => load(false) }, "Sampler, trainer, ratio and clip"),
      h("button", { type: "button", id: "ratios", onclick: () => load(true) }, "And the run's weights now")), place);
}

function tokenTable(found, compare) {
  const range = `${number(1 - found.clip[0], 2)} to ${number(1 + found.clip[1], 2)}`;
  const note = (found.learned
    ? `Trainer: the weights that learned from the token, at the step. Ratio: theirs to those it is held against, clipped above the range ${range} with an advantage above 0, below it with one below 0.`
    : "As the sampler drew them; the trainer learned nothing from this reply, or did not write it down.")
    + (compare ? ` Weights now: ${found.weights}.` : "");
  const cell = (value, places) => h("td", { class: "num" }, number(value, places));
  return [h("p", { class: "soft" }, note, found.note ? " " + found.note : ""),
    table(["token", "#id", "#sampler", ...(found.learned ? ["#trainer", "#ratio", "#advantage", "clipped"] : []), ...(compare ? ["#weights now", "#ratio now"] : [])], found.tokens.map((one) =>
      h("tr", { class: one.clipped ? "clipped" : null }, h("td", {}, h("code", {}, JSON.stringify(one.text))), h("td", { class: "num" }, one.id), cell(one.sampler, 4),
        found.learned ? [cell(one.trainer, 4), cell(one.ratio, 3), cell(one.advantage, 3), h("td", {}, one.clipped)] : null,
        compare ? [cell(one.now, 4), cell(one.ratio_now, 3)] : null)), { id: "tokentable", label: "Tokens" })];
}

function whatIf(id, data, q, at) {
  if (data.kind !== "run") return null;
  const one = data.frames[at];
  const text = one.memory.filter(([change]) => change !== "-").map(([, piece]) => piece).join("");
  const area = h("textarea", { rows: 4, "aria-label": "Memory to go on with", id: "edited" });
  area.value = text;
  const times = h("input", { type: "number", min: 1, max: 64, value: 16, id: "times", "aria-label": "Rollouts" });
  const place = h("div", { id: "whatif" });
  let again = 0;
  const run = async (mode) => {
    place.replaceChildren(h("p", { class: "soft" }, "running …"));
    const asked = { n: data.n, turn: at, number: q, mode, times: Number(times.value), again: again++, memory: area.value === text ? null : area.value };
    try {
      const found = await ask(`api/s/${id}/whatif`, { method: "POST", body: JSON.stringify(asked) });
      place.replaceChildren();
      add(place, outcome(found));
    } catch (error) { place.replaceChildren(problem(error)); }
  };
  return h("section", {}, h("h2", {}, "What if"),
    h("p", { class: "soft" }, "Go on from the memory after this turn with the run's model; edit it first if you like."), area,
    h("p", { class: "bar" }, h("label", {}, "times ", times), h("button", { type: "button", id: "ask", onclick: () => run("ask") }, "Ask at once"),
      h("button", { type: "button", id: "roll", onclick: () => run("roll") }, "Read on")), place);
}

function outcome(found) {
  const mean = found.mean === null ? "–" : number(found.mean, 2);
  const counts = new Map();
  for (const one of found.answers) {
    const name = JSON.stringify([one.answer || one.failure, one.score]);
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  return [h("p", { class: "figure" }, `P(correct | ${found.edited ? "edited" : "this"} memory) = ${mean} [${number(found.low, 2)}, ${number(found.high, 2)}]`),
    h("p", { class: "soft" }, `${found.right} of ${found.n} right, ${found.mode === "ask" ? "asked at once" : "after reading on"}, weights: ${found.weights}`),
    table(["#times", "answer", "#score"], [...counts].map(([name, times]) => {
      const [answer, score] = JSON.parse(name);
      return h("tr", {}, h("td", { class: "num" }, times), h("td", { class: "text" }, answer), h("td", { class: "num" }, verdict(score)));
    }), { label: "Answers" })];
}

// Siblings

async function siblings(n) {
  const id = source;
  const data = await get(`s/${id}/siblings/${n}`);
  const most = Math.max(1e-9, ...data.rollouts.map((one) => Math.abs(one.advantage || 0)));
  const turns = Math.max(0, ...data.rollouts.map((one) => one.turns.length));
  const shade = (one) => one.advantage === null || !one.advantage ? "zero"
    : (one.advantage > 0 ? "plus" : "minus") + (Math.abs(one.advantage) > most / 2 ? " strong" : "");
  show(h("p", { class: "crumbs" }, h("a", { href: link(["episodes", id]) }, own(id).name), " / ", data.task),
    h("h1", {}, data.questions[0].text),
    facts([["accepted", h("mark", {}, data.questions[0].answers.join(" · "))],
      ["first divergence", data.divergence === null ? "none: all say the same" : `turn ${data.divergence + 1}`]]),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Siblings" }, h("table", { class: "siblings", id: "siblings" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "turn"), data.rollouts.map((one) => h("th", { scope: "col", class: shade(one) },
        h("a", { href: link(["film", id, one.n]) }, one.name), h("small", {}, one.reward === null ? "" : `reward ${number(one.reward, 2)}`),
        h("small", {}, one.advantage === null ? "" : `advantage ${one.advantage > 0 ? "+" : ""}${number(one.advantage, 2)}`),
        one.causes[0] ? chip(one.causes[0]) : verdict(one.scores[0]))))),
      h("tbody", {}, [...Array(turns).keys()].map((i) => h("tr", { class: i === data.divergence ? "divergence" : null },
        h("th", { scope: "row" }, (data.rollouts.map((one) => one.turns[i]).find(Boolean) || {}).label || i + 1, i === data.divergence ? h("small", {}, "first divergence") : null),
        data.rollouts.map((one) => one.turns[i] ? h("td", { class: shade(one) + (one.turns[i].holds ? " holds" : "") + (one.turns[i].died ? " dies" : "") },
          h("a", { href: link(["film", id, one.n], { turn: i }) }, one.turns[i].text.slice(0, 400) || "(empty)")) : h("td", {}))))))));
}

// Compare

async function compare(_n, query) {
  const turn = drawn;
  const ids = state.sources.map((one) => one.id);
  const [a, b] = [query.a || ids[0], query.b || ids[1] || ids[0]];
  const place = h("div", { id: "comparison" });
  const pick = (name, chosen) => h("label", {}, name === "a" ? "First " : "Second ", h("select", {
    "data-side": name, onchange: (event) => { location.hash = link(["compare"], { ...here().query, a, b, [name]: event.target.value, [name + "_is"]: "" }); },
  }, state.sources.map((one) => h("option", { value: one.id, selected: one.id === chosen }, one.name))));
  show(h("h1", {}, "Compare"), h("p", { class: "bar" }, pick("a", a), pick("b", b)), place);
  try {
    const words = new URLSearchParams({ a, b, a_is: query.a_is || "", b_is: query.b_is || "" });
    const found = await get("compare?" + words);
    if (turn !== drawn) return;
    add(place, comparisonParts(found, [a, b]));
  } catch (error) { add(place, [problem(error), choices([a, b], [query.a_is, query.b_is], "choose"), versions(a, b)]); }
}

function versions(a, b) {
  return h("p", { class: "soft" }, `Nothing to pair between ${own(a) ? own(a).name : a} and ${own(b) ? own(b).name : b}.`);
}

/** Draw the agents or steps of both sides; "open" names what it is to choose none. */
function choices(ids, chosen, open) {
  return h("p", { class: "bar" }, ids.map(own).map((one, i) => one && h("label", {}, one.kind === "run" ? "step " : "agent ", h("select", {
    onchange: (event) => { location.hash = link(["compare"], { ...here().query, a: ids[0], b: ids[1], [(i ? "b" : "a") + "_is"]: event.target.value }); },
  }, (one.kind === "run" && chosen[i] ? [] : [""]).concat(one.choices).map((value) => h("option", { value, selected: value === (chosen[i] || "") }, value || open))))));
}

function comparisonParts(found, ids) {
  const sign = found.difference > 0 ? "+" : "";
  return [choices(ids, found.chosen, "each with itself"),
    h("p", { class: "figure" }, `${sign}${number(found.difference)} [${number(found.low)}, ${number(found.high)}], ${found.p < 0.001 ? "p < 0.001" : "p = " + number(found.p)}`),
    h("p", { class: "soft" }, `${found.names[0]} minus ${found.names[1]}; ${found.n} answers to the same questions, ${found.clusters} clusters; without a partner: ${found.unpaired.join(" and ")}`),
    table(["", "second right", "second wrong"], [
      h("tr", {}, h("th", { scope: "row" }, "first right"), h("td", { class: "num" }, found.both), h("td", { class: "num plus" }, found.first)),
      h("tr", {}, h("th", { scope: "row" }, "first wrong"), h("td", { class: "num minus" }, found.second), h("td", { class: "num" }, found.neither))], { label: "Right and wrong" }),
    h("h2", {}, "Where they differ"),
    table(["won by", "question", "accepted", found.names[0], found.names[1]], found.rows.slice(0, 500).map((row) => h("tr", {},
      h("td", {}, row.scores[0] > row.scores[1] ? "first" : "second"), h("td", { class: "text" }, row.question), h("td", { class: "text" }, row.gold),
      [0, 1].map((i) => h("td", { class: "text" }, h("a", { href: link(["film", ids[i], row.n[i]], { q: row.q || "" }) }, row.answers[i] || "(empty)"))))), { id: "differ", label: "Where they differ" })];
}

// Keys and looks

const KEYS = [["/", "search"], ["j, k", "next and previous row"], ["Enter", "open the row"], ["← →", "previous and next turn"], ["x", "the turn where the answer died"],
  ["1 – 4", "runs, episodes, why it failed, compare"], ["t", "dark or light"], ["?", "these keys"]];

function help() {
  const dialog = document.getElementById("keys");
  dialog.replaceChildren(h("h2", {}, "Keys"), facts(KEYS), h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("recollect-theme", name); } catch (_refused) { /* a file may have no storage */ }
}

function otherTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const inFilm = here().parts[0] === "film" && filmKeys;
  const links = [...document.querySelectorAll("tbody td.text:first-of-type a, #episodes tbody a")];
  const at = links.indexOf(document.activeElement);
  const actions = {
    "/": () => { const field = document.getElementById("search"); if (field) field.focus(); else location.hash = link(["episodes", source]); },
    j: () => links.length && links[Math.min(links.length - 1, at + 1)].focus(),
    k: () => links.length && links[Math.max(0, at - 1)].focus(),
    ArrowLeft: () => inFilm && filmKeys.previous(), ArrowRight: () => inFilm && filmKeys.next(), x: () => inFilm && filmKeys.lost(),
    t: otherTheme, "?": help,
  };
  PAGES.forEach(([name], i) => { actions[i + 1] = () => { location.hash = link(name === "runs" || name === "compare" ? [name] : [name, source]); }; });
  const action = actions[event.key];
  if (action && (!event.key.startsWith("Arrow") || inFilm)) { event.preventDefault(); action(); }
});

document.getElementById("theme").addEventListener("click", otherTheme);
document.getElementById("help").addEventListener("click", help);
try { if (localStorage.getItem("recollect-theme")) setTheme(localStorage.getItem("recollect-theme")); } catch (_refused) { /* as above */ }
window.addEventListener("hashchange", () => { filmKeys = null; route(); document.getElementById("main").focus({ preventScroll: true }); });
start();
