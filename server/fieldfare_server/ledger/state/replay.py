"""What the tables must say, rebuilt from the journal alone, with every rule checked again on the way.

This is a second opinion: it shares the arithmetic of budgets with the code that writes, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, default_leak
from fieldfare.accounting.individual import from_units
from fieldfare.nonces import NONCE_BYTES
from fieldfare_server.ledger.sql.models import SEEDED, has_nonces
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.admission import Position
from fieldfare_server.ledger.states import STATE_AFTER

_NO_RULES = {"ceiling_epsilon": None, "ceiling_delta": None, "two_persons": False, "reservation_seconds": None}
"""Populations that were created before version 0003."""


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
    whole: Price = field(default_factory=Price)
    """What it reserved."""
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    """By (round, attempt). A reader may drop those that are closed."""
    tries: int = 0
    """How many attempts there were at the next round."""
    open: tuple[int, int] | None = None
    recomputed: str | None = None
    """Where its charges were recomputed after its end: `odometers.digest_of_rounds`."""
    pledged: str = ""
    """Digest of what it was pledged of the users that there were at its start."""
    newcomers: list[tuple[int, int, int]] = field(default_factory=list)
    """(first, count, cap of each) of the users who were registered since."""

    @property
    def individual(self) -> bool:
        """Whether it is charged to its users' odometers."""
        return bool(self.values["accounting"] == odometers.INDIVIDUAL)

    @property
    def planned(self) -> PrivacyLoss:
        return budget.loss(self.values["planned"])

    @property
    def spent(self) -> PrivacyLoss:
        return budget.loss(self.values["spent"])

    @property
    def charge(self) -> budget.Charge:
        """What the run is charged by."""
        v = self.values
        return budget.Charge(v["planned"], v["spent"], v["price"], v["next_round"], self.active, self.individual)

    @property
    def active(self) -> bool:
        return self.values["ended_at"] is None


@dataclass
class Population:
    """One population, by column name of `populations`, and the bodies of the rows that registered its users."""

    values: dict[str, Any]
    chunks: list[dict[str, Any]] = field(default_factory=list)
    """A reader may drop them."""
    runs: list[Run] = field(default_factory=list)
    """Those under way, in the order of their starts."""
    left: float = 0.0
    """What of D is left to runs without a price (`budget.reserved`)."""
    alike: budget.Total = field(default_factory=budget.Total)
    """What all users are charged alike, spent and reserved."""
    charges: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Charges of other trainers by key, by column name of `charges`."""
    settled: str = odometers.digest(np.zeros(0, dtype=np.int64))
    """Digest of what ended runs have cost each user."""
    standing: odometers.Standing | None = None
    """The odometers, as the tables have them and the digests prove them; `proof.Proof` sets it at each check."""
    steps: list[Step] = field(default_factory=list)
    """What changed the odometers, for a thorough replay; none where there are none."""

    @property
    def terms(self) -> budget.Terms:
        """Its budget."""
        return budget.Terms(self.values["epsilon"], self.values["delta"], self.values["leak"])

    @property
    def individual(self) -> bool:
        """Whether the ledger keeps odometers of it."""
        return bool(self.values["accounting"] == odometers.INDIVIDUAL)

    def base(self) -> Price:
        """What all users are charged alike, spent and reserved: exactly what `Reader.population` shows of it."""
        return self.alike.price()

    def largest(self, terms: budget.Terms) -> int:
        """What is committed of the user who has least left under `terms`, beyond what all are charged alike, in units.

        Raises LookupError unless the odometers were compared with the journal (`standing`).
        """
        if not self.individual:
            return 0
        if self.standing is None:
            raise LookupError("the odometers were not compared with the journal")
        return self.standing.most_committed(odometers.limit_units(terms), odometers.units_of(self.base()))

    def committed(self, terms: budget.Terms | None = None) -> Price:
        """What is committed of the user who has least left: exactly what `Reader.population` shows.

        terms: None for the budget of now.
        """
        return _with(self.base(), self.largest(terms or self.terms))

    def position(self, name: str) -> Position:
        """What it, whose name is `name`, has for one more run. Raises LookupError as `largest`."""
        standing = self.standing if self.individual else None
        return Position.of(name, self.terms, self.base(), self.committed(), standing)

    def start(self, run: Run) -> None:
        """Note that `run` is under way."""
        run.whole, self.left = budget.reserved(run.charge, self.left)
        self.runs.append(run)
        self._charge(run, 1)

    def end(self, run: Run, values: dict[str, Any]) -> None:
        """Note that `run`, one of `runs`, has ended, and with it what `values` says."""
        self.runs.remove(run)
        self._charge(run, -1)
        run.values |= values
        self._charge(run, 1)

    def recompute(self, run: Run, digest: str) -> None:
        """Note that the charges of `run`, which has ended, are recomputed for single users."""
        self._charge(run, -1)
        run.values["accounting"], run.recomputed = odometers.INDIVIDUAL, digest
        self._charge(run, 1)

    def _charge(self, run: Run, sign: int) -> None:
        self.alike.add(budget.parts(run.charge, run.whole).committed, sign)


def _with(common: Price, largest: int) -> Price:
    return common + (Price(from_units(largest)) if largest else Price())


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
    """The state of the ledger after the journal rows that `apply` was given, in order.

    thorough: check again what costs minutes or gigabytes in a ledger of millions of rounds: that each sampled run's
    price is what its plan costs, and that no two rounds have one nonce (which the database's index refuses too).
    """

    def __init__(self, thorough: bool = True) -> None:
        self._thorough = thorough
        self.populations: dict[str, Population] = {}
        self.runs: dict[str, Run] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.proposals: dict[str, dict[str, Any]] = {}
        self.counts = {"rounds": 0, "participations": 0, "users": 0}
        """How many rows these tables must have."""
        self._keys: set[str] = set()
        """Commitments to the noise keys of all runs without a fixed seed."""
        self._seeds: dict[tuple[str, str], list[str]] = {}
        """(population, digest of a plan) -> the seeds that its certified charges were drawn from, in order."""
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
            handler(row, _decode(row["body"]))
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
        created = {"created_at": row["at"], "created_by": row["actor"]}
        bound = {"bound_epsilon": body["epsilon"], "bound_delta": body["delta"]}
        start["accounting"] = body.get("accounting", odometers.WORST_CASE)
        kept = start["accounting"] == odometers.INDIVIDUAL
        self._require(row, not kept or body["adjacency"] != "add_remove", "its odometers would tell who is there")
        self.populations[name] = Population({**_NO_RULES, **body, **start, **bound, **created}, left=leak)
        self._require_below_ceiling(row, self.populations[name].values)

    def _population_raise(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        values = self.populations[row["population"]].values
        self._require(row, values["state"] == "open", "a closed budget is raised")
        higher = body["epsilon"] >= values["epsilon"] and body["delta"] >= values["delta"]
        self._require(row, higher, "a raise lowers a budget")
        self._require_old(row, body, values)
        if values["two_persons"]:
            proposal = self._waiting(row, body["proposal"])
            same = (proposal["epsilon"], proposal["delta"]) == (body["epsilon"], body["delta"])
            self._require(row, same, "another raise was proposed")
            self._require(row, proposal["person"] != body["person"], "one person proposed and approved it")
            proposal |= {"state": "approved", "decided_at": row["at"], "decided_by": row["actor"]}
        values |= {"epsilon": body["epsilon"], "delta": body["delta"]}
        self._require_below_ceiling(row, values)
        bound, new = ((values[f"{which}epsilon"], values[f"{which}delta"]) for which in ("bound_", ""))
        bound = budget.larger(bound, new, values["leak"])
        values |= {"bound_epsilon": bound[0], "bound_delta": bound[1]}

    def _population_propose(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        values = self.populations[row["population"]].values
        self._require(row, values["two_persons"], "a raise is proposed where none is needed")
        self._require(row, body["id"] not in self.proposals, "it is proposed twice")
        self._require_old(row, body, values)
        opened = {"state": "waiting", "proposed_at": row["at"], "proposed_by": row["actor"]}
        shown = {name: body[name] for name in ("id", "epsilon", "delta", "reason", "person")}
        undecided = {"decided_at": None, "decided_by": None}
        self.proposals[body["id"]] = {**shown, **opened, **undecided, "population": row["population"]}

    def _population_withdraw(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        proposal = self._waiting(row, body["proposal"])
        proposal |= {"state": "withdrawn", "decided_at": row["at"], "decided_by": row["actor"]}

    def _waiting(self, row: Mapping[str, Any], proposal: str) -> dict[str, Any]:
        waiting = proposal in self.proposals and self.proposals[proposal]["state"] == "waiting"
        self._require(row, waiting, "no such proposal waits")
        found = self.proposals[proposal]
        self._require(row, found["population"] == row["population"], "it was proposed for another population")
        return found

    def _population_tighten(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        values = population.values
        self._require(row, values["state"] == "open", "a closed budget is tightened")
        lower = body["epsilon"] <= values["epsilon"] and values["leak"] < body["delta"] <= values["delta"]
        self._require(row, lower, "tightening raises a budget")
        self._require_old(row, body, values)
        values |= {"epsilon": body["epsilon"], "delta": body["delta"]}
        fits = self._holds(row, population, Price(), body.get("largest"))
        self._require(row, fits, "more than the new budget is committed")

    def _population_close(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self.populations[row["population"]].values["state"] = "closed"

    def _population_odometers(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        secret = population.values["adjacency"] == "add_remove"
        self._require(row, not secret, "its odometers would tell who is there")
        self._require(row, body["users"] == population.values["users"], "it counts other users")
        for run_id, digest in body["runs"].items():
            run = self.runs[run_id]
            ours = run.values["population"] == row["population"] and not run.active
            self._require(row, ours and not run.individual, f"run {run_id} cannot be recomputed")
            population.recompute(run, digest)
        population.values["accounting"] = odometers.INDIVIDUAL
        population.settled = body["odometers"]
        self._step(row, "recompute", body)

    def _charge_reserve(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        largest = body.pop("largest", None)
        self._require(row, body["key"] not in population.charges, "its key names another charge")
        self._require(row, population.values["state"] == "open", "a closed population is charged")
        price = Price.from_json(body["price"])
        # Negative parts would give back what others have spent.
        self._require(row, price.mu_squared >= 0 and price.leak >= 0, "its price is below 0")
        self._require(row, self._holds(row, population, price, largest), "it does not fit in the budget")
        population.charges[body["key"]] = {**body, "state": "reserved", "reserved_at": row["at"], "closed_at": None}
        population.alike.add(price)

    def _charge_commit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._close_charge(row, body, "committed")

    def _charge_release(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        charge = self._close_charge(row, body, "released")
        self.populations[row["population"]].alike.add(Price.from_json(charge["price"]), -1)

    def _close_charge(self, row: Mapping[str, Any], body: dict[str, Any], state: str) -> dict[str, Any]:
        charge = self.populations[row["population"]].charges[body["key"]]
        self._require(row, charge["state"] == "reserved", "it closes a charge that is not reserved")
        charge |= {"state": state, "closed_at": row["at"]}
        return charge

    def _population_reopen(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        values = self.populations[row["population"]].values
        self._require(row, values["state"] == "closed", "an open population is opened")
        values["state"] = "open"

    def _require_old(self, row: Mapping[str, Any], body: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        # Rows of versions before 0003 name no old value.
        old = body.get("old")
        same = old is None or old == {"epsilon": values["epsilon"], "delta": values["delta"]}
        self._require(row, same, "the old value that it names is another")

    def _require_below_ceiling(self, row: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        for name in ("epsilon", "delta"):
            ceiling = values[f"ceiling_{name}"]
            self._require(row, ceiling is None or values[name] <= ceiling, f"its {name} is above the ceiling")

    def _users_register(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        self._require(row, body["first"] == population.values["users"], "users are not numbered one after another")
        population.values["users"] += body["count"]
        self._step(row, "register", body)
        pledged = body.get("pledged", {})
        for run in population.runs:
            if body["count"] and run.individual:
                run.newcomers.append((body["first"], body["count"], pledged[run.values["id"]]))
        if body["count"]:
            population.chunks.append(body)
            self.counts["users"] += 1

    def _run_certify(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, row["population"] in self.populations, "a charge is certified for no population")
        self._require(row, row["run"] not in self.runs, "a charge is certified after its run was started")
        seeds = self._seeds.setdefault((row["population"], body["plan_digest"]), [])
        self._require(row, body["attempt"] == len(seeds) + 1, "certificates are not numbered one after another")
        self._require(row, len(bytes.fromhex(body["seed"])) == 16, "its seed has another length")
        seeds.append(body["seed"])

    def _require_certified(self, row: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """Require that the seed of a certified charge was written down before, with the number that the charge uses."""
        seeds = self._seeds.get((row["population"], body["plan_digest"]), [])
        for curve in budget.loss(body["planned"]).certified:
            drawn = curve.attempt <= len(seeds) and seeds[curve.attempt - 1] == curve.seed
            self._require(row, drawn, "the seed of its certified charge is not in the journal")

    def _run_start(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        population = self.populations[row["population"]]
        self._require(row, row["run"] not in self.runs, f"run {row['run']} is started twice")
        self._require(row, population.values["state"] == "open", "a run is charged to a closed population")
        fresh = body["noise_source"] == SEEDED or body["key_commitment"] not in self._keys
        self._require(row, fresh, "its noise key has served another run")
        if body["noise_source"] != SEEDED:
            self._keys.add(body["key_commitment"])
        private = body["noise_source"] != SEEDED or population.values["simulated"]
        self._require(row, private, "a fixed noise seed is charged to real people")
        self._require(row, "price" in body or not self._priced, "it has no price, and newer rows come before it")
        self._priced |= "price" in body
        self._require_certified(row, body)
        fits = self._fits(row, body) if "price" in body else self._fitted(row["population"], body)
        self._require(row, fits, "its reservation does not fit in the budget")
        plan = body.pop("plan")
        body.setdefault("price", None)
        body.setdefault("accounting", odometers.WORST_CASE)
        body.setdefault("most", None)
        pledged = body.pop("pledged", None)
        individual = body["accounting"] == odometers.INDIVIDUAL
        self._require(row, population.individual or not individual, "it is charged to odometers that there are none of")
        self._require(row, (pledged is not None) == individual, "it is pledged otherwise than it is charged")
        if individual:
            self._step(row, "start", {"most": body["most"], "pledged": pledged})
        body.pop("largest", None)
        start = {
            "strategy": body.get("strategy"),  # rows of the ledger's first version name none
            "spent": budget.NOTHING.to_json(),
            "next_round": 0,
            "checkpoint": None,
            "ended_at": None,
            "message": "",
            "id": row["run"],
        }
        started = {
            "id": row["run"],
            "population": row["population"],
            "started_at": row["at"],
            "started_by": row["actor"],
        }
        run = Run(
            {"format": 0, **body, **start, **started, "state": "running", "request": None}, plan, pledged=pledged or ""
        )
        self.runs[row["run"]] = run
        population.start(run)

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
        population = self.populations[row["population"]]
        settled = budget.loss(population.values["settled"]) + run.spent
        self._require(row, body["spent"] == run.values["spent"], "it names a loss other than the committed one")
        self._require(row, budget.loss(body["settled"]) == settled, "the settled total is not the sum")
        population.values["settled"] = body["settled"]
        self._require(row, ("odometers" in body) == run.individual, "it settles otherwise than the run was charged")
        if run.individual:
            population.settled = body["odometers"]
            run.newcomers.clear()
            self._step(row, "finish", {"odometers": body["odometers"]})
        ended = {"state": body["state"], "message": body["message"], "request": None, "ended_at": row["at"]}
        population.end(run, ended)

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
        self._require(row, body["attempt"] == run.tries, "attempts are not numbered one after another")
        run.attempts[key] = Attempt(
            {
                "state": "open",
                "noise_row": body["noise_row"],
                "cohort_size": body["cohort_size"],
                "cohort": body["cohort"],
                "reports": 0,
                "participants": 0,
                "rejects": {},
                "reason": "",
                "statistics": _EMPTY,
                "spent": None,
                "epsilon": None,
                "checkpoint": None,
                "nonce": None,
                "opened_at": row["at"],
                "closed_at": None,
            }
        )
        run.open = key
        run.tries += 1
        self.counts["rounds"] += 1

    def _round_void(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        _, attempt = self._close(row, body)
        reported = {name: body[name] for name in ("reason", "reports", "rejects")}
        attempt.values |= {**reported, "state": "void", "closed_at": row["at"], "cohort": None}

    def _round_commit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        run, attempt = self._close(row, body)
        spent = budget.loss(body["spent"])
        self._require(row, budget.at_most(run.spent, spent), "the charge shrinks")
        self._require(row, budget.at_most(spent, run.planned), "the charge exceeds what was reserved")
        self._require(
            row,
            body["noise_row"] == attempt.values["noise_row"],
            "its noise row is not the one it was opened with",
        )
        nonce = body.get("nonce")
        self._check_nonce(row, run, nonce)
        attempt.values |= {
            "state": "committed",
            "spent": body["spent"],
            "epsilon": body["epsilon"],
            "checkpoint": body["checkpoint"],
            "nonce": nonce,
            "statistics": body["statistics"],
            "reports": body["reports"],
            "rejects": body["rejects"],
            "participants": body["participant_count"],
            "closed_at": row["at"],
            "cohort": None,
        }
        attempt.users, attempt.charges = body["participants"], body.get("charges")
        self._require(row, (attempt.charges is not None) == run.individual, "it charges otherwise than the run does")
        if run.individual:
            self._step(row, "commit", {})
        next_round = row["round"] + 1
        run.values |= {"spent": body["spent"], "checkpoint": body["checkpoint"], "next_round": next_round}
        run.tries = 0
        self.counts["participations"] += 1

    def _check_nonce(self, row: Mapping[str, Any], run: Run, nonce: str | None) -> None:
        needed = has_nonces(run.values["format"], run.values["noise_source"])
        self._require(
            row, (nonce is not None) == needed, "it has no nonce" if needed else "it has a nonce it cannot have"
        )
        if nonce is not None:
            self._require(row, len(bytes.fromhex(nonce)) == NONCE_BYTES, "its nonce has another length")
        if nonce is not None and self._thorough:
            label = f"round {row['round']} of run {row['run']}"
            first = self._nonces.setdefault(nonce, label)
            self._require(row, first == label, f"its nonce is that of {first}")

    def _token_create(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, body["id"] not in self.tokens, "a token is created twice, which would revive a revoked one")
        created = {"created_at": row["at"], "created_by": row["actor"], "revoked_at": None, "populations": None}
        limited = body.get("populations")
        if limited is not None:
            created["populations"] = " ".join(limited)
        self.tokens[body["id"]] = {**body, "scopes": " ".join(body["scopes"]), **created}

    def _token_revoke(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self.tokens[body["id"]]["revoked_at"] = row["at"]

    def _token_use(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, body["id"] in self.tokens, "a token is used that was never created")

    def _node_admit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, len(body["key"]) == 64 and body["most_users"] >= 1, "a node is admitted for no users")

    def _node_release(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, len(body["key"]) == 64, "a node without a key is released")

    def _run_audit(self, row: Mapping[str, Any], body: dict[str, Any]) -> None:
        self._require(row, row["run"] in self.runs, "a run is audited that was never started")

    def _running(self, row: Mapping[str, Any]) -> Run:
        run = self.runs[row["run"]]
        self._require(row, run.active, "the run has ended")
        return run

    def _close(self, row: Mapping[str, Any], body: dict[str, Any]) -> tuple[Run, Attempt]:
        run = self._running(row)
        key = (row["round"], body["attempt"])
        self._require(row, run.open == key, "it closes a round that is not open")
        run.open = None
        return run, run.attempts[key]

    def _fits(self, row: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
        """Whether a run's price is what its planned loss costs, and fits in the population's rectangle."""
        population, planned = self.populations[row["population"]], budget.loss(body["planned"])
        if (self._thorough or not planned.amplified) and not budget.is_price(planned, body["price"]):
            return False
        price = Price.from_json(body["price"])
        if body.get("accounting") == odometers.INDIVIDUAL:
            # What users have left for it is checked with their odometers, which the journal alone does not hold.
            return population.base().leak + price.leak <= population.terms.leak
        return self._holds(row, population, price, body.get("largest"))

    def _holds(self, row: Mapping[str, Any], population: Population, price: Price, largest: int | None) -> bool:
        """Whether `price` fits with what is committed. largest: `Population.largest` of then, as the row says."""
        self._require(row, (largest is not None) == population.individual, "it names the largest odometer, or none")
        self._require(row, largest is None or largest >= 0, "it names a largest odometer below 0")
        if largest is not None:
            self._step(row, "largest", {"largest": largest})
        return population.terms.hold(_with(population.base(), largest or 0) + price)

    def _step(self, row: Mapping[str, Any], kind: Kind, body: dict[str, Any]) -> None:
        """Note a step of a population with odometers, for a thorough replay."""
        population = self.populations[row["population"]]
        if not (self._thorough and population.individual):
            return
        limit = base = 0
        if kind in ("start", "register", "largest"):
            limit, base = odometers.limit_units(population.terms), odometers.units_of(population.base())
        population.steps.append(Step(str(row["id"]), kind, body, row["run"], row["round"], limit, base))

    def _fitted(self, name: str, body: Mapping[str, Any]) -> bool:
        """Whether a run of the first version fitted by the rule of then: the composed loss of all runs."""
        if not self._thorough:
            return True
        values = self.populations[name].values
        settled = PrivacyLoss.from_json(values["settled"])
        active = (run.planned for run in self.runs.values() if run.active and run.values["population"] == name)
        total = budget.compose([settled, *active, PrivacyLoss.from_json(body["planned"])])
        return bool(total.epsilon(values["delta"]) <= values["epsilon"])


_raw_decode = json.JSONDecoder().raw_decode


def _decode(text: Any) -> Any:
    """`json.loads`, without its search for spaces around an object that has none."""
    if type(text) is str and text[:1] == "{":
        value, end = _raw_decode(text)
        if end == len(text):
            return value
    return json.loads(text)


_EMPTY = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
"""SHA-256 of `{}`."""
