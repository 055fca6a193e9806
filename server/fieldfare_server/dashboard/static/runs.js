// Every run, page by page, filtered, and a comparison of up to four.
import { runAddress } from "./address.js";
import { empty, h, show } from "./dom.js";
import { count, epsilon, moment, number } from "./format.js";
import { lineChart } from "./chart.js";
import { STATE_NAMES, stateTag } from "./banner.js";
import { populationLink } from "./budgets.js";
import { save } from "./population.js";
import { lookText, scores, span } from "./utility.js";

export const MOST = 4;

const HEAD = ["Compare", "Run", "State", "Population", "Task", "Mechanism", "Rounds", "ε spent", "ε planned", "Score or answer", "Started"];
const NUMBERS = new Set(["Rounds", "ε spent", "ε planned", "Score or answer"]);

// Makes the elements of a row once. Later only changed cells are drawn: a commit touches one row, not the whole table.
function makeRow(id, latest) {
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${id}`, "data-key": `compare-${id}`, onchange: (event) => latest.view.onCompare(id, event.target.checked) });
  const link = h("a", { href: runAddress(id), "data-key": `open-${id}` }, id);
  const label = h("span", { class: "small muted" });
  const cells = HEAD.slice(2).map((name) => h("td", { class: NUMBERS.has(name) ? "num" : "", "data-label": name }));
  return { box, link, label, cells, values: [], element: h("tr", {}, h("td", { "data-label": HEAD[0] }, box), h("td", { class: "name" }, link, " ", label), cells) };
}

function updateRow(row, run, view) {
  row.box.checked = view.compared.has(run.id);
  row.box.disabled = !row.box.checked && view.compared.size >= MOST;
  const current = run.id === view.current;
  row.element.classList.toggle("current", current);
  if (current) row.link.setAttribute("aria-current", "true"); else row.link.removeAttribute("aria-current");
  const label = [run.name, ...run.tags.map((tag) => `#${tag}`)].filter(Boolean).join(" ");
  if (row.label.textContent !== label) row.label.textContent = label;
  const texts = [run.state, run.population, run.task, run.mechanism, `${run.committed_rounds} / ${run.rounds}`, epsilon(run.spent.epsilon), epsilon(run.planned.epsilon),
    run.look ? lookText(run.look) : run.score === null ? "—" : number(run.score), moment(run.started_at)];
  texts.forEach((value, i) => {
    if (row.values[i] !== value) row.cells[i].replaceChildren(i === 0 ? stateTag(value) : i === 1 ? populationLink(value) : value);
    row.cells[i].classList.toggle("none", value === "—");
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
  show(parent, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs", "data-key": "runs" }, h("table", { class: "stacks" },
    h("thead", {}, h("tr", {}, HEAD.map((name) => h("th", { scope: "col", class: NUMBERS.has(name) ? "num" : "" }, name)))), body)), pages);
  return { latest, body, newer, older, position, pages, rows: new Map() };
}

const tables = new WeakMap();

export function drawRuns(parent, page, view) {
  if (!page.items.length && !view.page) {
    tables.delete(parent);
    show(parent, empty(view.filtered ? "No run matches." : "No run has been started."));
    return;
  }
  let table = tables.get(parent);
  if (!table?.body.isConnected) tables.set(parent, table = makeTable(parent));
  table.latest.view = view;
  const rows = new Map(page.items.map((run) => [run.id, table.rows.get(run.id) || makeRow(run.id, table.latest)]));
  for (const run of page.items) updateRow(rows.get(run.id), run, view);
  for (const [id, row] of table.rows) if (!rows.has(id)) row.element.remove();
  [...rows.values()].forEach((row, i) => { if (table.body.children[i] !== row.element) table.body.insertBefore(row.element, table.body.children[i] || null); });
  table.rows = rows;
  // Not `disabled`: a button that disables itself loses the keyboard's focus.
  table.newer.setAttribute("aria-disabled", String(view.page === 0));
  table.older.setAttribute("aria-disabled", String(!page.next));
  table.pages.hidden = view.page === 0 && !page.next;
  const text = `Page ${view.page + 1}`;
  if (table.position.textContent !== text) table.position.textContent = text;
}

// A filter and a download. The filter is part of the address, so that a filtered table can be sent to somebody.
export function drawFilters(parent, filter, onFilter) {
  const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value));
  query.set("format", "csv");
  const choice = (label, name, options) => h("label", {}, label, h("select", { "data-key": `filter-${name}`, onchange: (event) => onFilter({ ...filter, [name]: event.target.value }) },
    options.map(([value, text]) => h("option", { value, selected: value === filter[name] }, text))));
  show(parent, h("div", { class: "filters" }, choice("State", "state", [["", "all"], ...STATE_NAMES.map((name) => [name, name])]),
    choice("Show", "asks", [["", "all"], ["false", "training"], ["true", "looks"]]),
  save("Runs as CSV", `/v1/runs?${query}`, "fieldfare-runs.csv")));
}

// What each run of a population reached, and for how much: the newest of them, those that measure what most of them do.
export function drawScores(parent, runs) {
  const scored = runs.filter((run) => run.score !== null && run.spent.epsilon !== null);
  const kinds = Map.groupBy(scored, (run) => kindOfScore({ run }));
  const [kind, alike] = [...kinds].reduce((a, b) => (b[1].length > a[1].length ? b : a), ["", []]);
  if (alike.length < 2) {
    show(parent, empty("The chart begins with the second run that has released a score."));
    return;
  }
  const points = alike.map((run) => [run.spent.epsilon, run.score, run.name || run.id]).sort(([a], [b]) => a - b);
  let best = -Infinity;
  const reached = [...new Map(points.map(([x, y]) => [x, best = Math.max(best, y)]))];
  const figure = h("div");
  show(parent, figure, h("p", { class: "hint" }, `The last score of ${count(alike.length)} runs, each against the epsilon that it spent alone; the line is the highest for so much or less.${kinds.size > 1 ? " Runs that measure something else are left out." : ""}`));
  lineChart(figure, {
    label: `Held-out ${kind} of ${alike.length} runs against the epsilon that each had spent: at most ${number(best)}.`, xLabel: "ε spent by the run alone", xName: "ε", yLabel: kind, height: 260, xValue: epsilon,
    x: [0, 1.04 * points.at(-1)[0]], y: span(points.map(([, y]) => y)), steps: true,
    lines: [{ name: "highest so far", color: "2", dash: "6 4", points: reached }, { name: "runs", color: "1", dots: true, points }],
  });
}

const kindOfScore = ({ run }) => `${run.score_name || "score"} on ${run.task}`;

// Separate from the table, which may be long: choosing a run must not draw it again. every: [{run, series}]; several: whether there is more than one to choose from.
export function drawComparison(figure, every, several) {
  if (!every.length) {
    show(figure, several && h("p", { class: "hint" }, `Choose up to ${MOST} runs to compare their scores and plans.`));
    return;
  }
  const kinds = [...new Set(every.map(kindOfScore))];
  const [chart, against] = [h("div"), h("div", { class: "gap" })];
  const differences = planDifferences(every.map(({ run }) => run));
  const plans = every.length > 1 ? h("details", { class: "data gap", open: true, "data-key": "differences" }, h("summary", { "data-key": "differ" }, "Where the plans differ"), differences) : null;
  if (kinds.length > 1) {
    show(figure, h("p", { class: "notice-inline", role: "status" }, `These runs measure different things (${kinds.join("; ")}), so their scores share no axis.`), plans);
    return;
  }
  const lines = every.map(({ run, series }, i) => ({ name: run.name || run.id, color: String(i + 1), dash: [null, "7 4", "2 4", "9 3 2 3"][i], points: scores(series), bought: scores(series, (point) => point.epsilon) })).filter((line) => line.points.length);
  if (!lines.length) {
    show(figure, empty("The chosen runs have released no score."), plans);
    return;
  }
  show(figure, h("ul", { class: "key" }, lines.map((line) => h("li", {}, h("span", { class: `swatch b${line.color}`, "aria-hidden": "true" }), line.name))), chart,
    h("h3", { class: "gap" }, "What the score cost: against epsilon spent"), against, plans);
  lineChart(chart, {
    label: `Held-out ${kinds[0]} of ${lines.map((line) => line.name).join(", ")} against rounds.`, xLabel: "rounds committed", xName: "Round", yLabel: kinds[0], height: 260,
    x: [0, Math.max(...every.map(({ series }) => series.rounds))], y: span(lines.flatMap((line) => line.points.map(([, y]) => y))), lines,
  });
  const bought = lines.map((line) => ({ ...line, points: line.bought }));
  lineChart(against, {
    label: `Held-out ${kinds[0]} of ${lines.map((line) => line.name).join(", ")} against the epsilon that each had spent.`, xLabel: "ε spent by the run alone", xName: "ε", yLabel: kinds[0], height: 260, xValue: epsilon,
    x: [0, Math.max(...bought.flatMap((line) => line.points.map(([x]) => x)))], y: span(lines.flatMap((line) => line.points.map(([, y]) => y))), lines: bought,
  });
}

function flat(table, before = "") {
  return Object.entries(table).flatMap(([key, value]) => (value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${before}${key}.`) : [[`${before}${key}`, value]]));
}

const written = (value) => (value === null || value === undefined ? "—" : typeof value === "number" ? number(value, 6) : String(value));

function planDifferences(runs) {
  const plans = runs.map((run) => new Map(flat(run.plan)));
  const keys = [...new Set(plans.flatMap((plan) => [...plan.keys()]))].sort();
  const rows = keys.filter((key) => new Set(plans.map((plan) => written(plan.get(key)))).size > 1);
  if (!rows.length) return h("p", { class: "hint" }, "They do not: the plans are the same.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Differences of the plans", "data-key": "differing" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), runs.map((run) => h("th", { scope: "col" }, run.name || run.id)))),
    h("tbody", {}, rows.map((key) => h("tr", {}, h("td", { class: "mono" }, key), plans.map((plan) => h("td", {}, written(plan.get(key)))))))));
}
