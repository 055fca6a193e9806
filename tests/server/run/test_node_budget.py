"""A budget that belongs to a node's users (I9): each way to start anew is refused, and charges stay."""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp

import fieldfare as ff
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.certified import Certified
from fieldfare.accounting.event import Price
from fieldfare.accounting.filter import Rectangle, Terms
from fieldfare.accounting.gaussian import gaussian_epsilon
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, NodesRefused
from fieldfare.schema import pseudonyms
from fieldfare.signatures import public_key, sign
from fieldfare.signed_head import SignedHead
from fieldfare.signed_terms import FORMAT, REASONS, NodeBudgetRefused, RunTerms, SignedTerms
from fieldfare_client import budget
from fieldfare_client.app import _checked
from fieldfare_client.app import app as client_app
from fieldfare_client.budget.__main__ import main
from fieldfare_client.budget.charges import Charges, create, gauges
from fieldfare_client.budget.settings import NodeBudget
from fieldfare_client.training.trainer import Trainer
from fieldfare_flower.local_grid import assume_task_identity
from fieldfare_flower.messages import (
    HEADER,
    MASKED_VERSION,
    MASKING,
    TERMS,
    Occasion,
    read_terms,
    write_question,
    write_terms,
    write_users_query,
)
from fieldfare_flower.npy import BadReply
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import HeadFile, Ledger
from fieldfare_server.ledger.sql import odometer_tables, rows
from fieldfare_server.run.presence.failures import BUDGET, Failures
from fieldfare_server.run.round.rounds import Rounds
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, home, plan
from support.refusals import Coded, coded

DELTA = 1e-5
UNIT = Fraction(1, 2**44)


def of(population: str = "people", epsilon: float = 2.9, **changes: Any) -> ff.Plan:
    """Two rounds of 12 of the 24 users, who all take part once: a run of `epsilon`."""
    setting: dict[str, Any] = {
        "privacy": {"population": population, "epsilon": epsilon, "delta": DELTA},
        "participation": {"scheme": "single"},
        "mechanism": {"kind": "independent"},
        "run__noise_seed": None,
        "run__rounds": 2,
        "run__cohort": 12,
        "run__min_reports": 12,
    }
    return plan(**{**setting, **changes})


def agree(
    state: StateDirectory, directory: Path, monkeypatch: pytest.MonkeyPatch, *, top: str = "", **limits: Any
) -> Path:
    """The node's operator agrees to populations of the ledger of `state`: name -> epsilon, or lines of its table."""
    directory.mkdir(exist_ok=True)
    line = state.head_file.read_text().strip()
    tables = [
        f'[populations.{name}]\nhead = "{line}"\ndelta = {DELTA}\n'
        + (limit if isinstance(limit, str) else f"epsilon = {limit}")
        for name, limit in (limits or {"people": 3.0}).items()
    ]
    file = directory / "budget.toml"
    file.write_text("\n".join([top, *tables]))
    monkeypatch.setenv(budget.VARIABLE, str(file))
    if not (directory / "charges.sqlite3").exists():
        assert main(["init"]) == 0
    return file


def train(state: StateDirectory, what: ff.Plan, nodes: int = 3) -> str:
    session = Session.begin(state, what, identity_is_stable=True)
    with session:
        FieldfareStrategy(session).start(LyingGrid(nodes))
    return session.account.id


def charged(file: Path) -> dict[int, Fraction]:
    """mu^2 of each user by pseudonym, all populations, read by SQL."""
    totals: dict[int, Fraction] = {}
    with sqlite3.connect(file.parent / "charges.sqlite3") as connection:
        base = sum((Fraction(each) for (each,) in connection.execute("SELECT spent FROM populations")), Fraction())
        for user, spent in connection.execute("SELECT user, spent FROM users"):
            totals[user % 2**64] = totals.get(user % 2**64, base) + Fraction(spent)
    connection.close()
    return totals


def odometers(state: StateDirectory, population: str = "people") -> list[Fraction]:
    with Ledger.open(state.ledger) as ledger, ledger.read() as connection:
        row = rows.population_row(connection, population)
        return [int(each) * UNIT for each in odometer_tables.settled(connection, row.id, row.users)]


def refused(state: StateDirectory, what: ff.Plan, reason: str) -> None:
    """The run ends under a name of its own, charged to nobody, and the node trained nobody."""
    with pytest.raises(NodesRefused) as error:
        train(state, what)
    assert f"{reason} ({REASONS[reason]})" in str(error.value)  # the word of the page's table, and what it means
    assert error.value.code == "nodes-refused"
    with Ledger.open(state.ledger) as ledger:
        last = ledger.runs().items[0]
        assert (last.state, last.next_round) == ("failed", 0)


@pytest.mark.parametrize("word", REASONS)
def test_each_refusal_of_a_nodes_budget_says_where_its_word_is_explained(word: str) -> None:
    assert word in str(NodeBudgetRefused("an instruction", reason=word))
    assert f"`{word}`" in (Path(__file__).parents[3] / "docs" / "node-budget.md").read_text()


def test_a_node_that_lacks_the_accountant_trains_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pip install 'fieldfare[node]'`, which has no SciPy."""
    state = home(tmp_path)
    agree(state, tmp_path / "node", monkeypatch)
    monkeypatch.setitem(sys.modules, "fieldfare_client.budget.charges", None)
    refused(state, of(), "no-memory")


# -- the attack of one person and four populations --------------------------------------------------------------------


def four_populations(state: StateDirectory) -> list[str]:
    names = ["people", "people-0", "people-1", "people-2"]
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        for name in names[1:]:
            ledger.create_population(name, 3.0, DELTA, simulated=True, actor="the same person")
    return names


def test_without_a_nodes_budget_four_populations_cost_each_user_more_than_twice_what_four_pages_say(
    tmp_path: Path,
) -> None:
    state = home(tmp_path, epsilon=3.0)
    names = four_populations(state)
    for name in names:
        train(state, of(name))
    spent = [max(odometers(state, name)) for name in names]
    with Ledger.open(state.ledger) as ledger:
        assert all(ledger.population(name).spent_epsilon <= 2.9001 for name in names)
    assert gaussian_epsilon(float(sum(spent)) ** 0.5, DELTA) == pytest.approx(6.47, abs=0.02)


@pytest.mark.parametrize("agreed_to_all", [False, True])
def test_with_a_nodes_budget_the_second_population_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agreed_to_all: bool
) -> None:
    state = home(tmp_path, epsilon=3.0)
    names = four_populations(state)
    if agreed_to_all:  # each has an epsilon of its own, and all together another
        top = f"epsilon = 3.0\ndelta = {DELTA}"
        file = agree(state, tmp_path / "node", monkeypatch, top=top, **dict.fromkeys(names, 3.0))
    else:
        file = agree(state, tmp_path / "node", monkeypatch)
    train(state, of("people"))
    before = charged(file)
    for name in names[1:]:
        refused(state, of(name), "exceeds" if agreed_to_all else "not-agreed")
    assert charged(file) == before
    assert len(before) == USERS
    assert max(gaussian_epsilon(float(each) ** 0.5, DELTA) for each in before.values()) <= 3.0


def test_the_nodes_charges_are_the_ledgers_to_the_last_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of correlated noise, with several participations, where each of them costs another amount."""
    state = home(tmp_path)
    file = agree(state, tmp_path / "node", monkeypatch, people=50.0)
    train(state, plan(run__noise_seed=None))
    train(state, plan(run__noise_seed=None, mechanism={"kind": "tree", "estimator": "full"}))
    # The ledger has an odometer for whoever no draw has chosen yet; the node keeps those whom it trained.
    ours, theirs = sorted(charged(file).values()), sorted(filter(None, odometers(state)))
    assert ours == theirs
    assert len(set(ours)) > 1


# -- each way to start anew -------------------------------------------------------------------------------------------


def used_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StateDirectory, Path]:
    """A ledger whose budget of 3 is spent on 2.9, and the node that was charged for it."""
    state = home(root, epsilon=3.0)
    file = agree(state, root / "node", monkeypatch)
    train(state, of())
    return state, file


def test_ctrl_c_ends_what_waits_for_the_nodes_charges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed a traceback, as if something were broken."""

    def interrupted(settings: object) -> None:
        raise KeyboardInterrupt

    agree(home(tmp_path / "home"), tmp_path / "node", monkeypatch)
    monkeypatch.setattr("fieldfare_client.budget.__main__.gauges", interrupted)
    assert main(["show"]) == 130


def test_a_new_ledger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file = used_up(tmp_path, monkeypatch)
    before = charged(file)
    again = home(tmp_path / "again", epsilon=3.0)
    refused(again, of(), "another-ledger")
    assert charged(file) == before


def test_a_new_ledger_under_the_old_key_has_another_population(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger id and key are those that were agreed to, but the population's first row is another one's."""
    state, file = used_up(tmp_path, monkeypatch)
    before = charged(file)
    with monkeypatch.context() as forged:
        forged.setattr(Ledger, "population_identity", lambda ledger, name: "0" * 64)
        refused(state, of(epsilon=0.09), "another-population")
    assert charged(file) == before


def test_an_old_copy_of_everything_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger and coordinator's directory from before the run: in that ledger nothing is spent."""
    state = home(tmp_path, epsilon=3.0)
    backup = tmp_path / "backup"
    shutil.copytree(state.root, backup)
    file = agree(state, tmp_path / "node", monkeypatch)
    train(state, of())
    before = charged(file)
    shutil.rmtree(state.root)
    shutil.copytree(backup, state.root)
    refused(state, of(), "exceeds")
    assert charged(file) == before


def test_a_log_that_ends_before_the_head_that_was_agreed_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home(tmp_path, epsilon=9.0)
    backup = tmp_path / "backup"
    shutil.copytree(state.root, backup)
    train(state, of(epsilon=0.5))
    agree(state, tmp_path / "node", monkeypatch)  # today's head
    shutil.rmtree(state.root)
    shutil.copytree(backup, state.root)
    refused(state, of(epsilon=0.5), "older-log")


def test_another_name_for_the_same_ledger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = used_up(tmp_path, monkeypatch)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.create_population("people2", 3.0, DELTA, simulated=True, actor="x")
    refused(state, of("people2", epsilon=0.1), "not-agreed")


def test_a_raised_budget_of_the_ledger_raises_no_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, file = used_up(tmp_path, monkeypatch)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.raise_population("people", epsilon=30.0, reason="x", actor="officer")
    refused(state, of(), "exceeds")
    agree(state, file.parent, monkeypatch, people=30.0)  # only its own operator raises it
    train(state, of())


def test_a_run_whose_noise_is_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path, epsilon=3.0)
    agree(state, tmp_path / "node", monkeypatch)
    refused(state, of(run__noise_seed=7), "not-private")


def test_a_rehearsal_that_is_charged_to_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path, epsilon=3.0)
    agree(state, tmp_path / "node", monkeypatch)
    with pytest.raises(NodesRefused, match=REASONS["no-terms"]), Session.rehearse(of(), noise=False) as session:
        FieldfareStrategy(session).start(LyingGrid(3))


@pytest.mark.parametrize("kind", ["mod", "loop"])
def test_a_plain_instruction_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    state = home(tmp_path, epsilon=3.0)
    agree(state, tmp_path / "node", monkeypatch)
    content = RecordDict({"arrays": ArrayRecord([np.zeros(3, np.float32)]), "config": ConfigRecord({"lr": 0.1})})
    message = instruction(content)
    trained: list[int] = []
    if kind == "mod":
        with pytest.raises(NodeBudgetRefused) as error:
            ff.private(message, Context(1, 2, {}, RecordDict(), {}), lambda m, c: trained.append(1) or m)  # type: ignore[func-returns-value,arg-type,return-value]
        assert error.value.told == "no-terms"
    else:
        app = ClientApp()
        app.query("users")(ff.private.users(lambda context: ["one"]))
        app.train()(
            ff.private.train(lambda: [np.zeros(3, np.float32)])(lambda model, user, context, config: trained.append(1))
        )
        reply = app(message, Context(1, 2, {}, RecordDict(), {}))
        assert reply.has_error()
        assert reply.error.reason == "<class 'NodeBudgetRefused'> no-terms"
        assert "'no-terms'" in caplog.text  # the node's operator, too, finds the word in the page's table
    assert not trained


def test_the_run_does_not_say_who_a_nodes_users_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan's `[task] user = "visit"` would give a person as many budgets as visits."""
    state, tiny = home(tmp_path, epsilon=3.0), "support.federation:TinyTask"
    agree(state, tmp_path / "node", monkeypatch)
    assume_task_identity()

    def said(node: str, run: str) -> str:
        named = [{"task": task} if task else {} for task in (node, run)]
        context = Context(1, 2, named[0], RecordDict(), named[1])  # type: ignore[arg-type]
        reply = client_app(Message(write_users_query("run"), 2, "query.users"), context)
        return str(reply.error.reason).split()[-1] if reply.has_error() else ""

    assert [said("", tiny), said(tiny, ""), said(tiny, "digits?users=7")] == ["no-task", "no-terms", "no-terms"]
    monkeypatch.setenv("FIELDFARE_TASK", tiny)
    assert said("", "digits?users=7") == "no-terms"
    monkeypatch.delenv("FIELDFARE_TASK")
    monkeypatch.delenv(budget.VARIABLE)
    assert not said("", tiny)


# -- one instruction --------------------------------------------------------------------------------------------------


class Node:
    """A node without a server: terms of a real run, and instructions as a lying coordinator would write them."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, what: ff.Plan | None = None, epsilon: float = 50.0
    ) -> None:
        self.state = home(root, epsilon=50.0)
        self.file = agree(self.state, root / "node", monkeypatch, people=epsilon)
        self.key = HeadFile(self.state.head_file).key()
        self.plan = what or plan(run__noise_seed=None)
        session = Session.begin(self.state, self.plan, identity_is_stable=True)
        with session:
            record = session._terms[TERMS]
            session.finish("stopped", "its terms were taken")
        self.terms = read_terms(RecordDict({TERMS: record})).open()
        self.names = pseudonyms([f"user-{i:02d}" for i in range(USERS)])

    def say(self, round: int, users: slice = slice(0, 3), attempt: int = 0, key: bytes = b"", **changes: Any) -> str:
        """The word with which the node refuses; "" where it charges and would train."""
        return self.answer(self.write(round, users, attempt, key, **changes))

    def write(
        self, round: int, users: slice = slice(0, 3), attempt: int = 0, key: bytes = b"", **changes: Any
    ) -> RecordDict:
        """The instruction itself, with the settings that the plan says."""
        terms = replace(self.terms, **changes)
        content = RecordDict(dict(write_terms(SignedTerms.of(terms, key or self.key))))
        told = {"settings": json.dumps(self.plan.told(self.plan.clipping))}
        content[HEADER] = ConfigRecord({**Occasion(self.terms.run, round, attempt).to_config(), **told})
        content["cohort"] = _names(self.names[users])
        return content

    def answer(self, content: RecordDict) -> str:
        try:
            budget.charge(instruction(content))
        except NodeBudgetRefused as refusal:
            return refusal.told
        return ""


def instruction(content: RecordDict) -> Message:
    return Message(content, metadata=Metadata(1, "message", 1, 7, "", "", 0.0, 60.0, "train"))  # type: ignore[call-overload,no-any-return]


def _names(names: np.ndarray[Any, Any]) -> ArrayRecord:
    return ArrayRecord({"users": Array(names)})


def test_what_a_lying_coordinator_says_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    quiet = {**node.terms.plan, "privacy": {**node.terms.plan["privacy"], "noise_multiplier": 400.0}}
    assert node.say(0) == ""
    held = charged(node.file)
    for reason, lie in {
        "another-plan": {"plan": quiet},
        "not-agreed": {"population": "friends"},
        "another-ledger": {"ledger": "0" * 32},
        "another-population": {"identity": "0" * 64},
        "older-log": {"row": node.terms.row - 1},
        "not-priced": {"price": {**node.terms.price, "noise_multiplier": 400.0}},
    }.items():
        answer = node.say(3, **lie)
        assert answer == reason or (reason, answer) in {("another-plan", "not-priced")}, (reason, answer)
    assert node.say(3, key=bytes(32)) == "another-ledger"
    assert node.say(0) == "asked-again"
    assert node.say(1) == "too-soon", "the plan separates by three rounds"
    assert node.say(3, slice(0, 3)) == ""
    assert node.say(2) == "asked-again", "a round that is over"
    assert node.say(6) == "too-often"
    assert {user: spent for user, spent in charged(node.file).items() if spent > held[user]}.keys() == held.keys()


def test_a_certificate_below_what_its_noise_costs_is_not_believed() -> None:
    """A coordinator that names the right noise and made up a curve had a whole run for next to nothing."""
    a_plan = plan(
        privacy={"population": "people", "noise_multiplier": 1.0, "delta": 1e-5, "adjacency": "add_remove"},
        participation={"scheme": "balls-in-bins", "bins": 3},
        run__min_reports=None,
        run__noise_seed=None,
    )
    decided: dict[str, bytes] = {}
    cost = cost_of(a_plan, decided, samples=(1 << 14, 1 << 14))
    price, curve = cost.stored_price.to_json(), cost.loss.certified[0].to_json()

    def terms(curve: dict[str, Any]) -> RunTerms:
        said = price | {
            "certificate": {**price["certificate"], "curve": curve},  # type: ignore[dict-item]
            "loss": PrivacyLoss(certified=(Certified.from_json(curve),)).to_json(),
        }
        stored = json.loads(a_plan.run_json(0.0))
        chosen = {name: base64.b64encode(entry).decode() for name, entry in decided.items()}
        return RunTerms("0" * 32, 1, "people", "0" * 64, Price(), "r", stored, said, chosen, False)

    assert terms(curve).cost().loss == cost.loss
    lower = [[epsilon, max(curve["failure"], delta / 1e3)] for epsilon, delta in curve["points"]]  # type: ignore
    for lie in ({"mu": 0.01}, {"points": lower}):
        with pytest.raises(NodeBudgetRefused) as refused:
            terms(curve | lie).cost()
        assert refused.value.told == "not-priced"


def _other(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings that differ in one thing from those of the plan, each a larger part of the sum or another question."""
    clipping, client = settings["clipping"], settings["client"]
    return {
        "a longer norm": {**settings, "clipping": {**clipping, "norm": clipping["norm"] * 2}},
        "no norm": {**settings, "clipping": {"kind": "automatic", "norm": clipping["norm"]}},
        "NaN": {**settings, "clipping": {**clipping, "norm": math.nan}},
        "a filter": {**settings, "clipping": {**clipping, "linf_filter": 1.0}},
        "a metric": {**settings, "metrics": {"show": {"loss": [0, 1]}}},
        "together": {**settings, "isolated": not settings["isolated"]},
        "another seed": {**settings, "seed": settings["seed"] + 1},
        "another training": {**settings, "client": {**client, "learning_rate": 9.0}},
        "nothing": {},
    }


def test_what_a_node_is_told_beside_its_charge_must_be_the_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    settings = node.plan.told(node.plan.clipping)
    for name, other in _other(settings).items():
        content = node.write(0)
        content[HEADER]["settings"] = json.dumps(other)
        assert node.answer(content) == "not-planned", name
    for more in (write_question({"question": {"kind": "mean"}}), {MASKING: ConfigRecord({"version": 1})}):
        content = node.write(0)
        content.update(more)
        if MASKING in more:
            content[HEADER]["version"] = MASKED_VERSION
        assert node.answer(content) == "not-planned"
    for broken in ("[", "3", "[" * 100_000, None):
        content = node.write(0)
        if broken is None:
            del content[HEADER]["settings"]
        else:
            content[HEADER]["settings"] = broken
        with pytest.raises(BadReply):
            node.answer(content)
    assert not charged(node.file)
    assert node.say(0) == ""


_OTHERS: tuple[Any, ...] = (0, -1, 2**70, -(2**70), 0.5, 1e308, math.nan, math.inf, True, None, "", "х", [], {}, [[]])


def _changed(table: Any) -> Iterator[Any]:
    """`table` with one leaf changed: to each of `_OTHERS`, by one, in one letter, away, and beside it another."""
    keys = table if isinstance(table, dict) else range(len(table))
    for key in list(keys):
        value = table[key]
        near = [value + 1, value - 1] if isinstance(value, int | float) else []
        near += (
            [value + "x", chr(ord(value[0]) ^ 1) + value[1:], value[:-1]] if value and isinstance(value, str) else []
        )
        made = [*_OTHERS, *near, *(_changed(value) if isinstance(value, dict | list) else ())]
        for other in made:
            copy = table.copy()
            copy[key] = other
            yield copy
        if isinstance(table, dict):
            yield {name: each for name, each in table.items() if name != key}
            yield {**table, f"{key}х": value}


def test_whatever_one_field_of_an_instruction_is_its_users_are_charged_or_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms and settings leaf by leaf, signed anew by the coordinator's own key, and each record's entries."""
    node = Node(tmp_path, monkeypatch)
    honest, file = json.loads(node.terms.to_json()), node.file.parent / "charges.sqlite3"
    settings = node.plan.told(node.plan.clipping)
    empty, outcomes = file.read_bytes(), Counter[str]()

    def signed(text: str) -> RecordDict:
        mark = sign(node.key, f"{FORMAT} {text}".encode("utf-8", "surrogatepass")).hex()
        content = node.write(0)
        content.update(write_terms(SignedTerms(text, public_key(node.key), mark)))
        return content

    def entries() -> Iterator[RecordDict]:
        for name, record in node.write(0).items():
            for key in record:
                for other in (*(each for each in _OTHERS if each not in (None, {}, [[]])), b"", ["x"], [1, 2]):
                    content = node.write(0)
                    with contextlib.suppress(TypeError, ValueError):  # Flower itself sends no such thing
                        content[name] = ConfigRecord({**record, key: other})
                        yield content
            content = node.write(0)
            del content[name]
            yield content

    def told(changed: dict[str, Any]) -> RecordDict:
        content = node.write(0)
        content[HEADER]["settings"] = json.dumps(changed)
        return content

    canonical = functools.partial(json.dumps, sort_keys=True, separators=(",", ":"))
    double = canonical(honest).replace('"population":"people"', '"population":"friends","population":"people"')
    texts = [*(canonical(each) for each in _changed(honest)), double, json.dumps(honest)[:-1], "[" * 10**5, "\ud800"]
    for content in itertools.chain(map(signed, texts), map(told, _changed(settings)), entries()):
        try:
            word = node.answer(content)
        except (BadInput, BadReply) as refusal:
            word = type(refusal).__name__
        outcomes[word] += 1
        spent = charged(node.file)
        assert (len(spent) == 3 and min(spent.values()) > 0) if word == "" else not spent, word
        file.write_bytes(empty)
    assert {"", "not-signed", "not-priced", "not-planned", "not-agreed", "another-ledger", "BadReply"} <= set(outcomes)


def test_a_norm_that_follows_a_quantile_may_move_and_its_bound_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adaptive = plan(run__noise_seed=None, clipping={"kind": "adaptive-quantile", "norm": 1.0})
    node = Node(tmp_path, monkeypatch, adaptive)
    for round, (weight, word) in enumerate(((0.1, ""), (0.9, "not-planned"))):
        content = node.write(round, slice(round, round + 1))
        moved = {**node.plan.clipping.at(0.25).model_dump(mode="json"), "count_weight": weight}
        content[HEADER]["settings"] = json.dumps({**node.plan.told(node.plan.clipping), "clipping": moved})
        assert node.answer(content) == word


def test_a_coordinator_that_tells_another_clip_norm_than_it_signs_trains_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home(tmp_path, epsilon=3.0)
    file = agree(state, tmp_path / "node", monkeypatch)
    real = Rounds.settings
    monkeypatch.setattr(Rounds, "settings", lambda self: {**real(self), "clipping": {"kind": "flat", "norm": 1e3}})
    refused(state, of(), "not-planned")
    assert not charged(file)


def test_a_void_rounds_next_attempt_costs_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    assert node.say(0) == ""
    held = charged(node.file)
    assert node.say(0, slice(1, 5), attempt=1) == ""
    after = charged(node.file)
    assert {user: after[user] for user in held} == held
    assert len(after) == 5
    assert node.say(0, slice(1, 2), attempt=1) == "asked-again"
    assert node.say(0, slice(1, 2), attempt=0) == "asked-again"


def test_a_round_before_the_first_is_none_of_a_run_that_charges_all_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its users trained in round -1 as often as a coordinator asked: that is how the charge of a whole run is noted."""
    node = Node(tmp_path, monkeypatch, plan(run__noise_seed=None, privacy__accounting="worst-case"))
    settings, cost = NodeBudget.read(node.file), node.terms.cost()
    charges = Charges(settings, settings.populations["people"], node.terms, cost)
    assert charges.admit(node.names).size == USERS
    for attempt in (1, 2):
        with pytest.raises(NodeBudgetRefused, match="round 0") as refused:
            charges.charge(-1, attempt, node.names[:2])
        assert refused.value.told == "out-of-turn"
    charges.charge(0, 0, node.names[:2])


def test_a_round_that_the_plans_participation_never_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far enough from the first, and not in step with it, of a run that charges all users alike."""
    order = {"scheme": "fixed-order", "period": 2}
    node = Node(
        tmp_path, monkeypatch, plan(run__noise_seed=None, participation=order, privacy__accounting="worst-case")
    )
    settings = NodeBudget.read(node.file)
    assert (
        Charges(settings, settings.populations["people"], node.terms, node.terms.cost()).admit(node.names).size == USERS
    )
    assert [node.say(round) for round in (0, 3, 1, 4)] == ["", "out-of-turn", "too-soon", ""]
    assert [node.say(round, slice(9, 12)) for round in (-2, 10**6)] == ["out-of-turn"] * 2


def test_one_user_who_has_spent_everything_costs_the_others_no_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    assert node.say(0, slice(0, 1)) == ""
    first = charged(node.file)
    once = gaussian_epsilon(float(max(first.values())) ** 0.5, DELTA)
    node.file.write_text(node.file.read_text().replace("epsilon = 50.0", f"epsilon = {once * 1.01}"))
    assert node.say(3, slice(0, 3)) == "exceeds"
    assert charged(node.file) == first
    assert node.say(3, slice(1, 3)) == ""


def test_a_forged_statement_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    signed = SignedTerms.of(node.terms, node.key)
    cheaper = signed.text.replace('"run":"', '"run":"0', 1)
    for broken in (
        replace(signed, text=cheaper),
        replace(signed, signature="0" * 128),
        replace(signed, signature="x"),
        replace(signed, key=""),
        SignedTerms.of(replace(node.terms, row=0), node.key),
        SignedTerms.of(replace(node.terms, individual=1), node.key),  # type: ignore[arg-type]
        SignedTerms.of(replace(node.terms, plan=[]), node.key),  # type: ignore[arg-type]
    ):
        with pytest.raises(NodeBudgetRefused) as error:
            broken.open()
        assert error.value.told == "not-signed"
    assert signed.open() == node.terms
    assert RunTerms.parse(node.terms.to_json()) == node.terms


def test_the_next_key_of_the_head_signs_terms_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path, epsilon=9.0)
    agree(state, tmp_path / "node", monkeypatch)
    train(state, of(epsilon=0.5))
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.rotate_head_key(state.head_file, actor="operator")
    train(state, of(epsilon=0.5))


@pytest.mark.parametrize("case", ["missing", "empty", "other", "old settings"])
def test_a_file_of_charges_that_is_lost_is_refused_and_never_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    node = Node(tmp_path, monkeypatch)
    held = node.file.parent / "charges.sqlite3"
    held.unlink()
    if case == "empty":
        held.write_bytes(b"")
    if case == "other":
        held.write_bytes(b"no database" * 100)
    if case == "old settings":
        node.file.write_text("epsilon = 1")
    assert node.say(0) == "no-memory"
    assert held.exists() == (case in ("empty", "other"))
    with pytest.raises(BadInput, check=coded("already-there", "the mark")):
        create(held, Path(f"{held}.mark"))
    assert main(["init"]) == 2


def test_an_init_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    """Until its first commit both files are there and empty."""
    held, mark = tmp_path / "charges", tmp_path / "mark"
    held.touch()
    mark.touch()
    create(held, mark)
    with pytest.raises(BadInput, check=coded("already-there", "the mark")):
        create(held, mark)


def test_nobody_else_of_the_machine_reads_who_took_part(tmp_path: Path) -> None:
    """The files have users' pseudonyms with their rounds; a name that is no text of the locale is a name."""
    held, mark = tmp_path / "charges\udcc3", tmp_path / "mark\udcbc"  # as Python reads an umlaut under LC_ALL=C
    create(held, mark)
    assert [path.stat().st_mode & 0o777 for path in (held, mark)] == [0o600, 0o600]
    with pytest.raises(BadInput, check=coded("unreadable", "cannot be made")):
        create(tmp_path / ("a" * 300), tmp_path / ("b" * 300))


@pytest.mark.parametrize("rounds", [1, 2])
def test_an_older_copy_of_the_file_of_charges_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rounds: int
) -> None:
    """A backup made before the last round lacks its charges. The file that it replaced works again when put back."""
    node = Node(tmp_path, monkeypatch)
    held, older = node.file.parent / "charges.sqlite3", tmp_path / "older"
    shutil.copy(held, older)
    for round in range(rounds):
        assert node.say(round, slice(3 * round, 3 * round + 3)) == ""
    held.rename(tmp_path / "newest")
    shutil.copy(older, held)
    assert node.say(2, slice(6, 9)) == "older-charges"
    assert main(["show"]) == 2
    assert "the newest copy of both" in capsys.readouterr().err
    (tmp_path / "newest").replace(held)
    assert node.say(2, slice(6, 9)) == ""
    # The operator answers for a copy whose mark is gone, and is shown what it has charged.
    Path(f"{held}.mark").unlink()
    assert node.say(3, slice(9, 12)) == "no-memory"
    assert main(["init"]) == 0
    assert f"people: {3 * rounds + 3} users charged" in capsys.readouterr().out
    assert node.say(2, slice(6, 9)) == "asked-again", "what was charged stays"


def test_charges_of_before_there_were_marks_go_on_once_their_operator_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    held = node.file.parent / "charges.sqlite3"
    assert node.say(0) == ""
    with sqlite3.connect(held) as connection:
        connection.executescript("DROP TABLE mark; PRAGMA user_version = 1")
    connection.close()
    assert node.say(3) == "no-memory"
    Path(f"{held}.mark").unlink()
    assert main(["init"]) == 0
    assert node.say(0) == "asked-again"
    assert node.say(3) == ""


def test_a_kill_at_any_time_of_a_charge_locks_nobody_out_and_lets_no_copy_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charges and mark are in one commit, so there is no time at which one has it and the other has not."""
    node, generator = Node(tmp_path, monkeypatch), random.Random(35)
    held, older = node.file.parent / "charges.sqlite3", tmp_path / "older"
    names = pseudonyms([f"user-{i:03d}" for i in range(3 * 20)])
    for life in range(20):
        shutil.copy(held, older)
        content = node.write(life % 6)
        content["cohort"] = _names(names[3 * life : 3 * life + 3])
        charging = multiprocessing.get_context("fork").Process(target=node.answer, args=(content,))
        charging.start()
        charging.join(generator.uniform(0, 0.03) if life else None)
        charging.kill()
        charging.join()
        assert charging.exitcode in (0, -signal.SIGKILL)
        first = charged(node.file)
        assert main(["show"]) == 0, "it goes on"
        again = node.answer(content)
        assert again == ("asked-again" if pseudonyms([f"user-{3 * life:03d}"])[0] in first else "")
        newest = held.read_bytes()
        held.write_bytes(older.read_bytes())
        assert node.answer(content) == "older-charges"
        held.write_bytes(newest)


# -- order and durability ---------------------------------------------------------------------------------------------


def test_users_are_charged_on_the_disk_before_they_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path, epsilon=3.0)
    file = agree(state, tmp_path / "node", monkeypatch)
    seen: list[int] = []
    real = Trainer.train

    def watched(self: Trainer, *arguments: Any, **named: Any) -> Any:
        seen.append(sum(each > 0 for each in charged(file).values()))  # by another connection: what is committed
        return real(self, *arguments, **named)

    _checked("support.federation:TinyTask")  # which trains made-up users, once a process
    monkeypatch.setattr(Trainer, "train", watched)
    train(state, of(client__workers=1), nodes=1)
    assert seen == [12, 24]


def test_a_kill_in_training_leaves_its_users_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path, epsilon=3.0)
    file = agree(state, tmp_path / "node", monkeypatch)

    def life() -> None:
        def die(*arguments: Any, **named: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        Trainer.train = die  # type: ignore[method-assign,assignment]
        train(state, of(client__workers=1), nodes=1)

    process = multiprocessing.get_context("fork").Process(target=life)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    first = charged(file)
    assert len(first) == 12
    with Ledger.open(state.ledger) as ledger:
        run = ledger.runs().items[0].id
    with Session.resume(state, run, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(1))
    after = charged(file)
    assert {user: after[user] for user in first} == first, "the next attempt at the round costs nothing more"
    assert len(after) == USERS


def test_no_file_ever_holds_more_than_was_agreed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random instructions of several runs: after each, everyone is within both budgets, and nobody's charge shrank."""
    generator = np.random.default_rng(8)
    node = Node(
        tmp_path,
        monkeypatch,
        plan(
            run__noise_seed=None,
            run__rounds=12,
            participation={"scheme": "min-separation", "separation": 2, "max_participations": 4},
        ),
    )
    node.file.write_text(node.file.read_text().replace("epsilon = 50.0", "epsilon = 2.0"))
    limit, before = Rectangle.of(2.0, DELTA, 0.0).mu_squared, dict[int, Fraction]()
    first, answers = node.terms.run, set()
    for _ in range(300):
        node.terms = replace(node.terms, run=f"{first}{generator.integers(3)}")
        start = int(generator.integers(USERS))
        users = slice(start, start + int(generator.integers(1, 6)))
        answers.add(node.say(int(generator.integers(12)), users, int(generator.integers(3))))
        now = charged(node.file)
        assert max(map(float, now.values()), default=0.0) <= limit * (1 + 1e-12)
        assert all(now[user] >= spent for user, spent in before.items())
        before = now
    assert {"", "exceeds", "asked-again"} <= answers


# -- users who have nothing left --------------------------------------------------------------------------------------


def test_users_who_have_spent_their_own_budget_are_not_asked_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home(tmp_path, epsilon=9.0)
    file = agree(state, tmp_path / "node", monkeypatch, people=3.0)
    train(state, of(epsilon=2.0, run__rounds=1))
    first = charged(file)
    assert len(first) == 12
    train(state, of(epsilon=2.5, run__rounds=1))
    after = charged(file)
    assert {user: after[user] for user in first} == first, "the others alone"
    assert len(after) == USERS


def test_a_node_whose_users_spend_the_last_of_it_during_a_run_names_the_others_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run that goes on at the same time is charged to some of them."""
    state = home(tmp_path)
    file = agree(state, tmp_path / "node", monkeypatch, people=50.0)
    what = plan(run__noise_seed=None, run__rounds=4, run__cohort=8, run__min_reports=1, run__min_available=1)
    session = Session.begin(state, what, identity_is_stable=True)
    signed = read_terms(RecordDict(dict(session._terms)))
    assert session.cost is not None
    whole = session.cost.most_units() * 2.0**-44
    limit = gaussian_epsilon(whole**0.5, DELTA) * 1.001  # a run, and no part of another one
    file.write_text(file.read_text().replace("epsilon = 50.0", f"epsilon = {limit}"))
    elsewhere = pseudonyms([f"user-{i:02d}" for i in range(12)])
    busy: dict[int, Fraction] = {}

    def after_round(report: Any) -> None:
        if report.round == 0:
            settings = NodeBudget.read(file)
            terms, agreed = replace(signed.open(), run="another"), settings.populations["people"]
            known = charged(file)
            fresh = np.array([name for name in elsewhere.tolist() if name not in known], np.uint64)
            for round in (0, 3):
                Charges(settings, agreed, terms, terms.cost()).charge(round, 0, fresh)
            busy.update({name: charged(file)[name] for name in fresh.tolist()})

    with session:
        FieldfareStrategy(session, on_round=after_round).start(LyingGrid(1))
    after = charged(file)
    assert busy
    assert {user: after[user] for user in busy} == busy
    assert max(map(float, after.values())) <= whole * 1.001


# -- runs that charge all users alike ---------------------------------------------------------------------------------


def sampled(**changes: Any) -> ff.Plan:
    return of(
        **{
            "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": DELTA, "adjacency": "add_remove"},
            "participation": {"scheme": "poisson", "rate": 0.25},
            "run__cohort": 6,
            "run__min_reports": None,
            "run__round_timeout": 0.5,
            **changes,
        }
    )


def test_a_sampled_run_charges_whom_its_draws_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a user could be in any number of runs until drawn: with no noise a run leaks with probability q, so
    that a user who is charged q once, when drawn, is told outright in the end."""
    state = home(tmp_path, adjacency="add_remove")
    top_leak = f"epsilon = 9.0\nleak = {DELTA / 10}"
    file = agree(state, tmp_path / "node", monkeypatch, people=top_leak)
    what = sampled()
    train(state, what)
    after = charged(file)
    assert len(after) == USERS
    assert len(set(after.values())) == 1
    with Ledger.open(state.ledger) as ledger:
        view = ledger.population("people")
    assert float(max(after.values())) == view.spent.mu_squared, "the ledger's own price, at the same leak"
    with sqlite3.connect(file.parent / "charges.sqlite3") as connection:
        asked = connection.execute("SELECT count(DISTINCT user) FROM asked WHERE round >= 0").fetchone()[0]
    assert 0 < asked < USERS
    smaller = float(max(after.values())) * 1.5
    epsilon = Terms(9.0, DELTA, DELTA / 10).gauge(Price(smaller))
    agree(state, file.parent, monkeypatch, people=f"epsilon = {epsilon}\nleak = {DELTA / 10}")
    session = Session.begin(state, what, identity_is_stable=True)
    with session:
        FieldfareStrategy(session).start(LyingGrid(3))  # nobody is there, which is secret
    assert charged(file) == after


def test_what_was_spent_before_the_node_kept_a_budget_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path, epsilon=6.0)
    train(state, of())
    agree(state, tmp_path / "node", monkeypatch)
    refused(state, of(epsilon=2.5), "exceeds")
    agree(state, tmp_path / "other", monkeypatch, people="epsilon = 3.0\nnew_users = true")
    train(state, of(epsilon=2.5))


# -- what people see --------------------------------------------------------------------------------------------------


def test_a_node_tells_one_word_and_no_other() -> None:
    failures, asked = Failures("cohort"), instruction(RecordDict())

    def counted(word: str) -> str:
        error = Error(2, f"<class 'NodeBudgetRefused'> {word}")
        return failures.note_error(Message(error, reply_to=asked), 2)

    assert {counted(word) for word in REASONS} == {BUDGET}
    assert BUDGET not in {counted(text) for text in ("", "exceeds 3", "else", "exceeds\n")}


def test_show_says_how_many_users_were_charged_and_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used_up(tmp_path, monkeypatch)
    assert main(["show"]) == 0
    shown = capsys.readouterr().out
    assert f"people: {USERS} users charged, at most epsilon 2.9 of 3" in shown
    assert "all together" in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", coded("key-required")),
        ("x = 1", coded("key-unknown")),
        ("populations = {}", coded("value-wrong")),
        ("populations = 1", coded("value-wrong")),
        ("populations = { a = 1 }", coded("value-wrong")),
        ("[populations.a]\nepsilon = 1\ndelta = 1e-5", coded("key-required", "head")),
        ('[populations.a]\nhead = "x"\nepsilon = 1\ndelta = 1e-5', coded("head-refused", "the journal")),
        ("epsilon = [", coded("unreadable")),
        ('[populations.a]\nhead = "HEAD"\nepsilon = 0\ndelta = 1e-5', coded("value-wrong", "epsilon")),
        ('[populations.a]\nhead = "HEAD"\nepsilon = true\ndelta = 1e-5', coded("values-conflict", "epsilon")),
        ('[populations.a]\nhead = "HEAD"\nepsilon = inf\ndelta = 1e-5', coded("value-wrong", "epsilon")),
        ('[populations.a]\nhead = "HEAD"\nepsilon = 1', coded("key-required", "delta")),
        ('[populations.a]\nhead = "HEAD"\nepsilon = 1\ndelta = 1', coded("out-of-range")),
        ('[populations.a]\nhead = "HEAD"\nepsilon = 1\ndelta = 1e-5\nleak = 1e-4', coded("out-of-range", "leak")),
        ('epsilon = 2\n[populations.a]\nhead = "HEAD"\nepsilon = 1\ndelta = 1e-5', coded("key-required", "delta")),
        (
            "".join(f'[populations.{name}]\nhead = "HEAD"\nepsilon = 1\ndelta = 1e-5\n' for name in "ab"),
            coded("not-given"),
        ),
    ],
)
def test_settings_that_say_too_little_are_refused(tmp_path: Path, text: str, why: Coded) -> None:
    line = str(SignedHead.of("ab" * 16, 1, "cd" * 32, bytes(32)))
    file = tmp_path / "budget.toml"
    file.write_text(text.replace("HEAD", line))
    with pytest.raises(BadInput, check=why):
        NodeBudget.read(file)


def test_two_processes_charge_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    processes = [
        multiprocessing.get_context("fork").Process(target=node.say, args=(0, slice(i, i + 1))) for i in range(6)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert len(charged(node.file)) == 6
    assert gauges(NodeBudget.read(node.file))["people"][0] == 6
