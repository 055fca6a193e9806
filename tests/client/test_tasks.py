"""Bundled tasks, how they are found, and what is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import GROUP, Task, load_task, task_names
from fieldfare_client.check import check_task
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.tasks.flights import FEATURES, FlightsMLPTask, FlightsTask, features, load, read_csv
from fieldfare_client.tasks.scores import auc
from fieldfare_client.tasks.split import by_hash, by_labels
from fieldfare_server.run.pricing import price, price_with_model
from fieldfare_server.run.round.task_model import TaskModel
from support.refusals import Coded, coded

SAMPLE = Path(__file__).parents[1] / "data" / "flights_sample.csv"
HEADER = "year,month,day,arr_delay,carrier,tailnum,origin,dest,distance,hour"


def test_tasks_are_found_by_name_and_by_reference() -> None:
    assert {"digits", "flights"} <= set(task_names())
    assert isinstance(load_task("digits"), DigitsTask)
    assert isinstance(load_task("flights-mlp"), FlightsMLPTask)
    assert isinstance(load_task("fieldfare_client.tasks.digits:DigitsTask"), DigitsTask)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("flihgts", coded("unknown-task", "flights")),
        ("no such", coded("unknown-task", "'no such'")),
        ("../etc/passwd", coded("unknown-task", "passwd")),
        ("nowhere_at_all:Task", coded("unknown-task", "nowhere_at_all")),
        ("fieldfare_client.tasks.digits:DigitTask", coded("task-attribute", "digits:DigitsTask")),
        ("fieldfare_client.tasks.digits:CLASSES", coded("not-a-task", "int")),
        (":x", coded("task-reference", "package.module:attribute")),
        ("..x:y", coded("task-unimportable", "package.module:attribute")),
    ],
)
def test_an_unknown_task_is_refused_with_the_nearest(name: str, what: Coded) -> None:
    with pytest.raises(BadInput, check=what):
        load_task(name)


def test_a_price_refuses_an_unknown_task_by_its_own_code_and_once() -> None:
    """It was wrapped as a bad model: the code of any bad input, and its words twice."""
    plan = Plan(task="digits", epsilon=1, delta=1e-5, rounds=4, cohort=2)
    plan = plan.model_copy(update={"run": plan.run.model_copy(update={"task": "flihgts"})})
    with pytest.raises(BadInput, check=coded("unknown-task", "flights")) as refused:
        price_with_model(plan)
    assert str(refused.value).count("run.task") == 1


@pytest.fixture
def flights(tmp_path: Path) -> FlightsTask:
    return FlightsTask(SAMPLE, tmp_path, held_out_users=8)


def test_flights_come_from_the_csv_and_then_from_the_cache(tmp_path: Path) -> None:
    read = load(SAMPLE, tmp_path)
    assert (tmp_path / "flights.npz").is_file()
    cached = load(SAMPLE, tmp_path)
    assert np.array_equal(read.pseudonyms, cached.pseudonyms)
    assert np.array_equal(read.offsets, cached.offsets)
    assert all(np.array_equal(read.columns[name], cached.columns[name]) for name in read.columns)


@pytest.mark.parametrize("junk", [b"", b"PK\x03\x04 not a zip", b"\x80\x04]\x94."])
def test_a_broken_cache_is_read_again_from_the_source(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "flights.npz").write_bytes(junk)
    assert len(load(SAMPLE, tmp_path)) == 30


def test_a_cache_of_another_source_is_not_used(tmp_path: Path) -> None:
    load(SAMPLE, tmp_path)
    other = tmp_path / "other.csv"
    other.write_text(f"{HEADER}\n2013,1,1,20,UA,N1,EWR,ORD,719,6\n")
    assert len(load(other, tmp_path)) == 1


def test_an_unwritable_cache_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(load(SAMPLE, tmp_path / "file")) == 30


def test_flights_that_never_arrived_and_unknown_aircraft_are_left_out() -> None:
    lines = [
        HEADER,
        "2013,1,1,16,UA,N1,EWR,ORD,719,6",
        "2013,1,1,NA,UA,N1,EWR,ORD,719,6",
        "2013,1,1,3,UA,,EWR,ORD,719,6",
    ]
    aircraft, columns = read_csv(lines)
    assert aircraft.tolist() == ["N1"]
    assert columns["y"].tolist() == [1]


def test_another_schema_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "flights.csv")):
        read_csv(["a,b", "1,2"])


def test_features_are_89_and_unlisted_values_have_none() -> None:
    _, columns = read_csv([HEADER, "2013,6,1,16,UA,N1,EWR,ORD,1000,19", "2013,1,1,15,ZZ,N1,XXX,XXX,2000,2"])
    inputs = features(torch.from_numpy(columns["code"]), torch.from_numpy(columns["distance"]))
    assert inputs.shape == (2, FEATURES) == (2, 89)
    assert inputs[0, :-2].sum() == 6
    assert inputs[1, :-2].sum() == 2, "month and weekday"
    assert inputs[:, -2:].tolist() == [[0.0, 0.5], [1.0, 0.0]]
    assert columns["y"].tolist() == [1, 0]


def test_held_out_aircraft_are_never_trained_on(flights: FlightsTask) -> None:
    everyone = load(SAMPLE, flights.cache)
    kept = everyone.pseudonyms[by_hash(everyone.pseudonyms, 8)]
    assert len(flights.users()) == 22
    assert not np.isin(kept, flights.users().pseudonyms).any()


@pytest.mark.parametrize(
    "task", [FlightsTask(SAMPLE, Path("/nonexistent"), 8), DigitsTask()], ids=["flights", "digits"]
)
def test_a_task_scores_its_model_reproducibly(task: Task) -> None:
    scores = task.evaluate(task.build_model())
    assert task.score_name in scores
    assert scores == task.evaluate(task.build_model())
    for ours, again in zip(task.build_model().parameters(), task.build_model().parameters(), strict=True):
        assert torch.equal(ours, again)


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    task = DigitsTask()
    known = {(*p.astype(int).tolist(), int(y)) for p, y in zip(pixels, labels, strict=True)}
    seen = {(*p.tolist(), int(y)) for p, y in zip(*task.users().columns.values(), strict=True)}
    test = task._test
    assert test is not None
    seen |= {(*(16 * p).int().tolist(), int(y)) for p, y in zip(*test, strict=True)}
    assert seen == known


def test_auc_is_the_share_of_pairs_in_order() -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.integers(0, 6, 40), generator.integers(0, 2, 40)
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[labels == 1] for b in scores[labels == 0]]
    assert auc(torch.from_numpy(scores), torch.from_numpy(labels)) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert np.isnan(auc(torch.zeros(3), torch.ones(3)))
    assert np.isnan(auc(torch.tensor([np.nan, 1.0]), torch.tensor([0.0, 1.0])))


@pytest.mark.parametrize("concentration", [None, 0.1, 100.0])
def test_split_deals_every_row_to_one_user(concentration: float | None) -> None:
    labels = np.repeat(np.arange(10), 50)
    owner = by_labels(labels, 20, concentration, np.random.default_rng(0))
    assert owner.shape == (500,)
    assert np.isin(owner, np.arange(20)).all()
    mixed = np.array([np.bincount(labels[owner == user], minlength=10) for user in range(20)])
    if concentration is None:
        assert (mixed.sum(1) == 25).all()
    else:
        spread = mixed.std() / mixed.mean()
        assert spread > 2 if concentration == 0.1 else spread < 0.5


def test_every_bundled_task_is_announced_and_found_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    monkeypatch.setattr("fieldfare.task.entry_points", lambda group: ())
    for name, reference in project["entry-points"][GROUP].items():
        task = load_task(name)
        assert (task.name, type(task)) == (name, type(load_task(reference)))
        assert task.held_out
        assert task.score_name


@pytest.mark.parametrize(
    "reference",
    [
        *("digits", "digits?hidden=7", "flights", "flights-mlp", "flights-mlp?hidden=3", "regression?dimensions=5"),
        *("cifar10", "fashion", "fashion?model=%22cnn-small%22", "stackoverflow"),
    ],
)
def test_a_stated_schema_is_that_of_the_model(reference: str) -> None:
    task = load_task(reference)
    assert vars(type(task))["known_schema"](task) == Schema.of(task.build_model())


class WiderDigits(DigitsTask):
    """A subclass that builds another model than the one whose schema it inherits."""

    built = 0

    def build_model(self) -> torch.nn.Module:
        WiderDigits.built += 1
        return torch.nn.Linear(64, 10)


def test_a_schema_that_is_inherited_is_not_believed() -> None:
    name = f"{__name__}:WiderDigits"
    terms = {"epsilon": 8, "delta": 1e-5, "population": "people"}
    price(Plan.parse({"privacy": terms, "run": {"task": name, "rounds": 4, "cohort": 2}, "mechanism": {"kind": "nu"}}))
    assert WiderDigits.built


class Stale(DigitsTask):
    """Its model was changed and its stated schema was not: prices would be those of the smaller model."""

    def build_model(self) -> torch.nn.Module:
        return torch.nn.Linear(64, 4000)

    def known_schema(self) -> Schema:
        return Schema.of_layers(64, 10)


@pytest.mark.parametrize(("begun", "code"), [(TaskModel, "task-schema"), (check_task, "faulty")])
def test_a_stated_schema_of_another_model_trains_nothing(begun: Callable[[str], object], code: str) -> None:
    with pytest.raises(BadInput, check=coded(code, "known_schema()", "650", "260,000")):
        begun(f"{__name__}:Stale")
