// The page of one population, for the person who decides: its budget over time, who changed it, and what still fits.
import { empty, failed, facts, h, s, show, unbroken } from "./dom.js";
import { runAddress } from "./address.js";
import { count, day, epsilon, epsilonLeft, moment, number, utcDay } from "./format.js";
import { lineChart } from "./chart.js";
import { download, get } from "./api.js";
import { figures, largestOf, lastsUntil, levelTags, runsLeft, usersOf } from "./budgets.js";

const path = (name) => `/v1/populations/${encodeURIComponent(name)}`;

export function drawHistory(parent, population, history) {
  const points = (name) => history.moments.map((one) => [Date.parse(one.at), one[name]]);
  if (history.moments.length < 2) {
    show(parent, empty("The chart begins with the first run."));
    return;
  }
  const [spent, committed, limit] = ["spent_epsilon", "committed_epsilon", "limit_epsilon"].map(points);
  const figure = h("div");
  show(parent, h("ul", { class: "key" },
    h("li", {}, h("span", { class: "swatch b1", "aria-hidden": "true" }), "Used ", h("b", {}, epsilon(spent.at(-1)[1]))),
    h("li", {}, h("span", { class: "swatch b2", "aria-hidden": "true" }), "Committed ", h("b", {}, epsilon(committed.at(-1)[1]))),
    h("li", {}, h("span", { class: "swatch b4", "aria-hidden": "true" }), "Limit ", h("b", {}, number(limit.at(-1)[1])))), figure,
  h("div", { class: "tools gap" }, save("History as CSV", `${path(population.name)}/history?points=2000&format=csv`, `${population.name}-history.csv`)));
  const days = limit.at(-1)[0] - limit[0][0] > 2 * 86400000;
  lineChart(figure, {
    label: `Budget of ${population.name} over time: epsilon ${epsilon(spent.at(-1)[1])} used, ${epsilon(committed.at(-1)[1])} committed, limit ${number(limit.at(-1)[1])}.`,
    xLabel: "", xName: "", yLabel: `ε at δ ${number(history.delta)}`, x: [limit[0][0], limit.at(-1)[0]], height: 300, format: epsilon, steps: true,
    xFormat: (t) => (days ? new Date(t).toLocaleDateString() : new Date(t).toLocaleTimeString()),
    y: [0, 1.12 * Math.max(...limit.map(([, y]) => y), ...committed.map(([, y]) => y))],
    lines: [{ name: "limit: ε", color: "4", points: limit }, { name: "committed: ε", color: "2", dash: "6 4", points: committed }, { name: "used: ε", color: "1", points: spent, area: true }],
  });
}

const said = ({ window_epsilon: held, window_every: every, ...terms }) => [held === null ? ["no window"] : held === undefined ? [] : [`ε ${number(held)}`], every ? [`a ${every}`] : []].flat().join(" ") || Object.entries(terms).map(([name, value]) => `${name.replace("_", " ")} ${value === null ? "none" : typeof value === "number" ? number(value) : value}`).join(", ") || "—";

const CHANGE = ["When", "By", "What", "From", "To", "Why"];

export function drawChanges(parent, history) {
  show(parent, history.changes.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes of the budget", "data-key": "changes" }, h("table", { class: "stacks" },
    h("thead", {}, h("tr", {}, CHANGE.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, history.changes.map((one) => h("tr", {}, [moment(one.at), one.actor, one.action.replace("population.", ""), said(one.before), said(one.after), one.reason || "—"]
      .map((text, i) => h("td", { class: `${i > 2 ? "wrap" : ""} ${text === "—" ? "none" : ""}`, "data-label": CHANGE[i] }, unbroken(text)))))))) : empty("No change is recorded."));
}

const plural = (n, one, many) => `${n} ${n === "1" || n === "at least 1" ? one : many}`;

// The answer first: how many more runs like the last, for how many of its users, and until when.
export function drawFits(parent, population) {
  const left = plural(runsLeft(population), "more run like the last fits.", "more runs like the last fit.");
  const answer = population.state !== "open" ? `It is ${population.state}: no new run is admitted.` : population.last_run === null ? (population.committed_share ? "No run yet; it was charged beside runs." : "No run has been charged yet.")
    : !population.last_run_fits && population.runs_left ? `One more run like the last does not begin this ${population.window.every}.`
    : population.last_run_fits ? left[0].toUpperCase() + left.slice(1) : "One more run like the last does not fit.";
  show(parent, h("p", { class: `fits-answer ${population.last_run_fits === false ? "no" : ""}` }, answer, " ", levelTags(population)),
    population.last_run_fits && population.runs_left_users !== null ? h("p", { class: "small muted" }, `${count(population.runs_left_users)} of ${count(population.users)} users have enough left for all of the next one${population.lasts_until ? `; at the pace so far the budget lasts until ${day(population.lasts_until)}` : ""}.`) : null,
    h("div", { class: "budget gap" }, figures(population, 0)),
    facts([[largestOf(population), `ε ${epsilonLeft(population.remaining_epsilon)}`], ["Lasts until, at this pace", lastsUntil(population)],
      ["Guarantee", `ε ${epsilon(population.bound_epsilon)} at δ ${epsilon(population.bound_delta)}`], ...togetherOf(population.together), ["Users seen", usersOf(population)],
      ["Runs", count(population.runs)], ["Adjacency", population.adjacency.replace("_", "-")]]),
    drawWindow(population.window),
    drawLeft(population),
    population.last_run ? h("p", { class: "gap small" }, h("a", { href: runAddress(population.last_run), "data-key": "last-run" }, "The last run")) : null);
}

// Where presence is secret nobody can say who is in another population, too: their guarantees add up.
function togetherOf(all) {
  return all ? [[`Guarantee for a user of all ${all.populations} populations`, `ε ${epsilon(all.epsilon)} at δ ${epsilon(all.delta)}`]] : [];
}

// What may still begin this week; the budget stays the limit. Quiet where there are no windows.
function drawWindow(one) {
  if (!one) return null;
  const runs = one.runs_left === null ? "" : `, ${plural(count(one.runs_left), "run like the last", "runs like the last")}`;
  return [h("h3", { class: "gap" }, `This ${one.every}`),
    h("p", { class: `small ${one.runs_left === 0 ? "error" : ""}` }, `ε ${epsilon(one.begun_epsilon)} of ${number(one.epsilon)} began; ε ${epsilonLeft(one.remaining_epsilon)} may still begin${runs}. It renews on ${utcDay(one.renews_at)}; the limit above stays.`)];
}

export const drawWords = (parent, population) => show(parent, h("p", { class: "small" }, unbroken(population.in_words)));

// How many users have up to a tenth of the budget left, up to two tenths, ..., all of it. Never one user's value.
function drawLeft(population) {
  if (!population.left) return h("p", { class: "small gap" }, "Accounting: worst case. Each run is charged to all users alike.");
  const most = Math.max(...population.left);
  if (!most) return null;
  const label = population.left.map((users, i) => `${count(users)} users have up to ${10 * (i + 1)} % of the budget left`).join(", ");
  return [h("h3", { class: "gap" }, "Users by what they have left"),
    h("div", { class: "left-chart" }, s("svg", { class: "left", role: "img", "aria-label": label, viewBox: "0 0 100 24", preserveAspectRatio: "none" },
      population.left.map((users, i) => s("rect", { x: 10 * i + 0.5, y: 24 - 24 * users / most, width: 9, height: 24 * users / most, fill: "var(--accent)" }, s("title", {}, `${count(users)} users`)))),
    h("div", { class: "left-axis small muted", "aria-hidden": "true" }, ["nothing left", "half", "all of it"].map((text) => h("span", {}, text)))),
    h("p", { class: "small" }, `Of the budget (μ²), at most ${count(most)} users a bar. ${count(population.exhausted)} of ${count(population.users)} have nothing left and are no longer asked.`)];
}

const FIELDS = [["rounds", "Rounds", "number", 1], ["cohort", "Users a round", "number", 1], ["clip", "Clip norm", "number", "any"], ["epsilon", "ε", "number", "any"]];
// Every kind but `spectral`, which needs the eigenvalues of a task. A test compares the list with the registry.
const KINDS = ["independent", "tree", "nu", "optimal-cc", "anti-pgd", "banded", "banded-inverse", "blt", "dense", "fft", "momentum-tree", "decaying"];

// Prices the plan of `run` with other values. The form is drawn once, so that typing is never disturbed.
export function drawWhatIf(parent, population, run) {
  if (!run) {
    show(parent, empty("The form starts from the plan of a run, and there is none yet."));
    return;
  }
  const settings = { rounds: run.plan.run.rounds, cohort: run.plan.run.cohort, clip: run.plan.clipping.norm, epsilon: run.plan.privacy.epsilon };
  const inputs = FIELDS.map(([name, label, type, step]) => [name, label, h("input", { type, step, min: step === 1 ? 1 : 0, name, value: settings[name] ?? "", "data-key": `what-if-${name}` })]);
  const kind = h("select", { name: "mechanism", "data-key": "what-if-mechanism" }, [...new Set([run.mechanism, ...KINDS])].map((one) => h("option", { value: one, selected: one === run.mechanism }, one)));
  const result = h("div", { class: "gap", role: "status" });
  const others = h("div");
  const budget = inputs.find(([name]) => name === "epsilon")[2];
  const query = (changes = {}) => {
    const asked = new URLSearchParams({ run: run.id, mechanism: kind.value });
    for (const [name, , input] of inputs) if (input.value !== "") asked.set(name, input.value);
    for (const [name, value] of Object.entries(changes)) asked.set(name, value);
    return get(`${path(population.name)}/what-if?${asked}`);
  };
  const price = async () => {
    show(result, h("p", { class: "hint" }, "Pricing…"));
    try { drawPrice(result, await query()); } catch (error) { show(result, failed(error), error.nearest ? h("p", { class: "hint" }, `Nearest allowed: ${error.nearest}`) : null); }
  };
  // Of the limit, in equal ratios: twice epsilon is one step wherever it begins.
  const slider = h("input", {
    type: "range", min: 0, max: 100, step: 1, value: stepOf(Number(budget.value) || run.planned?.epsilon || population.epsilon, population.epsilon), class: "slide", "aria-label": "ε of the run", "data-key": "what-if-slider",
    "aria-valuetext": `epsilon ${budget.value}`,
    oninput: (event) => { budget.value = number(epsilonAt(event.target.value, population.epsilon), 3); event.target.setAttribute("aria-valuetext", `epsilon ${budget.value}`); },
    onchange: price,
  });
  budget.addEventListener("input", () => { slider.value = stepOf(Number(budget.value) || 0, population.epsilon); slider.setAttribute("aria-valuetext", `epsilon ${budget.value}`); });
  const form = h("form", {
    class: "form", "aria-label": "What if",
    onsubmit: (event) => { event.preventDefault(); price(); },
  }, inputs.map(([, label, input]) => h("label", {}, label, input)), h("label", {}, "Mechanism", kind), h("label", { class: "wide" }, `ε from ${number(population.epsilon / SPAN)} to the limit, ${number(population.epsilon)}`, slider),
  h("button", { class: "primary", "data-key": "what-if-price" }, "Price it"), h("button", { type: "button", "data-key": "what-if-others", onclick: () => drawOthers(others, population, query) }, "Compare budgets"));
  show(parent, form, result, others, h("p", { class: "hint" }, `Starts from the plan of run ${run.id}. Nothing is run, read or reserved.`));
}

const SPAN = 64;
const epsilonAt = (step, limit) => limit * SPAN ** (step / 100 - 1);
const stepOf = (x, limit) => Math.round(100 * Math.max(0, Math.min(1, 1 + Math.log(Math.max(x, 1e-9) / limit) / Math.log(SPAN))));
// Bounds, so rounded up, as an epsilon is.
const odds = (price) => (price.odds === null ? "no bound" : `times ${epsilon(price.odds)}`);
const identified = (price) => `${epsilon(100 * price.identified)} of 100`;

const reached = ({ expected }) => (expected ? (expected.lowest_score === expected.highest_score ? number(expected.lowest_score) : `${number(expected.lowest_score)} to ${number(expected.highest_score)}`) : "—");
const EXPECTED = "Released scores of runs of this very plan at the nearest epsilons below and above: an expectation, and no promise.";

const OTHERS = ["ε", "Noise", "Factor ×", "Found", "Fits", "Score"];

// The same plan at other budgets, one after the other: a service prices one at a time.
async function drawOthers(parent, population, query) {
  const prices = [];
  for (const share of [1, 2, 4, 8, 16]) {
    let price;
    try { price = await query({ epsilon: population.epsilon / share }); } catch (error) { show(parent, failed(error)); return; }
    prices.unshift(price);
    const scored = prices.some((one) => one.expected);
    const rows = prices.map((one) => h("tr", {}, h("th", { scope: "row", class: "name", "data-label": OTHERS[0] }, epsilon(one.epsilon)), [number(one.noise_std), one.odds === null ? "no bound" : epsilon(one.odds), epsilon(100 * one.identified), one.fits ? "yes" : "no", ...(scored ? [reached(one)] : [])].map((text, i) => h("td", { "data-label": OTHERS[i + 1] }, text))));
    const [noise, found] = [h("div", { class: "gap" }), h("div", { class: "gap" })];
    show(parent, noise, found, h("div", { class: "scroll gap", tabindex: "0", role: "region", "aria-label": "The same plan at other budgets", "data-key": "others" }, h("table", { class: "stacks" },
      h("thead", {}, h("tr", {}, OTHERS.slice(0, scored ? 6 : 5).map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))),
    h("p", { class: "hint" }, `Noise: of a coordinate in one round. Factor: by which one user's data change the probability of whatever it shows at most, but for a difference of δ. Found: of 100 users, at most so many by an attacker who wrongly accuses 1 of 100.${scored ? ` Score: ${EXPECTED.toLowerCase()}` : ""}`));
    drawAlong(noise, prices, "noise a coordinate, one round", (one) => one.noise_std, number);
    drawAlong(found, prices, "found, of 100 users", (one) => 100 * one.identified, epsilon);
  }
}

// One figure of the same plan along epsilon.
function drawAlong(parent, prices, name, of, format) {
  const points = prices.map((one) => [one.epsilon, of(one)]);
  lineChart(parent, {
    label: `${name} along epsilon: ${points.map(([x, y]) => `${format(y)} at ${epsilon(x)}`).join(", ")}.`, xLabel: "ε of the run", xName: "ε", xValue: epsilon, yLabel: name, height: 170, format,
    x: [0, points.at(-1)[0]], y: [0, 1.12 * Math.max(...points.map(([, y]) => y))], lines: [{ name, color: "1", points }],
  });
}

const BOUNDS = {
  "certified with fewer samples": "Certified with fewer samples than a run draws: a run of this plan adds some percent less noise.",
  "without amplification": "Without amplification: a certificate of so many bins or rounds takes too long for this page. A run of this plan adds less noise; `fieldfare plan` says how much.",
};

function drawPrice(parent, price) {
  show(parent, h("p", { class: `fits-answer ${price.fits ? "" : "no"}` }, price.fits ? (price.users === null ? "It fits." : `It fits, for ${count(price.users)} users.`) : BOUNDS[price.bound] ? "By this bound it does not fit." : "It does not fit."),
    facts([["ε", epsilon(price.epsilon)], ...(price.epsilon_server ? [["ε against the server", epsilon(price.epsilon_server)]] : []),
      ["δ", number(price.delta)], ["Noise multiplier", number(price.noise_multiplier)],
      ["Noise a coordinate, one round", number(price.noise_std)], ["Noise in the sum, RMS", number(price.prefix_noise)],
      ["One user changes probabilities, but for δ, by at most", odds(price)], ["Identified, if 1 of 100 is wrongly accused", `at most ${identified(price)}`],
      ...(price.expected ? [[`Expected ${price.expected.name}`, reached(price)]] : [])]),
    price.expected ? h("p", { class: "hint" }, `${EXPECTED} Runs: ${price.expected.runs.join(", ")}.`) : null,
    BOUNDS[price.bound] ? h("p", { class: "hint" }, BOUNDS[price.bound]) : null,
    price.why ? h("p", { class: "hint" }, `${price.why}${price.nearest ? ` Nearest: ${price.nearest}.` : ""}`) : null);
}

function save(name, url, file) {
  const failure = h("span", { class: "small error", role: "alert" });
  return [h("button", { type: "button", "data-key": file, onclick: () => download(url, file).catch((error) => { failure.textContent = error.message; }) }, name), failure];
}
export { save };
