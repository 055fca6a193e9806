"""The numbers of a privacy statement: what the ledger holds about a run now, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fieldfare.accounting.filter import Price
from fieldfare.participation import hides_presence
from fieldfare.text import decimal
from fieldfare_server.evidence.canaries import describe_point
from fieldfare_server.evidence.document import Guarantee
from fieldfare_server.evidence.guarantee import accountant, guarantee
from fieldfare_server.evidence.plan_facts import PlanFacts, plan_facts
from fieldfare_server.ledger import Head, views, watch
from fieldfare_server.ledger.events.runs import Audited
from fieldfare_server.ledger.reads import Reader


@dataclass(frozen=True)
class RunEvidence:
    """A run, its population, and what else the statement rests on.

    `charged` are the other runs of the population that have spent something. `counts` maps a number of rounds
    to the users who took part in as many. `test` is the newest residual test, if there is one. `price` is
    what the run reserved of the population's rectangle. `others`: what was charged beside runs.
    """

    run: views.RunView
    population: views.PopulationView
    facts: PlanFacts | None
    card: Guarantee
    counts: dict[int, int]
    charged: list[views.RunView]
    test: views.JournalView | None
    head: Head
    price: Price
    together: views.Together | None
    others: tuple[views.ChargeView, ...]

    @property
    def realised_most(self) -> int:
        """The most rounds in which one user took part."""
        return max((times for times, users in self.counts.items() if users), default=0)


def gather(ledger: Reader, run_id: str, root: Path | None = None) -> RunEvidence:
    """Return what the ledger holds about a run. Raises `BadInput` if there is no such run.

    root: the state directory, see `plan_facts`.
    """
    run = ledger.run(run_id)
    facts = plan_facts(run, root)
    population = ledger.population(run.population)
    others = views.every(partial(ledger.runs, population=run.population))
    return RunEvidence(
        run=run,
        population=population,
        facts=facts,
        card=guarantee(run, population, facts),
        counts=ledger.participation_histogram(run_id),
        charged=[each for each in others if each.id != run_id and (each.next_round or each.spent_epsilon > 0)],
        test=watch.newest_row(ledger, run_id, Audited.action),
        head=ledger.head(),
        price=next(each.charge.price for each in ledger.priced_runs(run.population) if each.seq == run.seq),
        together=ledger.together(population),
        others=tuple(each for each in ledger.charges(run.population) if each.state != "released"),
    )


def format_time(seconds: float | None) -> str:
    """Return seconds since 1970 as UTC; a dash for None."""
    return "—" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def describe_canaries(canaries: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what people read of an attack: (name, value) of each figure. `canaries`: as the journal has it.

    An attack without a standard error has as `claimed` what the whole run planned to spend, and no trade-off.
    """
    error, estimate = canaries.get("gaussian_standard_error"), canaries["gaussian_estimate"]
    against = f"spent {canaries['spent']:.3g}" if "spent" in canaries else f"planned {canaries['claimed']:.3g}"
    bounds = (
        ("threshold_lower_bound", "threshold"),
        ("clopper_pearson_lower_bound", "Clopper-Pearson"),
        ("one_run_lower_bound", "one run"),
    )
    figures = [
        (f"Lower bound on epsilon ({name})", f"{canaries[key]:.3g}" if canaries[key] > 0 else "no evidence")
        for key, name in bounds
        if key in canaries
    ]
    if estimate is not None:
        spread = "" if error is None else f", standard error {error:.2g}"
        figures.append(("Estimate of epsilon (Gaussian), no bound", f"{estimate:.3g}{spread}"))
    points = canaries.get("tradeoff", [])
    figures.append(("Epsilon in the ledger", against + (f", at delta {decimal(canaries['delta'])}" if points else "")))
    return figures + [(f"Trade-off at epsilon {point['epsilon']:g}", describe_point(point)) for point in points]


def to_json(evidence: RunEvidence) -> dict[str, object]:
    """Return the statement's numbers. Epsilons are exact here; sentences round them up."""
    run, population, facts = evidence.run, evidence.population, evidence.facts
    hidden, test, server = hides_presence(run.adjacency), evidence.test, run.against_server
    return {
        "run": run.id,
        "population": population.name,
        "private": run.private,
        "simulated": population.simulated,
        "statement": evidence.card.statement,
        "unit": population.unit,
        "adjacency": run.adjacency,
        "trust_model": "central",
        "state": run.state,
        "rounds": run.rounds,
        "committed_rounds": run.next_round,
        "delta": run.delta,
        "epsilon_spent": run.spent_epsilon,
        **({} if server is None else {"epsilon_server": server.epsilon(run.delta)}),
        "epsilon_planned": run.planned_epsilon,
        # Sampled rounds compose by privacy loss distributions, which rho and mu do not describe.
        "rho_zcdp": run.held[0].zcdp,
        "mu_gdp": run.held[0].gdp,
        "population_epsilon": {
            "spent": population.spent_epsilon,
            "committed": population.committed_epsilon,
            "limit": population.epsilon,
            "delta": population.delta,
        },
        "accountant": accountant(),
        "facts": {fact.name: fact.value for fact in evidence.card.facts},
        "noise_multiplier": None if facts is None else facts.noise_multiplier,
        "sensitivity": None if facts is None else facts.sensitivity,
        "participation": {
            "assumed_most": None if facts is None else facts.max_participations,
            "assumed_separation": None if facts is None else facts.separation,
            "realised_most": None if hidden else evidence.realised_most,
            "realised_users_by_rounds": (
                None if hidden else {str(times): users for times, users in evidence.counts.items()}
            ),
        },
        "other_runs_charged": [
            {"run": other.id, "epsilon_spent": other.spent_epsilon, "state": other.state} for other in evidence.charged
        ],
        "charges_of_others": [
            {"key": other.key, "what": other.what, "loss": other.loss, "state": other.state}
            for other in evidence.others
        ],
        "plan": run.plan,
        "plan_digest": run.plan_digest,
        "trust_node_ids": run.trust_node_ids,
        "noise_audit": None if test is None else {"at": format_time(test.at), **test.body},
        "not_covered": list(evidence.card.not_covered),
        "warnings": list(evidence.card.warnings),
    }
