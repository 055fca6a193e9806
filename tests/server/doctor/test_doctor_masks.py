"""`fieldfare doctor --node` of a node that sends masked sums: what it has is fine, what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldfare.masking.boxes import write_key
from fieldfare.plan import Plan
from fieldfare_client.blinder import Blinder
from fieldfare_client.budget.charges import create
from fieldfare_client.masking import make_node_key
from fieldfare_server.cli.doctor_masks import check_blinder, check_masks
from fieldfare_server.run.pricing import blinder_noise_of
from support.federation import home

KEY = write_key(bytes(32))
PLAN = """
[privacy]
population = "people"
noise_multiplier = 2.0
delta = 1e-5
[run]
task = "support.federation:TinyTask"
rounds = 4
cohort = 6
[mechanism]
kind = "independent"
[aggregation]
{}
"""


def states(config: str, plan: Plan | None = None) -> dict[str, str]:
    return {finding.check: finding.state for finding in check_masks(config, plan)}


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    line = home(tmp_path).head_file.read_text().strip()
    file = tmp_path / "budget.toml"
    file.write_text(f'[populations.clinics]\nhead = "{line}"\nepsilon = 8.0\ndelta = 1e-5\n')
    return file


def test_a_node_that_is_set_up_is_fine(tmp_path: Path, budget: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").write_text("ab" * 32 + "  our.fab\n")
    monkeypatch.setenv("FIELDFARE_CODE", str(tmp_path / "code"))
    monkeypatch.setenv("FIELDFARE_BUDGET", str(budget))
    public = make_node_key(tmp_path / "sign")
    config = f'task="clinic" blinder="{KEY}" node-key="{tmp_path / "sign"}"'
    assert states(config)["budget"] == "fault"  # no file of charges yet
    create(tmp_path / "charges.sqlite3", tmp_path / "charges.sqlite3.mark")
    assert set(states(config).values()) == {"ok"}
    said = " ".join(finding.said for finding in check_masks(config))
    assert public in said
    assert KEY[-8:] in said


def test_what_is_missing_is_named(tmp_path: Path, budget: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIELDFARE_CODE", "FIELDFARE_BUDGET"):
        monkeypatch.delenv(name, raising=False)
    assert states('task="clinic"') == {}  # it sends no masked sums
    assert states('blinder="ffb1:00"') == {
        "blinder": "fault",
        "node-key": "fault",
        "code": "warning",
        "budget": "warning",
    }
    (tmp_path / "code").write_text("# none\n")
    budget.write_text("populations = 1\n")
    monkeypatch.setenv("FIELDFARE_CODE", str(tmp_path / "code"))
    monkeypatch.setenv("FIELDFARE_BUDGET", str(budget))
    assert states("") == {"code": "fault", "budget": "fault"}  # what is set is read, also where nothing is masked
    make_node_key(tmp_path / "sign")
    (tmp_path / "sign").chmod(0o644)
    found = states(f'blinder="{KEY}" node-key="{tmp_path / "sign"}"')
    assert found == {"blinder": "ok", "node-key": "fault", "code": "fault", "budget": "fault"}
    monkeypatch.setenv("FIELDFARE_CODE", str(tmp_path / "nowhere"))
    assert states(f'blinder="{KEY}"')["code"] == "fault"


def test_the_blinder_says_whom_it_would_answer(tmp_path: Path) -> None:
    opened = Blinder(tmp_path / "at")
    table = f'kind = "masked"\nleast_nodes = 2\nblinder = "{opened.public_key}"\nblinder_noise = 0.5'
    named = Plan.from_toml(PLAN.format(table))

    def found(plan: Plan = named, at: str = "at") -> dict[str, str]:
        return {finding.check: finding.state for finding in check_blinder(tmp_path / at, plan)}

    approved = f"plan {named.digest()[:12]}"
    assert found() == {"blinder": "ok", "key": "ok", approved: "fault"}
    assert found(at="elsewhere") == {"blinder": "fault"}
    noise = blinder_noise_of(named, 4)
    assert noise is not None
    opened.limit(1e-3, 1e-6)
    opened.approve(named.digest(), 2, 4, noise)
    assert found() == {"blinder": "ok", approved: "warning", "key": "ok"}  # no room
    opened.limit(1e3, 1e-6)
    assert found()[approved] == "fault"  # nobody is admitted
    opened.admit({"ffn1:" + "ab" * 32: "a", "ffn1:" + "cd" * 32: "b"})
    assert set(found().values()) == {"ok"}
    assert states(f'blinder="{opened.public_key}"', named)["key"] == "ok"
    assert states(f'blinder="{KEY}"', named)["key"] == "fault"
    assert found(Plan.from_toml(PLAN.format('kind = "plain"')))["key"] == "fault"
