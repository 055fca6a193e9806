// The dialogs: sign in, and confirm what cannot be undone.
import { $, h } from "./dom.js";

function open(content, onClose) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-h" }, content);
  dialog.addEventListener("close", () => { dialog.remove(); onClose?.(); });
  $("dialogs").append(dialog);
  dialog.showModal();
  return dialog;
}

export function signIn(check) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-error" });
    const error = h("p", { class: "error small", id: "token-error", role: "alert" });
    let done = false;
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        error.textContent = "";
        try {
          await check(input.value.trim());
          done = true;
          dialog.close();
        } catch (problem) { error.textContent = problem.message; input.select(); }
      },
    }, h("h2", { id: "dialog-h" }, "Sign in"),
    h("p", { class: "muted small" }, "Paste a token made with ", h("code", {}, "fieldfare token create"), ". It stays in this tab and is forgotten when the tab closes."),
    h("label", { for: "token" }, "Token", input), error,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "primary" }, "Sign in")));
    const dialog = open(form, () => resolve(done));
  });
}

export function confirm({ title, text, action, danger }) {
  return new Promise((resolve) => {
    let yes = false;
    const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const dialog = open([h("h2", { id: "dialog-h" }, title), text.map((line) => h("p", { class: "gap" }, line)),
      h("div", { class: "actions gap" }, cancel, h("button", { type: "button", class: danger ? "danger solid" : "primary", onclick: () => { yes = true; dialog.close(); } }, action))], () => resolve(yes));
    cancel.focus();
  });
}
