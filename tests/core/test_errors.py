"""A refusal reaches who waits for it, also from another process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import pytest

from fieldfare import errors
from fieldfare.errors import BadInput, FieldfareError, OutOfRange
from fieldfare.plan import Plan
from fieldfare.signed_terms import NodeBudgetRefused
from fieldfare_client.task_faults import Faulty

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FieldfareError)]


def made() -> list[FieldfareError]:
    """An error of each kind: of two arguments, of a message alone, of arguments of its own, of several faults."""
    told = [kind("a file", "is torn.") if issubclass(kind, errors.Refused) else kind("it is torn") for kind in KINDS]
    one = OutOfRange("run.rounds = 0", "must be at least 1.", "1", code="at-least-one").at(3)
    own = [NodeBudgetRefused("the run", reason="exceeds"), Faulty("loss", "clinic:Clinic", "it raises.")]
    return [*told, one, BadInput.of([one, BadInput("x", "y.")]), *own]


@pytest.mark.parametrize("error", made(), ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: FieldfareError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert (type(again), str(again), again.code) == (type(error), str(error), error.code)
        for name in ("what", "why", "nearest", "line", "reason"):
            assert getattr(again, name, None) == getattr(error, name, None)
        assert list(map(str, getattr(again, "faults", ()))) == list(map(str, getattr(error, "faults", ())))


def _price(epsilon: float) -> float | None:
    return Plan(task="digits", epsilon=epsilon, delta=1e-5, rounds=4, cohort=5).privacy.epsilon


def test_a_pool_of_processes_shows_a_refusal() -> None:
    """It waited for ever."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        waiting = pool.map_async(_price, [4.0, -1.0])
        with pytest.raises(BadInput):
            waiting.get(timeout=60)
