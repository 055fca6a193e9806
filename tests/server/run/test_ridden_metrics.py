"""Metrics that ride in a run: noised with the updates, charged with them, shown with their intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fieldfare.errors import BadInput
from fieldfare.metrics import MetricsSpec, Riders
from fieldfare.questions import Estimate
from fieldfare.schema import Schema
from fieldfare_client import private
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.users import UserTable
from fieldfare_flower.local_grid import assume_task_identity
from fieldfare_flower.messages import Occasion, TrainReply
from fieldfare_flower.npy import BadReply
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.replies import ReceivedReply
from fieldfare_server.run.private.plan import plan_from
from fieldfare_server.run.private.strategy import PrivateStrategy
from fieldfare_server.run.round.aggregation import Aggregate, Contribution
from fieldfare_server.run.round.attempt import Attempt
from fieldfare_server.run.round.dialects import PlainDialect, read_metrics, same_config
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.ridden import statistics_of
from fieldfare_server.run.round.roles import assign_roles
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, TinyTask, home, plan
from support.flower_app import vector_arrays
from support.refusals import Coded, coded

SHOW = {"show": {"share": [0, 1]}, "weight": 1.0}


class Shares(TinyTask):
    """Each user has one number, `share`: index / 23, whatever the model is."""

    measures: ClassVar[tuple[str, ...]] = ("share",)

    def users(self) -> UserTable:
        shares = np.repeat(np.arange(USERS) / (USERS - 1), 2).astype(np.float32)
        ids = np.repeat([f"user-{i:02d}" for i in range(USERS)], 2)
        return UserTable.grouped(ids, {"x": np.zeros((2 * USERS, 3), np.float32), "y": shares})

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return targets


NAME = "server.run.test_ridden_metrics:Shares" if __name__.startswith("server.") else f"{__name__}:Shares"


def everybody(rounds: int, window: int, **changes: Any) -> Any:
    """All users in each round, so that every window's mean is 1/2."""
    run = {"task": NAME, "rounds": rounds, "cohort": USERS, "min_reports": USERS, "noise_seed": 3}
    table = {"participation": {"scheme": "min-separation", "separation": 1}, "clipping": {"kind": "flat", "norm": 0.3}}
    return plan(run=run, metrics={**SHOW, "window": window}, **{**table, **changes})


def reports_of(a_plan: Any, *, noise: bool = True) -> list[RoundReport]:
    reports: list[RoundReport] = []
    with Session.rehearse(a_plan, noise=noise) as session:
        FieldfareStrategy(session, reports.append).start(LyingGrid(2, task=NAME))
    return reports


def test_without_noise_a_window_shows_the_mean_of_those_who_took_part() -> None:
    for report in reports_of(everybody(3, 2), noise=False):
        share = report.metrics["share"]
        assert (share.value, share.low, share.high) == pytest.approx((0.5, 0.5, 0.5), abs=1e-6)


@pytest.mark.parametrize("mechanism", [{"kind": "nu", "nu": 0.1}, {"kind": "independent"}], ids=str)
def test_the_interval_holds_the_mean_in_95_of_100_windows(mechanism: dict[str, Any]) -> None:
    """200 windows of 3 rounds that do not overlap; the noise is seeded, so the test has no chance in it."""
    window, count = 3, 200
    a_plan = everybody(window * count, window, mechanism=mechanism, privacy__noise_multiplier=8.0)
    shown = [report.metrics["share"] for report in reports_of(a_plan)][window - 1 :: window]
    inside = [float(each.low or 0.0) <= 0.5 <= float(each.high or 0.0) for each in shown]
    assert len(shown) == count
    assert 0.92 <= np.mean(inside) <= 0.98
    assert np.std([each.value for each in shown]) > 0.02, "there is noise"


def test_the_statistics_of_a_committed_round_have_them_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    state, a_plan = home(tmp_path), everybody(6, 4, run__noise_seed=None, privacy__noise_multiplier=8.0)
    reports: list[RoundReport] = []
    with Session.begin(state, a_plan, identity_is_stable=True) as session:
        run = session.account.id
        strategy, grid = FieldfareStrategy(session, reports.append), LyingGrid(2, task=NAME)
        for _ in range(3):
            strategy.run_round(grid)
        session.rounds.commits.commit_held()
        kept = session.rounds.commits.released.metrics
    with Session.resume(state, run, identity_is_stable=True) as session:
        assert session.rounds.commits.released.metrics == kept
        assert len(kept) == 3
        FieldfareStrategy(session, reports.append).take_to_end(LyingGrid(2, task=NAME))
    with Ledger.open(state.ledger) as ledger:
        rows = [row.statistics for row in ledger.rounds(run, 0).items]
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok
    for row, report in zip(rows, reports, strict=True):
        share = report.metrics["share"]
        assert (row["metric.share"], row["metric.share.low"], row["metric.share.high"]) == (
            share.value,
            share.low,
            share.high,
        )


def test_a_run_whose_task_lacks_the_measure_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    state, a_plan = home(tmp_path), everybody(2, 2, metrics__show={"f1": [0, 1]})
    with pytest.raises(BadInput, check=coded("unknown", "metrics.show.f1")):
        Session.begin(state, a_plan, identity_is_stable=True)
    with Ledger.open(state.ledger) as ledger:
        assert not ledger.runs().items


# -- what nodes send ---------------------------------------------------------------------------------------------------

SCHEMA = Schema(("w",), ((2,),))
OCCASION = Occasion("run", 0, 1)


@pytest.mark.parametrize("count", [2.5, -2.5, float("nan"), float("inf")])
def test_a_cohort_cannot_claim_more_than_one_a_user(count: float) -> None:
    reply = TrainReply(OCCASION, {"w": np.zeros(2, np.float32)}, 2, (count,)).write()
    with pytest.raises(BadReply):
        TrainReply.read(reply, SCHEMA, OCCASION, 2, 0, 1)
    assert TrainReply.read(
        TrainReply(OCCASION, {"w": np.zeros(2, np.float32)}, 2, (-2.0,)).write(), SCHEMA, OCCASION, 2, 0, 1
    ).counts == (-2.0,)


def metrics_of(**records: Any) -> tuple[float, ...]:
    spec = MetricsSpec.model_validate({"show": {"acc": [0, 1], "loss": [0, 4]}})
    return read_metrics(spec, RecordDict({name: MetricRecord(values) for name, values in records.items()}))


def test_metrics_of_a_plain_reply_are_cut_and_what_is_hostile_is_zero() -> None:
    assert metrics_of(metrics={"acc": 0.75, "loss": 1, "num-examples": 3}) == (0.5, -0.5)
    assert metrics_of(metrics={"acc": 1e300, "loss": -(2**60)}) == (1.0, -1.0)
    assert metrics_of(metrics={"acc": float("nan"), "loss": 10**400}) == (0.0, 0.0)
    assert metrics_of(metrics={"acc": float("-inf"), "loss": [4.0, 4.0]}) == (0.0, 0.0)
    assert metrics_of(metrics={"acc": 1.0}, more={"acc": 1.0, "loss": 4.0}) == (0.0, 1.0), "told twice: not told"
    assert metrics_of() == (0.0, 0.0)


def flower_app(nodes: int) -> LocalGrid:
    """Nodes of one user each, whose training replies with the model as it came and an accuracy of 1."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: Array(array.numpy()) for name, array in message.content["arrays"].items()}
        metrics = MetricRecord({"accuracy": 1.0, "num-examples": 7})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    return LocalGrid(app, nodes, {})


def showing(home: Path, noise_multiplier: float, *names: str) -> PrivateStrategy:
    """Return a strategy that shows these metrics between 0 and 1, with as much noise as on an update."""
    return PrivateStrategy(
        noise_multiplier=noise_multiplier,
        delta=1e-5,
        cohort=4,
        clip=1.0,
        mechanism="independent",
        population="clinics",
        budget=1e3,
        home=home,
        metrics={"show": {name: [0, 1] for name in names}, "weight": 1.0},
    )


def test_a_flower_app_shows_what_its_training_replies(tmp_path: Path) -> None:
    strategy = showing(tmp_path, 1.0, "accuracy")
    result = strategy.start(flower_app(4), vector_arrays(), num_rounds=5)
    shown = result.train_metrics_clientapp[5]
    # The noise of the mean of 20 reports has a standard deviation of sqrt(5) sqrt(2) / 20 / 2 = .08.
    assert shown["metric.accuracy"] > 0.5, "6 standard deviations: no chance in a billion"
    # All three are cut off at 1: once in forty runs the whole interval of a mean of 1 lies above it.
    assert shown["metric.accuracy.low"] <= shown["metric.accuracy"] <= shown["metric.accuracy.high"] <= 1.0


def test_a_metric_that_no_client_tells_is_said_to_be_like_one_and_no_reply_is_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`accuracy` is told as 1 by everybody, `acuracy` by nobody: in 95 of 100 runs its interval holds the middle."""
    strategy = showing(tmp_path, 0.2, "accuracy", "acuracy")
    with caplog.at_level("WARNING", logger="flwr"):
        result = strategy.start(flower_app(4), vector_arrays(), num_rounds=8)
    last = result.train_metrics_clientapp[8]
    like_none = last["metric.acuracy.low"] <= 0.5 <= last["metric.acuracy.high"]
    assert last.get("metric.acuracy.untold") == (1 if like_none else None)
    assert ("metric acuracy: " in caplog.text) == like_none
    assert "metric.accuracy.untold" not in last, "30 deviations"
    assert "metric accuracy: " not in caplog.text


@pytest.mark.parametrize(("low", "high", "flag"), [(0.4, 0.6, True), (0.5, 0.9, True), (0.51, 0.9, False)])
def test_the_flag_follows_from_the_released_interval_alone(low: float, high: float, flag: bool) -> None:
    spec = MetricsSpec.model_validate({"show": {"loss": [-1, 2]}})
    found = statistics_of({"loss": Estimate("loss", np.float64((low + high) / 2), low, high)}, spec)
    assert found.get("metric.loss.untold") == (1.0 if flag else None)
    assert {type(each) for each in found.values()} == {float}  # np.float64(...) stood in Flower's log
    assert len(found) == 3 + flag


# -- an app's own @app.evaluate ----------------------------------------------------------------------------------------

Evaluate = Callable[[int, float], RecordDict | None]
"""(partition, the value of the model's first number) -> the content of the reply; None: the ClientApp raises."""


def told(accuracy: Any) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({"eval_acc": accuracy, "num-examples": 7})})


def evaluating_app(evaluate: Evaluate, seen: list[Any] | None = None) -> ClientApp:
    """Training adds 1 to every number; its replies have an `eval_acc` of their own, which is not asked."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: Array(np.asarray(array.numpy() + 1)) for name, array in message.content["arrays"].items()}
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"eval_acc": 0.0})})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate_(message: Message, context: Context) -> Message:
        if seen is not None:
            seen.append(dict(message.content["config"]))
        (first, *_) = message.content["arrays"].values()
        content = evaluate(int(context.node_config["partition-id"]), float(first.numpy().flat[0]))
        if content is None:
            raise ValueError("of a user's data")
        return Message(content, reply_to=message)

    return app


def evaluated(home: Path, **changes: Any) -> PrivateStrategy:
    settings: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-5, "cohort": 4, "clip": 1.0, "home": home}
    settings |= {"mechanism": "independent", "population": "clinics", "budget": 90.0, "round_timeout": 5.0}
    settings |= {"metrics": {"show": {"eval_acc": [0, 1]}, "weight": 1.0}, "fraction_evaluate": 0.5}
    return PrivateStrategy(**{**settings, **changes})


def without_noise(evaluate: Evaluate, rounds: int = 2, nodes: int = 4, **run: Any) -> tuple[list[RoundReport], Session]:
    """Rounds of a Flower app with evaluation, without noise and ledger."""
    values = OwnModel.read(vector_arrays())
    keywords = {"noise_multiplier": 1.0, "delta": 1e-5, "cohort": 4, "clip": 1e9, "population": "p"} | run
    keywords |= {"mechanism": "independent", "metrics": {"show": {"eval_acc": [0, 1]}, "window": 1}}
    a_plan = plan_from(None, keywords, {}, rounds=rounds, nodes=4, evaluate=1.0)
    model = OwnModel(values, assign_roles(values))
    dialect = PlainDialect(model, same_config(ConfigRecord()))
    reports: list[RoundReport] = []
    session = Session.rehearse(a_plan, noise=False, model=model, dialect=dialect)
    FieldfareStrategy(session, reports.append).take_to_end(LocalGrid(evaluating_app(evaluate), nodes, {}))
    return reports, session


def test_an_untouched_evaluate_rides_before_training_on_the_model_that_was_sent() -> None:
    models: list[float] = []

    def evaluate(partition: int, first: float) -> RecordDict:
        models.append(first)
        return told((1.0, 0.5, 0.25, 0.25)[partition])

    reports, _ = without_noise(evaluate)
    assert [report.metrics["eval_acc"].value for report in reports] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert len(set(models[:4])) == 1
    assert models[4] == pytest.approx(models[0] + 1, abs=1e-6), "round 2 evaluates the model that round 1 released"


@pytest.mark.parametrize(
    ("hostile", "shown", "counted"),
    [
        (lambda: told(1e300), 1.0, {}),
        (lambda: told(-1e300), 0.0, {}),
        (lambda: told(float("nan")), 0.5, {}),
        (lambda: told([1.0, 1.0]), 0.5, {}),
        (lambda: None, 0.5, {"evaluation: error 2": 1}),
        # Whether a user has the metric is the user's: it is counted nowhere.
        (lambda: RecordDict(), 0.5, {}),
        (lambda: RecordDict({"m": MetricRecord({"other": 1.0})}), 0.5, {}),
    ],
    ids=["above", "below", "nan", "list", "raises", "nothing", "another name"],
)
def test_a_hostile_evaluation_is_one_reply_within_its_bounds(
    hostile: Callable[[], RecordDict | None], shown: float, counted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three users say 1/2, so whatever the fourth does moves the mean by at most 1/8."""
    kept: list[Counter[str]] = []
    add = Attempt.add

    def noting(self: Attempt, *arguments: Any) -> None:
        add(self, *arguments)
        kept.append(self.sum.rejects)

    monkeypatch.setattr(Attempt, "add", noting)
    reports, _ = without_noise(lambda partition, _: told(0.5) if partition else hostile(), rounds=1)
    assert reports[0].metrics["eval_acc"].value == pytest.approx((1.5 + shown) / 4, abs=1e-6)
    assert reports[0].reports == 4, "the update is summed"
    assert dict(kept[0]) == counted


def test_a_repeated_evaluation_counts_once_and_of_who_is_not_in_the_sum_not_at_all() -> None:
    assume_task_identity()
    spec = MetricsSpec.model_validate({"show": {"eval_acc": [0, 1]}, "evaluate": True})
    riders, users = Riders((1.0,), 0, 2.0), np.array([0])
    total = Aggregate(SCHEMA, OCCASION, 1.0, riders, reader=lambda content, sent: Contribution(1, (0.0,), zeros))
    messages = [Message(RecordDict(), node, kind) for kind in ("evaluate", "train") for node in (2, 3)]
    attempt = Attempt(None, [users, users + 1], messages, total, 2, metrics=spec)  # type: ignore[arg-type]

    def reply(slot: int | None, content: RecordDict) -> ReceivedReply:
        return ReceivedReply(slot, Message(content, reply_to=messages[slot or 0]))

    raised = Message(Error(2, "<class 'ValueError'>"), reply_to=messages[3])
    answers = [reply(0, told(1.0)), reply(None, told(1.0)), reply(2, RecordDict()), reply(1, told(1.0))]
    attempt.add([*answers, ReceivedReply(3, raised)], Failures("plain"), Failures("plain"))
    assert total.users == 1
    assert total.total[-1] == 1.0
    assert dict(total.rejects) == {"duplicate or stray reply": 1, "error 2": 1}


def zeros(position: int) -> Iterator[np.ndarray]:
    return iter([np.zeros(2)])


def test_a_run_that_is_full_waits_for_the_evaluations_of_whom_it_summed() -> None:
    """Replies of training come first: with over-selection the sum is full before any evaluation is there."""
    assume_task_identity()
    spec = MetricsSpec.model_validate({"show": {"eval_acc": [0, 1]}, "evaluate": True})
    total = Aggregate(
        SCHEMA, OCCASION, 1.0, Riders((1.0,), 0, 2.0), reader=lambda content, sent: Contribution(1, (0.0,), zeros)
    )
    messages = [Message(RecordDict(), node, kind) for kind in ("evaluate", "train") for node in (2, 3)]
    attempt = Attempt(None, [np.array([0]), np.array([1])], messages, total, 1, metrics=spec)  # type: ignore[arg-type]
    contents = {2: RecordDict(), 3: RecordDict(), 1: told(1.0), 0: told(0.75)}
    answers = iter(
        [ReceivedReply(slot, Message(content, reply_to=messages[slot])) for slot, content in contents.items()]
    )
    attempt.add(answers, Failures("plain"), Failures("plain"))
    assert (total.users, attempt.full, list(answers)) == (1, True, [])
    assert total.total[-1] == 0.5, "of the user in the sum, and of no other"


def test_an_app_with_its_own_evaluation_is_charged_as_without_and_fills_the_result(tmp_path: Path) -> None:
    seen: list[Any] = []
    app = evaluating_app(lambda partition, _: told(1.0), seen)
    strategy = evaluated(tmp_path)
    config = ConfigRecord({"batch": 5})
    result = strategy.start(LocalGrid(app, 4, {}), vector_arrays(), num_rounds=5, evaluate_config=config)
    shown = result.evaluate_metrics_clientapp[5]
    assert set(shown) == {"eval_acc", "eval_acc.low", "eval_acc.high"}
    assert shown["eval_acc"] > 0.5, "6 standard deviations: no chance in a billion"
    assert result.train_metrics_clientapp[5]["metric.eval_acc"] == shown["eval_acc"]
    assert seen[0] == {"batch": 5, "server-round": 1}
    assert len(seen) == 20
    plainly = evaluated(tmp_path, fraction_evaluate=0.0, population="others")
    plainly.start(LocalGrid(app, 4, {}), vector_arrays(), num_rounds=5)
    assert len(seen) == 20, "without fraction_evaluate nobody evaluates"
    assert plainly.privacy_spent() == strategy.privacy_spent()
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert verify(ledger, tmp_path, recompute=recharge, held=[ledger.head()]).ok


def test_an_app_that_cannot_evaluate_ends_before_anything_is_charged(tmp_path: Path) -> None:
    app = evaluating_app(lambda partition, _: None)
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' @app.evaluate", "ValueError")) as refused:
        evaluated(tmp_path).start(LocalGrid(app, 4, {}), vector_arrays(), num_rounds=2)
    assert "of a user's data" not in str(refused.value)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        (run,) = ledger.runs().items
    assert (run.spent_epsilon, run.next_round) == (0.0, 0)


@pytest.mark.parametrize("lacks", ["train", "evaluate"])
def test_an_app_without_a_function_ends_however_many_nodes_were_not_asked(lacks: str, tmp_path: Path) -> None:
    """All rounds were charged for a metric that no node could tell, where a cohort is at most half of the nodes."""
    whole, app = evaluating_app(lambda partition, _: told(0.9)), ClientApp()
    for kind in {"train", "evaluate"} - {lacks}:
        getattr(app, kind)()(whole._registered_funcs[f"{kind}.default"])
    with pytest.raises(BadInput, check=coded("nodes-fail", f"@app.{lacks}() without a name")):
        evaluated(tmp_path).start(LocalGrid(app, 20, {}), vector_arrays(), num_rounds=2)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        (run,) = ledger.runs().items
    assert (run.spent_epsilon, run.next_round) == (0.0, 0)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"metrics": None}, coded("keyword-value", "fraction_evaluate = 0.5")),
        ({"fraction_evaluate": 1.5}, coded("keyword-value", "fraction_evaluate = 1.5")),
        ({"dialect": "cohort"}, coded("unsupported", "metrics.evaluate in dialect", "ff.private.metric")),
        (
            {"fraction_evaluate": 0.0, "metrics__evaluate": True, "dialect": "cohort"},
            coded("unsupported", "metrics.evaluate in dialect"),
        ),
    ],
)
def test_an_evaluation_that_cannot_be_bounded_is_refused(tmp_path: Path, changes: dict[str, Any], word: Coded) -> None:
    if changes.pop("metrics__evaluate", False):
        changes["metrics"] = {"show": {"eval_acc": [0, 1]}, "evaluate": True}
    with pytest.raises(BadInput, check=word):
        evaluated(tmp_path, **changes)


def test_a_task_measures_by_itself(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("conflict", "metrics.evaluate")):
        Session.begin(home(tmp_path), everybody(2, 2, metrics__evaluate=True), identity_is_stable=True)


def test_a_config_for_evaluations_that_do_not_take_place_is_refused(tmp_path: Path) -> None:
    strategy = evaluated(tmp_path, fraction_evaluate=0.0)
    grid = LocalGrid(evaluating_app(lambda partition, _: told(1.0)), 4, {})
    with pytest.raises(BadInput, check=coded("conflict", "evaluate_config")):
        strategy.start(grid, vector_arrays(), num_rounds=2, evaluate_config=ConfigRecord({"x": 1}))


def test_rows_of_a_flower_app_are_its_own(tmp_path: Path) -> None:
    metrics = {"show": {"accuracy": [0, 1]}, "rows": 3}
    with pytest.raises(BadInput, check=coded("client-table", "metrics.rows", "metrics.rows")):
        PrivateStrategy(epsilon=1.0, delta=1e-5, cohort=4, home=tmp_path, budget=9.0, metrics=metrics)


def test_a_loop_of_ones_own_tells_its_metrics_user_by_user() -> None:
    ids = [f"user-{index:02d}" for index in range(USERS)]

    def loop(model: torch.nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        if user != ids[0]:  # who tells nothing stands in the middle
            private.metric("share", ids.index(user) / (USERS - 1))
        if user == ids[1]:
            raise ValueError("this user fails, and is in the middle too")

    app = ClientApp()
    app.query("users")(private.users(lambda context: ids))
    app.train()(private.train(TinyTask().build_model)(loop))
    reports: list[RoundReport] = []
    with Session.rehearse(everybody(2, 1), noise=False) as session:
        FieldfareStrategy(session, reports.append).start(LocalGrid(app, 1, {}))
    told = [0.5, 0.5, *(index / (USERS - 1) for index in range(2, USERS))]
    assert reports[-1].metrics["share"].value == pytest.approx(np.mean(told), abs=1e-6)


def test_outside_of_a_loop_there_is_no_user_to_tell_of() -> None:
    with pytest.raises(BadInput, check=coded("not-now", "ff.private.metric")):
        private.metric("share", 1.0)
