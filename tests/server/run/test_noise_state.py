"""What checkpoints keep of the noise: in proportion to what it costs to make again, and resumed bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fieldfare import costing
from fieldfare.errors import BadInput, CheckpointError
from fieldfare.mechanisms import Mechanism, registry
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files import strategies
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.strategies import StrategyError
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round import noise_state
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded

RUN = "kept"
ROUNDS = 12
RECURSIONS: list[dict[str, Any]] = [
    {"kind": "blt", "buffers": 2},
    {"kind": "banded", "bands": 3},
    {"kind": "nu", "nu": 0.1},
    {"kind": "blt", "buffers": 2, "restart_every": 8},
    {"kind": "tree", "estimator": "online"},
]
WINDOWS: list[dict[str, Any]] = [
    {"kind": "independent"},
    {"kind": "tree", "estimator": "plain"},
    {"kind": "banded-inverse", "bands": 3},
]


ROUNDED: list[dict[str, Any]] = [
    {"kind": "dense"},
    {"kind": "dense", "engine": "memory"},
    {"kind": "dense", "restart_every": 5},
    {"kind": "tree", "estimator": "full"},
    {"kind": "tree", "estimator": "full", "restart_every": 8},
    {"kind": "fft"},
    {"kind": "spectral", "eigenvalues": [1.0, 0.1], "learning_rate": 0.2, "engine": "replay"},
    {"kind": "spectral", "eigenvalues": [1.0, 0.1], "learning_rate": 0.2, "window": 4},
    {"kind": "momentum-tree", "momentum": 0.8, "variant": "proportional"},
    {"kind": "decaying", "shape": "geometric"},
]
"""Kinds whose numbers come from libraries that round in their own way on each processor."""


def rounding_otherwise(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """As on a processor where every number that a stream multiplies by comes out `by` larger, relatively."""

    def build(*arguments: Any) -> Mechanism:
        mechanism = registry.build(*arguments)
        return mechanism.applying({name: each * (1 + by) for name, each in mechanism.applied().items()})

    monkeypatch.setattr(costing, "build", build)


@pytest.fixture
def proportions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the model were large: no state is small, and four rows are many."""
    monkeypatch.setattr(noise_state, "SMALL", -1)
    monkeypatch.setattr(noise_state, "MOST_ROWS", 4)


def begin(state: StateDirectory, mechanism: dict[str, Any], **changes: Any) -> Session:
    limits = {"scheme": "min-separation", "separation": 3, "max_participations": 4}
    changes = {"run__rounds": ROUNDS, "participation": limits, "mechanism": mechanism, **changes}
    return Session.begin(state, plan(**changes), identity_is_stable=True, run_id=RUN)


def rounds(session: Session, count: int) -> None:
    with session:
        strategy, grid = FieldfareStrategy(session), LyingGrid(1)
        for _ in range(count):
            assert strategy.run_round(grid)


def model(session: Session) -> torch.Tensor:
    return session.params.clone()


def begun_twice(folder: Path, mechanism: dict[str, Any], done: int) -> tuple[Session, Session, StateDirectory]:
    """The session of a run that was never broken off, that of the same run after `done` rounds, and its home."""
    uninterrupted, state = begin(home(folder / "whole"), mechanism), home(folder / "broken")
    rounds(uninterrupted, ROUNDS)
    began = begin(state, mechanism)
    rounds(began, done)
    return uninterrupted, began, state


def resume(state: StateDirectory) -> Session:
    return Session.resume(state, RUN, identity_is_stable=True)


def require_whole(state: StateDirectory) -> None:
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
    assert report.ok, str(report.fault)


def told(state: StateDirectory) -> list[tuple[Any, ...]]:
    """What the ledger says of each round: where two runs differ, this says since when."""
    with Ledger.open(state.ledger) as ledger:
        return [(r.index, r.attempt, r.state, r.participants, r.statistics) for r in ledger.rounds(RUN).items]


def kept(state: StateDirectory) -> list[list[str]]:
    """Names of the noise's tensors in each checkpoint."""
    folder = state.root / RUN / "checkpoints"
    return [[name for name in load_file(path) if name.startswith("noise.")] for path in folder.iterdir()]


@pytest.mark.parametrize("mechanism", RECURSIONS + WINDOWS, ids=str)
def test_resumed_after_every_round_it_is_the_same_run(
    mechanism: dict[str, Any], tmp_path: Path, proportions: None
) -> None:
    uninterrupted, session, state = begun_twice(tmp_path, mechanism, 1)
    for _ in range(ROUNDS - 1):
        session = resume(state)
        rounds(session, 1)
    assert told(state) == told(StateDirectory.of(tmp_path / "whole" / "home"))
    np.testing.assert_equal(session.cost.mechanism.applied(), uninterrupted.cost.mechanism.applied())
    assert torch.equal(model(session), model(uninterrupted))
    assert kept(state) == [[], []]
    states = list((state.root / RUN / "noise").glob("*"))
    assert len(states) <= 2
    assert mechanism in RECURSIONS or not (state.root / RUN / "noise").exists()
    require_whole(state)


@pytest.mark.parametrize("mechanism", RECURSIONS, ids=str)
def test_a_whole_state_is_written_once_in_so_many_rounds(
    mechanism: dict[str, Any], tmp_path: Path, proportions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = RunFiles.write_noise

    def note(files: RunFiles, round: int, *rest: Any) -> str:
        written.append(round)
        return write(files, round, *rest)

    monkeypatch.setattr(RunFiles, "write_noise", note)
    state = home(tmp_path)
    rounds(begin(state, mechanism), ROUNDS)
    assert written in ([5, 10], [5])  # round 10 is within four rows of the restart at round 8
    assert (written == [5]) == ("restart_every" in mechanism or "estimator" in mechanism)


@pytest.mark.parametrize("mechanism", ROUNDED, ids=str)
def test_on_another_processor_the_noise_goes_on_with_the_numbers_that_it_began_with(
    mechanism: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted, began, state = begun_twice(tmp_path, mechanism, 5)
    rounding_otherwise(monkeypatch, 2.0**-50)
    resumed = resume(state)
    rounds(resumed, ROUNDS - 5)
    assert began.cost is not None
    assert resumed.cost is not None
    before, after = began.cost.mechanism, resumed.cost.mechanism
    assert (after.noising_matrix(ROUNDS) == before.noising_matrix(ROUNDS)).all()
    assert {name: each.tobytes() for name, each in after.applied().items()} == {
        name: each.tobytes() for name, each in before.applied().items()
    }
    assert torch.equal(model(resumed), model(uninterrupted))
    require_whole(state)


@pytest.mark.parametrize("mechanism", ROUNDED, ids=str)
def test_noise_of_another_matrix_is_refused(
    mechanism: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home(tmp_path)
    rounds(begin(state, mechanism), 5)
    with monkeypatch.context() as another:
        rounding_otherwise(another, 1e-6)
        with pytest.raises(StrategyError, check=coded("strategy-error")):
            resume(state)
    if mechanism["kind"] == "fft":
        return  # its checkpoints name the size of its circulant matrix
    # Whatever a strategy's file says: the checkpoint's noise is that of one matrix, to the last bit.
    decode = strategies._decode
    monkeypatch.setattr(strategies, "_decode", lambda array: decode(array) * (1 + 1e-6))
    with pytest.raises((CheckpointError, BadInput), check=lambda error: error.code in ("checkpoint-error", "differs")):
        resume(state)


def test_under_nonces_a_state_is_tied_to_those_before_it(tmp_path: Path, proportions: None) -> None:
    """Without a seed each round has its nonce, and a resumed run knows more of them than its whole state."""
    state = home(tmp_path)
    session = begin(state, RECURSIONS[0], run__noise_seed=None)
    rounds(session, 8)
    stream = session.rounds.running_noise.stream
    assert stream is not None
    resumed = resume(state)
    again = resumed.rounds.running_noise.stream
    assert again is not None
    assert again.position() == stream.position()
    assert torch.equal(again.state_dict()["buffers"], stream.state_dict()["buffers"])
    assert list(resumed.rounds._nonces or ()) == list(session.rounds._nonces or ())
    rounds(resumed, ROUNDS - 8)
    require_whole(state)


def test_checkpoints_that_hold_the_state_are_still_read(
    tmp_path: Path, proportions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, state = home(tmp_path / "whole"), home(tmp_path / "old")
    uninterrupted = begin(whole, RECURSIONS[0])
    rounds(uninterrupted, ROUNDS)
    with monkeypatch.context() as older:
        older.setattr(noise_state, "SMALL", 1 << 30)
        older.setattr(noise_state, "MOST_ROWS", -1)
        rounds(begin(state, RECURSIONS[0]), 7)
    assert kept(state) == [["noise.buffers"]] * 2
    session = resume(state)
    rounds(session, ROUNDS - 7)
    assert torch.equal(model(session), model(uninterrupted))


def test_a_lost_or_changed_state_is_named(tmp_path: Path, proportions: None) -> None:
    state = home(tmp_path)
    rounds(begin(state, RECURSIONS[0]), 7)
    (path,) = (state.root / RUN / "noise").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        fault = verify(ledger, state.root, recompute=recharge).fault
    assert "noise state" in str(fault)
    with pytest.raises(CheckpointError, check=coded("noise-state-missing")):
        resume(state)


def test_states_are_destroyed_with_the_run(tmp_path: Path, proportions: None) -> None:
    state = home(tmp_path)
    session = begin(state, RECURSIONS[0])
    rounds(session, 7)
    assert len(list((state.root / RUN / "noise").iterdir())) == 1
    session = resume(state)
    with session:
        FieldfareStrategy(session).start(LyingGrid(1))
    assert not list((state.root / RUN / "noise").iterdir())
    require_whole(state)
