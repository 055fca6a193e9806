"""What an answer says where few users have a value, or none has: it shows no number that they do not have.

1 000 users answer at epsilon 1, and 0, 1, 5, 20, 100, 300 or all of them have a value. Of 200 draws of the noise, an
estimate that is shown is wrong in 5 % at most, and so is the interval of how many have a value. A test fails where
more are wrong than a right interval has with probability 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from fieldfare.arrays import Floats
from fieldfare.questions import Estimate, Question, Values, parse

USERS, SD, DRAWS = 1000, 1 / 0.2680511232, 200
MOST_WRONG = int(binom.ppf(1 - 1e-6, DRAWS, 0.05))
UNIT = {"measure": "x", "low": 0, "high": 1}
KINDS: dict[str, dict[str, Any]] = {
    "mean": {"kind": "mean", **UNIT},
    "mean-of-some": {"kind": "mean", **UNIT, "some": True},
    "quantile": {"kind": "quantile", **UNIT, "bins": 16, "at": [0.2, 0.5, 0.8]},
    "quantile-of-some": {"kind": "quantile", **UNIT, "bins": 16, "at": [0.2, 0.5, 0.8], "some": True},
    "auc": {"kind": "auc", "model": "a", "bins": 8},
    "choose": {"kind": "choose", "models": ["a", "b", "c"]},
    "sums": {"kind": "sums", "entries": {"x": 2, "y": 1}, "high": 1},
}


def values(question: Question, have: int) -> Values:
    """Of the first `have` users; of a list of sums, y is told by half of them."""
    draw = np.random.default_rng(have)
    if question.kind == "auc":
        label = np.arange(have) % 2.0
        numbers = np.stack([draw.beta(2 + 2 * label, 3), label], axis=1)
    else:
        numbers = draw.beta(6, 2, (have, question.width if question.kind in ("choose", "sums") else 1))
    if question.kind == "sums":
        numbers[::2, 2] = np.nan
    return Values(numbers, np.arange(have), USERS)


def truths(question: Question, own: Values, sums: Floats) -> dict[str, tuple[float, float] | None]:
    """From where to where each estimate's interval must reach at least; None: no such number exists or may be told."""
    have, column = len(own.numbers), own.numbers[:, 0] if own.numbers.size else np.zeros(0)
    found: dict[str, tuple[float, float] | None] = {"users with a value": (have, have)}
    if question.kind == "quantile":
        below = np.cumsum(np.histogram(column, 16, (0, 1))[0])
        for share in (0.2, 0.5, 0.8):
            bin = int(np.searchsorted(below, share * (have if question.some else USERS)))  # type: ignore[attr-defined]
            found[f"{share}"] = (bin / 16, (bin + 1) / 16) if have and bin < 16 else None
    elif question.kind == "mean" and question.some:  # type: ignore[attr-defined]
        found["mean"] = (float(column.mean()),) * 2 if have else None
    elif question.kind == "auc":
        exact = question.read(sums, 1e-9, USERS)[0].value
        found["auc"] = None if exact is None else (exact, exact)
    else:
        found |= {
            each.name: (each.value, each.value) for each in question.read(sums, 0.0, USERS) if each.value is not None
        }
        found |= {f"users with {name}": (held, held) for name, held in (("x", have), ("y", have // 2))}
    return found


def is_wrong(each: Estimate, truth: tuple[float, float] | None) -> bool:
    """Whether it tells a number that there is not, or an interval that does not hold the one there is."""
    if truth is None:
        return each.value is not None
    return not each.low - 1e-9 <= truth[0] <= truth[1] <= each.high + 1e-9


@pytest.mark.parametrize("have", [0, 1, 5, 20, 100, 300, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_about_few_users_is_right_or_says_that_it_tells_no_more(kind: str, have: int) -> None:
    question, draw = parse(KINDS[kind]), np.random.default_rng(have)
    own = values(question, have)
    sums = question.contributions(own).sum(axis=0)
    truth, wrong = truths(question, own, sums), dict[str, int]()
    for _ in range(DRAWS):
        total = sums + SD * draw.standard_normal(len(sums))
        answer = (*question.read(total, SD, USERS), *question.having(total, SD, USERS))
        assert kind == "auc" or any(each.name.startswith("users with ") for each in answer)
        for each in answer:
            wrong[each.name] = wrong.get(each.name, 0) + is_wrong(each, truth[each.name])
    assert max(wrong.values()) <= MOST_WRONG, wrong


def test_where_nobody_has_a_value_no_quantile_is_told() -> None:
    """The last bin was, with an interval of that bin alone: a clip norm of 8 000 for users without rows."""
    question = parse({**KINDS["quantile"], "some": False})
    found = question.read(np.zeros(16), SD, USERS)
    assert [(each.value, each.low, each.high) for each in found] == [(None, 0.0, 1.0)] * 3
    assert str(found[1]) == "0.5: somewhere from 0 to 1"
    (users,) = question.having(np.zeros(16), SD, USERS)
    assert users.value == users.low == 0
    assert users.high < 20


def test_a_mean_says_of_how_many_users_it_may_be() -> None:
    """Twenty users of 0.9 and 980 without a value have the mean of a thousand users of 0.508."""
    question = parse(KINDS["mean"])
    (mean,), (users,) = question.read(np.array([16.0]), SD, USERS), question.having(np.array([16.0]), SD, USERS)
    assert mean.value == pytest.approx(0.508)
    assert str(users) == "users with a value: somewhere from 9 to 1000"
