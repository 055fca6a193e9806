// How often users took part: in a run, with what its plan allows, and in all runs of a population. It shows counts of users,
// never a single user.
import { empty, facts, h, show } from "./dom.js";
import { HIDDEN, count, hides } from "./format.js";
import { bars } from "./chart.js";

const mostOf = (histogram) => histogram.users.reduce((most, users, times) => (users > 0 ? times : most), 0);

const BARS = 14;

// [label, users] of each number of rounds that somebody took part in; of many, as many numbers share a bar.
function byRounds({ users }) {
  const wide = users.filter((count) => count > 0).length > BARS ? Math.ceil(users.length / BARS) : 1;
  const rows = new Map();
  users.forEach((here, times) => { const from = times && times - ((times - 1) % wide); if (here) rows.set(from, (rows.get(from) || 0) + here); });
  return [...rows].map(([from, here]) => [wide > 1 && from ? `${from} to ${from + wide - 1} rounds` : from === 1 ? "1 round" : `${from} rounds`, here]);
}

export function drawVisits(parent, population, histogram) {
  if (hides(population.adjacency)) {
    show(parent, facts([["Users by rounds", HIDDEN]]));
  } else if (!histogram.counted) {
    show(parent, empty("There are too many rounds to count here. The page of each run counts its own."));
  } else if (mostOf(histogram) === 0) {
    show(parent, empty("No user has taken part yet."));
  } else {
    show(parent, facts([["Most by one user", count(mostOf(histogram))]]), h("h3", { class: "gap" }, "Users by number of rounds they took part in"), bars(byRounds(histogram)));
  }
}

export function drawParticipation(parent, run, histogram) {
  if (hides(run.adjacency)) {
    show(parent, facts([["Users by rounds", HIDDEN], ["Allowed", count(histogram.allowed)], ["Rounds apart, at least", count(histogram.separation)]]));
    return;
  }
  const most = mostOf(histogram);
  if (most === 0) {
    show(parent, empty("No user has taken part yet."));
    return;
  }
  show(parent, facts([["Most by one user", count(most)], ["Allowed", count(histogram.allowed)], ["Rounds apart, at least", count(histogram.separation)]]),
    h("h3", { class: "gap" }, "Users by number of rounds they took part in"),
    bars(byRounds(histogram)),
    h("p", { class: "hint" }, histogram.allowed === null ? "The plan was written by another version." : most > histogram.allowed
      ? h("span", { class: "tag bad" }, "More than the plan allows") : "Within what the accounting assumed."));
}
