// Panel 9: the hash-chained audit log, with a check of the chain and an export.
import { empty, failed, h, show } from "./dom.js";
import { count, moment } from "./format.js";
import { download, get, post } from "./api.js";

const short = (hash) => h("span", { class: "mono", title: hash }, `${hash.slice(0, 10)}…`);
let older = [];
let verdict = null;
let signed = null;
let asked = false;

export function resetLedger() { older = []; }

function row(entry) {
  return h("tr", {}, h("td", { class: "num" }, count(entry.id)), h("td", {}, moment(entry.at)), h("td", {}, entry.event),
    h("td", {}, entry.run || entry.population || "—"), h("td", { class: "num" }, entry.round === null ? "—" : count(entry.round + 1)),
    h("td", {}, entry.actor), h("td", {}, short(entry.previous)), h("td", {}, short(entry.hash)));
}

function outcome() {
  if (!verdict) return "The hash of each row covers the row before it.";
  if (verdict.error) return failed(verdict.error);
  if (!verdict.ok) return h("span", { class: "tag bad" }, `The ledger does not fit: ${verdict.message}`);
  return [h("span", { class: "tag good" }, "Chain whole"), ` ${count(verdict.rows)} rows checked, head `, verdict.head ? short(verdict.head) : "—",
    ...(signed ? [" Keep this line elsewhere, and the past cannot be taken back: ", h("code", { class: "mono", "data-key": "signed-head" }, signed)] : [])];
}

const fill = (status) => status.replaceChildren(...[outcome()].flat().map((part) => (part instanceof Node ? part : document.createTextNode(part))));

// Unasked, once: a ledger whose tables contradict its journal must not wait for a button.
async function warn(status) {
  if (asked) return;
  asked = true;
  try {
    const found = await get("/v1/audit/verification");
    if (found.complete && !found.ok && !verdict) { verdict = found; fill(status); }
  } catch { asked = false; }
}

export function drawLedger(parent, page, { canAct }) {
  const seen = new Set(page.items.map((entry) => entry.id));
  const rows = page.items.concat(older.filter((entry) => !seen.has(entry.id)));
  const status = h("p", { class: "grow small", role: "status" }, outcome());
  const verify = h("button", {
    type: "button", "data-key": "verify",
    onclick: async () => {
      verify.disabled = true;
      show(status, document.createTextNode("Checking…"));
      try {
        verdict = canAct ? await post("/v1/audit/verification") : await get("/v1/audit/verification");
        while (!verdict.complete) {
          status.textContent = `Checking: ${verdict.message}…`;
          await new Promise((resume) => setTimeout(resume, 2000));
          verdict = await get("/v1/audit/verification");
        }
        signed = verdict.ok ? await get("/v1/audit/head").then((head) => head.text, () => null) : null;
      } catch (error) { verdict = { error }; }
      verify.disabled = false;
      fill(status);
    },
  }, canAct ? "Verify every row" : "Verify");
  const save = h("button", { type: "button", "data-key": "export", onclick: () => download("/v1/audit/export", "fieldfare-audit.ndjson").catch((error) => { verdict = { error }; show(status, outcome()); }) }, "Export");
  const oldest = rows.at(-1);
  const more = oldest && oldest.id > 1 ? h("button", {
    type: "button", "data-key": "older",
    onclick: async () => {
      const next = await get(`/v1/audit?limit=50&cursor=${encodeURIComponent(older.next || page.next)}`);
      const kept = older.concat(next.items);
      kept.next = next.next;
      older = kept;
      drawLedger(parent, page, { canAct });
    },
  }, "Older rows") : null;
  warn(status);
  show(parent, h("div", { class: "tools" }, status, verify, save),
    rows.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger rows", "data-key": "rows" }, h("table", {},
      h("thead", {}, h("tr", {}, ["#", "Time", "Event", "Run", "Round", "By", "Previous", "Hash"].map((name, i) => h("th", { scope: "col", class: i === 0 || i === 4 ? "num" : "" }, name)))),
      h("tbody", {}, rows.map(row)))) : empty("The ledger has no rows."),
    more && (older.length === 0 ? page.next : older.next) ? more : null);
}
