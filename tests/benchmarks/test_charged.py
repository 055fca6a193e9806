"""The recipe by which a page is made again with every look charged, on a small case."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import fieldfare as ff
from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.errors import Interrupted
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

    def again() -> Any:
        return charged.made_again(TABLE, [0.01, 0.03], tmp_path / "home", 0.3, 2.0, accept_delta=True)

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
    own, look = gaussian_mu(8.0, 1e-4), gaussian_mu(2.0, 1e-4)
    share = gaussian_epsilon((own**2 + look**2) ** 0.5, 1e-4)
    assert found["epsilon of the others"] == pytest.approx(8.0, rel=1e-3)
    assert found["epsilon of the share"] == pytest.approx(share, rel=1e-3)
    assert found["epsilon of the user who spent most"] == pytest.approx(share, rel=1e-3)
    assert found["clip"] == pytest.approx(0.3 * found["median"][0], rel=1e-2)
