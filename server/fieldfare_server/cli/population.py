"""`fieldfare population`: create, list and show budgets; raise, tighten, close and reopen them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import Conflict, NotAllowed
from fieldfare.participation import Adjacency
from fieldfare.text import decimal, down, promised, up
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.outlook import WindowAnswer
from fieldfare_server.api.population_schemas import Charge, Population
from fieldfare_server.api.service import Service
from fieldfare_server.cli.administer import actor, on_ledger, on_service
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.output import out, print_table, print_text
from fieldfare_server.cli.remote import read_token
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.history import BudgetChange
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.state.windows import Every
from fieldfare_server.ledger.views import PopulationView, Together, TokenView

population = typer.Typer(help="The budgets that populations of users share.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="the population's name")]
Reason = Annotated[str, typer.Option(help="why; the audit log keeps it for ever")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="a file that holds your admin token: it says who you are, where two persons are needed"),
]
Proposal = Annotated[str, typer.Argument(help="the proposal's id, as `population show` lists it")]


@population.command()
@on_home
def create(
    home: StateDirectory,
    name: Name,
    epsilon: Annotated[float, typer.Option(help="the limit that all runs share")],
    delta: Annotated[float, typer.Option(help="of the limit; below 1 / number of users")],
    adjacency: Annotated[Adjacency, typer.Option(help="how two neighbouring data sets differ")] = "zero_out",
    unit: Annotated[str, typer.Option(help="what a user is, for the page and reports")] = "user",
    simulated: Annotated[bool, typer.Option("--simulated", help="no people: a noise seed, no schedule needed")] = False,
    leak: Annotated[
        float | None,
        typer.Option(help="D: the part of delta that sampled runs share, for good [delta/10 under add_remove, else 0]"),
    ] = None,
    ceiling_epsilon: Annotated[float | None, typer.Option(help="no raise goes above; for good")] = None,
    ceiling_delta: Annotated[float | None, typer.Option(help="no raise goes above; for good")] = None,
    two_persons: Annotated[
        bool, typer.Option("--two-persons", help="a raise waits until another person's admin token approves it")
    ] = False,
    reservation_hours: Annotated[
        float | None, typer.Option(help="a run without a coordinator ends after this time [default: never]")
    ] = None,
    token_file: TokenFile = None,
) -> CommandResult:
    """Give a population of users a budget. Creates the ledger if it does not exist.

    Where a raise of another population needs two persons, this proposes the population.
    """
    seconds = None if reservation_hours is None else 3600 * reservation_hours
    home.require_named(name, simulated)
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as opened:
        strict = any(each.two_persons for each in opened.populations())
        who, person = _asks(opened, strict, token_file, name, f"a new population {name!r}")
        made = opened.create_population(
            name,
            epsilon,
            delta,
            adjacency=adjacency,
            unit=unit,
            simulated=simulated,
            leak=leak,
            rules=Rules(ceiling_epsilon, ceiling_delta, two_persons, seconds),
            actor=who,
            person=person,
        )
        waits = f"waits for a second person (proposal {made.proposals[0].id})" if made.proposals else "created"
        return _answer(opened, made, waits)


@population.command(name="list")
@on_service
def list_(service: Service) -> CommandResult:
    """List all populations."""
    found = list(service.populations())
    rows = [
        (v.name, v.state, v.epsilon, promised(v.delta), up(v.spent.epsilon), v.adjacency, v.unit, len(v.proposals))
        for v in found
    ]
    columns = ("population", "state", "epsilon limit", "delta", "spent", "adjacency", "unit", "raises that wait")
    return CommandResult(found, lambda: print_table("Populations", columns, rows))


@population.command()
@on_service
def show(service: Service, name: Name) -> CommandResult:
    """One population: its budget, its rules, the raises that wait, what is reserved beside runs, its notes."""
    view = service.population(name)
    charges = [charge for charge in service.charges(name) if charge.state == "reserved"]
    notes = [change for change in service.history(name, 2).changes if change.action == "population.note"]
    beside = {"charges_reserved": charges, "notes": notes}
    return CommandResult(view.model_dump(mode="json") | beside, _table(view, charges, notes))


@population.command()
@on_service
def history(
    service: Service,
    name: Name,
    points: Annotated[int, typer.Option(min=2, max=2000, help="about how many moments")] = 20,
) -> CommandResult:
    """The budget over time: limit, committed and spent after each change, and who changed it and why."""
    told = service.history(name, points)
    used = [(up(each.committed_epsilon), up(each.spent_epsilon)) for each in told.moments]
    rows = [(f"{m.at:%Y-%m-%d %H:%M}", m.limit_epsilon, *both) for m, both in zip(told.moments, used, strict=True)]

    def tell() -> None:
        print_table(f"Population {name} at delta {promised(told.delta)}", ("at", "limit", "committed", "spent"), rows)
        for each in reversed(told.changes):
            what = each.action.removeprefix("population.")
            why = f": {' '.join(each.reason.split())}" if each.reason else ""  # on one line, lest it look like two
            print_text(f"{each.at:%Y-%m-%d %H:%M} {what} by {each.actor}{why}")

    return CommandResult(told, tell)


def _table(view: Population, charges: Sequence[Charge], notes: Sequence[BudgetChange]) -> Callable[[], None]:
    seconds, beside = view.reservation_seconds, f" and {len(charges)} charges beside runs" if charges else ""
    lasts = "without end" if seconds is None else f"{seconds / 3600:g} hours without a coordinator"
    until = "" if view.lasts_until is None else f", until about {view.lasts_until:%Y-%m-%d} at the pace so far"
    whom = "" if view.runs_left_users is None else f", the next in full for {view.runs_left_users} users"
    bound = f"epsilon {up(view.bound_epsilon, 6):g}"
    rows = [
        ("state", view.state),
        ("limit", f"epsilon {up(view.epsilon, 6):g} at delta {promised(view.delta)}"),
        ("guarantee", f"{bound} at delta {promised(view.bound_delta)}: the largest limit so far"),
        *_together(view.together),
        ("spent", f"epsilon {up(view.spent.epsilon):g}"),
        ("reserved", f"epsilon {up(view.reserved_epsilon):g} by {view.runs_active} of {view.runs} runs{beside}"),
        ("runs like the last that still fit", view.more_runs + (whom + until if view.last_run_fits else "")),
        ("adjacency", f"{view.adjacency}, one {view.unit}"),
        ("calendar window", _window(view.window)),
        ("ceiling of epsilon", "none" if view.ceiling_epsilon is None else f"{view.ceiling_epsilon:g}"),
        ("ceiling of delta", "none" if view.ceiling_delta is None else decimal(view.ceiling_delta)),
        ("a raise needs", "two persons" if view.two_persons else "one person"),
        ("a reservation lasts", lasts),
    ]
    rows += [
        (
            f"raise {each.id} waits",
            f"to epsilon {up(each.epsilon, 6):g} at delta {promised(each.delta)}, by {each.proposed_by}: {each.reason}",
        )
        for each in view.proposals
    ]
    rows += [
        (f"charge {each.key} is reserved", f"mu {each.mu:.4g} by {each.who}: {each.what}; {each.why}")
        for each in charges
    ]
    rows += [(f"note of {each.at:%Y-%m-%d} by {each.actor}", " ".join(each.reason.split())) for each in notes]
    return lambda: print_table(f"Population {view.name}", ("", ""), rows)


def _together(several: Together | None) -> list[tuple[str, str]]:
    if several is None:
        return []
    shown = f"epsilon {up(several.epsilon):g} at delta {promised(several.delta)}: who is in several is secret"
    return [(f"a user of all {several.populations} populations", shown)]


def _window(window: WindowAnswer | None) -> str:
    if window is None:
        return "none"
    runs = "" if window.runs_left is None else f", {window.runs_left} runs like the last"
    return (
        f"epsilon {up(window.epsilon, 6):g} a {window.every}: {up(window.begun_epsilon):g} began, "
        f"{down(window.remaining_epsilon):g} may still begin{runs}; renews {window.renews_at:%Y-%m-%d} UTC"
    )


@population.command(name="raise")
@on_ledger
def raise_(
    opened: Ledger,
    name: Name,
    reason: Reason,
    epsilon: Annotated[float | None, typer.Option(help="the new limit")] = None,
    delta: Annotated[float | None, typer.Option(help="the new delta")] = None,
    token_file: TokenFile = None,
) -> CommandResult:
    """Raise a budget: the only way to get more of it. Where two persons are needed, this proposes the raise."""
    before = opened.population(name)
    who, person = _asks(opened, before.two_persons, token_file, name, f"raising the budget of population {name!r}")
    made = opened.raise_population(name, epsilon=epsilon, delta=delta, reason=reason, actor=who, person=person)
    if made.two_persons and made.proposals:
        waits = f"is as it was; the raise waits for a second person (proposal {made.proposals[0].id})"
        return _answer(opened, made, waits)
    return _answer(opened, made, _from("raised", before))


@population.command()
@on_ledger
def approve(
    opened: Ledger,
    proposal: Proposal,
    token_file: Annotated[Path, typer.Option(help="a file that holds your admin token: it says who you are")],
) -> CommandResult:
    """Approve a raise, or a new population, that another person proposed."""
    name = opened.proposal_population(proposal)
    token, before = _admin(opened, token_file, name), opened.population(name)
    made = opened.approve_raise(proposal, actor=f"token {token.name}", person=token.id)
    return _answer(opened, made, "created" if before.state == "proposed" else _from("raised", before))


@population.command()
@on_ledger
def withdraw(opened: Ledger, proposal: Proposal, reason: Reason) -> CommandResult:
    """Take back, or refuse, a raise or a new population that waits."""
    made = opened.withdraw_raise(proposal, reason=reason, actor=actor())
    return _answer(opened, made, "withdrawn" if made.state == "withdrawn" else "keeps its budget")


@population.command()
@on_ledger
def tighten(
    opened: Ledger,
    name: Name,
    reason: Reason,
    epsilon: Annotated[float | None, typer.Option(help="the new limit")] = None,
    delta: Annotated[float | None, typer.Option(help="the new delta")] = None,
) -> CommandResult:
    """Lower a budget, never below what is spent and reserved."""
    before = opened.population(name)
    made = opened.tighten_population(name, epsilon=epsilon, delta=delta, reason=reason, actor=actor())
    return _answer(opened, made, _from("tightened", before))


@population.command()
@on_ledger
def window(
    opened: Ledger,
    name: Name,
    reason: Reason,
    epsilon: Annotated[float | None, typer.Option(help="what may begin in one window")] = None,
    every: Annotated[Every | None, typer.Option(help="its length, in UTC; weeks begin on Mondays")] = None,
    off: Annotated[bool, typer.Option("--off", help="take the window away")] = False,
) -> CommandResult:
    """Let only so much of a budget begin in each calendar day, week, month or year. The budget stays the limit."""
    if off == (epsilon is not None or every is not None):
        why = "name what may begin and how often it renews, or that there is no window."
        raise Conflict("the window", why, "--epsilon 2 --every week, or --off")
    made = opened.set_window(name, epsilon=epsilon, every=every, reason=reason, actor=actor())
    held = f"at most epsilon {epsilon:g} may begin in each calendar {every}" if epsilon is not None else "no window"
    return _answer(opened, made, f"has {held}" if off else f"is paced: {held}")


@population.command()
@on_ledger
def note(opened: Ledger, name: Name, text: Annotated[str, typer.Argument(help="the note")]) -> CommandResult:
    """Write a note on a population into the log; `population show` and the page list it."""
    return _answer(opened, opened.note_population(name, text=text, actor=actor()), "has one more note")


@population.command()
@on_ledger
def close(opened: Ledger, name: Name, reason: Reason) -> CommandResult:
    """Refuse new runs; runs under way continue."""
    return _answer(opened, opened.close_population(name, reason=reason, actor=actor()), "closed")


@population.command()
@on_ledger
def reopen(opened: Ledger, name: Name, reason: Reason) -> CommandResult:
    """Accept new runs again, on the budget as it stands."""
    return _answer(opened, opened.reopen_population(name, reason=reason, actor=actor()), "reopened")


@population.command()
@on_home
def odometers(state: StateDirectory, name: Name) -> CommandResult:
    """Charge each user what that user took part in, from now on and for all ended runs whose strategy is here."""
    from fieldfare_server.evidence.recompute import recomputed  # imports all of torch

    with Ledger.open(state.ledger, head_file=state.head_file) as opened:
        charges, left = recomputed(opened, state.root, name)
        view = opened.keep_odometers(name, charges, actor=actor())
        shown = Answers(opened).population(name).model_dump(mode="json")

    def tell() -> None:
        out.print(
            f"Population {name} keeps odometers: {len(charges)} runs recomputed, {up(view.spent_epsilon):g} spent."
        )
        for run, why in left.items():
            print_text(f"Run {run} stays charged to all users alike: {why}")

    return CommandResult(shown | {"recomputed": sorted(charges), "worst_case": left}, tell)


def _asks(opened: Ledger, two_persons: bool, token_file: Path | None, name: str, what: str) -> tuple[str, str | None]:
    """Return (who asks, for the journal; the id of the token that says so). Raises `BadInput` if it must be known."""
    if token_file is not None:
        token = _admin(opened, token_file, name)
        return f"token {token.name}", token.id
    if two_persons:
        # A system user is no second person: it may hold the token that approves.
        why = "two persons are needed, and who asks must be known."
        raise NotAllowed(what, why, "--token-file FILE, with your admin token")
    return actor(), None


def _admin(opened: Ledger, token_file: Path, population: str) -> TokenView:
    """Return the admin token in a file. Raises `BadInput` unless it is valid, for this population."""
    token, what = opened.check_token(read_token(token_file)), f"--token-file {token_file}"
    if token is None or "admin" not in token.scopes:
        raise NotAllowed(what, "it holds no valid token with scope admin.", "an admin's token")
    if not token.allows(population):
        raise NotAllowed(what, "the token is for other populations.", f"a token for {population}")
    return token


OVERDRAWN = (
    "More is committed than the budget holds by the rule that is valid for every choice of runs: it takes no new run."
)


def _from(what: str, before: PopulationView) -> str:
    return f"{what} from epsilon {up(before.epsilon, 6):g} at delta {promised(before.delta)}"


def _answer(opened: Ledger, made: PopulationView, what: str) -> CommandResult:
    text = (
        f"Population {made.name} {what}: epsilon {up(made.epsilon, 6):g} at delta {promised(made.delta)}, "
        f"{made.adjacency}, {up(made.spent_epsilon):g} spent."
    )
    if made.overdrawn:
        text += " " + OVERDRAWN
    return CommandResult(Answers(opened).population(made.name), lambda: out.print(text))
