// Small parts that every view uses. Foreign text only ever becomes text nodes.
"use strict";

/** Make an element; children are elements or texts, and texts stay texts. */
function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function show(...children) {
  const main = document.getElementById("main");
  main.replaceChildren();
  add(main, children);
  return main;
}

// Data: from the file itself if it was exported, else from the server.

const embedded = document.getElementById("data");
const saved = embedded ? JSON.parse(embedded.textContent) : null;
let key = null;
try { key = sessionStorage.getItem("recollect-key"); } catch (_refused) { key = null; }

class Refused extends Error {}

async function get(path) {
  if (saved) {
    if (path in saved) return saved[path];
    throw new Refused("This is not part of the exported file.");
  }
  return ask("api/" + path, {});
}

async function ask(path, options) {
  const headers = { "X-Recollect": "1" };
  if (key) headers.Authorization = "Bearer " + key;
  const reply = await fetch(path, { ...options, headers });
  if (reply.status === 401) { askKey(); throw new Refused("This page needs its key."); }
  const found = await reply.json();
  if (!reply.ok) throw new Refused(found.error || "The server refused.");
  return found;
}

function askKey() {
  const field = h("input", { type: "password", "aria-label": "Key", autocomplete: "off" });
  show(h("h1", {}, "This page needs its key"),
    h("p", {}, "It is in the environment variable that --api-key-env names."),
    h("p", { class: "bar" }, field, h("button", {
      type: "button",
      onclick: () => { key = field.value; sessionStorage.setItem("recollect-key", key); start(); },
    }, "Open")));
}

// Addresses: #/page/part?name=value

function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query || "")),
  };
}

function decoded(word) {
  try { return decodeURIComponent(word); } catch (_malformed) { return word; }
}

function link(parts, query) {
  const words = Object.entries(query || {}).filter(([, v]) => v !== "" && v !== null && v !== undefined);
  const search = new URLSearchParams(words).toString();
  return "#/" + parts.map(encodeURIComponent).join("/") + (search ? "?" + search : "");
}

function setQuery(changes) {
  const now = here();
  history.replaceState(null, "", link(now.parts, { ...now.query, ...changes }));
}

// Numbers

const number = (value, digits = 3) =>
  value === null || value === undefined ? "–" : Number(value).toFixed(digits);
const percent = (value) => (100 * value).toFixed(1) + "%";
const short = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(2) + "M";
  if (size >= 1e3) return Math.round(value).toLocaleString("en");
  if (size === 0 || size >= 0.01) return String(+Number(value).toPrecision(3));
  return Number(value).toExponential(1);
};

// Texts in pieces

/** Pieces of [text, marked]. */
function pieces(list) {
  return list.map(([text, hit]) => (hit ? h("mark", {}, text) : text));
}

/** Pieces of [change, text, marked]: "=" stayed, "+" came, "-" went. */
function changed(list) {
  return list.map(([change, text, hit]) => {
    const inner = hit ? h("mark", {}, text) : text;
    if (change === "+") return h("ins", {}, inner);
    if (change === "-") return h("del", {}, inner);
    return inner;
  });
}

const CAUSE = {
  "never written": "No memory ever held the answer.",
  "overwritten": "A memory held the answer, and the one that was answered from did not.",
  "kept but misread": "The memory that was answered from held the answer.",
  "malformed": "A reply could not be used.",
  "failed": "The episode ended in an error.",
};

function chip(cause) {
  return h("span", { class: "chip c-" + cause.split(" ")[0], title: CAUSE[cause] }, cause);
}

function verdict(score) {
  if (score === null || score === undefined) return h("span", { class: "soft" }, "not scored");
  const right = score >= 0.5;
  return h("span", { class: right ? "right" : "wrong" }, right ? "✓ " : "✗ ", number(score, 2));
}

function facts(list) {
  return h("dl", { class: "facts" }, list.filter(([, v]) => v !== null && v !== undefined && v !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function problem(error) {
  if (!(error instanceof Refused)) console.error(error);
  return h("p", { class: "notice", role: "alert" }, error.message || String(error));
}

function table(head, rows, props) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": (props || {}).label || "Table" },
    h("table", { id: (props || {}).id, class: (props || {}).class }, h("thead", {}, h("tr", {}, head.map((name) =>
      h("th", { scope: "col", class: name.startsWith("#") ? "num" : null }, name.replace(/^#/, ""))))),
    h("tbody", {}, rows)));
}
