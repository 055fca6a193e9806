"""Outside of the accounting no code asks which kind of charge it has in hand: it asks the charge."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fieldfare.accounting import PoissonGaussian, PrivacyLoss
from fieldfare.accounting.filter import Price, is_price, leak_of_noise, leak_of_run, pay, require_priced, reserve
from fieldfare.errors import BadInput
from support.refusals import coded

ROOT = Path(__file__).parents[3]
KINDS = {"amplified", "certified", "concentrated", "sampled", "gaussian"}


def test_no_code_outside_asks_for_a_kind() -> None:
    found = []
    for package in (
        "shared/fieldfare",
        "shared/fieldfare_flower",
        "server/fieldfare_server",
        "client/fieldfare_client",
    ):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "accounting" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Attribute) or node.attr not in KINDS:
                    continue
                if isinstance(node.value, ast.Name) and node.value.id in ("accounting", "runs"):  # a module
                    continue
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found


PLAIN, SAMPLED, OLD = PrivacyLoss(0.25), PrivacyLoss(sampled=(PoissonGaussian(0.1, 1.0, 9),)), PrivacyLoss(0, (), 0.125)


def test_a_charge_answers_for_itself() -> None:
    assert (PLAIN.zcdp, PLAIN.gdp) == (0.125, 0.5)
    assert (SAMPLED.zcdp, SAMPLED.gdp) == (None, None)
    assert (OLD.zcdp, OLD.gdp) == (0.125, None)
    assert [loss.words.accountant for loss in (PLAIN, SAMPLED, OLD)] == ["gaussian", "sampled-gaussian", "zcdp"]
    assert [bool(loss.words.price) for loss in (PLAIN, SAMPLED, OLD)] == [False, True, False]
    assert (PLAIN.quieter(2.0), OLD.quieter(2.0)) == (None, None)
    assert SAMPLED.quieter(2.0) == PrivacyLoss(sampled=(PoissonGaussian(0.1, 2.0, 9),))
    assert PLAIN.part_of(PrivacyLoss(0.25))
    assert not PrivacyLoss(0.26).part_of(PLAIN)
    assert not SAMPLED.part_of(PLAIN)
    assert not OLD.part_of(PLAIN)


def test_the_accountant_judges_what_a_run_reserves_and_has_spent() -> None:
    spent = PrivacyLoss(0.1)
    assert (leak_of_run(PLAIN, 1e-6), leak_of_run(SAMPLED, 1e-6)) == (None, 2.5e-7)
    assert (leak_of_noise(PLAIN, False), leak_of_noise(SAMPLED, False)) == (0.0, None)
    assert reserve(PLAIN) == Price(0.25, 0.0)
    whole = reserve(SAMPLED, 1e-7)
    assert 0 < whole.leak == 1e-7
    assert pay(PLAIN, spent, reserve(PLAIN)) == Price(0.1, 0.0)
    assert pay(SAMPLED, PrivacyLoss(sampled=(PoissonGaussian(0.1, 1.0, 2),)), whole) == whole
    assert is_price(SAMPLED, whole)
    assert not is_price(SAMPLED, Price(whole.mu_squared / 2, whole.leak))
    assert not is_price(PLAIN, Price(0.24, 0.0))
    with pytest.raises(BadInput, check=coded("unsupported", "a run of which only rho-zCDP is known")):
        require_priced(OLD)
