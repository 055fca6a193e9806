"""The state of a ledger: the facts that its events made, and what follows from them.

`State.take` is the only way in. `rules.fold` says which facts an event makes, so that the tables, a replay of the log
and what a process remembers are the same facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare_server.ledger.events.base import by_kind
from fieldfare_server.ledger.state import budget, odometers, rows
from fieldfare_server.ledger.state.admission import Position
from fieldfare_server.ledger.state.formats import SEEDED
from fieldfare_server.ledger.state.windows import Days, Window


class FoldedAttempt(NamedTuple):
    """One attempt at a round, and who took part in it if it was committed."""

    row: rows.RoundRow
    taken: rows.ParticipationRow | None = None


@dataclass
class FoldedRun:
    """One run."""

    row: rows.RunRow
    # By (round, attempt). A reader may drop those that are closed.
    attempts: dict[tuple[int, int], FoldedAttempt] = field(default_factory=dict)
    tries: int = 0  # how many attempts there were at the next round
    open: tuple[int, int] | None = None
    # Where its charges were recomputed after its end: `odometers.digest_of_rounds`.
    recomputed: str | None = None
    pledged: str = ""  # digest of what it was pledged of the users that there were at its start
    newcomers: list[rows.NewPledge] = field(default_factory=list)

    @property
    def planned(self) -> PrivacyLoss:
        """What it reserves."""
        return budget.loss(self.row.planned)

    @property
    def spent(self) -> PrivacyLoss:
        """Loss of its committed rounds together."""
        return budget.loss(self.row.spent)

    @property
    def charge(self) -> budget.RunCharge:
        """What it is charged by."""
        row = self.row
        whole = budget.stored_price(row.price)
        return budget.RunCharge(row.planned, row.spent, whole, row.next_round, row.active, row.individual)


@dataclass
class FoldedPopulation:
    """One population."""

    row: rows.PopulationRow
    chunks: list[rows.UsersRow] = field(default_factory=list)  # Who was registered. A reader may drop them.
    runs: list[FoldedRun] = field(default_factory=list)  # those under way, in the order of their starts
    # What all users are charged alike, spent and reserved.
    alike: budget.Total = field(default_factory=budget.Total)
    days: Days = field(default_factory=Days)  # what began on each day, for windows
    charges: dict[str, rows.ChargeRow] = field(default_factory=dict)  # charges of other trainers, by key
    # Digest of what ended runs have cost each user.
    settled: str = odometers.digest(np.zeros(0, dtype=np.int64))
    # The odometers, as the tables have them and the digests prove them; `proof.Proof` sets it at each check.
    standing: odometers.OdometerStanding | None = None

    @property
    def terms(self) -> budget.Terms:
        """Its budget."""
        return budget.Terms(self.row.epsilon, self.row.delta, self.row.leak)

    def base(self) -> Price:
        """What all users are charged alike, spent and reserved: exactly what `Reader.population` shows of it."""
        return self.alike.price()

    def largest(self, terms: budget.Terms) -> int:
        """What is committed of the user who has least left under `terms`, beyond what all are charged alike, in units.

        Raises LookupError unless the odometers were compared with the log (`standing`).
        """
        if not self.row.individual:
            return 0
        return self._compared().most_committed(odometers.limit_units(terms), odometers.units_of(self.base()))

    def committed(self) -> Price:
        """What is committed of the user who has least left: exactly what `Reader.population` shows."""
        return self.with_largest(self.largest(self.terms))

    def position(self, at: float) -> Position:
        """What it has for one more run at `at`, seconds since 1970. Raises LookupError as `largest`."""
        standing = self._compared() if self.row.individual else None
        return Position.of(self.row.name, self.terms, self.base(), standing, self.window(at))

    def _compared(self) -> odometers.OdometerStanding:
        if self.standing is None:
            raise LookupError("the odometers were not compared with the journal")
        return self.standing

    def window(self, at: float) -> Window | None:
        """Its calendar window at `at`, seconds since 1970; None where it has none."""
        return Window.of(self.row.window_epsilon, self.row.window_every, self.terms, self.days.since, at)

    def with_largest(self, largest: int) -> Price:
        """What is committed of a user of whom `largest` units are, beyond what all are charged alike."""
        return self.base() + odometers.price_of(largest)

    def charge(self, run: FoldedRun, sign: int) -> None:
        """Add what all users are charged for `run`, or (sign -1) take it out."""
        self.alike.add(budget.parts(run.charge).committed, sign)
        self.days.add(run.row.started_at, budget.begun(run.charge), sign)


class State:
    """What a log says after the events whose facts `take` was given, in order."""

    def __init__(self, thorough: bool = True) -> None:
        """thorough: rules check again what costs minutes or gigabytes in a ledger of millions of rounds: that
        each sampled run's price is what its plan costs, and that no two rounds have one nonce."""
        self.thorough = thorough
        self.populations: dict[str, FoldedPopulation] = {}
        self.runs: dict[str, FoldedRun] = {}
        self.tokens: dict[str, rows.TokenRow] = {}
        self.proposals: dict[str, rows.ProposalRow] = {}
        self.counts = {"rounds": 0, "participations": 0, "users": 0}  # how many rows these tables must have
        self.keys: set[str] = set()  # commitments to the noise keys of all runs without a fixed seed
        # (population, law) -> how many seeds it was given. A row without a law counts for its plan.
        self.attempts: dict[tuple[str, str], int] = {}
        # (population, digest of a plan, number, seed) of each.
        self.seeds: set[tuple[str, str, int, str]] = set()
        self.nonces: dict[str, str] = {}  # nonce -> the round that has it, in words; kept where thorough

    def take(self, facts: Iterable[rows.Fact]) -> None:
        """Take in what one event made. Facts of a kind are taken by the method whose argument says so."""
        for fact in facts:
            TAKE[type(fact)](self, fact)

    def forget_closed(self) -> None:
        """Drop the attempts at rounds that are closed: no rule asks for them, and a long log has millions."""
        for run in self.runs.values():
            if len(run.attempts) > (run.open is not None):
                run.attempts = {key: attempt for key, attempt in run.attempts.items() if key == run.open}

    def _population(self, row: rows.PopulationRow) -> None:
        known = self.populations.get(row.name)
        if known is None:
            self.populations[row.name] = FoldedPopulation(row)
        else:
            known.row = row

    def _proposal(self, row: rows.ProposalRow) -> None:
        self.proposals[row.id] = row

    def _token(self, row: rows.TokenRow) -> None:
        self.tokens[row.id] = row

    def _run(self, row: rows.RunRow) -> None:
        run, population = self.runs.get(row.id), self.populations[row.population]
        if run is None:
            run = self.runs[row.id] = FoldedRun(row)
            if row.noise_source != SEEDED:
                self.keys.add(row.key_commitment)
            population.runs.append(run)
            population.charge(run, 1)
            return
        # Known already: a row of the log that changes a run, at most one of which ends it.
        before = run.row
        # A run counts with its price while it is under way, and with what it spent after its end. The old
        # charge leaves whole and the new one joins: the sum is exact, so nothing of the old one stays behind.
        if before.ended_at != row.ended_at or before.accounting != row.accounting:
            population.charge(run, -1)
            run.row = row
            population.charge(run, 1)
            if before.active:
                population.runs = [each for each in population.runs if each is not run]
                run.newcomers.clear()
        run.row = row

    def _round(self, row: rows.RoundRow) -> None:
        run, key = self.runs[row.run], (row.index, row.attempt)
        run.attempts[key] = FoldedAttempt(row)
        if row.state == "open":
            run.open = key
            # A masked round is open twice: with its cohort, and with its set final (`closing`). It is one attempt.
            run.tries += not row.closing
            self.counts["rounds"] += not row.closing
            return
        run.open = None
        if row.state == "committed":
            run.tries = 0
            if row.nonce is not None and self.thorough:
                self.nonces[row.nonce] = f"round {row.index} of run {row.run}"

    def _participation(self, row: rows.ParticipationRow) -> None:
        attempts = self.runs[row.run].attempts
        # Who took part follows in the same event as the round that was committed: it is the newest attempt.
        newest = next(reversed(attempts))
        attempts[newest] = FoldedAttempt(attempts[newest].row, row)
        self.counts["participations"] += 1

    def _users(self, row: rows.UsersRow) -> None:
        self.populations[row.population].chunks.append(row)
        self.counts["users"] += 1

    def _charge(self, row: rows.ChargeRow) -> None:
        population = self.populations[row.population]
        # A charge counts from its reservation on: a release takes it out, a commit changes nothing.
        if row.state != "committed":
            price, sign = budget.stored_price(row.price), 1 if row.state == "reserved" else -1
            population.alike.add(price, sign)
            population.days.add(row.reserved_at, price, sign)
        population.charges[row.key] = row

    def _odometers(self, row: rows.Odometers) -> None:
        self.populations[row.population].settled = row.digest

    def _pledge(self, row: rows.Pledge) -> None:
        self.runs[row.run].pledged = row.digest

    def _new_pledge(self, row: rows.NewPledge) -> None:
        self.runs[row.run].newcomers.append(row)

    def _recharge(self, row: rows.Recharge) -> None:
        self.runs[row.run].recomputed = row.digest

    def _seed(self, row: rows.Seed) -> None:
        self.attempts[row.population, row.law] = row.attempt
        self.seeds.add((row.population, row.plan_digest, row.attempt, row.seed))


# How a state takes each kind of fact.
TAKE = by_kind(vars(State).values(), "self", "row")
