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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.event import Price
from fieldfare.accounting.filter import leak_of_run, reserve
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
    if mark.exists() and mark.stat().st_size:
        what = f"the mark {str(mark)!r} of a file of charges"
        raise AlreadyThere(what, "is there already.", "the newest copy of that file")
    made = [f"CREATE TABLE IF NOT EXISTS {table}" for table in _TABLES]
    try:
        for each in (path, mark):
            each.parent.mkdir(parents=True, exist_ok=True)
            each.touch()
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


class Charges:
    """The file of one node. Of several processes and threads, one charges at a time."""

    def __init__(self, settings: NodeBudget) -> None:
        self._settings = settings

    def admit(self, terms: RunTerms, agreed: Agreed, names: Names) -> NDArray[np.bool_]:
        """Return which of the users `names` have enough left for the whole of a run, shape (n,).

        Where the run charges all users alike they are charged here, once, before they are named to the server.
        Raises `NodeBudgetRefused`.
        """
        cost = terms.cost()
        with self._writing() as connection:
            whole = Fraction(_meet(connection, terms, agreed, cost, self._settings).mu_squared)
            asked = _asked(connection, terms.run, names)
            if singly := _charges_singly(terms, cost):
                most = cost.most_units()
                more = [Fraction(max(0, most - each.units)) * Fraction(UNIT) for each in asked]
            else:
                more = [Fraction() if each.rounds else whole for each in asked]
            fit = self._fit(connection, agreed, names, more)
            if len(fit) and not fit.any():  # nothing is charged then, no leak either
                raise _exceeds(agreed)
            if not singly:
                new = names[fit & np.array([not each.rounds for each in asked], dtype=np.bool_)]
                _add(connection, agreed, new, [whole] * len(new))
                _note(connection, terms.run, new, _WHOLE, 0, [0] * len(new))
            return fit

    def charge(self, terms: RunTerms, agreed: Agreed, round: int, attempt: int, names: Names) -> None:
        """Charge the users `names` for taking part in `round`. It is on the disk when this returns.

        Raises `NodeBudgetRefused`, and then charges nobody: one has not enough left, or was asked before.
        """
        cost = terms.cost()
        what = f"round {round + 1} of run {terms.run}"
        if not all_differ(names):
            raise NodeBudgetRefused(what, reason="too-often")
        with self._writing() as connection:
            _meet(connection, terms, agreed, cost, self._settings)
            asked = _asked(connection, terms.run, names)
            singly = _charges_singly(terms, cost)
            if not singly and not all(each.rounds for each in asked):
                raise NodeBudgetRefused(what, reason="not-listed")
            # A later attempt at a user's last round: what the earlier one made of it was void.
            again = np.array([each.rounds[-1:] == (round,) and attempt > each.attempt for each in asked], np.bool_)
            new, other = names[~again], [each.rounds for each, void in zip(asked, again, strict=True) if not void]
            taken = [tuple(round for round in rounds if round != _WHOLE) for rounds in other]
            if any(pattern and pattern[-1] >= round for pattern in taken):
                raise NodeBudgetRefused(what, "", "the newest copy of ledger and coordinator", reason="asked-again")
            for pattern in taken:
                if not cost.participation.allows([*pattern, round], cost.mechanism.rounds):
                    apart, count = cost.participation.separation_and_count(cost.mechanism.rounds)
                    often = "too-often" if len(pattern) >= count else "out-of-turn"
                    soon = pattern and round - pattern[-1] < apart
                    raise NodeBudgetRefused(what, reason="too-soon" if soon else often)
            units = _increments(cost, round, taken) if singly else [0] * len(new)
            more = [Fraction(each) * Fraction(UNIT) for each in units]
            if not self._fit(connection, agreed, new, more).all():
                raise _exceeds(agreed)
            _add(connection, agreed, new, more)
            _note(connection, terms.run, new, round, attempt, units)
            values = [(attempt, terms.run, user, round) for user in _signed(names[again])]
            connection.executemany("UPDATE asked SET attempt = ? WHERE run = ? AND user = ? AND round = ?", values)

    def gauges(self) -> dict[str, tuple[int, float]]:
        """Return by population, and under "" for all: (users charged, epsilon of the one who has spent most)."""
        settings, shown = self._settings, {}
        with self._writing() as connection:
            users = [user for (user,) in connection.execute("SELECT DISTINCT user FROM users")]
            names = np.array(users, np.int64).view(np.uint64)
            every = {each.name: each.terms for each in settings.populations.values()} | {"": settings.together}
            for name, terms in every.items():
                spent, _ = _spent(connection, names, name)
                most = max(spent, default=Fraction())
                shown[name] = sum(each > 0 for each in spent), terms.gauge(Price(float(most), 0.0))
        return shown

    def _fit(
        self, connection: sqlite3.Connection, agreed: Agreed, names: Names, more: Sequence[Fraction]
    ) -> NDArray[np.bool_]:
        """Return which users may be charged `more`, in the population and in all of them together, shape (n,)."""
        fit = np.ones(len(names), np.bool_)
        for name, terms in ((agreed.name, agreed.terms), ("", self._settings.together)):
            spent, leak = _spent(connection, names, name)
            totals = [held + each for held, each in zip(spent, more, strict=True)]
            held = {total: terms.hold(Price(float(total), float(leak))) for total in set(totals)}
            fit &= np.array([held[total] for total in totals], dtype=np.bool_)
        return fit

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is on the disk when it ends. Raises `NodeBudgetRefused` where it fails."""
        path, mark = self._settings.charges, self._settings.mark
        what = f"the file of charges {str(path)!r} with its mark {str(mark)!r}"
        try:
            with transaction(path, mark) as connection:
                if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                    raise sqlite3.DatabaseError("it is no file of charges")
                if connection.execute("SELECT * FROM main.mark JOIN second.mark USING (mark)").fetchone() is None:
                    near = f"the newest copy of both; if this is it, remove the mark, and {_INIT} makes another"
                    raise NodeBudgetRefused(what, nearest=near, reason="older-charges")
                for statement in _NEXT:
                    connection.execute(statement)
                yield connection
        except sqlite3.Error as error:
            why = f"cannot be read and written ({error})."
            near = f"the newest copy of both; {_INIT} where users were never charged, or where the mark alone is lost"
            raise NodeBudgetRefused(what, why, near, reason="no-memory") from None


def _charges_singly(terms: RunTerms, cost: Cost) -> bool:
    """Return whether users are charged what each takes part in: else all alike, as in the ledger."""
    return terms.individual and cost.single and cost.plan.privacy.accounting == "individual"


def _exceeds(agreed: Agreed) -> NodeBudgetRefused:
    most = f"epsilon {agreed.terms.epsilon:.12g} at delta {decimal(agreed.terms.delta)}"
    why = f"a user would lose more than {most}, or than all populations together may cost."
    return NodeBudgetRefused(f"population {agreed.name!r}", why, reason="exceeds")


def _meet(connection: sqlite3.Connection, terms: RunTerms, agreed: Agreed, cost: Cost, settings: NodeBudget) -> Price:
    """Note the population and the run at their first instruction; later, require that they are the same.

    Returns what the whole run costs; its leak is charged when the run is first met.
    """
    identity = terms.ledger, terms.identity
    found = connection.execute("SELECT ledger, identity FROM populations WHERE name = ?", (agreed.name,)).fetchone()
    if (agreed.identity or terms.identity) != terms.identity or found not in (None, identity):
        why = f"it is not the one that users agreed to: the row that made it is {terms.identity[:16]}...."
        near = "the population that was there first"
        raise NodeBudgetRefused(f"population {agreed.name!r}", why, near, reason="another-population")
    if found is None:
        before = Price() if agreed.new_users else terms.spent
        spent = str(Fraction(before.mu_squared)), str(Fraction(before.leak))
        connection.execute("INSERT INTO populations VALUES (?, ?, ?, ?, ?)", (agreed.name, *identity, *spent))
    digest = hashlib.sha256(terms.lasting.encode()).hexdigest()
    run = connection.execute("SELECT population, terms, newest, price FROM runs WHERE run = ?", (terms.run,)).fetchone()
    if run is None:
        price = _price(connection, agreed, cost, settings)
        made = (terms.run, agreed.name, digest, terms.row, price.to_json())
        connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", made)
        (leak,) = connection.execute("SELECT leak FROM populations WHERE name = ?", (agreed.name,)).fetchone()
        values = (str(Fraction(leak) + Fraction(price.leak)), agreed.name)
        connection.execute("UPDATE populations SET leak = ? WHERE name = ?", values)
        return price
    if run[:2] != (agreed.name, digest):
        raise NodeBudgetRefused(f"run {terms.run}", reason="another-plan")
    if terms.row < run[2]:
        why = f"it ends in row {terms.row}, and this run showed row {run[2]}."
        raise NodeBudgetRefused(f"ledger {terms.ledger}", why, "the newest copy of the ledger", reason="older-log")
    connection.execute("UPDATE runs SET newest = ? WHERE run = ?", (terms.row, terms.run))
    return Price.from_json(run[3])


def _price(connection: sqlite3.Connection, agreed: Agreed, cost: Cost, settings: NodeBudget) -> Price:
    """Return what a whole run costs a user; its leak, where it may choose, is a share of what the node has left."""
    leak = cost.leak
    if leak is None:
        nobody = np.zeros(0, np.uint64)
        both = ((agreed.name, agreed.terms), ("", settings.together))
        left = min(terms.leak - float(_spent(connection, nobody, name)[1]) for name, terms in both)
        leak = leak_of_run(cost.loss, left)
    return reserve(cost.loss, leak)


def _increments(cost: Cost, round: int, patterns: Sequence[tuple[int, ...]]) -> list[int]:
    """Return what `round` costs users who took part in `patterns`, in units: the increment of the ledger's odometer."""
    setting = (cost.mechanism, cost.participation, cost.noise_multiplier, cost.plan.privacy.adjacency)
    # The whole charge is given, so that none is computed.
    realised = RealisedCharge.restored(*setting, patterns, round, whole=cost.loss)
    growth = realised.growth(round, np.arange(len(patterns), dtype=np.int64))
    return [int(each) for each in cost.increments(growth)]


def _signed(names: Names) -> list[int]:
    """Return pseudonyms as SQLite keeps whole numbers: 64 bits with a sign."""
    users: list[int] = np.ascontiguousarray(names, np.uint64).view(np.int64).tolist()
    return users


def _spent(connection: sqlite3.Connection, names: Names, population: str) -> tuple[list[Fraction], Fraction]:
    """Return (mu^2 of each user, leak) in `population`; "" means all populations together."""
    base, leak, totals = Fraction(), Fraction(), dict.fromkeys(_signed(names), Fraction())
    for name, spent, leaked in connection.execute("SELECT name, spent, leak FROM populations"):
        if population in ("", name):
            base, leak = base + Fraction(spent), leak + Fraction(leaked)
    for user in totals:
        for name, spent in connection.execute("SELECT population, spent FROM users WHERE user = ?", (user,)):
            if population in ("", name):
                totals[user] += Fraction(spent)
    return [base + totals[user] for user in _signed(names)], leak


def _asked(connection: sqlite3.Connection, run: str, names: Names) -> list[_Asked]:
    """Return what each of `names` was asked in `run`."""
    query = "SELECT round, attempt, units FROM asked WHERE run = ? AND user = ? ORDER BY round"
    found = (connection.execute(query, (run, user)).fetchall() for user in _signed(names))
    columns = (zip(*rows, strict=True) if rows else ((), (0,), ()) for rows in found)
    return [_Asked(tuple(rounds), attempts[-1], sum(units)) for rounds, attempts, units in columns]


def _add(connection: sqlite3.Connection, agreed: Agreed, names: Names, more: Sequence[Fraction]) -> None:
    """Charge each of `names` its part of `more`."""
    for user, each in zip(_signed(names), more, strict=True):
        key = user, agreed.name
        held = connection.execute("SELECT spent FROM users WHERE user = ? AND population = ?", key).fetchone()
        total = each + (Fraction(held[0]) if held else 0)
        connection.execute("INSERT OR REPLACE INTO users VALUES (?, ?, ?)", (*key, str(total)))


def _note(journal: sqlite3.Connection, run: str, names: Names, round: int, attempt: int, units: Sequence[int]) -> None:
    """Write down that each of `names` was asked."""
    rows = [(run, user, round, attempt, each) for user, each in zip(_signed(names), units, strict=True)]
    journal.executemany("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", rows)
