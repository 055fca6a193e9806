"""Frequent values that nobody listed: cut at a threshold, priced with a leak, in the journal and the certificate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fieldfare.accounting.thresholded import threshold
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.plan import Plan
from fieldfare.questions.items import letters_of
from fieldfare_client.app import user_names
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import NAMES, UPDATE, Occasion
from fieldfare_server.cli.ask import offer
from fieldfare_server.cli.ask import put as ask
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.looks import Offer, look
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.pricing import price_with_model
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, TinyTask
from support.liars import drop, error, records, values
from support.questions import put
from support.refusals import coded

CODES = "server.run.test_items:Codes"
ROOT = Path(__file__).parents[3]
LEAK = 1e-7


class Codes(TinyTask):
    """Users with two codes each: 7 with all, 2^40 + 1 with two thirds, and one of their own, which is -100 - place."""

    name: ClassVar[str] = "codes"

    def users(self) -> UserTable:
        names = [f"user-{i:02d}" for i in range(USERS)]
        rows = [(7.0, 2.0**40 + 1 if i % 3 else -100.0 - i) for i in range(USERS)]
        column = np.array(rows).reshape(-1)
        of_model = {"x": np.zeros((2 * USERS, 3), np.float32), "y": np.zeros(2 * USERS, np.float32)}
        return UserTable(names, np.arange(USERS + 1) * 2, {"code": column, **of_model})


WORDS = "server.run.test_items:Words"


LONGEST = "Schützenfest-" + "x" * 50
"""64 bytes."""


class Words(TinyTask):
    """Users with one word each, but for two: one has a word of their own, and the other letters that are none."""

    name: ClassVar[str] = "words"

    def users(self) -> UserTable:
        letters = letters_of([*[LONGEST if place % 2 else "E11.9" for place in range(USERS - 2)], "alone", ""])
        letters[-1, 0] = 0xFF
        of_model = {"x": np.zeros((USERS, 3), np.float32), "y": np.zeros(USERS, np.float32)}
        return UserTable([f"user-{i:02d}" for i in range(USERS)], np.arange(USERS + 1), {"code": letters, **of_model})


def asked(noise: float = 0.5, leak: float = LEAK, adjacency: str = "zero_out", **more: Any) -> Asked:
    question = {"kind": "items", "measure": "code", "most": 2, "leak": leak, **more}
    run = {"task": CODES, "cohort": USERS, "min_reports": 4, "round_timeout": 5.0}
    privacy = {"population": "people", "noise_multiplier": noise, "delta": 1e-5, "adjacency": adjacency}
    return Asked.of({"question": question, "run": run, "privacy": privacy})


def home(path: Path, leak: float | None = 1e-6, adjacency: Any = "zero_out") -> StateDirectory:
    state = StateDirectory(path, f"sqlite:///{path / 'ledger.sqlite3'}")
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, simulated=True, actor="test", leak=leak, adjacency=adjacency)
    return state


def test_no_raw_count_decides_what_is_shown() -> None:
    """Under much noise and a great leak, values that nobody has any more pass as often as those of one user."""
    with Session.rehearse(asked(noise=1e3, leak=0.25).plan_for_nodes(), noise=True) as session:
        total = session.rounds.sums.empty(Occasion("run", 0, 0), (1.0,))  # type: ignore[call-arg]
        total._places = {value: value for value in range(2 * USERS)}  # type: ignore[union-attr]
        total.total[:] = np.arange(2 * USERS) % 2 / np.sqrt(2)  # type: ignore[union-attr]
        loud = 2e3 * np.abs(np.random.default_rng(1).standard_normal(2 * USERS))

        object.__setattr__(session.rounds.running_noise, "privatise", lambda sums: sums + torch.from_numpy(loud))
        released = total.privatise(session.rounds.running_noise)  # type: ignore[union-attr]
    shown = total.names  # type: ignore[union-attr]
    assert 5 < len(shown) < 43
    assert len([name for name in shown if name % 2 == 0]) >= 3
    assert released[: len(shown)].tolist() == sorted(released[: len(shown)].tolist(), reverse=True)
    assert not released[len(shown) :].any()


@pytest.mark.parametrize("nodes", [1, 3])
def test_values_that_many_users_have_are_shown_and_those_of_one_are_not(nodes: int, tmp_path: Path) -> None:
    state = home(tmp_path)
    run = put(state, asked(), LyingGrid(nodes, task=CODES))
    with Ledger.open(state.ledger) as ledger:
        found = look(ledger, run)
        # Noise of .71 users a count: six deviations are 4.2.
        assert [each.name for each in found.answer] == ["7", str(2**40 + 1), "shown from, in users"]
        assert "(" not in str(found.answer[-1])  # public, and no estimate
        assert found.answer[0].value == pytest.approx(24, abs=4.3)
        assert found.answer[1].value == pytest.approx(16, abs=4.3)
        assert found.answer[2].value == pytest.approx(threshold(2, 0.5 * np.sqrt(2), LEAK), rel=1e-3)
        loss = ledger.run(run).spent
        assert (loss.mu, loss.leak) == (pytest.approx(2.0, rel=1e-3), LEAK)
        assert loss.gdp is None
        # Of the look alone, delta includes the leak.
        assert found.epsilon == loss.epsilon(1e-5) > loss.__class__(loss.mu_squared).epsilon(1e-5)
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok
        text = ledger.rounds(run).items[0].statistics
        assert text["names"] == [7.0, 2.0**40 + 1]
        assert sum(each > 0 for each in text["released"]) == 2


def of_words(**more: Any) -> Asked:
    table = asked(most=1, words=True, **more).model_dump(mode="json", exclude_none=True)
    table["run"]["task"] = WORDS
    return Asked.of(table)


@pytest.mark.parametrize("nodes", [1, 3])
def test_words_are_shown_as_words(nodes: int, tmp_path: Path) -> None:
    state = home(tmp_path)
    run = put(state, of_words(), LyingGrid(nodes, task=WORDS))
    with Ledger.open(state.ledger) as ledger:
        found = look(ledger, run)
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok
        told = ledger.rounds(run).items[0].statistics
    assert sorted(each.name for each in found.answer) == ["E11.9", LONGEST, "shown from, in users"]
    assert found.answer[0].value == pytest.approx(11, abs=3.1)
    assert set(told["names"]) == {"E11.9", LONGEST}


def test_a_column_of_numbers_is_no_column_of_words(tmp_path: Path) -> None:
    table = of_words().model_dump(mode="json", exclude_none=True)
    table["question"]["measure"] = "y"
    with pytest.raises(BadInput, check=coded("wrong-form", "code")):  # the column that is one
        user_names(Asked.of(table).plan(USERS).task_reference)


def test_both_checkers_accept_its_certificate_and_refuse_one_without_its_leak(tmp_path: Path) -> None:
    state, written = home(tmp_path), tmp_path / "certificate.json"
    run = put(state, asked(), LyingGrid(2, task=CODES))
    with Ledger.open(state.ledger) as ledger, ledger.snapshot() as snapshot:
        content = json.loads(certificate(snapshot, run, state))
    assert content["price"]["leak"] == LEAK
    assert content["theorems"] == ["filter", "gram", "threshold"]
    checkers = ([sys.executable, "docs/check_certificate.py"], ["node", "docs/check_certificate.mjs"])
    for change, verdict in (({}, "yes"), ({"price": {**content["price"], "leak": 0.0}}, "no")):
        written.write_text(json.dumps({**content, **change}, sort_keys=True, separators=(",", ":")))
        for command in checkers:
            checked = subprocess.run([*command, written], capture_output=True, text=True, check=False, cwd=ROOT)
            assert (checked.stdout + checked.stderr).startswith(verdict), (command, checked)


def test_a_population_without_a_leak_refuses_and_names_the_flag(tmp_path: Path) -> None:
    state = home(tmp_path, leak=None)
    with pytest.raises(BudgetRefused, check=coded("leak-spent", "--leak")):
        put(state, asked(), LyingGrid(1, task=CODES))
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").spent_epsilon == 0


def test_questions_take_their_leaks_from_one_sum(tmp_path: Path) -> None:
    state = home(tmp_path, leak=2.5e-7)
    for _ in range(2):
        put(state, asked(noise=2.0), LyingGrid(1, task=CODES))
    with pytest.raises(BudgetRefused):
        put(state, asked(noise=2.0), LyingGrid(1, task=CODES))


def test_an_epsilon_has_room_for_the_leak() -> None:
    table = asked(leak=4e-6).model_dump(mode="json")
    table["privacy"] = {"population": "people", "epsilon": 1.0, "delta": 1e-5}
    cost = price_with_model(Asked.of(table).plan_for_nodes())
    assert cost.epsilon <= 1.0
    assert cost.loss.leak == 4e-6
    assert dict(cost.describe())["mu, and leak"].endswith(", 4e-6")
    assert "leak" in cost.loss.words.flavor
    less = price_with_model(Asked.of({**table, "question": {**table["question"], "leak": 1e-9}}).plan_for_nodes())
    assert less.noise_multiplier < cost.noise_multiplier
    with pytest.raises(BudgetRefused):
        price_with_model(Asked.of({**table, "question": {**table["question"], "leak": 1e-5}}).plan_for_nodes())


def test_under_replace_one_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        put(home(tmp_path, adjacency="replace_one"), asked(adjacency="replace_one"), LyingGrid(1, task=CODES))
    assert refused.value.code == "items-adjacency"


@pytest.mark.parametrize(
    ("privacy", "code"),
    [({"adjacency": "replace_one"}, "items-adjacency"), ({"rounding": "discrete"}, "question-as-planned")],
)
def test_what_would_be_refused_is_refused_before_a_run_is_in_the_ledger(
    privacy: dict[str, str], code: str, tmp_path: Path
) -> None:
    """A dry run named the price of a question that was refused as soon as its run was in the ledger."""
    state = home(tmp_path, adjacency=privacy.get("adjacency", "zero_out"))
    table = asked().model_dump(mode="json", exclude_none=True)
    question = Asked.of({**table, "privacy": {**table["privacy"], **privacy}})
    for tried in (offer, ask):
        with pytest.raises(BadInput) as refused:
            tried(state, question)
        assert refused.value.code == code
    with Ledger.open(state.ledger) as ledger:
        assert ledger.runs().items == ()


def test_a_plan_with_fewer_places_than_values_does_not_begin(tmp_path: Path) -> None:
    table = asked().plan_for_nodes().model_dump(mode="json", exclude_none=True)
    table["task"]["question"]["users"] = USERS - 1
    with pytest.raises(BadInput) as refused:
        Session.begin(home(tmp_path), Plan.parse(table), identity_is_stable=True)
    assert refused.value.code == "question-as-planned"


def renamed(change: Any) -> Any:
    def apply(content: RecordDict) -> RecordDict:
        told = content.config_records[NAMES]
        told[NAMES] = change(list(told[NAMES]))  # type: ignore[arg-type]
        return content

    return records(apply)


HOSTILE = {
    "not a number": (values(lambda a: a * np.float32(np.nan)), False),
    "infinite": (values(lambda a: a + np.float32(np.inf)), False),
    "no numbers": (drop(UPDATE), False),
    "no names": (drop(NAMES), False),
    "a name twice": (renamed(lambda names: [names[0]] * len(names)), False),
    "out of order": (renamed(lambda names: names[::-1]), False),
    "beyond the bounds": (renamed(lambda names: [*names[:-1], 2**60]), False),
    "too many names": (renamed(lambda names: list(range(1000))), False),
    "an error": (error(2), False),
    "out of bounds": (values(lambda a: a * 0 + np.float32(1e30)), True),
    "below 0": (values(lambda a: -a), True),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_is_one_reply_of_as_many_users(kind: str, tmp_path: Path) -> None:
    lie, is_used = HOSTILE[kind]
    liar, sums = next(iter(LyingGrid(3).get_node_ids())), list[Any]()
    put(home(tmp_path), asked(), LyingGrid(3, {liar: lie}, task=CODES), sums)
    total = sums[-1]
    assert sum(total.rejects.values()) == 1
    assert (total.users == USERS) == is_used
    assert len(total._places) <= 2 * USERS


HOSTILE_WORDS = {
    "a number": lambda names: [5],
    "longer": lambda names: [names[0] + "x" * 64],
    "an empty one": lambda names: ["", *names[1:]],
    "one that moves the cursor": lambda names: ["\x1b[2J", *names[1:]],
    "out of order": lambda names: names[::-1],
    "bytes": lambda names: [name.encode() for name in names],
    "twice": lambda names: [names[0]] * len(names),
}


@pytest.mark.parametrize("kind", HOSTILE_WORDS)
def test_hostile_words_are_one_reply_that_is_dropped(kind: str, tmp_path: Path) -> None:
    liar, sums = next(iter(LyingGrid(3).get_node_ids())), list[Any]()
    put(home(tmp_path), of_words(), LyingGrid(3, {liar: renamed(HOSTILE_WORDS[kind])}, task=WORDS), sums)
    assert sum(sums[-1].rejects.values()) == 1
    assert sums[-1].users < USERS


def test_the_offer_says_from_how_many_users_on_a_value_is_shown() -> None:
    plan = asked().plan_for_nodes()
    offer = Offer.of(plan, price_with_model(plan))
    assert f"shown from {threshold(2, 0.5 * np.sqrt(2), LEAK):.4g} on" in str(offer)
