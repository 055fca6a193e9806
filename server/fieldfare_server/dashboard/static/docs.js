// The API reference, drawn from the service's own OpenAPI document.
import { $, empty, h, show } from "./dom.js";

const name = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(name).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  return schema.type || "any";
};

function operation(path, method, op, schemas) {
  const parameters = (op.parameters || []).map((p) => h("tr", {}, h("td", {}, h("code", {}, p.name)), h("td", {}, p.in), h("td", {}, name(p.schema)), h("td", { class: "wrap" }, p.description || p.schema?.description || "")));
  const answers = Object.entries(op.responses).map(([status, answer]) => h("tr", {}, h("td", { class: "num" }, status), h("td", { class: "wrap" }, answer.description || ""), h("td", {}, Object.entries(answer.content || {}).map(([media, body]) => `${media} ${name(body.schema)}`).join(", "))));
  const body = Object.values(op.responses["200"]?.content || {})[0]?.schema;
  const example = body?.$ref ? schemas[body.$ref.split("/").pop()]?.examples?.[0] : null;
  return h("section", { class: "op", "aria-label": `${method} ${path}` }, h("h3", {}, h("span", { class: "tag accent" }, method.toUpperCase()), " ", h("code", {}, path)), h("p", {}, op.description || op.summary || ""),
    parameters.length ? h("details", {}, h("summary", {}, "Parameters"), h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, parameters)))) : null,
    h("details", {}, h("summary", {}, "Answers"), h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, answers)))),
    example ? h("details", {}, h("summary", {}, "Example"), h("pre", { tabindex: "0" }, JSON.stringify(example, null, 2))) : null);
}

async function main() {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`The document cannot be read (${answer.status}).`);
  const openapi = await answer.json();
  const groups = new Map();
  for (const [path, operations] of Object.entries(openapi.paths)) {
    for (const [method, op] of Object.entries(operations)) {
      const tag = op.tags?.[0] || "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(path, method, op, openapi.components.schemas));
    }
  }
  show($("reference"), h("p", { class: "gap" }, openapi.info.summary), h("p", { class: "muted" }, "Errors are RFC 9457 problem details. Send a token as ", h("code", {}, "Authorization: Bearer …"), "; on this machine, reading needs none."),
    [...groups].map(([tag, ops]) => h("section", { class: "card block" }, h("h2", {}, tag), ops)));
}

main().catch((error) => show($("reference"), empty(error.message)));
