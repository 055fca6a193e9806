"""`fieldfare ask`: a question about users' data, charged before its answer is shown."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldfare.atomic import write_out
from fieldfare.cost import Cost
from fieldfare.errors import Conflict, NotFound, NotGiven
from fieldfare.names import is_question
from fieldfare.plan import Plan
from fieldfare.population_size import check_population_size
from fieldfare.questions import Question
from fieldfare_server.cli import importing, sessions
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.options import AcceptDeltaOption, trusted
from fieldfare_server.cli.output import print_progress, print_text, print_warnings
from fieldfare_server.cli.progress import check_known_users, local_grid, run_here
from fieldfare_server.deployment.submit import submit_and_follow
from fieldfare_server.evidence.looks import Look, Offer, look, question_of
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import read_plan, require_task
from fieldfare_server.ledger import Ledger, new_run_id
from fieldfare_server.ledger.holders import SIMULATION, require_same_users
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.questions import CLIP_EPSILON, Asked, plan_for, require_clear, with_norm
from fieldfare_server.run.pricing import price_with_model

if TYPE_CHECKING:
    from fieldfare_server.run.session import Session


@on_home
def ask(
    directory: StateDirectory,
    path: Annotated[Path | None, typer.Argument(metavar="[QUESTION.toml]", help="the question file")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the price and the width of the answer; ask and charge nothing")
    ] = False,
    resume: Annotated[
        str, typer.Option(metavar="RUN", help="the answer of this run, which was interrupted or has ended")
    ] = "",
    clip_of: Annotated[
        Path | None,
        typer.Option(metavar="PLAN.toml", help="ask for the median update norm of this plan, and write it there"),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help=f"with --clip-of: what the norm may cost, taken alone [{CLIP_EPSILON}]", show_default=False),
    ] = None,
    superlink: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="ask the users of this federation's nodes, and not simulated ones")
    ] = "",
    root_certificates: Annotated[Path | None, typer.Option(help="the federation's ca.crt")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="no TLS: for a quick look only")] = False,
    accept_delta: AcceptDeltaOption = False,
) -> CommandResult:
    """Ask users a question, charge their population, and print the answer with its interval."""
    found: Look | Offer
    if sum((path is not None, bool(resume), clip_of is not None)) != 1:
        why = "needs a question file, --resume RUN, or --clip-of PLAN.toml, and one of them."
        raise NotGiven("ask", why, "fieldfare ask QUESTION.toml")
    nodes = superlink or insecure or root_certificates
    if (epsilon is not None and clip_of is None) or (nodes and not (superlink and path)):
        why = "--epsilon goes with --clip-of, --superlink with a question file, what it is trusted by with it."
        raise Conflict("ask", why, "the epsilon of the file, or users of this process")
    if clip_of is not None:
        paid = CLIP_EPSILON if epsilon is None else epsilon
        found = ask_clip(directory, clip_of, paid, dry_run=dry_run, accept_delta=accept_delta)
    elif path is None:
        found = resumed(directory, resume, dry_run=dry_run)
    elif not superlink:
        asked = Asked.read(path)
        found = offer(directory, asked) if dry_run else put(directory, asked, accept_delta=accept_delta)
    else:
        asked, certificates = Asked.read(path), trusted("ask", root_certificates, insecure)
        plan = asked.plan_for_nodes()
        cost = price_with_model(plan)
        if dry_run:
            found = Offer.of(plan, cost)
        else:
            check_known_users(directory, plan, accept_delta)
            found = put_to_nodes(directory, plan, asked, superlink, certificates)
    return CommandResult(asdict(found), lambda: print_text(str(found)))


def offer(home: StateDirectory, asked: Asked) -> Offer:
    """Return what a question would cost now. Raises `BadInput`, `BudgetRefused` as asking it would."""
    return Offer.of(*_ready(home, asked))


def put(home: StateDirectory, asked: Asked, *, accept_delta: bool = False, clear: bool = False) -> Look:
    """Ask a question here: it is admitted, charged durably, and only then answered.

    Raises:
        BadInput: an unknown measure, run or population, a delta that is large for so many users.
        BudgetRefused: the budget does not hold it.
        Interrupted: Ctrl-C; `resumed` goes on.
    """
    home.prepare()
    plan, cost = _ready(home, asked, accept_delta=accept_delta, clear=clear)
    return _answer(home, sessions().begin(home, plan, identity_is_stable=True, actor=SIMULATION, priced=(cost, {})))


def ask_clip(home: StateDirectory, path: Path, epsilon: float, *, dry_run: bool, accept_delta: bool) -> Look | Offer:
    """Ask for the clip norm of the plan in `path` and write it there. Raises as `put`, and as `with_norm`."""
    asked, text = Asked.clip_of(read_plan(path), epsilon), path.read_text()
    with_norm(text, 1.0)  # a plan that cannot be written to costs nothing
    if dry_run:
        return Offer.of(*_ready(home, asked, accept_delta=accept_delta, clear=True))
    found = put(home, asked, accept_delta=accept_delta, clear=True)
    norm = found.answer[0].value
    if norm is None:  # fewer than half of the users have an update
        print_warnings([f"{path} is left as it is: too few users have an update whose norm could be told."])
        return found
    try:
        write_out(path, with_norm(text, float(f"{norm:.3g}")))
    except OSError as error:  # the answer is charged, and told all the same
        print_warnings([f"{path} cannot be written ({error.strerror}): set clipping.norm = {norm:.3g} there."])
    else:
        print_progress(f"{path}: clipping.norm = {norm:.3g}")
    return found


def put_to_nodes(home: StateDirectory, plan: Plan, asked: Asked, superlink: str, certificates: Path | None) -> Look:
    """Ask the users of a federation: its coordinator admits, charges and answers as `put` does. Raises as it."""
    text = json.dumps(plan.model_dump(mode="json", exclude_none=True))
    run_id = new_run_id()
    terms = {"plan": text, "task": asked.of_users, "root_certificates": certificates}
    submit_and_follow(home, superlink, print_progress, run_id=run_id, detach=False, **terms)
    with Ledger.open(home.ledger) as ledger:
        return look(ledger, run_id)


def resumed(home: StateDirectory, run_id: str, *, dry_run: bool = False) -> Look:
    """Return the answer of a run that was interrupted, which goes on, or that has ended. Nothing is charged a
    second time.

    Raises `BadInput` for a run that asked nothing, and in a dry run for one that would go on: it may ask and charge.
    """
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        run = ledger.run(run_id)
        question = question_of(run.plan)
        if question is None or run.ended_at is not None:
            return look(ledger, run_id)
        require_task(run_id, Plan.stored(run.plan))
        require_same_users(run_id, run.started_by, here=True)
        if dry_run:
            raise Conflict(f"dry run of {run_id}", "it has not ended: going on asks and charges.", "no dry run")
        _provide(home, ledger, question)
    _try_measure(Plan.stored(run.plan))
    return _answer(home, sessions().resume(home, run_id, identity_is_stable=True, actor=SIMULATION))


def _try_measure(plan: Plan) -> None:
    from fieldfare_client.app import require_measurable  # imports PyTorch

    require_measurable(plan.task_reference)


def _answer(home: StateDirectory, session: Session) -> Look:
    run_id = session.account.id
    run_here(session, local_grid(session.plan, 1), f"run {run_id}", quiet=True)
    with Ledger.open(home.ledger) as ledger:
        return look(ledger, run_id)


def _ready(home: StateDirectory, asked: Asked, *, accept_delta: bool = True, clear: bool = False) -> tuple[Plan, Cost]:
    """Return a question's plan and cost, if its population admits it; `clear`: and if its answer is not noise alone."""
    with importing():
        from fieldfare_client.app import user_names  # imports PyTorch
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        _provide(home, ledger, asked.question)
        everyone = user_names((of_one := asked.plan(1)).task_reference)
        names = everyone[of_one.takes(everyone)]
        plan, cost = plan_for(asked, names, ledger)
        print_warnings(check_population_size(plan, len(everyone), accepted=accept_delta))
        admit(plan, cost, ledger, names)
    if clear:
        require_clear(asked, plan, cost)
    if asked.run.cohort is None and plan.run.cohort < len(names):
        print_warnings([f"{plan.run.cohort} of {len(names)} users are asked: the others have too little left"])
    _try_measure(plan)
    return plan, cost


def _provide(home: StateDirectory, ledger: Ledger, question: Question) -> None:
    """Let the nodes of this process read the models that a question is about. Raises `BadInput` without them."""
    from fieldfare_client.questions import provide  # imports PyTorch

    for run in question.runs:
        view = ledger.run(run)
        file = home.root / view.id / "model.safetensors"
        if is_question(view.plan) or not file.is_file():
            raise NotFound(f"the model of run {run}", f"it released none, or not into {home.root}.", "another run")
        provide(run, file)
