// Panel 2: each population's budget as one bar of spent, reserved and free epsilon; the bar ends at the limit.
import { empty, facts, h, s, show } from "./dom.js";
import { HIDDEN, count, epsilon, hides, moment, number, percent } from "./format.js";

function gauge(population, index) {
  const limit = population.epsilon;
  const spent = Math.min(1, (population.spent.epsilon ?? limit) / limit);
  const committed = Math.min(1, (population.committed.epsilon ?? limit) / limit);
  const id = `hatch-${index}`;
  const label = `${percent(spent)} of the budget used, ${percent(committed)} committed`;
  return s("svg", { class: "gauge", role: "img", "aria-label": label, viewBox: "0 0 100 10", preserveAspectRatio: "none" },
    s("defs", {}, s("pattern", { id, width: 1.2, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "skewX(-20)" },
      s("rect", { width: 0.6, height: 4, fill: "var(--reserved)" }))),
    s("rect", { x: 0, y: 2, width: 100, height: 6, rx: 0.7, fill: "var(--sunken)" }),
    s("rect", { x: 0, y: 2, width: 100 * committed, height: 6, rx: 0.7, fill: "var(--accent-soft)" }),
    s("rect", { x: 0, y: 2, width: 100 * committed, height: 6, rx: 0.7, fill: `url(#${id})` }),
    s("rect", { x: 0, y: 2, width: 100 * spent, height: 6, rx: 0.7, fill: "var(--accent)" }),
    s("rect", { x: 99.6, y: 0, width: 0.4, height: 10, fill: "var(--bad)" }));
}

const key = (kind, name, value) => h("li", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), `${name} `, h("b", {}, value));

function card(population, index) {
  const end = population.projected_end ? moment(population.projected_end) : "—";
  return h("article", { class: "card budget", "aria-label": `Population ${population.name}` },
    h("div", { class: "budget-head" },
      h("span", { class: "budget-name" }, population.name),
      population.simulated ? h("span", { class: "tag warn" }, "simulated users") : null,
      population.overdrawn ? h("span", { class: "tag warn" }, "over its budget: no new run") : null,
      population.state === "closed" ? h("span", { class: "tag" }, "closed") : null),
    h("p", { class: "figure" }, `ε ${epsilon(population.spent.epsilon)} `, h("small", {}, `used of the guaranteed ${number(population.epsilon)} at δ ${number(population.delta)}`)),
    gauge(population, index),
    population.warnings.map((text) => h("p", { class: "small error" }, text)),
    h("ul", { class: "key" }, key("spent", "Used", epsilon(population.spent.epsilon)),
      key("reserved", "Committed", epsilon(population.committed.epsilon)), key("limit", "Limit", number(population.epsilon))),
    facts([["Rounds left", population.rounds_left === null ? "no run active" : count(population.rounds_left)],
      ["Projected end", end], ["Users seen", hides(population.adjacency) ? HIDDEN : count(population.users)], ["Adjacency", population.adjacency.replace("_", "-")]]));
}

export function drawBudgets(parent, populations) {
  if (!populations.length) {
    show(parent, h("div", { class: "card" }, empty("No population has a budget yet. Create one: ", h("code", {}, "fieldfare population create NAME --epsilon 2 --delta 1e-5"))));
    return;
  }
  show(parent, populations.map(card));
}
