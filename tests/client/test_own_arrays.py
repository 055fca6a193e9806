"""`ff.private` for models that are plain arrays: no PyTorch on the node, any framework, many users."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from packaging.requirements import Requirement
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import fieldfare as ff
from fieldfare.errors import BadInput, Refused
from fieldfare_client.own_randomness import own_randomness, python_generators
from fieldfare_client.private.local_arrays import LocalArrays
from support import without_torch
from support.refusals import Coded, coded


def test_a_node_without_pytorch_sums_clipped_updates_of_numpy_and_scikit_learn() -> None:
    """Also in a virtual environment of its own, there with JAX and Keras: benchmarks/results/versions.md."""
    script = Path(without_torch.__file__)
    done = subprocess.run(
        [sys.executable, str(script), "numpy", "sklearn"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "numpy: 4 parameters\nsklearn: 4 parameters\n"


BARE = """
import sys
sys.modules.update(dict.fromkeys(("torch", "scipy", "sklearn")))
sys.path.insert(0, sys.argv[1])
from support import without_torch
without_torch.require_sums("numpy")
print(*{name.partition(".")[0] for name, module in sys.modules.items() if module})
"""


def test_a_node_loads_and_installs_what_flower_brings_and_one_small_package() -> None:
    """Without SciPy, which was a third of its megabytes: benchmarks/results/versions.md has the sizes."""
    brought = brought_by("flwr") | {"threadpoolctl"}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {Requirement(line).name for line in project["dependencies"] + project["optional-dependencies"]["node"]}
    assert wanted <= brought
    command = [sys.executable, "-c", BARE, str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    owners = metadata.packages_distributions()
    loaded = {normal(owner) for name in done.stdout.split()[3:] for owner in owners.get(name, ())}
    assert {"numpy", "flwr", "pydantic"} < loaded
    assert loaded <= brought | {"fieldfare", "setuptools"}  # the environment's own, by a .pth file


def brought_by(name: str) -> set[str]:
    """Names of all packages that `pip install NAME` installs, `name` among them."""
    found, open_ = set[str](), [name]
    while open_:
        each = normal(open_.pop())
        if each not in found:
            found.add(each)
            needs = [Requirement(line) for line in metadata.requires(each) or ()]
            open_ += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def start(tmp_path: Path, build: Any, train: Any, **keywords: Any) -> Any:
    app, _ = without_torch.node(build, train)
    strategy = ff.PrivateStrategy(
        epsilon=8.0,
        delta=1e-5,
        cohort=3,
        clip=0.5,
        mechanism="independent",
        population="people",
        budget=20.0,
        participation={"scheme": "min-separation", "separation": 1, "max_participations": 2},
        dialect="cohort",
        home=tmp_path / "home",
        **keywords,
    )
    built = build()
    arrays = ArrayRecord(built) if isinstance(built, list) else ArrayRecord({n: _array(v) for n, v in built.items()})
    return strategy.start(ff.LocalGrid(app, 1, {}), arrays, num_rounds=2, train_config=ConfigRecord({"lr": 0.1}))


def _array(value: Any) -> Any:
    from flwr.app import Array

    return Array(np.asarray(value))


@pytest.mark.parametrize("framework", ["numpy", "sklearn", "keras"])
def test_a_private_run_over_plain_arrays_ends_with_a_model_of_their_names_and_types(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if framework == "keras":
        monkeypatch.setenv("KERAS_BACKEND", "jax")
        pytest.importorskip("keras", reason="needs keras, which no other test does: `pip install keras`")
        pytest.importorskip("jax", reason="Keras computes with JAX here")
    build, train = without_torch.LOOPS[framework]()
    result = start(tmp_path, build, train)
    built = build()
    before = built if framework == "numpy" else {str(place): value for place, value in enumerate(built)}
    after = {name: array.numpy() for name, array in result.arrays.items()}
    assert {n: (v.dtype, v.shape) for n, v in after.items()} == {n: (v.dtype, v.shape) for n, v in before.items()}
    assert all((after[name] != before[name]).any() for name in after if name != "classes")
    if framework == "numpy":
        assert (after["classes"] == before["classes"]).all()
    elif framework == "sklearn":
        model = LogisticRegression()
        model.classes_, (model.coef_, model.intercept_) = np.array([0, 1]), after.values()
        assert set(model.predict(without_torch.rows("anna")[0])) <= {0, 1}


def forget_to_return(model: Any, user: str, context: Any, config: dict[str, Any]) -> None:
    model[0] += 1.0


def another_shape(model: Any, user: str, context: Any, config: dict[str, Any]) -> list[Any]:
    return [np.zeros((2, 3)), model[1]]


def also_metrics(model: Any, user: str, context: Any, config: dict[str, Any]) -> Any:
    """As `fit` of Flower's NumPyClient returns them."""
    return model, 20, {"loss": 0.5}


def one_more(model: Any, user: str, context: Any, config: dict[str, Any]) -> list[Any]:
    return [*model, np.zeros(2)]


@pytest.mark.parametrize("loop", [forget_to_return, another_shape, also_metrics, one_more])
def test_a_loop_that_returns_no_such_arrays_costs_nothing(loop: Any, tmp_path: Path) -> None:
    build, _ = without_torch.sklearn_loop()
    with pytest.raises(Refused, check=coded("nothing-committed", "run")):
        start(tmp_path, build, loop)
    with ff.Ledger.open(f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}") as ledger:
        assert ledger.population("people").spent_epsilon == 0


class Booster:
    """Of a module that is named as XGBoost's is."""


Booster.__module__ = "xgboost.core"


@pytest.mark.parametrize(
    ("built", "says"),
    [
        (Booster(), coded("trees", "what ff.private.train(build) builds")),
        (RandomForestClassifier(), coded("trees", "what ff.private.train(build) builds", "RandomForestClassifier")),
        ([np.zeros(9, np.uint8)], coded("trees", "ff.private.train(build)")),
        (
            LogisticRegression(),
            coded("wrong-form", "ff.private.train(build)", "LogisticRegression", "model.coef_", "model.intercept_"),
        ),
        ([np.array(["a"])], coded("wrong-form", "ff.private.train(build)")),
        (5, coded("wrong-form", "ff.private.train(build)")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_no_vector_is_refused_by_name(built: Any, says: Coded) -> None:
    with pytest.raises(BadInput, check=says):
        LocalArrays(built, rebuild=False)


def test_rebuilding_arrays_would_do_nothing_and_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("conflict", "ff.private.train(build, rebuild=True)")):
        LocalArrays([np.zeros(3)], rebuild=True)


def test_what_a_user_does_to_the_arrays_is_not_there_for_the_next() -> None:
    local = LocalArrays({"w": np.zeros(2), "seen": np.zeros(1, np.int64)}, rebuild=False)
    point = {"w": np.ones(2, np.float32)}
    first = local.load(point)
    first["w"] += 5.0
    first["seen"] += 1
    again = local.load(point)
    assert again["w"].tolist() == [1.0, 1.0]
    assert again["w"].dtype == np.float64
    assert again["seen"].tolist() == [0]
    update = np.empty(2, np.float32)
    local.read(point, update, first)
    assert update.tolist() == [5.0, 5.0]


def test_the_generator_of_keras_is_seeded_for_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lasts as long as the process: what one user draws from it would move what the next one gets."""
    seeds: list[int] = []
    keras = ModuleType("keras")
    keras.utils = SimpleNamespace(set_random_seed=seeds.append)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keras", keras)
    for key in (2**40 + 1, 7, 7):
        with own_randomness(key):
            pass
    assert seeds == [(2**40 + 1) % 2**32, 7, 7]


def test_no_training_is_tried_out_in_a_process_forked_from_one_with_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has threads, and a forked process waits for them for ever."""
    _, handler = without_torch.node(*without_torch.numpy_loop())
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    with pytest.raises(BadInput, check=coded("unsupported", "this process")):
        ff.private.check(handler, without_torch.IDS, config={"lr": 0.1})


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.PCG64])
def test_every_draw_from_a_generator_of_the_process_is_seen(kind: type[np.random.BitGenerator]) -> None:
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(kind(3))
    try:
        for draw in (random.random, np.random.rand, lambda: np.random.randint(7)):
            before = python_generators()
            assert before == python_generators()
            draw()
            assert before != python_generators()
    finally:
        np.random.set_bit_generator(usual)
