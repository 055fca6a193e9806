"""The stored figures of a ridden metric's intervals: how many windows, how sure that is, what the model loses."""

from __future__ import annotations

import re

import pytest
from scipy.stats import beta

from support.pages import ROOT

PAGE = " ".join((ROOT / "benchmarks/results/metric_bands.md").read_text().split())


def number(pattern: str) -> float:
    (found,) = re.findall(pattern, PAGE)
    return float(found)


def test_two_hundred_windows_hold_the_mean_as_often_as_is_promised() -> None:
    windows, held = number(r"(\d+) windows of 8 rounds that do not overlap"), number(r"\*\*(\d+)\*\* of the intervals")
    (listed,) = re.findall(r"By run, of 8: ([\d, ]+)\.", PAGE)
    by_run = [int(each) for each in listed.split(",")]
    assert "5 000 players" in PAGE
    assert "epsilon 1," in PAGE
    assert (windows, sum(by_run), len(by_run) * 8) == (200, held, 200)
    assert 0.92 <= held / windows <= 0.98
    assert number(r"without noise, \*\*([\d.]+) %\*\*") == pytest.approx(100 * held / windows, abs=0.051)


def test_the_interval_of_their_share_is_the_exact_one() -> None:
    """Clopper's and Pearson's, by quantiles of the beta law."""
    held = int(number(r"\*\*(\d+)\*\* of the intervals"))
    low, high = beta.ppf(0.025, held, 201 - held), beta.ppf(0.975, held + 1, 200 - held)
    assert number(r"\(95 is the aim\): ([\d.]+) to") == pytest.approx(100 * low, abs=0.051)
    assert number(r"to ([\d.]+) % by the exact binomial") == pytest.approx(100 * high, abs=0.051)
    assert low < 0.95 < high


def test_the_model_loses_less_than_a_thousandth() -> None:
    assert "AUC on test players without it less that with it" in PAGE
    assert number(r"from [-+.\d]+ to ([-+.\d]+) \(\.001 is allowed\)") < 0.001
