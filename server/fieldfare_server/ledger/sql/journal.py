"""The one way to write to the ledger: a transaction with a journal row, or with none for a mere heartbeat."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, insert, select, text, update

from fieldfare.errors import LedgerCorrupt, LedgerError, OldCopy
from fieldfare_server import faults
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.base import Event, Record
from fieldfare_server.ledger.rules.fold import decide
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.sql.projection import Changes, Contents
from fieldfare_server.ledger.sql.proof import Late, Proof
from fieldfare_server.ledger.sql.segments import Segments
from fieldfare_server.ledger.sql.tables import Tables
from fieldfare_server.ledger.state.state import State

T = TypeVar("T")
Clock = Callable[[], float]


class Entry:
    """What one transaction appends to the log, and what that makes of the tables."""

    def __init__(
        self,
        connection: Connection,
        event: str,
        now: float,
        end: chain.Head,
        head_file: chain.HeadFile | None = None,
        proven: State | None = None,
        *,
        narrow: bool = False,
    ) -> None:
        """Begin with no row.

        Args:
            event: what the first row is known by, should the answer to its commit get lost.
            end: where the journal ends. The transaction has locked it, so that only this entry moves it.
            head_file: signs the new head, for the ledger's readers; None: they see the last one that was signed.
            proven: the state that the log proves, which is shared and does not change here; None: what the tables show
                is enough, because nothing is charged.
            narrow: the database's own function appends the rows (`roles`).
        """
        self._narrow = narrow
        self._connection, self._event, self.now, self._file = connection, event, now, head_file
        self._end, self._rows = end, list[dict[str, Any]]()
        self._tables = Tables(connection) if proven is None else None
        self.state: State = self._tables or proven or State()
        self.contents = Contents()  # what the events of this transaction name by hash
        self._changes = Changes()
        self.head: chain.Head | None = None

    def append(
        self,
        event: Event,
        actor: str,
        *,
        population: str | None = None,
        run: str | None = None,
        round: int | None = None,
        at: float | None = None,
        blind: bool = False,
    ) -> None:
        """Append an event, if the rules allow it.

        Args:
            at: when it happened; None: at the time of the transaction.
            blind: add random bits. Readers see the row's hash but not the counts of users in its body, and could
                otherwise try counts on it.

        Raises:
            Refused: the rules do not allow it.
            ValueError: a member of the event is not JSON (NaN, infinity).
        """
        actor, at = clean(actor, 200), self.now if at is None else at
        record = Record(self._end.count + 1, at, actor, event, population, run, round)
        if self._tables is None and self._rows:
            raise RuntimeError("a state that is shared was decided by, and cannot follow")
        facts = decide(self.state, record)
        self._changes.add(self.state, facts)
        if self._tables is not None:
            self._tables.take(facts)
        body = event.body()
        if blind:
            body["blind"] = secrets.token_hex(16)
        linked: dict[str, Any] = {
            "id": record.number,
            "at": at,
            "actor": actor,
            "action": event.action,
            "population": population,
            "run": run,
            "round": round,
            "event": secrets.token_hex(16) if self.head is not None or self._rows else self._event,
            "body": chain.canonical(body),
            "previous": self._end.hash,
        }
        linked["hash"] = chain.row_hash(linked)
        self._rows.append(linked)
        self._end = chain.Head(self._end.ledger, linked["id"], linked["hash"])

    def move(self, end: chain.Head) -> None:
        """Go on from `end`: the transaction has put another journal in place."""
        self._end = end

    def flush(self) -> None:
        """Write the rows of the log and of the tables. Row and head move together: the database lets neither alone."""
        self._changes.write(self._connection, self.contents, {} if self._tables is None else self._tables.numbers)
        for row in self._rows:
            end = chain.Head(self._end.ledger, row["id"], row["hash"])
            shown = self._file if row is self._rows[-1] else None
            self._put(row, None if shown is None else str(shown.sign(end)))
            self.head = end
        self._rows.clear()

    def _put(self, linked: Mapping[str, object], signed: str | None) -> None:
        if self._narrow:
            # The database computes number and hash itself. That they are these is all that this side may say.
            made = self._connection.execute(_APPEND, {**linked, "signed": signed}).one()
            if (made.number, made.hash) != (linked["id"], linked["hash"]):
                raise LedgerError("the ledger's journal", f"the database hashes row {made.number} otherwise.", "UTF8")
            return
        self._connection.execute(_INSERT, linked)
        moved = {"at": linked["id"], "to": linked["hash"]}
        if signed is None:
            self._connection.execute(_MOVE, moved)
        else:
            self._connection.execute(_MOVE_SIGNED, {**moved, "signature": signed})


# Made once: SQLAlchemy then finds what it compiled of them.
_HEAD = select(models.head)
_HASH = select(models.journal.c.hash).where(models.journal.c.id == bindparam("number"))
_INSERT = insert(models.journal)
_APPEND = text(
    "SELECT number, hash FROM ledger_append(CAST(:at AS float8), :actor, :action, :population, :run, "
    "CAST(:round AS int), :event, :body, :signed)"
)
_MOVE = update(models.head).values(count=bindparam("at"), hash=bindparam("to"))
_MOVE_SIGNED = _MOVE.values(signed=bindparam("signature"))


class Journal:
    """Writes journaled transactions, and checks before each that the ledger is not an older copy of what was seen."""

    def __init__(
        self,
        database: Database,
        head_file: chain.HeadFile | None = None,
        clock: Clock = time.time,
        *,
        coordinator: bool = False,
        segments: bool = False,
    ) -> None:
        """Begin with what the head file holds.

        Args:
            coordinator: the ledger's readers are shown the heads that this machine signs.
            segments: keep the log beside the head file too, as a coordinator does, and whoever shares its home.
        """
        self._coordinator = coordinator
        self._segments = None if head_file is None else Segments.beside(head_file.path)
        self._keeps = coordinator or segments
        self._copied: chain.Head | None = None
        self.database, self.clock = database, clock
        self.proof = Proof(database)
        self._file = head_file
        self._seen: chain.Head | None = None
        self._seeing = threading.Lock()
        self._checked = False  # whether the ledger was found to go on from the held head since this was made

    def check(self) -> None:
        """Raise `LedgerError` if the ledger is behind the held head, or if its last row does not fit.

        So too where no head is held of a ledger that has runs, if this is their coordinator: if `coordinator`
        says so, or if files of one of the runs lie here.
        """
        if self._seen is None and self._file is not None:
            self._seen = self._file.read()
        with self.database.read() as connection:
            end = require_not_behind(connection, self.database.name, read_head(connection), self._seen)
            row = connection.execute(select(models.journal).where(models.journal.c.id == end.count)).mappings().first()
            fits = not row if end.count == 0 else row and row["hash"] == end.hash == chain.row_hash(dict(row))
        if not fits:
            raise LedgerCorrupt(
                f"ledger {self.database.name}",
                f"its journal does not end in the row {end.count} that it should end in.",
                "`fieldfare ledger mend`, which first says what it would do",
            )
        # A coordinator held a head once: who removed it may have put an old copy of the ledger back. Another
        # machine, such as one that submits plans, holds the head from now on.
        if self._file is not None and self._seen is None:
            self._require_first_time()
        # A service that shows an old ledger does not keep its readers waiting for the first copy of all of it.
        self._copy(self._coordinator)
        self._see(end)
        self._checked = True

    def unchecked(self) -> Journal:
        """Itself, for a transaction that puts right what `check` would refuse."""
        self._checked = True
        return self

    def forget(self) -> None:
        """Begin again with what the head file holds: another journal was put in place."""
        self._seen, self._checked = None, False

    def hold(self) -> None:
        """Hold where the journal ends now, whoever wrote it. Raises `LedgerError` if that is behind the held head."""
        if not self._checked:
            self.check()
            return
        self._look()
        with self.database.read() as connection:
            end = require_not_behind(connection, self.database.name, read_head(connection), self._seen)
        if end != self._copied:
            self._copy(self._keeps)
        self._see(end)

    def _look(self) -> None:
        """Take over what other processes of this machine have held since: what one of them saw, none goes back on."""
        held = self._file.held() if self._file is not None else None
        with self._seeing:
            if held is not None and (self._seen is None or held.count > self._seen.count):
                self._seen = held

    def _require_first_time(self) -> None:
        path = self._file.path if self._file is not None else None
        runs = models.runs.c
        with self.database.read() as connection:
            known = set(connection.execute(select(runs.id)).scalars())
        here = path is not None and any((path.parent / name).is_dir() for name in known)
        if known and (self._coordinator or here):
            raise LedgerError(
                f"ledger head {path}",
                f"it is missing, and the ledger has {len(known)} runs: a ledger put back from an old copy would go "
                "unnoticed.",
                "`fieldfare verify --head` with a head that a node, the page or a witness kept; if there is none, "
                "`fieldfare verify --hold` accepts the ledger as it is",
                code="head-missing",
            )

    def write(
        self,
        work: Callable[[Connection, Entry], T],
        *,
        prove: Callable[[Connection, int], State] | None = None,
        signer: chain.HeadFile | None = None,
    ) -> T:
        """Run `work` in one durable, serialised transaction (see `Database.write`); returns its result.

        prove: gives `Entry.state` by a log of so many rows; None: what the tables show is enough. signer: signs the
            head, whoever writes; None: this journal's own head file, where it is a coordinator's.
        """
        if not self._checked:
            self.check()
        entry: Entry | None = None

        def attempt(connection: Connection, event: str, head: object) -> T:
            nonlocal entry
            # Inside of the transaction: another writer of this machine may have seen a newer row since.
            self._look()
            end = require_not_behind(connection, self.database.name, _head_of(head), self._seen)
            proven = None if prove is None else prove(connection, end.count)
            file = signer or (self._file if self._coordinator else None)
            narrow = self.database.narrow(connection)
            entry = Entry(connection, event, self.clock(), end, file, proven, narrow=narrow)
            result = work(connection, entry)
            entry.flush()
            return result

        result = self.database.write(attempt)
        # `entry` is that of the last attempt: a transaction may have been repeated.
        if entry is not None and entry.head is not None:
            self._copy(self._keeps)
            self._see(entry.head)
        return result

    def admit(self, work: Callable[[Connection, Entry], T]) -> T:
        """`write` what charges a budget or changes one: the one door for both.

        `Entry.state` is what the log proves, and the rules decide by it. Raises `Disproved`, with nothing
        changed, unless every table says the same.
        """
        try:
            return self.write(work, prove=self.proof.require)
        except Late:
            # It is read before the transaction, for which other writers wait.
            self.proof.advance()
            return self.write(work, prove=lambda connection, _: self.proof.require(connection))

    def _copy(self, begin: bool) -> None:
        """Copy what is new into the segments, before the head is held: they are never behind it.

        begin: also where there are none yet.
        """
        if self._segments is not None and (begin or self._segments.there):
            self._copied = self._segments.follow(self.database)

    def _see(self, end: chain.Head) -> None:
        # One after another: of two threads the slower would put the older head into the file.
        with self._seeing:
            seen = -1 if self._seen is None else self._seen.count
            # The first time the file is written also where nothing is new: its form may be an older one.
            if seen > end.count or (seen == end.count and self._checked):
                return
            self._seen = end
            if self._file is not None:
                self._file.write(end)
                faults.point("ledger.head.written")


def require_not_behind(connection: Connection, name: str, end: chain.Head, seen: chain.Head | None) -> chain.Head:
    """`end`, where the journal of ledger `name` ends. Raises `OldCopy` unless it goes on from `seen`."""
    if seen is None:
        return end
    if end.ledger != seen.ledger:
        why = f"it is ledger {end.ledger}, and this coordinator has worked with ledger {seen.ledger}."
        raise OldCopy(f"ledger {name}", why, "the other ledger")
    known = connection.execute(_HASH, {"number": seen.count}).scalar() if seen.count else ""
    if end.count < seen.count or (seen.count and known != seen.hash):
        raise OldCopy(
            f"ledger {name}",
            f"its journal ends at row {end.count}, and row {seen.count} was seen already: an old copy was put "
            "back, and what was spent since would be forgotten.",
            "the newest copy, or `fieldfare ledger import` of a newer one",
        )
    return end


def clean(text: str, longest: int) -> str:
    """`text` as both databases can store it: no NUL, no lone surrogates, at most `longest` characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")[:longest]


def read_head(connection: Connection) -> chain.Head:
    """Where the journal ends, as the `head` row says."""
    return _head_of(connection.execute(_HEAD).one())


def _head_of(row: Any) -> chain.Head:
    return chain.Head(row.ledger, row._mapping["count"], row.hash)
