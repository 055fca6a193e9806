// Panel 9: the hash-chained audit log, with a check of the chain and an export.
import { empty, failed, h, show } from "./dom.js";
import { count, moment } from "./format.js";
import { download, get, post } from "./api.js";

const short = (hash) => h("span", { class: "mono", title: hash }, `${hash.slice(0, 10)}…`);
let shown = []; // rows, newest first
let behind = null; // once older rows were asked for: the cursor of still older ones
let verdict = null;
let signed = null;
let asked = false;
let latest = null; // what was drawn last: rows and a check may arrive during a later drawing

export function resetLedger() { shown = []; behind = null; }

function row(entry) {
  return h("tr", { "data-key": `row-${entry.id}` }, h("td", { class: "num" }, count(entry.id)), h("td", {}, moment(entry.at)), h("td", {}, entry.event),
    h("td", { class: "about" }, entry.run || entry.population || "—"), h("td", { class: "num" }, entry.round === null ? "—" : count(entry.round + 1)),
    h("td", { class: "about" }, entry.actor), h("td", {}, short(entry.previous)), h("td", {}, short(entry.hash)));
}

function outcome() {
  if (!verdict) return "The hash of each row covers the row before it.";
  if (verdict.error) return failed(verdict.error);
  if (!verdict.ok) return h("span", { class: "tag bad" }, `The ledger does not fit: ${verdict.message}`);
  return [h("span", { class: "tag good" }, "Chain whole"), ` ${count(verdict.rows)} rows checked, head `, verdict.head ? short(verdict.head) : "—",
    ...(signed ? [" Keep this line elsewhere, and the past cannot be taken back: ", h("code", { class: "mono", "data-key": "signed-head" }, signed)] : [])];
}

// Made once: a check that an event overtakes still ends on the page.
const status = h("p", { class: "grow small", role: "status" });
const verify = h("button", { type: "button", "data-key": "verify", onclick: check });
const tell = () => show(status, ...[outcome()].flat().map((part) => (part instanceof Node ? part : document.createTextNode(part))));

async function check() {
  const whole = "/v1/audit/verification";
  verify.disabled = true;
  status.textContent = "Checking…";
  try {
    verdict = latest.canAct ? await post(whole) : await get(whole);
    while (!verdict.complete) {
      status.textContent = `Checking: ${verdict.message}…`;
      await new Promise((resume) => setTimeout(resume, 2000));
      verdict = await get(whole);
    }
    signed = verdict.ok ? await get("/v1/audit/head").then((head) => head.text, () => null) : null;
  } catch (error) { verdict = { error }; }
  verify.disabled = false;
  tell();
}

// Unasked, once: a ledger whose tables contradict its journal must not wait for a button.
async function warn() {
  if (asked) return;
  asked = true;
  try {
    const found = await get("/v1/audit/verification");
    if (found.complete && !found.ok && !verdict) { verdict = found; tell(); }
  } catch { asked = false; }
}

async function further() {
  const { items, next } = await get(`/v1/audit?limit=50&cursor=${encodeURIComponent(behind?.next || latest.page.next)}`);
  shown = shown.concat(items.filter((entry) => entry.id < shown.at(-1).id));
  behind = { next };
  drawLedger(latest.parent, latest.page, latest);
}

export function drawLedger(parent, page, { canAct }) {
  latest = { parent, page, canAct };
  const oldest = page.items.at(-1)?.id;
  const kept = behind ? shown.filter((entry) => entry.id < oldest) : [];
  if (kept[0]?.id !== oldest - 1) behind = null; // more came at once than a page holds: no gap is shown
  shown = page.items.concat(behind ? kept : []);
  verify.textContent = canAct ? "Verify every row" : "Verify";
  if (!verify.disabled) tell();
  warn();
  const save = h("button", { type: "button", "data-key": "export", onclick: () => download("/v1/audit/export", "fieldfare-audit.ndjson").catch((error) => { verdict = { error }; tell(); }) }, "Export");
  const more = shown.length && shown.at(-1).id > 1 && (behind ?? page).next ? h("button", { type: "button", class: "gap", "data-key": "older", onclick: further }, "Older rows") : null;
  show(parent, h("div", { class: "tools" }, status, verify, save),
    shown.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger rows", "data-key": "rows" }, h("table", {},
      h("thead", {}, h("tr", {}, ["#", "Time", "Event", "About", "Round", "By", "Previous", "Hash"].map((name, i) => h("th", { scope: "col", class: i === 0 || i === 4 ? "num" : "" }, name)))),
      h("tbody", {}, shown.map(row)))) : empty("The ledger has no rows."),
    more);
}
