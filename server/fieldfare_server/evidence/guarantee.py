"""What a run promises its users, on which assumptions, and what it does not promise: for the page and for reports.

Every number is the ledger's, or follows from the ledger's plan and charge by the mechanism's own mathematics. A plan
that this version cannot read any more still gets a card, with the ledger's columns alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from pydantic import BaseModel, ConfigDict

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import FieldfareError
from fieldfare.mechanisms import Mechanism, build
from fieldfare.participation import Adjacency, Participation, Single, adjacency_factor
from fieldfare.plan import Plan
from fieldfare.privatise import Rounding
from fieldfare_server.ledger.models import SEEDED
from fieldfare_server.ledger.views import PopulationView, RunView


class Fact(BaseModel):
    """One line of the guarantee card: what, and in plain words."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: str


class Guarantee(BaseModel):
    """What is promised, under which assumptions, and what is not covered."""

    model_config = ConfigDict(frozen=True)

    statement: str
    facts: tuple[Fact, ...]
    not_covered: tuple[str, ...]


ADJACENCY: dict[Adjacency, str] = {
    "zero_out": "zero-out: all updates of one user replaced by zero; who was available and how many reported is public",
    "add_remove": "add or remove: one user is there or not, with everything that user would have contributed",
    "replace_one": "replace one: one user's updates replaced by any other user's; counted as twice the sensitivity",
}

NOT_COVERED = (
    "Whoever runs the server: it sees each node's sum before noise is added, and holds the noise key.",
    "What reveals itself outside of the released models and statistics: network traffic, timing, a node's own disk.",
    "What can be learned about a user from other people's data, or from other releases about the same user.",
    "The task's held-out data, on which scores are measured; its people are not users of the population.",
)

ROUNDING: dict[Rounding, str] = {
    "grid": "each reply is snapped to a grid before it is summed, double-precision noise to the same grid; the noise "
    "is larger by what snapping can move",
    "discrete": "each reply is snapped to a grid before it is summed, the noise is an exact discrete Gaussian on it, "
    "larger by what snapping can move",
    "none": "none: noise is drawn and added in single precision",
}

FLOATING_POINT: dict[Rounding, str] = {
    "grid": "The last bits of drawing noise: the probability of a released value is right to about one part in a "
    "million, mostly much better. Rounding during training on a node that hosts several users.",
    "discrete": "Rounding during training on a node that hosts several users.",
    "none": "Rounding: noise is drawn and added in floating point, the mathematics is that of real numbers.",
}

_BY_ADJACENCY: dict[Adjacency, tuple[str, ...]] = {
    "zero_out": ("Who was available and asked, and how many replies were counted or refused: public by adjacency.",),
    "replace_one": ("How many users there are, and how many replies were counted or refused: public by adjacency.",),
    "add_remove": (),
}


@dataclass(frozen=True)
class PlanFacts:
    """What a plan and its planned charge say together."""

    plan: Plan
    mechanism: Mechanism
    participation: Participation
    sensitivity: float
    bound: str
    how: str
    noise_multiplier: float | None
    separation: int
    max_participations: int


@lru_cache(maxsize=256)
def _plan_facts(plan_json: str, planned: PrivacyLoss) -> PlanFacts:
    plan = Plan.stored(json.loads(plan_json))
    participation = plan.participation.build()
    mechanism = build(plan.mechanism, plan.run.rounds, participation)
    alone = mechanism.sensitivity(participation)
    sensitivity = adjacency_factor(plan.privacy.adjacency) * float(alone)
    separation, most = participation.separation_and_count(plan.run.rounds)
    return PlanFacts(
        plan=plan,
        mechanism=mechanism,
        participation=participation,
        sensitivity=sensitivity,
        bound=alone.bound,
        how=alone.how,
        noise_multiplier=_multiplier(planned, mechanism, sensitivity),
        separation=separation,
        max_participations=most,
    )


def _multiplier(planned: PrivacyLoss, mechanism: Mechanism, sensitivity: float) -> float | None:
    """The noise multiplier that the ledger's charge implies: 2 rho = (sensitivity / sigma)^2; sampled events have sigma
    over the longest column."""
    if planned.sampled:
        multipliers = {event.noise_multiplier for event in planned.sampled}
        return multipliers.pop() * float(mechanism.sensitivity(Single())) if len(multipliers) == 1 else None
    return sensitivity / math.sqrt(2 * planned.rho) if planned.rho > 0 else None


def plan_facts(run: RunView) -> PlanFacts | None:
    """The plan of a run, understood; None when this version cannot read it."""
    try:
        return _plan_facts(_json(run.plan), run.planned)
    except (FieldfareError, ValueError, TypeError):
        return None


def _json(plan: object) -> str:
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def accountant() -> str:
    """The accountant's name and version."""
    try:
        return f"fieldfare.accounting {metadata.version('fieldfare')}"
    except metadata.PackageNotFoundError:
        return "fieldfare.accounting (source tree)"


def up(value: float) -> str:
    """An epsilon for people, rounded up: a statement must not promise more than holds."""
    digits = 2 if value >= 1 else 3
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def guarantee(run: RunView, population: PopulationView) -> Guarantee:
    """The guarantee card of a run."""
    facts = plan_facts(run)
    unit = population.unit
    statement = (
        f"Everything this run releases is ({up(run.planned_epsilon)}, {run.delta:g})-differentially private for every "
        f"{unit} once all {run.rounds} rounds are committed; ({up(run.spent_epsilon)}, {run.delta:g}) so far. With all "
        f"other runs charged to {run.population}: {up(population.committed_epsilon)} committed of "
        f"{population.epsilon:g}."
    )
    private = run.noise_source != SEEDED
    if not private:
        statement = (
            "NOT PRIVATE: the noise comes from a fixed seed. The figures say what a secret key would have given."
        )
    lines = [
        Fact(name="Unit", value=f"{unit}, over the whole training"),
        Fact(name="Adjacency", value=ADJACENCY[run.adjacency]),
        *(
            _plan_lines(facts, run.planned)
            if facts
            else [Fact(name="Plan", value="written by another version; see the audit log")]
        ),
        Fact(name="Trust", value="central: the server is trusted with each node's clipped sum, and adds the noise"),
        Fact(name="Noise source", value=_source(facts) if private else "fixed seed"),
        Fact(name="Accountant", value=f"{accountant()}, {_method(run.planned)}"),
    ]
    return Guarantee(statement=statement, facts=tuple(lines), not_covered=_not_covered(run, population, facts))


def _plan_lines(facts: PlanFacts | None, planned: PrivacyLoss) -> list[Fact]:
    if facts is None:
        return [Fact(name="Plan", value="written by another version; see the audit log")]
    clipping = facts.plan.clipping
    sigma = facts.noise_multiplier
    once = f"at most {facts.max_participations} of {facts.plan.run.rounds} rounds"
    apart = f", at least {facts.separation} rounds apart" if facts.max_participations > 1 else ""
    scheme = facts.plan.participation.scheme
    return [
        Fact(name="Mechanism", value=f"{facts.mechanism.kind}, {facts.plan.run.rounds} rounds"),
        Fact(name="Participation", value=f"{scheme}: {once}{apart}; enforced when users are selected"),
        Fact(
            name="Sampling assumption",
            value=_sampling(facts.participation, planned),
        ),
        Fact(name="Clip norm", value=f"{clipping.norm:g} ({clipping.kind})"),
        Fact(name="Noise multiplier", value=f"{sigma:.4g}" if sigma else "varies"),
        Fact(name="Sensitivity", value=f"{facts.sensitivity:.4g} ({facts.bound}: {facts.how})"),
        Fact(name="Rounding", value=ROUNDING[facts.plan.privacy.rounding]),
    ]


def _sampling(participation: Participation, planned: PrivacyLoss) -> str:
    if not planned.sampled:
        return "none: no amplification by sampling is claimed"
    rate = f"{getattr(participation, 'rate', 1.0):.4g}"
    return f"each user by a coin of its own, with probability {rate}; amplification by sampling is claimed"


def _source(facts: PlanFacts | None) -> str:
    names = {"aes-256-ctr": "AES-256 in counter mode", "philox-4x32-10": "Philox, which is not cryptographic"}
    name = names.get(facts.plan.privacy.noise_source, "another") if facts else "recorded as secure"
    return f"{name}; 256 random bits of key for this run alone"


def _method(loss: PrivacyLoss) -> str:
    if loss.sampled:
        return "privacy loss distributions for sampled rounds"
    if loss.concentrated:
        return "zero-concentrated DP of one correlated release, converted to (epsilon, delta)"
    return "exact Gaussian trade-off of one correlated release"


def _not_covered(run: RunView, population: PopulationView, facts: PlanFacts | None) -> tuple[str, ...]:
    rounding: Rounding = facts.plan.privacy.rounding if facts else "none"
    lines = [*_BY_ADJACENCY[run.adjacency], *NOT_COVERED, FLOATING_POINT[rounding]]
    if run.trust_node_ids:
        lines.insert(0, "Nodes that lie about whose data they hold: participation limits rely on the ids they claim.")
    if facts is not None and facts.plan.privacy.noise_source != "aes-256-ctr":
        lines.insert(0, "An attacker who can predict the noise generator, which is not a cryptographic one.")
    if population.simulated:
        lines.insert(0, "Anybody: the population is marked as simulated.")
    if run.noise_source == SEEDED:
        lines.insert(0, "Anything at all: who knows the seed can take the noise away.")
    if facts is not None and facts.plan.run.trust_node_ids != run.trust_node_ids:
        lines.insert(0, "The plan and the ledger disagree on whether node ids are trusted.")
    return tuple(lines)
