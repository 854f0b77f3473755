// Charts as SVG: lines with bands, and bars with whiskers.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function s(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, String(value));
  }
  return add(node, children);
}

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
  return found;
}

/** Lines: [{name, colour, points: [[x, y, low, high]]}]. */
function lineChart(title, lines, options = {}) {
  const W = 360, H = 190, left = 46, right = 10, top = 26, bottom = 22;
  const points = lines.flatMap((line) => line.points);
  const figure = h("figure", { class: "chart" });
  if (!points.length) {
    return add(figure, [h("figcaption", {}, title), h("p", { class: "soft" }, "not measured")]);
  }
  const xs = points.map((p) => p[0]);
  const ys = points.flatMap((p) => [p[1], p[2], p[3]]).filter((y) => y !== null && y !== undefined);
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (options.share) [y0, y1] = [Math.min(0, y0), Math.max(1, y1)];
  if (y0 === y1) [y0, y1] = [y0 - (Math.abs(y0) || 1) / 2, y1 + (Math.abs(y1) || 1) / 2];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const X = (x) => left + ((x - x0) / (x1 - x0)) * (W - left - right);
  const Y = (y) => H - bottom - ((y - y0) / (y1 - y0)) * (H - top - bottom);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title + ": " + lines.map(spoken).join("; ") });
  svg.append(s("text", { x: 0, y: 14, class: "title" }, title));
  for (const y of ticks(y0, y1, 4)) {
    svg.append(s("line", { x1: left, x2: W - right, y1: Y(y), y2: Y(y), class: "grid" }));
    svg.append(s("text", { x: left - 6, y: Y(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of ticks(x0, x1, 5).filter((x) => !options.whole || Number.isInteger(x))) {
    svg.append(s("text", { x: X(x), y: H - 6, "text-anchor": "middle" }, options.names ? options.names(x) : short(x)));
  }
  lines.forEach((line) => drawLine(svg, line, X, Y));
  return add(figure, [svg]);
}

function spoken(line) {
  const last = line.points[line.points.length - 1];
  return last ? `${line.name} ends at ${short(last[1])}` : `${line.name} has no values`;
}

function drawLine(svg, line, X, Y) {
  const own = s("g", { class: "s" + line.colour });
  const band = line.points.filter((p) => p[2] !== null && p[2] !== undefined && p[3] !== null);
  if (band.length > 1) {
    const upper = band.map((p) => `${X(p[0])},${Y(p[3])}`);
    const lower = band.map((p) => `${X(p[0])},${Y(p[2])}`).reverse();
    own.append(s("polygon", { points: [...upper, ...lower].join(" "), class: "band" }));
  }
  const path = line.points.map((p) => `${X(p[0])},${Y(p[1])}`).join(" ");
  own.append(s("polyline", { points: path, class: "line" }));
  const sparse = line.points.length <= 40;
  for (const p of line.points) {
    const range = p[2] === null || p[2] === undefined ? "" : ` [${short(p[2])}, ${short(p[3])}]`;
    own.append(s("circle", { cx: X(p[0]), cy: Y(p[1]), r: sparse ? 2.5 : 1.5, class: "dot" },
      s("title", {}, `${line.name} at ${short(p[0])}: ${short(p[1])}${range}`)));
    if (band.length === 1 && range) {
      own.append(s("line", { x1: X(p[0]), x2: X(p[0]), y1: Y(p[2]), y2: Y(p[3]), class: "line" }));
    }
  }
  svg.append(own);
}

/** One bar that can be chosen: a share with its interval. */
function bar(share, cause, open) {
  const W = 220, H = 18;
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, class: "share", "aria-hidden": "true" });
  svg.append(s("rect", { x: 0, y: 3, width: W, height: H - 6, class: "track" }));
  svg.append(s("rect", { x: 0, y: 3, width: share.mean * W, height: H - 6, class: "fill" }));
  svg.append(s("line", { x1: share.low * W, x2: share.high * W, y1: H / 2, y2: H / 2, class: "whisker" }));
  const words = `${share.count} ${cause}, ${percent(share.mean)} of answers, between ${percent(share.low)} and ${percent(share.high)}`;
  return h("button", {
    type: "button", class: "barbutton c-" + cause.split(" ")[0], "aria-label": words, title: words,
    "data-cause": cause, disabled: !share.count, onclick: open,
  }, svg, h("span", { class: "count" }, share.count), h("span", { class: "soft" }, percent(share.mean)));
}
