"""What may happen to a round: it is opened, then committed or voided."""

from __future__ import annotations

from collections.abc import Iterator

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BudgetRefused, OutOfTurn
from fieldfare.nonces import NONCE_BYTES
from fieldfare_server.ledger.events import runs as events
from fieldfare_server.ledger.events.base import Record, require
from fieldfare_server.ledger.rules.runs import under_way
from fieldfare_server.ledger.state import budget
from fieldfare_server.ledger.state.formats import has_nonces
from fieldfare_server.ledger.state.rows import Fact, ParticipationRow, RoundRow
from fieldfare_server.ledger.state.state import FoldedRun, State


def opened(state: State, record: Record, event: events.Opened) -> Iterator[Fact]:
    """Yield an attempt at the next round. Raises `LedgerError` if another round is open."""
    run, index = under_way(state, record), _index(record)
    if run.open is not None:
        raise OutOfTurn(f"round {index} of run {run.row.id}", "another round is open.", "commit or void that one first")
    if not index == run.row.next_round < run.row.rounds:
        raise OutOfTurn(f"round {index} of run {run.row.id}", f"the ledger stands at round {run.row.next_round}.")
    require(event.noise_row == index, "its noise row is that of another round")
    require(event.attempt == run.tries, "attempts are not numbered one after another")
    yield RoundRow(
        run=run.row.id,
        index=index,
        attempt=event.attempt,
        noise_row=event.noise_row,
        state="open",
        cohort=event.cohort,
        cohort_size=event.cohort_size,
        rejects={},
        opened_at=record.at,
    )


def closed(state: State, record: Record, event: events.RoundClosed) -> Iterator[Fact]:
    """Yield a masked round whose set is final: a second set of the same updates would tell their difference."""
    _, row = _open(state, record, event.attempt)
    require(not row.closing, "it is closed already")
    require(event.nodes > 1 and len(bytes.fromhex(event.closing)) == 32, "it names no sum of several nodes")
    yield row._replace(checkpoint=event.closing)


def voided(state: State, record: Record, event: events.Voided) -> Iterator[Fact]:
    """Yield a round that released nothing: no charge, no participation, and its noise row is free again.

    Raises `LedgerError` for one that is closed: only the end of its run ends it.
    """
    _, row = _open(state, record, event.attempt)
    require(not row.closing, "a closed round is committed, or its run ends")
    yield row.void(record.at, event.reason)._replace(reports=event.reports, rejects=event.rejects)


def committed(state: State, record: Record, event: events.Committed) -> Iterator[Fact]:
    """Yield a round that is charged, who took part in it, and its run.

    Raises `BudgetRefused` unless its charge is at least what was spent before, and at most what the run reserved.
    """
    run, row = _open(state, record, event.attempt)
    require_charge(run.row.id, row.index, run.spent, budget.loss(event.spent), run.planned)
    require(event.noise_row == row.noise_row, "its noise row is not the one it was opened with")
    _require_nonce(state, run, event.nonce)
    require((event.charges is not None) == run.row.individual, "it charges otherwise than the run does")
    yield row._replace(
        state="committed",
        cohort=None,
        reports=event.reports,
        participants=event.participant_count,
        spent=event.spent,
        epsilon=event.epsilon,
        checkpoint=event.checkpoint,
        statistics=event.statistics,
        rejects=event.rejects,
        closed_at=record.at,
        nonce=event.nonce,
    )
    yield ParticipationRow(row.run, row.index, event.participant_count, event.participants, event.charges)
    yield run.row._replace(spent=event.spent, checkpoint=event.checkpoint, next_round=row.index + 1)


def require_charge(run: str, index: int, before: PrivacyLoss, spent: PrivacyLoss, planned: PrivacyLoss) -> None:
    """Raise `BudgetRefused` unless `spent` is at least what was spent `before`, and at most what the run `planned`."""
    charge = f"the charge of round {index} of run {run}"
    if not before.part_of(spent):
        why = f"a charge never shrinks: {spent} is less than {before}, which is spent already."
        raise BudgetRefused(charge, why, code="charge-shrinks")
    if not spent.part_of(planned):
        why = f"{spent} is more than {planned}, which the run reserved."
        raise BudgetRefused(charge, why, "end the run with its last committed model", code="charge-above-reserved")


def _require_nonce(state: State, run: FoldedRun, nonce: str | None) -> None:
    if not has_nonces(run.row.noise_source):
        require(nonce is None, "it has a nonce it cannot have")
        return
    require(nonce is not None, "it has no nonce")
    require(len(bytes.fromhex(nonce or "")) == NONCE_BYTES, "its nonce has another length")
    first = state.nonces.get(nonce or "")
    require(first is None, f"its nonce is that of {first}")


def _index(record: Record) -> int:
    require(record.round is not None, "it names no round")
    return int(record.round or 0)


def _open(state: State, record: Record, attempt: int) -> tuple[FoldedRun, RoundRow]:
    run, key = under_way(state, record), (_index(record), attempt)
    if run.open != key:
        now = run.attempts[key].row.state if key in run.attempts else "unknown"
        raise OutOfTurn(f"round {key[0]} (attempt {attempt}) of run {run.row.id}", f"it is {now}.")
    return run, run.attempts[key].row
