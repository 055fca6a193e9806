"""The writes of one round, each in its caller's transaction: open it, then commit or void it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import Units
from fieldfare.errors import BadInput, BudgetRefused, LedgerError
from fieldfare.nonces import NONCE_BYTES
from fieldfare_server import faults
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.sql.hold import RunFacts
from fieldfare_server.ledger.sql.journal import Entry
from fieldfare_server.ledger.sql.rows import run_row
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.states import RoundState

_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, eq=False)
class OpenRound:
    """A round that is durable in the ledger and not closed yet."""

    index: int
    attempt: int
    """0 at first; one more after every void attempt at the same round."""
    noise_row: int
    """The row of B z that this round's sum gets if the round is committed."""
    cohort: NDArray[np.int64]
    """Sorted user indices, shape (cohort size,)."""
    id: int
    """Of its row in the ledger; 0 for a round of a group, which has none before the group is committed."""


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
    """

    participants: ArrayLike
    spent: PrivacyLoss
    statistics: Mapping[str, Any] = field(default_factory=dict)
    rejects: Mapping[str, int] = field(default_factory=dict)
    reports: int = 0
    nonce: bytes | None = None
    charges: Units | None = None


@dataclass(frozen=True, eq=False)
class Commitment:
    """What a commit records: checked and encoded by `prepare`, before its transaction begins."""

    users: NDArray[np.int64]
    """Sorted indices of the users whose updates are in the released sum."""
    blob: bytes
    """`users`, encoded."""
    spent: PrivacyLoss
    """The run's loss including this round."""
    epsilon: float
    """`spent` at the population's delta."""
    checkpoint: str
    statistics: str
    """Canonical JSON."""
    rejects: Mapping[str, int]
    reports: int
    nonce: str | None
    """Hex; None in a run without nonces."""
    charges: Units | None = None
    """Under individual accounting: what the round costs each of `users`, in the same order."""

    @property
    def charge(self) -> dict[str, Any]:
        """What the round's row and its journal row both say of the charge."""
        charge = {"spent": self.spent.to_json(), "epsilon": self.epsilon, "checkpoint": self.checkpoint}
        return charge if self.nonce is None else {**charge, "nonce": self.nonce}


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
        raise BadInput(f"the charges of round {round.index} of run {run.id}", f"the run needs {needed}.")
    order = np.argsort(users, kind="stable")
    users = users[order]
    blob = blobs.encode(users)
    if not np.isin(users, round.cohort, assume_unique=True).all():
        raise BadInput(f"participants of round {round.index}", "some of them are not in its cohort.")
    if len(checkpoint) != 64 or not _HEX.issuperset(checkpoint):
        raise BadInput(f"checkpoint digest {checkpoint[:80]!r}", "a digest is SHA-256 in 64 hex digits.")
    if (nonce is None) == run.nonces or (nonce is not None and len(nonce) != NONCE_BYTES):
        needed = f"a nonce of {NONCE_BYTES} bytes" if run.nonces else "no nonce"
        raise BadInput(f"the nonce of round {round.index} of run {run.id}", f"the run needs {needed}.")
    try:
        encoded = chain.canonical(dict(outcome.statistics))
    except (TypeError, ValueError) as error:
        raise BadInput(f"statistics of round {round.index}", f"not finite JSON ({error}).") from None
    # Under sampling epsilon is a numerical convolution: compute it here, not while all other writers wait.
    epsilon = budget.epsilon(outcome.spent, run.delta)
    return Commitment(
        users,
        blob,
        outcome.spent,
        epsilon,
        checkpoint,
        encoded,
        dict(outcome.rejects),
        outcome.reports,
        None if nonce is None else nonce.hex(),
        None if charges is None else charges[order],
    )


def open_next(connection: Connection, entry: Entry, run: RunFacts, index: int, users: NDArray[np.int64]) -> OpenRound:
    """Insert an attempt at round `index` with the cohort `users` (sorted). Raises `LedgerError` if one is open."""
    c, blob = models.rounds.c, blobs.encode(users)
    attempt = count_attempts(connection, run, index)
    key = {"run_seq": run.seq, "index": index, "attempt": attempt}
    opened = {"noise_row": index, "state": "open", "cohort": blob, "cohort_size": users.size, "opened_at": entry.now}
    empty = {"reports": 0, "participants": 0, "statistics": "{}", "rejects": "{}", "reason": ""}
    try:
        id_: int = connection.execute(
            insert(models.rounds).values({**key, **opened, **empty}).returning(c.id)
        ).scalar_one()
    except IntegrityError:
        raise LedgerError(
            f"round {index} of run {run.id}", "another round is open.", "commit or void that one first"
        ) from None
    round = OpenRound(index, attempt, index, users, id_)
    run.record(entry, "round.open", _open_body(round, blob), index)
    faults.point("ledger.round.opening")
    return round


def count_attempts(connection: Connection, run: RunFacts, index: int) -> int:
    """How many attempts at round `index` the ledger has."""
    c = models.rounds.c
    attempts: int = connection.execute(select(func.count()).where(c.run_seq == run.seq, c.index == index)).scalar_one()
    return attempts


def _open_body(round: OpenRound, blob: bytes) -> dict[str, Any]:
    size = int(round.cohort.size)
    return {"attempt": round.attempt, "noise_row": round.noise_row, "cohort_size": size, "cohort": sha256(blob)}


def find_open(connection: Connection, run_seq: int) -> OpenRound | None:
    """The open round of a run, if there is one."""
    c = models.rounds.c
    row = connection.execute(select(models.rounds).where(c.run_seq == run_seq, c.state == "open")).mappings().first()
    if row is None:
        return None
    try:
        cohort = blobs.decode(row["cohort"], row["cohort_size"])
    except ValueError as error:
        raise LedgerError(f"open round {row['index']}", f"its cohort is corrupt: {error}.") from None
    return OpenRound(row["index"], row["attempt"], row["noise_row"], cohort, row["id"])


def nonces(connection: Connection, run: RunFacts, next_round: int) -> list[bytes] | None:
    """The nonces of a run's committed rounds, in order; None for a run without nonces.

    Raises `LedgerError` where there are more or fewer than rounds.
    """
    c = models.rounds.c
    query = select(c.index, c.nonce).where(c.run_seq == run.seq, c.state == "committed").order_by(c.index)
    having = [(index, nonce) for index, nonce in connection.execute(query) if nonce is not None]
    if [index for index, _ in having] != list(range(next_round if run.nonces else 0)):
        raise LedgerError(
            f"run {run.id}",
            f"{next_round} rounds are committed, and {len(having)} of them have a nonce.",
            "the ledger's backup: without its nonces a run is never continued",
        )
    return [bytes.fromhex(nonce) for _, nonce in having] if run.nonces else None


def void(
    connection: Connection,
    entry: Entry,
    run: RunFacts,
    round: OpenRound,
    reason: str,
    reports: int,
    rejects: Mapping[str, int],
) -> None:
    """Close `round` with nothing released; a round that is void already stays so."""
    state, _ = _state(connection, run, round)
    if state == "void":
        return
    _require_open(run, round, state)
    _close(connection, round, "void", entry.now, reports, rejects, reason=reason)
    body = {"attempt": round.attempt, "reason": reason, "reports": reports, "rejects": rejects}
    run.record(entry, "round.void", body, round.index)
    faults.point("ledger.round.voiding")


def commit(connection: Connection, entry: Entry, run: RunFacts, round: OpenRound, made: Commitment) -> None:
    """Charge `round` and close it; a round that is committed with the same checkpoint already stays so."""
    state, checkpoint = _state(connection, run, round)
    if state == "committed" and checkpoint == made.checkpoint:
        return
    _require_open(run, round, state)
    _require_charge(connection, run, round, made.spent)
    charge = made.charge
    columns = {**charge, "participants": made.users.size, "statistics": made.statistics}
    _close(connection, round, "committed", entry.now, made.reports, made.rejects, **columns)
    connection.execute(insert(models.participations).values(_participation(run, round, made, round.id)))
    run.update(connection, spent=charge["spent"], next_round=round.index + 1, checkpoint=made.checkpoint)
    body = _commit_body(round, made)
    run.record(entry, "round.commit", body, round.index)
    faults.point("ledger.round.committing")


def commit_group(connection: Connection, entry: Entry, run: RunFacts, held: Sequence[Held], checkpoint: str) -> None:
    """Open, charge and close several rounds at once; the ledger and its journal then say what they say of single ones.

    All of them name `checkpoint`: there is one for the group, made after its last round. Raises as `commit`.
    """
    held = [replace(each, made=replace(each.made, checkpoint=checkpoint)) for each in held]
    first, last = held[0].round, held[-1]
    row = run_row(connection, run.id)
    if row.next_round != first.index or find_open(connection, run.seq) is not None:
        raise LedgerError(f"round {first.index} of run {run.id}", f"the ledger stands at round {row.next_round}.")
    _require_charge(connection, run, last.round, last.made.spent)
    values, rows = [], []
    for each in held:
        round, made = each.round, each.made
        closed = {"reports": made.reports, "rejects": chain.canonical(made.rejects), "statistics": made.statistics}
        values.append(
            {
                **{"run_seq": run.seq, "index": round.index, "attempt": round.attempt, "noise_row": round.noise_row},
                **{"state": "committed", "cohort_size": int(round.cohort.size), "participants": int(made.users.size)},
                **{"opened_at": each.opened_at, "closed_at": each.closed_at, "reason": ""},
                **closed,
                **made.charge,
            }
        )
        opened = _open_body(round, blobs.encode(round.cohort))
        rows.append(run.row("round.open", opened, round.index, each.opened_at))
        rows.append(run.row("round.commit", _commit_body(round, made), round.index, each.closed_at))
    ids = connection.execute(
        insert(models.rounds).returning(models.rounds.c.id, sort_by_parameter_order=True), values
    ).scalars()
    participations = [_participation(run, each.round, each.made, id_) for each, id_ in zip(held, ids, strict=True)]
    connection.execute(insert(models.participations), participations)
    charge = last.made.charge
    run.update(connection, spent=charge["spent"], next_round=last.round.index + 1, checkpoint=checkpoint)
    entry.append_all(rows)
    faults.point("ledger.round.committing")


def _participation(run: RunFacts, round: OpenRound, made: Commitment, round_id: int) -> dict[str, Any]:
    count = int(made.users.size)
    row = {"round_id": round_id, "run_seq": run.seq, "index": round.index, "count": count, "users": made.blob}
    return row if made.charges is None else {**row, "charges": odometer_tables.encode(made.charges)}


def _commit_body(round: OpenRound, made: Commitment) -> dict[str, Any]:
    return {
        **made.charge,
        **({} if made.charges is None else {"charges": odometers.digest(made.charges)}),
        "attempt": round.attempt,
        "noise_row": round.noise_row,
        "participants": sha256(made.blob),
        "participant_count": int(made.users.size),
        "statistics": sha256(made.statistics.encode()),
        "reports": made.reports,
        "rejects": made.rejects,
    }


def _require_charge(connection: Connection, run: RunFacts, round: OpenRound, spent: PrivacyLoss) -> None:
    require_charge(run, round, PrivacyLoss.from_json(run_row(connection, run.id).spent), spent)


def require_charge(run: RunFacts, round: OpenRound, before: PrivacyLoss, spent: PrivacyLoss) -> None:
    """Raise `BudgetRefused` unless `spent` is at least what was spent `before`, and at most what the run reserved."""
    charge = f"the charge of round {round.index} of run {run.id}"
    if not budget.at_most(before, spent):
        raise BudgetRefused(charge, f"a charge never shrinks: {spent} is less than {before}, which is spent already.")
    if not budget.at_most(spent, run.planned):
        raise BudgetRefused(
            charge,
            f"{spent} is more than {run.planned}, which the run reserved.",
            "end the run with its last committed model",
        )


def _state(connection: Connection, run: RunFacts, round: OpenRound) -> tuple[RoundState | None, str | None]:
    """(state, checkpoint) of a round's row; (None, None) if the run has no such round."""
    c = models.rounds.c
    row = connection.execute(select(c.state, c.checkpoint).where(c.id == round.id, c.run_seq == run.seq)).first()
    return (None, None) if row is None else (row.state, row.checkpoint)


def _require_open(run: RunFacts, round: OpenRound, state: RoundState | None) -> None:
    if state != "open":
        raise LedgerError(
            f"round {round.index} (attempt {round.attempt}) of run {run.id}", f"it is {state or 'unknown'}."
        )


def _close(
    connection: Connection,
    round: OpenRound,
    state: RoundState,
    now: float,
    reports: int,
    rejects: Mapping[str, int],
    **columns: Any,
) -> None:
    """Update the round's row; who was selected is forgotten, and only who took part is kept."""
    columns |= {"state": state, "closed_at": now, "reports": reports, "rejects": chain.canonical(rejects)}
    connection.execute(update(models.rounds).where(models.rounds.c.id == round.id).values({**columns, "cohort": None}))
