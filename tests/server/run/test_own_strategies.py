"""Strategies, schedules and models of one's own behind `PrivateStrategy`: honoured, or refused with the reason."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, FedXgbBagging, Krum

import fieldfare as ff
from fieldfare.errors import BadInput
from fieldfare_flower import private
from fieldfare_flower.run_configuration import run_configuration
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.private.base import Base
from support.flower_app import vector_app, vector_arrays
from support.refusals import Coded, coded


def make(home: Path, **changes: Any) -> ff.PrivateStrategy:
    given = {"epsilon": 8.0, "delta": 1e-5, "cohort": 3, "mechanism": "independent", "population": "p", "budget": 40.0}
    return ff.PrivateStrategy(**{**given, "home": home, "round_timeout": 5.0, **changes})


def plan_of(strategy: ff.PrivateStrategy, home: Path) -> dict[str, Any]:
    with Ledger.open(f"sqlite:///{home / 'ledger.sqlite3'}") as ledger:
        return dict(ledger.run(str(strategy.run_id)).plan)


def listening() -> tuple[ClientApp, list[dict[str, Any]]]:
    """An app that returns what it gets, and the configurations that it got."""
    app, seen = ClientApp(), []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        (config,) = message.content.config_records.values()
        (arrays,) = message.content.array_records.values()
        seen.append(dict(config))
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app, seen


# -- the run's configuration -------------------------------------------------------------------------------------------


def test_keys_of_the_run_configuration_are_read_without_being_handed_on(tmp_path: Path) -> None:
    """The documented two lines know nothing of `context.run_config`."""
    private = make(tmp_path, mechanism="nu")
    run_config = {"dp.epsilon": 1, "dp.mechanism.nu": 0.25, "dp.budget": 30.0, "lr": 0.1, "dp.run": ""}
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        private.start(grid, vector_arrays(), num_rounds=2)

    ff.LocalGrid(vector_app, 3, run_config).run_app(server)
    assert private.privacy_spent().epsilon == pytest.approx(1.0, rel=1e-6)
    assert plan_of(private, tmp_path)["mechanism"]["nu"] == 0.25
    # The next run of the object reads its own run's.
    private.start(ff.LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=2)
    assert private.privacy_spent().epsilon == pytest.approx(8.0, rel=1e-6)
    with pytest.raises(BadInput, check=coded("run-config-unknown", "dp.epsilom = 3")):
        private.start(ff.LocalGrid(vector_app, 3, {"dp.epsilom": 3}), vector_arrays(), num_rounds=2)


def test_what_is_handed_on_must_be_the_runs(tmp_path: Path) -> None:
    for given in ({"dp.epsilon": 4.0}, {}):
        private = make(tmp_path, run_config=given)
        with pytest.raises(BadInput, check=coded("wrong-form", "run-config dp.epsilon", "run_config")):
            private.start(ff.LocalGrid(vector_app, 3, {"dp.epsilon": 1}), vector_arrays(), num_rounds=1)
    assert not (tmp_path / "ledger.sqlite3").exists()


class Other(ff.LocalGrid):
    """A grid of an installed app that Flower runs."""

    run_config = None  # type: ignore[assignment]
    found: Any

    @property
    def run(self) -> Any:
        return self.found


def test_under_flower_the_installed_app_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("flwr.common.config")
    run = SimpleNamespace(fab_id="me/app", fab_version="1.0.0", fab_hash="0" * 64, override_config={"dp.epsilon": 2.0})
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    grid = Other(vector_app, 3)
    grid.found = run
    assert run_configuration(grid) is None
    with pytest.raises(BadInput, check=coded("wrong-form", "context.run_config")):
        make(tmp_path).start(grid, vector_arrays(), num_rounds=1)
    make(tmp_path / "told", run_config={}).start(grid, vector_arrays(), num_rounds=1)
    directory = config.get_project_dir(run.fab_id, run.fab_version, run.fab_hash)
    directory.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1.0.0"\n[tool.flwr.app]\npublisher = "me"\n'
        '[tool.flwr.app.components]\nserverapp = "a:b"\nclientapp = "a:c"\n'
        "[tool.flwr.app.config]\nlr = 0.5\n[tool.flwr.app.config.dp]\nepsilon = 7.0\ncohort = 2\n"
    )
    assert run_configuration(grid) == {"lr": 0.5, "dp.epsilon": 2.0, "dp.cohort": 2}
    strategy = make(tmp_path)
    strategy.start(grid, vector_arrays(), num_rounds=1)
    assert strategy.privacy_spent().epsilon == pytest.approx(2.0, rel=1e-6)
    monkeypatch.setattr(private, "find", lambda path: None)
    assert run_configuration(grid) is None
    grid.found = SimpleNamespace(fab_id="", override_config={})
    assert run_configuration(grid) == {}


# -- initial arrays ----------------------------------------------------------------------------------------------------


def test_copied_layers_are_a_question_and_train_apart(tmp_path: Path) -> None:
    def encoder() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 1, 4, batch_first=True), 2)

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        moved = {name: Array(value + np.float32(name.startswith("layers.1."))) for name, value in arrays.items()}
        return Message(RecordDict({"arrays": ArrayRecord(moved)}), reply_to=message)

    grid, arrays = ff.LocalGrid(app, 3), ArrayRecord(encoder().state_dict())
    with pytest.raises(BadInput, check=coded("copied-arrays", "'layers.0.self_attn.in_proj_weight' and 'layers.1")):
        make(tmp_path).start(grid, arrays, num_rounds=1)
    assert not (tmp_path / "ledger.sqlite3").exists()
    for answer in ({"tied": []}, {"model": encoder}):
        strategy = make(tmp_path, noise_multiplier=0.01, epsilon=None, budget=1e6, clip=12.0, **answer)
        state = strategy.start(grid, arrays, num_rounds=1).arrays.to_torch_state_dict()
        one, two = (state[f"layers.{layer}.linear1.weight"] for layer in (0, 1))
        assert float((two - one).mean()) == pytest.approx(1.0, abs=0.2)  # of noise: 1e-11


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_initial_values_that_are_not_finite_are_named_before_a_round(value: float, tmp_path: Path) -> None:
    arrays = ArrayRecord({"w": Array(np.array([1.0, value, 2.0], np.float32))})
    with pytest.raises(BadInput, check=coded("array-values", "'w'")):
        make(tmp_path).start(ff.LocalGrid(vector_app, 3), arrays, num_rounds=1)
    assert not list(tmp_path.iterdir())


def test_a_type_that_numpy_does_not_have_is_named_before_a_round(tmp_path: Path) -> None:
    arrays = ArrayRecord({"w": Array("bfloat16", (2,), "numpy.ndarray", b"\0" * 4)})
    with pytest.raises(BadInput, check=coded("array-unusable")):
        make(tmp_path).start(ff.LocalGrid(vector_app, 3), arrays, num_rounds=1)


# -- strategies of one's own -------------------------------------------------------------------------------------------


class Halving(FedAvg):
    """As in Flower's example advanced-pytorch: the rate is halved in place, and files are written."""

    def __init__(self, folder: Path, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.folder = folder

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round % 2 == 0:
            config["lr"] *= 0.5
        (self.folder / f"{server_round}.json").write_text(json.dumps([float(arrays["b"].numpy()[0]), config["lr"]]))
        return super().configure_train(server_round, arrays, config, grid)


def test_a_base_configures_every_round_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also a round that is tried again, as one is where a node's first reply is lost."""
    app, seen = listening()
    attempts: list[int] = []

    class Flaky(ff.LocalGrid):
        def answer(self, message: Message) -> Message:
            (config,) = message.content.config_records.values()
            attempts.append(int(config["server-round"]))
            if attempts.count(2) <= 3 and config["server-round"] == 2:
                return self.run_lost(message)
            return super().answer(message)

        def run_lost(self, message: Message) -> Message:
            from flwr.app import Error

            return Message(Error(5, "gone"), reply_to=message)

    base = Halving(tmp_path, arrayrecord_key="weights", configrecord_key="settings", fraction_evaluate=0.0)
    rounds: list[tuple[int, float, float]] = []

    def on_round(number: int, arrays: ArrayRecord, metrics: MetricRecord) -> None:
        rounds.append((number, float(arrays["b"].numpy()[0]), float(metrics["epsilon"])))

    strategy = make(tmp_path / "home", base=base, on_round=on_round, round_timeout=0.5)
    with caplog.at_level(logging.INFO, logger="flwr"):
        result = strategy.start(
            Flaky(app, 3), vector_arrays(), num_rounds=4, train_config=ConfigRecord({"lr": 1.0, "name": "x"})
        )
    rates = {entry["server-round"]: entry["lr"] for entry in seen}
    assert rates == {1: 1.0, 2: 0.5, 3: 0.5, 4: 0.25}
    assert attempts.count(2) == 6
    assert all(entry["name"] == "x" for entry in seen)
    saved = [json.loads((tmp_path / f"{number}.json").read_text()) for number in (1, 2, 3, 4)]
    # It sees the released models, and on_round sees each when it is committed.
    assert [value for value, _ in saved] == [0.5, *(value for _, value, _ in rounds[:3])]
    assert [number for number, *_ in rounds] == [1, 2, 3, 4]
    assert rounds[-1][1] == float(result.arrays["b"].numpy()[0])
    assert rounds[-1][2] == pytest.approx(8.0, rel=1e-6)
    assert not [record for record in caplog.records if "Sampled 2 nodes (out of 2)" in record.getMessage()]


class Tells(FedProx):
    def summary(self) -> None:
        logging.getLogger("flwr").info("mine says %s", self.fraction_train)
        super().summary()


def test_a_summary_of_ones_own_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The base's and the subclass's, as Flower's `start` does; FedAvg's lines on its sampling would be wrong."""

    class Mine(ff.PrivateStrategy):
        def summary(self) -> None:
            logging.getLogger("flwr").info("said by a subclass")
            super().summary()

    strategy = Mine(
        epsilon=8.0, delta=1e-5, cohort=3, population="p", budget=40.0, home=tmp_path, base=Tells(proximal_mu=0.25)
    )
    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy.start(ff.LocalGrid(vector_app, 3), vector_arrays(), num_rounds=1)
    said = [record.getMessage() for record in caplog.records]
    places = [
        next(i for i, line in enumerate(said) if words in line)
        for words in ("by a sub", "mine", "Proximal mu", "Cohort: 3")
    ]
    assert places == sorted(places)
    assert sum("Cohort: 3" in line for line in said) == 1
    assert not any("Fraction" in line for line in said)


def test_fedprox_is_kept_whole(tmp_path: Path) -> None:
    app, seen = listening()
    make(tmp_path, base=FedProx(proximal_mu=0.25)).start(ff.LocalGrid(app, 3), vector_arrays(), num_rounds=1)
    assert [entry["proximal-mu"] for entry in seen] == [0.25] * 3


class ReadsReplies(FedAvg):
    """As the strategies of Flower's flowertune-llm apps: it measures what clients send."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        return super().aggregate_train(server_round, list(replies))


class Evaluates(FedAvg):
    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return None


class Starts(FedAvg):
    """As advanced-pytorch: the loop of rounds written anew."""

    def start(self, *arguments: Any, **keywords: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (
            lambda: ReadsReplies(),
            coded("strategy-method", "ReadsReplies.aggregate_train", "test_own_strategies.py"),
        ),
        (lambda: Evaluates(), coded("strategy-method", "Evaluates.aggregate_evaluate")),
        (lambda: Starts(), coded("strategy-method", "Starts.start", "on_round")),
        (
            lambda: FedAdam(eta=0.2),
            coded(
                "base-aggregates",
                "base",
                "FedAdam",
                "server_optimizer",
                "'fedadam'",
                "'learning_rate'",
                "0.2",
                "'beta1'",
                "0.9",
            ),
        ),
        (
            lambda: FedAvgM(server_momentum=0.9),
            coded(
                "base-aggregates",
                "base",
                "server_optimizer",
                "'kind'",
                "'sgd'",
                "'learning_rate'",
                "1.0",
                "'momentum'",
                "0.9",
            ),
        ),
        (lambda: Krum(), coded("base-aggregates", "base")),
        (lambda: FedXgbBagging(), coded("trees", "base", "FedXgbBagging")),
        (lambda: FedAvg(fraction_train=0.25), coded("keyword-value", "base.fraction_train", "0.25")),
        (lambda: FedAvg(fraction_evaluate=0.5), coded("keyword-value", "base.fraction_evaluate", "0.5", "evaluate_fn")),
        (lambda: FedAvg(min_available_nodes=9), coded("keyword-value", "base.min_available_nodes")),
        (
            lambda: FedAvg(train_metrics_aggr_fn=lambda *a: MetricRecord()),
            coded("keyword-value", "base.train_metrics_aggr_fn"),
        ),
        (lambda: FedAvg, coded("base-not-fedavg", "base = FedAvg")),
        (lambda: "fedavg", coded("base-not-fedavg", "base = str", "FedAvg")),
    ],
)
def test_what_a_base_would_lose_is_refused_when_the_strategy_is_made(base: Any, says: Coded, tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=says):
        make(tmp_path, base=base())


def patched(**methods: Any) -> FedAvg:
    base = FedAvg()
    vars(base).update(methods)
    return base


def test_a_method_put_on_the_object_is_no_way_around(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("base-overrides", "base.aggregate_train (test_own")):
        make(tmp_path, base=patched(aggregate_train=lambda *a: (None, None)))


def test_nor_is_one_put_on_the_private_strategy(tmp_path: Path) -> None:
    strategy = make(tmp_path)
    strategy.aggregate_train = lambda *a: (None, None)  # type: ignore[method-assign]
    with pytest.raises(BadInput, check=coded("base-overrides", "PrivateStrategy.aggregate_train (test_own")):
        strategy.start(ff.LocalGrid(vector_app, 3), vector_arrays(), num_rounds=1)
    assert not list(tmp_path.iterdir())


class Asks(FedAvg):
    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        return grid.send_and_receive([])


class Moves(FedAvg):
    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        arrays["b"] = Array(arrays["b"].numpy() + 1)
        return super().configure_train(server_round, arrays, config, grid)


class Singles(FedAvg):
    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        own = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "only": 1})})
        return [*messages, Message(own, 2, "train")]


class Adds(FedAvg):
    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        messages[0].content["more"] = ConfigRecord({})
        return messages


class Acts(FedAvg):
    """Its app has `@app.train("other")`."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.metadata.message_type = "train.other"
        return messages


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Acts, coded("asks-otherwise", "Acts.configure_train, round 1", "'train.other'", "@app.train")),
        (Asks, coded("talks-to-nodes", "base.configure_train")),
        (Moves, coded("changes-arrays", "Moves.configure_train, round 1")),
        (Singles, coded("nodes-differ", "Singles.configure_train, round 1")),
        (Adds, coded("asks-with-other-records", "Adds.configure_train, round 1")),
    ],
)
def test_what_a_base_does_beside_configuring_is_refused_before_a_charge(
    kind: type[FedAvg], says: Coded, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, check=says):
        make(tmp_path, base=kind()).start(ff.LocalGrid(vector_app, 3), vector_arrays(), num_rounds=1)
    assert not list(tmp_path.iterdir())


def test_a_round_that_asks_nobody_is_refused(tmp_path: Path) -> None:
    base = Base(FedAvg())
    base._strategy.fraction_train = 0.0
    with pytest.raises(BadInput, check=coded("asks-no-node")):
        base.configure(1, vector_arrays(), ConfigRecord())


def test_a_subclass_whose_methods_would_never_be_called_is_refused_when_it_is_made() -> None:
    called = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
    for name in (*called, "_construct_messages", "_check_and_log_replies"):
        with pytest.raises(BadInput, check=coded("strategy-method", f"Mine.{name} (test_own_strategies.py:")):
            type("Mine", (ff.PrivateStrategy,), {name: lambda self, *arguments: None})

    class Mixin:
        def aggregate_train(self, *arguments: Any) -> None:
            """Of a class that came before."""

    with pytest.raises(BadInput, check=coded("strategy-method", "aggregate_train")):
        type("Mine", (Mixin, ff.PrivateStrategy), {})

    class Mine(ff.PrivateStrategy):
        """What is the user's own is called by the user, or by nobody."""

        def start(self, *arguments: Any, **keywords: Any) -> Any:
            return super().start(*arguments, **keywords)

        def save(self) -> None: ...

    assert Mine.__mro__[1] is ff.PrivateStrategy


def test_each_start_of_a_strategy_asks_its_base_anew(tmp_path: Path) -> None:
    """Round 1 of the second run was told what round 1 of the first was."""
    app, seen = listening()
    private = make(tmp_path, base=FedAvg(fraction_evaluate=0.0))
    for lr in (0.1, 0.2):
        private.start(ff.LocalGrid(app, 3, {}), vector_arrays(), num_rounds=1, train_config=ConfigRecord({"lr": lr}))
    assert [told["lr"] for told in seen] == [0.1] * 3 + [0.2] * 3
