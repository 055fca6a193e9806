"""The whole round: what is released, what is charged, what nodes cannot do, and how a run ends."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import flwr.app
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord
from safetensors.torch import load_file

from fieldfare.errors import BadInput, BudgetRefused, Interrupted, NoLedger, Refused
from fieldfare.plan import Plan
from fieldfare.privatise import Privatiser
from fieldfare.task import seeded
from fieldfare_flower.messages import REPORT, UPDATE
from fieldfare_server.cli import simulate
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence import patience as patience_module
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan
from support.refusals import coded


def run(state_dir: StateDirectory, a_plan: Plan, grid: LyingGrid) -> tuple[Session, list[RoundReport]]:
    reports: list[RoundReport] = []
    session = Session.begin(state_dir, a_plan, identity_is_stable=True)
    with session:
        FieldfareStrategy(session, reports.append).start(grid)
    return session, reports


def whole(state_dir: StateDirectory) -> None:
    with Ledger.open(state_dir.ledger) as ledger:
        report = verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()])
    assert report.ok, str(report.fault)


def final(state_dir: StateDirectory, session: Session) -> torch.Tensor:
    return torch.cat(
        [t.reshape(-1) for t in load_file(state_dir.root / session.account.id / "model.safetensors").values()]
    )


def test_a_run_releases_charges_and_ends(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    session, reports = run(state_dir, plan(), LyingGrid(3))
    assert [report.round for report in reports] == list(range(6))
    assert [r.epsilon for r in reports] == sorted(r.epsilon for r in reports)
    assert session.cost is not None
    assert reports[-1].epsilon <= session.cost.epsilon * (1 + 1e-12)
    with Ledger.open(state_dir.ledger) as ledger:
        row = ledger.run(session.account.id)
        population = ledger.population("people")
    assert (row.state, row.next_round) == ("done", 6)
    assert row.spent_epsilon == pytest.approx(reports[-1].epsilon)
    assert population.reserved_epsilon == 0
    whole(state_dir)


def test_the_released_sum_is_what_the_mechanism_says(tmp_path: Path) -> None:
    """Undo the noise from the key: what is left is the clipped sum over the fixed denominator."""
    state_dir = home(tmp_path)
    a_plan = plan(run__rounds=1, participation={}, client__learning_rate=1.0)
    session = Session.begin(state_dir, a_plan, identity_is_stable=True)
    before = session.params.clone()
    grid = LyingGrid(2)
    with session:
        FieldfareStrategy(session).start(grid)
    assert session.cost is not None
    release = Privatiser.of("grid", session.noise_multiplier, 1.0, session.schema.numel, a_plan.run.cohort, 1.0)
    noise = release.stream(session.cost.mechanism, session.schema.numel, session.noise).next()
    scaled = (session.params - before) * a_plan.run.cohort - release.std * noise
    total = torch.zeros_like(scaled)
    for message in grid.seen:
        reply = LyingGrid.answer(LyingGrid(2), message)
        total += session.schema.flatten(
            {name: torch.from_numpy(a.numpy().copy()) for name, a in reply.content.array_records[UPDATE].items()}
        )
    assert release.grid is not None
    torch.testing.assert_close(scaled, total.double(), rtol=1e-4, atol=2 * release.grid.spacing)
    assert float(torch.linalg.vector_norm(total)) <= a_plan.run.cohort


def with_update(reply: Message, value: float, users: int | None = None) -> Message:
    arrays = {
        name: Array(np.full(array.shape, value, np.float32))
        for name, array in reply.content.array_records[UPDATE].items()
    }
    reply.content[UPDATE] = ArrayRecord(arrays)
    if users is not None:
        reply.content[REPORT] = MetricRecord({"users": users, "counts": []})
    return reply


def lie_nan(instruction: Message, reply: Message) -> Message:
    return with_update(reply, math.nan)


def lie_inf(instruction: Message, reply: Message) -> Message:
    return with_update(reply, math.inf)


def lie_huge(instruction: Message, reply: Message) -> Message:
    return with_update(reply, 1e38)


def lie_many_users(instruction: Message, reply: Message) -> Message:
    return with_update(reply, 1.0, users=1_000_000)


def lie_metrics(instruction: Message, reply: Message) -> Message:
    reply.content["metrics"] = MetricRecord({"loss": 0.3, "num-examples": 10**9})
    return reply


def lie_stale(instruction: Message, reply: Message) -> Message:
    reply.content["fieldfare"]["round"] = int(reply.content["fieldfare"]["round"]) - 1
    return reply


def lie_error(instruction: Message, reply: Message) -> Message:
    return Message(Error(2, "broken"), reply_to=instruction)


def lie_away(instruction: Message, reply: Message) -> Message:
    return Message(Error(5, "node unavailable"), reply_to=instruction)


def lie_empty(instruction: Message, reply: Message) -> Message:
    return Message(flwr.app.RecordDict(), reply_to=instruction)


LIES = [lie_nan, lie_inf, lie_huge, lie_many_users, lie_metrics, lie_stale, lie_error, lie_empty]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_one_lying_node_is_counted_and_the_run_goes_on(lie: Any, tmp_path: Path) -> None:
    """Each is a way in which Flower 1.41's own wrapper loses the run, the model or the bound (its defects 1-12)."""
    state_dir = home(tmp_path)
    a_plan = plan(run__cohort=6, run__min_reports=1, run__rounds=3, participation={})
    session, reports = run(state_dir, a_plan, LyingGrid(3, {3: lie}))
    assert len(reports) == 3
    assert bool(torch.isfinite(session.params).all())
    with Ledger.open(state_dir.ledger) as ledger:
        rejects = [row.rejects for row in ledger.rounds(session.account.id).items if row.state == "committed"]
    asked_the_liar = any(rejects)
    assert asked_the_liar
    assert all(sum(row.values()) <= 1 for row in rejects)
    whole(state_dir)


def test_a_duplicate_reply_is_not_summed_twice(tmp_path: Path) -> None:
    class Twice(LyingGrid):
        def pull_messages(self, message_ids: Any) -> Any:
            for reply in super().pull_messages(message_ids):
                yield reply
                yield reply

    state_dir = home(tmp_path)
    honest, _ = run(state_dir, plan(), LyingGrid(3))
    doubled, _ = run(state_dir, plan(), Twice(3))
    torch.testing.assert_close(final(state_dir, doubled), final(state_dir, honest), rtol=0, atol=0)
    with Ledger.open(state_dir.ledger) as ledger:
        rejects = [row.rejects for row in ledger.rounds(doubled.account.id).items]
    assert any("duplicate or stray reply" in row for row in rejects)


def test_too_few_reports_void_the_round_and_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: with no committed round the run ends, and keeps no reservation."""
    monkeypatch.setattr(patience_module, "MOST_VOIDS", 3)
    state_dir = home(tmp_path)
    # Errors that pass: the nodes are not there. A fault of the app would end the run at once.
    grid = LyingGrid(2, {2: lie_away, 3: lie_away})
    session = Session.begin(state_dir, plan(), identity_is_stable=True)
    initial = session.params.clone()
    with pytest.raises(Refused, check=coded("nothing-committed", "run")) as refused, session:
        FieldfareStrategy(session).start(grid)
    # It has ended: nothing of what it says may ask for a resumption.
    assert "esume" not in str(refused.value)
    torch.testing.assert_close(session.params, initial, rtol=0, atol=0)
    with Ledger.open(state_dir.ledger) as ledger:
        row = ledger.run(session.account.id)
        states = [row.state for row in ledger.rounds(session.account.id).items]
        assert ledger.participation_histogram(session.account.id) == {}
        population = ledger.population("people")
    assert states == ["void"] * 3
    assert (row.state, row.next_round, row.spent.mu_squared) == ("failed", 0, 0.0)
    assert (population.committed_epsilon, population.spent_epsilon) == (0.0, 0.0)
    assert (state_dir.root / session.account.id / "model.safetensors").exists()
    whole(state_dir)


def test_the_released_norm_of_a_round_is_that_of_its_step(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    session = Session.begin(state_dir, plan(server_optimizer={"kind": "sgd"}), identity_is_stable=True)
    before = session.params.clone()
    with session:
        assert FieldfareStrategy(session).run_round(LyingGrid(2))
        step = session.params - before
    with Ledger.open(state_dir.ledger) as ledger:
        (row,) = ledger.rounds(session.account.id).items
    assert row.statistics["released_norm"] == pytest.approx(float(step.double().norm()), rel=1e-5)


def test_nodes_that_leave_later_leave_a_run_that_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "MOST_VOIDS", 3)
    state_dir = home(tmp_path)
    session = Session.begin(state_dir, plan(), identity_is_stable=True)
    with session:
        strategy = FieldfareStrategy(session)
        strategy.run_round(LyingGrid(2))
        with pytest.raises(Interrupted, match=f"3 rounds in a row.*--resume {session.account.id}"):
            strategy.start(LyingGrid(2, {2: lie_error, 3: lie_error}))
    with Ledger.open(state_dir.ledger) as ledger:
        states = [row.state for row in ledger.rounds(session.account.id).items]
        assert ledger.run(session.account.id).state == "interrupted"
    assert states == ["committed", *["void"] * 3]
    # The nodes come back: the same noise row is used for the next sum that is released.
    resumed = Session.resume(state_dir, session.account.id, identity_is_stable=True)
    with resumed:
        FieldfareStrategy(resumed).start(LyingGrid(2))
    assert resumed.next_round == 6
    whole(state_dir)


def test_a_run_that_its_users_cannot_fill_ends_before_its_first_round(tmp_path: Path) -> None:
    """I5, also where users were not counted before: 24 users x 1 for 6 rounds of 6."""
    state_dir = home(tmp_path)
    once = plan(participation={"scheme": "single"}, run__min_reports=5)
    session = Session.begin(state_dir, once, identity_is_stable=True)
    with pytest.raises(Refused, check=coded("nothing-committed", "run", "24")) as refusal, session:
        FieldfareStrategy(session).start(LyingGrid(2))
    assert str(refusal.value).count("Nearest allowed") == 1
    with Ledger.open(state_dir.ledger) as ledger:
        ended = ledger.run(session.account.id)
        assert (ended.state, str(ended.message).count("Nearest allowed")) == ("failed", 1)  # the page says it, too
        assert ledger.rounds(ended.id).items == ()
    with session.__class__.begin(state_dir, plan(participation={"scheme": "single"}, run__min_reports=4), True) as fits:
        FieldfareStrategy(fits).start(LyingGrid(2))
    assert fits.next_round == 6


def test_a_run_out_of_users_can_be_resumed_or_ended(tmp_path: Path) -> None:
    """F11: exit code 4. Half of the users leave after the first round."""
    state_dir = home(tmp_path)
    once = plan(participation={"scheme": "single"}, run__min_reports=4)
    session = Session.begin(state_dir, once, identity_is_stable=True)
    half = LyingGrid(2)
    with session:
        strategy = FieldfareStrategy(session)
        strategy.run_round(half)
        half._contexts.popitem()
        with pytest.raises(Interrupted, check=coded("interrupted", "--resume")) as stopped:
            strategy.start(half)
    assert stopped.value.exit_status == 4
    with Ledger.open(state_dir.ledger) as ledger:
        assert ledger.run(session.account.id).state == "interrupted"


def test_too_few_users_in_this_process_end_a_run_at_its_first_look(tmp_path: Path) -> None:
    """No attempt is opened, and no time is waited: no other user can come."""
    state_dir = home(tmp_path)
    few = plan(run__min_available=25, run__round_timeout=600.0)  # there are 24
    with pytest.raises(Refused, check=coded("nothing-committed", "run", "25", "24")) as refusal:
        run(state_dir, few, LyingGrid(2))
    assert str(refusal.value).count("Nearest allowed") == 1
    with Ledger.open(state_dir.ledger) as ledger:
        (view,) = ledger.runs().items
        assert view.state == "failed"
        assert ledger.rounds(view.id).items == ()
    whole(state_dir)


def test_dropouts_do_not_change_the_noise_or_the_denominator(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    a_plan = plan(run__rounds=1, participation={}, run__min_reports=1)
    full, _ = run(state_dir, a_plan, LyingGrid(3))
    less, _ = run(state_dir, a_plan, LyingGrid(3, {2: lie_error}))
    assert full.released.noise_std == less.released.noise_std > 0


def test_the_budget_refuses_before_anything_is_written(tmp_path: Path) -> None:
    state_dir = home(tmp_path, epsilon=0.5)
    before = sorted(path.name for path in state_dir.root.iterdir() if not path.name.startswith("ledger"))
    with pytest.raises(BudgetRefused) as refusal:
        Session.begin(state_dir, plan(), identity_is_stable=True)
    assert refusal.value.nearest
    after = sorted(path.name for path in state_dir.root.iterdir() if not path.name.startswith("ledger"))
    assert after == before
    with Ledger.open(state_dir.ledger) as ledger:
        assert ledger.runs().items == ()


def test_an_unknown_population_and_a_missing_ledger_are_refused(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    with pytest.raises(BadInput, check=coded("not-found", "population")):
        Session.begin(state_dir, plan(privacy__population="nobody"), identity_is_stable=True)
    elsewhere = StateDirectory(tmp_path / "empty", f"sqlite:///{tmp_path / 'empty' / 'ledger.sqlite3'}")
    with pytest.raises(NoLedger, check=coded("no-ledger")) as missing:
        Session.begin(elsewhere, plan(), identity_is_stable=True)
    assert "Traceback" not in str(missing.value)


def test_a_fixed_noise_seed_cannot_be_charged_to_people(tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    with pytest.raises(BadInput, check=coded("not-allowed", "a fixed noise seed on population")):
        Session.begin(state_dir, plan(), identity_is_stable=True)


def test_unauthenticated_nodes_need_a_word_from_the_plan(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    with pytest.raises(BadInput, check=coded("not-allowed", "run.trust_node_ids")):
        Session.begin(state_dir, plan(), identity_is_stable=False)
    session = Session.begin(state_dir, plan(run__trust_node_ids=True), identity_is_stable=False)
    with session, Ledger.open(state_dir.ledger) as ledger:
        assert ledger.run(session.account.id).trust_node_ids


def test_a_stop_request_is_obeyed_at_the_round_boundary(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    session = Session.begin(state_dir, plan(), identity_is_stable=True)

    def stop_after_two(report: RoundReport) -> None:
        if report.round == 1:
            with Ledger.open(state_dir.ledger) as ledger:
                ledger.request(session.account.id, "stop", "officer")

    with session:
        FieldfareStrategy(session, stop_after_two).start(LyingGrid(2))
    with Ledger.open(state_dir.ledger) as ledger:
        row, population = ledger.run(session.account.id), ledger.population("people")
    assert (row.state, row.next_round) == ("stopped", 2)
    assert population.reserved_epsilon == 0
    assert 0 < row.spent_epsilon < row.planned_epsilon
    # Who asked may have seen its models, so what its rounds took is no bound: what it planned is.
    assert simulate._ended(state_dir, row.id, None).value["epsilon"] == row.held[1] == row.planned_epsilon
    assert (state_dir.root / session.account.id / "model.safetensors").exists()


def test_nothing_is_seen_before_its_charge_is_durable(tmp_path: Path) -> None:
    """I1: whenever a round is reported, and whenever a node gets a model, the ledger already holds the charge."""
    state_dir = home(tmp_path)
    session = Session.begin(state_dir, plan(), identity_is_stable=True)

    class Watching(LyingGrid):
        def answer(self, message: Message) -> Message:
            if message.metadata.message_type == "train":
                with Ledger.open(state_dir.ledger) as ledger:
                    assert ledger.run(session.account.id).next_round == message.content["fieldfare"]["round"]
            return super().answer(message)

    def charged(report: RoundReport) -> None:
        with Ledger.open(state_dir.ledger) as ledger:
            row = ledger.run(session.account.id)
        assert row.next_round == report.round + 1
        assert row.spent_epsilon >= report.epsilon * (1 - 1e-12)

    with session:
        FieldfareStrategy(session, charged).start(Watching(2))
    assert session.next_round == 6


def test_replies_carry_nothing_but_a_sum_and_a_count() -> None:
    grid = LyingGrid(2)
    from fieldfare_flower.messages import Occasion, TrainInstruction

    task = TinyTask()
    from fieldfare.schema import Schema

    schema = Schema.of(task.build_model())
    point = schema.arrays(schema.flatten(dict(task.build_model().named_parameters())))
    settings = {"client": plan().client.model_dump(mode="json"), "clipping": {"kind": "flat", "norm": 1.0}, "seed": 0}
    names = task.users().pseudonyms[:4]
    instruction = TrainInstruction(Occasion("r", 0, 0), (point,), (1.0,), names, settings)
    message = Message(instruction.write(), 2, "train")
    reply = grid.answer(message)
    assert set(reply.content) == {"fieldfare", UPDATE, REPORT}
    assert set(reply.content[REPORT]) == {"users", "counts"}
    assert set(reply.content["fieldfare"]) == {"version", "run", "round", "attempt"}


@pytest.mark.parametrize("kind", ["flat", "automatic", "normalised", "per-layer", "adaptive-quantile"])
def test_the_charge_does_not_depend_on_clipping_or_optimizer(kind: str, tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    session, _ = run(state_dir, plan(clipping={"kind": kind, "norm": 0.5}), LyingGrid(2))
    reference, _ = run(state_dir, plan(server_optimizer={"kind": "fedadam", "learning_rate": 0.01}), LyingGrid(2))
    # Only the resolution of floats depends on how many numbers a round releases: 7 digits agree.
    assert session.released.spent.mu_squared == pytest.approx(reference.released.spent.mu_squared, rel=1e-7)
    assert bool(torch.isfinite(session.params).all())


@pytest.mark.parametrize("rate", [0.25, 1e-4], ids=["some users", "mostly no user"])
def test_add_remove_never_voids_and_charges_the_sampler(tmp_path: Path, rate: float) -> None:
    state_dir = StateDirectory(
        tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}", lease_patience=5.0
    )
    state_dir.prepare()
    with Ledger.open(state_dir.ledger, create=True) as ledger:
        ledger.create_population("people", 50.0, 1e-5, adjacency="add_remove", simulated=True, actor="test")
    a_plan = Plan.parse(
        {
            **plan().model_dump(mode="json"),
            "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5, "adjacency": "add_remove"},
            "run": {**plan().run.model_dump(mode="json"), "min_reports": None},
            "participation": {"scheme": "poisson", "rate": rate},
            "mechanism": {"kind": "independent"},
        }
    )
    session, reports = run(state_dir, a_plan, LyingGrid(2))
    assert len(reports) == 6
    assert session.released.spent.sampled
    secret = session.noise.uniform(40, row=3, stream="select")
    assert session.cohorts.select(3, np.arange(40)).tolist() == np.flatnonzero(secret < rate).tolist()
    unamplified = session.released.spent.without_amplification().epsilon(1e-5)
    assert reports[-1].epsilon < unamplified
    whole(state_dir)


def test_a_model_that_diverges_ends_the_run_after_its_charge(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    session = Session.begin(
        state_dir, plan(server_optimizer={"kind": "sgd", "learning_rate": 1e40}), identity_is_stable=True
    )
    with pytest.raises(BadInput, check=coded("diverged", "server_optimizer and client learning rates of run")), session:
        FieldfareStrategy(session).start(LyingGrid(2))
    with Ledger.open(state_dir.ledger) as ledger:
        row = ledger.run(session.account.id)
    assert row.state == "failed"
    assert row.next_round >= 1
    assert row.spent_epsilon > 0


class ComplexTask(TinyTask):
    """A model whose parameters have imaginary parts, which no clip norm here bounds."""

    def build_model(self) -> torch.nn.Module:
        return torch.nn.Linear(3, 1, dtype=torch.complex64)


def test_a_model_that_cannot_be_noised_is_refused_and_reserves_nothing(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    with pytest.raises(BadInput, check=coded("wrong-form", "model parameter", "complex64")):
        Session.begin(state_dir, plan(run__task="test_strategy:ComplexTask"), identity_is_stable=True)
    with Ledger.open(state_dir.ledger) as ledger:
        assert ledger.population("people").committed_epsilon == 0


class NormTask(TinyTask):
    """A model with BatchNorm: statistics of users' data that training changes in place."""

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        scores = super().evaluate(model)
        model.train()(torch.randn(9, 3))  # a task that leaves its statistics behind
        return scores


def test_batchnorm_trains_and_its_statistics_are_never_released(tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    a_plan = plan(run__task="test_strategy:NormTask", run__rounds=2, participation={})
    grid = LyingGrid(2, task="test_strategy:NormTask")
    session, _ = run(state_dir, a_plan, grid)
    model = NormTask().build_model()
    first = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(load_file(state_dir.root / session.account.id / "model.safetensors"), strict=True)
    for name, value in model.state_dict().items():
        assert torch.equal(value, first[name]) == (name in dict(model.named_buffers())), name


def test_scores_may_be_taken_less_often(tmp_path: Path) -> None:
    _, reports = run(home(tmp_path), plan(run__evaluate_every=4), LyingGrid(2))
    assert [report.score is not None for report in reports] == [False, False, False, True, False, True]
