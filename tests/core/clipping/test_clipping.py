"""Clipping bounds every user's contribution, whatever a vector holds; the adaptive norm moves the right way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, erfinv

from fieldfare.clipping import AdaptiveQuantile, Normalised, clip_, clip_one, clippings, count_over, norms, parse
from fieldfare.errors import BadInput
from support.refusals import Coded, coded

REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "adaptive_clip.json").read_text())
LAYOUT = (slice(0, 3), slice(3, 3), slice(3, 7), slice(7, 8))
KINDS: list[dict[str, Any]] = [
    {"kind": "flat"},
    {"kind": "automatic"},
    {"kind": "automatic", "stabiliser": 0.0},
    {"kind": "normalised"},
    {"kind": "per-layer"},
    {"kind": "per-layer", "weighting": "size"},
    {"kind": "adaptive-quantile", "least": 1e-20, "most": 1e20},
]

floats = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1e-38, 3.4028234e38, -3.4028234e38, math.nan, math.inf, -math.inf]),
)
matrices = st.lists(st.lists(floats, min_size=8, max_size=8), min_size=1, max_size=4)


def test_every_kind_is_covered_here() -> None:
    assert {kind["kind"] for kind in KINDS} == set(clippings.kinds())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=80, deadline=None)
@given(row=st.lists(floats, min_size=8, max_size=8), exponent=st.integers(-15, 15), most=st.none() | st.just(2.0))
def test_numpy_clips_one_update_as_torch_does(
    kind: dict[str, Any], row: list[float], exponent: int, most: float | None
) -> None:
    spec = parse(kind | {"norm": 10.0**exponent, "linf_filter": most})
    one, other = np.array(row, np.float32), torch.tensor([row], dtype=torch.float32)
    over = (float(count_over(other, spec)),) * spec.counts
    clip_(other, spec, LAYOUT)
    assert clip_one(one, spec, LAYOUT) == over
    assert np.isfinite(one).all()
    assert np.sqrt((one.astype(np.float64) ** 2).sum()) <= spec.bound
    np.testing.assert_allclose(one, other[0].numpy(), rtol=2e-5, atol=1e-44)


@pytest.mark.parametrize("place", [0, 5, 11])
def test_a_nan_in_any_part_of_a_long_update_makes_it_zero(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldfare.clipping.one._CHUNK", 4)
    update = np.ones(12, np.float32)
    update[place] = np.nan
    clip_one(update, parse({"kind": "flat", "norm": 1.0}), (slice(0, 12),))
    assert not update.any()


def test_numpy_refuses_what_is_no_update() -> None:
    for wrong in (np.zeros(3), np.zeros((1, 3), np.float32)):
        with pytest.raises(ValueError, match="float32"):
            clip_one(wrong, parse({"kind": "flat", "norm": 1.0}), (slice(0, 3),))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=80, deadline=None)
@given(rows=matrices, exponent=st.integers(-15, 15))
def test_no_vector_leaves_with_more_than_the_bound(
    kind: dict[str, Any], rows: list[list[float]], exponent: int
) -> None:
    spec = parse(kind | {"norm": 10.0**exponent})
    updates = torch.tensor(rows, dtype=torch.float32)
    alone = [updates[i : i + 1].clone() for i in range(len(rows))]
    bad = ~torch.isfinite(updates).all(dim=1)
    clip_(updates, spec, LAYOUT)
    wide = updates.numpy().astype(np.float64)
    assert np.isfinite(wide).all()
    # numpy's hypot-free norm in float64 is an implementation of its own
    assert (np.sqrt((wide**2).sum(axis=1)) <= spec.bound).all()
    assert not updates[bad].any()
    for row, single in zip(updates, alone, strict=True):
        clip_(single, spec, LAYOUT)
        assert torch.equal(row, single[0]), "users influence each other"


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    scales=st.lists(st.sampled_from([0.0, 1e-42, 1e-19, 1e-6, 1e-3, 1.0, 1e8, 1e16, 1e37]), min_size=1, max_size=5),
    spread=st.sampled_from([0.0, 3.0, 30.0]),
    exponent=st.integers(-12, 12),
)
def test_long_vectors_of_any_scale_stay_within_the_bound(
    kind: dict[str, Any], seed: int, scales: list[float], spread: float, exponent: int
) -> None:
    """Past one block of float32 sums, rows of different scale side by side, coordinates over 30 decades."""
    spec, d = parse(kind | {"norm": 10.0**exponent}), 700
    layout = (slice(0, 129), slice(129, 130), slice(130, 700))
    generator = np.random.default_rng(seed)
    rows = [generator.normal(size=d) * 10.0 ** (-spread * generator.random(d)) * scale for scale in scales]
    updates = torch.from_numpy(np.array(rows)).to(torch.float32)
    alone = [updates[i : i + 1].clone() for i in range(len(scales))]
    exact = np.sqrt((updates.numpy().astype(np.float64) ** 2).sum(axis=1))
    np.testing.assert_allclose(norms(updates).numpy(), exact, rtol=2.0**-17.9)
    clip_(updates, spec, layout)
    assert (np.sqrt((updates.numpy().astype(np.float64) ** 2).sum(axis=1)) <= spec.bound).all()
    for row, single in zip(updates, alone, strict=True):
        clip_(single, spec, layout)
        assert torch.equal(row, single[0]), "users influence each other"


def test_worst_case_for_float32_sums_stays_within_the_bound() -> None:
    """A million equal coordinates, where float32 adds one after the other, and a layer that is no block's multiple."""
    updates = torch.full((2, 1_000_003), 0.1)
    updates[1] = 1e-4
    clip_(updates, parse({"kind": "per-layer"}), (slice(0, 500_001), slice(500_001, 1_000_003)))
    lengths = np.sqrt((updates.numpy().astype(np.float64) ** 2).sum(axis=1))
    assert (lengths <= 1.0).all()
    assert lengths[0] >= 1.0 - 2e-5


def test_columns_that_are_not_next_to_each_other_are_clipped_too() -> None:
    updates = torch.randn(300, 3, generator=torch.Generator().manual_seed(0)).T
    expected = updates.clone().contiguous()
    clip_(updates, parse({"kind": "flat"}), (slice(0, 300),))
    clip_(expected, parse({"kind": "flat"}), (slice(0, 300),))
    torch.testing.assert_close(updates, expected)
    assert float(norms(updates).max()) <= 1.0


@pytest.mark.parametrize("kind", ["flat", "per-layer"])
@pytest.mark.parametrize("numel", [8, 127, 128, 129, 1000, 300_001])
def test_a_row_is_clipped_to_the_same_bits_whoever_else_is_there(numel: int, kind: str) -> None:
    """Rows of usual size, and rows whose squares leave float32: 12 of each."""
    generator = torch.Generator().manual_seed(numel)
    updates = torch.randn(24, numel, generator=generator)
    updates[::2] *= 1e25
    layout = slice(0, numel // 3), slice(numel // 3, numel)
    spec, whole = parse({"kind": kind, "norm": 0.3}), updates.clone()
    clip_(whole, spec, layout)
    for rows in ([0], [1], [3, 4, 23], list(range(5, 17)), list(range(24))[::-1]):
        some = updates[rows].clone()
        assert torch.equal(norms(some), norms(updates)[rows])
        clip_(some, spec, layout)
        assert torch.equal(some, whole[rows])


@given(rows=matrices)
@settings(max_examples=100, deadline=None)
def test_float64_sum_of_many_clipped_users_stays_below_users_times_norm(rows: list[list[float]]) -> None:
    updates = torch.tensor([rows[0]] * 50, dtype=torch.float32)
    clip_(updates, parse({"kind": "flat", "norm": 0.3}), LAYOUT)
    total = updates.to(torch.float64).sum(dim=0).to(torch.float32).numpy().astype(np.float64)
    assert math.sqrt(float(total @ total)) <= 50 * 0.3


def test_small_vectors_pass_flat_clipping_untouched() -> None:
    updates = torch.tensor([[0.3, -0.4], [0.0, 0.0], [3.0, 4.0]])
    clip_(updates, parse({"kind": "flat", "norm": 1.0}), (slice(0, 2),))
    assert torch.equal(updates[:2], torch.tensor([[0.3, -0.4], [0.0, 0.0]]))
    torch.testing.assert_close(updates[2], torch.tensor([0.6, 0.8]), rtol=1e-5, atol=0.0)


def test_huge_vector_keeps_its_direction() -> None:
    updates = torch.tensor([[3e38, -3e38, 0.0, 1.5e38]])
    clip_(updates, parse({"kind": "flat", "norm": 1e-10}), (slice(0, 4),))
    torch.testing.assert_close(updates * 1e10, torch.tensor([[2 / 3, -2 / 3, 0.0, 1 / 3]]), rtol=1e-5, atol=0.0)


def test_denormal_vector_is_normalised_to_full_length() -> None:
    updates = torch.tensor([[1e-44, 0.0], [0.0, 0.0]])
    clip_(updates, parse({"kind": "automatic", "stabiliser": 0.0, "norm": 2.0}), (slice(0, 2),))
    torch.testing.assert_close(updates, torch.tensor([[2.0, 0.0], [0.0, 0.0]]), rtol=1e-5, atol=0.0)


def test_automatic_is_v_norm_over_norm_plus_stabiliser() -> None:
    updates = torch.tensor([[3.0, 4.0]])
    clip_(updates, parse({"kind": "automatic", "norm": 2.0, "stabiliser": 5.0}), (slice(0, 2),))
    torch.testing.assert_close(updates, torch.tensor([[0.6, 0.8]]), rtol=1e-5, atol=0.0)


def test_normalised_does_not_let_the_norm_set_the_step() -> None:
    for norm in (0.5, 2.0):
        spec = parse({"kind": "normalised", "norm": norm})
        updates = torch.tensor([[30.0, 40.0], [0.15, 0.2]])
        clip_(updates, spec, (slice(0, 2),))
        assert spec.bound == 1.0
        torch.testing.assert_close(updates[0], torch.tensor([0.6, 0.8]), rtol=1e-5, atol=0.0)
        torch.testing.assert_close(updates[1], torch.tensor([0.15, 0.2]) / norm, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(("weighting", "shares"), [("equal", [1 / 3] * 3), ("size", [3 / 8, 4 / 8, 1 / 8])])
def test_layers_are_clipped_each_to_its_share(weighting: str, shares: list[float]) -> None:
    updates = torch.full((1, 8), 100.0)
    updates[0, 7] = 1e-3
    clip_(updates, parse({"kind": "per-layer", "norm": 2.0, "weighting": weighting}), LAYOUT)
    lengths = [float(updates[0, where].norm()) for where in (slice(0, 3), slice(3, 7))]
    np.testing.assert_allclose(lengths, [2.0 * math.sqrt(share) for share in shares[:2]], rtol=1e-5)
    assert updates[0, 7] == torch.tensor(1e-3)


def test_layout_that_leaves_a_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="does not cover"):
        clip_(torch.ones(1, 8), parse({"kind": "per-layer"}), (slice(0, 3), slice(4, 8)))


def test_linf_filter_zeroes_the_update_that_diverged() -> None:
    updates = torch.tensor([[99.0, 0.0], [0.0, -101.0]])
    clip_(updates, parse({"kind": "flat", "norm": 200.0, "linf_filter": 100.0}), (slice(0, 2),))
    assert torch.equal(updates, torch.tensor([[99.0, 0.0], [0.0, 0.0]]))


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        clip_(torch.ones(1, 2, dtype=torch.float64), parse({"kind": "flat"}), (slice(0, 2),))


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"kind": "flatt"}, coded("kind-unknown", "flat")),
        ({"kind": "flat", "nrom": 1.0}, coded("key-unknown", "norm")),
        ({"kind": "flat", "norm": 0.0}, coded("value-wrong", "1e-20")),
        ({"kind": "flat", "norm": math.nan}, coded("value-wrong", "norm")),
        ({"kind": "adaptive-quantile", "norm": 1e9}, coded("out-of-range", "1000000.0")),
    ],
)
def test_refusals_name_the_nearest(table: dict[str, Any], what: Coded) -> None:
    with pytest.raises(BadInput, check=what):
        parse(table)


# the share that is clipped: Bombari et al. 2025, Lemma B.1


def test_clipping_slows_gaussian_regression_by_mu_and_its_variance_by_nu() -> None:
    """mu_c and nu_c of (4.6) by Monte Carlo through `clip_`, d = 200, within 1 %."""
    generator = torch.Generator().manual_seed(5)
    d, users = 200, 40_000
    x = torch.randn(users, d, generator=generator)
    theta = torch.zeros(d)
    theta[0] = 0.8
    residual = x @ theta + 0.6 * torch.randn(users, generator=generator)  # E residual^2 = 2 P = 1
    gradient = x * residual[:, None]
    for c, mu, nu in [(0.5, 0.382925, 0.185128), (1.0, 0.682689, 0.516059), (2.0, 0.954500, 0.920537)]:
        clipped = gradient.clone()
        spec = parse({"kind": "flat", "norm": c * math.sqrt(d)})
        over = count_over(clipped, spec)
        clip_(clipped, spec, (slice(0, d),))
        assert float(clipped.mean(dim=0)[0]) / 0.8 == pytest.approx(mu, rel=0.02)
        assert float(clipped.square().sum()) / float(gradient.square().sum()) == pytest.approx(nu, rel=0.03)
        assert 1.0 - over / users == pytest.approx(mu, abs=0.01), "the unclipped share is mu"
        assert mu == pytest.approx(erf(c / math.sqrt(2)), abs=1e-6)


# adaptive quantile


def test_more_unclipped_users_than_wanted_lower_the_norm() -> None:
    spec = AdaptiveQuantile(norm=2.0)
    assert spec.step(2.0, noised_over=10.0, users=100) < 2.0 < spec.step(2.0, noised_over=90.0, users=100)
    assert spec.step(2.0, noised_over=50.0, users=100) == 2.0
    assert spec.step(2.0, 10.0, 100) == pytest.approx(2.0 * math.exp(-0.2 * (0.9 - 0.5)))


@given(over=st.floats(-1e6, 1e6), norm=st.floats(1e-6, 1e6))
def test_norm_stays_in_its_range_and_moves_at_most_by_exp_rate(over: float, norm: float) -> None:
    spec = AdaptiveQuantile()
    moved = spec.step(norm, over, 100)
    assert spec.least <= moved <= spec.most
    assert abs(math.log(moved / norm)) <= spec.rate * 0.5 + 1e-9


def test_unusable_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="no users"):
        AdaptiveQuantile().step(1.0, 0.0, 0)
    with pytest.raises(ValueError, match="nan"):
        AdaptiveQuantile().step(1.0, math.nan, 5)


@given(rows=matrices, weight=st.floats(0.01, 1.0), norm=st.floats(1e-3, 1e3))
@settings(max_examples=100, deadline=None)
def test_joint_contribution_is_within_joint_bound_and_zero_for_no_update(
    rows: list[list[float]], weight: float, norm: float
) -> None:
    spec = AdaptiveQuantile(norm=norm, count_weight=weight)
    for row in rows:
        update = torch.tensor([row], dtype=torch.float32)
        over = count_over(update, spec)
        clip_(update, spec, LAYOUT)
        joint = math.hypot(float(norms(update)[0]), weight * over)
        assert joint <= spec.joint_bound
    zero = torch.zeros(1, 8)
    assert count_over(zero, spec) == 0


def test_joint_bound_is_reached() -> None:
    spec = AdaptiveQuantile(count_weight=0.3)
    update = torch.tensor([[5.0, 0.0]])
    over = count_over(update, spec)
    clip_(update, spec, (slice(0, 2),))
    assert math.hypot(float(norms(update)[0]), 0.3 * over) == pytest.approx(spec.joint_bound, rel=1e-5)


def split(spec: AdaptiveQuantile, noise_multiplier: float) -> tuple[float, float]:
    """(z_updates, z_counts): the noise multipliers that updates and indicators would have alone.

    1 / z_updates^2 + 1 / z_counts^2 = 1 / noise_multiplier^2: the budget (mu^2 or rho) is divided as 1 : w^2.
    """
    scale = noise_multiplier * spec.joint_bound
    return scale, scale / spec.count_weight


def test_split_says_what_each_part_would_need_alone() -> None:
    updates, counts = split(AdaptiveQuantile(count_weight=0.1), 1.5)
    assert updates**-2 + counts**-2 == pytest.approx(1.5**-2)
    assert counts == pytest.approx(10 * updates)


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["id"])
def test_split_is_theorem_1_of_andrew_et_al(row: dict[str, Any]) -> None:
    """Their count is centred (sensitivity 1/2), ours is not (a zero update counts as zero): 2 sigma_b is our z_counts.
    At the weight that gives their counting noise, the updates' multiplier is theirs."""
    z_updates, sigma_b = row["value"]
    spec = AdaptiveQuantile(count_weight=z_updates / (2 * sigma_b))
    assert split(spec, row["params"]["z"]) == pytest.approx((z_updates, 2 * sigma_b), rel=1e-9)


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.7])
def test_norm_converges_to_the_quantile_and_the_stream_keeps_its_scale(quantile: float) -> None:
    """T13 of spec/clipping: C -> sqrt(2) erfinv(q) sqrt(2 P) sqrt(d), while lr x C stays what it was."""
    generator = torch.Generator().manual_seed(11)
    d, users = 400, 500
    spec = AdaptiveQuantile(norm=1.0, quantile=quantile)
    norm, tail = spec.norm, []
    for t in range(300):
        x = torch.randn(users, d, generator=generator)
        gradient = x * torch.randn(users, 1, generator=generator)
        now = spec.at(norm)
        over = count_over(gradient, now)
        clip_(gradient, now, (slice(0, d),))
        assert float(norms(gradient).max()) <= 1.0
        norm = spec.step(norm, over + 25.0 * float(torch.randn((), generator=generator)), users)
        if t >= 150:
            tail.append(norm)
    assert np.mean(tail) == pytest.approx(math.sqrt(2) * erfinv(quantile) * math.sqrt(d), rel=0.04)


def test_at_tells_the_nodes_this_rounds_norm_and_nothing_else() -> None:
    spec = AdaptiveQuantile(norm=1.0, quantile=0.3)
    assert spec.at(3.5) == AdaptiveQuantile(norm=3.5, quantile=0.3)
    assert parse(spec.at(3.5).model_dump()) == spec.at(3.5)
    assert isinstance(parse(Normalised(norm=2.0).model_dump()), Normalised)


def test_a_users_result_is_the_same_beside_usual_and_unusual_users() -> None:
    """A batch must not choose its arithmetic by what one user holds: every other user's vector would then move by
    rounding, and one user would move the sum by more than the clip norm."""
    generator = torch.Generator().manual_seed(1)
    usual = torch.randn(4, 1000, generator=generator)
    for other in (0.0, 1e-30, 1e30, math.nan):
        beside = usual.clone()
        beside[3] *= other
        reference = usual.clone()
        for updates in (beside, reference):
            clip_(updates, parse({"kind": "flat"}), (slice(0, 1000),))
        assert torch.equal(beside[:3], reference[:3])
