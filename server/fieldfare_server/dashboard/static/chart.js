// Line charts as SVG: axes, rules, a cross-hair for pointer and keyboard, and a table of the same numbers.
import { h, keeping, s } from "./dom.js";
import { number } from "./format.js";

const PAD = { top: 28, right: 16, bottom: 38, left: 60 };

export function ticks(low, high, most) {
  const span = high - low || 1;
  const raw = span / Math.max(1, most);
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((m) => m >= raw) || 10 * unit;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) out.push(Number((i * step).toPrecision(12)));
  return out;
}

// options: label, xLabel, yLabel, x: [low, high], y: [low, high], lines: [{name, color, points: [[x, y]], area}],
// dots: each point is a circle of its own, and point[2] its name. rules: [{name, y, color, solid}], format, height, xFormat: of values on the x axis (default: whole numbers),
// xValue: how a value on an x axis that is no count is written; steps: a value holds until the next point
export function lineChart(parent, options) {
  const { label, xLabel, yLabel, lines, rules = [], format = number, height = 280 } = options;
  const root = h("div", { class: "chart" });
  const tip = h("div", { class: "tip", hidden: true });
  const spoken = h("div", { class: "sr", role: "status" });
  let drawn = 0;
  const key = ["chart", xLabel, yLabel, ...lines.map((line) => line.name)].join(" ");
  const draw = () => {
    const width = Math.max(260, Math.round(root.clientWidth || parent.clientWidth || 600));
    if (width === drawn || (drawn && !root.clientWidth)) return; // out of sight it has no width
    drawn = width;
    keeping(root, () => {
      root.querySelector("svg")?.remove();
      root.prepend(picture(width, height, options, { key, tip, spoken, format, lines, rules, xLabel, yLabel, label }));
    });
  };
  root.append(tip, spoken, table(key, options, format));
  new ResizeObserver(draw).observe(root);
  parent.replaceChildren(root);
  draw();
}

function picture(width, height, options, { key, tip, spoken, format, lines, rules, xLabel, yLabel, label }) {
  const [x0, x1] = options.x;
  const [y0, y1] = options.y;
  const X = (v) => PAD.left + ((v - x0) / (x1 - x0 || 1)) * (width - PAD.left - PAD.right);
  const Y = (v) => height - PAD.bottom - ((v - y0) / (y1 - y0 || 1)) * (height - PAD.top - PAD.bottom);
  const bottom = height - PAD.bottom;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label, tabindex: "0", "data-key": key });
  for (const v of ticks(y0, y1, 4)) {
    svg.append(s("line", { class: "grid-line", x1: PAD.left, x2: width - PAD.right, y1: Y(v), y2: Y(v) }),
      s("text", { x: PAD.left - 8, y: Y(v) + 4, "text-anchor": "end" }, number(v, 6)));
  }
  const { xFormat } = options;
  const marks = xFormat ? timeMarks(x0, x1, Math.floor(width / 150)) : ticks(x0, x1, Math.min(8, Math.floor(width / 80))).filter((v) => options.xValue || Number.isInteger(v));
  let before = "";
  for (const v of marks) {
    const text = xFormat ? xFormat(v) : options.xValue ? number(v, 6) : v.toLocaleString();
    if (text !== before) svg.append(s("text", { x: X(v), y: bottom + 17, "text-anchor": xFormat && v === x0 ? "start" : "middle" }, before = text));
  }
  svg.append(s("line", { class: "axis", x1: PAD.left, x2: width - PAD.right, y1: bottom, y2: bottom }),
    s("text", { x: width - PAD.right, y: height - 4, "text-anchor": "end" }, xLabel),
    s("text", { x: 0, y: 10 }, yLabel));
  for (const line of lines) {
    if (line.dots) {
      svg.append(...line.points.map(([x, y]) => s("circle", { class: `f${line.color}`, cx: X(x), cy: Y(y), r: 4 })));
      continue;
    }
    const path = line.points.map(([x, y], i) => (i && options.steps ? `H${X(x).toFixed(1)}V${Y(y).toFixed(1)}` : `${i ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`)).join("");
    if (!path) continue;
    if (line.area) {
      const last = line.points.at(-1)[0];
      svg.append(s("path", { class: `area f${line.color}`, d: `${path}L${X(last).toFixed(1)} ${bottom}L${X(line.points[0][0]).toFixed(1)} ${bottom}Z` }));
    }
    svg.append(s("path", { class: `line c${line.color}`, d: path, "stroke-dasharray": line.dash }));
    const [lx, ly] = line.points.at(-1);
    svg.append(s("circle", { class: `f${line.color}`, cx: X(lx), cy: Y(ly), r: 3.5 }));
  }
  const taken = [];
  for (const rule of rules) {
    const place = freePlace(rule.name, Y(rule.y), width, bottom, taken);
    svg.append(s("line", { class: `rule c${rule.color} ${rule.solid ? "solid" : ""}`, x1: PAD.left, x2: width - PAD.right, y1: Y(rule.y), y2: Y(rule.y) }));
    if (place) svg.append(s("text", { class: `rule-name t${rule.color}`, x: place.left, y: place.y }, rule.name));
  }
  const cross = s("line", { class: "cross", y1: PAD.top, y2: bottom, visibility: "hidden" });
  const dots = lines.map((line) => s("circle", { class: `f${line.color}`, r: 4.5, visibility: "hidden" }));
  svg.append(cross, ...dots);
  const grid = [...new Set(lines.flatMap((line) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
  let at = grid.length - 1;
  const hide = () => {
    if (!svg.isConnected) return; // another drawing has its place
    delete svg.dataset.at;
    for (const part of [cross, ...dots]) part.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const point = (index, speak) => {
    at = Math.max(0, Math.min(grid.length - 1, index));
    const x = svg.dataset.at = grid[at];
    const rows = [];
    lines.forEach((line, i) => {
      const near = nearest(line.points, x);
      dots[i].setAttribute("visibility", near ? "visible" : "hidden");
      if (!near) return;
      dots[i].setAttribute("cx", X(near[0]));
      dots[i].setAttribute("cy", Y(near[1]));
      if (line.dots) rows.push(...line.points.filter(([v]) => v === near[0]).map(([, y, name]) => `${name} ${format(y)}`));
      else rows.push(`${line.name} ${format(near[1])}`);
    });
    cross.setAttribute("x1", X(x));
    cross.setAttribute("x2", X(x));
    cross.setAttribute("visibility", "visible");
    const title = `${options.xName ?? xLabel} ${written(options, x)}`.trim();
    tip.replaceChildren(h("b", {}, title), ...rows.map((row) => h("div", {}, row)));
    tip.hidden = false;
    const place = X(x) / width;
    tip.style.left = place < 0.6 ? `${100 * place + 2}%` : "auto";
    tip.style.right = place < 0.6 ? "auto" : `${100 * (1 - place) + 2}%`;
    if (speak) spoken.textContent = `${title}: ${rows.join(", ")}`;
  };
  if (grid.length) {
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const v = x0 + (((event.clientX - box.left) / box.width * width - PAD.left) / (width - PAD.left - PAD.right)) * (x1 - x0);
      point(indexNear(grid, v), false);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("place", (event) => point(indexNear(grid, event.detail), svg === document.activeElement));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      point(at + step, true);
    });
  }
  return svg;
}

// Where a name of about 7 px a letter stands at its rule without touching one that stands already; null: nowhere, and the
// legend above the chart has it.
function freePlace(name, y, width, bottom, taken) {
  const long = 7 * name.length;
  for (const left of [PAD.left + 6, width - PAD.right - long]) {
    for (const base of [y - 5, y + 14]) {
      const free = base > 10 && base < bottom && !taken.some((one) => Math.abs(one.y - base) < 15 && left < one.right && one.left < left + long);
      if (free) {
        const place = { left, right: left + long, y: base };
        taken.push(place);
        return place;
      }
    }
  }
  return null;
}

const timeMarks = (low, high, most) => Array.from({ length: Math.max(1, most) }, (_, i) => low + (i / Math.max(1, most)) * (high - low));

function indexNear(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1; else high = middle;
  }
  return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}

function nearest(points, x) {
  if (!points.length || x < points[0][0] || x > points.at(-1)[0]) return null;
  return points[indexNear(points.map(([v]) => v), x)];
}

// How a value on the x axis is written.
const written = ({ xFormat, xValue }, x) => (xFormat ? new Date(x).toLocaleString() : xValue ? xValue(x) : x.toLocaleString());

function table(key, options, format) {
  const { lines, xLabel } = options;
  const every = [...new Set(lines.flatMap((line) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
  const step = Math.max(1, Math.ceil(every.length / 16));
  const kept = every.filter((_, i) => i % step === 0 || i === every.length - 1);
  return h("details", { class: "data", "data-key": `open ${key}` }, h("summary", { "data-key": `table ${key}` }, "Show as table"), h("div", { class: "scroll", "data-key": `rows ${key}` },
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, xLabel || "when"), lines.map((l) => h("th", { scope: "col", class: "num" }, l.name)))),
      h("tbody", {}, kept.map((x) => h("tr", {}, h("td", {}, written(options, x)), lines.map((line) => {
        const near = nearest(line.points, x);
        return h("td", { class: "num" }, near ? format(near[1]) : "—");
      })))))));
}

export const bar = (share, kind = "") => {
  const inner = h("i", { class: kind });
  inner.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return h("div", { class: "track", "aria-hidden": "true" }, inner);
};

export function bars(rows) {
  const most = Math.max(1, ...rows.map(([, value]) => value));
  return h("div", { class: "bars", role: "list" }, rows.map(([name, value, note]) =>
    h("div", { role: "listitem" }, h("span", {}, name), bar(value / most), h("span", { class: "num" }, note || value.toLocaleString()))));
}
