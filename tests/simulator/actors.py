"""The clients of one history: coordinators and their nodes, trainers, an officer, readers and their tokens.

Each keeps to docs/walks.md as the product does: durable before it is sent, charged before it is shown.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.individual import Demand, from_units
from fieldfare.errors import BadInput, BudgetRefused, LedgerError, OldCopy, Refused
from fieldfare.signed_head import HeadRefused, SignedHead, follow
from fieldfare_server.ledger import Ledger, NewRun, Outcome, RunHandle
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql.proof import Disproved
from simulator.oracle import SLACK, Violation, need
from simulator.world import LEASE, Process, World

UNITS = (1 << 28, 1 << 31, 1 << 34)
"""What one participation costs, in units of 2^-44 mu^2."""
MUS = (0.01, 0.05, 0.2)
PLAN = {"run": {"rounds": 8}}


@dataclass
class Job:
    """What the coordinator's disk has of a run."""

    id: str
    key: bytes
    population: str
    rounds: int
    units: int
    individual: bool
    grouped: bool
    pending: dict[str, Any] | None = None
    """The checkpoint that is written and not promoted."""
    synced: bool = True
    counts: dict[int, int] = field(default_factory=dict)


@dataclass
class Node:
    """One node: its users, and the newest head that it was shown."""

    users: list[int]
    held: SignedHead | None = None


class Federation:
    """All clients of one world."""

    def __init__(self, world: World, windows: bool) -> None:
        self.world, self.rng, self.oracle, self.windows = world, world.rng, world.oracle, windows
        self.jobs: dict[str, Job] = {}
        self.nodes = [Node([3 * i + 1, 3 * i + 2, 3 * i + 3][: self.rng.randint(1, 3)]) for i in range(4)]
        self.names: list[str] = []
        self.tokens: dict[str, tuple[str, float | None, int, set[str]]] = {}
        """Secret -> (id, when it expires, the row that made it, processes that saw it expired)."""
        self.people = 0

    # -- how every client calls -------------------------------------------------------------------------------------

    def call(self, who: Process, said: str, ask: Callable[[], Any], rows: tuple[str, ...] | None = None) -> Any:
        """What `ask` returns, or the refusal. A refusal leaves no row; what was granted left exactly `rows`."""
        who.rows = []
        begin, since = self.oracle.count, self.world.now
        try:
            answer = ask()
        except (OldCopy, Disproved) as refused:
            if self.world.disturbed(since):
                return refused
            raise Violation(f"{who.id}: {said}: {refused}") from refused
        except Refused as refused:
            self.world.say(f"{said}: {refused.why}", who)
            if isinstance(refused, (BadInput, BudgetRefused)) and not self.world.disturbed(since):
                left = [row["action"] for row in who.rows if row["actor"] != "expiry" and row["action"] != "run.finish"]
                left = [action for action in left if action != "round.void"]
                need(not left, f"{who.id}: {said} was refused, and {left} is in the log")
            return refused
        self.world.say(f"{said}: yes", who)
        if rows is not None:
            left = tuple(row["action"] for row in who.rows)
            need(left == rows, f"{who.id}: {said} was granted, and {left} is in the log after row {begin}")
        return answer

    def opened(self, who: Process) -> Ledger:
        """The ledger, as soon as it opens."""
        while True:
            ledger = self.call(who, "open", who.open)
            if isinstance(ledger, Ledger):
                return ledger
            self.world.sleep(self.rng.uniform(5, 20))

    def pause(self, most: float) -> None:
        """Think."""
        self.world.sleep(self.rng.uniform(0, most))

    # -- before anything is charged ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the populations."""
        world, rng = self.world, self.rng
        with Ledger.open(str(world.path), clock=lambda: world.now) as ledger:
            strict = False
            for number in range(rng.randint(1, 3)):
                name = f"people-{number}"
                rules = Rules(
                    ceiling_epsilon=rng.choice((None, 6.0)),
                    two_persons=(strict := rng.random() < 0.4 or strict),
                    reservation_seconds=rng.choice((None, 45.0, 90.0)),
                )
                adjacency = rng.choice(("zero_out", "zero_out", "replace_one", "add_remove"))
                made = ledger.create_population(
                    name,
                    rng.choice((1.0, 2.0, 3.0)),
                    1e-6,
                    adjacency=adjacency,
                    simulated=rng.random() < 0.6 or adjacency == "add_remove",
                    leak=0.0,
                    rules=rules,
                    actor="officer",
                )
                for proposal in made.proposals:
                    ledger.approve_raise(proposal.id, actor="officer", person="a second person")
                self.names.append(name)

    # -- coordinators -----------------------------------------------------------------------------------------------

    def coordinate(self, who: Process) -> None:
        """One life of a coordinator: runs, one after another."""
        ledger = self.opened(who)
        while True:
            handle, job = self._begin(who, ledger)
            if handle is not None and job is not None:
                since = self.world.now
                try:
                    self._drive(who, ledger, handle, job)
                except (OldCopy, Disproved) as refused:
                    if not self.world.disturbed(since):
                        raise Violation(f"{who.id}: run {job.id}: {refused}") from refused
                except Refused as refused:
                    self.world.say(f"run {job.id}: {refused}", who)
                who.steers = None
                job.grouped = job.grouped and not handle._held
            if self.rng.random() < 0.1 or self.world.old:
                ledger.close()
                self.pause(2)
                ledger = self.opened(who)
            self.pause(2)

    def _begin(self, who: Process, ledger: Ledger) -> tuple[RunHandle | None, Job | None]:
        left = [job for job in self.jobs.values() if not self._ended(job.id)]
        if left and self.rng.random() < 0.85:
            job = self.rng.choice(left)
            return self._resume(who, ledger, job), job
        name, units = self.rng.choice(self.names), self.rng.choice(UNITS)
        rounds, key = self.rng.choice((3, 20, 80, 240)), self.rng.randbytes(32)
        individual = self.oracle.fold.populations[name]["accounting"] == "individual" and self.rng.random() < 0.7
        most = units * rounds
        demand = Demand(most, tuple(units * (i + 1) for i in range(rounds)), rounds, 0, 1) if individual else None
        job = Job(self.rng.randbytes(6).hex(), key, name, rounds, units, individual, self.rng.random() < 0.7)
        adjacency = self.oracle.fold.populations[name]["adjacency"]
        new = NewRun(
            json.dumps({**PLAN, "privacy": {"adjacency": adjacency}}),
            "0" * 64,
            name,
            rounds,
            PrivacyLoss(from_units(most), ()),
            "secure",
            hashlib.sha256(key).hexdigest(),
            False,
            id=job.id,
            demand=demand,
        )
        self.jobs[job.id] = job  # the key is durable before the run begins
        begin = self.oracle.count
        made = self.call(who, f"start {job.id} on {name}", lambda: ledger.start_run(new, holder=self._holder(who)))
        alike = self.oracle.fold.populations[name]["accounting"] != "individual"
        if isinstance(made, BudgetRefused) and alike and begin == self.oracle.count:
            need(not self.oracle.fits(name, from_units(most) ** 0.5), f"{who.id}: a run that fits was refused: {made}")
        if isinstance(made, (BadInput, BudgetRefused)):
            self.jobs.pop(job.id)
        return (made if isinstance(made, RunHandle) else None), job

    def _resume(self, who: Process, ledger: Ledger, job: Job) -> RunHandle | None:
        if job.id not in self.oracle.fold.runs:
            return None
        key = hashlib.sha256(job.key).hexdigest()
        if self.rng.random() < 0.05:
            wrong = "f" * 64
            made = self.call(
                who,
                f"resume {job.id} with another key",
                lambda: ledger.resume_run(job.id, key_commitment=wrong, holder=self._holder(who)),
            )
            need(isinstance(made, Refused), f"run {job.id} was resumed with another key")
        before = self.oracle.holders[job.id]
        since, begin, beat = self.world.now - before.beat, self.oracle.count, before.beat
        wait = self.rng.choice((0.0, 0.0, 40.0))
        made = self.call(
            who,
            f"resume {job.id}",
            lambda: ledger.resume_run(job.id, key_commitment=key, holder=self._holder(who), wait=wait),
        )
        if isinstance(made, RunHandle):
            return made
        stayed = self.oracle.holders[job.id] is before and before.beat == beat and begin == self.oracle.count
        silent = since > LEASE + SLACK
        if (
            stayed
            and (silent or before.free)
            and not self.world.disturbed(self.world.now - since)
            and "held by" in str(made)
        ):
            raise Violation(f"{who.id}: run {job.id} is free, and was refused: {made}")
        return None

    @staticmethod
    def _holder(who: Process) -> str:
        return f"{who.machine}/{who.id}"

    def _ended(self, run: str) -> bool:
        return run in self.oracle.fold.runs and self.oracle.fold.runs[run]["ended"]

    def _drive(self, who: Process, ledger: Ledger, handle: RunHandle, job: Job) -> None:
        who.steers = job.id
        self._settle(who, handle, job)
        if job.grouped:
            handle.begin_groups()
        while True:
            draw = self.rng.random()
            if draw < 0.02 * self.world.hazard:
                handle.hand_back("a walk")
                if self.rng.random() < 0.5:
                    fresh = np.array([self.rng.getrandbits(60)], dtype=np.uint64)
                    told = self.call(who, f"register a user of {job.id} after", partial(handle.register_users, fresh))
                    need(isinstance(told, Refused), f"{who.id} wrote to run {job.id}, which it had given back")
                return
            if draw < 0.06 * self.world.hazard:
                self.world.sleep(
                    self.rng.uniform(0.8, 2.0) * LEASE
                )  # its machine hangs, and it goes on as if nothing was
            handle.heartbeat()
            wish = handle.request()
            if wish == "pause":
                self.pause(8)
                continue
            if wish == "stop" or handle.next_round == job.rounds or draw > 0.995:
                handle.finish("stopped" if wish else "done")
                who.steers = None
                self.call(who, f"finish {job.id}", lambda: ledger.record_key_destroyed(job.id, actor=who.id))
                return
            if handle.grouped:
                self._group(who, ledger, handle, job)
            else:
                self._round(who, ledger, handle, job)

    def _settle(self, who: Process, handle: RunHandle, job: Job) -> None:
        """Roll the open round forward if its checkpoint is complete; else it is void."""
        opened, kept = handle.open_round_pending(), job.pending
        if opened is None:
            # What was committed and not shown yet may be shown now.
            if kept is not None and handle.checkpoint == kept["digest"]:
                self._release(who, job, kept)
            job.pending = None
            return
        if kept is not None and kept["at"] == [(opened.index, opened.attempt)]:
            handle.commit_round(opened, kept["outcomes"][0], kept["digest"])
            self._release(who, job, kept)
        else:
            handle.void_round(opened, "crash")
        job.pending = None

    def _select(self, handle: RunHandle, job: Job) -> tuple[list[Node], Any, Any]:
        nodes = self.rng.sample(self.nodes, self.rng.randint(1, 3))
        users = np.array(sorted(user for node in nodes for user in node.users), dtype=np.uint64)
        # Each population has users of its own: nobody has two budgets.
        indices = handle.register_users(users + np.uint64(self.names.index(job.population) << 61))
        room = handle.allowance(indices)
        if room is not None:
            users, indices = users[room >= job.units], indices[room >= job.units]
        return nodes, users, indices

    def _show(self, who: Process, ledger: Ledger, node: Node) -> None:
        """A node looks at the head that its instruction carries."""
        shown = ledger.signed_head()
        rows = {node.held.count: ledger.row_hash(node.held.count) or ""} if node.held is not None else {}
        try:
            node.held = follow(node.held, shown, rows)
        except HeadRefused as refused:
            if self.world.old:
                return
            raise Violation(f"{who.id}: a node refuses the head: {refused}") from refused

    def _sum(self, handle: RunHandle, job: Job, index: int, attempt: int, users: Any, indices: Any) -> dict[str, Any]:
        """The round's sum, its nonce (bound to the sum: docs/walks.md) and its outcome."""
        came = np.array([self.rng.random() < 0.8 for _ in range(users.size)], dtype=bool)
        participants, names = indices[came], users[came]
        total = hashlib.sha256(f"{job.id} {index} {attempt} {names.tolist()} {self.rng.random()}".encode()).hexdigest()
        # A machine that was rewound repeats its bits.
        bits = self.rng.randbytes(16) if self.rng.random() < 0.9 else bytes(16)
        nonce = hmac.new(job.key, b"nonce" + f"{job.id} {index}".encode() + bits + total.encode(), "sha256").digest()
        most = index + 1
        if self.oracle.fold.populations[job.population]["adjacency"] != "add_remove":
            most = max((len(pattern) + 1 for pattern in handle.patterns(participants)), default=0)
        spent = PrivacyLoss(max(handle.spent.mu_squared, from_units(job.units * most)), ())
        charges = np.full(participants.size, job.units, dtype=np.int64) if job.individual else None
        outcome = Outcome(participants, spent, {"loss": 0.5}, {}, int(came.sum()), nonce[:16], charges)
        return {"outcome": outcome, "total": total, "users": names.tolist(), "index": index}

    def _round(self, who: Process, ledger: Ledger, handle: RunHandle, job: Job) -> None:
        nodes, users, indices = self._select(handle, job)
        opened = handle.open_round(indices)
        if self.rng.random() < 0.15:
            self._show(who, ledger, self.rng.choice(nodes))
        self.pause(0.6)  # nodes train
        if self.rng.random() < 0.08:
            handle.void_round(opened, "too few reports", reports=1)
            return
        made = self._sum(handle, job, opened.index, opened.attempt, users, indices)
        digest = hashlib.sha256(made["total"].encode()).hexdigest()
        kept = {"at": [(opened.index, opened.attempt)], "outcomes": [made["outcome"]], "digest": digest, "made": [made]}
        if self.rng.random() < 0.15:
            self._ask_wrongly(who, handle, job, opened, made["outcome"])
        job.pending = kept
        self.world.step()
        try:
            handle.commit_round(opened, made["outcome"], digest)
        except OldCopy:
            raise
        except LedgerError:
            if self.rng.random() < 0.5:
                raise
            handle.commit_round(opened, made["outcome"], digest)  # the same again is safe
        self.world.step(0.1)
        self._release(who, job, kept)
        if self.rng.random() < 0.05:
            self._late(who, handle, job, opened)

    def _ask_wrongly(self, who: Process, handle: RunHandle, job: Job, opened: Any, right: Outcome) -> None:
        """What a coordinator with a fault asks: it is refused, and the round stays as it is."""
        planned = handle.planned.mu_squared
        used = sorted(self.oracle.nonces)
        wrong = {
            "more than was reserved": replace(right, spent=PrivacyLoss(planned * 1.01, ())),
            "less than was spent": replace(right, spent=PrivacyLoss(handle.spent.mu_squared * 0.99, ())),
            "without a nonce": replace(right, nonce=None),
        }
        if handle.spent.mu_squared == 0:
            del wrong["less than was spent"]
        if used:
            wrong["under a nonce of before"] = replace(right, nonce=bytes.fromhex(self.rng.choice(used)))
        for said, outcome in wrong.items():
            ask = partial(handle.commit_round, opened, outcome, "0" * 64)
            told = self.call(who, f"commit a round of {job.id} {said}", ask)
            need(isinstance(told, Refused), f"round {opened.index} of run {job.id} was committed {said}")
        told = self.call(who, f"open a round of {job.id} twice", partial(handle.open_round, []))
        need(isinstance(told, Refused), f"a second round of run {job.id} was opened")

    def _late(self, who: Process, handle: RunHandle, job: Job, opened: Any) -> None:
        """A late message makes a thread of the coordinator close a round again, with another sum."""
        made = self._sum(handle, job, opened.index, opened.attempt, np.zeros(0, np.uint64), np.zeros(0, np.int64))
        told = self.call(
            who,
            f"commit round {opened.index} of {job.id} again",
            lambda: handle.commit_round(opened, made["outcome"], "0" * 64),
        )
        need(isinstance(told, Refused), f"round {opened.index} of run {job.id} was committed twice")

    def _group(self, who: Process, ledger: Ledger, handle: RunHandle, job: Job) -> None:
        each = []
        most = self.rng.randint(1, self.rng.choice((4, 16, 64)))  # a group of the product lasts half a second
        for _ in range(min(most, job.rounds - handle.next_round)):
            _, users, indices = self._select(handle, job)
            opened = handle.open_round(indices)
            made = self._sum(handle, job, opened.index, opened.attempt, users, indices)
            handle.hold_round(opened, made["outcome"])
            each.append(made)
        self.pause(1.5)
        digest = hashlib.sha256("".join(made["total"] for made in each).encode()).hexdigest()
        kept = job.pending = {"at": [], "outcomes": [], "digest": digest, "made": each}
        self.world.step()
        handle.commit_group(digest)
        self._release(who, job, kept)

    def _release(self, who: Process, job: Job, kept: dict[str, Any]) -> None:
        for made in kept["made"]:
            nonce = made["outcome"].nonce.hex()
            self.oracle.release(job.id, made["index"], nonce, made["total"], made["users"], from_units(job.units))
        self.world.say(f"releases {len(kept['made'])} of {job.id}", who)
        job.pending = None

    # -- the officer ------------------------------------------------------------------------------------------------

    def administrate(self, who: Process) -> None:
        """One life of the administrator's commands."""
        ledger = self.opened(who)
        while True:
            self.pause(20)
            acts = [self._budget, self._budget, self._steer, self._expire, self._expire, self._token]
            self.rng.choice([*acts, *[self._window] * 6] if self.windows else acts)(who, ledger)
            if self.rng.random() < 0.2 or self.world.old:
                ledger.close()
                ledger = self.opened(who)

    def _budget(self, who: Process, ledger: Ledger) -> None:
        name, rng = self.rng.choice(self.names), self.rng
        population = self.oracle.fold.populations[name]
        epsilon, person = population["epsilon"], f"person-{rng.randint(1, 2)}"
        act = rng.choice(("raise", "raise", "tighten", "close", "reopen", "approve", "withdraw", "odometers"))
        if population["state"] == "closed" and rng.random() < 0.5:
            act = "reopen"
        if act == "raise":
            asked = round(epsilon + rng.choice((0.25, 1.0)), 6)
            rows = ("population.propose",) if population["two_persons"] else ("population.raise",)
            view = self.call(
                who,
                f"raise {name} to {asked}",
                lambda: ledger.raise_population(name, epsilon=asked, reason="more", actor=who.id, person=person),
                rows,
            )
            if not isinstance(view, Refused):
                need(population["two_persons"] or (name, asked) in self._budgets(who), f"{name} was not raised")
                need(asked <= (population["ceiling_epsilon"] or asked), f"{name} was raised above its ceiling")
        elif act == "tighten":
            asked = round(epsilon * rng.choice((0.5, 0.9)), 6)
            view = self.call(
                who,
                f"tighten {name} to {asked}",
                lambda: ledger.tighten_population(name, epsilon=asked, reason="less", actor=who.id),
                ("population.tighten",),
            )
        elif act == "close" and rng.random() < 0.3:
            self.call(
                who,
                f"close {name}",
                lambda: ledger.close_population(name, reason="x", actor=who.id),
                ("population.close",),
            )
        elif act == "reopen":
            self.call(
                who,
                f"reopen {name}",
                lambda: ledger.reopen_population(name, reason="x", actor=who.id),
                ("population.reopen",),
            )
        elif act == "odometers":
            if population["adjacency"] != "add_remove" and population["accounting"] != "individual":
                self.call(who, f"odometers of {name}", lambda: ledger.keep_odometers(name, {}, actor=who.id))
        else:
            waiting = sorted(key for key, each in self.oracle.fold.proposals.items() if each["state"] == "waiting")
            if waiting and act == "approve":
                key = rng.choice(waiting)
                proposed = self.oracle.fold.proposals[key]
                view = self.call(
                    who,
                    f"approve {key} as {person}",
                    lambda: ledger.approve_raise(key, actor=who.id, person=person),
                    ("population.raise",),
                )
                if not isinstance(view, Refused):
                    need(person != proposed["person"], f"{person} approved a raise of {person}")
            elif waiting:
                key = rng.choice(waiting)
                self.call(
                    who,
                    f"withdraw {key}",
                    lambda: ledger.withdraw_raise(key, reason="no", actor=who.id),
                    ("population.withdraw",),
                )

    def _window(self, who: Process, ledger: Ledger) -> None:
        """Set, change or take away a calendar window."""
        name, share = self.rng.choice(self.names), self.rng.choice((None, 0.1, 0.3, 0.6, 0.9))
        epsilon = None if share is None else round(share * self.oracle.fold.populations[name]["epsilon"], 6)
        every = None if share is None else self.rng.choice(("day", "day", "week", "month", "year"))
        view = self.call(
            who,
            f"let {epsilon} of {name} begin in a {every}",
            lambda: ledger.set_window(name, epsilon=epsilon, every=every, reason="x", actor=who.id),
            ("population.window",),
        )
        if not isinstance(view, Refused):
            told = (view.window_epsilon, view.window_every)
            need(told == (epsilon, every), f"{name} was given another window, {told}")

    def _budgets(self, who: Process) -> set[tuple[str, float]]:
        return {(row["population"], json.loads(row["body"])["epsilon"]) for row in who.rows}

    def _steer(self, who: Process, ledger: Ledger) -> None:
        runs = [job.id for job in self.jobs.values() if job.id in self.oracle.fold.runs]
        if not runs:
            return
        run = self.rng.choice(runs)
        if self.rng.random() < 0.2:
            told = self.call(who, f"abandon {run}", lambda: ledger.abandon(run, reason="gone", actor=self._holder(who)))
            if not isinstance(told, Refused):
                need(self._ended(run), f"{who.id}: run {run} was abandoned, and goes on")
            return
        wish = self.rng.choice(("pause", None, None, None, "stop"))
        self.call(who, f"ask {run} to {wish}", lambda: ledger.request(run, wish, actor=who.id), ("run.request",))

    def _expire(self, who: Process, ledger: Ledger) -> None:
        fold, now = self.oracle.fold, self.world.now
        due = []
        for run, holder in self.oracle.holders.items():
            seconds = fold.populations[fold.runs[run]["population"]]["reservation_seconds"]
            if seconds and not fold.runs[run]["ended"] and now - holder.beat > max(seconds, LEASE) + SLACK:
                due.append((run, holder, holder.beat))
        told = self.call(who, "let reservations expire", ledger.expire_reservations)
        if isinstance(told, tuple) and not self.world.disturbed(now):
            for run in told:
                need(self._ended(run), f"the reservation of run {run} expired, and it goes on")
            for run, holder, beat in due:
                # A renewal that was under way may come meanwhile, with the time at which it was begun.
                stayed = self.oracle.holders[run] is holder and holder.beat == beat
                need(self._ended(run) or not stayed, f"{who.id}: the reservation of run {run} is due, and stays")

    def _token(self, who: Process, ledger: Ledger) -> None:
        if self.tokens and self.rng.random() < 0.4:
            secret = self.rng.choice(sorted(self.tokens))
            name = self.tokens[secret][0]
            known = name in self.oracle.revoked
            self.call(
                who,
                f"revoke {name}",
                lambda: ledger.revoke_token(name, actor=who.id),
                None if known or self.tokens[secret][1] else ("token.revoke",),
            )
            return
        end = self.rng.choice((None, who.clock() + 30.0, who.clock() + 120.0))
        made = self.call(
            who,
            "make a token",
            lambda: ledger.create_token("t", ("read",), actor=who.id, expires_at=end),
            ("token.create",),
        )
        if not isinstance(made, Refused):
            self.tokens[made[0]] = (made[1].id, end, self.oracle.count, set())

    # -- other trainers, through the API ----------------------------------------------------------------------------

    def train(self, who: Process) -> None:
        """One life of an API process that other trainers charge through. Their requests come twice, and late."""
        ledger = self.opened(who)
        late: list[tuple[str, Callable[[], Any], bool]] = []
        """Requests that come later than their sender thinks, and whether they must be refused then."""
        number = 0
        while True:
            self.pause(25)
            if late and self.rng.random() < 0.5:
                said, ask, wrong = late.pop(0)
                told = self.call(who, f"{said} (late)", ask)
                need(isinstance(told, Refused) or not wrong, f"{who.id}: {said} came late, and was granted")
                continue
            number += 1
            name, mu = self.rng.choice(self.names), self.rng.choice(MUS)
            key, trainer = f"{who.id}-{number}", f"trainer-{who.name}"
            asked = partial(ledger.reserve_charge, name, key, what="a model", why="a test", actor=trainer)
            own = self.oracle.fold.populations.get(name, {}).get("adjacency")
            reserve = partial(asked, Foreign(mu=mu, adjacency=own))

            begin, since = self.oracle.count, self.world.now
            told = self.call(who, f"reserve {key} of mu {mu} on {name}", reserve, ("charge.reserve",))
            if isinstance(told, BudgetRefused) and begin == self.oracle.count:
                alike = self.oracle.fold.populations[name]["accounting"] != "individual"
                need(not alike or not self.oracle.fits(name, mu), f"{who.id}: a charge that fits was refused: {told}")
            if isinstance(told, Refused):
                continue
            if self.rng.random() < 0.3:
                again = self.call(who, f"reserve {key} again", reserve, ())
                fine = isinstance(again, LedgerError) or not isinstance(again, Refused)
                need(fine or self.world.disturbed(since), f"{key} asked twice: {again}")
            other = self.call(
                who, f"reserve {key} with another loss", partial(asked, Foreign(mu=2 * mu, adjacency=own))
            )
            need(isinstance(other, Refused), f"key {key} serves two losses")
            how = "release" if self.rng.random() < 0.3 else "commit"
            if how == "commit":
                self.oracle.train(name, mu)
            ways = {"commit": ledger.commit_charge, "release": ledger.release_charge}
            finish = partial(ways.pop(how), name, key, actor=trainer)
            told = self.call(who, f"{how} {key}", finish, (f"charge.{how}",))
            if not isinstance(told, Refused):
                against = partial(ways.popitem()[1], name, key, actor=trainer)
                each = [(f"reserve {key}", reserve, True), (f"{how} {key}", finish, False)]
                late += self.rng.sample([*each, (f"the other of {key}", against, True)], 2)
            if self.rng.random() < 0.1 or self.world.old:
                late.clear()
                ledger.close()
                ledger = self.opened(who)

    # -- readers ----------------------------------------------------------------------------------------------------

    def read(self, who: Process) -> None:
        """One life of a process that shows the ledger."""
        ledger, held = self.opened(who), 0
        while True:
            self.pause(12)
            if self.world.old or self.rng.random() < 0.05:
                ledger.close()
                ledger = self.opened(who)
                continue
            draw = self.rng.random()
            if draw < 0.6:
                self._read_populations(who, ledger)
            elif draw < 0.8 and self.tokens:
                self._check_token(who, ledger)
            else:
                self.call(who, "hold the head", ledger.hold_head)
                now = self.world.held(who.machine)
                need(now >= held or self.world.old, f"the machine of {who.id} holds row {now} after row {held}")
                held = now

    def _read_populations(self, who: Process, ledger: Ledger) -> None:
        names = self.rng.sample(self.names, self.rng.randint(1, len(self.names)))
        losses = {name: self.oracle.losses[name].now for name in names}
        begin = self.oracle.count
        try:
            with ledger.snapshot() as snapshot:
                row = snapshot.head().count
                views = []
                for name in names:
                    views.append(snapshot.population(name))
                    self.world.step(0.2)
                runs = snapshot.runs(limit=5).items if self.rng.random() < 0.3 else ()
        except LedgerError as refused:
            self.world.say(f"read: {refused}", who)
            return
        if self.world.old:
            return
        need(begin <= row <= self.oracle.count, f"{who.id} was shown row {row}, and {begin} were committed before")
        for view in views:
            self.oracle.read(view, row, losses[view.name])
        if row == self.oracle.count:
            for run in runs:
                self.oracle.read_run(run)
        self.world.say(f"reads {', '.join(names)} as of row {row}", who)

    def _check_token(self, who: Process, ledger: Ledger) -> None:
        secret = self.rng.choice(sorted(self.tokens))
        name, end, made, expired = self.tokens[secret]
        revoked = name in self.oracle.revoked
        now, latest = self.world.now, self.oracle.latest_since(made)
        back = self.rng.random() < 0.1
        if back:
            who.skew -= 1000.0  # this machine's clock is set back
        told = self.call(who, f"check token {name}", lambda: ledger.check_token(secret))
        if back:
            who.skew += 1000.0
        if isinstance(told, Refused) or self.world.old:
            return
        late = end is not None and (now - 2 * SLACK > end or expired)
        if told is not None:
            need(not revoked, f"token {name} is revoked, and {who.id} was told that it is valid")
            need(not (expired and who.id in expired), f"token {name} had expired, and is valid again")
            need(end is None or latest < end, f"token {name} expired before row {self.oracle.count}, and is valid")
            need(not (late and not back), f"token {name} expired {now - (end or 0):.0f} s ago, and is valid")
        elif end is None or now + 2 * SLACK < end:
            need(name in self.oracle.revoked, f"token {name} is valid, and {who.id} was told that it is not")
        elif not back:
            expired.add(who.id)
        need(
            self.call(who, "check a forged token", lambda: ledger.check_token(secret[:-1] + "g")) is None
            or self.world.old,
            "a forged token is valid",
        )
