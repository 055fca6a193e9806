"""Flower's two examples of queries become private by two lines, the import and the exchange; `@app.query` stays.

They are rebuilt from their documented shape (`flower_shapes`), with small local data.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import fieldfare as ff
from fieldfare_server.evidence.looks import look
from support.shapes import copy_shape, importable  # noqa: F401  (a fixture)
from support.stranger import data_home, flwr_run, stranger

SPEND = "population='people', budget=2000, noise_multiplier=0.02"
CHANGED = {
    "pandas_histogram": (
        "aggregated_hist = aggregate_partial_histograms(grid.send_and_receive(messages))",
        "aggregated_hist = ff.ask({'kind': 'sums', 'entries': {'SepalLengthCm': 9, 'SepalWidthCm': 9}, 'high': 80, "
        f"'norm': 80}}, grid=grid, {SPEND})",
    ),
    "federated_analytics": (
        "aggregated_stats = aggregate_features(grid.send_and_receive(messages))",
        "aggregated_stats = ff.ask({'kind': 'sums', 'entries': {'age_sum': 1, 'age_count': 1}, 'high': 5000, "
        f"'norm': 5000}}, grid=grid, content=recorddict, {SPEND})",
    ),
}
"""The line with the exchange, and what takes its place. Little noise, so that the answer can be compared."""
NODES = 4


def made_private(name: str, work: Path) -> Path:
    package = copy_shape(name, work, "fraction-sample = 1.0\n")
    server = package / "server_app.py"
    before, after = CHANGED[name]
    text = server.read_text()
    assert text.count(before) == 1
    server.write_text(
        text.replace("app = ServerApp()", "import fieldfare as ff\napp = ServerApp()").replace(before, after)
    )
    return package.parent


def require_answer(name: str, url: str, nodes: int) -> None:
    """The answer is the charged one, and near what the nodes have: within 6 standard deviations."""
    with ff.Ledger.open(url) as ledger:
        (run,) = ledger.runs().items
        assert run.state == "done"
        assert run.spent_epsilon > 0
        answered = look(ledger, run.id)
    assert answered.users == nodes
    found = {each.name: each for each in answered.answer}
    if name == "pandas_histogram":
        assert sum(each.value or 0.0 for key, each in found.items() if "Length" in key) == pytest.approx(150, abs=29)
    else:
        # A user has 110 patients of 48.5 years, or more: 5 300, which counts as 5 000.
        assert found["age_sum"].value == pytest.approx(5_000 * nodes, rel=0.1)


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.usefixtures("importable")
def test_a_query_in_process(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "home"))
    made_private(name, tmp_path)
    client, server = (importlib.import_module(f"{name}.{half}_app").app for half in ("client", "server"))
    grid: Any = ff.LocalGrid(client, NODES, {"fraction-sample": 1.0})
    grid.run_app(server)
    require_answer(name, f"sqlite:///{tmp_path}/home/ledger.sqlite3", NODES)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.usefixtures("importable")
def test_a_query_under_flwr_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    app = made_private(name, tmp_path)
    with stranger(tmp_path / "account") as env:
        flwr_run(env, str(app))
    require_answer(name, f"sqlite:///{data_home(tmp_path / 'account')}/ledger.sqlite3", 2)
