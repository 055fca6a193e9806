"""A run as an entry of the Differential Privacy Deployments Registry (registry.opendp.org), tier 3.

The fields are those of the registry's entries (arXiv 2509.13509;
github.com/opendp/deployments-registry-data). JSON is valid YAML, so the entry can be submitted as it is once
the curator has filled in what no ledger knows: those fields are null, and `missing` lists them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fieldfare.errors import NotAllowed
from fieldfare.names import is_question, mechanism_word, task_words
from fieldfare.text import promised, up
from fieldfare_server.evidence.document import Guarantee
from fieldfare_server.evidence.guarantee import ADJACENCY, PUBLIC, accountant, guarantee
from fieldfare_server.evidence.plan_facts import PlanFacts, plan_facts
from fieldfare_server.ledger import views
from fieldfare_server.ledger.reads import Reader


def registry_entry(ledger: Reader, run_id: str, root: Path | None = None) -> dict[str, object]:
    """Return a tier 3 entry, as a dict for JSON. root: the state directory, see `plan_facts`.

    Raises:
        BadInput: there is no such run, or its noise was not secret, so that it is no deployment.
    """
    run = ledger.run(run_id)
    if not run.private:
        raise NotAllowed(
            f"a registry entry for run {run.id!r}", "its noise comes from a fixed seed: it is not private."
        )
    population = ledger.population(run.population)
    facts = plan_facts(run, root)
    card = guarantee(run, population, facts)
    entry = {
        "url_slug": f"fieldfare-{run.id}".lower(),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "product": _product(run),
            "dp_flavor": _flavor(run, population, card),
            "privacy_loss": _loss(run, population),
            "model": _model(run, population),
            "accounting": _accounting(run, population),
            "implementation": _implementation(run, population, facts, card),
            "resources": {"sources": None, "registry_authors": []},
        },
    }
    return entry | {"missing": missing(entry)}


def missing(entry: dict[str, object], path: str = "") -> list[str]:
    """Return the dotted names of fields that are null or empty."""
    names: list[str] = []
    for name, value in entry.items():
        if isinstance(value, dict):
            names += missing(value, f"{path}{name}.")
        elif value is None or value == []:
            names.append(path + name)
    return names


def _product(run: views.RunView) -> dict[str, object]:
    ended, asks = run.ended_at, is_question(run.plan)
    return {
        "name": None,
        "data_curators": [],
        "intended_use": None,
        "data_product_type": "Statistics" if asks else "Machine learning model",
        "data_product_region": None,
        "description": None,
        "publication_date": None if ended is None else datetime.fromtimestamp(ended, UTC).strftime("%Y-%m-%d"),
        "data_product_sector": None,
    }


def _flavor(run: views.RunView, population: views.PopulationView, card: Guarantee) -> dict[str, object]:
    unprotected = [line for line in card.not_covered if PUBLIC in line]
    sent = "One bounded vector" if is_question(run.plan) else "Sequences of clipped model updates, one a round,"
    return {
        "name": run.spent.words.flavor,
        "data_domain": f"{sent} of each {population.unit} of the population.",
        "unprotected_quantities": " ".join(unprotected) or "None by adjacency.",
    }


def _loss(run: views.RunView, population: views.PopulationView) -> dict[str, object]:
    loss, epsilon = run.held
    parameters: dict[str, float] = {"epsilon": epsilon, "delta": run.delta}
    parameters |= {name: value for name, value in (("rho", loss.zcdp), ("mu", loss.gdp)) if value is not None}
    return {
        "privacy_unit": f"{population.unit.capitalize()}-level",
        "privacy_unit_description": f"{ADJACENCY[run.adjacency]}. Over all rounds of the run.",
        "privacy_parameters": parameters,
        "privacy_parameters_description": (
            f"Of this run, whatever decided its end. All runs on the same {population.unit}s together are limited to "
            f"epsilon {up(population.bound_epsilon, 6):g} at delta {promised(population.bound_delta)}; "
            f"{up(population.spent_epsilon, 6):g} of it is used."
        ),
    }


def _model(run: views.RunView, population: views.PopulationView) -> dict[str, object]:
    asks = is_question(run.plan)
    does = "draws the answer" if mechanism_word(run.plan) == "exponential" else "adds the noise"
    return {
        "model_name": "Central",
        "actors": (
            f"Nodes hold the {population.unit}s' data, compute on them locally and clip. The server sums, {does} and "
            "keeps its key; it is trusted to do so. Everyone else sees what is released only and need not be trusted."
        ),
        "release_type": "One release" if asks else "Many releases",
        "release_type_description": (
            "The answer." if asks else f"The model after each of {run.next_round} committed rounds; all are covered."
        ),
        "data_source_type": "Dynamic",
        "data_source_type_description": "Nodes use the data that they hold when they are selected.",
        "access_type": "Non-interactive",
    }


def _accounting(run: views.RunView, population: views.PopulationView) -> dict[str, object]:
    return {
        "post_processing": "Server optimizer, evaluation on held-out data and statistics use only privatised sums.",
        "composition": (
            f"Within the run: {accountant()}; the charge is for the mechanism that ran and the participation that was "
            f"realised. Between runs: {population.runs_total} runs of the population compose in one ledger, which "
            f"refuses a run that would exceed epsilon {up(population.epsilon, 6):g}."
        ),
    }


def _implementation(
    run: views.RunView, population: views.PopulationView, facts: PlanFacts | None, card: Guarantee
) -> dict[str, object]:
    lines = [f"{fact.name}: {fact.value}." for fact in card.facts if fact.name not in ("Unit", "Adjacency")]
    lines += list(card.not_covered)
    tuned = population.runs_total - 1
    return {
        "pre_processing_eda_hyperparameter_tuning": (
            f"{tuned} other runs on the same population; each is charged to the same budget. Plan {run.plan_digest}"
            + (f", task {task_words(run.plan)}." if facts else ".")
        ),
        "mechanisms": "\n".join(f"- {line}" for line in lines),
        "justification": None,
    }
