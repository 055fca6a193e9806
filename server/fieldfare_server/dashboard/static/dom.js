// Builds elements from values. Text is always set as text: the page parses no string as HTML.
const SVG = "http://www.w3.org/2000/svg";
// Names and reasons are chosen by others. A character that reorders or hides text could make one sentence look like another.
const UNSEEN = /\p{Bidi_Control}|(?![\n\t])\p{Cc}/gu;

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter(real)
    .map((child) => (child instanceof Node ? child : String(child).replace(UNSEEN, "\ufffd"))));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export const $ = (id) => document.getElementById(id);

// A browser may break a line behind the hyphen of 1e-5: then "(2.00, 1e-" is read as a promise. The text stays what it is.
export const unbroken = (text) => text.split(/((?:δ )?\d[\d.]*e-\d+)/).map((part, i) => (i % 2 ? h("span", { class: "unbroken" }, part) : part));

const real = (child) => child !== null && child !== undefined && child !== false;
let within = false; // a redraw that keeps: what it draws inside need not keep again

// Redraws `parent` and keeps what a person has there, by data-key: the keyboard's focus, what is open, how far it is scrolled, the place that is
// read on a chart, selected text, and where all that stands on the screen. A live page must take none of it away.
export function keeping(parent, redraw) {
  if (within) { redraw(); return; }
  const [focused, ends, anchor] = [document.activeElement, selectionIn(parent), scrollY ? onScreen() : null];
  const stood = anchor?.getBoundingClientRect().top;
  const kept = [...parent.querySelectorAll("[data-key]")].map((e) => ({ e, open: e.open, left: e.scrollLeft, top: e.scrollTop, at: e.dataset.at }))
    .filter(({ e, ...one }) => e === focused || one.open !== undefined || one.left || one.top || one.at !== undefined);
  within = true;
  try { redraw(); } finally { within = false; }
  if (ends) {
    getSelection().setBaseAndExtent(...ends.flatMap(({ node, path, offset }) => { const now = path ? path.reduce(step, parent) : node; return [now, Math.min(offset, now.length ?? now.childNodes.length)]; }));
    if (String(getSelection()) !== ends.text) getSelection().removeAllRanges(); // another text stands there now
  }
  for (const { e, open, left, top: down, at: place } of kept) {
    const now = e.isConnected ? e : keyed(parent, e.dataset.key);
    if (!now) continue;
    if (open !== undefined) now.open = open;
    now.scrollTo(left, down);
    if (e === focused) now.focus({ preventScroll: true });
    if (place !== undefined && now !== e) now.dispatchEvent(new CustomEvent("place", { detail: Number(place) }));
  }
  const moved = anchor ? anchor.getBoundingClientRect().top - stood : 0;
  if (moved) scrollBy({ top: moved, behavior: "instant" });
}

// The part that stays where it is whatever changes above it: the one with the focus, or the first that is seen. At the top of the page none.
function onScreen() {
  const seen = [...document.querySelectorAll("main section")].filter((part) => { const box = part.getBoundingClientRect(); return box.height && box.bottom > 0 && box.top < innerHeight; });
  return seen.find((part) => part.contains(document.activeElement)) ?? seen[0];
}

const keyed = (parent, key) => parent.querySelector(`[data-key="${CSS.escape(key)}"]`);

// The two ends of selected text: inside `parent` by the way to them from it or from what has a key, outside by their nodes.
function selectionIn(parent) {
  const chosen = getSelection();
  if (chosen.isCollapsed) return null;
  const ends = [[chosen.anchorNode, chosen.anchorOffset], [chosen.focusNode, chosen.focusOffset]]
    .map(([node, offset]) => ({ node, offset, path: parent.contains(node) ? way(parent, node) : null }));
  return ends.some(({ path }) => path) ? Object.assign(ends, { text: String(chosen) }) : null;
}
const way = (parent, node) => (node === parent ? [] : node.dataset?.key ? [node.dataset.key] : [...way(parent, node.parentNode), [...node.parentNode.childNodes].indexOf(node)]);
const step = (node, to) => (typeof to === "string" ? keyed(node, to) : node.childNodes[to]) ?? node;

// Replaces the children of `parent`.
export const show = (parent, ...children) => keeping(parent, () => parent.replaceChildren(...children.flat(2).filter(real)));

// What has no value yet is not shown.
export const facts = (pairs, kind = "facts") => h("dl", { class: kind },
  pairs.filter(([, value]) => value !== "—").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
export const skeleton = () => h("div", { class: "skeleton", role: "status" }, h("span", { class: "sr" }, "Loading"));
export const empty = (...text) => h("p", { class: "empty" }, ...text);
export const failed = (error) => h("p", { class: "error" }, error.message);
