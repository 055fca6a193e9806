"""What holds for every mechanism: B C = I, the stream is B z, resume is exact, the charge covers every pattern."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.noise import SecureNoise
from fieldfare.participation import FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.plan import Plan

KEY = b"a fixed key for tests, 32 bytes!"
SPECS: list[dict[str, Any]] = [
    {"kind": "independent"},
    {"kind": "tree", "estimator": "plain"},
    {"kind": "tree", "estimator": "plain", "nodes": "all"},
    {"kind": "tree", "estimator": "online"},
    {"kind": "tree", "estimator": "full"},
    {"kind": "nu", "nu": "auto"},
    {"kind": "nu", "nu": 0.05, "engine": "exact"},
    {"kind": "nu", "nu": 0.05, "engine": "memory"},
    {"kind": "nu", "nu": 0.05, "window": 5},
    {"kind": "optimal-cc"},
    {"kind": "optimal-cc", "window": 4},
    {"kind": "anti-pgd"},
    {"kind": "anti-pgd", "nu": 0.3},
    {"kind": "banded", "bands": 6},
    {"kind": "banded-inverse", "bands": 4},
    {"kind": "banded", "bands": 5, "column_normalised": True},
    {"kind": "blt"},
    {"kind": "blt", "buffers": 2, "objective": "max"},
    {"kind": "dense"},
    {"kind": "dense", "objective": "max", "engine": "memory"},
    {"kind": "fft"},
    {"kind": "momentum-tree", "momentum": 0.8},
    {"kind": "momentum-tree", "momentum": 0.8, "variant": "proportional"},
    {"kind": "spectral", "eigenvalues": [1.0, 0.1], "learning_rate": 0.2},
]


def test_no_kind_is_left_out() -> None:
    assert {spec["kind"] for spec in SPECS} == set(mechanisms.kinds())


@pytest.mark.parametrize("restart", [None, 23])
@pytest.mark.parametrize("n", [64, 257])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_b_c_is_identity_and_the_stream_is_b_z(spec: dict[str, Any], n: int, restart: int | None) -> None:
    if n > 64 and (spec["kind"] in ("dense", "fft") or spec.get("engine") == "exact"):
        restart = restart or 40  # the same code, in a fraction of the time that n^2 draws take
    m = mechanisms.build({**spec, **({"restart_every": restart} if restart else {})}, n, MinSeparation(16, 3))
    c, b = m.strategy_matrix(n), m.noising_matrix(n)
    np.testing.assert_allclose(b @ c, np.eye(n), rtol=0, atol=1e-9)
    used = m.noise_rows if restart is None else len(c)
    assert c.shape == (used, n)
    assert used <= m.noise_rows  # a last block that the horizon cuts leaves its last rows unused
    noise = SecureNoise(KEY)
    z = np.stack([noise.standard_normal(2, row=t, dtype=torch.float64).numpy() for t in range(used)])
    stream = m.stream(2, noise, dtype=torch.float64)
    drawn = np.stack([stream.next().numpy() for _ in range(n)])
    np.testing.assert_allclose(drawn, b @ z, rtol=0, atol=1e-9)
    with pytest.raises(mechanisms.HorizonError, match=f"round {n}"):
        stream.next()
    np.testing.assert_allclose(m.row_norms(), np.linalg.norm(b, axis=1), rtol=1e-9)
    np.testing.assert_allclose(m.prefix_row_norms(), np.linalg.norm(np.cumsum(b, axis=0), axis=1), rtol=1e-8)


@pytest.mark.parametrize("restart", [None, 4])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_resume_at_every_round_is_bit_exact(spec: dict[str, Any], restart: int | None) -> None:
    n = 13
    if restart and spec.get("bands", 0) > restart:
        spec = {**spec, "bands": restart}
    if restart and spec.get("window", 0) > restart:
        spec = {**spec, "window": restart}
    m = mechanisms.build({**spec, **({"restart_every": restart} if restart else {})}, n, MinSeparation(4, 3))
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
            for s in range(t, min(t + 2, n)):
                assert torch.equal(again.next(), whole[s])
            if t + 2 < n:
                assert torch.equal(again.add_to(torch.ones(3), 0.3), torch.ones(3) + 0.3 * whole[t + 2])
        stranger = m.stream(3, SecureNoise(bytes(32)))
        with pytest.raises(ValueError, match="another key"):
            stranger.load_state_dict(state)


participations = st.one_of(
    st.just(Single()),
    st.builds(MinSeparation, st.integers(1, 12), st.one_of(st.none(), st.integers(1, 12))),
    st.builds(FixedOrder, st.integers(1, 12), st.one_of(st.none(), st.integers(1, 12))),
    st.builds(Poisson, st.just(0.5)),
)


@settings(max_examples=120, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    n=st.integers(1, 12),
    restart=st.one_of(st.none(), st.integers(1, 12)),
    built_for=participations,
    participation=participations,
    data=st.data(),
)
def test_the_charge_covers_every_allowed_pattern(
    spec: dict[str, Any],
    n: int,
    restart: int | None,
    built_for: Participation,
    participation: Participation,
    data: st.DataObject,
) -> None:
    """Also under participation that it was not optimised for, after any number of rounds; "exact" means attained."""
    block = min(n, restart or n)
    fitting = {key: min(value, block) if key in ("bands", "window") else value for key, value in spec.items()}
    m = mechanisms.build({**fitting, "restart_every": restart}, n, built_for)
    released = data.draw(st.integers(1, n))
    patterns = list(participation.patterns(n))
    # B of the released rounds decides what is seen: the rows of z that it uses are the rows of C that count.
    c = m.strategy_matrix(released)
    inside = [[t for t in pattern if t < released] for pattern in patterns]
    gram = np.abs(c.T @ c)
    worst = max(float(np.sqrt(gram[np.ix_(p, p)].sum())) for p in inside)
    attained = max(float(np.linalg.norm(c[:, p].sum(axis=1))) for p in inside)
    stated = m.sensitivity(participation, released)
    assert stated >= worst * (1 - 1e-9)
    if stated.bound == "exact":
        assert stated == pytest.approx(attained, rel=1e-9)
    assert stated <= m.sensitivity(participation) * (1 + 1e-12)
    np.testing.assert_allclose(m.pattern_norms(patterns, released).max(), worst, rtol=1e-9)


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
    ({}, r"mechanism\.kind = None"),
]


@pytest.mark.parametrize(("spec", "message"), BAD, ids=[str(spec) for spec, _ in BAD])
def test_bad_input_names_field_value_and_range(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanisms.build(spec, 20)


@pytest.mark.parametrize("kind", mechanisms.kinds())
def test_every_kind_refuses_unknown_fields_and_bad_restarts(kind: str) -> None:
    example = mechanisms.describe(kind).example
    with pytest.raises(ValueError, match=r"mechanism\.restart_evry.*unknown key.*restart_every"):
        mechanisms.build({**example, "restart_evry": 4}, 20)
    with pytest.raises(ValueError, match=r"mechanism\.restart_every = 0.*1"):
        mechanisms.build({**example, "restart_every": 0}, 20)


@pytest.mark.parametrize("rounds", [0, -3])
def test_bad_rounds(rounds: int) -> None:
    for kind in mechanisms.kinds():
        with pytest.raises(ValueError, match=rf"rounds = {rounds}: must be at least 1"):
            mechanisms.build(mechanisms.describe(kind).example, rounds)


def test_more_participations_than_fit_are_refused_by_the_plan() -> None:
    """k rounds that are b apart need k b <= T + b - 1."""
    table = {
        "privacy": {"population": "p", "epsilon": 1.0, "delta": 1e-5},
        "run": {"task": "digits", "rounds": 20, "cohort": 5},
        "mechanism": {"kind": "independent"},
    }
    fits = {"scheme": "min-separation", "separation": 7, "max_participations": 3}
    assert Plan.parse({**table, "participation": fits})
    with pytest.raises(ValueError, match=r"participation\.max_participations = 4.*do not fit into 20 rounds.*3"):
        Plan.parse({**table, "participation": {**fits, "max_participations": 4}})
