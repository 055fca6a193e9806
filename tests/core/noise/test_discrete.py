"""The discrete Gaussian: exact probabilities, fixed by the key; and as the z of mechanisms of whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise, discrete
from fieldfare.noise.discrete import DiscreteNoise, discrete_gaussian
from support.refusals import coded

KEY = b"a fixed key for tests, 32 bytes!"
FALSE_ALARM = 1e-9


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 50])
def test_discrete_gaussian_has_the_exact_probabilities(scale: int) -> None:
    n = 200_000
    sample = discrete_gaussian(n, scale, SecureNoise(KEY), row=scale)
    support = np.arange(-12 * scale, 12 * scale + 1)
    weights = np.exp(-(support**2) / (2.0 * scale**2))
    expected = n * weights / weights.sum()
    assert np.abs(sample).max() <= 12 * scale
    counts = np.bincount(sample + 12 * scale, minlength=len(support))
    common = expected >= 10
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 10:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    assert stats.chisquare(observed, wanted).pvalue > FALSE_ALARM


def test_a_wide_discrete_gaussian_is_nearly_the_continuous_one() -> None:
    scale = 1 << 31
    sample = discrete_gaussian(100_000, scale, SecureNoise(KEY), row=0) / scale
    assert stats.kstest(sample, "norm").pvalue > FALSE_ALARM


def test_discrete_draws_are_fixed_by_key_row_and_element() -> None:
    noise = SecureNoise(KEY)
    whole = discrete_gaussian(10_000, 9, noise, row=3)
    assert np.array_equal(whole[4000:9000], discrete_gaussian(5000, 9, noise, row=3, offset=4000))
    assert not np.array_equal(whole, discrete_gaussian(10_000, 9, noise, row=4))
    assert not np.array_equal(whole, discrete_gaussian(10_000, 9, noise, row=3, stream="other"))
    assert discrete_gaussian(0, 9, noise, row=3).shape == (0,)


def test_uniform_integers_are_rejected_not_folded() -> None:
    """A word past the last whole multiple of the bound is redrawn: folding it would favour small integers."""

    class Fixed(SecureNoise):
        def bytes(self, n: int, *, row: int, offset: int = 0, stream: str) -> memoryview:
            words = [2**64 - 1, 2**64 - 2, 5][offset // 8 :]
            return memoryview(np.array(words, dtype="<u8").tobytes()[:n])

    words = discrete._Words(Fixed(KEY), 0, 0, "test")
    assert words.below(1, 3 * 2**30).tolist() == [5]  # 2^64 mod 3 * 2^30 is 2^30, so both large words are refused


WHOLE = [
    {"kind": "independent"},
    {"kind": "tree", "estimator": "plain"},
    {"kind": "tree", "estimator": "plain", "nodes": "all"},
    {"kind": "tree", "estimator": "plain", "restart_every": 8},
    {"kind": "anti-pgd", "nu": 0.0},
]


@pytest.mark.parametrize("spec", WHOLE, ids=str)
def test_whole_mechanisms_apply_b_to_whole_numbers_without_any_rounding(spec: dict[str, object]) -> None:
    rounds, d, scale = 21, 300, 1 << 30
    mechanism = mechanisms.build(spec, rounds)
    assert mechanism.whole
    strategy, noising = mechanism.strategy_matrix(rounds), mechanism.noising_matrix(rounds)
    np.testing.assert_array_equal(noising @ strategy, np.eye(rounds))
    noise = DiscreteNoise(SecureNoise(KEY), scale)
    stream = mechanism.stream(d, noise, dtype=torch.float64)
    rows = torch.stack([stream.next() for _ in range(rounds)]).numpy()
    z = np.stack([discrete_gaussian(d, scale, noise, row=row) for row in range(noising.shape[1])])
    assert [[int(x) for x in row] for row in rows] == (noising.astype(np.int64) @ z).tolist()
    again = mechanism.stream(d, DiscreteNoise(SecureNoise(KEY), scale), dtype=torch.float64)
    again.skip(13)
    np.testing.assert_array_equal(again.next().numpy(), rows[13])


def test_other_mechanisms_do_not_claim_to_be_whole() -> None:
    for spec in ({"kind": "nu", "nu": 0.1}, {"kind": "tree"}, {"kind": "anti-pgd", "nu": 0.5}, {"kind": "blt"}):
        assert not mechanisms.build(spec, 16).whole


def test_a_discrete_state_belongs_to_its_scale() -> None:
    mechanism = mechanisms.build({"kind": "anti-pgd"}, 4)
    one, two = (mechanism.stream(5, DiscreteNoise(SecureNoise(KEY), s), dtype=torch.float64) for s in (7, 8))
    with pytest.raises(BadInput, check=coded("differs", "noise state")):
        two.load_state_dict(one.state_dict())


def test_discrete_noise_refuses_floats_that_cannot_hold_it() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "discrete noise as")):
        DiscreteNoise(SecureNoise(KEY), 9).standard_normal(3, row=0)
    with pytest.raises(BadInput, check=coded("out-of-range", "scale = 0")):
        DiscreteNoise(SecureNoise(KEY), 0)
    with pytest.raises(BadInput, check=coded("out-of-range", "row")):
        DiscreteNoise(SecureNoise(KEY), 1).drawer("z", -1, 0, 1)
