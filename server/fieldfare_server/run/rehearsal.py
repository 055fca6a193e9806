"""Who keeps a session's account: the ledger (`RunHandle`), or the memory of a rehearsal."""

from __future__ import annotations

import time
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.participation_record import ParticipationRecord
from fieldfare_server.ledger import OpenRound, Outcome, RunHandle

# Public or privatised values of a round; a number that is not finite is None.
Statistics = dict[str, float | str | list[float] | list[float | str] | None]


class Rehearsal:
    """The account of a run that no ledger knows: it keeps participation, charges nothing and stores nothing.

    Only for the baselines of `compare` and `demo`, on public data. A rehearsal cannot be resumed, reported,
    or shown as a private model.
    """

    id = "rehearsal"
    grouped = False
    individual = False
    schedule = None
    clock = staticmethod(time.time)
    # None: nothing is stored that could be put back, so one noise cannot serve two sums.
    nonces: list[bytes] | None = None

    def __init__(self) -> None:
        self._next_round = 0
        self._attempts = 0
        self._index: dict[int, int] = {}
        self._taken_part = ParticipationRecord()

    @property
    def users(self) -> int:
        return len(self._index)

    def register_users(self, ids: ArrayLike) -> NDArray[np.int64]:
        names = np.asarray(ids, np.uint64).tolist()
        indices = [self._index.setdefault(name, len(self._index)) for name in names]
        self._taken_part.grow(len(self._index))
        return np.asarray(indices, np.int64)

    def participation(self, indices: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._taken_part.last_and_count(indices)

    def patterns(self, indices: ArrayLike) -> list[tuple[int, ...]]:
        return self._taken_part.patterns(indices)

    def open_round(self, cohort: ArrayLike) -> OpenRound:
        self._attempts += 1
        return OpenRound(self._next_round, self._attempts, self._next_round, np.asarray(cohort, np.int64), 0)

    def receipts(self) -> list[str]:
        return []

    def commit_round(self, round: OpenRound, outcome: Outcome, checkpoint_digest: str) -> None:
        self._taken_part.add(round.index, np.asarray(outcome.participants, np.int64))
        self._next_round = round.index + 1

    def _nothing(self, *arguments: object, **keywords: object) -> None:
        """What a ledger would note or answer, and a rehearsal does not: nobody has a budget, and nothing lasts."""

    allowance = pledged = request = begin_groups = commit_group = heartbeat = void_round = finish = __exit__ = _nothing

    def _never(self, *arguments: object, **keywords: object) -> NoReturn:
        raise NotImplementedError("a rehearsal stores nothing: no round is closed, or held for a transaction")

    close_round = hold_round = _never


# What a session uses of either.
Account: TypeAlias = RunHandle | Rehearsal
