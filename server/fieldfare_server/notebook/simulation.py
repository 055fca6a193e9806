"""`ff.simulate`: run plans in this process, charged to a population, and hand back the runs."""

from __future__ import annotations

import getpass
import math
from collections.abc import Sequence
from contextlib import ContextDecorator
from pathlib import Path

from fieldfare.accounting.filter import Price, Terms, default_leak, gauge
from fieldfare.cost import Cost
from fieldfare.errors import Conflict, Differs, Interrupted, NotGiven, OutOfRange, WrongForm
from fieldfare.plan import Plan
from fieldfare.text import decimal
from fieldfare_client.app import forget_users, user_names
from fieldfare_client.main_guard import check_main_guard, require_main_guard
from fieldfare_client.training.cores import processes
from fieldfare_server.cli.compare import label_of
from fieldfare_server.cli.output import print_warnings
from fieldfare_server.cli.progress import check_first, grid_of, run_here, simulated_nodes
from fieldfare_server.cli.simulate import plan_of_run
from fieldfare_server.files.home import StateDirectory, scratch_folder
from fieldfare_server.files.strategies import Decisions
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.ledger.state.budget import quote
from fieldfare_server.notebook.runs import Runs, SimulatedRun
from fieldfare_server.planning.admission import admit
from fieldfare_server.run.pricing import price_with_model, require_plans
from fieldfare_server.run.session import Session
from fieldfare_server.run.signal import require_signal

Budget = float | tuple[float, float]


class Afresh(ContextDecorator):
    """Lets go of this process's tasks and users, before and after: a notebook makes them again by the same names."""

    def __enter__(self) -> None:
        forget_users()

    def __exit__(self, *raised: object) -> None:
        forget_users()


@Afresh()
def simulate(
    *plans: Plan,
    population: str | None = None,
    budget: Budget | None = None,
    ledger: str | Path | None = None,
    nodes: int | None = None,
    resume: str = "",
    accept_delta: bool = False,
    progress: bool = True,
) -> Runs:
    """Run plans in this process, one after another, on the users of their tasks, and charge their population.

    Before the first run begins, all of them are checked: the users, the population, and that its budget holds
    all runs.

    Rounds of a population that is marked as simulated are committed in groups of about half a second; a crash
    repeats those of its group. Those of people are committed one by one.

    Example:
        >>> import fieldfare as ff
        >>> plan = ff.Plan(task="digits", epsilon=8, delta=1e-3, rounds=4, cohort=20, mechanism="nu", population="demo")
        >>> runs = ff.simulate(plan, budget=10, progress=False)
        >>> runs[0].summary()["rounds"], sorted(runs[0].model().state_dict())
        (4, ['0.bias', '0.weight', '2.bias', '2.weight'])
        >>> "epsilon" in runs[0].statement().to_markdown()
        True

    Guarantee: as `fieldfare simulate`. All that the runs release is (epsilon, delta)-DP for every user of the
    population, with the epsilon that the ledger shows. A temporary ledger forgets: what runs of another
    `simulate` spent on the same people is not in it, and is no part of its statement. For people's data, name
    a ledger.

    Args:
        plans: what to run.
        population: whose budget is charged; None: the one that each plan names.
        budget: epsilon, or (epsilon, delta), of a population that is not there yet, and is made then, marked
            as simulated (not people). Without a delta, it is the plans'. For people, make the population with
            `ff.Ledger.open(url, create=True).create_population` or `fieldfare population create`.
        ledger: a state directory, as `--home`, or the URL of a ledger; None: a temporary one, which is
            removed with the last of the runs.
        nodes: simulated nodes that the users are spread over; None: 1, and more for masked sums.
        resume: continue this run of `ledger` in place of new ones. If its task is an object, make the plan
            before.
        accept_delta: run although delta is large for so many users, with a warning.
        progress: show a bar on a terminal, lines elsewhere.

    Raises:
        BadInput: a plan does not fit its users; there is no such population and no budget; `client.workers`
            is a number above 1, where no process can be forked, in a script without `if __name__ == "__main__":`.
        RuntimeError: this process is one that such a script started; the message is Python's own.
        BudgetRefused: the budget does not hold all runs.
        Interrupted: Ctrl-C. In a named ledger the run can be resumed.
    """
    require_plans("ff.simulate", plans)
    if bool(plans) == bool(resume):
        raise NotGiven("simulate", "needs plans, or resume=RUN, and not both.", "ff.simulate(plan, budget=10)")
    if resume and ledger is None:
        raise Conflict(f"resume = {resume!r}", "a temporary ledger has no earlier runs.", "ledger='runs'")
    numbers = budget if isinstance(budget, tuple) else () if budget is None else (budget,)
    if len(numbers) > 2 or any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        raise WrongForm(f"budget = {budget!r}", "is epsilon, or (epsilon, delta).", "budget=10")
    if nodes is not None and (not isinstance(nodes, int) or nodes < 1):
        raise OutOfRange(f"nodes = {nodes!r}", "must be a whole number, at least 1.", "1")
    require_main_guard()
    home, kept = home_of(ledger)
    for plan in plans or [plan_of_run(home, resume)]:
        if plan.client.workers != "auto" and processes(plan.client, plan.run.task) > 1:
            check_main_guard()
    runs: list[SimulatedRun] = []
    if resume:
        session = Session.resume(home, resume, True, SIMULATION, users=user_names)
        return Runs([_run(session, _labels([session.plan])[0], home, kept, nodes, progress)])
    if population is not None:
        charged = {"population": population}
        plans = tuple(p.model_copy(update={"privacy": p.privacy.model_copy(update=charged)}) for p in plans)
    for plan in plans:
        simulated_nodes(plan, nodes)
        check_first(plan, accept_delta=accept_delta)
    _prepare(home, plans, budget)
    for plan, label in zip(plans, _labels(plans), strict=True):
        session = Session.begin(home, plan, identity_is_stable=True, actor=SIMULATION, users=user_names)
        runs.append(_run(session, label, home, kept, nodes, progress))
    return Runs(runs)


def home_of(ledger: str | Path | None) -> tuple[StateDirectory, object]:
    """Return (the state directory, what keeps a temporary one alive)."""
    if ledger is None:
        kept = scratch_folder()
        root = Path(kept.name) / "runs"
        return StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}"), kept
    if "://" not in str(ledger):
        root = Path(ledger).expanduser().absolute()
        if root.is_file():
            raise WrongForm(f"ledger = {str(ledger)!r}", "is a file.", f"the directory {str(root.parent)!r}, or a URL")
        return StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}"), None
    return StateDirectory.of(None, str(ledger)), None


def _prepare(home: StateDirectory, plans: tuple[Plan, ...], budget: Budget | None) -> None:
    """Make the populations that are not there, and refuse plans that no budget will hold together."""
    home.prepare()
    wanted: dict[str, list[Plan]] = {}
    for plan in plans:
        wanted.setdefault(plan.privacy.population, []).append(plan)
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        for name, its in wanted.items():
            costs = [price_with_model(plan, Decisions(plan, home.root)) for plan in its]
            for cost in costs:
                print_warnings(require_signal(cost))
            make_population(ledger, name, its, costs, budget)
            runs = list(zip(its, costs, strict=True))
            for number, (plan, cost) in enumerate(runs):
                admit(plan, cost, ledger, user_names(plan.task_reference), first=runs[:number])


def make_population(ledger: Ledger, name: str, plans: list[Plan], costs: list[Cost], budget: Budget | None) -> None:
    """Make the population of `plans`, marked as simulated, if it is not there yet. Raises `BadInput` as `simulate`."""
    if (known := ledger.find_population(name)) is None:
        epsilon, delta = _budget(name, costs, budget)
        adjacency, actor = plans[0].privacy.adjacency, f"python:{getpass.getuser()}"
        alone = max((plan.privacy.epsilon or 0.0 for plan in plans if plan.privacy.delta == delta), default=0.0)
        known, _ = ledger.population_or_new(
            name, epsilon, delta, first=alone, adjacency=adjacency, simulated=True, actor=actor
        )
    if budget is not None:
        given = budget if isinstance(budget, tuple) else (budget, known.delta)
        if given != (known.epsilon, known.delta):
            raise Differs(
                f"budget = {budget}",
                f"population {name!r} is there, with epsilon {known.epsilon:g} at delta {decimal(known.delta)}; only "
                "an officer raises it, for a reason.",
                "leave budget out, or `fieldfare population raise`",
            )


def _budget(name: str, costs: list[Cost], budget: Budget | None) -> tuple[float, float]:
    deltas = {cost.plan.privacy.delta for cost in costs}
    if budget is None:
        # What these runs need one after another, rounded up, is the smallest budget that would do.
        delta, total = max(deltas), Price()
        leak = default_leak(costs[0].plan.privacy.adjacency, delta)
        for cost in costs:
            total += quote(cost.loss, total, Terms(1.0, delta, leak), cost.leak)
        need = math.ceil(gauge(total.mu_squared, delta, leak) * 100) / 100
        near = f"{need:.10g}" if len(deltas) == 1 else f"({need:.10g}, {decimal(delta)})"
        why = "is not in the ledger, and what it may spend in all is yours to say."
        raise NotGiven(f"population {name!r}", why, f"budget={near}")
    if isinstance(budget, tuple):
        return budget
    if len(deltas) > 1:
        shown = ", ".join(decimal(delta) for delta in sorted(deltas))
        near = f"budget=({budget:g}, {decimal(max(deltas))})"
        raise Conflict(f"budget = {budget:g}", f"the plans have several deltas ({shown}).", near)
    return budget, deltas.pop()


def _labels(plans: Sequence[Plan]) -> list[str]:
    """Return what tables and plots call the runs: their mechanisms; equal ones are numbered."""
    specs = [plan.mechanism for plan in plans]
    labels = [label_of({**spec.model_dump(exclude_defaults=True), "kind": spec.kind}) for spec in specs]
    return [
        f"{label} #{labels[: index + 1].count(label)}" if labels.count(label) > 1 else label
        for index, label in enumerate(labels)
    ]


def _run(
    session: Session, label: str, home: StateDirectory, kept: object, nodes: int | None, progress: bool
) -> SimulatedRun:
    plan, run_id = session.plan, session.account.id
    try:
        with session.interrupts:  # one that comes before the rounds would leave a run that nobody can continue
            trace = run_here(session, grid_of(session, simulated_nodes(plan, nodes)), label, quiet=not progress)
    except Interrupted as error:
        cause = str(error).partition(" Continue it with")[0]
        how = f"Continue it with ff.simulate(resume={run_id!r}, ledger=...)."
        lost = "Its ledger was temporary, so it cannot be resumed."
        raise Interrupted(f"{cause} {how if kept is None else lost}") from None
    return SimulatedRun(plan, trace, home, kept)
