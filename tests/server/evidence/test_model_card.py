"""A model's directory for hubs loads in a process that has no Fieldfare, and says what the ledger says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import Result
from torch import nn
from typer.testing import CliRunner

from fieldfare.plan import Plan
from fieldfare.task import seeded
from fieldfare_server.cli.application import application
from fieldfare_server.evidence.model_card import _in_torch
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan

ALONE = """
import importlib.util, sys
sys.meta_path.insert(0, type("No", (), {{"find_spec": staticmethod(
    lambda name, *rest: (_ for _ in ()).throw(ImportError(name)) if name.startswith("fieldfare") else None)}}))
{code}
assert not any(name.startswith("fieldfare") for name in sys.modules)
print(repr(sum(float(value.double().sum()) for value in model.state_dict().values())))
"""


class Pretrained(TinyTask):
    """A model of transformers: two trained layers inside what `AutoModel` loads."""

    def build_model(self) -> nn.Module:
        transformers = pytest.importorskip("transformers")
        with seeded(self.seed):
            config = transformers.BertConfig(
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=1,
                intermediate_size=8,
                vocab_size=11,
                max_position_embeddings=8,
            )
            return transformers.BertModel(config)  # type: ignore[no-any-return]


class Grid(LyingGrid):
    def __init__(self, task: str) -> None:
        super().__init__(2)
        for context in self._contexts.values():
            context.run_config = {"task": task}


def model(*arguments: Any) -> Result:
    return CliRunner().invoke(application, ["model", *map(str, arguments)])


def alone(directory: Path) -> float:
    """The sum of all weights, from the card's own Python in a process without Fieldfare."""
    code = (directory / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE.format(code=code)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.splitlines()[-1])


def test_the_card_loads_without_fieldfare_and_says_what_the_ledger_says(tmp_path: Path) -> None:
    where = home(tmp_path)
    with Session.begin(where, plan(run__noise_seed=None), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2))
    run, card = session.account.id, tmp_path / "card"
    made = model(run, "--format", "hub", "--out", card, "--home", where.root, "--json")
    assert made.exit_code == 0, made.output
    names = {path.name for path in card.iterdir()}
    assert names == {
        "README.md",
        "model.safetensors",
        "plan.toml",
        "statement.md",
        "statement.json",
        "certificate.json",
    }
    assert alone(card) == pytest.approx(float(session.params.double().sum()))
    text = (card / "README.md").read_text()
    assert "not trained on" in text
    assert "people who were not" not in text  # a task may score on images that nobody has
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["library_name"] == "pytorch"
    assert "license" not in front  # nobody said one
    with Ledger.open(where.ledger) as ledger:
        series, view = ledger.round_series(run, points=2), ledger.run(run)
        assert privacy_statement(ledger, run, where.root).summary in text
    (metric,) = front["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == series[-1].statistics["score"]
    assert Plan.from_toml((card / "plan.toml").read_text()).digest() == view.plan_digest
    assert f"plan `{view.plan_digest}`" in text
    assert json.loads((card / "certificate.json").read_text())["run"]
    assert json.loads((card / "statement.json").read_text())
    with Session.begin(where, plan(), identity_is_stable=True) as seeded_run:
        pass
    public = model(seeded_run.account.id, "--format", "hub", "--out", tmp_path / "no", "--home", where.root, "--json")
    assert "not private" in json.loads(public.stdout)["why"]
    assert not (tmp_path / "no").exists()
    taken = model(run, "--format", "hub", "--out", card, "--home", where.root)
    assert taken.exit_code == 2


@pytest.mark.slow
def test_a_model_of_transformers_loads_with_from_pretrained(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    where, task = home(tmp_path), f"{__name__}:Pretrained"
    with Session.begin(where, plan(run__task=task, run__noise_seed=None), identity_is_stable=True) as session:
        pass
    ended = ["abandon", session.account.id, "--reason", "test", "--home", str(where.root)]
    assert CliRunner().invoke(application, ended).exit_code == 0
    card = tmp_path / "card"
    made = model(session.account.id, "--format", "hub", "--out", card, "--home", where.root)
    assert made.exit_code == 0, made.output
    initial = Pretrained().build_model().state_dict()
    expected = sum(float(value.double().sum()) for value in initial.values())
    assert alone(card) == pytest.approx(expected)
    assert yaml.safe_load((card / "README.md").read_text().split("---\n")[1])["library_name"] == "transformers"


def test_only_pytorchs_own_layers_are_written_as_code() -> None:
    class Own(nn.Module):
        pass

    stack = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 1, bias=False)))
    text = _in_torch(stack)
    assert text is not None
    assert text.startswith("nn.Sequential(nn.Flatten(start_dim=1, end_dim=-1), nn.Linear(in_features=4")
    assert _in_torch(nn.Sequential(nn.Linear(2, 2), Own())) is None
    stack.register_buffer("scale", torch.ones(2))
    assert _in_torch(stack) is None


@pytest.mark.parametrize("layer", [nn.Conv2d(1, 2, 3, padding="same"), nn.Conv2d(1, 2, 3, padding_mode="circular")])
def test_a_layer_that_does_not_show_itself_as_python_is_no_code(layer: nn.Module) -> None:
    """The card said `padding=same`, which ends with a NameError."""
    assert _in_torch(nn.Sequential(nn.Tanh(), layer)) is None
    assert _in_torch(nn.Conv2d(1, 2, 3, padding=1)) is not None
