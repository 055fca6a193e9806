"""What clients were told, against a sequential model; and what users have lost, counted from what left the server.

The model of the log is `oracles.reference_fold`, written from docs/log.md. Leases, losses and tokens are modelled here.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oracles.reference_fold import SINGLY, Fold, RefusedError, mu_squared, price_of

NEAR = 1e-9
"""Two ways to sum the same losses differ by less."""
SLACK = 5.0
"""Clocks of two machines differ by less, and a moment passes within a call."""


class Violation(BaseException):
    """The ledger broke what it promises. No code of the product may catch it."""


@dataclass
class Holder:
    """Who holds a run, as the log says."""

    life: str
    beat: float
    """When it last wrote, or renewed its lease."""
    free: bool = False
    """It gave the run back."""


@dataclass
class Loss:
    """What the users of one population have lost."""

    users: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    foreign: float = 0.0

    @property
    def now(self) -> tuple[float, float]:
        """mu^2 that our runs, and that all trainers, have cost the user who has lost most."""
        ours = max(self.users.values(), default=0.0)
        return ours, ours + self.foreign


@dataclass(frozen=True)
class Shown:
    """What a reader may see of a population after one row of the log."""

    epsilon: float
    delta: float
    state: str
    users: int
    total: int
    active: int
    rounds_left: int
    committed: float
    """mu^2 that all users are charged alike."""
    spent: float
    proposals: frozenset[str]


class Oracle:
    """The sequential model. Each method raises `Violation`."""

    def __init__(self, clock: Callable[[], float], lease: float = 30.0) -> None:
        self._clock, self._lease = clock, lease
        self.fold = Fold()
        self.count = 0
        self.hash = ""
        self.holders: dict[str, Holder] = {}
        self.losses: dict[str, Loss] = defaultdict(Loss)
        self.bounds: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """Every budget that a population ever had."""
        self.shown: dict[str, list[tuple[int, Shown]]] = defaultdict(list)
        self.rounds: dict[tuple[str, int], dict[str, Any]] = {}
        """The body of each committed round."""
        self.attempts: set[tuple[str, int, int]] = set()
        """Attempts at rounds that were committed."""
        self.released: dict[tuple[str, int], str] = {}
        self.nonces: dict[str, str] = {}
        self.revoked: dict[str, int] = {}
        """Token -> the row that revoked it."""
        self.times: list[float] = []
        """When each row was written, as its machine believed."""
        self.steps = 0
        self._looked = 0.0
        self._gone: dict[str, int] = {}
        self._paid: set[tuple[str, int]] = set()
        self._taken: dict[tuple[str, int], float] = defaultdict(float)

    # -- the log, row by row ----------------------------------------------------------------------------------------

    def follow(self, rows: list[dict[str, Any]], life: str, steers: str | None, looked: float) -> list[dict[str, Any]]:
        """Take the rows that a transaction of `life` committed, which looked at its clock at `looked`.

        steers: the run whose lease it renewed.
        """
        self._looked = looked
        if steers is not None:
            self._renew(steers, life)
        for row in rows:
            need(row["id"] == self.count + 1 and row["previous"] == (self.hash or row["previous"]), "the log forked")
            run, body = row["run"], json.loads(row["body"])
            before = None if run is None else self.holders.get(run)
            try:
                self.fold.apply(row)
            except RefusedError:
                raise Violation(f"row {row['id']} ({row['action']}) is not allowed by the sequential model") from None
            except (LookupError, TypeError, ValueError) as error:
                raise Violation(f"row {row['id']} ({row['action']}) means nothing: {error!r}") from None
            self.count, self.hash = row["id"], row["hash"]
            self.times.append(row["at"])
            if run is not None:
                self._lease_of(row, body, run, before, life)
            self._note(row, body)
        return rows

    def _lease_of(
        self, row: Mapping[str, Any], body: Mapping[str, Any], run: str, before: Holder | None, life: str
    ) -> None:
        action, now, looked = row["action"], self._clock(), self._looked
        if action == "run.start":
            self.holders[run] = Holder(life, looked)
        elif action == "run.resume":
            assert before is not None
            silent = now - before.beat
            free = before.free or self.is_gone(before.life) or silent >= self._lease - SLACK
            need(free, f"{life} took run {run} from {before.life}, which was silent for {silent:.1f} s only")
            if row["actor"] == "expiry":
                seconds = self.fold.populations[self.fold.runs[run]["population"]]["reservation_seconds"]
                wait = max(seconds or math.inf, self._lease)
                need(silent >= wait - SLACK, f"the reservation of run {run} expired after {silent:.1f} s, not {wait}")
            self.holders[run] = Holder(life, looked)
        elif action.partition(".")[0] in ("round", "users") or action in ("run.interrupt", "run.finish"):
            holder = self.holders[run]
            need(holder.life == life and not holder.free, f"{life} wrote {action} to run {run} of {holder.life}")
            holder.beat = looked
            holder.free = action in ("run.interrupt", "run.finish")

    def _renew(self, run: str, life: str) -> None:
        holder = self.holders.get(run)
        if holder is not None:
            need(holder.life == life and not holder.free, f"{life} renewed the lease of run {run} of {holder.life}")
            holder.beat = self._looked

    def _note(self, row: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        if row["action"] == "round.commit":
            self.rounds[row["run"], row["round"]] = dict(body)
            self.attempts.add((row["run"], row["round"], body["attempt"]))
            self.steps += 1
        if row["action"] == "token.revoke":
            self.revoked.setdefault(body["id"], row["id"])
        name = row["population"] or (self.fold.runs[row["run"]]["population"] if row["run"] else None)
        if name is None:
            return
        if row["action"] in ("population.create", "population.raise"):
            self.bounds[name].append((body["epsilon"], body["delta"]))
        self.shown[name].append((row["id"], self._shown(name)))

    def _shown(self, name: str) -> Shown:
        population = self.fold.populations[name]
        runs = [run for run in self.fold.runs.values() if run["population"] == name]
        active = [run for run in runs if not run["ended"]]
        charges = [charge for (of, _), charge in self.fold.charges.items() if of == name]
        alike = [mu_squared(run["spent"]) for run in runs if run["accounting"] != SINGLY]
        alike += [price_of(charge["price"])[0] for charge in charges if charge["state"] == "committed"]
        waiting = (key for key, each in self.fold.proposals.items() if each["state"] == "waiting")
        return Shown(
            population["epsilon"],
            population["delta"],
            population["state"],
            population["users"],
            len(runs),
            len(active),
            sum(run["rounds"] - run["next"] for run in active),
            self.fold.committed(name)[0],
            math.fsum(alike),
            frozenset(key for key in waiting if self.fold.proposals[key]["population"] == name),
        )

    # -- what clients are told --------------------------------------------------------------------------------------

    def gone(self, name: str, life: int) -> None:
        """Every life of a process before this one is over."""
        self._gone[name] = life

    def latest_since(self, row: int) -> float:
        """The latest time of the rows after `row`, seconds since 1970."""
        return max(self.times[row:], default=0.0)

    def is_gone(self, life: str) -> bool:
        """Whether that life is over."""
        name, _, number = life.rpartition(".")
        return name in self._gone and int(number) < self._gone[name]

    def release(self, run: str, index: int, nonce: str, total: str, users: list[int], each: float) -> None:
        """A noised sum leaves the server: it costs each of `users` mu^2 = `each`."""
        made = self.rounds.get((run, index))
        need(made is not None, f"round {index} of run {run} was released and is not in the log")
        assert made is not None
        need(made["nonce"] == nonce, f"round {index} of run {run} was released under another nonce than the log has")
        need(self.nonces.setdefault(nonce, total) == total, f"nonce {nonce} serves two sums")
        if self.released.setdefault((run, index), total) != total:
            raise Violation(f"round {index} of run {run} was released twice, with two sums")
        facts = self.fold.runs[run]
        loss = self.losses[facts["population"]]
        if (run, index) in self._paid:
            return
        self._paid.add((run, index))
        for user in users:
            loss.users[user] += each
            self._taken[run, user] += each
        most = max((self._taken[run, user] for user in users), default=0.0)
        spent = mu_squared(facts["spent"])
        need(spent >= most - NEAR, f"run {run} is charged mu^2 {spent}, and a user lost {most} by it")
        self.require_bound(facts["population"])

    def train(self, name: str, mu: float) -> None:
        """Another trainer has used what it was told to be reserved."""
        self.losses[name].foreign += mu * mu
        self.require_bound(name)

    def require_bound(self, name: str) -> None:
        """Require that nobody has lost more than the largest budget that the population ever had."""
        most = self.losses[name].now[1]
        holds = any(_delta(most * (1 - NEAR), epsilon) <= delta * (1 + 1e-6) for epsilon, delta in self.bounds[name])
        need(holds, f"a user of {name} has lost mu^2 {most}, more than any budget that it had")

    def fits(self, name: str, mu: float) -> bool:
        """Whether one more loss fits population `name` now, with room to spare, so that a refusal would be wrong."""
        population = self.fold.populations[name]
        committed = self.fold.committed(name)[0] + mu * mu
        # Around midnight, whichever day it is by the clock of who asks.
        paced = [
            self.fold.paced({"population": name, "at": self._clock() + skew}, (mu * mu * (1 + 1e-6), 0.0))
            for skew in (-SLACK, SLACK)
        ]
        return (
            population["state"] == "open"
            and all(paced)
            and _delta(committed * (1 + 1e-6), population["epsilon"]) <= population["delta"] * (1 - 1e-6)
        )

    def read(self, view: Any, row: int, lost: tuple[float, float]) -> None:
        """A reader was shown a population as of `row`. lost: `Loss.now` before it asked."""
        versions = self.shown[view.name]
        now = next((shown for number, shown in reversed(versions) if number <= row), None)
        need(now is not None, f"{view.name} was shown before it was made")
        assert now is not None
        told = (view.epsilon, view.delta, view.state, view.runs_total, view.runs_active, view.rounds_left)
        said = (now.epsilon, now.delta, now.state, now.total, now.active, now.rounds_left)
        need(told == said, f"{view.name} as of row {row} was shown as {told}, and is {said}")
        need(view.users in (None, now.users), f"{view.name} was shown with {view.users} users of {now.users}")
        need({each.id for each in view.proposals} == now.proposals, f"proposals of {view.name} as of row {row}")
        alike = view.left is None
        for shown, sum_ in ((view.committed.mu_squared, now.committed), (view.spent.mu_squared, now.spent)):
            need(shown >= sum_ - NEAR, f"{view.name} as of row {row} was shown with {shown} of {sum_}")
            need(not alike or shown <= sum_ + NEAR, f"{view.name} as of row {row} was shown with {shown}, not {sum_}")
        for shown, loss in ((view.spent.mu_squared, lost[0]), (view.committed.mu_squared, lost[1])):
            need(shown >= loss - NEAR, f"{view.name} as of row {row} shows mu^2 {shown}, and a user has lost {loss}")

    def read_run(self, view: Any) -> None:
        """A reader was shown a run as of the newest row."""
        run = self.fold.runs[view.id]
        told = (view.next_round, view.spent.mu_squared, view.request, view.ended_at is not None)
        said = (run["next"], mu_squared(run["spent"]), run["request"], run["ended"])
        need(told == said, f"run {view.id} was shown as {told}, and is {said}")


def need(holds: object, else_: str) -> None:
    """Raise `Violation` unless it holds."""
    if not holds:
        raise Violation(else_)


def _delta(mu_squared: float, epsilon: float) -> float:
    """delta of mu-GDP at epsilon (Dong, Roth and Su 2022, Corollary 1), for `epsilon` below 700."""
    if mu_squared <= 0:
        return 0.0
    mu = math.sqrt(mu_squared)
    low = 0.5 * math.erfc((epsilon / mu + mu / 2) / math.sqrt(2))
    return 0.5 * math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) - math.exp(epsilon) * low
