"""The privacy statement of a run, for a lawyer and for a reviewer.

The items are those that the reporting guidelines for differentially private learning ask for (Ponomareva et
al. 2023, "How to DP-fy ML", section 5.3): setting, unit, adjacency, what is released, mechanism and
parameters, accounting and its assumptions, the formal statement, tuning, and what is not covered. Every
number is the ledger's, or follows from the ledger's plan and charge. Epsilons are rounded up in sentences and
tables, and exact in JSON.
"""

from __future__ import annotations

from pathlib import Path

from fieldfare.accounting.filter import gauge
from fieldfare.names import is_question, task_words
from fieldfare.participation import PRESENCE, hides_presence
from fieldfare.text import decimal, promised, up
from fieldfare_server.evidence.document import Row, Section, Statement
from fieldfare_server.evidence.guarantee import ADJACENCY
from fieldfare_server.evidence.information import TITLE, information
from fieldfare_server.evidence.run_evidence import RunEvidence, describe_canaries, format_time, gather, to_json
from fieldfare_server.files.home import SHAREABLE
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.views import ChargeView, PopulationView

HIDDEN = f"not shown under {PRESENCE}: who took part is what is protected"


def privacy_statement(ledger: Reader, run_id: str, root: Path | None = None, *, alone: bool = False) -> Statement:
    """Return the statement of a run as the ledger stands now. Raises `BadInput` if there is no such run.

    Args:
        root: the state directory, in which the run's strategy is stored; see `plan_facts`.
        alone: for a reader who may not see other populations: without what their budgets add up to.
    """
    evidence = gather(ledger, run_id, root)
    return Statement(
        title=f"Privacy statement of run {evidence.run.id}",
        summary=evidence.card.statement,
        private=evidence.run.private,
        sections=(
            _setting(evidence),
            _formal_guarantee(evidence, alone),
            _mechanism(evidence),
            _participation(evidence),
            _released(evidence),
            _tuning(evidence),
            _checks(evidence),
            Section("What is not covered", lines=evidence.card.not_covered),
        ),
        data=to_json(evidence),
    )


def _setting(evidence: RunEvidence) -> Section:
    run, population = evidence.run, evidence.population
    rows = (
        ("Population", population.name + (" (simulated: not real people)" if population.simulated else "")),
        ("Task", task_words(run.plan)),
        ("Setting", "federated learning, central differential privacy: the server makes private what is released"),
        ("Unit of privacy", f"{population.unit}: everything that one {population.unit} contributes to all rounds"),
        ("Adjacency", ADJACENCY[run.adjacency]),
        ("State", f"{run.state}, {run.next_round} of {run.rounds} rounds committed"),
        ("Started", format_time(run.started_at)),
        ("Ended", format_time(run.ended_at)),
    )
    return Section("Setting", rows)


_ACROSS = (
    "as sampled runs are priced across runs, and as its certificate says: what holds for it alone does if it had been "
    "the only run, this also if later runs are chosen by what it released"
)


def _formal_guarantee(evidence: RunEvidence, alone: bool) -> Section:
    run, population = evidence.run, evidence.population
    rows = [
        ("Holds for this run alone", _epsilon(run.held[1], run.delta)),
        ("Spent by this run", _epsilon(run.spent_epsilon, run.delta)),
        ("Planned for this run", _epsilon(run.planned_epsilon, run.delta)),
        ("Guarantee for all runs of the population", _epsilon(population.bound_epsilon, population.bound_delta)),
        *([] if alone else _together(evidence)),
        ("Gauge: spent of it by all runs", _epsilon(population.spent_epsilon, population.delta)),
        ("Gauge: committed of it by all runs", _epsilon(population.committed_epsilon, population.delta)),
        ("Set aside of delta for sampled runs", decimal(population.leak, 3)),
    ]
    if run.next_round and run.spent.words.price:
        across = gauge(evidence.price.mu_squared, population.bound_delta, population.leak)
        rows.insert(1, ("Charged for this run", f"{_epsilon(across, population.bound_delta)}, {_ACROSS}"))
    if population.left is not None:
        shares = (f"{count} up to {10 * tenth} %" for tenth, count in enumerate(population.left, start=1) if count)
        rows.append(("Users by what they have left of the budget (mu^2)", ", ".join(shares) or "no user yet"))
        rows.append(("Users who have nothing left", str(population.exhausted)))
    rho, mu = run.held[0].zcdp, run.held[0].gdp
    if rho is not None:
        rows += [
            ("This run as zero-concentrated DP", f"rho = {up(rho, 6):g}"),
            ("This run as Gaussian DP", "not known" if mu is None else f"mu = {up(mu, 6):g}"),
        ]
    warnings = (f"Warning: {text}" for text in evidence.card.warnings)
    return Section("Formal guarantee", tuple(rows), (*warnings, *_filter_lines(population)))


def _together(evidence: RunEvidence) -> list[Row]:
    several = evidence.together
    if several is None:
        return []
    shown = f"{_epsilon(several.epsilon, several.delta)}: registration cannot compare users whose presence is secret"
    return [(f"Guarantee for a user of all {several.populations} populations of this ledger", shown)]


def _filter_lines(population: PopulationView) -> tuple[str, ...]:
    lines = (
        "The guarantee for all runs holds however each run was chosen after earlier ones released their models (a "
        "filter over sums of prices). The gauge says how much of it is used; it is a guarantee only if the moment of "
        "stopping did not depend on what was released.",
    )
    if not population.overdrawn:
        return lines
    return (
        "The guarantee for all runs does NOT hold: runs of an older version committed more than the budget by the rule "
        "that is valid for every choice of runs.",
        *lines,
    )


def _mechanism(evidence: RunEvidence) -> Section:
    facts = evidence.facts
    elsewhere = {"Unit", "Adjacency"}  # the setting says these
    rows = [(fact.name, fact.value) for fact in evidence.card.facts if fact.name not in elsewhere]
    if facts is not None:
        parameters = facts.plan.mechanism.model_dump(exclude={"kind"})
        given = ", ".join(f"{name} = {value}" for name, value in parameters.items() if value is not None)
        rows += [
            ("Planned users a round", f"{facts.plan.run.cohort}, a public constant that sums are divided by"),
            ("Fewest reports of a released round", str(facts.plan.report_goal)),
            ("Mechanism parameters", given or "none"),
        ]
    if facts is not None and facts.noise_multiplier is not None:
        shown = information(facts.plan, facts.noise_multiplier, facts.max_participations, evidence.run.planned)
        rows += [(f"{TITLE}: {name}", value) for name, value in shown]
    rows.append(("Plan digest (SHA-256)", evidence.run.plan_digest))
    return Section("Mechanism, parameters and accounting", tuple(rows))


def _participation(evidence: RunEvidence) -> Section:
    hidden, facts = hides_presence(evidence.run.adjacency), evidence.facts
    took_part = sum(users for times, users in evidence.counts.items() if times)
    rows: list[Row] = []
    if facts is not None:
        rows += [
            ("Assumed: most rounds by one user", str(facts.max_participations)),
            ("Assumed: rounds apart, at least", str(facts.separation)),
        ]
    rows += [
        ("Realised: users who took part", HIDDEN if hidden else str(took_part)),
        ("Realised: most rounds by one user", HIDDEN if hidden else str(evidence.realised_most)),
    ]
    lines = tuple(
        f"Users who took part in {times} round{'s' * (times != 1)}: {users}."
        for times, users in evidence.counts.items()
    )
    return Section("Participation, assumed and realised", tuple(rows), lines)


# Questions that a statement names; it counts all of them.
MOST_LISTED = 20


def _released(evidence: RunEvidence) -> Section:
    run = evidence.run
    lines = (
        "The answer, and everything computed from it."
        if is_question(run.plan)
        else f"The model after each of {run.next_round} committed rounds, and everything computed from it.",
        "Statistics in the ledger: public, or computed from what was already released.",
        *_metrics(evidence),
        "Nothing else: no other loss, norm or metric of users' data leaves the server; void rounds release nothing.",
        SHAREABLE,
    )
    return Section("What is released", lines=lines)


def _metrics(evidence: RunEvidence) -> list[str]:
    metrics = evidence.facts.plan.metrics if evidence.facts else None
    if metrics is None:
        return []
    return [f"Of each window of rounds the means of {', '.join(sorted(metrics.show))} over users, noised and charged."]


def _tuning(evidence: RunEvidence) -> Section:
    spent, delta = evidence.population.spent_epsilon, evidence.population.delta
    others = len(evidence.charged)
    asked = [
        f"{task_words(run.plan)} (epsilon {up(run.spent_epsilon):g})"
        for run in evidence.charged
        if is_question(run.plan)
    ]
    count = {0: "No other run was", 1: "1 other run was"}.get(others, f"{others} other runs were")
    lines = (
        f"{count} charged to this population. All of them, tuning or not, are in its total.",
        *(
            [f"Of them, {len(asked)} asked users a question, newest first: {'; '.join(asked[:MOST_LISTED])}."]
            if asked
            else []
        ),
        *_charged_beside_runs(evidence),
        f"All of it together has used {_epsilon(spent, delta)} of the population's budget.",
        "Choices made from other people's data, or from public data, are not in the ledger and cost these users "
        "nothing. Choices made from these users' data outside of the ledger are not covered.",
    )
    return Section("Hyper-parameter tuning", lines=lines)


def _charged_beside_runs(evidence: RunEvidence) -> list[str]:
    told = [f"{each.what or each.key} ({_reported(each)})" for each in evidence.others]
    if not told:
        return []
    return [f"Charged to all users beside runs, {len(told)} times, oldest first: {'; '.join(told[:MOST_LISTED])}."]


def _reported(charge: ChargeView) -> str:
    loss = dict(charge.loss)
    if trials := loss.pop("trials", None):
        return f"the best of {trials} sealed trials of mu {loss['mu']:g} each, and no other"
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in loss.items())


def _checks(evidence: RunEvidence) -> Section:
    run, head, test = evidence.run, evidence.head, evidence.test
    rows = [
        ("Audit log", f"{head.count} rows, newest hash {head.hash}"),
        ("Newest checkpoint (SHA-256)", run.checkpoint or "none"),
        ("Node identities", "claimed by nodes, and trusted" if run.trust_node_ids else "not taken on trust"),
        ("Residual test", "not run" if test is None else f"{format_time(test.at)}: {test.body.get('message')}"),
    ]
    canaries = test.body.get("canaries") if test is not None else None
    if canaries:
        figures = "; ".join(f"{name}: {value}" for name, value in describe_canaries(canaries))
        rows.append(("Canaries (a simulated attack, no guarantee)", figures))
    return Section("Checks", tuple(rows))


def _epsilon(value: float, delta: float) -> str:
    return f"epsilon = {up(value, 6):g} at delta = {promised(delta)}"
