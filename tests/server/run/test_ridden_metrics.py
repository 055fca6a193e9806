"""Metrics that ride in a run: noised with the updates, charged with them, shown with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fieldfare.errors import BadInput
from fieldfare.metrics import MetricsSpec
from fieldfare.schema import Schema
from fieldfare_client import private
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import Occasion, TrainReply
from fieldfare_flower.npy import BadReply
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.private.dialects import read_metrics
from fieldfare_server.run.private.strategy import PrivateStrategy
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, TinyTask, home, plan
from support.flower_app import vector_arrays

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
        kept = session.rounds.released.metrics
    with Session.resume(state, run, identity_is_stable=True) as session:
        assert session.rounds.released.metrics == kept
        assert len(kept) == 3
        FieldfareStrategy(session, reports.append).take_to_end(LyingGrid(2, task=NAME))
    with Ledger.open(state.ledger) as ledger:
        rows = [row.statistics for row in ledger.rounds(run, 0).items]
        assert verify(ledger, state.root, recompute=recharge, held=ledger.head()).ok
    for row, report in zip(rows, reports, strict=True):
        share = report.metrics["share"]
        assert (row["metric.share"], row["metric.share.low"], row["metric.share.high"]) == (
            share.value,
            share.low,
            share.high,
        )


def test_a_run_whose_task_lacks_the_measure_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    state, a_plan = home(tmp_path), everybody(2, 2, metrics__show={"f1": [0, 1]})
    with pytest.raises(BadInput, match="no such measure"):
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
    assert metrics_of(metrics={"acc": float("nan")}) == (0.0, 0.0)
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


def test_a_flower_app_shows_what_its_training_replies(tmp_path: Path) -> None:
    strategy = PrivateStrategy(
        noise_multiplier=1.0,
        delta=1e-5,
        cohort=4,
        clip=1.0,
        mechanism="independent",
        population="clinics",
        budget=90.0,
        home=tmp_path,
        metrics={"show": {"accuracy": [0, 1]}, "weight": 1.0},
    )
    result = strategy.start(flower_app(4), vector_arrays(), num_rounds=5)
    shown = result.train_metrics_clientapp[5]
    # The noise of the mean of 20 reports has a standard deviation of sqrt(5) sqrt(2) / 20 / 2 = .08.
    assert shown["metric.accuracy"] > 0.5, "6 standard deviations: no chance in a billion"
    assert shown["metric.accuracy.low"] < shown["metric.accuracy"] <= shown["metric.accuracy.high"] <= 1.0


def test_fraction_evaluate_is_refused_in_one_sentence_that_names_metrics(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"fraction_evaluate = 0.5.*metrics="):
        PrivateStrategy(epsilon=1.0, delta=1e-5, cohort=4, home=tmp_path, fraction_evaluate=0.5)


def test_rows_of_a_flower_app_are_its_own(tmp_path: Path) -> None:
    metrics = {"show": {"accuracy": [0, 1]}, "rows": 3}
    with pytest.raises(BadInput, match=r"metrics\.rows"):
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
    with pytest.raises(BadInput, match="outside of a training loop"):
        private.metric("share", 1.0)
