"""Whether two ledgers are two branches of one: a backup that was put back, a copied directory, a rewound
machine.

Each branch alone is whole, and each is charged for what it released. Who saw both branches saw more than
either charge covers: at most both charges together, less what they share, because noise is drawn under nonces
(spec/budgets.md 4.4). A branch that is never shown cannot be found; only a journal's head that is kept
elsewhere can.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.events.base import Unfit
from fieldfare_server.ledger.sql import models


def find_fork(first: Ledger, second: Ledger) -> Unfit | None:
    """Return the first round that both committed differently, else the first journal row after which they
    part, else None.

    A ledger that is a copy of the other's past is no fork. Verify each of the two first.
    """
    with first.database.read() as one, second.database.read() as other:
        return _round_fork(one, other) or _journal_fork(one, other)


def _round_fork(one: Connection, other: Connection) -> Unfit | None:
    committed = _committed(other)
    for key, (nonce, checkpoint) in _committed(one).items():
        run, index = key
        there_nonce, there_checkpoint = committed.get(key, (nonce, checkpoint))
        if nonce != there_nonce:
            return Unfit("rounds", f"{run} {index}", f"a fork: one ledger has the nonce {nonce}, one {there_nonce}")
        if checkpoint != there_checkpoint:
            why = f"a fork: one ledger has the checkpoint {checkpoint}, one {there_checkpoint}"
            return Unfit("rounds", f"{run} {index}", why)
    return None


def _committed(connection: Connection) -> dict[tuple[str, int], tuple[str | None, str]]:
    """Return (run, round) -> (nonce, checkpoint), in order."""
    r, c = models.runs.c, models.rounds.c
    query = select(r.id, c.index, c.nonce, c.checkpoint).join_from(models.rounds, models.runs, c.run_seq == r.seq)
    rows = connection.execute(query.where(c.state == "committed").order_by(c.run_seq, c.index))
    return {(run, index): (nonce, checkpoint) for run, index, nonce, checkpoint in rows}


def _journal_fork(one: Connection, other: Connection) -> Unfit | None:
    c = models.journal.c
    query = select(c.id, c.hash).order_by(c.id)
    for here, there in zip(one.execute(query), other.execute(query), strict=False):
        if here.hash != there.hash:
            return Unfit("audit", str(here.id), "a fork, or no copy of this ledger: the two have different rows here")
    return None
