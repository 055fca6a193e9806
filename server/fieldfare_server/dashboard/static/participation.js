// Panel 8: how often users took part, and what the plan allows. It shows counts of users, never a single user.
import { empty, facts, h, show } from "./dom.js";
import { HIDDEN, count, hides } from "./format.js";
import { bars } from "./chart.js";

export function drawParticipation(parent, run, histogram) {
  if (hides(run.adjacency)) {
    show(parent, facts([["Users by rounds", HIDDEN], ["Allowed", count(histogram.allowed)], ["Rounds apart, at least", count(histogram.separation)]]));
    return;
  }
  const rows = histogram.users.map((users, times) => [times, users]).filter(([times, users]) => times > 0 || users > 0);
  const most = Math.max(0, ...rows.filter(([, users]) => users > 0).map(([times]) => times));
  if (most === 0) {
    show(parent, empty("No user has taken part yet."));
    return;
  }
  const shown = rows.length > 14 ? rows.slice(0, 13).concat([[`${rows[13][0]} or more`, rows.slice(13).reduce((sum, [, users]) => sum + users, 0)]]) : rows;
  show(parent, facts([["Most by one user", count(most)], ["Allowed", count(histogram.allowed)], ["Rounds apart, at least", count(histogram.separation)]]),
    h("h3", { class: "gap" }, "Users by number of rounds they took part in"),
    bars(shown.map(([times, users]) => [typeof times === "number" ? (times === 1 ? "1 round" : `${times} rounds`) : `${times} rounds`, users])),
    h("p", { class: "hint" }, histogram.allowed === null ? "The plan was written by another version." : most > histogram.allowed
      ? h("span", { class: "tag bad" }, "More than the plan allows") : "Within what the accounting assumed."));
}
