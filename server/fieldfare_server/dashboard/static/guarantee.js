// Panel 4: what is promised, on which assumptions, and what is not.
import { facts, h, show } from "./dom.js";

export function drawGuarantee(parent, run) {
  const { statement, facts: lines, not_covered: uncovered } = run.guarantee;
  show(parent, h("p", { class: "promise" }, statement), facts(lines.map((fact) => [fact.name, fact.value]), "card-facts"),
    h("div", { class: "uncovered" }, h("h3", {}, "Not covered by this guarantee"), h("ul", {}, uncovered.map((text) => h("li", {}, text)))));
}
