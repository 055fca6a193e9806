"""Run a session and show its progress: a bar on a terminal, plain lines elsewhere, nothing with `--json`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, TooFew
from fieldfare.plan import Plan, ServerOptimizerSpec
from fieldfare.population_size import check_population_size
from fieldfare.text import up
from fieldfare_server.cli.output import err, out, print_progress, print_warnings
from fieldfare_server.cli.task import check_here, say_made_up
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.strategies import Decisions
from fieldfare_server.ledger import Ledger
from fieldfare_server.optimizers.ftrl import FTRL
from fieldfare_server.planning.admission import admit
from fieldfare_server.run.pricing import price_with_model

if TYPE_CHECKING:
    from fieldfare_client.check import TaskReport
    from fieldfare_client.simulation import LocalGrid
    from fieldfare_server.run.round.strategy import RoundReport
    from fieldfare_server.run.session import Session


@dataclass
class Trace:
    """The reports of a run, round by round."""

    label: str
    run: str = ""
    private: bool = True
    reports: list[RoundReport] = field(default_factory=list)
    seconds: float = 0.0
    noise_multiplier: float = 0.0
    prefix_noise: float = 0.0  # root mean square of the noise in a prefix sum, in clip norms; 0 without noise

    @property
    def score(self) -> float | None:
        """The last round's held-out score."""
        return self.reports[-1].score if self.reports else None

    @property
    def epsilon(self) -> float | None:
        """What the run spent; None for a rehearsal."""
        return self.reports[-1].epsilon if self.reports and self.private else None

    def to_json(self) -> dict[str, object]:
        """Return the fields for `--json`."""
        return {
            "label": self.label,
            "run": self.run or None,
            "private": self.private,
            "rounds": len(self.reports),
            "epsilon": self.epsilon,
            "noise_multiplier": self.noise_multiplier,
            "prefix_noise": self.prefix_noise,
            "score": self.score,
            "score_name": self.reports[-1].score_name if self.reports else None,
            "seconds": round(self.seconds, 3),
            "scores": [report.score for report in self.reports],
        }


def local_grid(plan: Plan, nodes: int) -> LocalGrid:
    """A grid of `nodes` nodes in this process that run the plan's task, as many at once as there are processes."""
    from fieldfare_client.app import app as client_app  # imports PyTorch
    from fieldfare_client.simulation import LocalGrid
    from fieldfare_client.training.cores import processes

    at_once = min(nodes, processes(plan.client, plan.run.task))
    return LocalGrid(client_app, nodes, {"task": plan.task_reference}, at_once=at_once)


# Simulated nodes of a masked plan, for each that a sum must have: cohorts fall on fewer than there are.
NODES_A_LEAST = 4


def simulated_nodes(plan: Plan, asked: int | None, usual: int = 1) -> int:
    """Return how many nodes a simulation of `plan` has. asked: None for what does.

    Raises `BadInput` for fewer than the plan's sums need.
    """
    fewest = plan.aggregation.fewest_nodes
    if asked is None:
        return max(usual, NODES_A_LEAST * fewest)
    if asked < fewest:
        near = f"{NODES_A_LEAST * fewest}, or aggregation.kind = 'plain'"
        raise TooFew(f"nodes = {asked}", f"the plan opens no sum of fewer than {fewest} nodes.", near)
    return asked


def grid_of(session: Session, nodes: int) -> LocalGrid:
    """`local_grid` of a session's plan; where it is masked with a blinder of this process."""
    grid = local_grid(session.plan, nodes)
    if session.files is not None:
        from fieldfare_server.run.round.masked import rehearse_masks

        rehearse_masks(grid, session.plan, session.schema, session.files.directory.parent)
    return grid


def check_first(plan: Plan, *, accept_delta: bool = False) -> TaskReport:
    """Return what a check of the plan's task saw, before anything is written.

    Raises `BadInput` for a task with a fault, and for a plan that its users cannot fill.

    Args:
        accept_delta: as `check_population_size`, whose warnings are printed.
    """
    from fieldfare_client.app import user_names  # imports PyTorch

    report = check_here(plan.task_reference, plan.client)
    print_warnings(report.warnings)
    names = user_names(plan.task_reference)
    warnings = [*admit(plan, None, None, names).warnings]
    print_warnings(warnings + check_population_size(plan, len(names), accepted=accept_delta))
    return report


def priced_here(home: StateDirectory, plan: Plan) -> tuple[Cost, dict[str, bytes]] | None:
    """Return (The plan's cost, what optimisers decided for it), if its population admits it with the users of
    its task. Raises as `admit`.

    None for a certified plan: its price is drawn when its run is started, which judges it.
    """
    from fieldfare_client.app import user_names  # imports PyTorch

    if plan.draws_its_price:
        return None
    decided = Decisions(plan, home.root)
    cost = price_with_model(plan, decided)
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        admit(plan, cost, ledger, user_names(plan.task_reference))
    return cost, decided


def check_known_users(directory: StateDirectory, plan: Plan, accepted: bool) -> None:
    """Raise `BudgetRefused` for a federation's run that the population would refuse, with the users of earlier runs.

    Too few users are a warning: further ones may join, and the coordinator counts who is there before its
    first round. A certified plan is priced by its coordinator, which writes the seed down first.
    """
    with Ledger.open(directory.ledger, head_file=directory.head_file) as ledger:
        known = ledger.find_population(plan.privacy.population)
        if known is not None and not plan.draws_its_price:
            try:
                admit(plan, cost_of(plan, Decisions(plan, directory.root)), ledger)
            except BadInput as refusal:
                print_warnings([f"with the users of earlier runs the run cannot reach its end: {refusal}"])
    if known is not None and known.simulated:
        say_made_up(plan)
    if known is not None and known.users:  # None where their number is secret
        print_warnings(check_population_size(plan, known.users, accepted=accepted))


# Share of its ball's radius that a mirror step must be able to move the model over the run.
LEAST_REACH = 1e-3
# Of the score, over a whole run.
LEAST_CHANGE = 0.002


def geometry_warnings(session: Session) -> list[str]:
    """Return what speaks against the plan's l_p geometry before any training: a ball that the steps cannot cross."""
    spec, plan, cost = session.plan.server_optimizer, session.plan, session.cost
    if not isinstance(spec, FTRL) or cost is None:
        return []
    std = cost.noise_multiplier * plan.aggregation.widening * float(cost.mechanism.row_norms().max())
    noise = std * session.released.clip / plan.run.cohort
    reach = spec.reach(plan.run.rounds, noise, session.schema.numel)
    if reach is None or reach >= LEAST_REACH:
        return []
    return [
        f"server_optimizer.p = {spec.p:g}: along a direction that all {session.schema.numel:,} parameters share, the "
        f"whole run moves the model by at most {reach:.1g} of its radius; p = 2, or a larger learning_rate"
    ]


def stuck_warnings(trace: Trace, spec: ServerOptimizerSpec) -> list[str]:
    """Warn afterwards: under p < 2, a score that stayed where it was."""
    scores = [report.score for report in trace.reports if report.score is not None]
    if not isinstance(spec, FTRL) or spec.p == 2.0 or len(scores) < 2 or max(scores) - min(scores) >= LEAST_CHANGE:
        return []
    return [
        f"server_optimizer.p = {spec.p:g}: the score stayed within {LEAST_CHANGE:g} of {scores[0]:.4g} all run long; "
        "in this geometry the model may not learn: p = 2, or a larger learning_rate"
    ]


def run_here(session: Session, grid: LocalGrid, label: str, quiet: bool, private: bool = True) -> Trace:
    """Run `session` to its end on `grid`. Raises what `FieldfareStrategy.start` raises."""
    from fieldfare_server.run.round.strategy import FieldfareStrategy  # imports Flower

    trace = Trace(label, session.account.id if private else "", private, noise_multiplier=session.noise_multiplier)
    trace.prefix_noise = 0.0 if session.cost is None else session.cost.prefix_noise_rms
    began = time.perf_counter()
    if not session.plan.aggregation.rings:  # each masked round is closed durably, before it is opened
        session.account.begin_groups()
    print_warnings(geometry_warnings(session))
    with session:
        if quiet:
            FieldfareStrategy(session, trace.reports.append).start(grid)
        elif out.is_terminal:
            with _bar() as progress:
                task = progress.add_task(label, total=session.plan.run.rounds, completed=session.next_round, status="")

                def show(report: RoundReport) -> None:
                    trace.reports.append(report)
                    progress.update(task, advance=1, status=_describe(report, private))

                FieldfareStrategy(session, show).start(grid)
        else:
            FieldfareStrategy(session, _line_printer(trace, private)).start(grid)
    trace.seconds = time.perf_counter() - began
    print_warnings(stuck_warnings(trace, session.plan.server_optimizer))
    return trace


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        console=err,
    )


def _describe(report: RoundReport, private: bool) -> str:
    score = "—" if report.score is None else f"{report.score:.4f}"
    spent = f"epsilon {up(report.epsilon):g} / {up(report.epsilon_limit):g} of the run" if private else "NOT PRIVATE"
    return f"{spent}   {report.score_name} {score}"


def _line_printer(trace: Trace, private: bool) -> Callable[[RoundReport], None]:
    def print_line(report: RoundReport) -> None:
        trace.reports.append(report)
        committed = report.round + 1
        # About eight lines a run, and always the last round.
        if committed == report.rounds or committed % max(1, report.rounds // 8) == 0:
            print_progress(f"{trace.label}: round {committed}/{report.rounds}   {_describe(report, private)}")

    return print_line
