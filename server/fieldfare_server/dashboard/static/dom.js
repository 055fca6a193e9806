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
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child).replace(UNSEEN, "\ufffd"))));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export const $ = (id) => document.getElementById(id);

// Replaces the children of `parent` and keeps the keyboard's focus: a live page must not steal it.
export function show(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  if (key) parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

export const facts = (pairs, kind = "facts") => h("dl", { class: kind },
  pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
export const skeleton = () => h("div", { class: "skeleton", role: "status" }, h("span", { class: "sr" }, "Loading"));
export const empty = (...text) => h("p", { class: "empty" }, ...text);
export const failed = (error) => h("p", { class: "error" }, error.message);
