// Panel 2: each population's budget as one bar of spent, reserved and free epsilon; the bar ends at the limit.
import { empty, facts, h, s, show } from "./dom.js";
import { HIDDEN, count, epsilon, epsilonLeft, hides, moment, number, percent } from "./format.js";

const FEW = 3; // more populations than this are a list, so that the charts stay on the first screen
const COLOURS = { open: "var(--accent)", low: "var(--warn)", exhausted: "var(--bad)" };

export const populationLink = (name) => h("a", { href: `#population=${encodeURIComponent(name)}`, "data-key": `population-${name}` }, name);

export function levelTags(population) {
  const share = (population.committed.epsilon ?? population.epsilon) / population.epsilon;
  return [
    population.simulated ? h("span", { class: "tag" }, "simulated users") : null,
    population.overdrawn ? h("span", { class: "tag bad" }, "over its budget: no new run")
      : population.level === "exhausted" ? h("span", { class: "tag bad" }, "exhausted: no useful run fits")
        : population.level === "low" ? h("span", { class: "tag warn" }, `low: ${percent(share)} committed`) : null,
    population.state === "closed" ? h("span", { class: "tag" }, "closed") : null,
  ];
}

export function gauge(population, index) {
  const limit = population.epsilon;
  const spent = Math.min(1, (population.spent.epsilon ?? limit) / limit);
  const committed = Math.min(1, (population.committed.epsilon ?? limit) / limit);
  const id = `hatch-${index}`;
  const label = `${population.name}: ${percent(spent)} of the budget used, ${percent(committed)} committed`;
  return s("svg", { class: "gauge", role: "img", "aria-label": label, viewBox: "0 0 100 10", preserveAspectRatio: "none" },
    s("defs", {}, s("pattern", { id, width: 1.2, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "skewX(-20)" },
      s("rect", { width: 0.6, height: 4, fill: "var(--reserved)" }))),
    s("rect", { x: 0, y: 2, width: 100, height: 6, rx: 0.7, fill: "var(--sunken)" }),
    s("rect", { x: 0, y: 2, width: 100 * committed, height: 6, rx: 0.7, fill: "var(--accent-soft)" }),
    s("rect", { x: 0, y: 2, width: 100 * committed, height: 6, rx: 0.7, fill: `url(#${id})` }),
    s("rect", { x: 0, y: 2, width: 100 * spent, height: 6, rx: 0.7, fill: COLOURS[population.level] }),
    s("rect", { x: 99.6, y: 0, width: 0.4, height: 10, fill: "var(--bad)" }));
}

const key = (kind, name, value) => h("li", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), `${name} `, h("b", {}, value));

export const fitsAgain = (population) => (population.last_run_fits === null ? "no run yet" : population.last_run_fits ? "yes" : "no");
export const usersOf = (population) => (hides(population.adjacency) ? HIDDEN
  : population.exhausted ? `${count(population.users)}, ${count(population.exhausted)} with nothing left` : count(population.users));

// With odometers the largest run is one of those users alone who have most left.
export const largestOf = (population) => (population.remaining_users === null ? "Largest run that fits" : `Largest run, for ${count(population.remaining_users)} users who have most left`);

function card(population, index) {
  return h("article", { class: "card budget", "aria-label": `Population ${population.name}` },
    h("div", { class: "budget-head" }, h("span", { class: "budget-name" }, populationLink(population.name)), levelTags(population)),
    h("p", { class: "figure" }, `ε ${epsilon(population.spent.epsilon)} `, h("small", {}, `used of the limit ${number(population.epsilon)} at δ ${number(population.delta)}`)),
    gauge(population, index),
    population.warnings.map((text) => h("p", { class: "small error" }, text)),
    h("ul", { class: "key" }, key("spent", "Used", epsilon(population.spent.epsilon)),
      key("reserved", "Committed", epsilon(population.committed.epsilon)), key("limit", "Limit", number(population.epsilon))),
    facts([["One more run like the last", fitsAgain(population)], [largestOf(population), `ε ${epsilonLeft(population.remaining_epsilon)}`],
      ["Rounds left", population.rounds_left === null ? "no run active" : count(population.rounds_left)],
      ["Projected end", population.projected_end ? moment(population.projected_end) : "—"], ["Users seen", usersOf(population)], ["Adjacency", population.adjacency.replace("_", "-")]]));
}

const HEAD = ["Population", "Budget", "ε used", "Committed", "Limit", "Same again", "Largest run", "Users"];

function list(populations) {
  return h("div", { class: "card budget-list", tabindex: "0", role: "region", "aria-label": "Populations", "data-key": "populations" }, h("table", {},
    h("thead", {}, h("tr", {}, HEAD.map((name, i) => h("th", { scope: "col", class: i > 1 ? "num" : "" }, name)))),
    h("tbody", {}, populations.map((one, i) => h("tr", {}, h("td", {}, populationLink(one.name), " ", levelTags(one)), h("td", {}, gauge(one, i)),
      [epsilon(one.spent.epsilon), epsilon(one.committed.epsilon), number(one.epsilon), fitsAgain(one), `ε ${epsilonLeft(one.remaining_epsilon)}`, usersOf(one)]
        .map((text) => h("td", { class: "num" }, text)))))));
}

export function drawBudgets(parent, populations) {
  parent.classList.toggle("many", populations.length > FEW);
  if (!populations.length) {
    show(parent, h("div", { class: "card" }, empty("No population has a budget yet. Create one: ", h("code", {}, "fieldfare population create NAME --epsilon 2 --delta 1e-5"))));
    return;
  }
  show(parent, populations.length > FEW ? list(populations) : populations.map(card));
}
