// Panel 10: every run, page by page, and a comparison of up to four.
import { empty, h, show } from "./dom.js";
import { epsilon, moment, number } from "./format.js";
import { lineChart } from "./chart.js";
import { stateTag } from "./banner.js";
import { scores, span } from "./utility.js";

export const MOST = 4;

const HEAD = ["Compare", "Run", "State", "Task", "Mechanism", "Rounds", "ε spent", "ε planned", "Score", "Started"];
const NUMBERS = new Set(["Rounds", "ε spent", "ε planned", "Score"]);

// Makes the elements of a row once. Later only changed cells are drawn: a commit touches one row, not the whole table.
function makeRow(id, latest) {
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${id}`, "data-key": `compare-${id}`, onchange: (event) => latest.view.onCompare(id, event.target.checked) });
  const link = h("button", { type: "button", class: "link", "data-key": `open-${id}`, onclick: () => latest.view.onPick(id) }, id);
  const cells = HEAD.slice(2).map((name) => h("td", { class: NUMBERS.has(name) ? "num" : "" }));
  return { box, link, cells, values: [], element: h("tr", {}, h("td", {}, box), h("td", {}, link), cells) };
}

function updateRow(row, run, view) {
  row.box.checked = view.compared.has(run.id);
  row.box.disabled = !row.box.checked && view.compared.size >= MOST;
  const current = run.id === view.current;
  row.element.classList.toggle("current", current);
  if (current) row.link.setAttribute("aria-current", "true"); else row.link.removeAttribute("aria-current");
  const texts = [run.state, run.task, run.mechanism, `${run.committed_rounds} / ${run.rounds}`, epsilon(run.spent.epsilon), epsilon(run.planned.epsilon),
    run.score === null ? "—" : number(run.score), moment(run.started_at)];
  texts.forEach((value, i) => {
    if (row.values[i] !== value) row.cells[i].replaceChildren(i === 0 ? stateTag(value) : value);
  });
  row.values = texts;
}

// The table of one parent. It is made at the first draw and kept while there are runs to show.
function makeTable(parent) {
  const latest = { view: null };
  const body = h("tbody");
  const turn = (name, what) => h("button", { type: "button", "data-key": what, onclick: (event) => { if (event.target.getAttribute("aria-disabled") === "false") latest.view[what](); } }, name);
  const [newer, older, position] = [turn("Newer runs", "onNewer"), turn("Older runs", "onOlder"), h("span", { class: "small", role: "status" })];
  const pages = h("nav", { class: "tools gap", "aria-label": "Pages of runs" }, newer, older, position);
  show(parent, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs", "data-key": "runs" }, h("table", {},
    h("thead", {}, h("tr", {}, HEAD.map((name) => h("th", { scope: "col", class: NUMBERS.has(name) ? "num" : "" }, name)))), body)), pages);
  return { latest, body, newer, older, position, pages, rows: new Map() };
}

const tables = new WeakMap();

export function drawRuns(parent, page, view) {
  if (!page.items.length && !view.page) {
    tables.delete(parent);
    show(parent, empty("No run has been started."));
    return;
  }
  let table = tables.get(parent);
  if (!table?.body.isConnected) tables.set(parent, table = makeTable(parent));
  table.latest.view = view;
  const focused = table.body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const rows = new Map(page.items.map((run) => [run.id, table.rows.get(run.id) || makeRow(run.id, table.latest)]));
  for (const run of page.items) updateRow(rows.get(run.id), run, view);
  for (const [id, row] of table.rows) if (!rows.has(id)) row.element.remove();
  [...rows.values()].forEach((row, i) => { if (table.body.children[i] !== row.element) table.body.insertBefore(row.element, table.body.children[i] || null); });
  table.rows = rows;
  if (focused && document.activeElement === document.body) table.body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  // Not `disabled`: a button that disables itself loses the keyboard's focus.
  table.newer.setAttribute("aria-disabled", String(view.page === 0));
  table.older.setAttribute("aria-disabled", String(!page.next));
  table.pages.hidden = view.page === 0 && !page.next;
  const text = `Page ${view.page + 1}`;
  if (table.position.textContent !== text) table.position.textContent = text;
}

// Separate from the table, which may be long: choosing a run must not draw it again.
export function drawComparison(figure, every) {
  if (!every.length) {
    show(figure, h("p", { class: "hint" }, `Choose up to ${MOST} runs to compare their scores.`));
    return;
  }
  const lines = every.map((series, i) => ({ name: series.run, color: String(i + 1), dash: [null, "7 4", "2 4", "9 3 2 3"][i], points: scores(series) })).filter((line) => line.points.length);
  if (!lines.length) {
    show(figure, empty("The chosen runs have released no score."));
    return;
  }
  const chart = h("div");
  show(figure, h("ul", { class: "key" }, lines.map((line) => h("li", {}, h("span", { class: `swatch b${line.color}`, "aria-hidden": "true" }), line.name))), chart);
  lineChart(chart, {
    label: `Held-out score of ${lines.map((line) => line.name).join(", ")} against rounds.`, xLabel: "rounds committed", xName: "Round", yLabel: "score", height: 260,
    x: [0, Math.max(...every.map((series) => series.rounds))], y: span(lines.flatMap((line) => line.points.map(([, y]) => y))), lines,
  });
}
