// Each population's budget as one bar of spent, reserved and free epsilon; the bar ends at the limit. Nearest to it first.
import { populationAddress } from "./address.js";
import { empty, facts, h, s, show, unbroken } from "./dom.js";
import { HIDDEN, count, day, epsilon, epsilonLeft, hides, moment, percent } from "./format.js";

const FEW = 3; // more populations than these are a list, so that all are seen at once
const MOST_RUNS = 1000; // the service counts no further
const COLOURS = { open: "var(--accent)", low: "var(--warn)", exhausted: "var(--bad)" };

export const populationLink = (name) => h("a", { href: populationAddress(name), "data-key": `population-${name}` }, name);

export function levelTags(population) {
  return [
    population.simulated ? h("span", { class: "tag" }, "simulated users") : null,
    population.overdrawn ? h("span", { class: "tag bad" }, "over its budget: no new run")
      : population.level === "exhausted" ? h("span", { class: "tag bad" }, "exhausted: no useful run fits")
        : population.level === "low" ? h("span", { class: "tag warn" }, `low: ${percent(population.committed_share)} committed`) : null,
    population.state !== "open" ? h("span", { class: "tag" }, population.state) : null,
  ];
}

export function gauge(population, index) {
  const limit = population.epsilon;
  const spent = Math.min(1, (population.spent.epsilon ?? limit) / limit);
  const committed = Math.min(1, population.committed_share);
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

// Odometers charge each user what that user took part in; the count is as if each took part in all it may.
export function runsLeft(population) {
  if (population.runs_left === null) return "no run yet";
  const now = population.runs_left && population.window?.runs_left === 0 ? `, none this ${population.window.every}` : "";
  if (population.runs_left >= MOST_RUNS) return `at least ${count(MOST_RUNS)}${now}`;
  return (population.runs_left && population.accounting === "individual" ? `at least ${count(population.runs_left)}` : count(population.runs_left)) + now;
}
export const usersLeft = (population) => (hides(population.adjacency) ? HIDDEN
  : population.runs_left_users === null ? "—" : `${count(population.runs_left_users)} of ${count(population.users)}`);
export const lastsUntil = (population) => (population.runs_left === 0 ? "none fits now" : population.lasts_until ? day(population.lasts_until) : "—");
export const usersOf = (population) => (hides(population.adjacency) ? HIDDEN
  : population.exhausted ? `${count(population.users)}, ${count(population.exhausted)} with nothing left` : count(population.users));

// With odometers the largest run is one of those users alone who have most left.
export const largestOf = (population) => (!population.remaining_users ? "Largest run that fits" : population.remaining_users === 1 ? "Largest run, for the user who has most left" : `Largest run, for ${count(population.remaining_users)} users who have most left`);

export const fits = (population) => [["More runs like the last", runsLeft(population)], ["The next in full, for", usersLeft(population)],
  ["Lasts until, at this pace", lastsUntil(population)]];

function card(population, index) {
  return h("article", { class: "card budget", "aria-label": `Population ${population.name}` },
    h("div", { class: "budget-head" }, h("span", { class: "budget-name" }, populationLink(population.name)), levelTags(population)),
    figures(population, index),
    facts([...fits(population), [largestOf(population), `ε ${epsilonLeft(population.remaining_epsilon)}`],
      ["Rounds left", population.rounds_left === null ? "no run active" : count(population.rounds_left)],
      ["Projected end", population.projected_end ? moment(population.projected_end) : "—"], ["Users seen", usersOf(population)], ["Adjacency", population.adjacency.replace("_", "-")]]));
}

export const figures = (population, index) => [
  h("p", { class: "figure" }, `ε ${epsilon(population.spent.epsilon)} `, h("small", {}, unbroken(`used of the limit ${epsilon(population.epsilon)} at δ ${epsilon(population.delta)}`))),
  gauge(population, index),
  population.warnings.map((text) => h("p", { class: "small error" }, text)),
  h("ul", { class: "key" }, key(`spent ${population.level}`, "Used", epsilon(population.spent.epsilon)),
    key("reserved", "Committed", epsilon(population.committed.epsilon)), key("limit", "Limit", epsilon(population.epsilon))),
].flat();

const HEAD = ["Population", "Budget", "Committed", "Limit", "Runs left", "In full for", "Until"];

// On a phone each row is a block, and the head's names stand beside the figures.
function list(populations) {
  return h("div", { class: "card budget-list", tabindex: "0", role: "region", "aria-label": "Populations", "data-key": "populations" }, h("table", { class: "stacks" },
    h("thead", {}, h("tr", {}, HEAD.map((name, i) => h("th", { scope: "col", class: i > 1 ? "num" : "" }, name)))),
    h("tbody", {}, populations.map((one, i) => h("tr", {}, h("td", { class: "name" }, populationLink(one.name), " ", levelTags(one)), h("td", { class: "bar" }, gauge(one, i)),
      [`ε ${epsilon(one.committed.epsilon)}`, epsilon(one.epsilon), runsLeft(one), usersLeft(one), lastsUntil(one)]
        .map((text, k) => h("td", { class: text === "—" ? "num none" : "num", "data-label": HEAD[k + 2] }, text)))))));
}

// onMore: shows further ones; null: these are all.
export function drawBudgets(parent, populations, { search, onMore }) {
  const many = populations.length > FEW || Boolean(search);
  parent.classList.toggle("many", many);
  if (!populations.length) {
    show(parent, h("div", { class: "card" }, search ? empty(`No population's name holds “${search}”.`)
      : empty("No population has a budget yet. Create one: ", h("code", {}, "fieldfare population create NAME --epsilon 2 --delta 1e-5"))));
    return;
  }
  show(parent, many ? list(populations) : populations.map(card),
    onMore ? h("div", { class: "tools gap" }, h("button", { type: "button", "data-key": "more-populations", onclick: onMore }, "Show more populations")) : null);
}
