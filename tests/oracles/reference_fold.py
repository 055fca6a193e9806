"""What a journal says, by docs/log.md alone: no rule, no event and no state of the product is used, only the gauge, and
whether a text is signed.

Gaussian runs and charges; what costs a convolution (sampled and certified losses) has oracles of its own.
"""

from __future__ import annotations

import calendar
import datetime
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fieldfare.accounting.filter import gauge
from fieldfare.accounting.individual import from_units
from fieldfare.signatures import is_signed

Row, Body = Mapping[str, Any], dict[str, Any]
ALIKE, SINGLY = "worst-case", "individual"
EMPTY: dict[str, Any] = {}
PAGE = Path(__file__).parents[2] / "docs" / "log.md"
NO_WINDOW: dict[str, Any] = {"window_epsilon": None, "window_every": None}
KEY_LINE = r"(fieldfare-key-v1 [0-9a-f]{32} (?:enrol|rotate)(?: [0-9a-f]{64}){2} ([0-9a-f]{64})) ([0-9a-f]{128})"


class RefusedError(Exception):
    """The row is not allowed at this point."""


def need(holds: object) -> None:
    if not holds:
        raise RefusedError


def mu_squared(loss: str) -> float:
    return float(json.loads(loss)["mu_squared"])


def budget_of(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: values[name] for name in ("epsilon", "delta")}


def price_of(text: str) -> tuple[float, float]:
    values = json.loads(text)
    return (values["mu_squared"], values["leak"])


def holds(population: Mapping[str, Any], epsilon: float, mu: float, d: float) -> bool:
    """Whether (mu^2, d) is within a budget of `epsilon` at the delta and the leak of a population."""
    leak = population["leak"]
    return d <= leak and mu < math.inf and gauge(mu, population["delta"], leak) <= epsilon


class Fold:
    """The state after the rows that `apply` was given."""

    def __init__(self) -> None:
        self.populations: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.charges: dict[tuple[str, str], dict[str, Any]] = {}
        self.proposals: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, bool] = {}
        self.keys: set[str] = set()
        self.nonces: set[str] = set()
        self.seeds: dict[tuple[str, str], int] = {}

    def apply(self, row: Row) -> None:
        """Take one row. Raises `RefusedError`, with nothing changed, if it is not allowed."""
        action, body = row["action"], json.loads(row["body"])
        need(action in MEMBERS)
        always, sometimes = MEMBERS[action]
        # A test of noise tells whatever it found.
        need(action == "run.audit" or always <= set(body) - {"blind"} <= always | sometimes)
        if action in ONLY:
            need(ONLY[action](self, row, body))
        else:
            getattr(self, action.replace(".", "_"))(row, body)

    # -- what is committed --------------------------------------------------------------------------------------

    def parts(self, name: str, since: float | None = None) -> Iterator[tuple[float, float]]:
        """(mu^2, d) of each charge and run of a population. since: what began then or later, with its whole price."""
        for (of, _), charge in self.charges.items():
            if of == name and charge["state"] != "released" and charge["at"] >= (since or 0):
                yield price_of(charge["price"])
        for run in self.runs.values():
            if run["population"] == name and run["at"] >= (since or 0):
                (mu, d), spent = price_of(run["price"]), mu_squared(run["spent"])
                if run["ended"]:
                    mu, d = (spent, d) if run["next"] or spent else (0.0, 0.0)
                yield (0.0 if run["accounting"] == SINGLY and since is None else mu), d

    def committed(self, name: str) -> tuple[float, float]:
        """(mu^2, d) that all users of a population are charged alike."""
        parts = list(self.parts(name))
        return math.fsum(mu for mu, _ in parts), math.fsum(d for _, d in parts)

    def fits(self, name: str, new: tuple[float, float], largest: int | None, terms: Mapping[str, Any] = EMPTY) -> bool:
        population = {**self.populations[name], **terms}
        need((largest is not None) == (population["accounting"] == SINGLY) and (largest or 0) >= 0)
        mu, d = self.committed(name)
        mu = mu + (from_units(largest) if largest else 0.0) + new[0]
        return holds(population, population["epsilon"], mu, d + new[1])

    def paced(self, row: Row, new: tuple[float, float]) -> bool:
        """Whether what began in the calendar window of a row holds `new` too."""
        population = self.populations[row["population"]]
        if population["window_epsilon"] is None:
            return True
        now = time.gmtime(row["at"])
        parts = {"year": 1, "month": 2, "day": 3}.get(population["window_every"])
        today = datetime.date(*now[:3])
        first = today - datetime.timedelta(days=today.isoweekday() - 1)
        if parts is not None:
            first = datetime.date(*(*now[:parts], 1, 1)[:3])
        began = [*self.parts(row["population"], calendar.timegm(first.timetuple())), new]
        mu, d = (math.fsum(each[part] for each in began) for part in (0, 1))
        return holds(population, population["window_epsilon"], mu, d)

    def population(self, row: Row, state: str | None = None) -> dict[str, Any]:
        need(row["population"] in self.populations)
        found = self.populations[row["population"]]
        need(state is None or found["state"] == state)
        return found

    def run(self, row: Row, body: Body | None = None, *, ended: bool = False) -> dict[str, Any]:
        """The run of a row. body: of a row of its open round."""
        need(row["run"] in self.runs)
        found = self.runs[row["run"]]
        need(found["ended"] == ended and row["population"] in (None, found["population"]))
        need(body is None or found["open"] == (row["round"], body["attempt"]))
        return found

    # -- populations --------------------------------------------------------------------------------------------

    def population_create(self, row: Row, body: Body) -> None:
        need(row["population"] not in self.populations and 0 <= body["leak"] < body["delta"])
        need(body["accounting"] == ALIKE or body["adjacency"] != "add_remove")
        self.below(body, body)
        proposal, person = body.get("proposal"), body.get("person")
        need((proposal is None) == (person is None) and (proposal is None or body["two_persons"]))
        need(proposal not in self.proposals)
        state = "open" if proposal is None else "proposed"
        self.populations[row["population"]] = {**body, "state": state, "users": 0, "settled": 0.0, **NO_WINDOW}
        if proposal is not None:
            self.proposals[proposal] = {**body, "state": "waiting", "population": row["population"]}

    def below(self, ceilings: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        for name in ("epsilon", "delta"):
            ceiling = ceilings[f"ceiling_{name}"]
            need(ceiling is None or body[name] <= ceiling)

    def moves(self, row: Row, body: dict[str, Any], sign: int) -> dict[str, Any]:
        found = self.population(row, "open")
        steps = [sign * (body[name] - found[name]) for name in ("epsilon", "delta")]
        need(min(steps) >= 0 < max(steps) and body["epsilon"] > 0 and 0 < body["delta"] < 1)
        need(body["old"] == budget_of(found))
        return found

    def population_raise(self, row: Row, body: Body) -> None:
        found = self.population(row)
        if found["state"] == "proposed":
            need(body["old"] == budget_of(found) == budget_of(body))
        else:
            self.below(self.moves(row, body, 1), body)
        if found["two_persons"]:
            proposal = self.waiting(row, body.get("proposal"))
            need(proposal["person"] != body.get("person"))
            need(budget_of(proposal) == budget_of(body))
            proposal["state"] = "approved"
        found.update(budget_of(body), state="open")

    def population_propose(self, row: Row, body: Body) -> None:
        found = self.population(row)
        need(found["two_persons"] and body["id"] not in self.proposals and body["old"] == budget_of(found))
        self.proposals[body["id"]] = {**body, "state": "waiting", "population": row["population"]}

    def waiting(self, row: Row, proposal: str | None) -> dict[str, Any]:
        found = self.proposals.get(proposal or "", {"state": ""})
        need(found["state"] == "waiting" and found["population"] == row["population"])
        return found

    def population_withdraw(self, row: Row, body: Body) -> None:
        self.waiting(row, body["proposal"])["state"] = "withdrawn"
        if self.population(row)["state"] == "proposed":
            self.population(row)["state"] = "withdrawn"

    def population_tighten(self, row: Row, body: Body) -> None:
        found = self.moves(row, body, -1)
        need(found["leak"] < body["delta"])
        need(self.fits(row["population"], (0.0, 0.0), body.get("largest"), budget_of(body)))
        found.update(budget_of(body))

    def population_window(self, row: Row, body: Body) -> None:
        found = self.population(row, "open")
        old = {name: found[name] for name in NO_WINDOW}
        new = {name: body[name] for name in NO_WINDOW}
        epsilon, every = new["window_epsilon"], new["window_every"]
        need(body["old"] == old and new != old and (epsilon is None) == (every is None))
        need(every in (None, "day", "week", "month", "year") and (epsilon is None or 0 < epsilon <= found["epsilon"]))
        if found["two_persons"] and old["window_epsilon"] is not None:
            need(every == old["window_every"] and epsilon < old["window_epsilon"])
        found.update(new)

    def population_close(self, row: Row, body: Body) -> None:
        now = "closed" if row["action"] == "population.close" else "open"
        need(body["state"] == now)
        self.population(row, "open" if now == "closed" else "closed")["state"] = now

    population_reopen = population_close

    def population_odometers(self, row: Row, body: Body) -> None:
        found, runs = self.population(row), [self.runs.get(name, EMPTY) for name in body["runs"]]
        need(found["adjacency"] != "add_remove" and body["users"] == found["users"])
        need(all(run.get("ended") and run["population"] == row["population"] for run in runs))
        need(all(run["accounting"] == ALIKE for run in runs))
        for each in (found, *runs):
            each["accounting"] = SINGLY

    def users_register(self, row: Row, body: Body) -> None:
        found = self.population(row)
        need(body["first"] == found["users"] and body["count"] >= 0)
        single = [name for name, run in self.runs.items() if not run["ended"] and run["accounting"] == SINGLY]
        ours = {name for name in single if self.runs[name]["population"] == row["population"]}
        need(not body["count"] or ours <= set(body.get("pledged", {})))
        found["users"] += body["count"]

    # -- runs and rounds ----------------------------------------------------------------------------------------

    def run_certify(self, row: Row, body: Body) -> None:
        self.population(row)
        law = row["population"], body.get("law", body["plan_digest"])
        need(row["run"] not in self.runs and len(bytes.fromhex(body["seed"])) == 16)
        need(body["attempt"] == self.seeds.get(law, 0) + 1)
        self.seeds[law] = body["attempt"]

    def run_start(self, row: Row, body: Body) -> None:
        found, seeded = self.population(row, "open"), body["noise_source"] == "seeded"
        need(row["run"] not in self.runs)
        need(found["simulated"] if seeded else body["key_commitment"] not in self.keys)
        price, singly = price_of(body["price"]), body["accounting"] == SINGLY
        need(body["format"] == 3 and price[0] == mu_squared(body["planned"]) and ("pledged" in body) == singly)
        need(not singly or found["accounting"] == SINGLY)
        if singly:
            need(self.committed(row["population"])[1] + price[1] <= found["leak"])
        else:
            need(self.fits(row["population"], price, body.get("largest")))
        need(self.paced(row, price))
        if not seeded:
            self.keys.add(body["key_commitment"])
        now = {"state": "running", "request": None, "spent": '{"mu_squared": 0}', "next": 0, "tries": 0}
        now |= {"open": None, "closing": False, "ended": False, "population": row["population"], "at": row["at"]}
        self.runs[row["run"]] = {**body, **now}

    def run_resume(self, row: Row, body: Body) -> None:
        run = self.run(row)
        run["state"] = {"stop": "stopping", "pause": "paused", None: "running"}[run["request"]]

    def run_interrupt(self, row: Row, body: Body) -> None:
        self.run(row)["state"] = "interrupted"

    def run_request(self, row: Row, body: Body) -> None:
        run = self.run(row)
        need(body["request"] in ("stop", "pause", None))
        run["request"] = body["request"]
        if run["state"] != "interrupted":
            self.run_resume(row, body)

    def round_open(self, row: Row, body: Body) -> None:
        run = self.run(row)
        need(run["open"] is None and row["round"] == run["next"] < run["rounds"])
        need((body["noise_row"], body["attempt"]) == (row["round"], run["tries"]))
        run["open"], run["tries"] = (row["round"], body["attempt"]), run["tries"] + 1

    def round_close(self, row: Row, body: Body) -> None:
        run = self.run(row, body)
        need(not run["closing"] and body["nodes"] >= 2 and len(bytes.fromhex(body["closing"])) == 32)
        run["closing"] = True

    def round_void(self, row: Row, body: Body) -> None:
        run = self.run(row, body)
        need(not run["closing"])
        run["open"] = None

    def round_commit(self, row: Row, body: Body) -> None:
        run = self.run(row, body)
        need(body["noise_row"] == row["round"])
        need(mu_squared(run["spent"]) <= mu_squared(body["spent"]) <= mu_squared(run["planned"]))
        source, nonce = run["noise_source"], body.get("nonce")
        needs_nonce = source != "seeded" and not source.endswith("-box-muller")
        need((nonce is not None) == needs_nonce and nonce not in self.nonces)
        need(nonce is None or len(bytes.fromhex(nonce)) == 16)
        need(("charges" in body) == (run["accounting"] == SINGLY))
        self.nonces |= {nonce} - {None}
        run.update(open=None, closing=False, tries=0, spent=body["spent"], next=row["round"] + 1)

    def run_finish(self, row: Row, body: Body) -> None:
        run, found = self.run(row), self.population(row)
        spent = run["planned"] if body.get("whole") else run["spent"]
        need((run["open"] is None or run["closing"]) and mu_squared(body["spent"]) == mu_squared(spent))
        settled = found["settled"] + mu_squared(spent)
        need(mu_squared(body["settled"]) == settled and ("odometers" in body) == (run["accounting"] == SINGLY))
        run.update(state=body["state"], request=None, open=None, ended=True, spent=spent)
        found["settled"] = settled

    # -- charges of others, tokens, nodes -----------------------------------------------------------------------

    def charge_reserve(self, row: Row, body: Body) -> None:
        self.population(row, "open")
        key, price = (row["population"], body["key"]), price_of(body["price"])
        need(key not in self.charges and min(price) >= 0 and self.fits(key[0], price, body.get("largest")))
        need(self.paced(row, price))
        self.charges[key] = {**body, "state": "reserved", "at": row["at"]}

    def charge_carry(self, row: Row, body: Body) -> None:
        self.population(row)
        need((row["population"], body["key"]) not in self.charges and min(price_of(body["price"])) >= 0)
        self.charges[row["population"], body["key"]] = {**body, "state": "committed", "at": row["at"]}

    def charge_commit(self, row: Row, body: Body) -> None:
        charge = self.charges.get((row["population"], body["key"]), {"state": ""})
        need(charge["state"] == "reserved")
        charge["state"] = "committed" if row["action"] == "charge.commit" else "released"

    charge_release = charge_commit

    def token_create(self, row: Row, body: Body) -> None:
        need(body["id"] not in self.tokens)
        self.tokens[body["id"]] = True

    def token_revoke(self, row: Row, body: Body) -> None:
        need(body["id"] in self.tokens)
        self.tokens[body["id"]] = self.tokens[body["id"]] and row["action"] == "token.use"

    token_use = token_revoke


def is_key_line(text: str) -> bool:
    line = re.fullmatch(KEY_LINE, text)
    return line is not None and is_signed(line[2], bytes.fromhex(line[3]), line[1].encode())


ONLY: Mapping[str, Callable[[Fold, Row, Body], object]] = {
    "population.note": lambda fold, row, body: row["population"] in fold.populations,
    "run.key_destroyed": lambda fold, row, body: fold.run(row, ended=True)["key_commitment"] == body["key_commitment"],
    "run.audit": lambda fold, row, body: row["run"] in fold.runs,
    "node.admit": lambda fold, row, body: len(body["key"]) == 64 and body["most_users"] >= 1,
    "node.release": lambda fold, row, body: len(body["key"]) == 64,
    "head.key": lambda fold, row, body: is_key_line(body["line"]),
    "ledger.converted": lambda fold, row, body: row["id"] == 1 and body["count"] >= 1 and body["omitted"] >= 0,
    "ledger.mend": lambda fold, row, body: 0 <= body["kept"] < row["id"],
}
"""Where an event is allowed that changes nothing."""


def _members() -> Iterator[tuple[str, tuple[set[str], set[str]]]]:
    """(action, the members that its body always has, those that may be left out), by the tables of the page."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        actions, said = [*line.split("|"), "", ""][1:3]
        always, _, sometimes = said.partition("[")
        for action in re.findall(r"`(\w+\.\w+)`", actions):
            yield action, (set(re.findall(r"`(\w+)`", always)), set(re.findall(r"`(\w+)`", sometimes)))


MEMBERS = dict(_members())
