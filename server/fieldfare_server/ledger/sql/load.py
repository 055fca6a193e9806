"""Putting a journal and its content into a ledger, from segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, update

from fieldfare.errors import LedgerError
from fieldfare.signed_head import HeadRefused, SignedHead
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.journal import read_head, require_not_behind
from fieldfare_server.ledger.sql.projection import Contents
from fieldfare_server.ledger.sql.segments import Frame, Segments

_q = models.participations.c
_REPLACED = delete(models.participations).where(_q.run_seq == bindparam("run"), _q.index == bindparam("round"))


def load(connection: Connection, name: str, segments: Segments, held: Iterable[chain.Head]) -> chain.Head:
    """Put what segments hold in the place of the journal and its content; returns where it ends.

    Every other table is stale then, and guards must be lifted (`rebuild`).

    Args:
        name: the ledger's, for messages.
        held: heads that the journal must go on from.

    Raises:
        OldCopy: it does not go on from them.
        LedgerError: the segments are not whole.
    """
    for table in reversed(models.metadata.sorted_tables):
        if table is not models.head:
            connection.execute(delete(table))
    loading = _Loading(connection)
    end, signed = read_head(connection), None
    for after, frame in segments.frames():
        loading.take(frame)
        end, signed = after, frame.signed
    if signed is not None:
        held = (*held, _head_of(signed))
    moved = {"ledger": end.ledger, "count": end.count, "hash": end.hash, "signed": signed}
    connection.execute(update(models.head).values(moved))
    for seen in held:
        require_not_behind(connection, name, end, seen)
    return end


def _head_of(signed: str) -> chain.Head:
    try:
        line = SignedHead.parse(signed)
    except HeadRefused as error:
        raise LedgerError("the signed head in the segments", error.why) from None
    return chain.Head(line.ledger, line.count, line.hash)


class _Loading:
    """Numbers populations and runs in the order of the log, as the fold does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._populations: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        self._taken = 0

    def take(self, frame: Frame) -> None:
        """Insert what a frame holds. A participation has a number of its own until the fold has its round's."""
        for row in frame.rows:
            if row["action"] == "population.create":
                self._populations.setdefault(str(row["population"]), len(self._populations) + 1)
            elif row["action"] == "run.start":
                self._runs.setdefault(str(row["run"]), len(self._runs) + 1)
        self._insert(insert(models.journal), frame.rows)
        contents = Contents()
        for content in frame.objects:
            contents.keep(content, lasting=True)
        contents.write(self._connection)
        users = [
            {"population_id": self._populations[name], "first": first, "count": count, "hashes": hashes}
            for name, first, count, hashes in frame.users
        ]
        self._insert(insert(models.users), users)
        taken = [
            {"run_seq": self._runs[run], "index": index, "count": count, "users": blob, "charges": charges}
            for run, index, count, blob, charges in frame.participations
        ]
        if any(row["action"] == "population.odometers" for row in frame.rows):
            # Charges that were computed again: the rows are there already.
            self._insert(_REPLACED, [{"run": row["run_seq"], "round": row["index"]} for row in taken])
        for row in taken:
            self._taken += 1
            row["round_id"] = -self._taken
        self._insert(insert(models.participations), taken)

    def _insert(self, statement: Any, rows: list[dict[str, Any]]) -> None:
        if rows:
            self._connection.execute(statement, rows)
