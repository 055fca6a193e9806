"""Random journals, half of whose rows are not allowed: the ledger's fold and the one of docs/log.md say the same."""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.head_keys import KeyLine
from fieldfare_server.ledger.events.base import Unfit
from fieldfare_server.ledger.events.log import EVENTS
from fieldfare_server.ledger.rules.fold import RULES, apply
from fieldfare_server.ledger.state.rows import Fact
from fieldfare_server.ledger.state.state import TAKE, State
from oracles.reference_fold import MEMBERS, Fold, RefusedError

NAMES, RUNS, KEYS = ("p", "q"), ("r0", "r1", "r2"), ("k0", "k1", "k2")
names, runs, keys = st.sampled_from(NAMES), st.sampled_from(("r0", "r0", "r0", *RUNS)), st.sampled_from(KEYS)
sources = st.sampled_from(("seeded", "secure", "secure", "secure-box-muller"))
few, flags = st.integers(0, 2), st.booleans()
mus = st.sampled_from((0.0, 0.01, 0.04, 0.2, 1.0))
prices = st.sampled_from((-0.1, 0.0, 0.05, 0.3))
epsilons, deltas = st.sampled_from((0.5, 1.0, 2.0, 3.0)), st.sampled_from((1e-6, 1e-5))


SECONDS = 30_000.0
"""Between two rows: some fall on one day, and a journal goes over weeks and a month."""


def loss(mu_squared: float) -> str:
    return PrivacyLoss(mu_squared).to_json()


class Journal(RuleBasedStateMachine):
    """Rows that are drawn with few names, so that they often meet."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.fold, self.number = State(), Fold(), 0
        self.taken = 0

    def append(self, action: str, body: dict[str, Any], **place: Any) -> None:
        """Give one row to both. They must agree whether it is allowed."""
        where = {"population": None, "run": None, "round": None, **place}
        row = {"id": self.number + 1, "at": self.number * SECONDS, "actor": "a", "action": action, **where}
        row["body"] = json.dumps(body)
        refused = []
        for take in (lambda: apply(self.state, row), lambda: self.fold.apply(row)):
            try:
                take()
            except (Unfit, RefusedError):
                refused.append(True)
            else:
                refused.append(False)
        assert refused[0] == refused[1], (row, refused)
        self.number += 1
        self.taken += not refused[0]

    def of_run(self, action: str, body: dict[str, Any], run: str, **place: Any) -> None:
        known = self.fold.runs.get(run, {"population": "p"})
        self.append(action, body, run=run, population=known["population"], **place)

    def old(self, name: str) -> dict[str, Any]:
        found = self.fold.populations.get(name, {"epsilon": 1.0, "delta": 1e-6})
        return {term: found[term] for term in ("epsilon", "delta")}

    def largest(self, name: str, units: int) -> dict[str, int]:
        single = self.fold.populations.get(name, {}).get("accounting") == "individual"
        return {"largest": units} if single else {}

    @initialize(singly=flags, two=flags, seeded=flags)
    def first(self, singly: bool, two: bool, seeded: bool) -> None:
        for name, adjacency, simulated in (("p", "zero_out", seeded), ("q", "add_remove", False)):
            self.create(name, adjacency, 2.0, 1e-5, singly and name == "p", two, simulated, None, 1e-7)
        # Without a run under way most rows of runs and rounds would be refused.
        self.start("p", "r0", "k0", 0.04, 0.04, singly, "seeded" if seeded else "secure", 1, 0)

    @rule(
        name=st.sampled_from(("p", "q", "o")),
        adjacency=st.sampled_from(("zero_out", "add_remove")),
        epsilon=epsilons,
        delta=deltas,
        singly=flags,
        two=flags,
        simulated=flags,
        ceiling=st.sampled_from((None, 1.0, 2.5)),
        leak=st.sampled_from((0.0, 1e-7, 1e-4)),
        proposal=st.none() | keys,
        person=st.none() | keys,
    )
    def create(
        self,
        name: str,
        adjacency: str,
        epsilon: float,
        delta: float,
        singly: bool,
        two: bool,
        simulated: bool,
        ceiling: float | None,
        leak: float,
        proposal: str | None = None,
        person: str | None = None,
    ) -> None:
        terms = {"epsilon": epsilon, "delta": delta, "leak": leak, "ceiling_epsilon": ceiling, "ceiling_delta": None}
        kind = {"adjacency": adjacency, "accounting": "individual" if singly else "worst-case", "unit": "user"}
        rest = {"simulated": simulated, "two_persons": two, "reservation_seconds": None, "salt": "0" * 64}
        rest |= {key: value for key, value in (("proposal", proposal), ("person", person)) if value is not None}
        self.append("population.create", {**terms, **kind, **rest}, population=name)

    @rule(name=names, epsilon=epsilons, delta=deltas, stale=st.sampled_from((0, 0, 0, 1)), key=keys, person=keys)
    def change(self, name: str, epsilon: float, delta: float, stale: int, key: str, person: str) -> None:
        old = self.old(name)
        old["epsilon"] += stale
        body = {"epsilon": epsilon, "delta": delta, "reason": "r", "old": old}
        self.append("population.raise", body, population=name)
        self.append("population.propose", {**body, "id": key, "person": person}, population=name)
        self.append("population.tighten", {**body, **self.largest(name, 0)}, population=name)

    @rule(name=names, key=keys, person=keys, take=flags)
    def decide(self, name: str, key: str, person: str, take: bool) -> None:
        if take:
            proposal = self.fold.proposals.get(key, {"epsilon": 1.0, "delta": 1e-6})
            new = {"epsilon": proposal["epsilon"], "delta": proposal["delta"], "reason": "r", "old": self.old(name)}
            self.append("population.raise", {**new, "proposal": key, "person": person}, population=name)
        else:
            self.append("population.withdraw", {"proposal": key, "reason": "r"}, population=name)

    @rule(
        name=names,
        epsilon=st.sampled_from((None, 0.25, 0.5, 1.0, 2.5)),
        every=st.sampled_from((None, "day", "week", "month", "year", "hour")),
        stale=st.sampled_from((False, False, False, True)),
    )
    def window(self, name: str, epsilon: float | None, every: str | None, stale: bool) -> None:
        found = self.fold.populations.get(name, {"window_epsilon": None, "window_every": None})
        old = {term: found[term] for term in ("window_epsilon", "window_every")} | ({"more": 1} if stale else {})
        body = {"window_epsilon": epsilon, "window_every": every, "reason": "r", "old": old}
        self.append("population.window", body, population=name)
        self.append("population.note", {"reason": "n"}, population=name)

    @rule(name=names, shut=flags)
    def close(self, name: str, shut: bool) -> None:
        action, state = ("population.close", "closed") if shut else ("population.reopen", "open")
        self.append(action, {"state": state, "old": {}, "reason": "r"}, population=name)

    @rule(name=names, first=few, count=few, pledge=flags)
    def register(self, name: str, first: int, count: int, pledge: bool) -> None:
        first = self.fold.populations.get(name, {"users": 0})["users"] if first else 1
        pledged = {"pledged": dict.fromkeys(RUNS, 5)} if pledge else {}
        self.append("users.register", {"first": first, "count": count, "hashes": "0" * 64, **pledged}, population=name)

    @rule(name=names, run=runs, key=keys, planned=mus, priced=mus, singly=flags, source=sources, kind=few, units=few)
    def start(
        self,
        name: str,
        run: str,
        key: str,
        planned: float,
        priced: float,
        singly: bool,
        source: str,
        kind: int,
        units: int,
    ) -> None:
        charged = {"pledged": "0" * 64} if singly else self.largest(name, units << 40)
        body = {
            **{"plan": "0" * 64, "plan_digest": "d", "rounds": 2, "planned": loss(planned), "format": 3 if kind else 2},
            **{
                "price": Price(planned if kind < 2 else priced, 0.0).to_json(),
                "trust_node_ids": False,
                "strategy": None,
            },
            **{"noise_source": source, "key_commitment": key},
            **{"accounting": "individual" if singly else "worst-case", "most": 5 if singly else None, **charged},
        }
        self.append("run.start", body, population=name, run=run)

    @rule(run=runs, wish=st.sampled_from(("stop", "pause", None)), what=st.integers(0, 3))
    def steer(self, run: str, wish: str | None, what: int) -> None:
        action, body = (
            ("run.request", {"request": wish}),
            ("run.interrupt", {"message": ""}),
            ("run.resume", {"token": 1, "next_round": 0}),
            ("run.key_destroyed", {"key_commitment": self.fold.runs.get(run, {}).get("key_commitment", "k0")}),
        )[what]
        self.of_run(action, dict(body), run)

    @rule(run=runs, index=st.sampled_from((-1, -1, -1, 0, 1, 2)), attempt=st.sampled_from((-1, -1, -1, 0, 1)))
    def open(self, run: str, index: int, attempt: int) -> None:
        known = self.fold.runs.get(run, {"next": 0, "tries": 0})
        index, attempt = known["next"] if index < 0 else index, known["tries"] if attempt < 0 else attempt
        body = {"attempt": attempt, "noise_row": index, "cohort_size": 1, "cohort": "0" * 64}
        self.of_run("round.open", body, run, round=index)

    @rule(run=runs, spent=mus, nonce=st.integers(-1, 30), void=st.sampled_from((True, False, False)), lax=flags)
    def shut(self, run: str, spent: float, nonce: int, void: bool, lax: bool) -> None:
        known = self.fold.runs.get(run, {"open": None})
        index, attempt = known["open"] or (0, 0)
        if void:
            body = {"attempt": attempt, "reason": "", "reports": 0, "rejects": {}}
            self.of_run("round.void", body, run, round=index)
            return
        extra = {"nonce": f"{nonce:032x}"} if nonce >= 0 else {}
        extra |= {"charges": "0" * 64} if (known.get("accounting") == "individual") != lax else {}
        about = {"participants": "0" * 64, "participant_count": 1, "statistics": "0" * 64, "checkpoint": "0" * 64}
        charge = {"spent": loss(spent), "epsilon": 1.0, "attempt": attempt, "noise_row": index}
        self.of_run("round.commit", {**about, **charge, "reports": 1, "rejects": {}, **extra}, run, round=index)

    @rule(run=runs, nodes=st.integers(1, 3), lax=flags)
    def finalise(self, run: str, nodes: int, lax: bool) -> None:
        index, attempt = self.fold.runs.get(run, {"open": None})["open"] or (0, 0)
        body = {"attempt": attempt + (lax and nodes == 2), "closing": "0" * 64, "nodes": nodes}
        self.of_run("round.close", body, run, round=index)

    @rule(run=runs, wrong=st.sampled_from((0.0, 0.0, 0.0, 0.25)), whole=flags, said=flags)
    def finish(self, run: str, wrong: float, whole: bool, said: bool) -> None:
        nothing = {"spent": loss(0.0), "planned": loss(0.5), "accounting": "worst-case", "population": "p"}
        known = self.fold.runs.get(run, nothing)
        spent = float(json.loads(known["planned" if whole else "spent"])["mu_squared"])
        settled = self.fold.populations.get(known["population"], {"settled": 0.0})["settled"] + spent
        body = {"state": "done", "message": "", "spent": loss(spent), "settled": loss(settled + wrong)}
        extra = {"odometers": "0" * 64} if known["accounting"] == "individual" else {}
        extra |= {"whole": True} if whole == said else {}
        self.of_run("run.finish", {**body, **extra}, run)

    @rule(name=names, run=runs, law=st.sampled_from(("l", "m", None)), attempt=st.integers(0, 3), short=flags)
    def certify(self, name: str, run: str, law: str | None, attempt: int, short: bool) -> None:
        known = self.fold.seeds.get((name, law or "d"), 0)
        body = {"attempt": attempt or known + 1, "plan_digest": "d", "seed": "0" * (30 if short and attempt else 32)}
        self.append("run.certify", body | ({"law": law} if law else {}), population=name, run=run)
        self.of_run("run.audit", {"passed": True}, run)

    @rule(name=names, some=st.sets(runs), wrong=st.sampled_from((0, 0, 0, 1)))
    def recompute(self, name: str, some: set[str], wrong: int) -> None:
        ours = {run for run, known in self.fold.runs.items() if known["population"] == name and known["ended"]}
        chosen = sorted(some & ours if not wrong else some)
        users = self.fold.populations.get(name, {"users": 0})["users"] + wrong
        body = {"runs": dict.fromkeys(chosen, "0" * 64), "users": users, "odometers": "0" * 64}
        self.append("population.odometers", body, population=name)

    @rule(verb=st.sampled_from(("rotate", "enrol", "lose")), forged=flags)
    def change_key(self, verb: Any, forged: bool) -> None:
        line = str(KeyLine.of("0" * 32, verb, "1" * 64, "2" * 64, b"k" * 32))
        self.append("head.key", {"line": line.replace("1" * 64, "3" * 64) if forged else line})

    @rule(kept=st.integers(-1, 5))
    def mended(self, kept: int) -> None:
        self.append("ledger.mend", {"kept": kept, "dropped": {"token.use": 1}, "hash": "0" * 64})

    @rule(
        name=names,
        key=keys,
        price=st.sampled_from((-0.1, 0.0, 0.05, 0.3)),
        leak=st.sampled_from((0.0, 6e-8)),
        units=few,
    )
    def reserve(self, name: str, key: str, price: float, leak: float, units: int) -> None:
        body = {"key": key, "who": "w", "what": "x", "why": "y", "loss": "{}", "price": Price(price, leak).to_json()}
        self.append("charge.reserve", {**body, **self.largest(name, units << 40)}, population=name)

    @rule(name=names, key=keys, price=st.sampled_from((-0.1, 0.05, 3.0)))
    def carry(self, name: str, key: str, price: float) -> None:
        body = {"key": key, "who": "w", "what": "x", "why": "y", "loss": "{}", "price": Price(price, 0.0).to_json()}
        self.append("charge.carry", body, population=name)

    @rule(count=few)
    def convert(self, count: int) -> None:
        body = {"ledger": "l", "count": count, "hash": "0" * 64, "rows": [], "omitted": 0}
        self.append("ledger.converted", body)

    @rule(name=names, key=keys, back=flags)
    def settle(self, name: str, key: str, back: bool) -> None:
        self.append("charge.release" if back else "charge.commit", {"key": key}, population=name)

    @rule(key=keys, what=few)
    def token(self, key: str, what: int) -> None:
        made = {"name": "n", "scopes": ["read"], "expires_at": None, "populations": None, "digest": "0" * 64}
        action, body = (("token.create", made), ("token.revoke", {}), ("token.use", {"what": "x"}))[what]
        self.append(action, {"id": key, **body})

    @rule(action=st.sampled_from(sorted(MEMBERS)))
    def malformed(self, action: str) -> None:
        self.append(action, {"extra": 1}, population="p", run="r0", round=0)
        self.append("population.destroy", {}, population="p")

    @invariant()
    def they_say_the_same(self) -> None:
        assert set(self.state.populations) == set(self.fold.populations)
        for name, other in self.fold.populations.items():
            found = self.state.populations[name]
            assert (found.base().mu_squared, found.base().leak) == self.fold.committed(name)
            for term in ("epsilon", "delta", "state", "users", "window_epsilon", "window_every"):
                assert getattr(found.row, term) == other[term]
        for run, known in self.fold.runs.items():
            row = self.state.runs[run].row
            assert (row.next_round, row.request, row.active) == (known["next"], known["request"], not known["ended"])
            assert (row.state, row.accounting) == (known["state"], known["accounting"])
            assert self.state.runs[run].open == known["open"]
        for (name, key), charge in self.fold.charges.items():
            assert self.state.populations[name].charges[key].state == charge["state"]
        for key, proposal in self.fold.proposals.items():
            assert self.state.proposals[key].state == proposal["state"]
        assert {key: row.revoked_at is None for key, row in self.state.tokens.items()} == self.fold.tokens


TestJournal = pytest.mark.filterwarnings("error")(Journal.TestCase)
Journal.TestCase.settings = settings(
    max_examples=30, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("singly", [False, True], ids=["alike", "singly"])
def test_a_start_beyond_the_window_is_refused_whoever_wrote_it(singly: bool) -> None:
    """Two runs of mu^2 = 0.04, of which a window of epsilon 1 at delta 1e-5 holds one: mu = 0.25 is 1.0004."""
    journal, body = Journal(), {"reason": "r"}
    journal.create("p", "zero_out", 2.0, 1e-5, singly, False, False, None, 0.0)
    window = {"window_epsilon": 1.0, "window_every": "week", "old": {"window_epsilon": None, "window_every": None}}
    journal.append("population.window", body | window, population="p")
    for run, taken in (("r0", 3), ("r1", 3)):
        journal.start("p", run, f"k{run}", 0.04, 0.04, singly, "secure", 1, 0)
        assert journal.taken == taken
    reserve = {"key": "k", "who": "w", "what": "x", "why": "y", "loss": "{}", "price": Price(0.04, 0.0).to_json()}
    journal.append("charge.reserve", reserve | journal.largest("p", 0), population="p")
    assert journal.taken == 3
    journal.number = 40  # two weeks later
    journal.start("p", "r1", "k1", 0.04, 0.04, singly, "secure", 1, 0)
    assert journal.taken == 4


def test_a_closed_round_ends_with_its_run() -> None:
    journal = Journal()
    journal.create("p", "zero_out", 2.0, 1e-5, False, False, True, None, 1e-7)
    journal.start("p", "r0", "k0", 0.0, 0.0, False, "seeded", 1, 0)
    journal.open("r0", -1, -1)
    journal.finalise("r0", 2, False)
    journal.finish("r0", 0.0, False, False)
    assert journal.taken == 5
    journal.they_say_the_same()


def test_the_page_and_the_reference_know_every_event() -> None:
    cases = [node.value for node in ast.walk(ast.parse(inspect.getsource(Fold))) if isinstance(node, ast.MatchValue)]
    known = [ast.literal_eval(case) for case in cases]
    assert sorted(known) == sorted(EVENTS) == sorted(MEMBERS)


def test_every_event_has_a_rule_and_every_fact_is_taken() -> None:
    assert set(RULES) == set(EVENTS.values())
    assert set(TAKE) == set(get_args(Fact))
