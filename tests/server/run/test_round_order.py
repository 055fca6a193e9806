"""The order within a round: checkpoint, charge, promotion, release. And the coins of a round are that round's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fieldfare.errors import Interrupted
from fieldfare.noise import SecureNoise
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import JOINED_ONCE, LyingGrid, TinyTask, home, plan


def test_a_round_is_written_then_charged_then_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.begin(home(tmp_path), plan(), identity_is_stable=True)
    assert session.files is not None
    steps: list[tuple[str, int]] = []

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **named: Any) -> Any:
            steps.append((name, session.next_round))
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, step)

    watch(session.files, "write")
    watch(session.account, "commit_round")
    watch(session.files, "promote")
    with session:
        FieldfareStrategy(session).start(LyingGrid(2))
    # `next_round` is that of the model that can be seen: it moves after all three.
    assert steps == [(name, t) for t in range(6) for name in ("write", "commit_round", "promote")]


@pytest.mark.parametrize("groups", [False, True], ids=["one by one", "in groups"])
def test_what_a_score_that_fails_quotes_of_the_model_is_charged_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: bool
) -> None:
    """Its text went into error and ledger, the run ended without a charge, and the next one told the sum again."""

    def quotes(self: TinyTask, model: torch.nn.Module) -> dict[str, float]:
        raise ValueError(f"bias {float(model.state_dict()['0.bias'])!r}")

    monkeypatch.setattr(TinyTask, "evaluate", quotes)
    where = home(tmp_path, epsilon=200.0)
    run, released = "", []
    for number in (1, 2):
        begun = plan(**JOINED_ONCE, run__min_reports=4)
        session = Session.resume(where, run, True) if run else Session.begin(where, begun, identity_is_stable=True)
        run = session.account.id
        if groups:
            session.account.begin_groups()
        with pytest.raises(Interrupted, match="bias ") as told, session:
            FieldfareStrategy(session, released.append).start(LyingGrid(2))
        assert f"bias {float(session.params[-1])!r}" in str(told.value)
        with Ledger.open(where.ledger) as ledger:
            view = ledger.run(run)
            assert (view.next_round, view.state) == (number, "interrupted")
            assert view.spent_epsilon > 0
            assert ledger.rounds(run).items[-1].statistics["score"] is None
    assert [(report.round, report.score) for report in released] == [(0, None), (1, None)]
    with Session.resume(where, run, True) as session:  # its last round is charged and shown: only its end is left
        FieldfareStrategy(session).start(LyingGrid(2))
    assert session.ended


def test_poisson_coins_are_secret_and_of_this_round_and_attempt_only(monkeypatch: pytest.MonkeyPatch) -> None:
    poisson = {"scheme": "poisson", "rate": 0.25}
    session = Session.rehearse(plan(participation=poisson, run__min_reports=None), noise=False)
    users = session.account.register_users(np.arange(400, dtype=np.uint64))
    real, drawn = SecureNoise.uniform, []

    def uniform(noise: SecureNoise, n: int, *, row: int, stream: str) -> Any:
        drawn.append((row, stream))
        return real(noise, n, row=row, stream=stream)

    monkeypatch.setattr(SecureNoise, "uniform", uniform)
    cohorts = [session.cohorts.select(t, users, voids) for t, voids in ((0, 0), (3, 0), (3, 1))]
    assert drawn == [(0, "select"), (3, "select"), (3, "select.1")]
    for cohort, (row, stream) in zip(cohorts, drawn, strict=True):
        coins = real(session.noise, 400, row=row, stream=stream)
        assert cohort.tolist() == np.flatnonzero(coins + 2.0**-53 <= 0.25).tolist()


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_under_add_remove_the_clip_norm_does_not_follow_the_number_of_reports(adjacency: str) -> None:
    poisson = {"scheme": "poisson", "rate": 0.25}
    adaptive = {"kind": "adaptive-quantile", "norm": 0.5}
    changes = {"participation": poisson, "run__min_reports": None, "clipping": adaptive}
    rounds = Session.rehearse(plan(**changes, privacy__adjacency=adjacency), noise=True).rounds
    noised = torch.tensor([2.0 * rounds.clipping.indicator_weight], dtype=torch.float64)
    assert (rounds._step_clip(noised, 3) == rounds._step_clip(noised, 9)) == (adjacency == "add_remove")
