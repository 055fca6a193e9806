"""What every server optimizer promises: explicit state, exact resume, inputs left alone, nothing but public inputs."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare_server.optimizers import FILES, ServerOptimizer, State, StepInfo, build, kinds, parse

TABLES: list[dict[str, Any]] = [
    {"kind": "sgd"},
    {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "schedule": {"kind": "cool-down"}},
    {"kind": "fedadam", "noise_correction": True},
    {"kind": "fedadagrad", "noise_correction": True},
    {"kind": "fedyogi", "noise_correction": True},
    {"kind": "adamw", "noise_correction": True, "weight_decay": 0.1},
    {"kind": "ftrl", "p": 1.3, "radius": 2.0, "steps": "anytime"},
    {"kind": "ftrl", "radius": 0.5, "steps": "fixed"},
    {"kind": "normalised-momentum"},
    {"kind": "disk"},
    {"kind": "disk", "kappa": "adaptive", "innovation": 0.5},
    {"kind": "disk", "kappa": "adaptive", "start": "zero", "base": {"kind": "adamw", "noise_correction": True}},
    {"kind": "disk", "kappa": "auto", "mode": "two-point", "base": {"kind": "sgd", "momentum": 0.5}},
    {"kind": "disk", "mode": "storm", "base": {"kind": "ftrl", "radius": 1.0, "steps": "fixed"}},
    {"kind": "disk", "mode": "doppler", "base": {"kind": "fedyogi"}},
    {"kind": "three-query", "period": 4},
    {"kind": "three-query", "period": 2, "mixing": 1.0, "base": {"kind": "sgd", "momentum": 0.9}},
]
ROUNDS, SIZE = 9, 6
AUTOCOVARIANCE = (1.0, -0.45, -0.05)


def info(t: int) -> StepInfo:
    return StepInfo(t, ROUNDS, noise_std=0.1 * (1 + t % 3), noise_autocovariance=AUTOCOVARIANCE)


def updates(queries: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(ROUNDS, queries * SIZE, generator=torch.Generator().manual_seed(seed))


def run(
    optimizer: ServerOptimizer, state: State, params: torch.Tensor, given: torch.Tensor, start: int = 0
) -> tuple[torch.Tensor, State]:
    for t in range(start, len(given)):
        points, weights, shares, batches = optimizer.points(state, params, info(t))
        assert len(shares) == optimizer.queries
        assert len(points) * len(shares) == len(weights)
        assert sum(shares) == pytest.approx(1.0, abs=1e-12)
        assert sum(weights[: len(points)]) == pytest.approx(1.0)
        assert batches is None or batches <= t
        assert all(point.dtype == torch.float32 and point.shape == params.shape for point in points)
        params, state = optimizer.step(state, params, given[t], info(t))
    return params, state


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def test_every_kind_is_covered_here() -> None:
    assert {table["kind"] for table in TABLES} == set(kinds())
    assert all(file.__doc__ for file in FILES)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_resumes_bit_for_bit_from_a_copy_of_its_state(table: dict[str, Any]) -> None:
    optimizer = build(table)
    start, given = torch.linspace(-1, 1, SIZE), updates(optimizer.queries)
    whole = run(optimizer, optimizer.init(start), start, given)
    half = run(optimizer, optimizer.init(start), start, given[:4])
    # What a checkpoint does: contiguous tensors by name, no object of the first process left.
    saved = {name: _through_bytes(value) for name, value in half[1].items()}
    resumed = run(build(table), saved, half[0].clone(), given, start=4)
    assert torch.equal(whole[0], resumed[0])
    assert same(whole[1], resumed[1])


def _through_bytes(tensor: torch.Tensor) -> torch.Tensor:
    raw = bytearray(tensor.contiguous().numpy().tobytes())
    return torch.frombuffer(raw, dtype=tensor.dtype).reshape(tensor.shape)


@pytest.mark.parametrize("table", TABLES, ids=str)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.0, 1e-30, 1.0, 1e15]))
def test_never_modifies_its_inputs_and_stays_finite(table: dict[str, Any], seed: int, scale: float) -> None:
    optimizer, params = build(table), torch.linspace(-1, 1, SIZE)
    state = optimizer.init(params)
    for t, update in enumerate(updates(optimizer.queries, seed) * scale):
        before = {name: value.clone() for name, value in state.items()}
        old, fed = params.clone(), update.clone()
        optimizer.points(state, params, info(t))
        moved, new = optimizer.step(state, params, update, info(t))
        assert same(before, state)
        assert torch.equal(old, params)
        assert torch.equal(fed, update)
        assert moved is not params, "an aliased result would let one round's model change another's"
        assert torch.isfinite(moved).all()
        assert moved.dtype == torch.float32
        assert all(torch.isfinite(value).all() for value in new.values())
        params, state = moved, new


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_sees_only_what_was_privatised_and_what_is_public(table: dict[str, Any]) -> None:
    optimizer = build(table)
    assert list(inspect.signature(optimizer.step).parameters) == ["state", "params", "update", "info"]
    assert list(inspect.signature(optimizer.points).parameters) == ["state", "params", "info"]
    assert set(StepInfo.__dataclass_fields__) == {"round", "rounds", "noise_std", "noise_autocovariance"}


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_spec_survives_a_plan_file(table: dict[str, Any]) -> None:
    spec = parse(table)
    assert parse(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_state_is_tensors_of_model_size_or_small_ones(table: dict[str, Any]) -> None:
    state = build(table).init(torch.zeros(SIZE))
    assert all(value.shape in ((SIZE,), ()) or name == "innovation" for name, value in state.items())
    assert all(value.dtype in (torch.float32, torch.float64, torch.int64) for value in state.values())
