"""The privacy statement of a run, for a lawyer and for a reviewer: Markdown, HTML, or JSON.

The items are those that the reporting guidelines for differentially private learning ask for (Ponomareva et al.
2023, "How to DP-fy ML", section 5.3): setting, unit, adjacency, what is released, mechanism and parameters, accounting
and its assumptions, the formal statement, tuning, and what is not covered. Every number is the ledger's, or follows
from the ledger's plan and charge; epsilons in sentences are rounded up, in tables and JSON they are exact.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fieldfare_server.evidence.guarantee import ADJACENCY, Guarantee, PlanFacts, accountant, guarantee, plan_facts, up
from fieldfare_server.ledger import Ledger, runs, views, watch
from fieldfare_server.ledger.models import SEEDED

Row = tuple[str, str]


@dataclass(frozen=True)
class Section:
    """A heading with rows of (item, what), and lines of text below."""

    title: str
    rows: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A privacy statement; `data` holds the same facts as JSON values."""

    title: str
    summary: str
    private: bool
    sections: tuple[Section, ...]
    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Machine-readable: numbers as numbers."""
        return self.data

    def to_markdown(self) -> str:
        """For a repository or a review."""
        parts = [f"# {_escape(self.title)}", "", f"**{_escape(self.summary)}**"]
        for section in self.sections:
            parts += ["", f"## {section.title}", ""]
            if section.rows:
                parts += ["| item | what |", "|---|---|"]
                parts += [f"| {_escape(name)} | {_escape(value)} |" for name, value in section.rows]
                parts += [""] if section.lines else []
            parts += [f"- {_escape(line)}" for line in section.lines]
        return "\n".join(parts) + "\n"

    def to_html(self) -> str:
        """One self-contained page: nothing is fetched, nothing runs."""
        body = "".join(_html(section) for section in self.sections)
        kind = "promise" if self.private else "warning"
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{_STYLE}</style></head><body><main>"
            f'<h1>{html.escape(self.title)}</h1><p class="{kind}">{html.escape(self.summary)}</p>{body}'
            "</main></body></html>\n"
        )


_STYLE = (
    "body{font:16px/1.55 system-ui,sans-serif;color:#16211c;background:#fff;margin:0}"
    "main{max-width:820px;margin:0 auto;padding:32px 20px}h1{font-size:26px;letter-spacing:-.02em}"
    "h2{font-size:18px;margin:32px 0 8px}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;vertical-align:top;padding:7px 16px 7px 0;border-bottom:1px solid #dde2dd}"
    "th{font-weight:500;color:#55615a;width:32%}td{overflow-wrap:anywhere}"
    ".promise,.warning{padding:14px 18px;border-radius:10px;background:#d8ebe5}.warning{background:#fbe6e4}"
    "@media(prefers-color-scheme:dark){body{background:#0d1312;color:#e6ede9}th{color:#a0b0a9}"
    "th,td{border-color:#2a3632}.promise{background:#173a33}.warning{background:#431d1a}}"
)


def _html(section: Section) -> str:
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(value)}</td></tr>'
        for name, value in section.rows
    )
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in section.lines)
    table = f"<table>{rows}</table>" if rows else ""
    return f"<h2>{html.escape(section.title)}</h2>{table}" + (f"<ul>{lines}</ul>" if lines else "")


def _escape(text: str) -> str:
    """Text that stays text in Markdown: names in a plan must not make links, tables or HTML."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def privacy_statement(ledger: Ledger, run_id: str) -> Statement:
    """The statement of a run as the ledger stands now. Raises `BadInput` if there is no such run."""
    run = ledger.run(run_id)
    population = ledger.population(run.population)
    facts = plan_facts(run)
    card = guarantee(run, population)
    counts = ledger.participation_histogram(run_id)
    others = _other_runs(ledger, run)
    audit = watch.newest_row(ledger.database, run_id, runs.RESIDUAL_TEST)
    private = run.noise_source != SEEDED
    sections = (
        _setting(run, population),
        _formal(run, population),
        _mechanism(run, card, facts),
        _participation(run, facts, counts),
        _released(run),
        _tuning(run, others, population),
        _checks(ledger, run, audit),
        Section("What is not covered", lines=card.not_covered),
    )
    data = _data(run, population, card, facts, counts, others, audit)
    return Statement(f"Privacy statement of run {run.id}", card.statement, private, sections, data)


def _other_runs(ledger: Ledger, run: views.RunView) -> list[views.RunView]:
    found: list[views.RunView] = []
    cursor: int | None = None
    while True:
        page = ledger.runs(cursor, 500, run.population)
        found += [other for other in page.items if other.id != run.id]
        cursor = page.next
        if cursor is None:
            return found


def _setting(run: views.RunView, population: views.PopulationView) -> Section:
    rows = [
        ("Population", population.name + (" (simulated: not real people)" if population.simulated else "")),
        ("Task", str(_table(run, "run").get("task", "unknown"))),
        ("Setting", "federated learning, central differential privacy: a trusted server adds the noise"),
        ("Unit of privacy", f"{population.unit}: everything that one {population.unit} contributes to all rounds"),
        ("Adjacency", ADJACENCY[run.adjacency]),
        ("State", f"{run.state}, {run.next_round} of {run.rounds} rounds committed"),
        ("Started", _time(run.started_at)),
        ("Ended", _time(run.ended_at)),
    ]
    return Section("Setting", tuple(rows))


def _formal(run: views.RunView, population: views.PopulationView) -> Section:
    rows = [
        ("Spent by this run", _epsilon(run.spent_epsilon, run.delta)),
        ("Planned for this run", _epsilon(run.planned_epsilon, run.delta)),
        ("Spent by all runs of the population", _epsilon(population.spent_epsilon, population.delta)),
        ("Committed by all runs", _epsilon(population.committed_epsilon, population.delta)),
        ("Budget of the population", _epsilon(population.epsilon, population.delta)),
    ]
    if not run.spent.sampled:
        rows += [
            ("This run as zero-concentrated DP", f"rho = {run.spent.rho:.6g}"),
            ("This run as Gaussian DP", f"mu = {run.spent.mu:.6g}" if run.spent.gaussian else "not known"),
        ]
    return Section("Formal guarantee", tuple(rows))


def _mechanism(run: views.RunView, card: Guarantee, facts: PlanFacts | None) -> Section:
    skipped = {"Unit", "Adjacency"}
    rows = [(fact.name, fact.value) for fact in card.facts if fact.name not in skipped]
    if facts is not None:
        rows.append(("Planned users a round", f"{facts.plan.run.cohort}, a public constant that sums are divided by"))
        rows.append(("Fewest reports of a released round", str(facts.plan.report_goal)))
        rows.append(("Mechanism parameters", _parameters(facts.plan.mechanism.model_dump(exclude={"kind"}))))
    rows.append(("Plan digest (SHA-256)", run.plan_digest))
    return Section("Mechanism, parameters and accounting", tuple(rows))


def _parameters(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items() if value is not None) or "none"


HIDDEN = "not shown under add_remove: who took part is what is protected"


def _participation(run: views.RunView, facts: PlanFacts | None, counts: dict[int, int]) -> Section:
    most = max((times for times, users in counts.items() if users), default=0)
    took_part = sum(users for times, users in counts.items() if times)
    hidden = run.adjacency == "add_remove"
    rows = [("Realised: users who took part", HIDDEN if hidden else str(took_part))]
    rows.append(("Realised: most rounds by one user", HIDDEN if hidden else str(most)))
    if facts is not None:
        rows.insert(0, ("Assumed: most rounds by one user", str(facts.max_participations)))
        rows.insert(1, ("Assumed: rounds apart, at least", str(facts.separation)))
    lines = tuple(f"{users} users took part in {times} round{'s' * (times != 1)}." for times, users in counts.items())
    return Section("Participation, assumed and realised", tuple(rows), lines)


def _released(run: views.RunView) -> Section:
    lines = (
        f"The model after each of {run.next_round} committed rounds, and everything computed from it.",
        "Statistics in the ledger: public, or computed from what was already released.",
        "Nothing else: no losses, norms or metrics of users' data leave the server, and void rounds release nothing.",
    )
    return Section("What is released", lines=lines)


def _tuning(run: views.RunView, others: list[views.RunView], population: views.PopulationView) -> Section:
    charged = [other for other in others if other.spent_epsilon > 0]
    lines = (
        f"{len(charged)} other runs were charged to this population. All of them, tuning or not, are in its total.",
        f"All runs together have spent epsilon {up(population.spent_epsilon)} at delta {population.delta:g}.",
        "Choices made from other people's data, or from public data, are not in the ledger and cost these users "
        "nothing. Choices made from these users' data outside of the ledger are not covered.",
    )
    return Section("Hyper-parameter tuning", lines=lines)


def _checks(ledger: Ledger, run: views.RunView, audit: views.JournalView | None) -> Section:
    head = ledger.head()
    rows = [
        ("Audit log", f"{head.count} rows, newest hash {head.hash}"),
        ("Newest checkpoint (SHA-256)", run.checkpoint or "none"),
        ("Node identities", "claimed by nodes, and trusted" if run.trust_node_ids else "not taken on trust"),
        ("Noise audit", "not run" if audit is None else f"{_time(audit.at)}: {audit.body.get('message')}"),
    ]
    found = audit.body.get("canaries") if audit is not None else None
    if found:
        rows.append(
            (
                "Canaries (lower bounds, no guarantee)",
                f"epsilon at least {found['clopper_pearson_lower_bound']:.3g} (Clopper-Pearson), "
                f"{found['one_run_lower_bound']:.3g} (one run), estimated {found['gaussian_estimate']:.3g}; "
                f"claimed {found['claimed']:.3g}",
            )
        )
    return Section("Checks", tuple(rows))


def _data(
    run: views.RunView,
    population: views.PopulationView,
    card: Guarantee,
    facts: PlanFacts | None,
    counts: dict[int, int],
    others: list[views.RunView],
    audit: views.JournalView | None,
) -> dict[str, Any]:
    sampled = bool(run.spent.sampled)
    hidden = run.adjacency == "add_remove"
    return {
        "run": run.id,
        "population": population.name,
        "private": run.noise_source != SEEDED,
        "simulated": population.simulated,
        "statement": card.statement,
        "unit": population.unit,
        "adjacency": run.adjacency,
        "trust_model": "central",
        "state": run.state,
        "rounds": run.rounds,
        "committed_rounds": run.next_round,
        "delta": run.delta,
        "epsilon_spent": run.spent_epsilon,
        "epsilon_planned": run.planned_epsilon,
        "rho_zcdp": None if sampled else run.spent.rho,
        "mu_gdp": run.spent.mu if run.spent.gaussian else None,
        "population_epsilon": {
            "spent": population.spent_epsilon,
            "committed": population.committed_epsilon,
            "limit": population.epsilon,
            "delta": population.delta,
        },
        "accountant": accountant(),
        "facts": {fact.name: fact.value for fact in card.facts},
        "noise_multiplier": None if facts is None else facts.noise_multiplier,
        "sensitivity": None if facts is None else facts.sensitivity,
        "participation": {
            "assumed_most": None if facts is None else facts.max_participations,
            "assumed_separation": None if facts is None else facts.separation,
            "realised_most": None if hidden else max((times for times, users in counts.items() if users), default=0),
            "realised_users_by_rounds": None if hidden else {str(times): users for times, users in counts.items()},
        },
        "other_runs_charged": [
            {"run": other.id, "epsilon_spent": other.spent_epsilon, "state": other.state}
            for other in others
            if other.spent_epsilon > 0
        ],
        "plan": run.plan,
        "plan_digest": run.plan_digest,
        "trust_node_ids": run.trust_node_ids,
        "noise_audit": None if audit is None else {"at": _time(audit.at), **audit.body},
        "not_covered": list(card.not_covered),
    }


def _table(run: views.RunView, name: str) -> dict[str, Any]:
    table = run.plan.get(name)
    return table if isinstance(table, dict) else {}


def _epsilon(value: float, delta: float) -> str:
    return f"epsilon = {value:.6g} at delta = {delta:g}"


def _time(seconds: float | None) -> str:
    return "—" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
