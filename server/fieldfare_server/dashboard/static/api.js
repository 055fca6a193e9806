// The client: token, conditional requests, live events. The token stays in this tab (sessionStorage) and is sent only
// as an Authorization header, only to this origin.
const KEY = "fieldfare.token";
const cache = new Map();
let token = "";
try { token = sessionStorage.getItem(KEY) || ""; } catch { /* storage may be off; the token then lives as long as the page */ }

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.title || `The service answered ${status}.`);
    this.status = status;
    this.nearest = body?.nearest || "";
  }
}

export const signedIn = () => token !== "";

export function setToken(value) {
  token = value;
  cache.clear();
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch { /* storage is off, see above */ }
}

// A token is kept once the service knows it: a load meanwhile, with a wrong one, would sign the page out.
export async function useToken(value) {
  const response = await fetch("/v1/me", { headers: { Authorization: `Bearer ${value}` }, cache: "no-store" });
  if (!response.ok) await fail(response);
  setToken(value);
}

const headers = (more) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

async function fail(response) {
  let body = null;
  try { body = await response.json(); } catch { /* the answer is no problem document: show the status */ }
  throw new Problem(response.status, body);
}

// Returns the same object as before if nothing changed, so that callers can skip drawing.
export async function get(path) {
  const known = cache.get(path);
  const response = await fetch(path, { headers: headers(known ? { "If-None-Match": known.tag } : {}), cache: "no-store" });
  if (response.status === 304 && known) return known.body;
  if (!response.ok) await fail(response);
  const body = await response.json();
  const tag = response.headers.get("ETag");
  if (tag) {
    cache.delete(path);
    cache.set(path, { tag, body });
    if (cache.size > 200) cache.delete(cache.keys().next().value);
  }
  return body;
}

export async function post(path) {
  const response = await fetch(path, { method: "POST", headers: headers({}) });
  if (!response.ok) await fail(response);
  return response.json();
}

export async function download(path, name) {
  const response = await fetch(path, { headers: headers({}) });
  if (!response.ok) await fail(response);
  const url = URL.createObjectURL(await response.blob());
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// One stream for each page: one that reconnects takes the place of its old one.
const page = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// Reads events with fetch, because EventSource cannot send a token. Reconnects and resumes until the caller stops it.
export function listen({ onEvent, onState }) {
  let stopped = false;
  let last = "";
  let abort = new AbortController();
  let pause = 500;
  let silence = 0;
  const restartTimer = () => {
    clearTimeout(silence);
    // The service sends a comment at least every 15 s, so a connection that is silent for 40 s is dead.
    silence = setTimeout(() => abort.abort(), 40000);
  };
  (async () => {
    while (!stopped) {
      abort = new AbortController();
      restartTimer();
      try {
        const response = await fetch("/v1/events", {
          headers: headers({ "Fieldfare-Page": page, ...(last ? { "Last-Event-ID": last } : {}) }), signal: abort.signal, cache: "no-store",
        });
        if (!response.ok) await fail(response);
        onState("live");
        pause = 500;
        for await (const event of parse(response.body, restartTimer)) {
          if (event.id) last = event.id;
          onEvent(event);
        }
      } catch (error) {
        if (!stopped && (error.status === 401 || error.status === 403)) {
          onState("refused");
          return;
        }
      }
      if (stopped) return;
      onState("lost");
      await new Promise((resume) => setTimeout(resume, pause));
      pause = Math.min(pause * 2, 8000);
    }
  })();
  return () => { stopped = true; clearTimeout(silence); abort.abort(); };
}

async function* parse(stream, onBytes) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onBytes();
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const event = { id: "", event: "message", data: "" };
      for (const line of buffer.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      buffer = buffer.slice(end + 2);
      if (event.data) yield event;
    }
  }
}
