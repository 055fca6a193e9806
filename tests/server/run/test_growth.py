"""What a round costs does not grow with the rounds before it: counts of bytes, rows and calls, never times."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare_client.app import _hosted
from fieldfare_server import faults
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, home, plan

RUN = "long"


def private(rounds: int, **changes: Any) -> Any:
    """A plan whose rounds have nonces, of users who take part in every round."""
    turns = {"scheme": "min-separation", "separation": 1}
    return plan(
        run__noise_seed=None, run__rounds=rounds, participation=turns, privacy__noise_multiplier=50.0, **changes
    )


def begin(state: StateDirectory, rounds: int, **changes: Any) -> Session:
    return Session.begin(state, private(rounds, **changes), identity_is_stable=True, run_id=RUN)


def require_whole(state: StateDirectory) -> None:
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
    assert report.ok, str(report.fault)


def test_a_checkpoint_of_a_late_round_is_as_long_as_one_of_an_early_round(tmp_path: Path) -> None:
    """Each carried the nonces of all rounds before it: 36 bytes a round."""
    state, sizes = home(tmp_path), []
    grid = LyingGrid(1)
    with begin(state, 60) as session:
        strategy = FieldfareStrategy(session)
        for _ in range(60):
            assert strategy.run_round(grid)
            (newest,) = (state.root / RUN / "checkpoints").glob(f"{session.account.checkpoint}.*")
            sizes.append(newest.stat().st_size)
    # What differs is how many digits numbers have.
    assert max(sizes[50:]) - min(sizes[5:10]) < 200


def carry_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write checkpoints as older versions did: with the nonce of every round so far."""
    write, nonces = RunFiles.write, list[str]()

    def older(self: RunFiles, round: int, tensors: Any, meta: dict[str, Any]) -> str:
        newest = meta.pop("nonce")
        nonces[:] = [*nonces[:round], newest]
        return write(self, round, tensors, {**meta, "nonces": list(nonces)})

    monkeypatch.setattr(RunFiles, "write", older)


@pytest.mark.parametrize("point", ["", "checkpoint.pending", "checkpoint.promoting"])
def test_checkpoints_that_carry_all_nonces_are_read(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were committed, and one that a crash left before or after its charge."""
    state = home(tmp_path)
    with monkeypatch.context() as older:
        carry_all(older)
        with begin(state, 6) as session:
            strategy = FieldfareStrategy(session)
            for _ in range(2):
                assert strategy.run_round(LyingGrid(2))
            if point:
                faults.load({faults.VARIABLE: f"{point}:raise"})
                try:
                    with pytest.raises(faults.FaultInjected):
                        strategy.run_round(LyingGrid(2))
                finally:
                    faults.load({})
    with Session.resume(state, RUN, identity_is_stable=True) as session:
        assert session.next_round == (3 if point else 2)
        FieldfareStrategy(session).start(LyingGrid(2))
    require_whole(state)


def test_selection_costs_the_cohort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is known and available is worked out when it changes, and pseudonyms are sorted once: not in every round."""
    calls = Counter[str]()

    def counted(name: str) -> None:
        function = getattr(np, name)

        def count(*arguments: Any, **named: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_globals["__name__"].endswith("presence.roster") and np.size(arguments[0]) >= USERS:
                calls[f"{name} in {frame.f_code.co_name}"] += 1
            return function(*arguments, **named)

        monkeypatch.setattr(np, name, count)

    for name in ("argsort", "flatnonzero", "isin"):
        counted(name)
    state, grid = home(tmp_path), LyingGrid(3)
    with begin(state, 12) as session:
        strategy = FieldfareStrategy(session)
        assert strategy.run_round(grid)
        roster = session.cohorts.roster
        first = calls.copy()
        for _ in range(11):
            assert strategy.run_round(grid)
    assert calls == first
    assert calls["argsort in _users_of"] == 1
    assert roster.known() is roster.known()
    assert roster.known({2}) is roster.known([2])
    assert not set(roster.known({2})) & set(roster.by_node(roster.known())[2][0])


def test_a_node_looks_its_users_up_without_looking_at_the_others() -> None:
    """It gathered all pseudonyms in random order in every round."""
    node = _hosted("support.federation:TinyTask", 0, 1)
    asked = node.table.pseudonyms[[5, 0, 17]]
    untouched = dataclasses.replace(node, table=None)  # type: ignore[arg-type]
    assert untouched.find(asked).tolist() == [5, 0, 17]
    assert untouched.find(np.array([1, 2**64 - 1], np.uint64)).size == 0
