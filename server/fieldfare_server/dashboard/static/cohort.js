// Panel 5: how many users each round asked and counted, and why replies were refused.
import { empty, facts, h, show } from "./dom.js";
import { HIDDEN, count, hides } from "./format.js";
import { bars, lineChart } from "./chart.js";

export function drawCohort(parent, run, series) {
  if (hides(run.adjacency)) {
    show(parent, facts([["Expected a round", count(run.cohort)], ["Asked last round", HIDDEN], ["Counted last round", HIDDEN], ["Refused replies", HIDDEN]]),
      h("p", { class: "hint" }, "Who takes part is drawn in secret. How many were drawn, replied or were refused would reveal who is there, so these counts are neither shown nor acted on."));
    return;
  }
  const last = series.points.at(-1);
  const rejects = Object.entries(run.rejects).sort((a, b) => b[1] - a[1]);
  const summary = facts([["Planned a round", count(run.cohort)], ["Fewest allowed", count(run.min_reports)],
    ["Asked last round", count(last?.cohort)], ["Counted last round", count(last?.reports)], ["Void rounds", count(run.void_rounds)]]);
  const figure = h("div", { class: "gap" });
  show(parent, summary, figure, h("h3", { class: "gap" }, "Refused replies by reason"),
    rejects.length ? bars(rejects) : h("p", { class: "hint" }, "None so far."),
    h("p", { class: "hint" }, h("span", { class: "tag warn" }, "not covered"), " Who was available and how many replied is operational data, public under the stated adjacency."));
  const points = series.points.filter((p) => p.reports !== null).map((p) => [p.round + 1, p.reports]);
  if (!points.length) {
    show(figure, empty("No round has been committed yet."));
    return;
  }
  const high = Math.max(run.cohort, ...points.map(([, y]) => y)) * 1.12;
  lineChart(figure, {
    label: `Users counted a round, ${count(points.at(-1)[1])} in the last; ${count(run.cohort)} planned, at least ${count(run.min_reports)} needed.`,
    xLabel: "rounds committed", xName: "Round", yLabel: "users", x: [0, series.rounds], y: [0, high], height: 260, format: count,
    lines: [{ name: "counted", color: "1", points }], rules: [{ name: "fewest allowed", y: run.min_reports, color: "bad" }],
  });
}
