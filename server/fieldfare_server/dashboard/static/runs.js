// Panel 10: every run, and up to four of them side by side.
import { empty, h, show } from "./dom.js";
import { epsilon, moment, number } from "./format.js";
import { lineChart } from "./chart.js";
import { stateTag } from "./banner.js";
import { scores, span } from "./utility.js";

export const MOST = 4;

function table(runs, view) {
  const head = ["Compare", "Run", "State", "Task", "Mechanism", "Rounds", "ε spent", "ε planned", "Score", "Started"];
  const body = runs.map((run) => {
    const box = h("input", {
      type: "checkbox", "aria-label": `Compare ${run.id}`, "data-key": `compare-${run.id}`, checked: view.compared.has(run.id),
      disabled: !view.compared.has(run.id) && view.compared.size >= MOST, onchange: (event) => view.onCompare(run.id, event.target.checked),
    });
    const link = h("button", { type: "button", class: "link", "data-key": `open-${run.id}`, "aria-current": run.id === view.current ? "true" : null, onclick: () => view.onPick(run.id) }, run.id);
    return h("tr", { class: run.id === view.current ? "current" : "" }, h("td", {}, box), h("td", {}, link), h("td", {}, stateTag(run.state)), h("td", {}, run.task), h("td", {}, run.mechanism),
      h("td", { class: "num" }, `${run.committed_rounds} / ${run.rounds}`), h("td", { class: "num" }, epsilon(run.spent.epsilon)), h("td", { class: "num" }, epsilon(run.planned.epsilon)),
      h("td", { class: "num" }, run.score === null ? "—" : number(run.score)), h("td", {}, moment(run.started_at)));
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs", "data-key": "runs" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { scope: "col", class: i >= 5 && i <= 8 ? "num" : "" }, name)))), h("tbody", {}, body)));
}

export function drawRuns(parent, page, view) {
  if (!page.items.length) {
    show(parent, empty("No run has been started."));
    return;
  }
  show(parent, table(page.items, view),
    page.next ? h("div", { class: "gap" }, h("button", { type: "button", "data-key": "more", onclick: view.onMore }, "More runs")) : null);
}

// Apart from the table, which may be long: choosing a run must not draw it anew.
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
