"""A node with training workers answers what a node without them answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from fieldfare_client import app as client_app
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan


def trained(root: Path, nodes: int, task: str = "support.federation:TinyTask", **client: object) -> torch.Tensor:
    root.mkdir()
    clip = {"kind": "adaptive-quantile", "norm": 0.3}  # another norm in every round
    # One worker unless said: after two seconds, which a busy machine takes, others would be tried.
    settings = {"batch_size": 3, "epochs": 2, "learning_rate": 0.1, "workers": 1, **client}
    a_plan = plan(run__rounds=4, run__task=task, clipping=clip, client=settings)
    with Session.begin(home(root), a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(nodes, task=task))
    return session.params


def test_workers_nodes_and_engines_give_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # also where there is one core: this is not about speed
    monkeypatch.setenv("FIELDFARE_DEVICE", "cpu")
    expected = trained(tmp_path / "one", 1)
    try:
        for name, nodes, client in (
            ("loop", 2, {"engine": "loop"}),
            ("batched", 3, {"engine": "batched"}),
            ("loop in workers", 2, {"workers": 2, "engine": "loop"}),
        ):
            assert client_app._POOL._workers is None
            torch.testing.assert_close(trained(tmp_path / name, nodes, **client), expected, rtol=1e-4, atol=1e-5)
        pool = client_app._POOL._workers
        assert pool is not None
        assert len(pool._processes) == 2
        assert pool.alive
    finally:
        client_app._POOL.close()
    assert not pool.alive


@pytest.mark.parametrize("nodes", [1, 2])
def test_workers_train_the_users_who_are_asked_of_a_table_that_is_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("FIELDFARE_DEVICE", "cpu")
    task = "support.federation:SelectedTask"
    expected = trained(tmp_path / "one", nodes, task)
    try:
        model = trained(tmp_path / "workers", nodes, task, workers=2)
        assert client_app._POOL._workers is not None
    finally:
        client_app._POOL.close()
    torch.testing.assert_close(model, expected, rtol=1e-4, atol=1e-5)


def test_a_node_runs_no_more_workers_than_it_has_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    trained(tmp_path / "one", 1, workers=256)
    assert client_app._POOL._workers is None
