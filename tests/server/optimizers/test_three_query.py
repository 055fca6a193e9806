"""Three queries: exact where nothing is clipped or noised, less noise than published, and wired through the stack."""

from __future__ import annotations

from typing import Any

import flwr.app
import numpy as np
import pytest
import torch
from flwr.app import Message, RecordDict
from numpy.typing import NDArray
from scipy import optimize

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.participation import FixedOrder
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.training.trainer import Trainer
from fieldfare_flower.messages import TrainInstruction
from fieldfare_server.optimizers import StepInfo, build
from fieldfare_server.optimizers.three_query import ThreeQuery, shares
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session, seeded_key
from support.federation import LyingGrid, TinyTask, plan
from support.refusals import Coded, coded

Floats = NDArray[np.float64]

PERIOD, ROUNDS = 3, 8
SGD = {"kind": "sgd", "learning_rate": 0.5, "momentum": 0.8}
WIDE = {"kind": "three-query", "period": PERIOD, "change": 1.0, "drift": 1.0, "mixing": 0.3, "base": SGD}


def three(**changes: Any) -> Plan:
    """The tiny plan in a fixed order of three cohorts of eight."""
    table = {
        "run__rounds": ROUNDS,
        "run__cohort": 8,
        "participation": {"scheme": "fixed-order", "period": PERIOD},
        "server_optimizer": WIDE,
    }
    return plan(**{**table, **changes})


# -- without noise and without clipping: Lemma 17 ---------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_it_is_given_the_mean_update_at_the_current_model(engine: str) -> None:
    """Through the whole stack, several local steps in a random order: the path is that of the base optimizer alone."""
    a_plan = three(clipping={"kind": "flat", "norm": 1e3}, client__batch_size=2, client__engine=engine)
    grid = LyingGrid(2)
    with Session.rehearse(a_plan, noise=False) as session:
        start = session.params.clone()
        FieldfareStrategy(session).start(grid)
        found = session.params
    cohorts: dict[int, list[np.ndarray[Any, Any]]] = {}
    task = TinyTask()
    schema = Schema.of(task.build_model())
    for message in grid.seen:
        told = TrainInstruction.read(message.content, schema)
        assert (told.queries, told.batches) == (3, told.occasion.round % PERIOD)
        cohorts.setdefault(told.occasion.round, []).append(told.users)
    table = task.users()
    trainer = Trainer(task, ClientSpec.model_validate({**a_plan.client.model_dump(), "engine": "loop"}), lambda u: None)
    base, params = build(SGD), start
    state = base.init(params)
    for t in range(ROUNDS):
        users = np.flatnonzero(np.isin(table.pseudonyms, np.concatenate(cohorts[t])))
        assert users.size == 8
        update = trainer.train([params], [1.0], table, users, at_round=t % PERIOD).update.float() / 8
        params, state = base.step(state, params, update, StepInfo(t, ROUNDS, 0.0))
    torch.testing.assert_close(found, params, rtol=1e-4, atol=1e-4)
    assert not torch.equal(found, start)


def test_anchors_move_at_the_end_of_each_epoch_only() -> None:
    optimizer = build({"kind": "three-query", "period": 2, "base": {"kind": "sgd", "learning_rate": 1.0}})
    params, seen = torch.zeros(1), []
    state = optimizer.init(params)
    for t in range(5):
        seen.append((float(state["previous"]), float(state["anchor"])))
        params, state = optimizer.step(state, params, torch.tensor([1.0, 0.0, 0.0]), StepInfo(t, 5, 0.0))
    values = [1.0, 1.0, 0.8 * 1 + 0.2 * 1, 1.0]
    assert seen == [(0, 0), (0, 0), (0, sum(values[:2])), (0, sum(values[:2])), (sum(values[:2]), sum(values))]


# -- noise ------------------------------------------------------------------------------------------------------------


def response(rounds: int, period: int, mixing: float, momentum: float, change: float, drift: float) -> Floats:
    """How the momentum of every round depends on what the three queries released, shape (rounds, 3, rounds).

    By hand, from the module's two lines; the optimizer itself is checked against it below.
    """
    memory = np.zeros((rounds, 3, rounds))
    for t in range(rounds):
        if t >= period:
            memory[t] = (1 - mixing) * memory[t - period]
            memory[t, 2, t] += (1 - mixing) * change
        memory[t, 0, t] += mixing if t >= period else 1.0
    memory[np.arange(rounds), 1, np.arange(rounds)] = drift
    out = np.zeros_like(memory)
    for t in range(rounds):
        out[t] = (1 - momentum) * memory[t] + (momentum * out[t - 1] if t else 0.0)
    return out


def divided(rounds: int, period: int, split: tuple[float, float, float]) -> Floats:
    """1 / sqrt(share) of each query in each round, shape (3, rounds); 0 where it is not asked."""
    anchor, drift, change = split
    found = np.tile(np.array([[anchor], [drift], [change]]), (1, rounds))
    found[0, :period], found[2, :period] = anchor + change, np.inf
    return 1.0 / np.sqrt(found)


def test_the_optimizer_is_the_response() -> None:
    momentum = {"kind": "normalised-momentum", "momentum": 0.7, "normalise": False, "learning_rate": 1.0}
    spec = {"kind": "three-query", "period": 3, "mixing": 0.4, "change": 0.2, "drift": 0.5, "base": momentum}
    optimizer = build(spec)
    expected = response(9, 3, 0.4, 0.7, 0.2, 0.5)
    released = np.random.default_rng(0).normal(size=(9, 3))
    released[:3, 2] = 0.0
    params = torch.zeros(1)
    state = optimizer.init(params)
    for t in range(9):
        moved, state = optimizer.step(state, params, torch.from_numpy(released[t]).float(), StepInfo(t, 9, 0.0))
        assert float(moved - params) == pytest.approx((expected[t] * released.T).sum(), abs=1e-5)
        params = moved


@pytest.mark.parametrize(
    ("period", "rounds", "kappa", "mixing", "published"),
    [
        (16, 160, 0.1, 0.25, 0.6393),
        (16, 160, 0.03, 0.20, 0.3859),
        (16, 160, 0.01, 0.20, 0.3202),
        (16, 1600, 0.1, 0.126, 6.066),
        (16, 1600, 0.03, 0.040, 1.810),
        (64, 640, 0.1, 0.316, 0.05309),
        (64, 640, 0.03, 0.20, 0.03229),
    ],
)
@pytest.mark.parametrize("kind", ["momentum-tree", "nu"])
def test_less_noise_than_the_published_trees(
    kind: str, period: int, rounds: int, kappa: float, mixing: float, published: float
) -> None:
    """Variance in the last momentum, 1 - momentum = 1 / N, replace-one, zCDP 1/2, against Algorithm 2 with exact
    accounting and its budget divided optimally: numbers of an independent computation (nodes in the paper's order)."""
    spec = {"kind": kind, "momentum": 1 - 1 / period} if kind == "momentum-tree" else {"kind": kind, "nu": "auto"}
    order = FixedOrder(period)
    mechanism = mechanisms.build(spec, rounds, order)
    last = response(rounds, period, mixing, 1 - 1 / period, kappa, kappa)[-1]
    last = last * divided(rounds, period, shares(rounds // period, mixing, kappa, kappa))
    weights = last @ mechanism.noising_matrix(rounds)
    variance = float(np.square(weights).sum()) * (2 * float(mechanism.sensitivity(order))) ** 2
    assert variance < published


@pytest.mark.parametrize(("mixing", "change", "drift"), [(0.2, 0.1, 0.1), (0.5, 0.3, 0.02), (1.0, 1.0, 1.0)])
def test_shares_are_the_best_for_independent_noise(mixing: float, change: float, drift: float) -> None:
    rounds, period = 24, 4
    memory = response(rounds, period, mixing, 0.0, change, drift)

    def variance(logits: Floats) -> float:
        split = np.exp(logits) / np.exp(logits).sum()
        return float(np.mean(np.square(memory / np.sqrt(split)[:, None]).sum(axis=(1, 2))))

    best = optimize.minimize(variance, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    found = shares(rounds // period, mixing, change, drift)
    assert sum(found) == pytest.approx(1.0, abs=1e-12)
    assert variance(np.log(np.maximum(found, 1e-300))) == pytest.approx(best.fun, rel=1e-6)


def test_the_noise_of_a_released_round_is_what_the_response_says() -> None:
    """What a run of the stack adds, with users that send nothing: the mechanism's rows, divided by the shares."""
    mechanism = {"kind": "momentum-tree", "momentum": 0.8}
    spec = {**WIDE, "change": 0.2, "drift": 0.1, "base": {**SGD, "learning_rate": 1.0, "momentum": 0.0}}
    silent = three(mechanism=mechanism, server_optimizer=spec, client={"steps": 1, "learning_rate": 1e-30})
    moves: list[Floats] = []
    with Session.rehearse(silent, noise=True) as session:
        before = [session.params.clone()]

        def note(report: Any) -> None:
            moves.append((session.params - before[-1]).double().numpy())
            before.append(session.params.clone())

        FieldfareStrategy(session, note).start(LyingGrid(2))
        cost, noise = session.cost, session.noise
    assert cost is not None
    rows = torch.stack([noise.standard_normal(12, row=t, dtype=torch.float64) for t in range(ROUNDS)]).numpy()
    z = (cost.mechanism.noising_matrix(ROUNDS) @ rows).reshape(ROUNDS, 3, 4)
    z *= divided(ROUNDS, PERIOD, shares(3, 0.3, 0.2, 0.1)).T[:, :, None] * cost.noise_multiplier / 8
    expected = np.einsum("tqs,sqd->td", response(ROUNDS, PERIOD, 0.3, 0.0, 0.2, 0.1), z)
    np.testing.assert_allclose(np.array(moves), expected, rtol=1e-4, atol=1e-5)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"participation": {"scheme": "min-separation", "separation": 3}},
            coded("unsupported", "server_optimizer.kind"),
        ),
        (
            {"participation": {"scheme": "single"}, "run__cohort": 2, "run__min_reports": 2},
            coded("unsupported", "server_optimizer.kind"),
        ),
        (
            {"participation": {"scheme": "fixed-order", "period": 4}, "run__cohort": 6},
            coded("unsupported", "server_optimizer.kind", "period = 3"),
        ),
        (
            {"participation": {"scheme": "poisson", "rate": 0.3}, "run__min_reports": None},
            coded("unsupported", "server_optimizer.kind"),
        ),
        (
            {"participation": {"scheme": "cyclic-poisson", "groups": 3, "rate": 0.3}, "run__min_reports": None},
            coded("unsupported", "server_optimizer.kind"),
        ),
        ({"run__rounds": 3}, coded("conflict", "run.rounds")),
        ({"clipping": {"kind": "adaptive-quantile"}}, coded("unsupported", "clipping.kind")),
        ({"clipping": {"kind": "automatic"}}, coded("unsupported", "clipping.kind")),
        ({"server_optimizer": {**WIDE, "base": {"kind": "adamw"}}}, coded("conflict", "server_optimizer.base.kind")),
        ({"server_optimizer": {**WIDE, "base": WIDE}}, coded("conflict", "server_optimizer.base.kind")),
        ({"server_optimizer": {**WIDE, "base": "sgd"}}, coded("wrong-form", "server_optimizer.base")),
        ({"server_optimizer": {"kind": "disk", "base": WIDE}}, coded("conflict", "server_optimizer.base.kind")),
        ({"server_optimizer": {**WIDE, "drift": 0.0}}, coded("value-wrong", "server_optimizer.drift")),
        ({"server_optimizer": {**WIDE, "period": 1}}, coded("value-wrong", "server_optimizer.period")),
    ],
)
def test_what_is_not_shown_to_be_right_is_refused(changes: dict[str, Any], says: Coded) -> None:
    with pytest.raises(BadInput, check=says):
        three(**changes)


def test_every_other_plan_keeps_its_optimizers() -> None:
    assert plan().server_optimizer.kind == "sgd"
    assert isinstance(build(WIDE), ThreeQuery)


# -- hostile nodes ----------------------------------------------------------------------------------------------------


def rewritten(change: Any) -> Any:
    """A lie that changes the arrays of a reply by name."""

    def lie(message: Message, reply: Message) -> Message:
        arrays = {name: array.numpy().copy() for name, array in reply.content["update"].items()}
        content = RecordDict(dict(reply.content.items()))
        content["update"] = flwr.app.ArrayRecord({k: flwr.app.Array(v) for k, v in change(arrays).items()})
        return Message(content, reply_to=message)

    return lie


def moved(lies: dict[int, Any], rounds: int, nodes: int = 1) -> tuple[torch.Tensor, dict[str, int]]:
    """The model after so many noiseless rounds with nodes of which some lie, and what was rejected."""
    rejected: dict[str, int] = {}
    a_plan = three(run__min_reports=1)
    with Session(a_plan, None, Rehearsal(), None, seeded_key(1)) as session:
        commit_round = session.rounds.commit_round

        def commit_and_note(opened: Any, total: Any, reported: Any, show: Any) -> None:
            rejected.update(total.rejects)
            commit_round(opened, total, reported, show)

        session.rounds.commit_round = commit_and_note  # type: ignore[method-assign]
        strategy, grid = FieldfareStrategy(session), LyingGrid(nodes, lies)
        for _ in range(rounds):
            strategy.run_round(grid)
        return session.params.clone(), rejected


def test_a_query_that_was_not_asked_is_never_released() -> None:
    """In the first epoch there is no change: whatever a node puts there is not even noised, it is not there."""
    honest, _ = moved({}, PERIOD)
    loud, rejects = moved({2: rewritten(lambda a: {k: v + 9.0 if k[0] == "2" else v for k, v in a.items()})}, PERIOD)
    torch.testing.assert_close(loud, honest, rtol=0, atol=0)
    assert rejects == {"over-norm, clipped again": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: {k: v for k, v in a.items() if k[0] != "2"}, "schema"),
        (lambda a: {**a, "3.0.weight": a["0.0.weight"]}, "schema"),
        (lambda a: {k[2:]: v for k, v in a.items() if k[0] == "0"}, "schema"),
        (lambda a: {k: v[None] if k == "1.0.bias" else v for k, v in a.items()}, "shape"),
        (lambda a: {k: v * np.float32("nan") if k == "1.0.bias" else v for k, v in a.items()}, "non-finite"),
    ],
)
def test_a_reply_with_other_queries_is_dropped(change: Any, reason: str) -> None:
    _, rejects = moved({2: rewritten(change)}, 1, nodes=2)
    assert rejects == {reason: 1}


@pytest.mark.slow
def test_two_training_processes_give_what_one_gives() -> None:
    found = []
    for workers in (1, 2):
        a_plan = three(client__workers=workers)
        with Session(a_plan, None, Rehearsal(), None, seeded_key(1)) as session:
            FieldfareStrategy(session).start(LocalGrid(app, 1, {"task": a_plan.run.task}))
            found.append(session.params)
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
