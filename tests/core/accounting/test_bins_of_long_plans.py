"""Balls in bins over many rounds: what is charged without the whole strategy matrix is what the whole matrix says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fieldfare import mechanisms
from fieldfare.accounting import balls_in_bins
from fieldfare.accounting.balls_in_bins import gram
from fieldfare.errors import BadInput
from fieldfare.participation import BallsInBins
from support.refusals import coded

KINDS: list[dict[str, Any]] = [
    {"kind": "independent"},
    {"kind": "decaying", "final": 0.3},
    {"kind": "nu", "nu": 0.1},
    {"kind": "tree", "estimator": "plain"},
    {"kind": "tree", "estimator": "plain", "nodes": "all"},
    {"kind": "tree", "estimator": "online"},
    {"kind": "nu", "nu": 0.1, "restart_every": 13},
    {"kind": "nu", "nu": 0.1, "restart_every": 5},
    {"kind": "dense", "restart_every": 6},
    {"kind": "tree", "restart_every": 11},
    {"kind": "decaying", "restart_every": 9},
]


@pytest.mark.parametrize("spec", KINDS, ids=str)
@pytest.mark.parametrize("bins", [1, 7, 8])
def test_products_of_bins_are_those_of_the_whole_matrix(
    spec: dict[str, Any], bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = mechanisms.build(spec, 45, BallsInBins(bins))
    c = np.abs(mechanism.strategy_matrix(45))
    whole = np.stack([c[:, j::bins].sum(axis=1) for j in range(bins)], axis=1)
    monkeypatch.setattr(balls_in_bins, "_LARGEST_MATRIX", 6)
    assert gram(mechanism, bins) == pytest.approx(whole.T @ whole, rel=1e-12)


def test_long_plans_have_products() -> None:
    """Three thousand rounds, which no whole matrix is made of."""
    for spec in (
        {"kind": "tree"},
        {"kind": "independent"},
        {"kind": "decaying"},
        {"kind": "blt", "restart_every": 750},
    ):
        products = gram(mechanisms.build(spec, 3000, BallsInBins(100)), 100)
        assert products.shape == (100, 100)
        assert np.linalg.eigvalsh(products).min() >= -1e-9 * products.max()


def test_what_has_no_short_form_is_refused_with_the_nearest() -> None:
    mechanism = mechanisms.build({"kind": "momentum-tree", "momentum": 0.9}, 2500, BallsInBins(50))
    with pytest.raises(
        BadInput, check=coded("too-large", "scheme 'balls-in-bins' with", "2500", "restart_every = 2048")
    ):
        gram(mechanism, 50)
