"""Values that nobody listed: the threshold and its leak, against an oracle and in every small world."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from fieldfare.accounting.gaussian import gaussian_delta
from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.accounting.thresholded import threshold
from fieldfare.errors import BadInput
from fieldfare.questions import parse
from fieldfare.questions.items import Items, letters_of, words_of

REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "questions.json").read_text())


def items(**more: object) -> Items:
    question = parse({"kind": "items", "measure": "code", "leak": 1e-6, "most": 2, **more})
    assert isinstance(question, Items)
    return question


def test_the_threshold_is_that_of_the_reference() -> None:
    for each in REFERENCE["thresholds"]:
        assert threshold(each["k"], each["sigma"], each["leak"]) == pytest.approx(each["threshold"], rel=1e-8)
    for each in REFERENCE["items"]:
        k, sigma, tau = each["k"], each["sigma"], each["threshold"]
        leak = -math.expm1(k * norm.logcdf((tau - 1) / sigma))
        assert leak == pytest.approx(each["leak"], rel=1e-5)
        assert threshold(k, sigma, leak) == pytest.approx(tau, rel=1e-8)
        assert threshold(k, sigma, leak) >= tau * (1 - 1e-12)
        assert math.sqrt(k) / sigma == pytest.approx(each["mu"], rel=1e-9)


def test_a_users_values_are_few_whole_distinct_and_within_bounds() -> None:
    question = items(low=-5, high=100)
    assert question.of_user([7, 7.0, 3, 9]) == [3, 7]
    assert question.of_user([math.nan, math.inf, 0.5, -6, 101, 1e300]) == []
    assert items().of_user([2.0**60, -4]) == [-4]
    values, counts = question.counts([[1, 2], [2], [], [2, 50, 60]])
    assert (values, counts.tolist()) == ([1, 2, 50], [1, 3, 1])


def test_words_are_letters_and_come_back() -> None:
    question, longest = items(words=True, most=9).of_users(2), "x" * 61 + "日"
    words = ["7", "E11.9", "café", "two words", longest, "日本"]
    # None of these is a word: too long, empty, moves a terminal's cursor, turns text around, half a letter.
    none = [longest + "x", "", "a\0b", "\x1b[2J", "\u202eabc", "\ud800", "\ufffd"]
    letters = letters_of([*words, *none])
    assert letters.shape == (13, 64)
    assert words_of(letters)[:6] == words
    letters[6, :2] = 0xC3, 0x28
    assert question.of_user(words_of(letters)) == sorted(words)
    assert question.within(["b", "a", *none, 5]) == ["a", "b"]
    names, counts = question.counts([["b", "a", "b"], ["b"], []])
    assert (names, counts.tolist()) == (["a", "b"], [1, 2])
    assert [each.name for each in question.answer(words, np.ones(6), 0.1, 2)][:6] == words
    assert items().of_user(["5", 5]) == [5]
    with pytest.raises(BadInput):
        items(words=True, low=0)


@pytest.mark.parametrize(("leak", "parts"), [(0.05, 4), pytest.param(1e-3, 1000, marks=pytest.mark.slow)])
def test_what_one_user_alone_has_passes_with_the_probability_that_is_charged(leak: float, parts: int) -> None:
    """Monte Carlo of 100 000 draws a part; the seed is fixed, so a change fails it and chance does not."""
    question, sd, spacing = items(leak=leak, most=3).of_users(4), 0.7, 2.0**-20
    draw, part, passed = np.random.default_rng(3), 100_000, 0
    for _ in range(parts):
        noised = np.rint((question.box + sd * draw.standard_normal((part, 3))) / spacing) * spacing
        passed += int((question.shown(noised, sd, spacing) > 0).any(axis=1).sum())
    expected = leak * part * parts
    assert abs(passed - expected) < 5 * math.sqrt(expected)
    assert passed <= expected + 3 * math.sqrt(expected)


@pytest.mark.parametrize("k", [1, 2])
def test_in_every_small_world_the_answer_costs_no_more_than_is_charged(k: int) -> None:
    """Up to three users, values 1 to 3: hockey sticks of the exact law of what is shown, by a fine grid of one count.

    A release is, of each value that occurs, "hidden" or a bin of its noised count. Counts are independent, so the law
    of the whole is a product; a value that does not occur is hidden.
    """
    sd, leak = 0.9, 0.02
    question = items(leak=leak, most=k).of_users(3)
    tau = threshold(k, sd / question.box, leak) * question.box
    edges = np.concatenate([[-np.inf], tau + np.linspace(0, 8, 24), [np.inf]])

    def law(sets: tuple[tuple[int, ...], ...]) -> np.ndarray:
        whole = np.ones(1)
        for value in (1, 2, 3):
            count = sum(value in own for own in sets)
            one = np.diff(norm.cdf(edges, count * question.box, sd)) if count else np.eye(len(edges) - 1)[0]
            whole = np.multiply.outer(whole, one).reshape(-1)
        return whole

    loss = PrivacyLoss(1 / sd**2, leak=leak)
    sets = [each for size in range(k + 1) for each in itertools.combinations((1, 2, 3), size)]
    worst = 0.0
    for others in itertools.combinations_with_replacement(sets, 2):
        without = law(others)
        for own in sets[1:]:
            with_user = law((*others, own))
            for epsilon in (0.0, 0.5, 1.5, 4.0):
                for a, b in ((with_user, without), (without, with_user)):
                    found = float(np.maximum(a - math.exp(epsilon) * b, 0).sum())
                    assert found <= loss.delta(epsilon) + 1e-12
                    worst = max(worst, found / loss.delta(epsilon))
    assert worst > 0.5


def test_a_leak_composes_as_in_the_filter() -> None:
    one, two = PrivacyLoss(0.25, leak=1e-6), PrivacyLoss(0.75, leak=3e-6)
    both = one + two
    assert both.leak == 4e-6
    assert both.delta(1.0) == pytest.approx(4e-6 + (1 - 4e-6) * gaussian_delta(1.0, 1.0))
    assert both.delta(both.epsilon(1e-5)) == pytest.approx(1e-5, rel=1e-9)
    assert both.delta(both.epsilon(1e-5)) <= 1e-5 * (1 + 1e-12)
    assert both.epsilon(4e-6) == math.inf
    assert PrivacyLoss.from_json(both.to_json()) == both
    assert (both.gdp, both.zcdp) == (None, None)
    assert one.part_of(both)
    assert not both.part_of(PrivacyLoss(1.0))
    assert "leak" not in PrivacyLoss(1.0).to_json()
    with pytest.raises(BadInput):
        PrivacyLoss(leak=1.0)


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"leak": 0.0}, "question.leak"),
        ({"leak": 0.5}, "question.leak"),
        ({"most": 65}, "question.most"),
        ({"measure": "loss"}, "question.measure"),
        ({"measure": "update-norm"}, "question.measure"),
        ({"users": 1 << 17}, "question.most"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_by_its_key(table: dict[str, object], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        items(**table)
