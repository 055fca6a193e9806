"""Tables `odometers` and `pledges`, and the charges that participations hold: what `state.odometers` computes with.

Numbers are little-endian 64-bit integers, deflated. A commit stores what its round cost each participant next to the
participation (`participations.charges`), in the same transaction. When the run ends, its
rounds' charges are added to `odometers`, and what it had pledged beyond them is free again.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, Table, bindparam, insert, select

from fieldfare.accounting.individual import Units
from fieldfare.errors import Differs, LedgerCorrupt, NotNow
from fieldfare_server.ledger.sql import blobs, models
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.state import FoldedPopulation
from fieldfare_server.ledger.states import ACTIVE

_r = models.runs.c
_RUN = select(_r.population_id, _r.seq).where(_r.id == bindparam("id"))
_j = models.journal.c
_WHOLE = (
    select(_j.id)
    .join_from(models.journal, models.runs, _r.id == _j.run)
    .where(_r.seq == bindparam("run"), _j.action == "run.finish", _j.body.contains('"whole":true', autoescape=True))
)
# The runs of a population that are under way and charged to odometers, in the order of their starts.
_UNDER_WAY = (
    select(_r.seq, _r.id, _r.most)
    .where(_r.population_id == bindparam("number"), _r.accounting == odometers.INDIVIDUAL, _r.state.in_(ACTIVE))
    .order_by(_r.seq)
)
_STORED = {
    table.name: select(first, count, blob.label("blob")).where(owner == bindparam("owner")).order_by(first)
    for table in (models.odometers, models.pledges)
    for owner, first, count, blob in [table.c]
}
# Users in one row of `odometers` or `pledges`.
_BLOCK = 1 << 16
_VERSION = b"\x01"


def encode(values: Units) -> bytes:
    """The blob of numbers in [0, 2^63): a version byte, then zlib of little-endian 64-bit integers."""
    return _VERSION + zlib.compress(values.astype("<u8").tobytes(), 1)


def decode(blob: bytes, count: int) -> Units:
    """The `count` numbers of `blob`. Raises ValueError if it holds others. Never inflates beyond 8 bytes a number."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(blob[1:], 8 * count + 1)
    except zlib.error as error:
        raise ValueError(f"the charges do not inflate: {error}") from None
    if blob[:1] != _VERSION or len(data) != 8 * count or not inflater.eof or inflater.unused_data:
        raise ValueError(f"not the charges of {count} users")
    values = np.frombuffer(data, dtype="<u8")
    if values.size and int(values.max()) >= 2**63:
        raise ValueError("a charge is out of range")
    return values.astype(np.int64)


def fingerprint(tables: Iterable[Iterable[Mapping[str, Any]]]) -> str:
    """SHA-256 of rows (first, count, blob) of several tables, as they are stored, hex."""
    hasher = hashlib.sha256()
    for number, rows in enumerate(tables):
        for row in rows:
            parts = (number, row["first"], row["count"], len(row["blob"]))
            hasher.update(repr(parts).encode())
            hasher.update(row["blob"] if isinstance(row["blob"], bytes) else str(row["blob"]).encode())
    return hasher.hexdigest()


def is_individual(population: Row[object]) -> bool:
    """Whether the ledger keeps odometers of this population."""
    return bool(population.accounting == odometers.INDIVIDUAL)


def settled(connection: Connection, population_id: int, users: int) -> Units:
    """Table `odometers`, shape (users,); 0 where there is no row."""
    return assemble(stored(connection, models.odometers, population_id), users, "odometers")


def caps(connection: Connection, run_seq: int, users: int) -> Units:
    """Table `pledges` of a run, shape (users,); 0 where there is no row."""
    return assemble(stored(connection, models.pledges, run_seq), users, "pledges")


def stored(connection: Connection, table: Table, owner: int) -> list[dict[str, object]]:
    """Rows (first, count, blob) of a population in table `odometers`, or of a run in `pledges`, by `first`."""
    return [dict(row) for row in connection.execute(_STORED[table.name], {"owner": owner}).mappings()]


def taken(
    connection: Connection, run_seq: int, users: int, since: int = 0, proven: Mapping[int, str] | None = None
) -> Units:
    """What the committed rounds of a run, from round `since` on, have cost each user, shape (users,).

    proven: round -> the digest of its charges, by the journal; None: not compared.

    Raises `LedgerError` on a blob that is corrupt, or that is not what the journal says.
    """
    found = {}
    total = np.zeros(users, dtype=np.int64)
    c = models.participations.c
    query = select(c.index, c.count, c.users, c.charges).where(c.run_seq == run_seq, c.index >= since).order_by(c.index)
    for index, count, blob, charged in connection.execute(query):
        try:
            units = decode(charged or b"", count)
            total[blobs.decode(blob, count)] += units
        except (ValueError, IndexError) as error:
            raise LedgerCorrupt(f"round {index}", f"what it cost its users is corrupt: {error}.") from None
        if proven is not None:
            found[index] = odometers.digest(units)
    if proven is not None and found != proven:
        raise LedgerCorrupt(
            f"what a run of {len(proven)} rounds has cost its users",
            "it is not what the journal proves, so it is not settled.",
            "`fieldfare verify` names the row that was changed",
        )
    return total


def assemble(rows: Iterable[Mapping[str, Any]], users: int, table: str) -> Units:
    """The numbers of rows (first, count, blob), which come by `first`, shape (users,); 0 where there is no row.

    Raises `LedgerError` on a blob that is corrupt, and on rows that share users or name others than there are.
    """
    rows = list(rows)
    if not rows:
        return odometers.nothing(users)
    values = np.zeros(users, dtype=np.int64)
    end = 0
    for row in rows:
        first, count = row["first"], row["count"]
        try:
            if not end <= first <= first + count <= users:
                raise ValueError("users that another row has, or that there are not")
            values[first : first + count] = decode(row["blob"], count)
            end = first + count
        except (TypeError, ValueError) as error:
            raise LedgerCorrupt(f"table {table}", f"row {first} is corrupt: {error}.") from None
    return values


def standing(connection: Connection, population: Row[object]) -> odometers.OdometerStanding:
    """The odometers of a population, read whole."""
    users = population.users
    before = settled(connection, population.id, users)
    spent, held = before.copy(), np.zeros(users, dtype=np.int64)
    runs = connection.execute(_UNDER_WAY, {"number": population.id}).all()
    for run in runs:
        spent += taken(connection, run.seq, users)
        held += caps(connection, run.seq, users)
    return odometers.OdometerStanding(before, spent, held, tuple((run.id, run.most) for run in runs))


def write(connection: Connection, table: Table, owner: int, values: Units, first: int = 0) -> None:
    """Insert the numbers of users `first`, `first` + 1, ... of a run into `pledges`, of a population into `odometers`.

    Where ended runs have cost none of a row's users anything, there is no such row.
    """
    for at in range(0, values.size, _BLOCK):
        part = values[at : at + _BLOCK]
        if part.any() or table is models.pledges:
            row = zip(table.c.keys(), (owner, first + at, part.size, encode(part)), strict=True)
            connection.execute(insert(table).values(dict(row)))


def settle(connection: Connection, population: FoldedPopulation, run_id: str, *, whole: bool = False) -> Units:
    """What ended runs have cost each user once `run_id` has ended, shape (users,).

    whole: the run costs each user all that it was pledged, whatever its rounds took.

    Raises `LedgerError` unless all of it is what the log proves: the sum is logged as what users have spent.
    """
    number, seq = connection.execute(_RUN, {"id": run_id}).one()
    users = population.row.users
    # What is stored is compared before it is added to: a table that was changed would become history.
    before = settled(connection, number, users)
    if odometers.digest(before) != _settled_digest(connection, population.row.name):
        raise LedgerCorrupt(
            f"the odometers of population {population.row.name!r}",
            "they are not what the journal proves, so no run is settled.",
            "`fieldfare verify` names what was changed",
        )
    if whole:
        return before + caps(connection, seq, users)
    c = models.journal.c
    commits = select(c.round, c.body).where(c.run == run_id, c.action == "round.commit")
    proven = {row.round: json.loads(row.body)["charges"] for row in connection.execute(commits)}
    return before + taken(connection, seq, users, proven=proven)


def is_whole(connection: Connection, run: int) -> bool:
    """Return whether `mend` ended the run, charged all it reserved: its rounds may not be all that it released."""
    return connection.execute(_WHOLE, {"run": run}).first() is not None


def recompute(connection: Connection, population: Row[object], charges: Mapping[str, Sequence[Units]]) -> Units:
    """What ended runs have cost each user of a population once `charges` are theirs, shape (users,).

    charges: by run, what each committed round cost its participants. Raises `BadInput` for charges of other rounds, and
        for a run of which more may have been released.
    """
    spent = settled(connection, population.id, population.users).copy()
    c = models.participations.c
    for run_id, rounds in sorted(charges.items()):
        run = connection.execute(select(_r.seq).where(_r.id == run_id)).scalar_one()
        if is_whole(connection, run):
            raise NotNow(f"run {run_id}", "it was ended charged whole: more may have been released than its rounds.")
        query = select(c.count.label("size"), c.users).where(c.run_seq == run)
        taken = connection.execute(query.order_by(c.index)).all()
        if [part.size for part in taken] != [units.size for units in rounds]:
            raise Differs(f"run {run_id}", "the charges are not those of its rounds.")
        for part, units in zip(taken, rounds, strict=True):
            spent[blobs.decode(part.users, part.size)] += units
    return spent


def _settled_digest(connection: Connection, population: str) -> str:
    """Digest of the odometers of now, by the journal."""
    c = models.journal.c
    named = (c.population == population, c.action.in_(("run.finish", "population.odometers")))
    for body in connection.execute(select(c.body).where(*named).order_by(c.id.desc())).scalars():
        if "odometers" in (about := json.loads(body)):
            return str(about["odometers"])
    return odometers.digest(np.zeros(0, dtype=np.int64))


@dataclass(eq=False)
class _Followed:
    shape: tuple[object, ...]  # what the arrays depend on but for the rounds of runs under way
    standing: odometers.OdometerStanding
    # Run -> how many of its committed rounds are counted.
    rounds: dict[int, int] = field(default_factory=dict)
    left: tuple[int, int, odometers.Left] | None = None  # (limit, base, what is left under them): a round moves neither


class Watch:
    """Standings of populations that are asked for again and again: each committed round is read once. Thread-safe."""

    def __init__(self, most: int = 8) -> None:
        """most: populations that are remembered; an older one is read again."""
        self._lock, self._most = threading.Lock(), most
        self._watched: OrderedDict[int, _Followed] = OrderedDict()

    def standing(
        self, connection: Connection, population: Row[object], runs: Sequence[Row[Any]], history: object
    ) -> odometers.OdometerStanding:
        """As `standing` of the same snapshot. The arrays are shared: read them before the next call, change nothing.

        Args:
            runs: rows of those under way that are charged to odometers, in the order of their starts.
            history: which journal this is, and how many runs it has charged to these odometers.
        """
        with self._lock:
            known = self._follow(connection, population, runs, history)
            return replace(known.standing, spent=known.standing.spent.copy())

    def figures(
        self, connection: Connection, population: Row[object], runs: Sequence[Row[Any]], history: object, base: int
    ) -> tuple[int, odometers.Left]:
        """(what the user who has spent most has spent, what is left); base as in equation (1), the rest as `standing`.

        What is left is worked out when a run starts or ends, users come or the budget changes, and not each round.
        """
        limit = odometers.limit_units(budget.Terms(population.epsilon, population.delta, population.leak))
        with self._lock:
            known = self._follow(connection, population, runs, history)
            if known.left is None or known.left[:2] != (limit, base):
                known.left = limit, base, known.standing.left(limit, base)
            return known.standing.most_spent, known.left[2]

    def _follow(
        self, connection: Connection, population: Row[Any], runs: Sequence[Row[Any]], history: object
    ) -> _Followed:
        shape = (population.users, history, tuple(run.seq for run in runs))
        known = self._watched.get(population.id)
        same = known is not None and known.shape == shape
        # A run that started or ended moves caps or settles: then all is read again, else the new rounds alone.
        if known is None or not same or any(known.rounds[run.seq] > run.next_round for run in runs):
            # An older snapshot than the last is rare, and is read whole as well.
            known = _Followed(shape, standing(connection, population))
        else:
            for run in runs:
                if run.next_round > (since := known.rounds[run.seq]):
                    known.standing.spent += taken(connection, run.seq, population.users, since)
        known.rounds = {run.seq: run.next_round for run in runs}
        self._watched[population.id] = known
        self._watched.move_to_end(population.id)
        while len(self._watched) > self._most:
            self._watched.popitem(last=False)
        return known
