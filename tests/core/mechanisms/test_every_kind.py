"""What holds for every mechanism: B C = I, the stream is B z, resume is exact, the charge covers every pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.plan import Plan
from fieldfare.streams.base import HorizonError
from support.kinds import SPECS, fitting, random_specs
from support.refusals import coded

KEY = b"a fixed key for tests, 32 bytes!"


def test_no_kind_is_left_out() -> None:
    assert {spec["kind"] for spec in SPECS} == set(mechanisms.kinds())


@pytest.mark.parametrize("restart", [None, 23])
@pytest.mark.parametrize("n", [64, 257])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_b_c_is_identity_and_the_stream_is_b_z(spec: dict[str, Any], n: int, restart: int | None) -> None:
    if n > 64 and (spec["kind"] in ("dense", "fft") or "full" in spec.values() or spec.get("engine") == "exact"):
        restart = restart or 40  # the same code, in a fraction of the time that n^2 draws take
    m = mechanisms.build({**spec, **({"restart_every": restart} if restart else {})}, n, MinSeparation(16, 3))
    c, b = m.strategy_matrix(n), m.noising_matrix(n)
    np.testing.assert_allclose(b @ c, np.eye(n), rtol=0, atol=1e-12)
    used = m.noise_rows if restart is None else len(c)
    assert c.shape == (used, n)
    assert used <= m.noise_rows  # a last block that the horizon cuts leaves its last rows unused
    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(2, row=t, dtype=torch.float64).numpy() for t in range(used)])
    stream = m.stream(2, noise, dtype=torch.float64)
    drawn = np.stack([stream.next().numpy() for _ in range(n)])
    np.testing.assert_allclose(drawn, b @ z, rtol=0, atol=1e-13 * np.abs(drawn).max())
    with pytest.raises(HorizonError, match=f"round {n}"):
        stream.next()
    np.testing.assert_allclose(m.row_norms(), np.linalg.norm(b, axis=1), rtol=1e-12)
    np.testing.assert_allclose(m.prefix_row_norms(), np.linalg.norm(np.cumsum(b, axis=0), axis=1), rtol=1e-11)


@pytest.mark.parametrize("restart", [None, 4])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_resume_at_every_round_is_bit_exact(spec: dict[str, Any], restart: int | None) -> None:
    n = 13
    m = mechanisms.build({**fitting(spec, restart or n), "restart_every": restart}, n, MinSeparation(4, 3))
    stream = m.stream(3, SecureNoise(KEY))
    whole = []
    states = []
    for _ in range(n):
        states.append(stream.state_dict())
        whole.append(stream.next())
    for t, state in enumerate(states):
        resumed, skipped = m.stream(3, SecureNoise(KEY)), m.stream(3, SecureNoise(KEY))
        resumed.load_state_dict(state)
        skipped.skip(t)
        for again in (resumed, skipped):
            assert again.round == t
            for s in range(t, n - 1):
                assert torch.equal(again.next(), whole[s])
            assert torch.equal(again.add_to(torch.ones(3), 0.3), torch.ones(3) + 0.3 * whole[n - 1])
        stranger = m.stream(3, SecureNoise(bytes(32)))
        with pytest.raises(BadInput, check=coded("differs", "noise state")):
            stranger.load_state_dict(state)


participations = st.one_of(
    st.just(Single()),
    st.builds(MinSeparation, st.integers(1, 14), st.one_of(st.none(), st.integers(1, 14))),
    st.builds(FixedOrder, st.integers(1, 14), st.one_of(st.none(), st.integers(1, 14))),
    st.builds(CyclicPoisson, st.integers(1, 14), st.just(0.5)),
    st.builds(Poisson, st.just(0.5)),
)


EXACT = {"independent", "tree", "nu", "optimal-cc", "anti-pgd", "blt"}
"""Never only bounded without restarts, for so few rounds: decreasing coefficients, or a tree's dynamic program."""


@lru_cache
def patterns_of(participation: Participation, rounds: int) -> tuple[tuple[int, ...], ...]:
    return tuple(participation.patterns(rounds))


@pytest.mark.parametrize("kind", mechanisms.kinds())
@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(1, 14),
    restart=st.one_of(st.none(), st.integers(1, 14)),
    built_for=participations,
    participation=participations,
    data=st.data(),
)
def test_the_charge_covers_every_allowed_pattern(
    kind: str,
    n: int,
    restart: int | None,
    built_for: Participation,
    participation: Participation,
    data: st.DataObject,
) -> None:
    """Also under participation that it was not optimised for, after any number of rounds; "exact" means attained."""
    spec = data.draw(random_specs(kind, min(n, restart or n)))
    m = mechanisms.build({**spec, "restart_every": restart}, n, built_for)
    released = data.draw(st.integers(1, n))
    patterns = patterns_of(participation, n)
    chosen = np.zeros((len(patterns), n))
    for row, pattern in zip(chosen, patterns, strict=True):
        row[list(pattern)] = 1.0
    # B of the released rounds decides what is seen: (B B^T)^-1, and all of C where all nodes are to be charged.
    c, chosen = m.strategy_matrix(released), chosen[:, :released]
    if spec.get("estimator") == "online" and spec.get("nodes") != "all":
        b = m.noising_matrix(released)
        c = np.linalg.inv(np.linalg.cholesky(b @ b.T))
    worst = np.sqrt(np.sum(chosen @ np.abs(c.T @ c) * chosen, axis=1))
    # Where columns oppose each other, |C^T C| of fewer rows may sum to more than that of all rows. Both are bounds,
    # because fewer rows reveal no more; only the smaller one must be covered.
    whole = m.strategy_matrix(n)
    at_end = np.zeros((len(patterns), n))
    at_end[:, :released] = chosen
    least = np.minimum(worst, np.sqrt(np.sum(at_end @ np.abs(whole.T @ whole) * at_end, axis=1)))
    stated = m.sensitivity(participation, released)
    assert stated >= least.max() * (1 - 1e-9)
    if stated.bound == "exact":
        assert stated == pytest.approx(np.linalg.norm(c @ chosen.T, axis=0).max(), rel=1e-9)
    free = isinstance(participation, Single | MinSeparation | Poisson)
    if free and kind in EXACT and spec.get("estimator") != "full" and (restart or n) >= n:
        assert stated.bound == "exact"
    assert stated <= m.sensitivity(participation) * (1 + 1e-12)
    some = slice(None, None, 1 + len(patterns) // 200)
    norms = m.pattern_norms(patterns[some], released)
    assert (norms <= worst[some] * (1 + 1e-9) + 1e-12).all()
    assert (norms >= least[some] * (1 - 1e-9) - 1e-12).all()


@pytest.mark.parametrize("released", [3, 5])
def test_opposing_columns_are_not_undercharged_before_the_horizon(released: int) -> None:
    """Where |C^T C| of fewer rows exceeds that of all rows, the charge still covers the dearest unit vectors.

    max Tr(X V V^T) over unit vectors v_t, by ascent: what a user can really reach, whatever signs C has.
    """
    m = mechanisms.build({"kind": "dense", "objective": "max"}, 6, FixedOrder(2))
    c = m.strategy_matrix(released)
    x = c.T @ c
    naive = float(np.sqrt(np.abs(x).sum()))
    stated = float(m.sensitivity(MinSeparation(1), released))
    assert stated < naive, "the case that this test is for"
    reached, generator = 0.0, np.random.default_rng(1)
    for _ in range(20):
        v = generator.normal(size=(released, released))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        for _ in range(500):
            for t in range(released):
                ascent = x[t] @ v - x[t, t] * v[t]
                v[t] = ascent / np.linalg.norm(ascent)
        reached = max(reached, float(np.sqrt(np.trace(v.T @ x @ v))))
    assert 0.9 * stated < reached <= stated


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kind": "nu", "nu": -0.1}, r"mechanism\.nu = -0\.1.*\[0, 1\]"),
    ({"kind": "nu", "nu": 1.5}, r"mechanism\.nu = 1\.5.*\[0, 1\]"),
    ({"kind": "nu", "nu": float("nan")}, r"mechanism\.nu = nan.*\[0, 1\]"),
    ({"kind": "nu", "nu": float("inf")}, r"mechanism\.nu = inf.*\[0, 1\]"),
    ({"kind": "nu", "nu": "best"}, r"mechanism\.nu = 'best'.*\[0, 1\] or \"auto\""),
    ({"kind": "nu", "window": 0}, r"mechanism\.window = 0.*1"),
    ({"kind": "nu", "window": 21}, r"mechanism\.window = 21.*\[1, 20\]"),
    ({"kind": "nu", "tolerance": 0.5}, r"mechanism\.tolerance = 0\.5.*0\.1"),
    ({"kind": "nu", "engine": "slow"}, r"mechanism\.engine = 'slow'.*fast"),
    ({"kind": "optimal-cc", "window": 21}, r"mechanism\.window = 21.*\[1, 20\]"),
    ({"kind": "anti-pgd", "nu": 2}, r"mechanism\.nu = 2.*1"),
    ({"kind": "anti-pgd", "nu": float("nan")}, r"mechanism\.nu = nan"),
    ({"kind": "banded", "bands": 21}, r"mechanism\.bands = 21.*\[1, 20\]"),
    ({"kind": "banded", "bands": 0}, r"mechanism\.bands = 0.*1"),
    ({"kind": "banded", "bands": 6, "restart_every": 5}, r"mechanism\.bands = 6.*\[1, 5\]"),
    ({"kind": "blt", "buffers": 9}, r"mechanism\.buffers = 9.*\[1, 8\]"),
    ({"kind": "momentum-tree", "momentum": 1.0}, r"mechanism\.momentum = 1\.0.*below 1"),
    ({"kind": "momentum-tree", "momentum": float("nan")}, r"mechanism\.momentum = nan"),
    ({"kind": "spectral", "eigenvalues": [1.0, float("inf")], "learning_rate": 0.1}, r"mechanism\.eigenvalues.*inf"),
    ({"kind": "spectral", "eigenvalues": [1.0], "learning_rate": 0.0}, r"mechanism\.learning_rate = 0\.0.*above 0"),
    ({"kind": "tree", "nodes": "read", "estimator": "online"}, r"mechanism\.nodes = 'read'.*'all'"),
    ({"kind": "indepndent"}, r"mechanism\.kind = 'indepndent'.*independent"),
    ({}, r"mechanism\.kind: is required"),
]


@pytest.mark.parametrize(("spec", "message"), BAD, ids=[str(spec) for spec, _ in BAD])
def test_bad_input_names_field_value_and_range(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanisms.build(spec, 20)


@pytest.mark.parametrize("restart", [None, 7])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_bad_arguments_of_a_built_mechanism(spec: dict[str, Any], restart: int | None) -> None:
    m = mechanisms.build({**spec, "restart_every": restart}, 20, MinSeparation(5, 3))
    for n in (0, 21, -1):
        asked: list[Callable[[], object]] = [
            lambda n=n: m.strategy_matrix(n),
            lambda n=n: m.noising_matrix(n),
            lambda n=n: m.row_norms(n),
            lambda n=n: m.prefix_row_norms(n),
            lambda n=n: m.sensitivity(Single(), n),
            lambda n=n: m.pattern_norms([(0,)], n),
            lambda n=n: m.max_error(n, Single()),
        ]
        for ask in asked:
            with pytest.raises(ValueError, match=rf"(rounds|n) = {n}: .*\[1, 20\]"):
                ask()
    for pattern in ((1, 1), (2, 1), (-1,), (0, 8, 3)):
        with pytest.raises(BadInput, check=coded("out-of-range", "pattern")):
            m.pattern_norms([(0, 5), pattern])
    for numel in (0, -1):
        with pytest.raises(ValueError, match=f"numel = {numel}: must be at least 1"):
            m.stream(numel, SecureNoise(KEY))
    with pytest.raises(BadInput, check=coded("wrong-form", "dtype = torch.float16")):
        m.stream(2, SecureNoise(KEY), dtype=torch.float16)
    for t in (-1, 21):
        with pytest.raises(ValueError, match=rf"skip to round {t}: .*\[0, 20\]"):
            m.stream(2, SecureNoise(KEY)).skip(t)


@pytest.mark.parametrize("kind", mechanisms.kinds())
def test_every_kind_refuses_unknown_fields_and_bad_restarts(kind: str) -> None:
    example = mechanisms.describe(kind).example
    with pytest.raises(ValueError, check=coded("key-unknown", "mechanism.restart_evry", "restart_every")):
        mechanisms.build({**example, "restart_evry": 4}, 20)
    with pytest.raises(ValueError, check=coded("value-wrong", "mechanism.restart_every = 0", "1")):
        mechanisms.build({**example, "restart_every": 0}, 20)


NO_INTEGER = [0, -3, 2.5, "many", float("nan"), float("inf"), True, [2]]
NO_NUMBER = [-0.5, "much", float("nan"), float("inf"), -float("inf"), True, [0.5]]
FIELDS = [
    (kind, field, wrong)
    for kind in mechanisms.kinds()
    for field, about in type(mechanisms.parse(mechanisms.describe(kind).example)).model_fields.items()
    if field != "kind"
    for wrong in (
        [["x"], [], [-1.0], [float("nan")], True]
        if field == "eigenvalues"
        else ["maybe", 7]
        if about.annotation is bool
        else NO_INTEGER
        if "int" in str(about.annotation)
        else NO_NUMBER
        if "float" in str(about.annotation)
        else ["no such", 3]
    )
]


@pytest.mark.parametrize(("kind", "field", "wrong"), FIELDS, ids=str)
def test_every_field_of_every_kind_refuses_what_it_cannot_mean(kind: str, field: str, wrong: Any) -> None:
    """With the field, the value and what would do instead."""
    shown = re.escape(repr(wrong[0] if isinstance(wrong, list) and field == "eigenvalues" and wrong else wrong))
    with pytest.raises(ValueError, match=rf"mechanism\.{field}[.0-9]* = {shown}: .*(must|should|Nearest allowed)"):
        mechanisms.build({**mechanisms.describe(kind).example, field: wrong}, 80)


@pytest.mark.parametrize("rounds", [0, -3, 2.5, float("nan"), True, "3"])
def test_bad_rounds(rounds: Any) -> None:
    for kind in mechanisms.kinds():
        with pytest.raises(ValueError, match=rf"rounds = {rounds!r}: must be at least 1, and an integer"):
            mechanisms.build(mechanisms.describe(kind).example, rounds)


def test_more_participations_than_fit_are_refused_by_the_plan() -> None:
    """k rounds that are b apart need k b <= T + b - 1."""
    table = {
        "privacy": {"population": "p", "epsilon": 1.0, "delta": 1e-5},
        "run": {"task": "digits", "rounds": 20, "cohort": 5},
        "mechanism": {"kind": "independent"},
    }
    for fits in (
        {"scheme": "min-separation", "separation": 7, "max_participations": 3},
        {"scheme": "fixed-order", "period": 7, "max_participations": 3},
    ):
        assert Plan.parse({**table, "participation": fits})
        with pytest.raises(ValueError, check=coded("participation-does-not-fit", "max_participations = 4", "3")):
            Plan.parse({**table, "participation": {**fits, "max_participations": 4}})
