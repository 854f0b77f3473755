// Where the page starts, and the lists: runs, episodes, causes.
"use strict";

const PAGES = [["runs", "Runs"], ["episodes", "Episodes"], ["why", "Why it failed"], ["compare", "Compare"]];
const PAGE_ROWS = 100;
let state = { sources: [] };
let source = null;          // the folder that is looked at
let listed = {};            // rows and causes by folder
let drawn = 0;              // counts views, so that a slow answer does not paint over a later view
let redraw = () => {};      // draws the present view again when its folder has changed

// Start, live updates, routes

async function start() {
  try { state = await get("state"); } catch (error) { show(problem(error)); return; }
  fillSources();
  route();
  if (!saved) setTimeout(poll, 1500);
}

async function poll() {
  try {
    const fresh = await get("state");
    const before = state.sources.map((own) => own.stamp + own.state).join();
    const added = fresh.sources.map((own) => own.stamp + own.state).join();
    state = fresh;
    if (before !== added) { fillSources(); redraw(); }
    live();
  } catch (_gone) {
    document.getElementById("live").textContent = "the viewer is not running any more";
  }
  setTimeout(poll, 1500);
}

function live() {
  const running = state.sources.filter((own) => own.state === "running").length;
  document.getElementById("live").textContent =
    saved ? "exported file" : running ? `live: ${running} running` : "";
}

function fillSources() {
  const select = document.getElementById("source");
  if (!state.sources.some((own) => own.id === source)) source = state.sources.length ? state.sources[0].id : null;
  select.replaceChildren(...state.sources.map((own) =>
    h("option", { value: own.id, selected: own.id === source }, own.name)));
  select.value = source || "";
}

function route() {
  const { parts, query } = here();
  const [page = "runs", id, n] = parts;
  const missing = id && !own(id) && !["runs", "compare"].includes(page);
  if (id && own(id)) source = id;
  document.getElementById("source").value = source || "";
  const top = { film: "episodes", siblings: "episodes" }[page] || page;
  document.getElementById("nav").replaceChildren(...PAGES.map(([name, words]) => h("a", {
    href: link(name === "runs" || name === "compare" ? [name] : [name, source || ""]),
    "aria-current": name === top ? "page" : null,
  }, words)));
  drawn += 1;
  redraw = () => {};
  live();
  const views = { runs, episodes, why, film, siblings, compare };
  const view = missing ? () => elsewhere(id) : views[page] || runs;
  Promise.resolve(view(n, query)).catch((error) => show(problem(error)));
}

async function elsewhere(id) {
  show(h("h1", {}, `There is no folder ${id} here`), h("p", {}, "Start recollect view with this folder, or choose another one above."));
  redraw = route;  // it may come
}

const own = (id = source) => state.sources.find((one) => one.id === id);

async function rowsOf(id) {
  const known = listed[id] || { generation: null, rows: [], causes: {}, lengths: {} };
  const query = known.generation === null ? "" : `?since=${known.rows.length}&generation=${known.generation}`;
  const fresh = await get(`s/${id}/rows${saved ? "" : query}`);
  const rows = fresh.rows.map((values) => Object.fromEntries(fresh.names.map((name, i) => [name, values[i]])));
  const kept = fresh.since ? known.rows.slice(0, fresh.since) : [];
  listed[id] = { ...known, generation: fresh.generation, rows: kept.concat(rows) };
  return listed[id];
}

async function causesOf(id) {
  const found = await get(`s/${id}/causes`);
  if (listed[id]) { listed[id].causes = found.rows; listed[id].lengths = found.lengths; }
  return found;
}

// Runs: what there is, curves, settings that differ, accuracy by length

async function runs(_n, query) {
  const turn = drawn;
  const all = state.sources.map((one) => one.id);
  const chosen = query.of ? query.of.split(",").filter((id) => all.includes(id)) : all.slice(0, 8);
  const list = table(["", "folder", "kind", "state", "agent", "tasks", "#steps", "#episodes"], state.sources.map((one) =>
    h("tr", {}, h("td", {}, h("input", {
      type: "checkbox", checked: chosen.includes(one.id), "aria-label": "Show " + one.name,
      onchange: () => {
        const next = all.filter((id) => (id === one.id) !== chosen.includes(id));
        location.hash = link(["runs"], { ...here().query, of: next.join(",") || "none" });
      },
    }), h("span", { class: "key s" + colour(one.id) })),
    h("td", {}, h("a", { href: link(["why", one.id]), title: one.folder }, one.name)),
    h("td", {}, one.kind), h("td", {}, one.state),
    h("td", {}, one.about.agent || one.about.agents), h("td", {}, one.about.tasks),
    h("td", { class: "num" }, one.about.steps || "–"), h("td", { class: "num" }, one.episodes.toLocaleString("en")))), { label: "Folders" });
  const notes = state.sources.flatMap((one) => one.notes);
  const charts = h("div", { class: "charts", id: "curves" });
  const rest = h("div", {});
  show(h("h1", {}, "Runs"), notes.map((note) => h("p", { class: "notice" }, note)), list, charts, rest);
  const fill = async () => {
    const found = await Promise.all(chosen.map(async (id) => [id, await get(`s/${id}/curves`)]));
    const lengths = await Promise.all(chosen.map(async (id) => [id, await get(`s/${id}/lengths`)]));
    const settings = chosen.length > 1 ? await get("settings?of=" + chosen.join(",")).catch(() => []) : [];
    if (turn !== drawn) return;
    charts.replaceChildren(...curveCharts(found));
    rest.replaceChildren();
    add(rest, [moreMetrics(found, query.metric), lengthCharts(lengths), settingsTable(chosen, settings)]);
  };
  await fill();
  redraw = () => fill().catch(() => {});
}

const colour = (id) => 1 + (state.sources.findIndex((one) => one.id === id) % 8);
const PANELS = [["reward", "Reward in training"], ["accuracy", "Held-out accuracy"], ["length", "Tokens a reply"],
  ["entropy", "Entropy"], ["mismatch", "Mismatch of sampler and trainer"], ["speed", "Sampled tokens a second"]];

function curveCharts(found) {
  const curves = found.filter(([, data]) => data.panels && data.panels.reward);
  if (!curves.length) return [];
  return PANELS.map(([name, title]) => lineChart(title, curves.map(([id, data]) => ({
    name: own(id).name, colour: colour(id), points: data.panels[name],
  })), { whole: true, share: name === "accuracy" }));
}

function moreMetrics(found, chosen) {
  const names = [...new Set(found.flatMap(([, data]) => data.metrics || []))].sort();
  if (!names.length || saved) return null;
  const place = h("div", { class: "charts" });
  const draw = async (name) => {
    if (!name) { place.replaceChildren(); return; }
    const lines = await Promise.all(found.filter(([, d]) => (d.metrics || []).includes(name)).map(async ([id]) => ({
      name: own(id).name, colour: colour(id), points: await get(`s/${id}/metric?name=${encodeURIComponent(name)}`),
    })));
    place.replaceChildren(lineChart(name, lines, { whole: true }));
  };
  draw(chosen || "");
  return [h("h2", {}, "Any other metric"), h("p", { class: "bar" }, h("label", {}, "Metric ", h("select", {
    onchange: (event) => { setQuery({ metric: event.target.value }); draw(event.target.value); },
  }, ["", ...names].map((name) => h("option", { value: name, selected: name === chosen }, name))))), place];
}

function lengthCharts(found) {
  const lines = [];
  for (const [id, list] of found) {
    for (const line of new Set(list.map((one) => one.line))) {
      const points = list.filter((one) => one.line === line).sort((a, b) => a.at - b.at);
      lines.push({ name: line === own(id).name ? line : `${own(id).name}, ${line}`, points, id });
    }
  }
  if (!lines.length) return null;
  return [h("h2", {}, "Held-out accuracy by length"),
    table(["folder and agent", "length", "#accuracy", "95% interval", "#n", "#failed"], lines.flatMap((line) => line.points.map((p, i) =>
      h("tr", {}, h("td", {}, i ? "" : line.name), h("td", {}, p.name), h("td", { class: "num" }, number(p.mean)),
        h("td", {}, intervalBar(p), ` ${number(p.low)} to ${number(p.high)}`),
        h("td", { class: "num" }, p.n), h("td", { class: "num" }, p.failed)))), { label: "Accuracy by length" })];
}

function intervalBar(p) {
  return s("svg", { viewBox: "0 0 120 10", class: "interval", "aria-hidden": "true" },
    s("line", { x1: 0, x2: 120, y1: 5, y2: 5, class: "grid" }),
    s("line", { x1: 120 * p.low, x2: 120 * p.high, y1: 5, y2: 5, class: "whisker" }),
    s("circle", { cx: 120 * p.mean, cy: 5, r: 3 }));
}

function settingsTable(ids, rows) {
  if (!rows.length) return null;
  return [h("h2", {}, "Settings that differ"), table(["setting", ...ids.map((id) => own(id).name)], rows.map((row) =>
    h("tr", {}, h("th", { scope: "row" }, row.name), row.values.map((value) => h("td", {}, value)))), { id: "settings", label: "Settings that differ" })];
}

// Episodes: every answer, searched and filtered

const FILTERS = [["result", "Result"], ["cause", "Cause"], ["split", "Split"], ["step", "Step"], ["set", "Tasks"], ["length", "Length"], ["category", "Category"]];

async function episodes(_n, query) {
  const turn = drawn;
  const id = source;
  let data = await rowsOf(id);
  let most = PAGE_ROWS;
  const body = h("tbody", {});
  const count = h("p", { class: "soft", id: "count", role: "status" });
  const more = h("button", { type: "button", onclick: () => { most += 5 * PAGE_ROWS; draw(); } }, "Show more");
  const search = h("input", { type: "search", id: "search", value: query.text || "", placeholder: "question, answer, task", "aria-label": "Search",
    oninput: (event) => { query.text = event.target.value; setQuery({ text: query.text }); draw(); } });
  const selects = h("div", { class: "filters" });
  const rowLink = (row) => link(["film", id, row.n], { q: row.q || "" });
  const draw = () => {
    const rows = filtered(data, query);
    const chosen = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    count.textContent = `${rows.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} answers`;
    body.replaceChildren(...rows.slice(0, most).map((row) => h("tr", {},
      h("td", { class: "num" }, row.step === null ? "" : row.step), h("td", {}, row.split),
      h("td", { class: "text" }, h("a", { href: rowLink(row) }, row.question)),
      h("td", { class: "text" }, row.gold), h("td", { class: "text" }, row.answer || (row.failure ? "failed" : "")),
      h("td", { class: "num" }, verdict(row.score)),
      h("td", {}, data.causes[`${row.n}.${row.q}`] ? chip(data.causes[`${row.n}.${row.q}`]) : ""),
      h("td", { class: "soft text" }, row.task))));
    const again = chosen && [...body.querySelectorAll("a")].find((a) => a.getAttribute("href") === chosen);
    if (again) again.focus({ preventScroll: true });
    more.hidden = rows.length <= most;
  };
  const fillFilters = () => selects.contains(document.activeElement) || selects.replaceChildren(...FILTERS.map(([name, words]) => choice(name, words, data, query, draw)).filter(Boolean));
  const head = ["#step", "split", "question", "accepted", "answer", "#score", "cause", "task"];
  const grid = table(head, [], { id: "episodes", label: "Episodes" });
  grid.querySelector("tbody").replaceWith(body);
  show(h("h1", {}, "Episodes"), h("div", { class: "bar" }, search, selects), count, grid, more);
  fillFilters();
  draw();
  const causes = async () => {
    const found = await causesOf(id).catch(() => null);
    if (turn !== drawn || !found) return;
    data = listed[id];
    fillFilters();
    draw();
    if (!found.done && !saved) setTimeout(() => turn === drawn && causes(), 700);
  };
  causes();
  redraw = async () => { data = await rowsOf(id); if (turn === drawn) { fillFilters(); draw(); causes(); } };
}

function valueOf(name, row, data) {
  if (name === "result") return row.failure ? "failed" : row.score === null ? "not scored" : row.score >= 0.5 ? "right" : "wrong";
  if (name === "cause") return data.causes[`${row.n}.${row.q}`] || "";
  if (name === "length") return data.lengths[`${row.n}.${row.q}`] || "";
  return row[name] === null || row[name] === undefined ? "" : String(row[name]);
}

function filtered(data, query) {
  const wanted = FILTERS.map(([name]) => name).filter((name) => query[name]);
  const words = (query.text || "").toLowerCase();
  return data.rows.filter((row) =>
    wanted.every((name) => valueOf(name, row, data) === query[name]) &&
    (!words || `${row.question}\n${row.gold}\n${row.answer}\n${row.task}`.toLowerCase().includes(words)));
}

function choice(name, words, data, query, draw) {
  const values = [...new Set(data.rows.map((row) => valueOf(name, row, data)))].filter(Boolean);
  if (values.length < 2 && !query[name]) return null;
  values.sort((a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b));
  return h("label", {}, words + " ", h("select", {
    "data-filter": name, onchange: (event) => { query[name] = event.target.value; setQuery({ [name]: query[name] }); draw(); },
  }, ["", ...new Set([...values, query[name]].filter(Boolean))].map((value) =>
    h("option", { value, selected: value === (query[name] || "") }, value || "all"))));
}

// Why it failed

async function why() {
  const turn = drawn;
  const id = source;
  const draw = async () => {
    const found = await causesOf(id);
    if (turn !== drawn) return;
    const sections = [["all", "All answers", null], ["split", own(id).kind === "run" ? "By split" : "By agent", "split"],
      ["length", "By length", "length"], ["step", "Held-out answers by step", "step"]];
    show(h("h1", {}, "Why it failed"),
      h("p", { class: "soft" }, "Every wrong answer is classified by what became of it, without a judge. Shares are of all answers, with 95% intervals. Choose a bar to see its episodes."),
      found.done ? null : h("p", { role: "status" }, `${found.known.toLocaleString("en")} of ${found.total.toLocaleString("en")} answers looked at`),
      found.error ? h("p", { class: "notice" }, found.error) : null,
      found.done && found.known && !found.all.length ? h("p", {}, "Nothing has scored these answers.") : null,
      sections.map(([part, title, filter]) => found[part].length > (filter ? 1 : 0) ? causeTable(id, title, filter, found, found[part]) : null));
    if (!found.done && !saved) setTimeout(() => turn === drawn && draw().catch(() => {}), 700);
  };
  await rowsOf(id);
  await draw();
  redraw = async () => { await rowsOf(id); await draw(); };
}

function causeTable(id, title, filter, found, list) {
  const head = [title.startsWith("By ") ? title.slice(3) : filter || "", "#answers", "#wrong", ...found.causes];
  return [h("h2", {}, title), table(head, list.map((line) => {
    const wrong = found.causes.reduce((sum, cause) => sum + line.shares[cause].count, 0);
    return h("tr", {}, h("th", { scope: "row" }, line.name), h("td", { class: "num" }, line.n), h("td", { class: "num" }, wrong),
      found.causes.map((cause) => h("td", {}, bar(line.shares[cause], cause, () => {
        const query = { cause };
        if (filter) query[filter] = line.name;
        if (filter === "step") query.split = "val";
        location.hash = link(["episodes", id], query);
      }))));
  }), { label: title, class: "why" })];
}

document.getElementById("source").addEventListener("change", (event) => {
  source = event.target.value;
  const page = here().parts[0] || "runs";
  location.hash = link([page === "film" || page === "siblings" ? "episodes" : page === "runs" || page === "compare" ? "why" : page, source]);
});
