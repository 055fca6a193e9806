"""A run keeps the map from bits to floats with which it began: its noise source says which."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fieldfare.noise import Map
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger, NewRun
from fieldfare_server.ledger.state import formats
from fieldfare_server.run import session as sessions
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

RUN = "kept"
CONVERTED = "aes-256-ctr-box-muller"


def rounds(session: Session, count: int) -> torch.Tensor:
    with session:
        strategy, grid = FieldfareStrategy(session), LyingGrid(1)
        for _ in range(count):
            assert strategy.run_round(grid)
        return session.params.clone()


def begin(state: StateDirectory, map_: Map, monkeypatch: pytest.MonkeyPatch) -> Session:
    """With `map_` 2: as a converted run goes on."""
    with monkeypatch.context() as before:
        if map_ == 2:
            before.setattr(sessions, "NewRun", lambda *a, **b: NewRun(*a, **{**b, "noise_source": CONVERTED}))
            before.setattr(Session.__init__, "__defaults__", (*(Session.__init__.__defaults__ or ())[:-1], 2))
        return Session.begin(state, plan(), identity_is_stable=True, run_id=RUN)


@pytest.mark.parametrize("map_", [2, 3])
def test_a_resumed_run_draws_by_its_own_map(tmp_path: Path, map_: Map, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = rounds(begin(home(tmp_path / "straight"), map_, monkeypatch), 4)
    state = home(tmp_path / "broken")
    rounds(begin(state, map_, monkeypatch), 2)
    resumed = Session.resume(state, RUN, identity_is_stable=True)
    assert resumed.noise.map == map_
    assert torch.equal(rounds(resumed, 2), straight)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        assert formats.noise_map(ledger.run(RUN).noise_source) == map_
        report = verify(ledger, state.root, recompute=recharge)
    assert report.ok, str(report.fault)


def test_each_source_has_its_map_and_its_nonces() -> None:
    sources = ("aes-256-ctr", "philox-4x32-10", "seeded", CONVERTED)
    assert [formats.noise_map(source) for source in sources] == [3, 3, 3, 2]
    assert [formats.has_nonces(source) for source in sources] == [True, True, False, False]
