// Panel 7: the held-out score, on public data or from a privatised statistic; never a node's report about its users.
import { empty, facts, h, show } from "./dom.js";
import { number } from "./format.js";
import { lineChart } from "./chart.js";

// Released scores against rounds, or against another figure of a point.
export const scores = (series, along = (point) => point.round + 1) => series.points.filter((p) => Number.isFinite(p.statistics.score) && Number.isFinite(along(p))).map((p) => [along(p), p.statistics.score]);
// An estimate with its interval.
export const answerText = (each) => (each.value === null ? `somewhere from ${number(each.low)} to ${number(each.high)}` : `${number(each.value)}${each.low === each.high ? "" : ` (${number(each.low)} to ${number(each.high)})`}`);
// A question's first estimate by its name, and how many others there are.
export function lookText({ answer: [first, ...others] }) {
  return `${first.name}: ${answerText(first)}${others.length ? `, and ${others.length} more` : ""}`;
}
export function span(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * 0.15;
  return [low - room, high + room];
}

// Of each metric that rides in the stream: its private mean over the last rounds, and the band of the noise.
function metrics(series) {
  const last = series.points.at(-1)?.statistics || {};
  return Object.keys(last).filter((key) => /^metric\.[^.]+$/.test(key)).flatMap((key) => {
    const of = (end) => series.points.filter((p) => Number.isFinite(p.statistics[key + end])).map((p) => [p.round + 1, p.statistics[key + end]]);
    const [points, low, high] = [of(""), of(".low"), of(".high")];
    if (!points.length || !low.length || !high.length) return [];
    const name = key.slice("metric.".length);
    const text = answerText({ value: last[key], low: last[`${key}.low`], high: last[`${key}.high`] });
    const figure = h("div", { class: "gap" });
    lineChart(figure, {
      label: `Private mean of ${name} over the last rounds: ${text}.`, xLabel: "rounds committed", xName: "Round", yLabel: name,
      x: [0, series.rounds], y: span([...low, ...high].map(([, y]) => y)), height: 200,
      lines: [{ name, color: "1", points }, { name: "lower end", color: "1", dash: "2 4", points: low }, { name: "upper end", color: "1", dash: "2 4", points: high }],
    });
    return [facts([[`${name} on users' own data`, text]]), figure,
      h("p", { class: "hint" }, "Mean of the users of the last rounds, noised with their updates. The interval holds it without noise with probability 95 %; that other users were not asked is no part of it."),
      ...(last[`${key}.untold`] ? [h("p", { class: "hint" }, `The interval holds the middle of the range, where users without ${name} stand: this cannot be told from a measure that no client tells. Whether one does is users' data, and was not looked at.`)] : [])];
  });
}

// Of a question: its answer. Otherwise the held-out score.
export function drawUtility(parent, run, series) {
  if (run.look) {
    show(parent, facts(run.look.answer.map((each) => [each.name, answerText(each)])),
      h("p", { class: "hint" }, `${number(run.look.users)} users answered. Each interval holds the number without noise with probability 95 %.`));
    return;
  }
  const points = scores(series);
  const ridden = metrics(series);
  if (!points.length) {
    show(parent, ...(ridden.length ? ridden : [empty("This run has released no held-out score.")]));
    return;
  }
  const name = run.score_name || "score";
  const best = points.reduce((a, b) => (b[1] > a[1] ? b : a));
  const figure = h("div", { class: "gap" });
  show(parent, facts([[`Latest ${name}`, number(points.at(-1)[1])], [`Highest ${name}`, `${number(best[1])} (round ${best[0]})`]]), figure,
    h("p", { class: "hint" }, "Measured on held-out data outside of the population."), ...ridden);
  lineChart(figure, {
    label: `Held-out ${name} against rounds: ${number(points.at(-1)[1])} after round ${points.at(-1)[0]}.`, xLabel: "rounds committed", xName: "Round", yLabel: name,
    x: [0, series.rounds], y: span(points.map(([, y]) => y)), height: 200, lines: [{ name, color: "3", points }],
  });
}
