// Formats numbers and times. An epsilon is rounded up, never down: the page must not understate what was spent.
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const both = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const date = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

export const count = (n) => (n === null || n === undefined ? "—" : n.toLocaleString());
// Shown instead of a count of users: under this adjacency the presence of a user is the secret.
export const HIDDEN = "not shown under add-remove";
export const hides = (adjacency) => adjacency === "add_remove";
export const time = (at) => clock.format(new Date(at));
export const moment = (at) => (at ? both.format(new Date(at)) : "—");
// Calendar windows are of UTC: their day must not become the one before it in another zone.
export const utcDay = (at) => `${new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" }).format(new Date(at))} UTC`;
export const day = (at) => date.format(new Date(at));
export const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)} %`;

// Four digits: 5.992 of 6 must not read 6 of 6.
export function epsilon(x) {
  if (x === null || x === undefined) return "∞";
  if (x === 0) return "0";
  const scale = 10 ** (3 - Math.floor(Math.log10(x)));
  return number(Math.ceil(x * scale * (1 - 1e-12)) / scale);
}

// What still fits is rounded down: the page must not promise a run that would be refused.
export function epsilonLeft(x) {
  if (!x) return "0";
  const scale = 10 ** (3 - Math.floor(Math.log10(x)));
  return number(Math.floor(x * scale * (1 + 1e-12)) / scale);
}

export function number(x, digits = 4) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "—";
  if (x !== 0 && (Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3)) return x.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return Number(x.toPrecision(digits)).toString();
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}
