"""I4: one user changes the sum by at most the clip norm, whatever a node sends."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.metrics import Riders
from fieldfare.participation import FixedOrder
from fieldfare.privatise import Grid, Privatiser
from fieldfare.schema import Schema
from fieldfare_flower.messages import HEADER, REPORT, UPDATE, Occasion, TrainReply
from fieldfare_server.run.round.aggregation import Aggregate, squared_norm
from fieldfare_server.run.round.rounds import unstack_queries
from fieldfare_server.run.round.running_noise import RunningNoise

SCHEMA = Schema(("weight", "bias"), ((2, 3), (2,)))
OCCASION = Occasion("run-1", 3, 1)


def update(value: float = 0.1) -> dict[str, np.ndarray]:
    return {"weight": np.full((2, 3), value, np.float32), "bias": np.full(2, value, np.float32)}


def honest(value: float = 0.1, users: int = 1, **changes: object) -> RecordDict:
    return dataclasses.replace(TrainReply(OCCASION, update(value), users), **changes).write()


def total(aggregate: Aggregate) -> float:
    return float(np.linalg.norm(aggregate.total))


def fresh(clip: float = 1.0, counts: int = 0) -> Aggregate:
    return Aggregate(SCHEMA, OCCASION, clip, Riders((1.0,) * counts, counts))


def test_an_honest_reply_is_summed_exactly() -> None:
    aggregate = fresh()
    assert aggregate.add(honest(0.25), sent=1)
    assert aggregate.add(honest(-0.125), sent=1)
    assert aggregate.users == 2
    assert not aggregate.rejects
    np.testing.assert_array_equal(aggregate.sum().numpy(), np.full(8, 0.125, np.float32))


def test_a_node_with_many_users_may_send_their_sum() -> None:
    aggregate = fresh()
    assert aggregate.add(honest(1.0, users=4), sent=4)
    assert total(aggregate) == pytest.approx(math.sqrt(8))
    assert not aggregate.rejects


@pytest.mark.parametrize("value", [1.0, 1e3, 1e19, 1e38, 3e38])
def test_a_long_update_is_cut_to_the_clip_norm(value: float) -> None:
    aggregate = fresh(clip=0.5)
    assert aggregate.add(honest(value), sent=1)
    assert total(aggregate) <= 0.5
    assert total(aggregate) == pytest.approx(0.5)
    assert aggregate.rejects == {"over-norm, clipped again": 1}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["weight", "bias"])
def test_a_non_finite_coordinate_drops_the_whole_reply(value: float, where: str) -> None:
    poisoned = update()
    poisoned[where].reshape(-1)[-1] = value
    aggregate = fresh()
    assert not aggregate.add(TrainReply(OCCASION, poisoned, 1).write(), sent=1)
    assert total(aggregate) == 0
    assert aggregate.users == 0
    assert aggregate.rejects == {"non-finite": 1}


def test_a_sum_that_was_privatised_is_gone() -> None:
    aggregate = fresh()
    assert aggregate.add(honest(), sent=1)
    raw = aggregate.total.copy()
    released = aggregate.privatise(RunningNoise(Privatiser(0.0), None, np.zeros(1)))
    np.testing.assert_array_equal(released.numpy(), raw)
    assert not hasattr(aggregate, "total")


SHARES = [(1.0,), (0.5, 0.5), (0.7, 0.1, 0.2), (0.9, 0.1, 0.0)]


@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=24, max_size=24),
    which=st.integers(0, len(SHARES) - 1),
)
@settings(max_examples=200, deadline=None)
def test_one_user_moves_the_stack_of_all_queries_by_at_most_the_clip_norm(values: list[float], which: int) -> None:
    shares = SHARES[which]
    aggregate = Aggregate(SCHEMA, OCCASION, 0.5, shares=shares)
    stacked = SCHEMA.stacked(len(shares))
    sent = stacked.arrays(torch.tensor(values[: stacked.numel]))
    assert aggregate.add(TrainReply(OCCASION, sent, 1).write(), sent=1)
    found = aggregate.sum()
    assert float(found.double().norm()) <= 0.5 * (1 + 1e-6)
    blocks = found.view(len(shares), -1).double().norm(dim=1)
    assert all(float(norm) <= 0.5 * math.sqrt(share) * (1 + 1e-6) for norm, share in zip(blocks, shares, strict=True))
    back = unstack_queries(found, shares).view(len(shares), -1).double()
    kept = aggregate.total.reshape(len(shares), -1)
    for share, row, expected in zip(shares, back, kept, strict=True):
        np.testing.assert_allclose(row.numpy(), expected / math.sqrt(share) if share else 0.0, rtol=1e-12)


@pytest.mark.parametrize("kind", ["momentum-tree", "nu", "banded"])
def test_the_joint_sensitivity_by_brute_force(kind: str) -> None:
    """A user that takes part in every third of seven rounds and puts the most into all three queries of each: C times
    what the server stacks. No choice exceeds the sensitivity that is charged, and the worst one reaches it."""
    spec = {"momentum-tree": {"momentum": 0.8}, "nu": {"nu": 0.1}, "banded": {"bands": 3}}[kind]
    order, clip, rounds = FixedOrder(3), 0.5, 7
    mechanism = mechanisms.build({"kind": kind, **spec}, rounds, order)
    c, bound = mechanism.strategy_matrix(rounds), float(mechanism.sensitivity(order)) * clip
    generator, worst = np.random.default_rng(0), 0.0

    def stack(vectors: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
        aggregate = Aggregate(SCHEMA, OCCASION, clip, shares=shares)
        sent = SCHEMA.stacked(3).arrays(torch.from_numpy(vectors.astype(np.float32).reshape(-1)))
        assert aggregate.add(TrainReply(OCCASION, sent, 1).write(), sent=1)
        return aggregate.sum().double().numpy()

    for trial in range(300):
        offset, signs = trial % 3, generator.choice([-1.0, 1.0], rounds)
        direction = generator.normal(size=(3, 8))
        direction *= clip / np.linalg.norm(direction, axis=1, keepdims=True)
        x = np.zeros((rounds, 24))
        for t in range(offset, rounds, 3):
            vectors = direction if trial < 3 else direction * signs[t] * generator.uniform(0.5, 3, size=(3, 1))
            shares = (0.8, 0.2, 0.0) if trial % 2 and t < 3 else (0.6, 0.1, 0.3)
            x[t] = stack(vectors, shares)
        moved = float(np.linalg.norm(c @ x))
        assert moved <= bound * (1 + 1e-6)
        worst = max(worst, moved)
    assert worst == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize(
    ("shares", "counts"), [((0.6, 0.6), 0), ((1.1,), 0), ((1.5, -0.5), 0), ((0.0,), 0), ((0.5, 0.5), 1)]
)
def test_shares_that_no_clip_norm_covers_are_refused(shares: tuple[float, ...], counts: int) -> None:
    with pytest.raises(ValueError, match="cannot be bounded"):
        Aggregate(SCHEMA, OCCASION, 1.0, Riders((1.0,) * counts, counts), shares)


def test_zero_and_denormal_updates_are_fine() -> None:
    aggregate = fresh()
    assert aggregate.add(honest(0.0), sent=1)
    assert aggregate.add(honest(1e-45), sent=1)
    assert aggregate.users == 2
    assert math.isfinite(total(aggregate))
    assert not aggregate.rejects


@pytest.mark.parametrize(
    ("changes", "sent", "reason"),
    [
        ({"occasion": Occasion("run-1", 2, 1)}, 1, "round"),
        ({"occasion": Occasion("run-1", 3, 0)}, 1, "round"),
        ({"occasion": Occasion("run-2", 3, 1)}, 1, "round"),
        ({"users": 2}, 1, "users"),
        ({"users": -1}, 1, "users"),
        ({"users": 10**12}, 1, "users"),
        ({"counts": (0.5,)}, 1, "schema"),
        ({"update": {**update(), "extra": np.zeros(1, np.float32)}}, 1, "schema"),
        ({"update": {"weight": update()["weight"]}}, 1, "schema"),
        ({"update": {}}, 1, "schema"),
        ({"update": {"Weight": update()["weight"], "bias": update()["bias"]}}, 1, "schema"),
        ({"update": {"weight": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float32)}}, 1, "shape"),
        ({"update": {"weight": np.zeros(6, np.float32), "bias": np.zeros(2, np.float32)}}, 1, "shape"),
        ({"update": {k: v.astype(np.float64) for k, v in update().items()}}, 1, "dtype"),
        ({"update": {k: v.astype(np.int64) for k, v in update().items()}}, 1, "dtype"),
        ({"update": {k: v.astype(np.float16) for k, v in update().items()}}, 1, "dtype"),
        ({"update": {k: v.astype(">f4") for k, v in update().items()}}, 1, "dtype"),
    ],
)
def test_what_breaks_the_contract_is_dropped_and_counted(changes: dict[str, object], sent: int, reason: str) -> None:
    aggregate = fresh()
    assert not aggregate.add(honest(**changes), sent=sent)
    assert total(aggregate) == 0
    assert aggregate.rejects == {reason: 1}


def test_permuted_names_are_summed_by_name_not_by_position() -> None:
    """Flower 1.41 clips by position and aggregates by key: a permuted reply moved the mean by 282 times the bound."""
    square = Schema(("a", "b"), ((2,), (2,)))
    aggregate = Aggregate(square, OCCASION, 10.0)
    reply = TrainReply(OCCASION, {"b": np.full(2, 2, np.float32), "a": np.full(2, 1, np.float32)}, 1)
    assert aggregate.add(reply.write(), sent=1)
    np.testing.assert_array_equal(aggregate.total, [1, 1, 2, 2])


def _with_array(array: Array) -> RecordDict:
    arrays = {k: Array(v) for k, v in update().items()}
    arrays["bias"] = array
    return RecordDict(
        {
            HEADER: ConfigRecord(OCCASION.to_config()),
            UPDATE: ArrayRecord(arrays),
            REPORT: MetricRecord({"users": 1, "counts": []}),
        }
    )


def _npy(header: bytes, body: bytes = b"\0" * 8) -> bytes:
    padded = header.ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an array",
        _npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"),
        _npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", b"\0" * 4),
        _npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", b"\0" * 12),
        _npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"),
        _npy(b"__import__('os').system('false')"),
        _npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }"),
        _npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': 'x', }"),
        b"\x93NUMPY\x09\x00" + b"\0" * 200,
    ],
)
def test_lying_array_headers_are_refused_without_allocating(data: bytes) -> None:
    aggregate = fresh()
    assert not aggregate.add(_with_array(Array("float32", (2,), "numpy.ndarray", data)), sent=1)
    assert total(aggregate) == 0
    assert sum(aggregate.rejects.values()) == 1


def test_other_serialisations_are_refused() -> None:
    aggregate = fresh()
    assert not aggregate.add(_with_array(Array("float32", (2,), "pickle", b"\x80\x04.")), sent=1)
    assert aggregate.rejects == {"dtype": 1}


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({HEADER: ConfigRecord({"version": 99})}),
        RecordDict({HEADER: ConfigRecord({"version": 1, "run": "run-1", "round": "3", "attempt": 1})}),
        RecordDict({HEADER: ConfigRecord(OCCASION.to_config())}),
        RecordDict({HEADER: ConfigRecord(OCCASION.to_config()), UPDATE: ArrayRecord()}),
    ],
)
def test_missing_records_are_refused(content: RecordDict) -> None:
    aggregate = fresh()
    assert not aggregate.add(content, sent=1)
    assert total(aggregate) == 0


def test_additional_metrics_are_refused_not_stored() -> None:
    """A node that volunteers a loss has broken the contract: nothing but the sum and the count may travel."""
    content = honest()
    content["loss"] = MetricRecord({"loss": 0.5})
    aggregate = fresh()
    assert not aggregate.add(content, sent=1)
    assert aggregate.rejects == {"schema": 1}


@pytest.mark.parametrize("count", [math.nan, math.inf, -0.1, 1.1])
def test_a_count_beyond_its_users_is_refused(count: float) -> None:
    aggregate = fresh(counts=1)
    assert not aggregate.add(honest(counts=(count,)), sent=1)
    assert aggregate.users == 0
    assert total(aggregate) == 0


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-30, -2))
def test_on_a_grid_sums_are_exact_whatever_the_order(seed: int, exponent: int) -> None:
    grid, generator = Grid(2.0**exponent), np.random.default_rng(seed)
    replies = []
    for _ in range(20):
        flat = generator.normal(size=8).astype(np.float32)
        flat *= np.float32(generator.choice([1e-8, 0.3, 3.0]) / np.linalg.norm(flat))
        replies.append(TrainReply(OCCASION, {"weight": flat[:6].reshape(2, 3), "bias": flat[6:]}, 1, (0.7,)))
    sums = []
    for order in (range(20), generator.permutation(20)):
        aggregate = Aggregate(SCHEMA, OCCASION, 1.0, Riders((0.3,), 1), grid=grid)
        for i in order:
            before = aggregate.total.copy()
            assert aggregate.add(replies[i].write(), sent=1)
            moved = float(np.linalg.norm(aggregate.total - before))
            assert moved <= grid.charged_clip(math.hypot(1.0, 0.3), 9)
        np.testing.assert_array_equal(np.remainder(aggregate.total, grid.spacing), 0.0)
        sums.append(aggregate.sum())
    assert sums[0].tolist() == sums[1].tolist()


def test_a_sum_of_more_users_than_planned_for_is_cut_to_the_planned_length() -> None:
    aggregate = dataclasses.replace(fresh(), most_users=2)
    assert aggregate.add(honest(1.0, users=8), sent=8)
    assert total(aggregate) == pytest.approx(2.0)
    assert total(aggregate) <= 2.0
    assert aggregate.users == 8


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=8, max_size=8),
    users=st.integers(0, 3),
    clip=st.floats(1e-3, 1e3),
)
def test_whatever_arrives_the_sum_moves_by_at_most_the_users_share(
    values: list[float], users: int, clip: float
) -> None:
    flat = np.array(values, np.float32)
    reply = TrainReply(OCCASION, {"weight": flat[:6].reshape(2, 3), "bias": flat[6:]}, users)
    aggregate = fresh(clip)
    before = aggregate.total.copy()
    used = aggregate.add(reply.write(), sent=2)
    moved = float(np.linalg.norm(aggregate.total - before))
    assert moved <= (users if used else 0) * clip * (1 + 1e-15)
    assert used == (users <= 2 and bool(np.isfinite(flat).all()))


def test_the_norm_is_finite_exactly_when_every_coordinate_is() -> None:
    assert math.isfinite(squared_norm([np.full(1000, 3.4e38)]))
    assert not math.isfinite(squared_norm([np.array([0, np.inf])]))
