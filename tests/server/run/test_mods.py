"""A stranger's ClientApp with one line more, `mods=[ff.masked]` or `mods=[ff.budget]`: what leaves, what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result
from test_private_strategy import strategy

import fieldfare as ff
from fieldfare.errors import BadInput, NotInstalled, Refused
from fieldfare.plan import Plan
from fieldfare.schema import pseudonym
from fieldfare.signed_terms import NodeBudgetRefused
from fieldfare_client import budget
from fieldfare_client.blinder import Blinder
from fieldfare_client.budget.charges import create
from fieldfare_client.masking import BLINDER
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower.local_grid import assume_task_identity
from fieldfare_flower.masked import MASKED, Masking
from fieldfare_flower.messages import COHORT, HEADER, Occasion, PlainInstruction
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence import roster
from fieldfare_server.run.private.strategy import PrivateStrategy
from fieldfare_server.run.round import distant_blinder
from fieldfare_server.run.round.dialects import PlainDialect
from fieldfare_server.run.round.rounds import Rounds
from support.flower_app import masked_plan, vector_arrays
from support.refusals import coded

NODES = 5
MASKED_TABLE = {"kind": "masked", "least_nodes": 2}
STEP = np.array([[0.1, -0.2], [0.3, 0.7]], np.float32)


def app_of(*mods: Any, seen: list[RecordDict] | None = None) -> ClientApp:
    """A stranger's app: it knows Flower's two records, and tells what it likes."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if seen is not None:
            seen.append(RecordDict(dict(message.content)))
        index = int(context.node_config["partition-id"])
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        moved = {"w": arrays["w"] + (index + 1) * STEP, "b": arrays["b"] - index, "n": arrays["n"] + 1}
        record = ArrayRecord({name: Array(np.asarray(value)) for name, value in moved.items()})
        told = MetricRecord({"secret_loss": 4.25, "accuracy": 0.5, "num-examples": 9})
        return Message(RecordDict({"arrays": record, "metrics": told}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"accuracy": 1.0})}), reply_to=message)

    return app


class Watched(LocalGrid):
    """Keeps what leaves the nodes."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.replies: list[Message] = []

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        self.replies.append(reply)
        return reply


def run(home: Path, app: ClientApp, rounds: int = 2, **changes: Any) -> tuple[Watched, PrivateStrategy, Result]:
    private = strategy(home, **{"cohort": NODES, "min_reports": 2, "noise_seed": 3, **changes})
    grid = Watched(app, NODES)
    return grid, private, private.start(grid, vector_arrays(), num_rounds=rounds)


def ends(home: Path, app: ClientApp, said: str, **changes: Any) -> Watched:
    """A run that no node answers, whose end says why."""
    grid = Watched(app, NODES)
    private = strategy(home, **{"cohort": NODES, "min_reports": 2, **changes})
    with pytest.raises(Refused, match=said):
        private.start(grid, vector_arrays(), num_rounds=2)
    assert all(reply.has_error() for reply in grid.replies)
    with Ledger.open(StateDirectory.of(home).ledger) as ledger:
        assert ledger.run(str(private.run_id)).spent_epsilon == 0
    return grid


def test_one_line_masks_an_app_and_the_model_stays_the_same(tmp_path: Path) -> None:
    """The app sees Flower's two records alone. Nothing leaves but words: no array, no metric, no count of rows."""
    seen: list[RecordDict] = []
    _, _, plain = run(tmp_path / "plain", app_of())
    grid, _, masked = run(tmp_path / "masked", app_of(ff.masked, seen=seen), aggregation=MASKED_TABLE)
    assert len(seen) == 2 * NODES
    assert all(set(content) == {"arrays", "config"} for content in seen)
    for reply in grid.replies:
        assert set(reply.content) == {HEADER, MASKED, "report"}
        assert set(reply.content["report"]) == {"users"}
    for name, array in masked.arrays.items():
        # Plain replies are clipped in float64 at the server, masked ones in float32 at the node: a cell of the grid.
        assert np.allclose(array.numpy(), plain.arrays[name].numpy(), atol=1e-5)
    state = StateDirectory.of(tmp_path / "masked")
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root, recompute=recharge).ok
        actions = [row.action for row in ledger.journal_rows(limit=1000).items if row.action.startswith("round.")]
    assert actions.count("round.close") == actions.count("round.commit") == 2


def test_the_app_sees_nothing_that_may_differ_from_node_to_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What masks do not bind: whom an instruction asks, and what its ledger shows. Another model might stand there."""
    write = PlainDialect.write

    def lie(self: Any, *given: Any) -> Any:
        messages, reader = write(self, *given)
        for message in messages:
            message.content[COHORT] = ArrayRecord(dict(vector_arrays()))
        return messages, reader

    monkeypatch.setattr(PlainDialect, "write", lie)
    seen: list[RecordDict] = []
    run(tmp_path, app_of(ff.masked, seen=seen), aggregation=MASKED_TABLE)
    assert seen
    assert all(set(content) == {"arrays", "config"} for content in seen)


def test_listed_metrics_ride_under_the_mask(tmp_path: Path) -> None:
    changes = {"metrics": {"show": {"accuracy": [0, 1]}}, "noise_multiplier": 0.01, "epsilon": None, "budget": 1e9}
    for kind, mods in (("plain", ()), ("masked", (ff.masked,))):
        _, private, _ = run(tmp_path / kind, app_of(*mods), aggregation=MASKED_TABLE if mods else None, **changes)
        with Ledger.open(StateDirectory.of(tmp_path / kind).ledger) as ledger:
            shown = ledger.rounds(str(private.run_id)).items[0].statistics
        assert abs(next(value for name, value in shown.items() if "accuracy" in name and value is not None) - 0.5) < 0.2


@pytest.mark.parametrize("mods", [(ff.masked,), (ff.budget, ff.masked), (ff.masked, ff.budget)])
def test_a_masked_app_answers_nothing_in_clear(tmp_path: Path, mods: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain strategy, an evaluation, and a header without masks: not even the app is called."""
    if ff.budget in mods:
        kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    seen: list[RecordDict] = []
    app = app_of(*mods, seen=seen)
    kinds = "NotMasked|by the budget"
    ends(tmp_path / "home", app, kinds)
    assume_task_identity()
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    header = PlainInstruction(Occasion("run", 0, 0), {}, ("w",), (1.0,)).write()
    for kind, more in (("train", {}), ("evaluate", {}), ("evaluate", {HEADER: header}), ("train", {HEADER: header})):
        reply = app(Message(RecordDict({"arrays": vector_arrays(), **more}), 1, kind), context)
        assert reply.has_error()
        assert reply.error.reason.startswith(("<class 'NotMasked'>", "<class 'NodeBudgetRefused'>"))
    assert not seen


def test_another_function_of_a_masked_app_is_not_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that the server sends to one that changes nothing would leave the others' updates in the sum."""
    write, called = PlainDialect.write, list[Message]()

    def lie(self: Any, *given: Any) -> Any:
        messages, reader = write(self, *given)
        for message in messages:
            message.metadata.message_type = "train.nothing"
        return messages, reader

    monkeypatch.setattr(PlainDialect, "write", lie)
    app = app_of(ff.masked)
    app.train("nothing")(lambda message, context: called.append(message) or message)  # type: ignore[func-returns-value]
    ends(tmp_path, app, "NotMasked", aggregation=MASKED_TABLE)
    assert not called


def test_a_blinder_that_the_node_did_not_pin_gets_no_answer(tmp_path: Path) -> None:
    seen: list[RecordDict] = []
    grid = Watched(app_of(ff.masked, seen=seen), NODES)
    other = Blinder(tmp_path / "other").public_key
    private = strategy(tmp_path, cohort=NODES, min_reports=2, aggregation=MASKED_TABLE)
    pin = grid.name_blinder

    def elsewhere(*arguments: Any) -> None:
        pin(*arguments)
        for context in grid._contexts.values():
            context.node_config[BLINDER] = other

    grid.name_blinder = elsewhere  # type: ignore[method-assign]
    with pytest.raises(Refused, match="BlinderNotPinned"):
        private.start(grid, vector_arrays(), num_rounds=2)
    assert not seen


def test_of_an_exception_or_error_of_the_app_the_server_learns_the_class(tmp_path: Path) -> None:
    app = ClientApp(mods=[ff.masked])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"]:
            raise ValueError("patient 17 has no row")
        return Message(Error(6, "patient 17 has no row"), reply_to=message)

    grid = ends(tmp_path, app, "ValueError|AppFailed", aggregation=MASKED_TABLE)
    told = {str(reply.error.reason) for reply in grid.replies}
    assert told == {"<class 'ValueError'>", "<class 'AppFailed'>"}


@pytest.mark.parametrize(
    "change",
    [
        {"w": None},
        {"w": np.zeros(4, np.float32)},
        {"w": np.ones((2, 2), np.int32)},
        {"w": np.full((2, 2), np.nan, np.float32)},
    ],
)
def test_an_update_that_cannot_be_clipped_is_no_reply_or_zero(tmp_path: Path, change: dict[str, Any]) -> None:
    app = ClientApp(mods=[ff.masked])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        if context.node_config["partition-id"] == 0:
            arrays = {name: value for name, value in {**arrays, **change}.items() if value is not None}
        record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
        return Message(RecordDict({"arrays": record}), reply_to=message)

    finite = change["w"] is None or change["w"].dtype.kind != "f" or np.isfinite(change["w"]).all()
    grid, _, result = run(tmp_path, app, 1, aggregation=MASKED_TABLE, noise_multiplier=0.01, epsilon=None, budget=1e9)
    assert [reply.has_error() for reply in grid.replies].count(True) == finite
    assert np.allclose(result.arrays["w"].numpy(), vector_arrays()["w"].numpy(), atol=0.6)


def kept_budget(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, home: Path, epsilon: float = 8.0, limit: float = 40.0
) -> Path:
    """A budget of the nodes for the population `name`, which is made; returns the file of charges."""
    state = StateDirectory.of(home)
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population(name, limit, 1e-5, simulated=True, actor="test")
    head = state.head_file.read_text().strip()
    file = root / "budget.toml"
    file.write_text(
        f'charges = "charges.sqlite3"\n[populations.{name}]\nhead = "{head}"\nepsilon = {epsilon}\ndelta = 1e-5\n'
    )
    create(root / "charges.sqlite3", root / "charges.sqlite3.mark")
    monkeypatch.setenv(budget.VARIABLE, str(file))
    return root / "charges.sqlite3"


@pytest.mark.parametrize("mods", [(ff.budget,), (ff.masked,), (ff.budget, ff.masked), (ff.masked, ff.budget)])
def test_the_nodes_charges_are_those_of_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mods: Any) -> None:
    from fieldfare_client.budget.charges import gauges
    from fieldfare_client.budget.settings import NodeBudget

    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    seen: list[RecordDict] = []
    changes: dict[str, Any] = {"charge_on_nodes": True} if ff.masked not in mods else {"aggregation": MASKED_TABLE}
    run(tmp_path / "home", app_of(*mods, seen=seen), noise_seed=None, **changes)
    assert all(set(content) == {"arrays", "config"} for content in seen)
    users, epsilon, _ = gauges(NodeBudget.read(tmp_path / "budget.toml"))["clinics"]
    with Ledger.open(StateDirectory.of(tmp_path / "home").ledger) as ledger:
        spent = ledger.population("clinics").spent_epsilon
    assert users == NODES
    assert epsilon == pytest.approx(spent, rel=1e-9)


def test_what_exceeds_a_nodes_budget_calls_no_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home", epsilon=1.0)
    seen: list[RecordDict] = []
    ends(tmp_path / "home", app_of(ff.budget, seen=seen), "by the budget", charge_on_nodes=True)
    assert not seen


def test_another_population_of_the_same_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    seen: list[RecordDict] = []
    ends(tmp_path / "home", app_of(ff.budget, seen=seen), "agreed to", charge_on_nodes=True, population="others")
    assert not seen


@pytest.mark.parametrize(
    "lie",
    [{"spacing_log2": -90}, {"bits": 64}, {"weights": (3.0,)}, {"plan": "ab" * 32}],
    ids=["spacing", "bits", "weights", "plan"],
)
def test_masks_of_another_ring_than_that_of_the_plan_that_is_charged_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]
) -> None:
    """Cells that are finer than those of the blinder's noise would outweigh it, and a number more than its part."""
    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    write = Masking.write
    monkeypatch.setattr(Masking, "write", lambda self, content: write(replace(self, **lie), content))
    grid = ends(tmp_path / "home", app_of(ff.budget, ff.masked), "something else", aggregation=MASKED_TABLE)
    assert {str(reply.error.reason) for reply in grid.replies} == {"<class 'NodeBudgetRefused'> not-planned"}


@pytest.mark.parametrize("lie", ["clip", "ring", "plan", "unpriced"])
def test_without_a_budget_too_masks_hide_what_the_blinders_plan_says_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """The blinder's noise is for its plan's clip norm and cells. The coordinator signs its plan, and tells another."""
    monkeypatch.delenv(budget.VARIABLE, raising=False)
    settings, write = Rounds.settings, Masking.write
    other: dict[str, Any] = {"ring": {"spacing_log2": -90}, "plan": {"plan": "ab" * 32}}.get(lie, {})
    monkeypatch.setattr(Masking, "write", lambda self, content: write(replace(self, **other), content))
    if lie == "clip":
        flat = {"kind": "flat", "norm": 1e3}
        monkeypatch.setattr(Rounds, "settings", lambda self: {**settings(self), "clipping": flat})
    if lie == "unpriced":
        monkeypatch.setattr("fieldfare_server.run.session.terms_record", lambda *_: {})
    seen: list[RecordDict] = []
    word, said = ("no-terms", "no population") if lie == "unpriced" else ("not-planned", "something else")
    grid = ends(tmp_path, app_of(ff.masked, seen=seen), said, aggregation=MASKED_TABLE)
    assert {str(reply.error.reason) for reply in grid.replies} == {f"<class 'NodeBudgetRefused'> {word}"}
    assert bool(seen) == (lie in ("ring", "plan")), "what is told is compared before the app is called"


def test_a_masked_node_without_scipy_blames_no_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells are computed from the price. The word was that of a price that is not the plan's."""

    def priced(*_: object, **__: object) -> None:
        raise NotInstalled("SciPy", "is not installed.", "pip install it")

    monkeypatch.setattr("fieldfare.costing.cost_as_priced", priced)
    monkeypatch.delenv(budget.VARIABLE, raising=False)
    grid = ends(tmp_path, app_of(ff.masked, seen=[]), "no-memory", aggregation=MASKED_TABLE)
    assert {str(reply.error.reason) for reply in grid.replies} == {"<class 'NodeBudgetRefused'> no-memory"}


def test_a_budget_that_is_not_set_up_trains_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(budget.VARIABLE, raising=False)
    seen: list[RecordDict] = []
    ends(tmp_path, app_of(ff.budget, seen=seen), "by the budget", charge_on_nodes=True)
    ends(tmp_path / "2", app_of(ff.masked, ff.budget, seen=seen), "by the budget", aggregation=MASKED_TABLE)
    assert not seen


def test_the_server_names_no_user_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that say nothing of their own are one user in a file that they share, whatever key or id they have."""
    file = kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    import sqlite3

    grid = Watched(app_of(ff.budget), NODES)
    for context in grid._contexts.values():
        context.node_config = {"partition-id": 0, "user": "anna"}
    private = strategy(tmp_path / "home", cohort=NODES, min_reports=1, charge_on_nodes=True)
    private.start(grid, vector_arrays(), num_rounds=1)
    with sqlite3.connect(file) as charges:
        assert {user for (user,) in charges.execute("SELECT user FROM users")} == {
            int(np.uint64(pseudonym("anna")).view(np.int64))
        }
    assert sum(not reply.has_error() for reply in grid.replies) == 1


def test_evaluations_are_refused_before_anything_is_charged(tmp_path: Path) -> None:
    show = {"metrics": {"show": {"accuracy": [0, 1]}}, "fraction_evaluate": 1.0}
    for changes in ({"aggregation": MASKED_TABLE}, {"charge_on_nodes": True}):
        with pytest.raises(BadInput, check=coded("evaluation-in-clear")):
            run(tmp_path, app_of(ff.masked), **show, **changes)


def test_apps_of_the_older_interface_get_both_by_the_names_of_their_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")

    class Client(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            return [parameters[0] + np.float32(0.1), parameters[1]], 3, {"secret": 1.0}

    app = ClientApp(client_fn=lambda context: Client().to_client(), mods=[ff.budget, ff.masked])
    grid = Watched(app, NODES)
    private = strategy(
        tmp_path / "home",
        cohort=NODES,
        min_reports=2,
        aggregation=MASKED_TABLE,
        arrayrecord_key="fitins.parameters",
        configrecord_key="fitins.config",
    )
    initial = ArrayRecord([np.ones((2, 2), np.float32), np.zeros(2, np.float32)])
    result = private.start(grid, initial, num_rounds=2)
    assert len(result.train_metrics_clientapp) == 2
    assert all(set(reply.content) == {HEADER, MASKED, "report"} for reply in grid.replies)


def test_a_header_makes_no_app_of_flowers_answer_uncharged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mods=[ff.private]` lets the cohort dialect's own loops pass, and a server may add their header to anything."""
    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    assume_task_identity()
    context = Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={})
    for more in ({}, {HEADER: ConfigRecord({"version": 2, "run": "run", "round": 0, "attempt": 0})}):
        content = RecordDict({"arrays": vector_arrays(), "config": ConfigRecord({"clipping_norm": 1.0}), **more})
        with pytest.raises((BadInput, NodeBudgetRefused)):
            app_of(ff.private)(Message(content, 1, "train"), context)
    app = ClientApp(mods=[ff.private])
    app.train()(lambda message, context: Message(message.content, reply_to=message))  # under the server's own names
    content["update"] = content.pop("arrays")
    with pytest.raises(BadInput, check=coded("wrong-form", "the instruction")):
        app(Message(content, 1, "train"), context)
    with pytest.raises(NodeBudgetRefused):
        app_of(ff.private)(Message(RecordDict({"arrays": vector_arrays()}), 1, "evaluate"), context)


@pytest.mark.parametrize("mods", [(ff.masked, ff.private), (ff.private, ff.masked)])
def test_a_masked_app_may_have_the_mod_that_clips_too(tmp_path: Path, mods: Any) -> None:
    grid, _, _ = run(tmp_path, app_of(*mods), aggregation=MASKED_TABLE)
    assert all(set(reply.content) == {HEADER, MASKED, "report"} for reply in grid.replies)


@pytest.mark.parametrize("mods", [(ff.budget, ff.private), (ff.private, ff.budget)])
def test_an_app_that_charges_may_have_the_mod_that_clips_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mods: Any
) -> None:
    kept_budget(tmp_path, monkeypatch, "clinics", tmp_path / "home")
    changes: dict[str, Any] = {"charge_on_nodes": True, "clip_on_nodes": True, "noise_seed": None}
    if mods[0] is ff.private:  # it sees a header, and no one who answered by it
        grid = ends(tmp_path / "home", app_of(*mods), "no node of the 5 that answered", **changes)
        assert all("ff.budget before ff.private" in str(reply.error.reason) for reply in grid.replies)
        return
    grid, _, _ = run(tmp_path / "home", app_of(*mods), rounds=1, **changes)
    start = {name: array.numpy() for name, array in vector_arrays().items()}
    for reply in grid.replies:
        after = {name: array.numpy() for name, array in reply.content["arrays"].items()}
        moved = [np.ravel(after[name] - start[name]) for name in ("w", "b")]
        assert 0 < np.linalg.norm(np.concatenate(moved)) <= 1.0 + 1e-5


class Real(Watched):
    """SuperNodes with keys, as far as the server can tell, of which one is the blinder."""

    simulated = False

    def __init__(self, app: ClientApp, blinder: Blinder, root: Path, late: int = 0) -> None:
        super().__init__(app, NODES)
        self.name_blinder(blinder, root / "keys")
        self.party, self.late = blinder, late
        """The blinder answers from the question after `late` on."""

    def get_node_ids(self) -> list[int]:
        return [*self._contexts, 77]

    def get_nodes(self) -> Any:
        pem = b"-----BEGIN PUBLIC KEY-----\nMHYw%d\n-----END PUBLIC KEY-----\n"
        return [SimpleNamespace(node_id=node, public_key=pem % node) for node in self.get_node_ids()]

    def answer(self, message: Message) -> Message:
        if message.metadata.dst_node_id != 77:
            return super().answer(message)
        assert message.metadata.message_type != "train", "the blinder was taken for a user"
        self.late -= 1
        return Message(Error(3, "gone"), reply_to=message) if self.late >= 0 else self.party.reply(message)


@pytest.mark.parametrize("late", [0, 1])
def test_the_blinder_among_supernodes_is_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    monkeypatch.setattr(distant_blinder, "LEAST_PATIENCE", 0.2)
    monkeypatch.setattr(roster, "FIRST_BACK_OFF", 0.2)
    blinder = Blinder(tmp_path / "blinder")
    plan = Plan.from_toml(masked_plan(blinder.public_key, cohort=4, least=2, round_timeout=5))
    private = PrivateStrategy(plan=plan, budget=20, home=tmp_path / "home")
    grid = Real(app_of(ff.masked), blinder, tmp_path, late)
    refused = pytest.raises(Refused, match=f"not approved its plan, {plan.digest()}")
    with refused:
        private.start(grid, vector_arrays())
    assert not any(reply.metadata.message_type == "train" for reply in grid.replies)
    blinder.approve(plan.digest(), 2, 6)
    grid.late = late
    private = PrivateStrategy(plan=plan, budget=20, home=tmp_path / "home")
    private.start(grid, vector_arrays())
    with Ledger.open(StateDirectory.of(tmp_path / "home").ledger) as ledger:
        assert ledger.population("clinics").users == NODES
        assert ledger.run(str(private.run_id)).state == "done"
    assert [row[1:3] for row in blinder.rows("answers")] == [(private.run_id, 0), (private.run_id, 1)]
