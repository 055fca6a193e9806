"""docs/theorems.md: its entries are of the source as it is, and what it calls exact is, over all small cases.

Arithmetic is in fractions unless a comparison with the product's floats says otherwise.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction as F
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fieldfare.accounting.importance import upper_bound
from fieldfare.clipping import AdaptiveQuantile
from fieldfare.factorization.released import chain_bound, pattern_square, released_gram
from fieldfare.privatise import Grid
from support.pages import ROOT

HOOK = ROOT / "docs/hooks/theorems.py"


def hook() -> Any:
    spec = importlib.util.spec_from_file_location("theorems", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_entry_is_outdated() -> None:
    """Read the entry and its source again; then `python docs/hooks/theorems.py`."""
    page = hook().PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`fieldfare." in line]
    assert len(hook().ENTRY.findall(page)) == len(rows) > 30
    assert hook().outdated(page) == []


def test_a_changed_line_marks_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, source = hook(), tmp_path / "shared/some/place.py"
    source.parent.mkdir(parents=True)
    monkeypatch.setattr(of, "ROOT", tmp_path)
    source.write_text(
        '"""The proof."""\n\n\nclass A:\n    def f(self) -> int:\n        return 1\n\n\ndef g() -> int:\n    return 2\n'
    )
    page = of.renewed("| it | `some.place:A.f` | proven | | | `new` |\n")
    assert of.outdated(page) == []
    for old, new, known in (("return 2", "return 3", []), ("return 1", "return 0", ["some.place:A.f"])):
        source.write_text(source.read_text().replace(old, new))
        assert of.outdated(page) == known
    before = type("Page", (), {"file": type("File", (), {"src_path": "theorems.md"})})
    assert "`some.place:A.f` | proven | | | **outdated** |" in of.on_page_markdown(page, before)
    page = of.renewed(page)
    assert of.on_page_markdown(page, before) == page
    source.write_text(source.read_text().replace("The proof.", "Another proof."))
    assert of.outdated(page) == ["some.place:A.f"]


# -- the filter -------------------------------------------------------------------------------------------------------
# E(k, d): with probability d the world is told, else k coins are shown, each right with probability `RIGHT`. Coins take
# the place of the path X of the proof: k of them are k further steps of one walk whose end says all that they say.

RIGHT = F(2, 3)


def coins(k: int) -> Iterator[tuple[F, F]]:
    """(chance in world 1, chance in world 0) of each number of ones among k coins."""
    for ones in range(k + 1):
        ways = math.comb(k, ones)
        yield ways * RIGHT**ones * (1 - RIGHT) ** (k - ones), ways * (1 - RIGHT) ** ones * RIGHT ** (k - ones)


def excess(pairs: Iterator[tuple[F, F]], grow: F) -> F:
    """The hockey-stick divergence at e^epsilon = grow of world 1 against 0."""
    return sum((max(F(0), p - grow * q) for p, q in pairs), F(0))


def single(k: int, d: F, grow: F) -> F:
    """The divergence of E(k, d)."""
    return d + (1 - d) * excess(coins(k), grow)


@cache
def dearest(steps: tuple[tuple[int, F], ...], k: int, leak: F, grow: F, p: F = F(1), q: F = F(1)) -> F:
    """The most that any strategy reaches which chooses each next step by all that was shown, within k and leak."""
    best = max(F(0), p - grow * q)
    for coin_count, d in steps:
        if coin_count > k or d > leak or (coin_count, d) == (0, 0):
            continue
        rest = [
            dearest(steps, k - coin_count, leak - d, grow, (1 - d) * p * a, (1 - d) * q * b)
            for a, b in coins(coin_count)
        ]
        best = max(best, d * p + sum(rest, F(0)))
    return best


@pytest.mark.parametrize("grow", [F(1), F(5, 4), F(2), F(4), F(10)])
def test_no_strategy_within_the_rectangle_exceeds_it(grow: F) -> None:
    leak = F(1, 50)
    steps = tuple((k, d) for k in (0, 1, 2) for d in (F(0), leak / 2, leak))
    reached = dearest(steps, 4, leak, grow)
    assert reached <= single(4, leak, grow)
    assert reached == single(4, leak, grow), "and it is reached, by one that spends everything"


def test_a_sum_of_delta_that_is_no_rectangle_is_exceeded() -> None:
    """The rule that the filter is not: the second step is chosen by outcome among any that fit by delta alone."""
    grow, target = F(2), single(3, F(0), F(2))

    def fits(k: int, d: F) -> bool:
        return d + excess(coins(k), grow) <= target

    choices = [(1, d) for d in (F(0), target - excess(coins(2), grow))] + [
        (0, target - excess(coins(1), grow)),
        (2, F(0)),
    ]
    assert all(fits(1 + k, d) for k, d in choices)
    total = F(0)
    for a, b in coins(1):
        total += max(
            d * a + (1 - d) * sum((max(F(0), a * x - grow * b * y) for x, y in coins(k)), F(0)) for k, d in choices
        )
    assert total > target


# -- the charge of B --------------------------------------------------------------------------------------------------

Matrix = list[list[F]]


def inverse(matrix: Matrix) -> Matrix:
    n = len(matrix)
    rows = [[*row, *(F(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(n):
            if r != i:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i], strict=True)]
    return [row[n:] for row in rows]


def gram_of(b: Sequence[Sequence[int]]) -> Matrix:
    """(B B^T)^-1."""
    return inverse([[sum((F(x) * y for x, y in zip(r, s, strict=True)), F(0)) for s in b] for r in b])


def small_matrices() -> Iterator[list[list[int]]]:
    """Lower-triangular B of three rows with entries -1, 0, 1, and those with a fourth column besides: one node more."""
    for below in itertools.product((-1, 0, 1), repeat=3):
        for diagonal in itertools.product((1, 2), repeat=3):
            square = [
                [diagonal[0], 0, 0], [below[0], diagonal[1], 0], [below[1], below[2], diagonal[2]],
            ]  # fmt: skip
            yield square
            yield [[*row, extra] for row, extra in zip(square, (0, 1, -1), strict=True)]


def energy(b: list[list[int]], updates: Sequence[F]) -> F:
    """What the whitened rounds of B shift by, squared and summed, step by step: each is what the earlier ones leave.

    Gram-Schmidt of B's rows in place of a Cholesky factor, so that all of it stays in fractions.
    """
    total, basis = F(0), []
    for row, x in zip(b, updates, strict=True):
        rest, shift = [F(v) for v in row], F(x)
        for other, moved, square in basis:
            share = sum((F(v) * o for v, o in zip(row, other, strict=True)), F(0)) / square
            rest = [v - share * o for v, o in zip(rest, other, strict=True)]
            shift -= share * moved
        square = sum((v * v for v in rest), F(0))
        basis.append((rest, shift, square))
        total += shift * shift / square
    return total


def test_every_small_b_costs_at_most_its_gram_matrix() -> None:
    sizes = (F(-1), F(-1, 2), F(0), F(1, 2), F(1))
    tight = 0
    for b in small_matrices():
        gram = gram_of(b)
        np.testing.assert_allclose(released_gram(np.array(b, float)), np.array(gram, float), rtol=1e-12, atol=1e-12)
        for pattern in itertools.chain.from_iterable(itertools.combinations(range(3), k) for k in (1, 2, 3)):
            bound = sum((abs(gram[i][j]) for i in pattern for j in pattern), F(0))
            assert pattern_square(np.array(gram, float), pattern) == pytest.approx(float(bound), rel=1e-14)
            found = []
            for chosen in itertools.product(sizes, repeat=len(pattern)):
                updates = [F(0)] * 3
                for t, x in zip(pattern, chosen, strict=True):
                    updates[t] = x
                spent = energy(b, updates)
                assert spent == sum((updates[i] * gram[i][j] * updates[j] for i in range(3) for j in range(3)), F(0))
                found.append(spent)
            assert max(found) <= bound
            tight += max(found) == bound
    assert tight > 2000, "for most patterns an update reaches it"


def test_fewer_rounds_cost_the_leading_rows_and_not_the_leading_block() -> None:
    unlike = 0
    for b in small_matrices():
        whole, part = gram_of(b), gram_of(b[:2])
        for updates in itertools.product((F(-1), F(0), F(1)), repeat=2):
            first = sum((updates[i] * part[i][j] * updates[j] for i in range(2) for j in range(2)), F(0))
            assert first == energy(b[:2], updates)
            for last in (F(-1), F(0), F(1)):
                assert energy(b, [*updates, last]) >= first, "what was released stays spent"
        unlike += [row[:2] for row in whole[:2]] != part
    assert unlike > 100


def test_the_chain_bound_is_above_every_pattern() -> None:
    for b in itertools.islice(small_matrices(), 0, None, 3):
        gram = gram_of(b)
        for separation, count in itertools.product((1, 2, 3), (1, 2, 3)):
            patterns = (
                p
                for k in range(1, count + 1)
                for p in itertools.combinations(range(3), k)
                if all(y - x >= separation for x, y in itertools.pairwise(p))
            )
            worst = max(sum((abs(gram[i][j]) for i in p for j in p), F(0)) for p in patterns)
            assert chain_bound(np.array(gram, float), separation, count) >= float(worst) * (1 - 1e-14)


# -- the joint bound ---------------------------------------------------------------------------------------------------


def test_an_update_with_its_indicator_is_within_the_joint_bound() -> None:
    """All vectors (x, y) on a grid, with those of norm 1 among them; e = 1 only where the update was longer."""
    weight = F(3, 4)
    bound = AdaptiveQuantile(norm=1.0, count_weight=0.75).joint_bound
    assert bound == 1.25, "sqrt(1 + w^2), and exact here"
    reached = F(0)
    for x, y in itertools.product(range(-10, 11), repeat=2):
        raw = F(x, 5), F(y, 5)
        square = raw[0] ** 2 + raw[1] ** 2
        over = square > 1
        # The clipped update's square: 1 where the raw one was longer.
        joint = min(square, F(1)) + weight**2 * over
        assert joint <= F(bound) ** 2
        reached = max(reached, joint)
    assert reached == F(bound) ** 2


# -- rounding ----------------------------------------------------------------------------------------------------------


def rounded(x: F) -> int:
    """To the nearest whole number, ties to even, as `rint`."""
    return round(x)


def test_rounding_the_noise_is_rounding_the_noised_sum_but_at_ties() -> None:
    for cells, part in itertools.product(range(-6, 7), range(-96, 97)):
        noise = F(part, 32)
        moved, whole = cells + rounded(noise), rounded(cells + noise)
        tie = noise.denominator == 2
        assert moved == whole or (tie and abs(moved - whole) == 1)
    ties = [c + rounded(F(1, 2)) == rounded(c + F(1, 2)) for c in (0, 1)]
    assert ties == [True, False], "real-valued noise meets no tie"


def test_the_product_rounds_so() -> None:
    grid = Grid(0.25)
    values = [F(part, 64) for part in range(-100, 101) if F(part, 16).denominator != 2]
    total = torch.tensor([float(v) for v in values], dtype=torch.float64)
    want = [float(F(1, 4) * rounded(v * 4)) for v in values]
    assert grid.snap_(total.clone()).tolist() == want


def test_snapping_moves_two_replies_apart_by_at_most_what_is_charged() -> None:
    """Replies of two numbers on all points of a finer grid: ||snap R - snap R'|| <= ||R - R'|| + g sqrt(2)."""
    g, fine = F(1), 4
    points = [(F(a, fine), F(b, fine)) for a in range(-5, 6) for b in range(-5, 6)]
    for one, other in itertools.combinations(points, 2):
        before = sum((x - y) ** 2 for x, y in zip(one, other, strict=True))
        after = sum((g * (rounded(x / g) - rounded(y / g))) ** 2 for x, y in zip(one, other, strict=True))
        # sqrt(after) <= sqrt(before) + sqrt(2), without a root: after - before - 2 <= 2 sqrt(2 before).
        over = after - before - 2
        assert over <= 0 or over**2 <= 8 * before
    assert Grid(1.0).charged_clip(3.0, 2) >= 3.0 + math.sqrt(2)


# -- the betting bound -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law", [(F(1, 2), F(1, 4), F(1, 4)), (F(9, 10), F(0), F(1, 10)), (F(1, 10), F(8, 10), F(1, 10))]
)
@pytest.mark.parametrize("stake", [F(1), F(1, 2)])
def test_the_betting_bound_fails_with_at_most_its_probability(law: tuple[F, F, F], stake: F) -> None:
    """All outcomes of five draws from {0, 1/2, 1}: the wealth is 1 on average, and U < mean happens within beta."""
    values, mean = (F(0), F(1, 2), F(1)), law[1] / 2 + law[2]
    average, failed, beta = F(0), F(0), F(1, 10)
    for draw in itertools.product(range(3), repeat=5):
        chance = math.prod((law[i] for i in draw), start=F(1))
        wealth = math.prod((1 + stake * (mean - values[i]) for i in draw), start=F(1))
        average += chance * wealth
        bound = upper_bound(np.array([float(values[i]) for i in draw]), 1.0, float(stake), math.log(1 / float(beta)))
        if chance and bound < float(mean) * (1 - 1e-12):
            failed += chance
            assert wealth >= 1 / beta * (1 - F(1, 10**9))
    assert average == 1
    assert failed <= beta
