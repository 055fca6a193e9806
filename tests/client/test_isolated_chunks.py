"""Where it is secret who trains, users train together only as far as no bit of one depends on the others."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fieldfare import clipping
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.training import batched, isolation
from fieldfare_client.training.batched import BatchedEngine
from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.engines import Batches, Chunk
from fieldfare_client.training.isolation import Isolation, ladder
from fieldfare_client.training.loop import LoopEngine
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

MODELS = ["mlp-2k", "mlp-197k", "lenet-62k", "lstm-31k", "transformer-35k"]
BATCH = 4


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.setattr(isolation, "FOUND", {})


class Made(Task):
    """A model of the simulation benchmark, or one that is given, and users with `sizes` rows."""

    name, score_name, held_out = "made", "loss", "Nothing is evaluated."

    def __init__(self, model: str | Callable[[], nn.Module], sizes: list[int]) -> None:
        self.model, self.sizes = model, sizes

    def build_model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            from simulation_models import make

            return make(self.model) if isinstance(self.model, str) else self.model()  # type: ignore[no-any-return]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        from simulation_models import example_loss

        losses: torch.Tensor = example_loss(outputs, targets)
        return losses

    def users(self) -> UserTable:
        from simulation_models import MODELS as KNOWN

        shape, rows = KNOWN[self.model][1] if isinstance(self.model, str) else (6,), sum(self.sizes)
        chance = np.random.default_rng(3)
        if shape is None:
            x, y = chance.integers(0, 64, (rows, 20)), chance.integers(0, 64, (rows, 20))
        else:
            x, y = chance.standard_normal((rows, *shape)).astype(np.float32), chance.integers(0, 10, rows)
        ids = [f"u{user}" for user in range(len(self.sizes))]
        return UserTable(ids, np.concatenate(([0], np.cumsum(self.sizes))), {"x": x, "y": y})

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 10))


def each(task: Task, users: NDArray[np.int64], **settings: Any) -> tuple[dict[int, torch.Tensor], Any, Trainer]:
    """Each user's clipped update by its index, the result of the cohort, and who trained it."""
    model = task.build_model()
    schema = Schema.of(model)
    start = schema.flatten(dict(model.named_parameters())).detach()
    clip, rows = clip_with(clipping.parse({"kind": "flat", "norm": 0.05}), schema), list[torch.Tensor]()

    def watch(updates: torch.Tensor) -> None:
        clip(updates)
        rows.append(updates.clone())

    client = ClientSpec(**{"batch_size": BATCH, "learning_rate": 0.2, "engine": "batched", **settings})
    trainer = Trainer(task, client, watch, isolated=True)
    table = task.users()
    assert isinstance(table, UserTable)
    result = trainer.train([start], [1.0], table, users, at_round=2)
    order = users[np.argsort(-table.sizes_of(users), kind="stable")]
    return dict(zip(order.tolist(), torch.cat(rows), strict=True)), result, trainer


def together(trainer: Trainer) -> bool:
    """Whether users were trained in chunks."""
    return any(width for *_, width in trainer._choices)


@pytest.mark.parametrize("model", MODELS)
def test_no_bit_of_a_user_depends_on_the_cohort(model: str) -> None:
    """Cohorts of 16, 11 and 3 of the same users, of whom some have as many rows and some have not."""
    chance = np.random.default_rng(4)
    sizes = [2 * BATCH] * 6 + chance.integers(BATCH, 3 * BATCH, 12).tolist()
    task = Made(model, sizes)
    everyone = chance.permutation(len(sizes))
    whole, _, trainer = each(task, everyone[:16])
    assert together(trainer)
    for cohort in (everyone[5:16], everyone[14:], everyone[1:2]):
        some, result, _ = each(task, cohort)
        assert all(torch.equal(update, whole[user]) for user, update in some.items() if user in whole)
        torch.testing.assert_close(result.update, sum(u.double() for u in some.values()), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 2},
        {"steps": 3},
        {"momentum": 0.9, "gradient_clip": 0.3},
        {"weight_decay": 0.1, "proximal": 0.2},
        {"batch_size": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["written", "mapped", "dropout"])
def test_cohorts_of_any_size_and_rows_train_as_alone(kind: str, settings: dict[str, Any]) -> None:
    made = {
        "written": small,
        "mapped": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 10)),
        "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 10)),
    }[kind]
    chance = np.random.default_rng(5)
    task = Made(made, chance.integers(0, 45, 40).tolist())
    users = chance.permutation(40)
    whole, _, trainer = each(task, users, **settings)
    # Long sums over rows add in an order that depends on the slot: then such users train alone.
    assert together(trainer) or (kind != "written" and settings.get("batch_size", 0) > 30)
    for cohort in (users[:17], users[39:]):
        some, _, _ = each(task, cohort, **settings)
        assert all(torch.equal(update, whole[user]) for user, update in some.items())
    looped, _, _ = each(task, users, **{**settings, "engine": "loop"})
    for user, update in looped.items():
        torch.testing.assert_close(whole[user], update, rtol=1e-3, atol=1e-5)


class Logistic(Made):
    """Logistic regression on rows of 89 numbers, which end amid a vector of the CPU's."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(lambda: nn.Sequential(nn.Linear(89, 1)), sizes)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    def users(self) -> UserTable:
        chance, rows = np.random.default_rng(6), sum(self.sizes)
        x, y = chance.standard_normal((rows, 89)), chance.integers(0, 2, rows)
        ids = [f"u{user}" for user in range(len(self.sizes))]
        columns = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
        return UserTable(ids, np.concatenate(([0], np.cumsum(self.sizes))), columns)


def require_alone(
    task: Logistic,
    everyone: NDArray[np.int64],
    cohorts: Sequence[NDArray[np.int64]],
    whole: Mapping[int, torch.Tensor],
    settings: dict[str, Any],
) -> None:
    """Users have the bits that they have among all others in each of `cohorts`, and about those of a loop."""
    for cohort in cohorts:
        some, _, _ = each(task, cohort, **settings)
        assert all(torch.equal(update, whole[user]) for user, update in some.items())
    looped, _, _ = each(task, everyone, **{**settings, "engine": "loop"})
    for user, update in looped.items():
        torch.testing.assert_close(whole[user], update, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 16},
        {"batch_size": 10, "epochs": 2},
        {"batch_size": 16, "momentum": 0.9, "gradient_clip": 0.3, "weight_decay": 0.1, "proximal": 0.2},
    ],
    ids=str,
)
def test_rows_of_any_length_start_where_bits_do_not_depend_on_the_slot(settings: dict[str, Any]) -> None:
    """Cohorts of 16, 11, 4 and 1 users, of whose rows of 89 numbers only the first would start on 64 bytes."""
    task, chance = Logistic([40] * 8 + [83, 3, 16, 57, 1, 20, 31, 16]), np.random.default_rng(7)
    everyone = chance.permutation(16)
    whole, _, trainer = each(task, everyone, **settings)
    assert 0 not in {width for *_, width in trainer._choices}  # nobody trains alone
    require_alone(task, everyone, (everyone[5:], everyone[2:6], everyone[9:10]), whole, settings)


class Broad(Logistic):
    """Rows of 89 numbers, and a first layer that is not copied for each user."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes)
        self.model = lambda: nn.Sequential(nn.Linear(89, 12), nn.Tanh(), nn.Linear(12, 1))


@pytest.mark.parametrize("settings", [{"batch_size": 3}, {"batch_size": 3, "epochs": 2}, {"steps": 9}], ids=str)
def test_a_first_layer_that_is_not_copied_leaves_users_alone(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users of a chunk have fewer steps than others, dummies sit next to them, and some have more rows than pay."""
    monkeypatch.setattr(batched, "WIDE", 0)
    task, chance = Broad([8, 7, 6, 5, 8, 6, 12, 11, 9, 1, 2, 21, 22, 23, 40, 8, 5, 9, 10]), np.random.default_rng(8)
    everyone = chance.permutation(19)
    whole, _, trainer = each(task, everyone, **settings)
    assert {width // isolation.WIDE for *_, width in trainer._choices} == {0, 1}
    require_alone(task, everyone, (everyone[7:], everyone[2:8], everyone[4:5]), whole, settings)


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 37), nn.Dropout(0.5), nn.Tanh(), nn.Linear(37, 10))
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize(
    "made",
    [
        lambda: nn.Sequential(nn.Linear(6, 37), nn.ReLU(), nn.Linear(37, 10)),
        lambda: nn.Sequential(nn.Linear(6, 37), nn.Dropout(0.5), nn.ReLU(), nn.Linear(37, 10)),
        lambda: nn.Sequential(nn.Linear(6, 37), nn.LayerNorm(37), nn.Linear(37, 10)),
        frozen,
    ],
    ids=["written", "dropout", "layernorm", "frozen"],
)
def test_a_user_who_trains_again_has_the_same_bits(made: Callable[[], nn.Module], engine: str) -> None:
    """In one trainer, in other memory, before and after others: no timing of chunks may change who trains a user."""
    task, rows = Made(made, [9] * 6 + [21] * 14), list[torch.Tensor]()
    table, point, kept = task.users(), start(task), list[torch.Tensor]()
    client = ClientSpec(batch_size=BATCH, learning_rate=0.2, engine=engine)  # type: ignore[arg-type]
    trainer = Trainer(task, client, lambda updates: rows.append(updates.clone()), isolated=True)
    found: dict[int, list[torch.Tensor]] = {0: [], 10: []}
    for again in range(5):
        for user, updates in found.items():
            rows.clear()
            trainer.train([point.clone()], [1.0], table, np.array([user]), at_round=2)
            updates.append(rows[0][0])
        kept.append(torch.empty(1000 * again + 17))
        trainer.train([point], [1.0], table, np.arange(3, 20), at_round=again)
    for first, *others in found.values():
        assert first.any()
        assert all(torch.equal(first, other) for other in others)


def leaky(monkeypatch: pytest.MonkeyPatch, leak: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let the batched engine add `leak` of all users' updates to each of them."""
    updates = BatchedEngine.updates

    def leaking(engine: BatchedEngine, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        updates(engine, start, chunk, out)
        out += leak(out)

    monkeypatch.setattr(BatchedEngine, "updates", leaking)


@pytest.mark.parametrize(
    "leak",
    [
        lambda out: 1e-6 * out.nan_to_num(0.0, 0.0, 0.0).mean(0),
        lambda out: 0.0 * out.sum(0),  # only what is not finite spreads
        lambda out: 1e-6 * torch.arange(len(out))[:, None],
        lambda out: 1e-6 * out.roll(1, 0).nan_to_num(0.0, 0.0, 0.0),
    ],
    ids=["mean", "not finite", "slot", "neighbour"],
)
def test_a_machine_that_moves_bits_trains_one_user_at_a_time(
    leak: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task, users = Made(small, [9] * 20), np.arange(20)
    expected, _, _ = each(task, users, engine="loop")
    leaky(monkeypatch, leak)
    with caplog.at_level(logging.WARNING, "fieldfare.client"):
        found, _, trainer = each(task, users)
    assert not together(trainer)
    assert "users train one at a time" in caplog.text
    assert all(torch.equal(found[user], expected[user]) for user in expected)


def test_a_size_that_moves_bits_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only chunks of 16 leave users alone here; then there are no others, whatever the cohort."""
    leaky(monkeypatch, lambda out: torch.full_like(out, 1e-6 * (len(out) != 16)))
    seen: list[int] = []
    made = Batches.__init__

    def note(batches: Batches, chunk: Chunk) -> None:
        made(batches, chunk)
        if isinstance(chunk.sizes, Isolation):
            seen.extend(batches.slots)

    monkeypatch.setattr(Batches, "__init__", note)
    for users in (3, 16, 37):
        each(Made(small, [9] * users), np.arange(users))
    assert set(seen) == {16}


def test_chunks_have_one_of_few_sizes_that_were_tried() -> None:
    seen: list[tuple[int, bool]] = []
    made = Batches.__init__

    def note(batches: Batches, chunk: Chunk) -> None:
        made(batches, chunk)
        if isinstance(chunk.sizes, Isolation):
            known = {slots for found in isolation.FOUND.values() for (slots, _, _), fits in found.items() if fits}
            seen.extend((slots, slots in known) for slots in batches.slots)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__init__", note)
        for users in (23, 61, 85):
            each(Made(small, [9] * users), np.arange(users))
    assert {slots for slots, _ in seen} == {24, 64, 88}
    assert all(tried for _, tried in seen)


def test_nothing_is_shown_by_rows_that_move_nothing() -> None:
    """Updates that are all zero agree in every chunk."""
    rows = torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64)
    silent = Isolation(lambda start, chunk: torch.zeros(len(chunk), 4), rows, torch.zeros(4), ClientSpec(), 99, "zero")
    assert not silent.fits(16, 16, 16)
    alike = Isolation(lambda start, chunk: torch.ones(len(chunk), 4), rows, torch.zeros(4), ClientSpec(), 99, "ones")
    assert not alike.fits(16, 16, 16)


@pytest.mark.parametrize("most", [2, 3, 6, 10, 13, 99])
def test_a_chunk_is_tried_next_to_infinite_numbers_whatever_its_size(most: int) -> None:
    """For 13 users at most, say, the chunk that others are compared with held two, and none of infinite numbers."""

    def leaking(start: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        own = chunk.inputs.reshape(len(chunk), -1)
        return own + 0.0 * own.sum(0)  # moves nobody, as long as all numbers are finite

    rows = torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64)
    tried = Isolation(leaking, rows, torch.zeros(6), ClientSpec(), most, None)
    assert not tried.fits(tried.base, 4, 4)
    apart = Isolation(
        lambda start, chunk: chunk.inputs.reshape(len(chunk), -1), rows, torch.zeros(6), ClientSpec(), most, None
    )
    assert all(apart.fits(size, 4, 4) for size in (2, 3, 4, 12, 16, 24))


def test_a_user_who_overflows_when_others_go_on_keeps_the_own_update() -> None:
    """A user with few rows waits in its slot until the others are done; what happens there meanwhile is left out."""
    task = Made(small, [4, 40, 40])
    table = task.users()
    x = np.array(table.columns["x"][np.arange(84)])
    x[:4] *= 1e18  # the next step of such a user would not be finite
    task.users = lambda: UserTable(table.pseudonyms, table.offsets, {**table.columns, "x": x})  # type: ignore[method-assign]
    alone, _, _ = each(task, np.array([0]))
    with_others, result, trainer = each(task, np.array([0, 1, 2]))
    assert together(trainer)
    assert bool(alone[0].isfinite().all())
    assert bool(alone[0].any())
    assert torch.equal(with_others[0], alone[0])
    assert not result.failures


class Failing(Made):
    """The loss of label 9 raises where one user trains, in every engine."""

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if bool((columns["y"] == 99).any()):
            raise ValueError("99")
        return columns["x"], columns["y"]


def test_a_failing_user_moves_no_bit_and_no_engine() -> None:
    task = Failing(small, [9] * 12)
    table = task.users()
    y = np.array(table.columns["y"][np.arange(108)])
    healthy, _, _ = each(task, np.arange(12))
    y[:9] = 99
    task.users = lambda: UserTable(table.pseudonyms, table.offsets, {**table.columns, "y": y})  # type: ignore[method-assign]
    found, result, trainer = each(task, np.arange(12))
    assert (result.users, result.failures) == (12, {"ValueError": 1})
    assert not found[0].any()
    assert all(torch.equal(found[user], healthy[user]) for user in range(1, 12))
    # Even where everybody in a chunk fails, the next ones train as they would have.
    y[:] = 99
    trainer.train([start(task)], [1.0], task.users(), np.arange(12), at_round=2)  # type: ignore[arg-type]
    assert LoopEngine in trainer._engines
    again = trainer.train([start(task)], [1.0], table, np.arange(12), at_round=2)
    torch.testing.assert_close(again.update, sum(u.double() for u in healthy.values()), rtol=0, atol=1e-12)


def start(task: Task) -> torch.Tensor:
    model = task.build_model()
    return Schema.of(model).flatten(dict(model.named_parameters())).detach()


def test_memory_that_runs_out_costs_nobody_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    task, users = Made(small, [9] * 40), np.arange(40)
    expected, _, _ = each(task, users)
    updates = BatchedEngine.updates

    def limited(engine: BatchedEngine, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        if chunk.sizes is not None and len(chunk) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        updates(engine, start, chunk, out)

    monkeypatch.setattr(BatchedEngine, "updates", limited)
    found, result, trainer = each(task, users)
    assert not result.failures
    assert trainer._room <= 12
    assert all(torch.equal(found[user], expected[user]) for user in expected)


@pytest.mark.parametrize("most", [12, 0])
def test_memory_that_runs_out_while_updates_are_clipped_costs_nobody_their_place(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, users = Made(small, [9] * 40), np.arange(40)
    expected, _, _ = each(task, users)
    clip, emptied = Trainer._clip, list[object]()

    def limited(trainer: Trainer, updates: torch.Tensor) -> object:
        if len(updates) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return clip(trainer, updates)

    monkeypatch.setattr(Trainer, "_clip", limited)
    # What an exception still holds cannot be given back.
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: emptied.append(sys.exc_info()[1]))
    if not most:
        with pytest.raises(torch.OutOfMemoryError):  # not for ever
            each(task, users)
    else:
        found, result, trainer = each(task, users)
        assert (result.users, result.failures, trainer._room <= 12) == (40, {}, True)
        assert all(torch.equal(found[user], expected[user]) for user in expected)
    assert emptied
    assert not any(emptied)


def test_who_is_left_for_a_process_is_left_once_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    task, users = Made(small, [9] * 8), np.arange(8)
    _, _, trainer = each(task, users)
    clip, left = Trainer._clip, list[int]()

    def chunk(trainer: Trainer, engine: object, work: object, users: NDArray[np.int64], *others: object) -> list[Any]:
        trainer._left += users[:1].tolist()
        if len(users) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        updates = torch.zeros(len(users) - 1, trainer.schema.numel)
        return [(updates, clip(trainer, updates))]

    def apart(trainer: Trainer, train: object, users: list[int], trained: object) -> object:
        left.extend(users)
        return trained

    monkeypatch.setattr(Trainer, "_train_chunk", chunk)
    monkeypatch.setattr(Trainer, "_train_apart", apart)
    monkeypatch.setattr(Trainer, "_widths", lambda trainer, work, users: np.ones(len(users), np.int64))
    trainer.apart = True
    trainer.train([start(task)], [1.0], task.users(), users, at_round=1)
    assert sorted(left) == sorted(set(left))
    assert left


@pytest.mark.parametrize(
    ("model", "least", "engine"),
    [
        ("lenet-62k", 4 * 3072 * 2850 - 1, "ChannelsLastLoop"),
        ("lenet-62k", 4 * 3072 * 2850, "BatchedEngine"),
        ("lstm-31k", 0, "BatchedEngine"),
    ],
)
def test_no_clock_decides_how_a_user_trains(
    model: str, least: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers choose each for itself, and who else trains decides which of them has a user: they must agree.

    A LeNet has 2 850 weights in convolutions, and images of 3 072 numbers.
    """
    monkeypatch.setattr("fieldfare_client.training.trainer.CONVOLVED", least)
    monkeypatch.setattr("fieldfare_client.training.machine.time.process_time", lambda: 0.0)
    chosen = []
    for users in (2, 20):
        task = Made(model, [2 * BATCH] * users)
        _, _, trainer = each(task, np.arange(users), engine="auto")
        chosen += [type(c.engine).__name__ for choice in trainer._choices.values() for c in choice.candidates]
    assert set(chosen) == {engine}


def test_the_ladder_has_few_steps() -> None:
    for users in range(1, 5000):
        assert users <= ladder(users) <= users + (users // 8 if users > 32 else max(1, users // 2))
    assert len({ladder(users) for users in range(1, 5000)}) < 80
