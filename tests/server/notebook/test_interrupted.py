"""A kernel's interrupt at any moment of `ff.simulate` ends in `Interrupted`, with the line that continues the run."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fieldfare as ff
from fieldfare.errors import Interrupted
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.notebook import simulation
from fieldfare_server.run.round.strategy import FieldfareStrategy
from support.refusals import coded

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float | Callable[[], None]]]:
    """When the kernel is interrupted, one for each call: seconds after its session began, or what arranges it."""
    before, planned = signal.signal(signal.SIGINT, signal.default_int_handler), list[Any]()
    timers: list[threading.Timer] = []

    def arranged(real: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*arguments: Any, **keywords: Any) -> Any:
            session = real(*arguments, **keywords)
            moment = planned.pop(0) if planned else None
            if callable(moment):
                moment()
            elif moment is not None:
                timers.append(threading.Timer(moment, press))
                timers[-1].start()
            return session

        return begin

    for name in ("begin", "resume"):
        monkeypatch.setattr(simulation.Session, name, arranged(getattr(simulation.Session, name)))
    yield planned
    for timer in timers:
        timer.cancel()
    signal.signal(signal.SIGINT, before)


def interrupt(root: Path, moments: list[Any], first: float, others: list[Any], rounds: int) -> list[int]:
    """The rounds after each interrupt of one run that is resumed again and again; what it was charged is recomputed."""
    plan = ff.Plan(
        task="regression",
        rounds=rounds,
        cohort=2,
        delta=1e-5,
        noise_multiplier=2e3,
        population="people",
        mechanism="independent",
        participation={"scheme": "min-separation", "separation": 1},
        evaluate_every=rounds,
        accept_noise=True,
    )
    moments[:] = [first, *others]
    reached, run = list[int](), ""
    for _ in range(1 + len(others)):
        simulate = partial(ff.simulate, resume=run) if run else partial(ff.simulate, plan, budget=50)
        with pytest.raises(Interrupted, check=coded("interrupted", "ff.simulate")) as stopped:
            simulate(ledger=root, progress=False)
        found = re.search(r"resume='(\w+)'", str(stopped.value))
        assert found is not None
        run = found[1]
        with Ledger.open(f"sqlite:///{root}/ledger.sqlite3") as ledger:
            view = ledger.run(run)
        assert view.state == "interrupted"
        reached.append(view.next_round)
    assert reached == sorted(reached)
    with Ledger.open(f"sqlite:///{root}/ledger.sqlite3") as ledger:
        assert verify(ledger, root, recompute=recharge).ok, "what is charged is what the rounds cost"
    return reached


@pytest.mark.parametrize("place", ["the nodes are made", "the nodes are met"])
def test_one_before_the_first_round_leaves_a_run_that_goes_on(
    place: str, tmp_path: Path, moments: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it was a bare `KeyboardInterrupt`, and this process went on holding the run."""
    owner: Any = simulation if place == "the nodes are made" else FieldfareStrategy
    name = "simulated_nodes" if place == "the nodes are made" else "_meet"
    real = getattr(owner, name)

    def arrange() -> None:
        def pressed(*arguments: Any, **keywords: Any) -> Any:
            monkeypatch.setattr(owner, name, real)
            press()
            time.sleep(0.01)
            return real(*arguments, **keywords)

        monkeypatch.setattr(owner, name, pressed)

    reached = interrupt(tmp_path, moments, 1.5, [arrange, 0.7], rounds=100_000)
    assert reached[0] == reached[1] < reached[2]


@pytest.mark.slow
def test_fifty_at_random_moments(tmp_path: Path, moments: list[Any]) -> None:
    draw = random.Random(7)
    reached = interrupt(tmp_path, moments, 3.0, [draw.uniform(0.0, 0.9) for _ in range(49)], rounds=1_000_000)
    assert reached[-1] > reached[0]
