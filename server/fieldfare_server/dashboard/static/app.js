// The page: what it shows, when it fetches it, and what it does on an event.
import { $, failed, h, keeping, show, skeleton } from "./dom.js";
import { epsilon, time } from "./format.js";
import { get, listen, post, setToken, signedIn, useToken } from "./api.js";
import { confirm, signIn } from "./dialogs.js";
import { read, written } from "./address.js";
import { active, drawBanner } from "./banner.js";
import { drawBudgets, populationLink } from "./budgets.js";
import { drawCohort } from "./cohort.js";
import { drawCurve } from "./curve.js";
import { drawGuarantee } from "./guarantee.js";
import { drawLedger, resetLedger } from "./ledger.js";
import { drawNoise } from "./noise.js";
import { drawParticipation, drawVisits } from "./participation.js";
import { drawChanges, drawFits, drawHistory, drawWhatIf, drawWords } from "./population.js";
import { MOST, drawComparison, drawFilters, drawRuns, drawScores } from "./runs.js";
import { drawUtility } from "./utility.js";

const RUN_PANELS = ["curve", "guarantee", "cohort", "utility", "noise", "participation"];
const POPULATION_PANELS = ["history", "scores", "changes", "visits", "fits", "what-if", "words"];
const LISTS = ["budgets", "ledger", "runs"];
const VIEWS = { overview: ["banner", "overview", "all-runs", "journal"], population: ["population", "all-runs"], run: ["banner", "panels"], limited: ["overview"], gone: ["gone"] };
const SECTIONS = [...new Set(Object.values(VIEWS).flat())];
const POINTS = 300;
const ROWS = 50; // runs on a page of the table
const NEAREST = 20; // populations on a page of the list
const PAUSE = 700; // least time between two loads in ms, however many events arrive
const RETRY = 2000; // ms from a load that failed to the next
const SILENCE = 11_000; // ms after which a blinder that was asked counts as silent, and a little more
const TYPING = 200; // ms after the last key before the list is searched

// back, cursor: the earlier pages of the runs table, and the one shown. pages: of populations. drawn: what each panel shows.
const state = { me: null, ...read(), back: [], cursor: null, pages: 1, compared: new Set(), drawn: new Map(), stop: null, at: null };
const canAct = () => Boolean(state.me?.scopes.includes("admin"));
const pause = () => new Promise((resume) => setTimeout(resume));
const path = (id) => `/v1/runs/${encodeURIComponent(id)}`;
const populationPath = (name) => `/v1/populations/${encodeURIComponent(name)}`;

// Draws only what changed: the client returns the same object for an unchanged answer.
function draw(id, values, how) {
  const before = state.drawn.get(id);
  if (before && before.length === values.length && before.every((value, i) => value === values[i])) return;
  state.drawn.set(id, values);
  keeping($(id), () => how($(id)));
}

function problem(id, error) {
  state.drawn.delete(id);
  show($(id), failed(error));
}

// Which sections are seen, and what they are about: the heading, the way back, and the window's title.
function place(view, name = "", above = []) {
  for (const id of SECTIONS) $(id).hidden = !VIEWS[view].includes(id);
  const title = name || "Privacy budgets";
  document.title = `${title} — Fieldfare`;
  draw("title", [title], (parent) => { show(parent, document.createTextNode(title)); parent.className = name ? "title" : "sr"; });
  $("crumbs").hidden = !name;
  draw("crumbs", [above.join()], (parent) => show(parent, h("a", { href: "#", "data-key": "all" }, "All budgets"), above.map((one) => [" › ", populationLink(one)])));
}

async function load() {
  const { view } = state;
  state.me = await get("/v1/me");
  account();
  try {
    if (view === "overview") await loadOverview();
    else if (view === "population") await loadPopulation(state.population);
    else await loadRun(state.run);
  } catch (error) {
    if (![404, 422].includes(error.status) && (error.status !== 403 || view === "overview")) throw error;
    drawGone(error);
  }
  state.at = Date.now();
  $("main").setAttribute("aria-busy", "false");
}

function drawGone(error) {
  const what = state.view === "run" ? `Run ${state.run}` : `Population ${state.population}`;
  place("gone", what);
  draw("gone", [error.message], (parent) => show(parent, h("p", { class: "fits-answer" }, error.status === 403 ? `${what} cannot be shown: ${error.message}` : `This ledger has no ${what[0].toLowerCase()}${what.slice(1)}.`),
    h("p", { class: "gap" }, error.status === 403 ? "" : "It may be another service's, or its name may be misspelt. ", h("a", { href: "#" }, "All budgets"))));
}

async function loadOverview() {
  const whole = state.me.populations === null; // a token for some populations may not read what concerns all of them
  const [populations, runs, audit] = await Promise.all([nearest(), whole ? get(`/v1/runs?limit=${ROWS}`) : null, whole ? get("/v1/audit?limit=12") : null]);
  place(whole ? "overview" : "limited");
  const items = populations.flatMap((page) => page.items);
  $("finder").hidden = items.length <= 3 && !state.search;
  if (document.activeElement !== $("search")) $("search").value = state.search;
  const onMore = populations.at(-1).next ? () => { state.pages += 1; refresh(); } : null;
  draw("budgets", [...populations, state.search], (parent) => drawBudgets(parent, items, { search: state.search, onMore }));
  if (!whole) return;
  draw("ledger", [audit, canAct()], (parent) => drawLedger(parent, audit, { canAct: canAct() }));
  const running = await get("/v1/runs?limit=1&state=running");
  const newest = running.items[0] || runs.items.find(active) || runs.items[0];
  const run = newest ? await get(path(newest.id)) : null;
  const told = run ? await get(populationPath(run.population)) : null;
  const population = told?.active_run === run?.id ? told : null;
  draw("banner", [run, population, canAct(), false], (parent) => drawBanner(parent, { run, population, canAct: canAct(), here: false, onAsk: (what) => ask(run, what) }));
  await loadRuns(runs, null);
}

// The pages of populations that are shown, nearest to their limits first.
async function nearest() {
  const pages = [];
  for (let cursor = ""; pages.length < state.pages && cursor !== null; cursor = pages.at(-1).next) {
    const query = new URLSearchParams(Object.entries({ order: "nearness", limit: NEAREST, search: state.search, cursor }).filter(([, value]) => value));
    pages.push(await get(`/v1/populations?${query}`));
  }
  return pages;
}

async function loadPopulation(name) {
  const at = populationPath(name);
  const [population, history, visits, runs] = await Promise.all([get(at), get(`${at}/history`), get(`${at}/participation`), get(`/v1/runs?${new URLSearchParams({ limit: ROWS, population: name })}`)]);
  let last = population.last_run ? await get(path(population.last_run)) : null;
  if (last?.plan.task?.question) { // what trains is priced with other values, and no question is
    const { items: [trained] } = await get(`/v1/runs?${new URLSearchParams({ limit: 1, population: name, asks: false })}`);
    last = trained ? await get(path(trained.id)) : null;
  }
  place("population", `Population ${name}`);
  for (const [panel, values, how] of [
    ["fits", [population], (parent) => drawFits(parent, population)],
    ["history", [population, history], (parent) => drawHistory(parent, population, history)],
    ["scores", [runs], (parent) => drawScores(parent, runs.items)],
    ["visits", [population.adjacency, visits], (parent) => drawVisits(parent, population, visits)],
    ["changes", [history], (parent) => drawChanges(parent, history)],
    ["what-if", [population.name, Boolean(last)], (parent) => drawWhatIf(parent, population, last)],
    ["words", [population.in_words], (parent) => drawWords(parent, population)],
  ]) {
    draw(panel, values, how);
    await pause();
  }
  await loadRuns(runs, null);
}

async function loadRun(id) {
  const [run, series, histogram] = await Promise.all([get(path(id)), get(`${path(id)}/series?points=${POINTS}`), get(`${path(id)}/participation`)]);
  const population = await get(populationPath(run.population));
  place("run", `Run ${run.name || run.id}`, [run.population]);
  const view = { run, population: population.active_run === run.id ? population : null, canAct: canAct(), here: true, onAsk: (what) => ask(run, what) };
  // A pause after each panel lets the browser answer a key press between two of them.
  for (const [panel, values, how] of [
    ["banner", [run, population, canAct(), true], (parent) => drawBanner(parent, view)],
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
  clearTimeout(state.unanswered);
  if (run.blinder?.asked_at && !run.blinder.silent) state.unanswered = setTimeout(refresh, SILENCE); // no event tells that nothing happens
}

// The table may show an older page than the first, which every load fetches.
async function loadRuns(first, current) {
  const { cursor, filter, compared } = state;
  const query = new URLSearchParams({ limit: ROWS, ...Object.fromEntries(Object.entries({ ...filter, cursor }).filter(([, value]) => value)) });
  const filtered = Boolean(filter.state || filter.asks);
  const any = first.items.length > 0 || filtered; // where there is no run, nothing is to be chosen
  draw("filters", [JSON.stringify(filter), any], (parent) => (any ? drawFilters(parent, filter, (next) => { location.hash = written({ ...state, filter: next }); }) : show(parent)));
  const runs = cursor || filtered ? await get(`/v1/runs?${query}`) : first;
  const turned = (act) => () => { act(); loadRuns(first, current).catch((error) => notice(error.message)); };
  const answers = await Promise.all([...compared].flatMap((one) => [get(path(one)), get(`${path(one)}/series?points=${POINTS}`)]));
  if (cursor !== state.cursor || filter !== state.filter || compared !== state.compared) return; // changed meanwhile, and that load draws
  const several = runs.items.length + state.back.length > 1;
  const pairs = [...compared].map((_, i) => ({ run: answers[2 * i], series: answers[2 * i + 1] }));
  draw("compare", [...answers, several], (parent) => drawComparison(parent, pairs, several));
  draw("runs", [runs, current, filtered, compared.size >= MOST], (parent) => drawRuns(parent, runs, {
    current, filtered, compared, page: state.back.length,
    onCompare: (id, chosen) => turned(() => { state.compared = new Set(state.compared); state.compared[chosen ? "add" : "delete"](id); })(),
    onOlder: turned(() => { state.back.push(state.cursor); state.cursor = runs.next; }),
    onNewer: turned(() => { state.cursor = state.back.pop(); }),
  }));
}

function follow() {
  const before = JSON.stringify([state.view, state.run, state.population]);
  Object.assign(state, read(), { back: [], cursor: null, pages: 1 });
  if (before !== JSON.stringify([state.view, state.run, state.population])) {
    wait(RUN_PANELS.concat(POPULATION_PANELS, ["banner"]));
    place(state.view, state.run ? `Run ${state.run}` : state.population ? `Population ${state.population}` : "");
    scrollTo(0, 0);
    $("main").focus({ preventScroll: true });
  }
  refresh();
}

// Another subject: nothing of the one before stands beside it.
function wait(panels) {
  for (const id of panels) {
    state.drawn.delete(id);
    show($(id), skeleton());
  }
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
let unread = false; // the last load failed, and the service is there
let lost = false; // the stream of events, whose return causes a load
let finished = 0;
async function refresh() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    await load();
    if (unread) { unread = false; notice(""); }
    if (refused) { refused = false; notice(""); connect(); }
  } catch (error) {
    if (error.status === 401 || error.status === 403) refuse(error);
    else {
      unread = !lost;
      if (state.at === null) {
        notice(`The service cannot be read: ${error.message}`);
        for (const id of ["banner", "budgets", "fits"]) problem(id, error);
      } else if (unread) notice(`The newest figures could not be read: ${error.message}`);
    }
  }
  finished = performance.now();
  loading = false;
  if (again || unread) { again = false; later(unread ? RETRY : PAUSE); }
}

let timer = 0;
function later(rest = PAUSE) {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(0, rest - (performance.now() - finished)));
}

let refused = false;
function refuse(error) {
  refused = true;
  unread = false;
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
  for (const id of [...LISTS, ...RUN_PANELS, ...POPULATION_PANELS]) show($(id));
  for (const id of SECTIONS) $(id).hidden = id !== "banner";
  $("main").setAttribute("aria-busy", "false");
}

async function logIn() {
  await signIn(useToken);
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
  lost = false;
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

wait(["banner", ...LISTS, ...RUN_PANELS, ...POPULATION_PANELS]);
place(state.view, state.run ? `Run ${state.run}` : state.population ? `Population ${state.population}` : "");
let typed = 0;
$("search").value = state.search;
$("search").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    history.replaceState(null, "", written({ ...state, search: $("search").value.trim() }) || "#");
    Object.assign(state, read(), { pages: 1 });
    refresh();
  }, TYPING);
});
window.addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", () => { if (!document.hidden) later(); });
theme();
account();
connect();
refresh();
get("/healthz").then((health) => { $("version").textContent = `Fieldfare ${health.version}`; }).catch(() => {});
