// Panel 4: the guarantee, its assumptions, and what it does not cover.
import { facts, h, show, unbroken } from "./dom.js";
import { download } from "./api.js";

export function drawGuarantee(parent, run) {
  const { statement, facts: lines, not_covered: uncovered, warnings } = run.guarantee;
  show(parent, h("p", { class: statement.startsWith("NOT PRIVATE") ? "promise none" : "promise" }, unbroken(statement)), warnings.map((text) => h("p", { class: "promise none" }, text)), facts(lines.map((fact) => [fact.name, fact.name === "The server sees" ? [fact.value, blinder(run)] : unbroken(fact.value)]), "card-facts"),
    h("div", { class: "uncovered" }, h("h3", {}, "Not covered by this guarantee"), h("ul", {}, uncovered.map((text) => h("li", {}, text)))),
    h("div", { class: "tools gap" }, save("Privacy statement", `report?format=html`, "html"), save("Registry entry", "registry-entry", "json")));

  // What it said last; red while none answers, or where another key signed.
  function blinder({ blinder: state }) {
    return state && h("p", { class: state.silent || state.receipt?.signed === false ? "blinder silent" : "blinder", role: "status" }, state.message);
  }

  function save(name, part, kind) {
    const failure = h("span", { class: "small error", role: "alert" });
    const button = h("button", {
      type: "button", "data-key": part,
      onclick: () => download(`/v1/runs/${encodeURIComponent(run.id)}/${part}`, `${run.id}-${name.toLowerCase().replace(" ", "-")}.${kind}`).catch((error) => { failure.textContent = error.message; }),
    }, name);
    return [button, failure];
  }
}
