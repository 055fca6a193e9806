"""The recipe by which a page is made again with every look charged, on a small case."""

from __future__ import annotations

import importlib
import json
import math
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fieldfare as ff
from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.errors import Interrupted
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.pages import ROOT

TABLE: dict[str, Any] = {
    "privacy": {"population": "people", "epsilon": 8.0, "delta": 1e-4, "adjacency": "zero_out"},
    "run": {"task": "digits", "rounds": 2, "cohort": 40},
    "task": {"users": 120},
    "participation": {"scheme": "single"},
    "mechanism": {"kind": "independent"},
    "clipping": {"kind": "flat", "norm": 1.0},
    "client": {"epochs": 1, "batch_size": 16, "learning_rate": 0.1},
}


def test_every_look_is_charged_once_and_the_others_pay_for_the_final_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before trials, and before the final run; then the same command again goes on."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))
    charged = importlib.import_module("charged")
    recipe = charged.Recipe((), (), lambda *_: TABLE, lambda _: [0.01, 0.03], 0.3, 2.0, scales=True)

    def again() -> Any:
        return charged.made_again(TABLE, recipe, tmp_path / "home", 0.3, "accuracy", accept_delta=True)

    def stopped(*arguments: Any, **more: Any) -> Any:
        raise Interrupted("here")

    for step in ("tune", "simulate"):
        with monkeypatch.context() as patch:
            patch.setattr(ff, step, stopped)
            with pytest.raises(Interrupted):
                again()
    found = again()
    assert again() == found
    assert len(charged.runs_of(tmp_path / "home", asks=True)) == 1
    assert len(charged.runs_of(tmp_path / "home", asks=False)) == 3
    with Ledger.open(StateDirectory.of(tmp_path / "home").ledger) as ledger:
        plans = [ledger.run(each).plan for each in charged.runs_of(tmp_path / "home", asks=False)]
    tried = sorted(each["server_optimizer"]["learning_rate"] for each in plans[:2])
    # A trial's mean has sqrt(2) / 0.3 times the noise of the model that is kept.
    assert tried == pytest.approx([rate * 0.3 / math.sqrt(2) for rate in (0.01, 0.03)])
    assert plans[2]["server_optimizer"]["learning_rate"] == found["rate"]
    assert float(max(found["trials"], key=found["trials"].__getitem__)) == pytest.approx(found["rate"])
    own, look = gaussian_mu(8.0, 1e-4), gaussian_mu(2.0, 1e-4)
    share = gaussian_epsilon((own**2 + look**2) ** 0.5, 1e-4)
    assert found["epsilon of the others"] == pytest.approx(8.0, rel=1e-3)
    assert found["epsilon of the share"] == pytest.approx(share, rel=1e-3)
    assert found["epsilon of the user who spent most"] == pytest.approx(share, rel=1e-3)
    assert found["clip"] == pytest.approx(0.3 * found["median"][0], rel=1e-2)
    assert charged.verified(tmp_path / "home") > 5
    with sqlite3.connect(tmp_path / "home/ledger.sqlite3") as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE audit SET actor = 'nobody' WHERE id = 3")
    with pytest.raises(SystemExit):
        charged.verified(tmp_path / "home")


def test_a_score_is_taken_again_where_weights_or_poets_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))
    model, taken = torch.nn.Linear(1, 1), []

    def evaluate(task: Any, model: torch.nn.Module) -> dict[str, float]:
        taken.append((task.scored, float(model.weight.detach())))
        return {"nats": float(len(taken))}

    found = importlib.import_module("charged").once(evaluate)
    tune, test = (SimpleNamespace(scored=part, width=1, rank=4) for part in ("tune", "test"))
    told = [found(tune, model)["nats"], found(test, model)["nats"], found(tune, model)["nats"]]
    torch.nn.init.constant_(model.weight, 7.0)
    assert [*told, found(test, model)["nats"], found(test, model)["nats"]] == [1, 2, 1, 3, 3]
    assert taken[-1] == ("test", 7.0)


def lowest(run: dict[str, Any]) -> bool:
    """Whether the lowest rate was chosen."""
    return bool(run["rate"] == pytest.approx(min(map(float, run["trials"])), rel=1e-3))


def test_the_pages_say_what_the_rows_gave_that_were_made_again() -> None:
    stored = json.loads((ROOT / "benchmarks/results/charged.json").read_text())
    page, lora = (ROOT / "benchmarks/results/charged.md").read_text(), stored["lora"]
    base, rows = lora["base scores"], {label: each for label, (each,) in lora["rows"].items()}
    for row in (label.removesuffix(", epsilon 8") for label in rows if label.endswith(", epsilon 8")):
        cells = [rows[f"{row}, epsilon {epsilon}"]["scores"] for epsilon in (8, 4)]
        told = " | ".join(f"{each['nats']:.4f}, {each['accuracy']:.4f}" for each in cells)
        assert f"| {row} | {told} |" in page
    assert f"of {base['nats']:.4f} and {base['accuracy']:.4f}" in page
    gains = {label: base["nats"] - each["scores"]["nats"] for label, each in rows.items()}
    assert max(gains.values()) < 0.002
    assert sum(lowest(each) for each in rows.values()) == 11
    assert not lowest(rows["last layer norm, and bias, epsilon 4"])
    runs = [run for found in stored["poems"]["rows"].values() for run in found]
    for run in (*rows.values(), *runs):
        assert run["verified rows of the ledger"] > 100
        assert float(min(run["trials"], key=run["trials"].__getitem__)) == pytest.approx(run["rate"], rel=1e-3)
    assert max(gain for label, gain in gains.items() if label.endswith("4")) < 0
    most = [max(e["epsilon of the share"] for k, e in rows.items() if k.endswith(f" {epsilon}")) for epsilon in (8, 4)]
    up = [math.ceil(1e4 * each) / 1e4 for each in most]
    assert "No poet pays more than {:.4f} or {:.4f}".format(*up) in page
    assert "No poet pays more than {:.4f}, or {:.4f} at 4".format(*up) in (ROOT / "docs/evidence/index.md").read_text()
    headline = (ROOT / "docs/evidence/headline.md").read_text()
    uncharged = json.loads((ROOT / "benchmarks/results/claims/headline-poems-small.json").read_text())["cells"]
    made = stored["poems"]["rows"]
    for row in dict.fromkeys(label.partition(", epsilon")[0] for label in made):
        told = [(f"{row}, epsilon {epsilon}") for epsilon in (1, 2, 4, 8)]
        before = [f"{np.mean(uncharged[label]['scores']):.4f}" for label in told]
        after = [
            ", ".join(f"{e['scores']['nats']:.4f}" for e in made[label]) if label in made else "" for label in told
        ]
        cells = " | ".join(f"{a} / {b}" if b else a for a, b in zip(before, after, strict=True))
        assert f"| {row} | {cells} |" in headline
    means = {label: float(np.mean(uncharged[label]["scores"])) for label in made}
    assert all(each["scores"]["nats"] > means[label] for label, found in made.items() for each in found)
    start = stored["poems"]["base scores"]["nats"]
    assert [k for k, f in made.items() if any(e["scores"]["nats"] > start for e in f)] == ["independent, epsilon 1"]
    assert f"took the lowest of three rates in {sum(map(lowest, runs))} of {len(runs)} runs" in headline
    for epsilon in (1, 2, 4, 8):
        of_epsilon = [each for label, found in made.items() if label.endswith(f" {epsilon}") for each in found]
        most = max(each["epsilon of the share"] for each in of_epsilon)
        assert f"{math.ceil(1e4 * (most - 1e-9)) / 1e4:.4f}" in headline
        assert all(each["epsilon of the others"] < epsilon for each in of_epsilon)
