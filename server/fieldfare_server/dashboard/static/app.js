// The page: what it shows, when it fetches it, and what it does on an event.
import { $, empty, failed, h, show, skeleton } from "./dom.js";
import { epsilon, time } from "./format.js";
import { get, listen, post, setToken, signedIn } from "./api.js";
import { confirm, signIn } from "./dialogs.js";
import { drawBanner } from "./banner.js";
import { drawBudgets } from "./budgets.js";
import { drawCohort } from "./cohort.js";
import { drawCurve } from "./curve.js";
import { drawGuarantee } from "./guarantee.js";
import { drawLedger, resetLedger } from "./ledger.js";
import { drawNoise } from "./noise.js";
import { drawParticipation, drawVisits } from "./participation.js";
import { drawChanges, drawFits, drawHistory, drawWhatIf } from "./population.js";
import { MOST, drawComparison, drawFilters, drawRuns } from "./runs.js";
import { drawUtility } from "./utility.js";

const RUN_PANELS = ["curve", "guarantee", "cohort", "utility", "noise", "participation"];
const POINTS = 300;
const ROWS = 50; // runs on a page of the table
const PAUSE = 700; // least time between two loads in ms, however many events arrive

const POPULATION_PANELS = ["history", "changes", "fits", "what-if"];
// What a link names: #run=ID, or #population=NAME, and the filters of the runs table.
function linked() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const population = hash.get("population");
  return { run: hash.get("run"), population, filter: { population: population || hash.get("of") || "", state: hash.get("state") || "" } };
}
// back, cursor: the earlier pages of the runs table, and the one shown. drawn: the values that each panel shows.
const state = { me: null, ...linked(), back: [], cursor: null, compared: new Map(), drawn: new Map(), stop: null, at: null };
const canAct = () => Boolean(state.me?.scopes.includes("admin"));
const pause = () => new Promise((resume) => setTimeout(resume));
const path = (id) => `/v1/runs/${encodeURIComponent(id)}`;

// Draws only what changed: the client returns the same object for an unchanged answer.
function draw(id, values, how) {
  const before = state.drawn.get(id);
  if (before && before.length === values.length && before.every((value, i) => value === values[i])) return;
  state.drawn.set(id, values);
  how($(id));
}

function problem(id, error) {
  state.drawn.delete(id);
  show($(id), failed(error));
}

async function load() {
  const [me, populations, runs, audit] = await Promise.all([get("/v1/me"), get("/v1/populations?limit=100"), get(`/v1/runs?limit=${ROWS}`), get("/v1/audit?limit=12")]);
  state.me = me;
  account();
  draw("budgets", [populations], (parent) => drawBudgets(parent, populations.items));
  draw("ledger", [audit, canAct()], (parent) => drawLedger(parent, audit, { canAct: canAct() }));
  draw("filters", [populations, JSON.stringify(state.filter)], (parent) => drawFilters(parent, populations.items, state.filter, filterRuns));
  for (const [id, hidden] of [["population", !state.population], ["panels", state.population], ["banner", state.population]]) $(id).hidden = Boolean(hidden);
  const chosen = populations.items.find((one) => one.name === state.population);
  if (chosen) await loadPopulation(chosen, runs);
  else if (state.population) pick(null); // the link names a population of another ledger
  else await loadRun(populations.items, runs);
  state.at = Date.now();
  $("main").setAttribute("aria-busy", "false");
}

async function loadPopulation(population, runs) {
  const at = `/v1/populations/${encodeURIComponent(population.name)}`;
  const [history, visits, last] = await Promise.all([get(`${at}/history`), get(`${at}/participation`), population.last_run ? get(path(population.last_run)) : null]);
  for (const [panel, values, how] of [
    ["history", [population, history], (parent) => drawHistory(parent, population, history)],
    ["visits", [population.adjacency, visits], (parent) => drawVisits(parent, population, visits)],
    ["changes", [history], (parent) => drawChanges(parent, history)],
    ["fits", [population], (parent) => drawFits(parent, population)],
    ["what-if", [population.name, last?.id], (parent) => drawWhatIf(parent, population, last)],
  ]) {
    draw(panel, values, how);
    await pause();
  }
  await loadRuns(runs, null);
}

async function loadRun(populations, runs) {
  const id = state.run || populations.map((one) => one.active_run).find(Boolean) || runs.items[0]?.id;
  if (!id) {
    draw("banner", [null], (parent) => drawBanner(parent, { run: null }));
    for (const panel of RUN_PANELS) draw(panel, [null], (parent) => show(parent, empty("Shown when there is a run.")));
    draw("compare", [], (parent) => show(parent));
    draw("runs", [runs], (parent) => drawRuns(parent, runs, { page: 0 }));
    return;
  }
  let run;
  let series;
  let histogram;
  try {
    [run, series, histogram] = await Promise.all([get(path(id)), get(`${path(id)}/series?points=${POINTS}`), get(`${path(id)}/participation`)]);
  } catch (error) {
    if (error.status !== 404 || !state.run) throw error;
    pick(null); // the link names a run of another ledger: show the newest run instead
    return;
  }
  const population = populations.find((one) => one.name === run.population);
  const view = { run, runs: runs.items, population: population?.active_run === run.id ? population : null, canAct: canAct(), onPick: pick, onAsk: (what) => ask(run, what) };
  // A pause after each panel lets the browser answer a key press between two of them.
  for (const [panel, values, how] of [
    ["banner", [run, runs, population, canAct()], (parent) => drawBanner(parent, view)],
    ["curve", [series], (parent) => drawCurve(parent, series)],
    ["guarantee", [run], (parent) => drawGuarantee(parent, run)],
    ["cohort", [run, series], (parent) => drawCohort(parent, run, series)],
    ["utility", [run, series], (parent) => drawUtility(parent, run, series)],
    ["noise", [run, series], (parent) => drawNoise(parent, run, series)],
    ["participation", [run.adjacency, histogram], (parent) => drawParticipation(parent, run, histogram)],
  ]) {
    draw(panel, values, how);
    await pause();
  }
  await loadRuns(runs, id);
}

// The first page names the run under way; the table may show an older page.
async function loadRuns(first, current) {
  const { cursor, filter } = state;
  const query = new URLSearchParams({ limit: ROWS, ...Object.fromEntries(Object.entries({ ...filter, cursor }).filter(([, value]) => value)) });
  const filtered = Boolean(filter.population || filter.state);
  const runs = cursor || filtered ? await get(`/v1/runs?${query}`) : first;
  if (cursor !== state.cursor || filter !== state.filter) return; // changed meanwhile, and that load draws the table
  const turned = (act) => () => { act(); loadRuns(first, current).catch((error) => notice(error.message)); };
  const compared = await Promise.all([...state.compared.keys()].flatMap((one) => [get(path(one)), get(`${path(one)}/series?points=${POINTS}`)]));
  const pairs = [...state.compared.keys()].map((_, i) => ({ run: compared[2 * i], series: compared[2 * i + 1] }));
  draw("compare", compared, (parent) => drawComparison(parent, pairs));
  draw("runs", [runs, current, filtered, state.compared.size >= MOST], (parent) => drawRuns(parent, runs, {
    current, filtered, compared: state.compared, page: state.back.length,
    onCompare: (id, chosen) => turned(() => { if (chosen) state.compared.set(id, true); else state.compared.delete(id); })(),
    onOlder: turned(() => { state.back.push(state.cursor); state.cursor = runs.next; }),
    onNewer: turned(() => { state.cursor = state.back.pop(); }),
  }));
}

function pick(id) { location.hash = id ? `run=${encodeURIComponent(id)}` : ""; }

function filterRuns(filter) {
  const hash = new URLSearchParams(state.run ? { run: state.run } : {});
  if (filter.population) hash.set("of", filter.population);
  if (filter.state) hash.set("state", filter.state);
  location.hash = hash.toString();
}

function follow() {
  const before = state.run ?? state.population;
  Object.assign(state, linked(), { back: [], cursor: null });
  refresh();
  const now = state.run ?? state.population;
  if (now && now !== before) $("main").scrollIntoView({ block: "start" });
}

async function ask(run, what) {
  const texts = {
    stop: ["Stop this run?", `The run stops at the next round boundary, after ${run.committed_rounds} or ${run.committed_rounds + 1} of ${run.rounds} rounds. What it has spent, ε ${epsilon(run.spent.epsilon)} so far, stays spent; what is reserved for the other rounds is free again.`, "Stop the run"],
    pause: ["Pause this run?", "The run pauses at the next round boundary. It keeps its reservation, so that no other run can spend it.", "Pause the run"],
    resume: ["Resume this run?", "The run continues with its next round.", "Resume the run"],
  };
  const [title, text, action] = texts[what];
  const lines = what === "stop" ? [text, "A stopped run cannot be continued."] : [text];
  if (!(await confirm({ title, text: lines, action, danger: what === "stop" }))) return;
  try { await post(`${path(run.id)}/${what}`); notice(""); } catch (error) { notice(error.message); }
  refresh();
}

// One load at a time. Events during a load cause exactly one more.
let loading = false;
let again = false;
let finished = 0;
async function refresh() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    await load();
    if (refused) { refused = false; notice(""); connect(); }
  } catch (error) {
    if (error.status === 401 || error.status === 403) refuse(error);
    else if (state.at !== null) notice(`The newest figures could not be read: ${error.message}`);
    else {
      notice(`The service cannot be read: ${error.message}`);
      for (const id of ["banner", "budgets"]) problem(id, error);
    }
  }
  finished = performance.now();
  loading = false;
  if (again) { again = false; later(); }
}

let timer = 0;
function later() {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(0, PAUSE - (performance.now() - finished)));
}

let refused = false;
function refuse(error) {
  refused = true;
  state.me = null;
  state.drawn.clear();
  state.stop?.();
  connection("bad", "Signed out");
  account();
  notice(signedIn() ? error.message : "");
  $("banner").dataset.kind = "";
  show($("banner"), h("div", {}, h("p", { class: "banner-state" }, "Sign in to see the budget"), h("p", { class: "muted" }, "From another machine, this service answers only with a token.")),
    h("div", { class: "banner-tools" }, h("button", { type: "button", class: "primary", "data-key": "sign-in", onclick: logIn }, "Sign in")));
  for (const id of ["compare", "filters"]) show($(id));
  for (const id of ["budgets", "ledger", "runs", ...RUN_PANELS, ...POPULATION_PANELS]) show($(id), empty("Signed out."));
  $("banner").hidden = false;
  $("main").setAttribute("aria-busy", "false");
}

async function logIn() {
  await signIn(async (token) => {
    setToken(token);
    try { await get("/v1/me"); } catch (error) { setToken(""); throw error; }
  });
  if (signedIn()) { state.stop?.(); refused = true; refresh(); }
}

function account() {
  const button = $("account");
  button.textContent = signedIn() ? `Sign out ${state.me?.name || ""}`.trim() : "Sign in";
  button.onclick = signedIn() ? () => { setToken(""); state.drawn.clear(); resetLedger(); state.stop?.(); refused = true; refresh(); } : logIn;
}

function notice(text) { $("notice").hidden = !text; $("notice").textContent = text; }

function connection(kind, text) {
  const pill = $("connection");
  pill.dataset.kind = kind;
  pill.querySelector(".pill-text").textContent = text;
}

function connect() {
  state.stop?.();
  let lost = false;
  state.stop = listen({
    onState: (what) => {
      if (what === "live") { connection("good", "Live"); if (lost) { lost = false; notice(""); later(); } }
      if (what === "lost") { lost = true; connection("warn", "Reconnecting"); if (state.at) notice(`Connection lost. These are the figures of ${time(state.at)}.`); }
      if (what === "refused") refresh();
    },
    onEvent: (event) => {
      if (event.event === "reset") resetLedger();
      if (event.event !== "hello") later();
    },
  });
}

function theme() {
  const order = ["system", "light", "dark"];
  const button = $("theme");
  const now = () => document.documentElement.dataset.theme || "system";
  const showChoice = () => { button.textContent = `Theme: ${now()}`; };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(now()) + 1) % order.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try { localStorage.setItem("fieldfare.theme", next); } catch { /* storage is off: the choice lasts as long as the page */ }
    showChoice();
  });
  showChoice();
}

for (const id of ["banner", "budgets", "ledger", "runs", ...RUN_PANELS, ...POPULATION_PANELS]) show($(id), skeleton());
window.addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", () => { if (!document.hidden) later(); });
theme();
account();
connect();
refresh();
get("/healthz").then((health) => { $("version").textContent = `Fieldfare ${health.version}`; }).catch(() => {});
