// Panel 6: public quantities of the noise. It shows no norm of an update: that would reveal users' data uncharged.
import { empty, facts, h, show } from "./dom.js";
import { number } from "./format.js";
import { lineChart } from "./chart.js";

export function drawNoise(parent, run, series) {
  const last = series.points.at(-1)?.statistics || {};
  const known = new Map(run.guarantee.facts.map((fact) => [fact.name, fact.value]));
  const pairs = ["Noise multiplier", "Charged as noise multiplier", "Clip norm"].filter((name) => known.has(name)).map((name) => [name, known.get(name)]);
  if (run.mechanism === "threshold" || run.mechanism === "exponential") {
    show(parent, facts(pairs), h("p", { class: "hint" }, "What is released is no noised sum, and has no residual to test."));
    return;
  }
  if (Number.isFinite(last.noise_std)) pairs.push(["Std a coordinate, last round", number(last.noise_std)]);
  if (Number.isFinite(last.noise_norm) && Number.isFinite(last.released_norm)) {
    // Both norms are public or privatised, and so is their ratio.
    pairs.push(["Norm of the noise", number(last.noise_norm)], ["Norm of the released update", number(last.released_norm)]);
    pairs.push(["Signal to noise, estimated", number(Math.sqrt(Math.max(0, last.released_norm ** 2 - last.noise_norm ** 2)) / last.noise_norm, 2)]);
  }
  pairs.push(["Residual test", run.audit ? `${run.audit.passed ? "passed" : "FAILED"}, scale ${number(run.audit.scale)}` : "not run"]);
  const canaries = run.audit?.canaries;
  if (canaries) {
    const bound = canaries.threshold_lower_bound ?? canaries.clopper_pearson_lower_bound;
    const against = canaries.spent === undefined ? `${number(canaries.claimed, 3)} planned` : `${number(canaries.spent, 3)} spent`;
    pairs.push(["Canaries: ε at least", bound > 0 ? `${number(bound, 3)} of ${against}` : `no evidence (${against})`]);
    if (Number.isFinite(canaries.gaussian_standard_error)) {
      pairs.push(["Canaries: ε estimated", `${number(canaries.gaussian_estimate, 3)} ± ${number(canaries.gaussian_standard_error, 2)} (standard error)`]);
    }
  }
  const figure = h("div", { class: "gap" });
  show(parent, facts(pairs), figure,
    h("p", { class: "hint" }, run.audit ? run.audit.message : ["Run ", h("code", {}, `fieldfare audit ${run.id}`), " to test the noise that this mechanism adds."]));
  const points = series.points.filter((p) => Number.isFinite(p.statistics.noise_std)).map((p) => [p.round + 1, p.statistics.noise_std]);
  if (!points.length) {
    show(figure, empty("No noise statistics have been released."));
    return;
  }
  lineChart(figure, {
    label: `Standard deviation of the noise a coordinate, ${number(points.at(-1)[1])} in the last round.`, xLabel: "rounds committed", xName: "Round",
    yLabel: "std of the released mean", x: [0, series.rounds], y: [0, Math.max(...points.map(([, y]) => y)) * 1.15], height: 200,
    lines: [{ name: "noise std", color: "2", points }],
  });
}
