"""What the tables must say, rebuilt from the journal alone, with every rule checked again on the way.

This is a second opinion: it shares the arithmetic of budgets with the code that writes, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, default_leak
from fieldfare.accounting.individual import from_units
from fieldfare.noise import NONCE_BYTES
from fieldfare_server.ledger import budget, odometers
from fieldfare_server.ledger.models import SEEDED, has_nonces
from fieldfare_server.ledger.states import STATE_AFTER


class Unfit(Exception):
    """Something does not fit: in which table, in which row, and why."""

    def __init__(self, table: str, row: str, why: str) -> None:
        self.table, self.row, self.why = table, row, why
        super().__init__(f"{table} {row}: {why}")


@dataclass
class Attempt:
    """One attempt at a round, by column name of `rounds`; `users` is the SHA-256 of the participation blob."""

    values: dict[str, Any]
    users: str | None = None
    charges: str | None = None
    """SHA-256 of what the round cost each user; None without odometers."""


@dataclass
class Run:
    """One run, by column name of `runs`; `plan` is the SHA-256 of its plan."""

    values: dict[str, Any]
    plan: str
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    open: tuple[int, int] | None = None
    recomputed: str | None = None
    """Where its charges were recomputed after its end: `odometers.digest_of_rounds`."""

    @property
    def planned(self) -> PrivacyLoss:
        return PrivacyLoss.from_json(self.values["planned"])

    @property
    def spent(self) -> PrivacyLoss:
        return PrivacyLoss.from_json(self.values["spent"])

    @property
    def active(self) -> bool:
        return self.values["ended_at"] is None


@dataclass
class Population:
    """One population, by column name of `populations`, and the bodies of the rows that registered its users."""

    values: dict[str, Any]
    chunks: list[dict[str, Any]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    """What changed the odometers; none where there are none."""
    charges: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Charges of other trainers by key, by column name of `charges`."""


Kind: TypeAlias = Literal["start", "register", "commit", "finish", "largest", "recompute"]


@dataclass(frozen=True)
class Step:
    """Something that changes what users of a population have left, in the order of the journal."""

    row: str
    """The number of its journal row."""
    kind: Kind
    body: dict[str, Any]
    run: str | None = None
    round: int | None = None
    limit: int = 0
    """M at that time, in units."""
    base: int = 0
    """What all users are charged alike at that time, in units."""


class Replay:
    """The state of the ledger after the journal rows that `apply` was given, in order."""

    def __init__(self) -> None:
        self.populations: dict[str, Population] = {}
        self.runs: dict[str, Run] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self._nonces: dict[str, str] = {}
        """Nonce -> the round that has it, in words."""
        self._priced = False
        """Whether a row of a version with prices was seen: from there on, every run has one."""

    def apply(self, row: Mapping[str, Any]) -> None:
        """Apply one journal row. Raises `Unfit` if what it says was not allowed at that point."""
        number = str(row["id"])
        # "run.start" is handled by `_run_start`, and so on: one method for each action that is ever written.
        handler = getattr(self, "_" + row["action"].replace(".", "_"), None)
        if handler is None:
            raise Unfit("audit", number, f"there is no action {row['action']!r}")
        try:
            handler(row, json.loads(row["body"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Unfit("audit", number, f"it cannot be applied ({type(error).__name__}: {error})") from None

    def _require(self, row: Mapping[str, Any], holds: bool, why: str) -> None:
        if not holds:
            raise Unfit("audit", str(row["id"]), why)

    def _population_create(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        name = row["population"]
        self._require(row, name not in self.populations, f"population {name!r} is created twice")
        self._require(row, "leak" in body or not self._priced, "it has no leak, and newer rows come before it")
        self._priced |= "leak" in body
        # Migration 0002 gave the populations of the first version the same.
        leak = body["leak"] if "leak" in body else default_leak(body["adjacency"], body["delta"])
        self._require(row, 0 <= leak < body["delta"], "its leak is not below its delta")
        start = {"state": "open", "users": 0, "settled": budget.NOTHING.to_json(), "leak": leak}
        start["accounting"] = body.get("accounting", odometers.WORST_CASE)
        kept = start["accounting"] == odometers.INDIVIDUAL
        self._require(row, not kept or body["adjacency"] != "add_remove", "its odometers would tell who is there")
        created = {"created_at": row["at"], "created_by": row["actor"]}
        self.populations[name] = Population({**body, **start, **created})

    def _population_raise(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        values = self.populations[row["population"]].values
        self._require(row, values["state"] == "open", "a closed budget is raised")
        higher = body["epsilon"] >= values["epsilon"] and body["delta"] >= values["delta"]
        self._require(row, higher, "a budget is lowered")
        values |= {"epsilon": body["epsilon"], "delta": body["delta"]}

    def _population_close(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self.populations[row["population"]].values["state"] = "closed"

    def _population_odometers(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        secret = population.values["adjacency"] == "add_remove"
        self._require(row, not secret, "its odometers would tell who is there")
        self._require(row, body["users"] == population.values["users"], "it counts other users")
        for run_id, digest in body["runs"].items():
            run = self.runs[run_id]
            alike = run.values["accounting"] == odometers.WORST_CASE
            ours = run.values["population"] == row["population"] and not run.active
            self._require(row, alike and ours, f"run {run_id} cannot be recomputed")
            run.values["accounting"], run.recomputed = odometers.INDIVIDUAL, digest
        population.values["accounting"] = odometers.INDIVIDUAL
        self._step(row, "recompute", body)

    def _charge_reserve(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        largest = body.pop("largest")
        self._require(row, body["key"] not in population.charges, "its key names another charge")
        self._require(row, population.values["state"] == "open", "a closed population is charged")
        fits = self._holds(row["population"], Price.from_json(body["price"]), {"largest": largest})
        self._require(row, fits, "it does not fit in the budget")
        self._step(row, "largest", {"largest": largest})
        population.charges[body["key"]] = {**body, "state": "reserved", "reserved_at": row["at"], "closed_at": None}

    def _charge_commit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._close_charge(row, body, "committed")

    def _charge_release(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._close_charge(row, body, "released")

    def _close_charge(self, row: Mapping[str, Any], body: dict[str, Any], state: str) -> None:
        charge = self.populations[row["population"]].charges[body["key"]]
        self._require(row, charge["state"] == "reserved", "it closes a charge that is not reserved")
        charge |= {"state": state, "closed_at": row["at"]}

    def _users_register(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        self._require(row, body["first"] == population.values["users"], "users are not numbered one after another")
        population.values["users"] += body["count"]
        self._step(row, "register", body)
        if body["count"]:
            population.chunks.append(body)

    def _run_start(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        self._require(row, row["run"] not in self.runs, f"run {row['run']} is started twice")
        self._require(row, population.values["state"] == "open", "a run is charged to a closed population")
        keys = {run.values["key_commitment"] for run in self.runs.values() if run.values["noise_source"] != SEEDED}
        fresh = body["noise_source"] == SEEDED or body["key_commitment"] not in keys
        self._require(row, fresh, "its noise key has served another run")
        private = body["noise_source"] != SEEDED or population.values["simulated"]
        self._require(row, private, "a fixed noise seed is charged to real people")
        self._require(row, "price" in body or not self._priced, "it has no price, and newer rows come before it")
        self._priced |= "price" in body
        fits = self._fits(row["population"], body) if "price" in body else self._fitted(row["population"], body)
        self._require(row, fits, "its reservation does not fit in the budget")
        plan = body.pop("plan")
        body.setdefault("price", None)
        body.setdefault("accounting", odometers.WORST_CASE)
        body.setdefault("most", None)
        pledged, largest = body.pop("pledged", None), body.pop("largest", None)
        individual = body["accounting"] == odometers.INDIVIDUAL
        kept = population.values["accounting"] == odometers.INDIVIDUAL
        self._require(row, kept or not individual, "it is charged to odometers, and the population has none")
        self._require(row, (pledged is not None) == individual, "it is pledged otherwise than it is charged")
        if individual:
            self._step(row, "start", {"most": body["most"], "pledged": pledged})
        elif kept:
            self._step(row, "largest", {"largest": largest})
        start = {
            "strategy": body.get("strategy"),  # rows of the ledger's first version name none
            "spent": budget.NOTHING.to_json(),
            "next_round": 0,
            "checkpoint": None,
            "ended_at": None,
            "message": "",
        }
        started = {"population": row["population"], "started_at": row["at"], "started_by": row["actor"]}
        self.runs[row["run"]] = Run(
            {"format": 0, **body, **start, **started, "state": "running", "request": None}, plan
        )

    def _run_resume(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        run = self._running(row)
        run.values["message"] = ""
        run.values["state"] = STATE_AFTER[run.values["request"]]

    def _run_interrupt(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._running(row).values |= {"state": "interrupted", "message": body["message"]}

    def _run_request(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        values = self._running(row).values
        values["request"] = body["request"]
        if values["state"] != "interrupted":
            values["state"] = STATE_AFTER[body["request"]]

    def _run_finish(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        run = self._running(row)
        self._require(row, run.open is None, "the run ends with a round open")
        population = self.populations[row["population"]].values
        settled = PrivacyLoss.from_json(population["settled"]) + run.spent
        self._require(row, body["spent"] == run.values["spent"], "it names a loss other than the committed one")
        self._require(row, PrivacyLoss.from_json(body["settled"]) == settled, "the settled total is not the sum")
        population["settled"] = body["settled"]
        individual = run.values["accounting"] == odometers.INDIVIDUAL
        self._require(row, ("odometers" in body) == individual, "it settles otherwise than the run was charged")
        if individual:
            self._step(row, "finish", {"odometers": body["odometers"]})
        run.values |= {"state": body["state"], "message": body["message"], "request": None, "ended_at": row["at"]}

    def _run_key_destroyed(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        run = self.runs[row["run"]]
        self._require(row, not run.active, "the key of a run under way is destroyed")
        self._require(row, body["key_commitment"] == run.values["key_commitment"], "it is the key of another run")

    def _round_open(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        run = self._running(row)
        key = (row["round"], body["attempt"])
        self._require(row, run.open is None, "two rounds are open at once")
        self._require(row, row["round"] == run.values["next_round"] < run.values["rounds"], "it is not the next round")
        self._require(row, body["noise_row"] == row["round"], "its noise row is that of another round")
        attempts = sum(index == row["round"] for index, _ in run.attempts)
        self._require(row, body["attempt"] == attempts, "attempts are not numbered one after another")
        values = {"state": "open", "noise_row": body["noise_row"], "cohort_size": body["cohort_size"], "reports": 0}
        empty = {"participants": 0, "rejects": {}, "reason": "", "statistics": _EMPTY}
        unset = dict.fromkeys(("spent", "epsilon", "checkpoint", "closed_at", "nonce"))
        opened = {"opened_at": row["at"], "cohort": body["cohort"]}
        run.attempts[key] = Attempt({**values, **empty, **unset, **opened})
        run.open = key

    def _round_void(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        attempt = self._close(row, body)
        reported = {name: body[name] for name in ("reason", "reports", "rejects")}
        attempt.values |= {**reported, "state": "void", "closed_at": row["at"], "cohort": None}

    def _round_commit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        run, attempt = self._running(row), self._close(row, body)
        spent = PrivacyLoss.from_json(body["spent"])
        self._require(row, budget.at_most(run.spent, spent), "the charge shrinks")
        self._require(row, budget.at_most(spent, run.planned), "the charge exceeds what was reserved")
        self._require(
            row,
            body["noise_row"] == attempt.values["noise_row"],
            "its noise row is not the one it was opened with",
        )
        nonce = body.get("nonce")
        self._check_nonce(row, run, nonce)
        reported = {name: body[name] for name in ("spent", "epsilon", "checkpoint", "statistics", "reports", "rejects")}
        closed = {"state": "committed", "closed_at": row["at"], "cohort": None, "nonce": nonce}
        attempt.values |= {**reported, **closed, "participants": body["participant_count"]}
        attempt.users, attempt.charges = body["participants"], body.get("charges")
        individual = run.values["accounting"] == odometers.INDIVIDUAL
        self._require(row, (attempt.charges is not None) == individual, "it charges otherwise than the run does")
        if individual:
            self._step(row, "commit", {})
        next_round = row["round"] + 1
        run.values |= {"spent": body["spent"], "checkpoint": body["checkpoint"], "next_round": next_round}

    def _check_nonce(self, row: Mapping[str, Any], run: Run, nonce: str | None) -> None:
        needed = has_nonces(run.values["format"], run.values["noise_source"])
        self._require(
            row, (nonce is not None) == needed, "it has no nonce" if needed else "it has a nonce it cannot have"
        )
        if nonce is not None:
            self._require(row, len(bytes.fromhex(nonce)) == NONCE_BYTES, "its nonce has another length")
            label = f"round {row['round']} of run {row['run']}"
            first = self._nonces.setdefault(nonce, label)
            self._require(row, first == label, f"its nonce is that of {first}")

    def _token_create(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        created = {"created_at": row["at"], "created_by": row["actor"], "revoked_at": None}
        self.tokens[body["id"]] = {**body, "scopes": " ".join(body["scopes"]), **created}

    def _token_revoke(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self.tokens[body["id"]]["revoked_at"] = row["at"]

    def _token_use(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, body["id"] in self.tokens, "a token is used that was never created")

    def _run_audit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, row["run"] in self.runs, "a run is audited that was never started")

    def _running(self, row: Mapping[str, Any]) -> Run:
        run = self.runs[row["run"]]
        self._require(row, run.active, "the run has ended")
        return run

    def _close(self, row: Mapping[str, Any], body: dict[str, Any]) -> Attempt:
        run = self._running(row)
        key = (row["round"], body["attempt"])
        self._require(row, run.open == key, "it closes a round that is not open")
        run.open = None
        return run.attempts[key]

    def _fits(self, name: str, body: Mapping[str, Any]) -> bool:
        """Whether a run's price is what its planned loss costs, and fits in the population's rectangle."""
        if not budget.is_price(PrivacyLoss.from_json(body["planned"]), body["price"]):
            return False
        return self._holds(name, Price.from_json(body["price"]), body)

    def _holds(self, name: str, price: Price, body: Mapping[str, Any]) -> bool:
        """Whether `price` fits with what is committed. body: of the row that charges it."""
        common, terms = self._base(name), self._terms(name)
        if body.get("accounting") == odometers.INDIVIDUAL:
            # What users have left for it is checked with their odometers, which the journal alone does not hold.
            return common.leak + price.leak <= terms.leak
        largest = body.get("largest") or 0
        return terms.hold(common + Price(from_units(largest) if largest else 0.0) + price)

    def _base(self, name: str) -> Price:
        """What all users of a population are charged alike."""
        charges = (
            budget.Charge(
                run["planned"],
                run["spent"],
                run["price"],
                run["next_round"],
                run["ended_at"] is None,
                run["accounting"] == odometers.INDIVIDUAL,
            )
            for run in (run.values for run in self.runs.values() if run.values["population"] == name)
        )
        population = self.populations[name]
        foreign = (
            budget.Foreign(charge["price"], charge["state"] == "committed")
            for charge in population.charges.values()
            if charge["state"] != "released"
        )
        return budget.sums(charges, population.values["leak"], foreign).committed

    def _terms(self, name: str) -> budget.Terms:
        values = self.populations[name].values
        return budget.Terms(values["epsilon"], values["delta"], values["leak"])

    def _step(self, row: Mapping[str, Any], kind: Kind, body: dict[str, Any]) -> None:
        """Note a step of a population with odometers."""
        name = row["population"]
        population = self.populations[name]
        if population.values["accounting"] != odometers.INDIVIDUAL:
            return
        limit = base = 0
        if kind in ("start", "register", "largest"):
            limit, base = odometers.limit_units(self._terms(name)), odometers.units_of(self._base(name))
        population.steps.append(Step(str(row["id"]), kind, body, row["run"], row["round"], limit, base))

    def _fitted(self, name: str, body: Mapping[str, Any]) -> bool:
        """Whether a run of the first version fitted by the rule of then: the composed loss of all runs."""
        values = self.populations[name].values
        settled = PrivacyLoss.from_json(values["settled"])
        active = (run.planned for run in self.runs.values() if run.active and run.values["population"] == name)
        total = budget.compose([settled, *active, PrivacyLoss.from_json(body["planned"])])
        return bool(total.epsilon(values["delta"]) <= values["epsilon"])


_EMPTY = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
"""SHA-256 of `{}`."""
