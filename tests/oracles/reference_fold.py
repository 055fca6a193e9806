"""What a journal says, by docs/log.md alone: no rule, no event and no state of the product is used, only the gauge, and
whether a text is signed.

Gaussian runs and charges; what costs a convolution (sampled and certified losses) has oracles of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from fieldfare.accounting.filter import gauge
from fieldfare.accounting.individual import from_units
from fieldfare.signatures import is_signed
from oracles.log_page import MEMBERS

Row, Values, Price = Mapping[str, Any], dict[str, Any], tuple[float, float]
ALIKE, SINGLY = "worst-case", "individual"
NONE: Values = {}
NO_WINDOW: Values = {"window_epsilon": None, "window_every": None}
KEY_LINE = r"(fieldfare-key-v1 [0-9a-f]{32} (?:enrol|rotate)(?: [0-9a-f]{64}){2} ([0-9a-f]{64})) ([0-9a-f]{128})"


class RefusedError(Exception):
    """The row is not allowed at this point."""


def need(holds: object) -> None:
    if not holds:
        raise RefusedError


def mu_squared(loss: str) -> float:
    return float(json.loads(loss)["mu_squared"])


def price_of(text: str) -> Price:
    return itemgetter("mu_squared", "leak")(json.loads(text))


def budget(values: Row) -> dict[str, float]:
    return {name: values[name] for name in ("epsilon", "delta")}


def below_ceilings(population: Row, body: Row) -> bool:
    ceilings = [(body[name], population[f"ceiling_{name}"]) for name in ("epsilon", "delta")]
    return all(ceiling is None or value <= ceiling for value, ceiling in ceilings)


def moves(population: Row, body: Row, sign: int) -> bool:
    """Whether a body raises the budget of an open population (sign 1) or lowers it (-1), from the one that it names."""
    steps = [sign * (body[name] - population[name]) for name in ("epsilon", "delta")]
    sound = body["epsilon"] > 0 and 0 < body["delta"] < 1 and body["old"] == budget(population)
    return sound and population["state"] == "open" and min(steps) >= 0 < max(steps)


def total(prices: Iterable[Price]) -> Price:
    mu, d = map(math.fsum, zip((0.0, 0.0), *prices, strict=True))
    return mu, d


def holds(population: Row, epsilon: float, *prices: Price) -> bool:
    """Whether the sum of prices is within a budget of `epsilon` at the delta and the leak of a population."""
    mu, d = total(prices)
    return d <= population["leak"] and mu < math.inf and gauge(mu, population["delta"], population["leak"]) <= epsilon


class Fold:
    """The state after the rows that `apply` was given."""

    def __init__(self) -> None:
        self.populations: dict[str, Values] = {}
        self.runs: dict[str, Values] = {}
        self.charges: dict[tuple[str, str], Values] = {}
        self.proposals: dict[str, Values] = {}
        self.tokens: dict[str, bool] = {}
        self.keys, self.nonces = set[str](), set[str]()
        self.seeds: dict[tuple[str, str], int] = {}

    def apply(self, row: Row) -> None:
        """Take one row. Raises `RefusedError`, with nothing changed, if it is not allowed."""
        action, body = row["action"], json.loads(row["body"])
        need(action in MEMBERS)
        always, sometimes = MEMBERS[action]
        # A test of noise tells whatever it found.
        need(action == "run.audit" or always <= set(body) - {"blind"} <= always | sometimes)
        subject = {"population": self._population, "users": self._population, "run": self._run, "round": self._run}
        subject.get(action.partition(".")[0], self._other)(action, row, body)

    def parts(self, name: str, since: float | None = None) -> Iterator[Price]:
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

    def committed(self, name: str) -> Price:
        """(mu^2, d) that all users of a population are charged alike."""
        return total(self.parts(name))

    def fits(self, name: str, new: Price, largest: int | None, terms: Row = NONE) -> bool:
        population = {**self.populations[name], **terms}
        need((largest is not None) == (population["accounting"] == SINGLY) and (largest or 0) >= 0)
        return holds(population, population["epsilon"], self.committed(name), (from_units(largest or 0), 0.0), new)

    def paced(self, row: Row, new: Price) -> bool:
        """Whether what began in the calendar window of a row holds `new` too."""
        population = self.populations[row["population"]]
        if population["window_epsilon"] is None:
            return True
        day = datetime.fromtimestamp(row["at"], UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        year, monday = day.replace(month=1, day=1), day - timedelta(days=day.weekday())
        first = {"day": day, "week": monday, "month": day.replace(day=1), "year": year}[population["window_every"]]
        return holds(population, population["window_epsilon"], *self.parts(row["population"], first.timestamp()), new)

    def _waiting(self, row: Row, proposal: str | None) -> Values:
        found = self.proposals.get(proposal or "", {"state": ""})
        need(found["state"] == "waiting" and found["population"] == row["population"])
        return found

    def _population(self, action: str, row: Row, body: Values) -> None:
        name = row["population"]
        found, proposed = self.populations.get(name, NONE), {**body, "state": "waiting", "population": name}
        need((name in self.populations) == (action != "population.create"))
        match action:
            case "population.create":
                need(0 <= body["leak"] < body["delta"] and below_ceilings(body, body))
                need(body["accounting"] == ALIKE or body["adjacency"] != "add_remove")
                proposal, person = body.get("proposal"), body.get("person")
                need((proposal is None) == (person is None) and (proposal is None or body["two_persons"]))
                need(proposal not in self.proposals)
                state = "open" if proposal is None else "proposed"
                self.populations[name] = {**body, "state": state, "users": 0, "settled": 0.0, **NO_WINDOW}
                self.proposals |= {} if proposal is None else {proposal: proposed}
            case "population.raise":
                if found["state"] == "proposed":
                    need(body["old"] == budget(found) == budget(body))
                else:
                    need(moves(found, body, 1) and below_ceilings(found, body))
                if found["two_persons"]:
                    waiting = self._waiting(row, body.get("proposal"))
                    need(waiting["person"] != body.get("person") and budget(waiting) == budget(body))
                    waiting["state"] = "approved"
                found.update(budget(body), state="open")
            case "population.propose":
                need(found["two_persons"] and body["id"] not in self.proposals and body["old"] == budget(found))
                self.proposals[body["id"]] = proposed
            case "population.withdraw":
                self._waiting(row, body["proposal"])["state"] = "withdrawn"
                found["state"] = "withdrawn" if found["state"] == "proposed" else found["state"]
            case "population.tighten":
                need(moves(found, body, -1) and found["leak"] < body["delta"])
                need(self.fits(name, (0.0, 0.0), body.get("largest"), budget(body)))
                found.update(budget(body))
            case "population.window":
                old, new = ({term: values[term] for term in NO_WINDOW} for values in (found, body))
                epsilon, every = new["window_epsilon"], new["window_every"]
                need(found["state"] == "open" and body["old"] == old != new and (epsilon is None) == (every is None))
                need(every in (None, "day", "week", "month", "year"))
                need(epsilon is None or 0 < epsilon <= found["epsilon"])
                if found["two_persons"] and old["window_epsilon"] is not None:
                    need(every == old["window_every"] and epsilon < old["window_epsilon"])
                found.update(new)
            case "population.close" | "population.reopen":
                before, after = ("open", "closed") if action == "population.close" else ("closed", "open")
                need((found["state"], body["state"]) == (before, after))
                found["state"] = after
            case "population.odometers":
                runs = [self.runs.get(run, NONE) for run in body["runs"]]
                need(found["adjacency"] != "add_remove" and body["users"] == found["users"])
                need(all(run and run["ended"] and run["population"] == name for run in runs))
                need(all(run["accounting"] == ALIKE for run in runs))
                for each in (found, *runs):
                    each["accounting"] = SINGLY
            case "users.register":
                need(body["first"] == found["users"] and body["count"] >= 0)
                kinds = {key: (run["population"], run["ended"], run["accounting"]) for key, run in self.runs.items()}
                pledged = {key for key, kind in kinds.items() if kind == (name, False, SINGLY)}
                need(not body["count"] or pledged <= set(body.get("pledged", {})))
                found["users"] += body["count"]
            case "population.note":
                pass

    def _run(self, action: str, row: Row, body: Values) -> None:
        run, name = self.runs.get(row["run"], NONE), row["population"]
        need((row["run"] in self.runs) == (action not in ("run.certify", "run.start")))
        if run is NONE:
            need(name in self.populations)
        elif action != "run.audit":
            need(run["ended"] == (action == "run.key_destroyed") and name in (None, run["population"]))
        if action in ("round.close", "round.void", "round.commit"):
            need(run["open"] == (row["round"], body["attempt"]))
        match action:
            case "run.certify":
                law = name, body.get("law", body["plan_digest"])
                need(len(bytes.fromhex(body["seed"])) == 16 and body["attempt"] == self.seeds.get(law, 0) + 1)
                self.seeds[law] = body["attempt"]
            case "run.start":
                found, seeded = self.populations[name], body["noise_source"] == "seeded"
                need(found["state"] == "open")
                need(found["simulated"] if seeded else body["key_commitment"] not in self.keys)
                price, singly = price_of(body["price"]), body["accounting"] == SINGLY
                need(body["format"] == 3 and price[0] == mu_squared(body["planned"]) and ("pledged" in body) == singly)
                if singly:
                    need(found["accounting"] == SINGLY and self.committed(name)[1] + price[1] <= found["leak"])
                else:
                    need(self.fits(name, price, body.get("largest")))
                need(self.paced(row, price))
                self.keys |= set() if seeded else {body["key_commitment"]}
                now = {"state": "running", "request": None, "spent": '{"mu_squared": 0}', "next": 0, "tries": 0}
                now |= {"open": None, "closing": False, "ended": False, "population": name, "at": row["at"]}
                self.runs[row["run"]] = {**body, **now}
            case "run.interrupt":
                run["state"] = "interrupted"
            case "run.resume" | "run.request":
                wish = body.get("request", run["request"])
                need(wish in ("stop", "pause", None))
                if action == "run.resume" or run["state"] != "interrupted":
                    run["state"] = {"stop": "stopping", "pause": "paused", None: "running"}[wish]
                run["request"] = wish
            case "round.open":
                need(run["open"] is None and row["round"] == run["next"] < run["rounds"])
                need((body["noise_row"], body["attempt"]) == (row["round"], run["tries"]))
                run.update(open=(row["round"], body["attempt"]), tries=run["tries"] + 1)
            case "round.close":
                need(not run["closing"] and body["nodes"] >= 2 and len(bytes.fromhex(body["closing"])) == 32)
                run["closing"] = True
            case "round.void":
                need(not run["closing"])
                run["open"] = None
            case "round.commit":
                need(body["noise_row"] == row["round"])
                need(mu_squared(run["spent"]) <= mu_squared(body["spent"]) <= mu_squared(run["planned"]))
                source, nonce = run["noise_source"], body.get("nonce")
                need((nonce is None) == (source == "seeded" or source.endswith("-box-muller")))
                need(nonce is None or (len(bytes.fromhex(nonce)) == 16 and nonce not in self.nonces))
                need(("charges" in body) == (run["accounting"] == SINGLY))
                self.nonces |= {nonce} - {None}
                run.update(open=None, closing=False, tries=0, spent=body["spent"], next=row["round"] + 1)
            case "run.finish":
                found, spent = self.populations[run["population"]], run["planned" if body.get("whole") else "spent"]
                need((run["open"] is None or run["closing"]) and mu_squared(body["spent"]) == mu_squared(spent))
                settled = found["settled"] + mu_squared(spent)
                need(mu_squared(body["settled"]) == settled and ("odometers" in body) == (run["accounting"] == SINGLY))
                run.update(state=body["state"], request=None, open=None, ended=True, spent=spent)
                found["settled"] = settled
            case "run.key_destroyed" | "run.audit":
                need(action == "run.audit" or run["key_commitment"] == body["key_commitment"])

    def _other(self, action: str, row: Row, body: Values) -> None:
        key = name, _ = row["population"], body.get("key")
        match action:
            case "charge.reserve" | "charge.carry":
                price, state = price_of(body["price"]), "reserved" if action == "charge.reserve" else "committed"
                need(name in self.populations and key not in self.charges and min(price) >= 0)
                if state == "reserved":
                    need(self.populations[name]["state"] == "open")
                    need(self.fits(name, price, body.get("largest")) and self.paced(row, price))
                self.charges[key] = {**body, "state": state, "at": row["at"]}
            case "charge.commit" | "charge.release":
                need(self.charges.get(key, NONE).get("state") == "reserved")
                self.charges[key]["state"] = "committed" if action == "charge.commit" else "released"
            case "token.create":
                need(body["id"] not in self.tokens)
                self.tokens[body["id"]] = True
            case "token.revoke" | "token.use":
                need(body["id"] in self.tokens)
                self.tokens[body["id"]] &= action == "token.use"
            case "node.admit" | "node.release":
                need(len(body["key"]) == 64 and body.get("most_users", 1) >= 1)
            case "head.key":
                line = re.fullmatch(KEY_LINE, body["line"])
                need(line is not None and is_signed(line[2], bytes.fromhex(line[3]), line[1].encode()))
            case "ledger.converted":
                need(row["id"] == 1 and body["count"] >= 1 and body["omitted"] >= 0)
            case "ledger.mend":
                need(0 <= body["kept"] < row["id"])
