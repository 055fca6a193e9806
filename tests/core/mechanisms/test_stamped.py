"""Restarting any kind of mechanism: block-diagonal matrices, fresh noise in every block, sensitivity across blocks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.factorization.released import released_gram
from fieldfare.factorization.toeplitz import inverse
from fieldfare.mechanisms.stamped import Stamped, stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, window_stream
from fieldfare.noise import SecureNoise
from fieldfare.participation import FixedOrder, MinSeparation, Participation
from support.kinds import SPECS, fitting
from support.refusals import coded

KEY = bytes(range(32))
KINDS: list[dict[str, Any]] = [
    {"kind": "nu", "nu": 0.1},
    {"kind": "tree", "estimator": "plain"},
    {"kind": "tree", "estimator": "plain", "nodes": "all"},
    {"kind": "tree", "estimator": "online"},
    {"kind": "banded", "bands": 3},
    {"kind": "banded", "bands": 3, "column_normalised": True},
    {"kind": "fft"},
    {"kind": "blt", "buffers": 2},
    {"kind": "momentum-tree"},
]


@pytest.mark.parametrize("spec", KINDS, ids=str)
def test_blocks_are_independent_copies_on_fresh_noise(spec: dict[str, Any]) -> None:
    n, r = 13, 5
    mechanism = mechanisms.build({**spec, "restart_every": r}, n)
    block = mechanisms.build(spec, r)
    assert isinstance(mechanism, Stamped)
    rows, b = block.noise_rows, mechanism.noising_matrix(n)
    assert rows == block.strategy_matrix(r).shape[0]
    for s in range(2):
        here = b[s * r : (s + 1) * r, s * rows : (s + 1) * rows]
        np.testing.assert_allclose(here, block.noising_matrix(r), atol=1e-12)
        assert np.count_nonzero(b[s * r : (s + 1) * r]) == np.count_nonzero(here)
    assert mechanism.noise_rows == 3 * rows
    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(2, row=t, dtype=torch.float64).numpy() for t in range(b.shape[1])])
    stream = mechanism.stream(2, noise, dtype=torch.float64)
    got = np.stack([stream.next().numpy() for _ in range(n)])
    np.testing.assert_allclose(got, b @ z, atol=1e-12)


@pytest.mark.parametrize("spec", KINDS, ids=str)
def test_resume_and_skip_across_restarts(spec: dict[str, Any]) -> None:
    n = 13
    mechanism = mechanisms.build({**spec, "restart_every": 5}, n)
    whole = mechanism.stream(2, SecureNoise(KEY))
    states, rows = [], []
    for _ in range(n):
        states.append(whole.state_dict())
        rows.append(whole.next().clone())
    for t in range(n):
        resumed, skipped = mechanism.stream(2, SecureNoise(KEY)), mechanism.stream(2, SecureNoise(KEY))
        resumed.load_state_dict(states[t])
        skipped.skip(t)
        for expected in rows[t:]:
            assert torch.equal(resumed.next(), expected)
            assert torch.equal(skipped.next(), expected)


schedules = st.one_of(
    st.builds(MinSeparation, st.integers(1, 7), st.one_of(st.none(), st.integers(1, 5))),
    st.builds(FixedOrder, st.integers(1, 6), st.one_of(st.none(), st.integers(1, 5))),
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(KINDS), st.integers(4, 13), st.integers(3, 6), schedules)
def test_sensitivity_across_blocks(spec: dict[str, Any], n: int, r: int, participation: Participation) -> None:
    mechanism = mechanisms.build({**spec, "restart_every": r}, n)
    gram = np.abs(released_gram(mechanism.noising_matrix(n)))
    if spec.get("nodes") == "all":
        dense = mechanism.strategy_matrix(n)
        gram = np.abs(dense.T @ dense)
    truth = max(float(np.sqrt(gram[np.ix_(p, p)].sum())) for p in participation.patterns(n))
    claimed = mechanism.sensitivity(participation)
    assert claimed >= truth * (1 - 1e-12)
    if claimed.bound == "exact":
        assert claimed == pytest.approx(truth, rel=1e-10)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.integers(2, 14),
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_non_increasing_blocks_are_exact(tail: list[float], n: int, b: int, k: int | None) -> None:
    c = np.concatenate([[1.0], np.sort(tail)[::-1]])
    r = len(c)
    beta = inverse(c, r)
    block = ToeplitzMechanism("nu", r, c, beta, window_stream(len(beta)), buffers=r - 1)
    participation = MinSeparation(b, k)
    if n <= r:
        return
    mechanism = stamped(block, r, n)
    dense = mechanism.strategy_matrix(n)
    truth = max(float(np.linalg.norm(dense[:, list(p)].sum(axis=1))) for p in participation.patterns(n))
    claimed = mechanism.sensitivity(participation)
    assert claimed.bound == "exact"
    assert claimed == pytest.approx(truth, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 14), st.integers(3, 6), st.integers(1, 4), st.integers(2, 3), st.floats(0, 0.9))
def test_capped_fixed_orders_across_blocks(n: int, r: int, period: int, k: int, nu: float) -> None:
    """A tight pattern may change its residue at a restart, which a fixed order forbids: then it is only a bound."""
    mechanism = mechanisms.build({"kind": "anti-pgd", "nu": nu, "restart_every": r}, n)
    dense = mechanism.strategy_matrix(n)
    truth = max(float(np.linalg.norm(dense[:, list(p)].sum(axis=1))) for p in FixedOrder(period, k).patterns(n))
    claimed = mechanism.sensitivity(FixedOrder(period, k))
    assert claimed >= truth * (1 - 1e-12)
    if claimed.bound == "exact":
        assert claimed == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_set_of_patterns_of_ones_own_gets_a_bound(spec: dict[str, Any]) -> None:
    """Only `separation_and_count` is known of it, so nothing is called exact that it may not allow."""

    class EvenRoundsAfterTheFirst(Participation):
        def separation_and_count(self, rounds: int) -> tuple[int, int]:
            return 2, -(-rounds // 2)

        def allows(self, pattern: Sequence[int], rounds: int) -> bool:
            return all(t > 0 and t % 2 == 0 for t in pattern)

    for restart in (None, 4):
        mechanism = mechanisms.build({**fitting(spec, restart or 9), "restart_every": restart}, 9)
        claimed = mechanism.sensitivity(EvenRoundsAfterTheFirst())
        worst = mechanism.pattern_norms([(2, 4, 6, 8)])[0]
        assert claimed >= worst * (1 - 1e-12)
        if claimed.bound == "exact":
            assert claimed == pytest.approx(worst, rel=1e-9)


def test_a_block_of_another_length_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "a block of")):
        stamped(mechanisms.build({"kind": "nu", "nu": 0.1}, 6), 5, 20)


def test_too_long_an_exact_program_becomes_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = mechanisms.build({"kind": "nu", "nu": 0.1, "restart_every": 5}, 14)
    exact = mechanism.sensitivity(MinSeparation(3))
    monkeypatch.setattr("fieldfare.factorization.stamping._WORK", 0)
    bound = mechanism.sensitivity(MinSeparation(3))
    assert (exact.bound, bound.bound) == ("exact", "upper bound")
    assert bound >= exact
