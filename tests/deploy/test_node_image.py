"""The example of a task in a separate package: announced, trained in a federation, and silent about its patients."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.task import Task, load_task
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.run.session import Session
from support.federation import home
from support.refusals import coded
from support.visits import CLINIC, write_visits

IMAGE = Path(__file__).parents[2] / "deploy/node-image"
PACKAGE = tomllib.loads((IMAGE / "clinic/pyproject.toml").read_text())
TASK = PACKAGE["project"]["entry-points"]["fieldfare.tasks"]["clinic"]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CLINIC))


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """120 patients with 4 visits each."""
    path = write_visits(tmp_path / "visits.csv", range(120))
    monkeypatch.setenv("CLINIC_DATA", str(path))
    return path


def test_the_package_announces_a_task_that_the_wheel_holds() -> None:
    task = load_task(TASK)
    assert isinstance(task, Task)
    assert task.name == "clinic"
    (held,) = PACKAGE["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert held == TASK.split(":")[0] + ".py"
    assert (IMAGE / "clinic" / held).exists()


def test_the_server_makes_and_scores_the_model_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLINIC_DATA", "/nowhere")
    task = load_task(TASK)
    assert 0 <= task.evaluate(task.build_model())["accuracy"] <= 1


@pytest.mark.usefixtures("visits")
def test_it_learns_in_a_federation(tmp_path: Path) -> None:
    plan = Plan.parse(
        {
            "privacy": {"population": "people", "noise_multiplier": 0.5, "delta": 1e-5},
            "run": {"task": TASK, "rounds": 6, "cohort": 40, "min_reports": 30},
            "participation": {"scheme": "min-separation", "separation": 3, "max_participations": 2},
            "mechanism": {"kind": "nu", "nu": 0.1},
            "server_optimizer": {"kind": "sgd", "learning_rate": 3.0},
            "client": {"epochs": 1, "batch_size": 4, "learning_rate": 1.0},
        }
    )
    session = Session.begin(home(tmp_path, epsilon=500.0), plan, identity_is_stable=True)
    trace = run_here(session, local_grid(plan, 2), "clinic", quiet=True)
    assert len(trace.reports) == 6
    # A coin is right half of the time; the standard error of 1 000 made-up visits is 0.016.
    assert (trace.score or 0.0) > 0.75


def test_ids_of_two_clinics_do_not_collide(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = []
    for clinic in ("a/", "b/"):
        monkeypatch.setenv("CLINIC_NAME", clinic)
        named.append({int(name) for name in load_task(TASK).users().pseudonyms})
    assert len(named[0]) == len(named[1]) == 120
    assert not named[0] & named[1]


def test_a_bad_row_is_refused_without_quoting_it(visits: Path) -> None:
    visits.write_text(visits.read_text() + "P-9999,old,1,1,1\n")
    with pytest.raises(BadInput) as refused:
        load_task(TASK).users()
    assert "P-9999" not in str(refused.value)
    assert "old" not in str(refused.value)
    visits.unlink()
    with pytest.raises(BadInput, check=coded("bad-input", "CLINIC_DATA", "FileNotFoundError")):
        load_task(TASK).users()


def test_the_image_is_made_of_the_federations_image_and_has_the_package_where_python_looks() -> None:
    ours, base = (IMAGE / "Dockerfile").read_text(), (IMAGE.parent / "Dockerfile").read_text()
    version = re.search(r"PYTHON_IMAGE=\S+python:(3\.\d+)", base)
    assert version is not None
    assert f"/opt/fieldfare/lib/python{version[1]}/site-packages" in ours
    assert re.search(r"^ARG PYTHON_IMAGE=(\S+)", ours, re.M)[1] == re.search(r"^ARG PYTHON_IMAGE=(\S+)", base, re.M)[1]  # type: ignore[index]
    assert "USER" not in ours.replace("# ", ""), "it stays the user of the image below"
