"""Usual updates are clipped in float32: the same guarantee, the same result to a few parts in a million."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fieldfare import clipping

LAYOUT = [slice(0, 300), slice(300, 301), slice(301, 1000)]
SPECS: list[dict[str, Any]] = [
    {"kind": "flat", "norm": 0.7},
    {"kind": "flat", "norm": 1e-20},
    {"kind": "automatic", "norm": 0.7},
    {"kind": "normalised", "norm": 0.7},
    {"kind": "per-layer", "norm": 0.7, "weighting": "size"},
    {"kind": "adaptive-quantile", "norm": 0.7},
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1e-3, 0.022, 1.0, 1e6, 1e13])
def test_quick_clipping_keeps_the_bound_and_agrees_with_the_exact(spec: dict[str, Any], scale: float) -> None:
    parsed = clipping.parse(spec)
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(20, 1000, generator=generator) * scale
    updates[0] = scale  # every rounding in the same direction
    exact = updates.clone()
    slow = parsed.model_copy(update={"linf_filter": 1e38})
    clipping.clip_(exact, slow, LAYOUT)
    assert clipping._clip_quickly_(updates, parsed, LAYOUT)
    norms = torch.linalg.vector_norm(updates.double(), dim=1)
    assert float(norms.max()) <= parsed.bound
    torch.testing.assert_close(updates, exact, rtol=2e-5, atol=0)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30, float("nan"), float("inf")])
def test_unusual_updates_are_left_to_the_exact_way(value: float) -> None:
    parsed = clipping.parse({"kind": "flat", "norm": 0.7})
    updates = torch.ones(3, 1000)
    updates[1] = value
    before = updates.clone()
    assert not clipping._clip_quickly_(updates, parsed, LAYOUT)
    assert torch.equal(updates.nan_to_num(), before.nan_to_num())
    clipping.clip_(updates, parsed, LAYOUT)
    assert float(torch.linalg.vector_norm(updates.double(), dim=1).max()) <= 0.7


def test_quick_norms_are_within_their_bound() -> None:
    generator = torch.Generator().manual_seed(1)
    for numel in (128, 129, 1000, 50_000):
        block = torch.rand(8, numel, generator=generator) + 1.0
        found, exact = clipping._quick_norms(block), torch.linalg.vector_norm(block.double(), dim=1)
        assert float(((found - exact) / exact).abs().max()) <= clipping._QUICK / 2
