// Lines over time as SVG, and texts of numbers. No text of the cluster becomes markup: everything is set as text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; strings become text.
function make(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return (n >= 100 || u === 0 ? n.toFixed(0) : n.toFixed(1)) + " " + units[u];
}

function duration(s) {
  if (s < 60) return s.toFixed(0) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return (s / 3600).toFixed(1) + " h";
  return (s / 86400).toFixed(0) + " days";
}

// A figure with up to two lines. Each line: label, and points [seconds, value].
function chart(title, lines, show) {
  const W = 600, H = 100;
  const all = lines.flatMap(l => l.points);
  const first = Math.min(...all.map(p => p[0])), last = Math.max(...all.map(p => p[0]));
  const most = Math.max(...all.map(p => p[1]), 0);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const head = make("figcaption", {}, make("b", {}, title));
  lines.forEach((l, i) => {
    const path = document.createElementNS(SVG, "path");
    const x = t => last > first ? (t - first) / (last - first) * W : 0;
    const y = v => most > 0 ? H - 2 - v / most * (H - 4) : H - 2;
    path.setAttribute("class", i === 0 ? "a" : "b");
    path.setAttribute("d", l.points.map((p, n) => (n ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join(""));
    svg.append(path);
    const now = l.points.length ? l.points[l.points.length - 1][1] : 0;
    head.append(make("span", { class: i === 0 ? "key-a" : "key-b" }, `${l.label} ${show(now)}`));
  });
  svg.setAttribute("aria-label", `${title}, at most ${show(most)}`);
  const span = last > first ? `last ${duration(last - first)}, at most ${show(most)}` : "no figures yet";
  return make("figure", {}, head, svg, make("span", { class: "dim" }, span));
}

// A table: headings with `>` before those of numbers, and rows of strings or nodes.
function table(headings, rows) {
  const number = headings.map(h => h.startsWith(">"));
  const cell = (name, c, i) => make(name, number[i] ? { class: "n" } : {}, c);
  const head = make("tr", {}, ...headings.map((h, i) => cell("th", h.replace(/^>/, ""), i)));
  const body = rows.map(r => make("tr", {}, ...r.map((c, i) => cell("td", c, i))));
  return make("div", { class: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}
