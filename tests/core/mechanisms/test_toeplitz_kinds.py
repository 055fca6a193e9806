"""Every Toeplitz-like kind: B C = I, streams equal B z, sensitivities against exhaustive search, errors, refusals."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import Mechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.streams.base import HorizonError
from support.refusals import coded

KEY = bytes(range(32))
SPECS: list[dict[str, Any]] = [
    {"kind": "nu", "nu": 0.1},
    {"kind": "nu", "nu": 0.1, "engine": "exact"},
    {"kind": "nu", "nu": 0.0, "engine": "memory"},
    {"kind": "nu", "nu": "auto", "engine": "replay"},
    {"kind": "nu", "nu": 1.0},
    {"kind": "nu", "nu": 0.05, "window": 3},
    {"kind": "optimal-cc"},
    {"kind": "optimal-cc", "engine": "memory"},
    {"kind": "optimal-cc", "window": 4},
    {"kind": "anti-pgd"},
    {"kind": "anti-pgd", "nu": 0.3},
    {"kind": "spectral", "eigenvalues": [1.0, 0.3], "learning_rate": 0.2},
    {"kind": "spectral", "eigenvalues": [1.0, 0.3], "learning_rate": 0.2, "engine": "exact"},
    {"kind": "spectral", "eigenvalues": [1.0, 0.3], "learning_rate": 0.2, "engine": "memory"},
    {"kind": "spectral", "eigenvalues": [1.0, 0.3], "learning_rate": 0.2, "window": 4},
    {"kind": "fft"},
    {"kind": "fft", "engine": "memory"},
]
STAMPED = [{**spec, "restart_every": 5} for spec in SPECS]
ids = [" ".join(f"{k}={v}" for k, v in spec.items()) for spec in SPECS + STAMPED]


def every(*, rounds: int) -> list[Mechanism]:
    return [mechanisms.build(spec, rounds) for spec in SPECS + STAMPED]


def truth(mechanism: Mechanism, participation: Participation, n: int) -> float:
    dense = mechanism.strategy_matrix(n)
    gram = np.abs(dense.T @ dense)
    return max(float(np.sqrt(gram[np.ix_(p, p)].sum())) for p in participation.patterns(n))


@pytest.mark.parametrize("spec", SPECS + STAMPED, ids=ids)
@pytest.mark.parametrize("n", [1, 64, 257])
def test_strategy_and_noising_matrices_are_inverse(spec: dict[str, Any], n: int) -> None:
    if spec.get("window", 1) > n:
        with pytest.raises(BadInput, check=coded("out-of-range", "mechanism.window")):
            mechanisms.build(spec, n)
        return
    mechanism = mechanisms.build(spec, n)
    c, b = mechanism.strategy_matrix(n), mechanism.noising_matrix(n)
    assert np.abs(b @ c - np.eye(n)).max() < 1e-11
    np.testing.assert_allclose(mechanism.row_norms(), np.linalg.norm(b, axis=1), rtol=1e-12)
    np.testing.assert_allclose(mechanism.prefix_row_norms(), np.linalg.norm(np.cumsum(b, axis=0), axis=1), rtol=1e-10)


# Replay draws O(n^2) rows and is bit for bit the memory engine, so the longer horizon leaves most of it out.
LONG = [
    s
    for s in SPECS + STAMPED
    if s.get("engine") != "exact" and not ("replay" in str(s) or s["kind"] in ("fft", "spectral"))
]
LONG += [{"kind": "fft", "engine": "memory"}]


@pytest.mark.parametrize(("spec", "n"), [(s, 64) for s in SPECS + STAMPED] + [(s, 257) for s in LONG])
def test_a_stream_is_the_dense_matrix_times_z(spec: dict[str, Any], n: int) -> None:
    mechanism = mechanisms.build(spec, n)
    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(3, row=t, dtype=torch.float64).numpy() for t in range(n)])
    stream = mechanism.stream(3, noise, dtype=torch.float64)
    got = np.stack([stream.next().numpy() for _ in range(n)])
    np.testing.assert_allclose(got, mechanism.noising_matrix(n) @ z, atol=1e-12 * n)
    with pytest.raises(HorizonError):
        stream.next()


@pytest.mark.parametrize("spec", SPECS + STAMPED, ids=ids)
def test_resume_and_skip_are_exact_at_every_round(spec: dict[str, Any]) -> None:
    n = 12
    mechanism = mechanisms.build(spec, n)
    whole = mechanism.stream(2, SecureNoise(KEY))
    rows, states = [], []
    for _ in range(n):
        states.append(whole.state_dict())
        rows.append(whole.next().clone())
    states.append(whole.state_dict())
    for t in range(n + 1):
        resumed, skipped = mechanism.stream(2, SecureNoise(KEY)), mechanism.stream(2, SecureNoise(KEY))
        resumed.load_state_dict(states[t])
        skipped.skip(t)
        assert resumed.round == skipped.round == t
        for expected in rows[t:]:
            assert torch.equal(resumed.next(), expected)
            assert torch.equal(skipped.next(), expected)
    whole.skip(0)
    assert torch.equal(whole.next(), rows[0])


@pytest.mark.parametrize("kind", ["nu", "spectral", "fft"])
def test_replay_is_memory_bit_for_bit(kind: str) -> None:
    fields = {"nu": {"nu": 0.1}, "spectral": {"eigenvalues": [1.0], "learning_rate": 0.5}, "fft": {}}[kind]
    memory, replay = (
        mechanisms.build({"kind": kind, **fields, "engine": e}, 30).stream(5, SecureNoise(KEY))
        for e in ("memory", "replay")
    )
    for _ in range(30):
        assert torch.equal(memory.next(), replay.next())


participations = st.one_of(
    st.just(Single()),
    st.builds(MinSeparation, st.integers(1, 6), st.one_of(st.none(), st.integers(1, 6))),
    st.builds(FixedOrder, st.integers(1, 6), st.one_of(st.none(), st.integers(1, 6))),
    st.builds(CyclicPoisson, st.integers(1, 6), st.just(0.5)),
    st.just(Poisson(0.5)),
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.integers(4, 11),
    st.integers(1, 11),
    st.one_of(st.none(), st.integers(4, 9)),
    participations,
)
def test_sensitivity_against_exhaustive_search(
    spec: dict[str, Any], n: int, released: int, restart: int | None, participation: Participation
) -> None:
    mechanism = mechanisms.build({**spec, "restart_every": restart}, n, participation)
    released = min(released, n)
    claimed = mechanism.sensitivity(participation, released)
    actual = truth(mechanism, participation, released)
    assert claimed >= actual * (1 - 1e-12)
    if claimed.bound == "exact":
        assert claimed == pytest.approx(actual, rel=1e-10)


@pytest.mark.parametrize("spec", SPECS + STAMPED, ids=ids)
@pytest.mark.parametrize("participation", [Single(), MinSeparation(3, 3), MinSeparation(5), FixedOrder(4)])
def test_the_charge_never_shrinks(spec: dict[str, Any], participation: Participation) -> None:
    mechanism = mechanisms.build(spec, 13, participation)
    charges = [float(mechanism.sensitivity(participation, r)) for r in range(1, 14)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(charges))
    assert charges[-1] == float(mechanism.sensitivity(participation))


@pytest.mark.parametrize("spec", SPECS + STAMPED, ids=ids)
def test_realised_patterns(spec: dict[str, Any]) -> None:
    mechanism = mechanisms.build(spec, 11, MinSeparation(2, 3))
    patterns = list(MinSeparation(2, 3).patterns(11))
    for released in (1, 6, 11):
        dense = mechanism.strategy_matrix(released)
        gram = np.abs(dense.T @ dense)
        kept = [[t for t in p if t < released] for p in patterns]
        expected = [np.sqrt(gram[np.ix_(p, p)].sum()) if p else 0.0 for p in kept]
        np.testing.assert_allclose(mechanism.pattern_norms(patterns, released), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "nu", "nu": 1.1}, r"mechanism\.nu = 1\.1.*\[0, 1\]"),
        ({"kind": "nu", "nu": -1e-9}, r"mechanism\.nu = -1e-09.*\[0, 1\]"),
        ({"kind": "nu", "nu": float("nan")}, r"mechanism\.nu = nan.*\[0, 1\]"),
        ({"kind": "nu", "nu": True}, r"mechanism\.nu = True.*\[0, 1\]"),
        ({"kind": "nu", "nu": "best"}, r"mechanism\.nu = 'best'.*auto"),
        ({"kind": "nu", "window": 0}, r"mechanism\.window = 0.*1"),
        ({"kind": "nu", "window": 21}, r"mechanism\.window = 21.*\[1, 20\]"),
        ({"kind": "nu", "window": 6, "restart_every": 5}, r"mechanism\.window = 6.*\[1, 5\]"),
        ({"kind": "nu", "engine": "slow"}, r"mechanism\.engine = 'slow'.*fast"),
        ({"kind": "nu", "tolerance": 0.0}, r"mechanism\.tolerance = 0"),
        ({"kind": "nu", "nv": 0.1}, r"mechanism\.nv = 0\.1.*nu"),
        ({"kind": "nu", "restart_every": 0}, r"mechanism\.restart_every = 0.*1"),
        ({"kind": "optimal-cc", "nu": 0.1}, r"mechanism\.nu = 0\.1"),
        ({"kind": "anti-pgd", "nu": 2}, r"mechanism\.nu = 2.*1"),
        ({"kind": "anti-pgd", "nu": float("inf")}, r"mechanism\.nu = inf"),
        ({"kind": "spectral", "learning_rate": 0.1}, r"mechanism\.eigenvalues"),
        ({"kind": "spectral", "eigenvalues": [], "learning_rate": 0.1}, r"mechanism\.eigenvalues"),
        ({"kind": "spectral", "eigenvalues": [1.0, -1.0], "learning_rate": 0.1}, "eigenvalues"),
        ({"kind": "spectral", "eigenvalues": [1.0], "learning_rate": 1.0}, r"learning_rate = 1\.0.*\(0, 1"),
        ({"kind": "spectral", "eigenvalues": [1.0], "learning_rate": 0.1, "window": 21}, r"window = 21.*\[1, 20\]"),
    ],
)
def test_refusals_name_field_value_and_range(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanisms.build(spec, 20)


@pytest.mark.parametrize(
    ("eigenvalues", "rate"), [([1.0], 0.02), ([1.0, 0.9], 0.9), (list(1 / np.arange(1, 129)), 0.02), ([1.0, 1e-4], 0.9)]
)
def test_spectral_fast_engine_is_near_the_exact_one(eigenvalues: list[float], rate: float) -> None:
    spec = {"kind": "spectral", "eigenvalues": eigenvalues, "learning_rate": rate}
    participation = MinSeparation(50, 4)
    fast = mechanisms.build(spec, 300, participation)
    exact = mechanisms.build({**spec, "engine": "exact"}, 300, participation)
    assert fast.buffers <= 4
    assert exact.buffers == 0
    assert fast.mean_error(300, participation) == pytest.approx(exact.mean_error(300, participation), rel=1e-3)
    assert fast.max_error(300, participation) == pytest.approx(exact.max_error(300, participation), rel=1e-3)
    assert fast.sensitivity(participation).bound == "exact"


def test_fft_refuses_horizons_it_cannot_factor() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "rounds = 5000")):
        mechanisms.build({"kind": "fft"}, 5000)


@pytest.mark.parametrize("n", [0, 21, -1])
def test_rounds_outside_the_horizon_are_refused(n: int) -> None:
    for mechanism in every(rounds=20):
        for ask in (mechanism.strategy_matrix, mechanism.noising_matrix, mechanism.row_norms):
            with pytest.raises(ValueError, match=rf"rounds = {n}.*\[1, 20\]"):
                ask(n)
        with pytest.raises(ValueError, match=rf"rounds = {n}.*\[1, 20\]"):
            mechanism.sensitivity(Single(), n)


def test_a_stamped_state_of_another_stream_is_refused() -> None:
    mechanism = mechanisms.build({"kind": "nu", "nu": 0.1, "restart_every": 4}, 10)
    stream = mechanism.stream(2, SecureNoise(KEY))
    state = stream.state_dict()
    with pytest.raises(BadInput, check=coded("out-of-range", "noise state at round")):
        stream.load_state_dict({**state, "round": 11})
    with pytest.raises(BadInput, check=coded("unreadable", "noise state")):
        stream.load_state_dict({**state, "round": 3})
    with pytest.raises(BadInput, check=coded("differs", "noise state with fields")):
        stream.load_state_dict({**state, "extra": 1})
    with pytest.raises(BadInput, check=coded("differs", "noise state")):
        mechanism.stream(2, SecureNoise(bytes(32))).load_state_dict(state)
    with pytest.raises(BadInput, check=coded("out-of-range", "skip to round", "11")):
        stream.skip(11)
