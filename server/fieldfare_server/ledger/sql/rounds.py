"""One round as its coordinator writes it, in its transaction: open it, then commit or void it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, bindparam, select

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import Units
from fieldfare.errors import Differs, LedgerCorrupt, WrongForm
from fieldfare.nonces import NONCE_BYTES
from fieldfare_server import faults
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.runs import Committed, Opened, RoundClosed, Voided
from fieldfare_server.ledger.sql import blobs, models
from fieldfare_server.ledger.sql.hold import RunFacts
from fieldfare_server.ledger.sql.journal import Entry
from fieldfare_server.ledger.state import budget, odometers

_HEX = frozenset("0123456789abcdef")
_t = models.rounds.c
_NUMBER = select(_t.id).where(
    _t.run_seq == bindparam("run"), _t.index == bindparam("round"), _t.attempt == bindparam("number")
)


@dataclass(frozen=True, eq=False)
class OpenRound:
    """A round that is durable in the ledger and not closed yet."""

    index: int
    attempt: int  # 0 at first; one more after every void attempt at the same round
    noise_row: int  # the row of B z that this round's sum gets if the round is committed
    cohort: NDArray[np.int64]  # sorted user indices, shape (cohort size,)
    # Of its row in the ledger; 0 for a round of a group, which has none before the group is committed.
    id: int
    closing: str | None = None  # what it is closed with; None: it is not, and may be made void


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a round has come to when it is committed: all that its row says, but for its checkpoint.

    Args:
        participants: indices of the users whose updates are in the released sum, a subset of the cohort.
        spent: loss of the run including this round; not below what is spent, not above what is reserved.
        statistics: public or privatised values only; finite JSON.
        rejects: number of refused replies by reason.
        reports: number of accepted replies.
        nonce: what the round's noise was drawn under; exactly the runs that have nonces need one.
        charges: what the round costs each of `participants`, in units of 2^-44 mu^2; exactly the runs under
            individual accounting need them.
        model: digest of the released model (`files.checkpoint.model_digest`); None where an earlier version made it.
        receipt: what the blinder signed of a masked round.
    """

    participants: ArrayLike
    spent: PrivacyLoss
    statistics: Mapping[str, object] = field(default_factory=dict)
    rejects: Mapping[str, int] = field(default_factory=dict)
    reports: int = 0
    nonce: bytes | None = None
    charges: Units | None = None
    model: str | None = None
    receipt: str | None = None


@dataclass(frozen=True, eq=False)
class Commitment:
    """What a commit records: checked and encoded by `prepare`, before its transaction begins."""

    event: Committed
    spent: PrivacyLoss  # the run's loss including this round
    users: NDArray[np.int64]  # sorted indices of the users whose updates are in the released sum
    blob: bytes  # `users`, encoded
    statistics: str  # canonical JSON
    # Under individual accounting: what the round costs each of `users`, in the same order.
    charges: Units | None


@dataclass(frozen=True, eq=False)
class Held:
    """A round of a group: done, and to be written with the group."""

    round: OpenRound
    made: Commitment
    opened_at: float
    closed_at: float


def prepare(run: RunFacts, round: OpenRound, users: NDArray[np.int64], outcome: Outcome, checkpoint: str) -> Commitment:
    """Check what `RunHandle.commit_round` is given. Raises `BadInput` on anything malformed.

    users: the participants of `outcome`, each known to the run.
    """
    charges, nonce = outcome.charges, outcome.nonce
    if (charges is None) == run.individual or (charges is not None and charges.shape != users.shape):
        needed = "what the round costs each participant" if run.individual else "no charges of single users"
        raise Differs(f"the charges of round {round.index} of run {run.id}", f"the run needs {needed}.")
    order = np.argsort(users, kind="stable")
    users = _kept(run, users[order])
    blob = blobs.encode(users)
    everyone = run.hides_presence or np.array_equal(users, round.cohort)
    if not everyone and not np.isin(users, round.cohort, assume_unique=True).all():
        raise Differs(f"participants of round {round.index}", "some of them are not in its cohort.")
    if len(checkpoint) != 64 or not _HEX.issuperset(checkpoint):
        raise WrongForm(f"checkpoint digest {checkpoint[:80]!r}", "a digest is SHA-256 in 64 hex digits.")
    if (nonce is None) == run.nonces or (nonce is not None and len(nonce) != NONCE_BYTES):
        needed = f"a nonce of {NONCE_BYTES} bytes" if run.nonces else "no nonce"
        raise Differs(f"the nonce of round {round.index} of run {run.id}", f"the run needs {needed}.")
    try:
        encoded = chain.canonical(dict(outcome.statistics))
    except (TypeError, ValueError) as error:
        raise WrongForm(f"statistics of round {round.index}", f"not finite JSON ({error}).") from None
    # Under sampling epsilon is a numerical convolution: compute it here, not while all other writers wait.
    epsilon = budget.epsilon(outcome.spent, run.delta)
    charges = None if charges is None else charges[order]
    event = Committed(
        spent=outcome.spent.to_json(),
        epsilon=epsilon,
        checkpoint=checkpoint,
        attempt=round.attempt,
        noise_row=round.noise_row,
        participants=chain.sha256(blob),
        participant_count=int(users.size),
        statistics=chain.sha256(encoded.encode()),
        reports=0 if run.hides_presence else outcome.reports,
        rejects=_counted(run, outcome.rejects),
        nonce=None if nonce is None else nonce.hex(),
        charges=None if charges is None else odometers.digest(charges),
        model=outcome.model,
        receipt=outcome.receipt,
    )
    return Commitment(event, outcome.spent, users, blob, encoded, charges)


def open_next(run: RunFacts, index: int, users: NDArray[np.int64], connection: Connection, entry: Entry) -> OpenRound:
    """Open an attempt at round `index` with the cohort `users` (sorted). Raises `LedgerError` if one is open."""
    attempt = entry.state.runs[run.id].tries
    _append_open(entry, run, OpenRound(index, attempt, index, users, id=0))
    entry.flush()
    faults.point("ledger.round.opening")
    number = connection.execute(_NUMBER, {"run": run.seq, "round": index, "number": attempt}).scalar_one()
    return OpenRound(index, attempt, index, users, number)


def _append_open(entry: Entry, run: RunFacts, round: OpenRound, held: Held | None = None) -> None:
    users, at = _kept(run, round.cohort), None if held is None else held.opened_at
    known = held is not None and np.array_equal(held.made.users, users)  # everybody who was asked has answered
    cohort = entry.contents.keep(held.made.blob if held is not None and known else blobs.encode(users))
    run.record(entry, Opened(round.attempt, round.noise_row, int(users.size), cohort), round.index, at)


def _kept(run: RunFacts, users: NDArray[np.int64]) -> NDArray[np.int64]:
    """What of a round's users is written anywhere: nobody where presence is secret.

    Their charge assumes that nobody learns whom the coins chose. A reader of the database, or of a backup, would.
    """
    return users[:0] if run.hides_presence else users


def _counted(run: RunFacts, rejects: Mapping[str, int]) -> Mapping[str, int]:
    """What of a round's refused replies is written: nothing where presence, and with it every count, is secret."""
    return {} if run.hides_presence else dict(rejects)


def find_open(connection: Connection, run_seq: int) -> OpenRound | None:
    """The open round of a run, if there is one."""
    c = models.rounds.c
    row = connection.execute(select(models.rounds).where(c.run_seq == run_seq, c.state == "open")).mappings().first()
    if row is None:
        return None
    lost = row["checkpoint"] is not None and row["cohort"] is None  # of a closed round, whose run can only end
    try:
        cohort = np.zeros(0, np.int64) if lost else blobs.decode(row["cohort"], row["cohort_size"])
    except ValueError as error:
        raise LedgerCorrupt(f"open round {row['index']}", f"its cohort is corrupt: {error}.") from None
    return OpenRound(row["index"], row["attempt"], row["noise_row"], cohort, row["id"], row["checkpoint"])


def nonces(connection: Connection, run: RunFacts, next_round: int) -> list[bytes] | None:
    """The nonces of a run's committed rounds, in order; None for a run without nonces.

    Raises `LedgerError` where there are more or fewer than rounds.
    """
    c = models.rounds.c
    query = select(c.index, c.nonce).where(c.run_seq == run.seq, c.state == "committed").order_by(c.index)
    having = [(index, nonce) for index, nonce in connection.execute(query) if nonce is not None]
    if [index for index, _ in having] != list(range(next_round if run.nonces else 0)):
        why = f"{next_round} rounds are committed, and {len(having)} of them have a nonce."
        raise LedgerCorrupt(f"run {run.id}", why, "the ledger's backup: without its nonces a run is never continued")
    return [bytes.fromhex(nonce) for _, nonce in having] if run.nonces else None


def close(entry: Entry, run: RunFacts, round: OpenRound, closing: str, nodes: int) -> None:
    """Make the set of a masked `round` final; one that is closed with the same file stays so."""
    known = entry.state.runs[run.id].attempts.get((round.index, round.attempt))
    if known is not None and known.row.closing and known.row.checkpoint == closing:
        return
    run.record(entry, RoundClosed(round.attempt, closing, nodes), round.index)
    faults.point("ledger.round.closing")


def void(entry: Entry, run: RunFacts, round: OpenRound, reason: str, reports: int, rejects: Mapping[str, int]) -> None:
    """Close `round` with nothing released; a round that is void already stays so."""
    known = entry.state.runs[run.id].attempts.get((round.index, round.attempt))
    if known is not None and known.row.state == "void":
        return
    counted = 0 if run.hides_presence else reports
    run.record(entry, Voided(round.attempt, reason, counted, _counted(run, rejects)), round.index)
    faults.point("ledger.round.voiding")


def commit(entry: Entry, run: RunFacts, round: OpenRound, made: Commitment) -> None:
    """Charge `round` and close it; a round that is committed with the same checkpoint already stays so."""
    known = entry.state.runs[run.id].attempts.get((round.index, round.attempt))
    if known is not None and (known.row.state, known.row.checkpoint) == ("committed", made.event.checkpoint):
        return
    _append_commit(entry, run, round, made, made.event)
    faults.point("ledger.round.committing")


def commit_group(entry: Entry, run: RunFacts, held: Sequence[Held], checkpoint: str) -> None:
    """Open, charge and close several rounds at once; the ledger and its journal then say what they say of single ones.

    All of them name `checkpoint`: there is one for the group, made after its last round. Raises as `commit`.
    """
    for each in held:
        _append_open(entry, run, each.round, each)
        event = replace(each.made.event, checkpoint=checkpoint)
        _append_commit(entry, run, each.round, each.made, event, each.closed_at)
    faults.point("ledger.round.committing")


def _append_commit(
    entry: Entry, run: RunFacts, round: OpenRound, made: Commitment, event: Committed, at: float | None = None
) -> None:
    entry.contents.keep(made.blob)
    entry.contents.keep(made.statistics, lasting=True)
    if made.charges is not None:
        entry.contents.keep_units(made.charges)
    run.record(entry, event, round.index, at)
