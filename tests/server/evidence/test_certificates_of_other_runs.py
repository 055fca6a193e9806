"""Certificates of questions that show no noised sum, of masked sums and of metrics, and both checkers."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from test_certificate import Certificate, all_alterations, claims_less, rows_of, sealed, verdict, with_value
from test_second_checker import NODE, Second, second_of_many

from fieldfare.masking.receipts import Receipt
from fieldfare_client.blinder import Blinder
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from server.run import test_choices, test_distant_blinder, test_items, test_masked_runs
from support.federation import LyingGrid, home, plan
from support.questions import put

__all__ = ["second_of_many"]
"""A fixture."""
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
METRICS = {"show": {"loss": [0.0, 5.0]}}
KINDS = ("items", "best", "masked", "metrics", "hidden")


SIGNER: dict[str, bytes] = {}
"""The key of the blinder that the plan of this kind names."""


def ran(state: StateDirectory, **changes: Any) -> str:
    with Session.begin(state, plan(**changes), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2))
        return session.account.id


def run_of(kind: str, root: Any) -> tuple[StateDirectory, str]:
    if kind == "items":
        state = test_items.home(root)
        return state, put(state, test_items.asked(), LyingGrid(2, task=test_items.CODES))
    state = home(root)
    if kind == "best":
        models = [ran(state, run__noise_seed=None) for _ in range(2)]
        return state, put(state, test_choices.asked(models), LyingGrid(2))
    if kind == "masked":
        test_masked_runs.run(state, "run", aggregation=test_masked_runs.MASKED_TABLE, run__noise_seed=None)
        return state, "run"
    if kind == "hidden":
        blinder = Blinder(root / "blinder")
        SIGNER["hidden"] = blinder._receipts
        a_plan = test_distant_blinder.masked(blinder, 0.5, run__noise_seed=None)
        with test_distant_blinder.begin(state, a_plan, blinder) as session:
            FieldfareStrategy(session).start(test_distant_blinder.Federation(root, blinder))
        return state, "run"
    return state, ran(state, metrics=METRICS, run__noise_seed=None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """One of each kind."""
    all_ = {}
    for kind in KINDS:
        state, run = run_of(kind, tmp_path_factory.mktemp(kind))
        with Ledger.open(state.ledger) as ledger, ledger.snapshot() as snapshot:
            all_[kind] = json.loads(certificate(snapshot, run, state))
    return all_


@pytest.mark.parametrize("kind", KINDS)
def test_both_say_yes_and_name_what_the_charge_rests_on(
    kind: str, made: dict[str, Certificate], second_of_many: Second
) -> None:
    more = {"items": ["threshold"], "best": ["range"]}.get(kind, [])
    assert made[kind]["theorems"] == ["filter", "gram", *more]
    for said in (verdict(made[kind]), second_of_many(made[kind])):
        assert said.startswith("yes: ")
        assert ("; masked, rehearsed by " in said) is (kind == "masked")  # by a blinder of the server's process
        assert ("; masked, opened by " in said) is (kind == "hidden")
        assert ("against the server" in said) is (kind == "hidden")


def test_both_recompute_what_the_server_learns(made: dict[str, Certificate], second_of_many: Second) -> None:
    epsilon = made["hidden"]["epsilon"]
    assert epsilon["server"] > epsilon["hi"]
    for say in (verdict, second_of_many):
        for factor in (1 + 1e-3, 1 - 1e-6, 0.5):
            said = say(with_value(made["hidden"], ("epsilon", "server"), epsilon["server"] * factor))
            assert said.startswith("yes: ") is (factor > 1)


def with_plan(change: Callable[[dict[str, Any]], object]) -> Callable[[Certificate], Certificate]:
    """The plan, its digest in the log and the number of its rounds there, made to fit."""

    def forge(made: Certificate) -> Certificate:
        stated = json.loads(made["plan"])
        change(stated)
        text = json.dumps(stated, sort_keys=True, separators=(",", ":"))
        rows = rows_of(made)
        for row in rows:
            if row["action"] == "run.start" and row["run"] == made["run"]:
                row["body"] |= {"plan": hashlib.sha256(text.encode()).hexdigest(), "rounds": stated["run"]["rounds"]}
            if row["action"] == "population.create":
                row["body"]["adjacency"] = stated["privacy"]["adjacency"]
        return sealed({**made, "plan": text}, rows)

    return forge


def with_receipts(change: Callable[[list[str]], list[str | None]]) -> Callable[[Certificate], Certificate]:
    def forge(made: Certificate) -> Certificate:
        rows = rows_of(made)
        commits = [row for row in rows if row["action"] == "round.commit"]
        for row, text in zip(commits, change([row["body"]["receipt"] for row in commits]), strict=True):
            row["body"]["receipt"] = text
        return sealed(made, rows)

    return forge


def signed_anew(text: str, private: bytes = bytes(32), **changes: Any) -> str:
    """The same receipt by another blinder, or by the one of key `private`, with changes."""
    old = Receipt.parse(text)
    stated = {name: getattr(old, name) for name in ("question", "masks", "nodes", "row", "hash")}
    return Receipt.of(private, **{**stated, **changes}).text


def each(change: Callable[[str], str]) -> Callable[[Certificate], Certificate]:
    return with_receipts(lambda texts: [change(text) for text in texts])


def pinned(stated: dict[str, Any]) -> None:
    stated["aggregation"]["blinder"] = "ffb1:" + "ab" * 64


FORGERIES: dict[str, tuple[str, Callable[[Certificate], Certificate]]] = {
    "a leak for five rounds": ("items", with_plan(lambda p: p["run"].update(rounds=5))),
    "no leak": ("items", with_plan(lambda p: p["task"]["question"].update(leak=0))),
    "a greater leak than was charged": ("items", with_plan(lambda p: p["task"]["question"].update(leak=2e-7))),
    "own items in both worlds": ("items", with_plan(lambda p: p["privacy"].update(adjacency="replace_one"))),
    "items under correlated noise": ("items", with_plan(lambda p: p["mechanism"].update(kind="nu", nu=0.1))),
    "a leak of another question": ("items", with_plan(lambda p: p["task"]["question"].update(kind="sums"))),
    "five choices": ("best", with_plan(lambda p: p["run"].update(rounds=5))),
    "a choice under correlated noise": ("best", with_plan(lambda p: p["mechanism"].update(kind="nu", nu=0.1))),
    "a longer clip": ("best", with_plan(lambda p: p["clipping"].update(norm=9.0))),
    "a choice that is called a sum": ("best", with_plan(lambda p: p["task"]["question"].update(shows="scores"))),
    "no receipt of a round": ("masked", with_receipts(lambda all_: [None, *all_[1:]])),
    "no receipts": ("masked", with_receipts(lambda all_: [None] * len(all_))),
    "one receipt twice": ("masked", with_receipts(lambda all_: [all_[0], *all_[:-1]])),
    "receipts in another order": ("masked", with_receipts(lambda all_: [*reversed(all_)])),
    "a receipt of one node": ("masked", each(lambda text: signed_anew(text, nodes=1))),
    "another question": ("masked", each(lambda text: signed_anew(text, question="ab" * 32))),
    "a row of another journal": ("masked", each(lambda text: signed_anew(text, hash="ab" * 32))),
    "two blinders": ("masked", with_receipts(lambda all_: [signed_anew(all_[0]), *all_[1:]])),
    "a digit of a receipt": ("masked", each(lambda text: text[:-1] + ("1" if text[-1] == "0" else "0"))),
    "another blinder than the plan's": ("masked", with_plan(pinned)),
    "masks that no plan has": ("masked", with_plan(lambda p: p["aggregation"].update(kind="plain"))),
    "a receipt of no noise": ("hidden", each(lambda text: signed_anew(text, SIGNER["hidden"]))),
    "a receipt of less noise": ("hidden", each(lambda text: signed_anew(text, SIGNER["hidden"], noise=0.99))),
    "more noise than was signed for": ("hidden", with_plan(lambda p: p["aggregation"].update(blinder_noise=0.6))),
    "noise of twice the plan's": ("hidden", with_plan(lambda p: p["aggregation"].update(blinder_noise=2.0))),
    "a resolution that takes all": (
        "hidden",
        with_plan(lambda p: p.update(charged_resolution=p["charged_resolution"] * 9)),
    ),
    "a resolution below nothing": ("metrics", with_plan(lambda p: p.update(charged_resolution=-1.0))),
    "an adjacency that there is not": ("metrics", with_plan(lambda p: p["privacy"].update(adjacency="remove_none"))),
    "metrics without noise": ("metrics", with_plan(lambda p: p["privacy"].update(noise_multiplier=99.0))),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_both_refuse_what_contradicts_itself_even_under_a_key(
    what: str, made: dict[str, Certificate], second_of_many: Second
) -> None:
    kind, forge = FORGERIES[what]
    again = sealed(made[kind], rows_of(made[kind]))
    assert verdict(again).startswith("yes: ")
    assert second_of_many(again).startswith("yes: ")
    forged = forge(copy.deepcopy(made[kind]))
    assert verdict(forged) == "no"
    assert second_of_many(forged).startswith("no: ")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_no_alteration_at_all_lowers_what_either_says(
    kind: str, made: dict[str, Certificate], second_of_many: Second
) -> None:
    for say in (verdict, second_of_many):
        honest = say(made[kind])
        for path, value in all_alterations(made[kind]):
            assert not claims_less(say(with_value(made[kind], path, value)), honest), (path, value)
