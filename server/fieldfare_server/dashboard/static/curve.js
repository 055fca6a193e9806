// Panel 3: the epsilon if the run stopped now, that of the committed plan, and the limit. With correlated noise the
// promise is about the whole plan, so the three are shown separately.
import { empty, h, show } from "./dom.js";
import { epsilon, number } from "./format.js";
import { lineChart } from "./chart.js";

export function drawCurve(parent, series) {
  const points = series.points.filter((p) => p.epsilon !== null).map((p) => [p.round + 1, p.epsilon]);
  if (!points.length) {
    show(parent, empty("The curve begins with the first committed round."));
    return;
  }
  const planned = series.planned_epsilon;
  const limit = series.limit_epsilon;
  const last = points.at(-1)[1];
  // A limit far above everything else would flatten the curve, so the legend states it instead.
  const top = Math.max(last, planned ?? 0);
  const far = limit > 2.5 * top;
  const rules = [];
  if (planned !== null) rules.push({ name: `committed plan ${epsilon(planned)}`, y: planned, color: "2" });
  if (!far) rules.push({ name: `population limit ${number(limit)}`, y: limit, color: "bad", solid: true });
  const figure = h("div");
  show(parent, h("ul", { class: "key" },
    h("li", {}, h("span", { class: "swatch b1", "aria-hidden": "true" }), "If stopped now ", h("b", {}, epsilon(last))),
    planned === null ? null : h("li", {}, h("span", { class: "swatch plan", "aria-hidden": "true" }), "Committed plan ", h("b", {}, epsilon(planned))),
    h("li", {}, h("span", { class: "swatch limit", "aria-hidden": "true" }), "Limit of the population ", h("b", {}, number(limit)), far ? " (above this chart)" : "")), figure);
  lineChart(figure, {
    label: `Epsilon against rounds: ${epsilon(last)} after round ${points.at(-1)[0]} of ${series.rounds}, committed plan ${epsilon(planned)}, limit ${number(limit)}.`,
    xLabel: "rounds committed", xName: "Round", yLabel: `ε at δ ${number(series.delta)}`, x: [0, series.rounds], y: [0, (far ? top : Math.max(top, limit)) * 1.12],
    lines: [{ name: "if stopped: ε", color: "1", points, area: true }], rules, format: epsilon, height: 440,
  });
}
