"""What this node has charged its users: one SQLite file, written durably before anybody trains.

| run | charged | when |
|---|---|---|
| each user by what that user takes part in | the growth of the user's odometer | with each instruction |
| all users alike: sampled, or by the worst case | the whole run's price | when users are first named to the run |

A sampled run is charged to users whom its secret draws leave out, too: who were charged only when drawn could
be in any number of runs until they are, and that costs more than one run. The price of a run that nobody can
finish stays charged: nothing that is written here is ever taken back.

**Asked again.** A later attempt at the last round of a user costs nothing more: in the ledger the earlier
attempt is void, which released nothing. An earlier round, the same attempt twice, or a log that ends before
the row that the run showed last, is refused: in one log no round is asked for twice.

**An older copy** is refused: each transaction leaves a new random mark here and in a second file.

Sums are exact (fractions), as those of the ledger. What a population had spent before the node first heard of
it is charged to each of its users here. Its leak D is everyone's.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.event import Price
from fieldfare.accounting.filter import Terms, leak_of_run, reserve
from fieldfare.accounting.individual import UNIT
from fieldfare.accounting.realised import RealisedCharge
from fieldfare.cost import Cost
from fieldfare.errors import AlreadyThere, Unreadable
from fieldfare.hashing import all_differ
from fieldfare.signed_terms import NodeBudgetRefused, RunTerms
from fieldfare.text import decimal
from fieldfare_client.budget.settings import Agreed, NodeBudget
from fieldfare_client.journal import transaction

Names = NDArray[np.uint64]

_UNIT = Fraction(UNIT)
# The round under which the price of a whole run is written.
_WHOLE = -1
_VERSION = 2  # 1 had no mark
# Fractions are text, "n/d". `units`: of 2^-44 mu^2, what a user was charged for a round by that user's odometer.
_TABLES = (
    "populations (name TEXT PRIMARY KEY, ledger TEXT, identity TEXT, spent TEXT, leak TEXT)",
    "runs (run TEXT PRIMARY KEY, population TEXT, terms TEXT, newest INTEGER, price TEXT)",
    "users (user INTEGER, population TEXT, spent TEXT, PRIMARY KEY (user, population)) WITHOUT ROWID",
    "asked (run TEXT, user INTEGER, round INTEGER, attempt INTEGER, units INTEGER, "
    "PRIMARY KEY (run, user, round)) WITHOUT ROWID",
    "mark (mark TEXT)",
    "second.mark (mark TEXT)",
)
_INIT = "`python -m fieldfare_client.budget init`"
# What every transaction does first: one new mark in both files.
_NEXT = (
    "DELETE FROM main.mark",
    "INSERT INTO main.mark VALUES (hex(randomblob(16)))",
    "DELETE FROM second.mark",
    "INSERT INTO second.mark SELECT mark FROM main.mark",
)


def create(path: Path, mark: Path) -> None:
    """Make an empty file of charges with its mark; where the file is there, the mark alone, which trusts the file.

    An empty mark is what a killed `init` leaves: it counts as none. Raises `BadInput` where there is a mark, or no
    file can be made.
    """
    made = [f"CREATE TABLE IF NOT EXISTS {table}" for table in _TABLES]
    try:
        if mark.exists() and mark.stat().st_size:
            what = f"the mark {str(mark)!r} of a file of charges"
            raise AlreadyThere(what, "is there already.", "the newest copy of that file")
        for each in (path, mark):
            each.parent.mkdir(parents=True, exist_ok=True)
            each.touch(0o600)  # it says who took part when
        with transaction(path, mark) as connection:
            for statement in (*made, *_NEXT, f"PRAGMA user_version = {_VERSION}"):
                connection.execute(statement)
    except (OSError, sqlite3.Error) as error:
        raise Unreadable(f"the file of charges {str(path)!r}", f"cannot be made ({error}).") from None


class _Asked(NamedTuple):
    """What one user of one run was asked and charged."""

    rounds: tuple[int, ...]  # increasing; `_WHOLE` first where the whole run is charged
    attempt: int  # at the last of them
    units: int


@contextmanager
def _writing(settings: NodeBudget) -> Iterator[sqlite3.Connection]:
    """Open a transaction that is on the disk when it ends. Raises `NodeBudgetRefused` where it fails."""
    what = f"the file of charges {str(settings.charges)!r} with its mark {str(settings.mark)!r}"
    try:
        with transaction(settings.charges, settings.mark) as journal:
            if journal.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                raise sqlite3.DatabaseError("it is no file of charges")
            if journal.execute("SELECT * FROM main.mark JOIN second.mark USING (mark)").fetchone() is None:
                near = f"the newest copy of both; if this is it, remove the mark, and {_INIT} makes another"
                raise NodeBudgetRefused(what, nearest=near, reason="older-charges")
            for statement in _NEXT:
                journal.execute(statement)
            yield journal
    except sqlite3.Error as error:
        why = f"cannot be read and written ({error})."
        near = f"the newest copy of both; {_INIT} where users were never charged, or where the mark alone is lost"
        raise NodeBudgetRefused(what, why, near, reason="no-memory") from None


def gauges(settings: NodeBudget) -> dict[str, tuple[int, float, float]]:
    """Return by population, and under "" for all: (users charged, epsilon of who has spent most, and the limit)."""
    shown = {}
    with _writing(settings) as journal:
        users = [user for (user,) in journal.execute("SELECT DISTINCT user FROM users")]
        every = {name: each.terms for name, each in settings.populations.items()} | {"": settings.together}
        for name, terms in every.items():
            spent, _ = _spent(journal, users, name)
            most = Price(float(max(spent, default=0)), 0.0)
            shown[name] = sum(each > 0 for each in spent), terms.gauge(most), terms.epsilon
    return shown


@dataclass(frozen=True)
class Charges:
    """The file of one node, for a run of one population. Of several processes and threads, one charges at a time."""

    settings: NodeBudget
    agreed: Agreed
    terms: RunTerms
    cost: Cost  # that of `terms`

    def admit(self, names: Names) -> Names:
        """Return those of the users `names` who have enough left for the whole of the run, shape (k,).

        Where the run charges all users alike they are charged here, once, before they are named to the server.
        Raises `NodeBudgetRefused`.
        """
        users = _numbers(names)
        with _writing(self.settings) as journal:
            whole, asked = self._meet(journal), self._asked(journal, users)
            if self._singly:
                more = [max(0, self.cost.most_units() - each.units) * _UNIT for each in asked]
            else:
                more = [Fraction() if each.rounds else whole for each in asked]
            fit = self._fit(journal, users, more, any)  # where none does nothing is charged, no leak either
            for user, each, fits in zip(users, asked, fit, strict=True):
                if fits and not self._singly and not each.rounds:
                    self._add(journal, user, whole, _WHOLE, 0, 0)
            return names[np.array(fit, np.bool_)]

    def charge(self, round: int, attempt: int, names: Names) -> None:
        """Charge the users `names` for taking part in `round`. It is on the disk when this returns.

        Raises `NodeBudgetRefused`, and then charges nobody: one has not enough left, or was asked before.
        """
        cost, users, what = self.cost, _numbers(names), f"round {round + 1} of run {self.terms.run}"
        if not all_differ(names):
            raise NodeBudgetRefused(what, reason="too-often")
        if round <= _WHOLE:  # which stands for a charge, and for no round
            raise NodeBudgetRefused(what, reason="out-of-turn")
        with _writing(self.settings) as journal:
            self._meet(journal)
            asked = dict(zip(users, self._asked(journal, users), strict=True))
            if not self._singly and not all(each.rounds for each in asked.values()):
                raise NodeBudgetRefused(what, reason="not-listed")
            # A later attempt at a user's last round: what the earlier one made of it was void.
            again = {user for user, each in asked.items() if each.rounds[-1:] == (round,) and attempt > each.attempt}
            new = [user for user in users if user not in again]
            taken = [tuple(each for each in asked[user].rounds if each != _WHOLE) for user in new]
            if any(pattern and pattern[-1] >= round for pattern in taken):
                raise NodeBudgetRefused(what, "", "the newest copy of ledger and coordinator", reason="asked-again")
            for pattern in taken:
                if not cost.participation.allows([*pattern, round], cost.mechanism.rounds):
                    apart, count = cost.participation.separation_and_count(cost.mechanism.rounds)
                    often = "too-often" if len(pattern) >= count else "out-of-turn"
                    soon = pattern and round - pattern[-1] < apart
                    raise NodeBudgetRefused(what, reason="too-soon" if soon else often)
            units = _increments(cost, round, taken) if self._singly else [0] * len(new)
            self._fit(journal, new, [each * _UNIT for each in units], all)
            for user, each in zip(new, units, strict=True):
                self._add(journal, user, each * _UNIT, round, attempt, each)
            values = [(attempt, self.terms.run, user, round) for user in again]
            journal.executemany("UPDATE asked SET attempt = ? WHERE run = ? AND user = ? AND round = ?", values)

    @property
    def _singly(self) -> bool:
        """Whether each user is charged for the rounds of that user; else all are charged alike, as in the ledger."""
        return self.terms.individual and self.cost.single and self.cost.plan.privacy.accounting == "individual"

    @property
    def _budgets(self) -> tuple[tuple[str, Terms], ...]:
        """What must hold a charge: the population's budget, and that of all together."""
        return ((self.terms.population, self.agreed.terms), ("", self.settings.together))

    def _fit(
        self, journal: sqlite3.Connection, users: list[int], more: list[Fraction], enough: Callable[[list[bool]], bool]
    ) -> list[bool]:
        """Return which users may be charged `more`, in this population and in all populations together.

        enough: `all` or `any`. Raises `NodeBudgetRefused` where there are users, and not enough of them may be charged.
        """
        fit = [True] * len(users)
        for name, terms in self._budgets:
            spent, leak = _spent(journal, users, name)
            totals = [Price(float(held + each), float(leak)) for held, each in zip(spent, more, strict=True)]
            fit = [fits and terms.hold(total) for fits, total in zip(fit, totals, strict=True)]
        if users and not enough(fit):
            most = f"epsilon {self.agreed.epsilon:.12g} at delta {decimal(self.agreed.delta)}"
            why = f"a user would lose more than {most}, or than all populations together may cost."
            raise NodeBudgetRefused(f"population {self.terms.population!r}", why, reason="exceeds")
        return fit

    def _meet(self, journal: sqlite3.Connection) -> Fraction:
        """Note the population and the run at their first instruction; later, require that they are the same.

        Returns mu^2 of the whole run; its leak is charged when the run is first met.
        """
        agreed, terms, name = self.agreed, self.terms, self.terms.population
        identity = terms.ledger, terms.identity
        found = journal.execute("SELECT ledger, identity FROM populations WHERE name = ?", (name,)).fetchone()
        if (agreed.identity or terms.identity) != terms.identity or found not in (None, identity):
            why = f"it is not the one that users agreed to: the row that made it is {terms.identity[:16]}...."
            near = "the population that was there first"
            raise NodeBudgetRefused(f"population {name!r}", why, near, reason="another-population")
        if found is None:
            before = Price() if agreed.new_users else terms.spent
            spent = str(Fraction(before.mu_squared)), str(Fraction(before.leak))
            journal.execute("INSERT INTO populations VALUES (?, ?, ?, ?, ?)", (name, *identity, *spent))
        digest = hashlib.sha256(terms.lasting.encode()).hexdigest()
        query = "SELECT population, terms, newest, price FROM runs WHERE run = ?"
        run = journal.execute(query, (terms.run,)).fetchone()
        if run is None:
            loss, leak = self.cost.loss, self.cost.leak
            if leak is None:  # where it may choose, a share of what the node has left
                left = (each.leak - float(_spent(journal, [], name)[1]) for name, each in self._budgets)
                leak = leak_of_run(loss, min(left))
            price = reserve(loss, leak)
            run = (name, digest, terms.row, price.to_json())
            journal.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", (terms.run, *run))
            (leaked,) = journal.execute("SELECT leak FROM populations WHERE name = ?", (name,)).fetchone()
            values = (str(Fraction(leaked) + Fraction(price.leak)), name)
            journal.execute("UPDATE populations SET leak = ? WHERE name = ?", values)
        if run[:2] != (name, digest):
            raise NodeBudgetRefused(f"run {terms.run}", reason="another-plan")
        if terms.row < run[2]:
            why = f"it ends in row {terms.row}, and this run showed row {run[2]}."
            raise NodeBudgetRefused(f"ledger {terms.ledger}", why, "the newest copy of the ledger", reason="older-log")
        journal.execute("UPDATE runs SET newest = ? WHERE run = ?", (terms.row, terms.run))
        return Fraction(Price.from_json(run[3]).mu_squared)

    def _asked(self, journal: sqlite3.Connection, users: Sequence[int]) -> list[_Asked]:
        """Return what each of `users` was asked in the run."""
        query = "SELECT round, attempt, units FROM asked WHERE run = ? AND user = ? ORDER BY round"
        found = (journal.execute(query, (self.terms.run, user)).fetchall() for user in users)
        columns = (zip(*rows, strict=True) if rows else ((), (0,), ()) for rows in found)
        return [_Asked(tuple(rounds), attempts[-1], sum(units)) for rounds, attempts, units in columns]

    def _add(
        self, journal: sqlite3.Connection, user: int, more: Fraction, round: int, attempt: int, units: int
    ) -> None:
        """Charge a user `more`, and write down what it was asked."""
        key = user, self.terms.population
        held = journal.execute("SELECT spent FROM users WHERE user = ? AND population = ?", key).fetchone()
        total = more + (Fraction(held[0]) if held else 0)
        journal.execute("INSERT OR REPLACE INTO users VALUES (?, ?, ?)", (*key, str(total)))
        journal.execute("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", (self.terms.run, user, round, attempt, units))


def _increments(cost: Cost, round: int, patterns: Sequence[tuple[int, ...]]) -> list[int]:
    """Return what `round` costs users who took part in `patterns`, in units: the increment of the ledger's odometer."""
    setting = (cost.mechanism, cost.participation, cost.noise_multiplier, cost.plan.privacy.adjacency)
    # The whole charge is given, so that none is computed.
    realised = RealisedCharge.restored(*setting, patterns, round, whole=cost.loss)
    growth = realised.growth(round, np.arange(len(patterns), dtype=np.int64))
    return [int(each) for each in cost.increments(growth)]


def _numbers(names: Names) -> list[int]:
    """Return pseudonyms as SQLite keeps whole numbers: 64 bits with a sign."""
    users: list[int] = np.ascontiguousarray(names, np.uint64).view(np.int64).tolist()
    return users


def _spent(journal: sqlite3.Connection, users: Sequence[int], population: str) -> tuple[list[Fraction], Fraction]:
    """Return (mu^2 of each user, leak) in `population`; "" means all populations together."""
    base, leak, totals = Fraction(), Fraction(), dict.fromkeys(users, Fraction())
    for name, spent, leaked in journal.execute("SELECT name, spent, leak FROM populations"):
        if population in ("", name):
            base, leak = base + Fraction(spent), leak + Fraction(leaked)
    for user in totals:
        for name, spent in journal.execute("SELECT population, spent FROM users WHERE user = ?", (user,)):
            if population in ("", name):
                totals[user] += Fraction(spent)
    return [base + totals[user] for user in users], leak
