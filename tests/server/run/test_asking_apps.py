"""Questions to the nodes of Flower apps of one's own: `@app.query` as it is, and `@ff.private.measure` user by user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fieldfare as ff
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.questions import parse
from fieldfare_client import private
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower.npy import BadReply
from fieldfare_server.evidence.looks import Look, question_of
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.private import strategy as strategy_module
from fieldfare_server.run.private.asking import read_answer
from fieldfare_server.run.round.attempt import Attempt
from support.federation import TinyTask
from support.refusals import Coded, coded

MEAN = {"kind": "mean", "measure": "age", "low": 0, "high": 100}
SUMS = {"kind": "sums", "entries": {"a": 2, "b": 1}, "high": 10}
SPEND = {"population": "people", "budget": 2000, "noise_multiplier": 0.02}


def querying_app(reply: Callable[[int, Message], RecordDict | None], action: str = "") -> ClientApp:
    """reply: of the partition and the message; None: the app raises."""
    app = ClientApp()

    def query(message: Message, context: Context) -> Message:
        content = reply(int(context.node_config["partition-id"]), message)
        if content is None:
            raise ValueError("of a user's data")
        return Message(content, reply_to=message)

    (app.query(action) if action else app.query())(query)
    return app


def told(**entries: Any) -> RecordDict:
    return RecordDict({"query_results": MetricRecord(entries)})


def ask(app: ClientApp, question: dict[str, Any], root: Path, nodes: int = 4, **keywords: Any) -> Look:
    found = ff.ask(question, grid=LocalGrid(app, nodes, {}), ledger=root, **{**SPEND, **keywords})
    assert isinstance(found, Look)
    return found


@pytest.mark.parametrize("action", ["", "ages"])
def test_a_mean_of_nodes_is_charged_verified_and_near(tmp_path: Path, action: str) -> None:
    app = querying_app(lambda partition, _: told(age=[10.0 * partition, 10.0 * partition + 2]), action)
    found = ask(app, MEAN, tmp_path, query=action)
    assert found.users == 4
    # Noise of .02 contributions, each worth 50 / 4: 6 standard deviations are 1.5.
    assert found.answer[0].value == pytest.approx(16.0, abs=1.5)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        (run,) = ledger.runs().items
        assert question_of(run.plan) is not None
        assert run.spent.gdp == pytest.approx(50.0, rel=1e-3)
        assert ledger.population("people").simulated
        assert verify(ledger, tmp_path, recompute=recharge, held=[ledger.head()]).ok


def test_the_median_of_norms_that_nodes_tell_is_charged_and_in_its_interval(tmp_path: Path) -> None:
    """How a Flower app takes its clip norm from a question: nodes train on the first model, and tell a length alone."""
    app = querying_app(lambda partition, _: told(norm=0.1 * (1 + partition)))
    bounds = {"low": 1e-3, "high": 1e2, "bins": 64, "spacing": "log"}
    found = ask(app, {"kind": "quantile", "measure": "norm", "at": [0.5], **bounds}, tmp_path, nodes=40)
    median, users = found.answer
    assert users.value == pytest.approx(40, abs=0.5)
    # Noise of .02 x 2.4 users: the ends are those of the bins (ratio 1.2) about 2.0 and 2.1.
    assert 2.0 / 1.45 < median.low <= 2.05 <= median.high < 2.1 * 1.45
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert ledger.population("people").spent.mu_squared == pytest.approx(2500.0, rel=1e-3)


def test_a_grid_whose_nodes_nobody_authenticates_is_asked_where_the_asker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal names the argument."""
    monkeypatch.setattr(strategy_module, "identity_is_stable", lambda grid: False)
    app = querying_app(lambda partition, _: told(age=1))
    with pytest.raises(BadInput, check=coded("not-allowed", "run.trust_node_ids", "trust_node_ids = true")):
        ask(app, MEAN, tmp_path / "refused")
    run = ask(app, MEAN, tmp_path / "asked", trust_node_ids=True).run
    with Ledger.open(f"sqlite:///{tmp_path}/asked/ledger.sqlite3") as ledger:
        assert ledger.run(run).trust_node_ids
    with pytest.raises(BadInput, check=coded("conflict", "ask")):
        ff.ask(MEAN, task="digits", population="people", trust_node_ids=True)


def test_a_second_question_that_the_budget_does_not_hold_is_refused(tmp_path: Path) -> None:
    app = querying_app(lambda partition, _: told(age=50))
    ask(app, MEAN, tmp_path)
    with pytest.raises(BudgetRefused):
        ask(app, MEAN, tmp_path, noise_multiplier=0.015)


def test_a_delta_that_publishes_a_node_is_refused_unless_a_person_accepts_it(tmp_path: Path) -> None:
    app = querying_app(lambda partition, _: told(age=50))
    with pytest.raises(
        BadInput, check=coded("out-of-range", "privacy.delta = 0.5", "--accept-delta", "accept_delta=True")
    ):
        ask(app, MEAN, tmp_path, delta=0.5)
    assert ask(app, MEAN, tmp_path, delta=0.5, accept_delta=True).users == 4


def test_sums_of_lists_are_those_of_the_nodes_and_what_is_sent_arrives(tmp_path: Path) -> None:
    def reply(partition: int, message: Message) -> RecordDict:
        assert message.content["config"]["features"] == ["a", "b"]
        return told(a=[partition, 2 * partition], b=1.0)

    content = RecordDict({"config": ConfigRecord({"features": ["a", "b"]})})
    found = ask(querying_app(reply), SUMS, tmp_path, content=content)
    # The scale is 5 sqrt(3) = 8.7, so noise of .17 a sum: 6 standard deviations are 1.1.
    assert [each.name for each in found.answer] == ["a 1", "a 2", "b", "users with a", "users with b"]
    assert [each.value for each in found.answer[:3]] == pytest.approx([6, 12, 4], abs=1.1)
    # Zero is as far from the middle as may be, and 1 nearly: one node told 0, 1, 2 and 3 of ten as a's first number.
    assert [(each.low, each.high) for each in found.answer[3:]] == [(3, 4), (4, 4)]


HOSTILE: dict[str, tuple[Callable[[], RecordDict | None], float, dict[str, int]]] = {
    "above": (lambda: told(age=1e300), 100.0, {}),
    "infinite": (lambda: told(age=float("-inf")), 0.0, {}),
    "not a number": (lambda: told(age=float("nan")), 50.0, {}),
    "no number at all": (lambda: told(age=[]), 50.0, {}),
    "told twice": (
        lambda: RecordDict({"a": MetricRecord({"age": 1.0}), "b": MetricRecord({"age": 2.0})}),
        50.0,
        {},
    ),
    # Whether a user has a value is the user's: such a reply counts as any other.
    "missing": (lambda: told(other=1.0), 50.0, {}),
    "an empty record": (told, 50.0, {}),
    "empty": (lambda: RecordDict(), 0, {"schema": 1}),
    "raises": (lambda: None, 0, {"error 2": 1}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_is_one_reply_within_its_bounds(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile, stands_for, counted = HOSTILE[kind]
    kept: list[dict[str, int]] = []
    add = Attempt.add

    def noting(self: Attempt, *arguments: Any) -> None:
        add(self, *arguments)
        kept.append(dict(self.sum.rejects))

    monkeypatch.setattr(Attempt, "add", noting)
    app = querying_app(lambda partition, _: hostile() if partition == 0 else told(age=20.0))
    found = ask(app, MEAN, tmp_path)
    assert kept == [counted]
    honest = [20.0] * 3 + ([] if counted else [stands_for])
    assert found.users == len(honest)
    assert found.answer[0].value == pytest.approx(np.mean(honest), abs=2.1)


def test_no_reply_contributes_more_than_one() -> None:
    question = parse({"kind": "sums", "entries": {"a": 2}, "high": 10, "norm": 5})
    for numbers in ([10, 10], [1e300, float("inf")], [-5, 3], [float("nan"), 10]):
        contribution = read_answer(question, told(a=[float(each) for each in numbers]), 1)
        (own,) = contribution.chunks(0)
        assert np.linalg.norm(own) <= 1 + 1e-12
        assert contribution.users == 1
    assert read_answer(question, told(a=[10**400, 10]), 1).users == 1  # its node was dropped: 1 fewer had answered
    with pytest.raises(BadReply):
        read_answer(question, RecordDict(), 1)


def test_an_app_without_a_query_ends_before_anything_is_charged(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp")):
        ask(querying_app(lambda partition, _: None), MEAN, tmp_path)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert ledger.population("people").spent_epsilon == 0


@pytest.mark.parametrize(
    ("question", "keywords", "word"),
    [
        ({"kind": "mean", "measure": "update-norm", "low": 0, "high": 1}, {}, coded("conflict", "question of")),
        ({"kind": "auc", "model": "run"}, {}, coded("conflict", "question of")),
        (MEAN, {"task": "digits"}, coded("conflict", "ask")),
        (MEAN, {"adjacency": "add_remove"}, coded("unsupported", "privacy.adjacency")),
        (MEAN, {"dialect": "cohort"}, coded("out-of-range", "run.cohort")),
        (MEAN, {"budget": (8, 1e-5)}, coded("wrong-form", "budget")),
        (MEAN, {"budget": None}, coded("not-found", "population")),
    ],
)
def test_what_a_grid_cannot_answer_is_refused(
    question: dict[str, Any], keywords: dict[str, Any], word: Coded, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, check=word):
        ask(querying_app(lambda partition, _: told(age=1)), question, tmp_path, **keywords)


# -- many users a node -------------------------------------------------------------------------------------------------

IDS = [f"user-{index:02d}" for index in range(24)]


def measuring_app(measure: Callable[[str, str, Context], Any] | None) -> ClientApp:
    app = ClientApp()

    def listed(context: Context) -> list[str]:
        return IDS[int(context.node_config["partition-id"]) :: int(context.node_config["num-partitions"])]

    def loop(model: torch.nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        raise AssertionError("a question trains nobody")

    app.query("users")(private.users(listed))
    app.train()(private.train(TinyTask().build_model)(loop))
    if measure is not None:
        measure.__module__ = __name__
        assert private.measure(measure) is measure
    return app


def test_a_node_answers_for_each_of_its_users(tmp_path: Path) -> None:
    def age(user: str, name: str, context: Context) -> list[float]:
        assert name == "age"
        return [float(IDS.index(user))] * 3

    found = ask(measuring_app(age), MEAN, tmp_path, nodes=3, dialect="cohort", cohort=24)
    assert found.users == 24
    # Noise of .02 x 50 / 24: 6 standard deviations are .25.
    assert found.answer[0].value == pytest.approx(11.5, abs=0.25)


def test_a_user_for_whom_the_measure_fails_counts_and_stands_in_the_middle(tmp_path: Path) -> None:
    def age(user: str, name: str, context: Context) -> float:
        if user == IDS[0]:
            raise ValueError("of a user's data")
        return {IDS[1]: float("inf"), IDS[2]: float("nan")}.get(user, 20.0)

    found = ask(measuring_app(age), MEAN, tmp_path, nodes=2, dialect="cohort", cohort=24)
    assert found.users == 24
    assert found.answer[0].value == pytest.approx((50 + 100 + 50 + 21 * 20) / 24, abs=0.25)


@pytest.mark.parametrize("failing", [1, 24])
def test_for_how_many_a_measure_fails_is_told_by_nothing_but_the_answer(
    failing: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who asks has this process: a line of its log, or an end where all fail, would be a second, uncharged answer."""

    def age(user: str, name: str, context: Context) -> float:
        if user in IDS[:failing]:
            raise RecursionError("of a user's data")
        return 20.0

    with caplog.at_level("INFO"):
        found = ask(measuring_app(age), MEAN, tmp_path, nodes=2, dialect="cohort", cohort=24)
    assert found.users == 24
    assert found.answer[0].value == pytest.approx((50 * failing + 20 * (24 - failing)) / 24, abs=0.25)
    assert "RecursionError" not in caplog.text + "".join(capsys.readouterr())


def test_a_loop_without_a_measure_answers_nothing_and_costs_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        ask(measuring_app(None), MEAN, tmp_path, nodes=2, dialect="cohort", cohort=24)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert ledger.population("people").spent_epsilon == 0


def test_a_measure_above_its_loop_is_refused() -> None:
    def alone(user: str, name: str, context: Context) -> float:
        return 0.0

    alone.__module__ = "nowhere"
    with pytest.raises(TypeError, match="above it in its module"):
        private.measure(alone)


def test_the_mean_of_a_thousand_nodes_is_within_two_hundredths_at_epsilon_1(tmp_path: Path) -> None:
    """The noise of the mean in [0, 1] has a standard deviation of .5 / (.268 x 1000) = .0019: .02 is 10 of them."""
    home = StateDirectory(tmp_path, f"sqlite:///{tmp_path}/ledger.sqlite3")
    app = querying_app(lambda partition, _: told(share=partition / 999))
    question = {"kind": "mean", "measure": "share", "low": 0, "high": 1}
    found = ask(app, question, home.root, nodes=1000, epsilon=1.0, noise_multiplier=None, budget=2.0)
    assert found.users == 1000
    assert found.epsilon == pytest.approx(1.0, rel=1e-3)
    mean = found.answer[0]
    assert abs((mean.value or 0.0) - 0.5) < 0.02
    assert (mean.high or 0.0) - (mean.low or 0.0) < 0.0075
