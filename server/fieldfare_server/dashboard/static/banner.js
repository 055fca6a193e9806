// Panel 1: whether training runs, and if not, why.
import { empty, h, show } from "./dom.js";
import { duration, epsilon, moment } from "./format.js";
import { bar } from "./chart.js";
import { populationLink } from "./budgets.js";
import { runAddress } from "./address.js";

const STATES = {
  running: ["good", "Running"], paused: ["warn", "Paused"], stopping: ["warn", "Stopping"], interrupted: ["warn", "Interrupted"],
  done: ["", "Done"], stopped: ["", "Stopped"], exhausted: ["bad", "Stopped: budget exhausted"], failed: ["bad", "Failed"],
};
export const STATE_NAMES = Object.keys(STATES);
// The server's ACTIVE states: the run has rounds to come.
const ACTIVE = new Set(["running", "paused", "stopping", "interrupted"]);
export const active = (run) => ACTIVE.has(run.state);
export const stateTag = (state) => {
  const [kind, name] = STATES[state] || ["", state];
  return h("span", { class: `tag ${kind === "good" ? "accent" : kind}` }, name);
};

function headline(run) {
  const name = (STATES[run.state] || ["", run.state])[1];
  const asked = run.request === "stop" && run.state !== "stopped" ? " — stops at the next round boundary"
    : run.request === "pause" && run.state === "running" ? " — pauses at the next round boundary" : "";
  const progress = active(run)
    ? `, round ${Math.min(run.committed_rounds + 1, run.rounds)} of ${run.rounds}` : ` after ${run.committed_rounds} of ${run.rounds} rounds`;
  return `${name}${progress}${asked}`;
}

// On the overview it is the run under way, or the newest; on its own page it is the run of the address.
export function drawBanner(parent, { run, population, canAct, here, onAsk }) {
  if (!run) {
    parent.dataset.kind = "";
    show(parent, h("div", {}, h("p", { class: "banner-state" }, "No run yet"),
      empty("Start one with ", h("code", {}, "fieldfare simulate PLAN.toml"), " — it appears here with its first round.")));
    return;
  }
  parent.dataset.kind = (STATES[run.state] || [""])[0];
  const left = population?.projected_end ? (new Date(population.projected_end) - Date.now()) / 1000 : null;
  const tools = [here ? null : h("a", { class: "button", href: runAddress(run.id), "data-key": "open-run" }, "Open this run")];
  if (active(run) && canAct) {
    if (run.state === "paused" || run.request === "pause") tools.push(h("button", { type: "button", "data-key": "pause", onclick: () => onAsk("resume") }, "Resume"));
    else tools.push(h("button", { type: "button", "data-key": "pause", disabled: Boolean(run.request), onclick: () => onAsk("pause") }, "Pause"));
    tools.push(h("button", { type: "button", class: "danger", "data-key": "stop", disabled: run.request === "stop", onclick: () => onAsk("stop") }, "Stop…"));
  }
  show(parent,
    h("div", {},
      h("p", { class: "banner-state", role: "status" }, run.name ? `${run.name}: ` : "", headline(run)),
      h("p", { class: "banner-line" },
        h("span", {}, `ε ${epsilon(run.spent.epsilon)} spent of ${epsilon(run.planned.epsilon)} planned`),
        h("span", {}, `run ${run.id}`),
        h("span", {}, "population ", populationLink(run.population)),
        h("span", {}, run.ended_at ? `ended ${moment(run.ended_at)}` : `started ${moment(run.started_at)}`),
        active(run) && left > 0 ? h("span", {}, `about ${duration(left)} left`) : null,
        run.message ? h("span", {}, run.message) : null)),
    h("div", { class: "banner-tools" }, tools),
    bar(run.committed_rounds / run.rounds));
}
