"""Some seeds of the simulator, each with its own crashes, pauses and lost disks: no promise of the ledger breaks."""

from __future__ import annotations

import os
import time

import pytest

from simulator.history import simulate

SEEDS, ROUNDS, SECONDS = range(16), 120, 400.0


@pytest.mark.parametrize("seed", SEEDS)
def test_no_seed_breaks_a_promise(seed: int) -> None:
    told = simulate(seed, ROUNDS, SECONDS)
    assert not told.violation, f"python -m simulator --seed {seed} --rounds {ROUNDS} --simulated {SECONDS}"
    assert told.rounds >= ROUNDS or told.seconds >= SECONDS


def test_no_calm_and_long_history_breaks_a_promise() -> None:
    told = simulate(200, 300, SECONDS, hazard=0.02)
    assert not told.violation, f"python -m simulator --seed 200 --rounds 300 --simulated {SECONDS} --hazard 0.02"
    assert told.rounds >= 300


@pytest.mark.parametrize("seed", range(100, 104))
def test_no_seed_breaks_a_promise_of_calendar_windows(seed: int) -> None:
    told = simulate(seed, 60, SECONDS, windows=True)
    assert not told.violation, f"python -m simulator --windows --seed {seed} --rounds 60 --simulated {SECONDS}"
    assert any("begin in a" in text and text.endswith(": yes") for _, _, text in told.history)


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, again = simulate(7, 20), simulate(7, 20)
    assert first.history == again.history
    assert first.log == again.log


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_seeds_for_minutes() -> None:
    seconds, seed = float(os.environ.get("FIELDFARE_SIMULATED_SECONDS", "240")), 1000
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert not simulate(seed, 200).violation, f"python -m simulator --seed {seed} --rounds 200"
        seed += 1
