"""`fieldfare ask`: a question about users' data, charged before its answer is shown."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.cost import Cost
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.questions import Question
from fieldfare_server.cli.options import AcceptDeltaOption, HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import print_json, print_text, print_warnings, refusals
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.evidence.looks import Look, Offer, look, question_of
from fieldfare_server.evidence.population_size import check_population_size
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.questions import Asked, plan_for
from fieldfare_server.run.session import Session


def ask(
    path: Annotated[Path | None, typer.Argument(metavar="[QUESTION.toml]", help="the question file")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the price and the width of the answer; ask and charge nothing")
    ] = False,
    resume: Annotated[
        str, typer.Option(metavar="RUN", help="the answer of this run, which was interrupted or has ended")
    ] = "",
    accept_delta: AcceptDeltaOption = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Ask simulated users a question, charge their population, and print the answer with its interval."""
    with refusals(json_):
        if (path is None) == (not resume):
            raise BadInput(
                "ask", "needs a question file, or --resume RUN, and not both.", "fieldfare ask QUESTION.toml"
            )
        directory = StateDirectory.of(home, ledger)
        if path is None:
            found: Look | Offer = resumed(directory, resume)
        else:
            asked = Asked.read(path)
            found = offer(directory, asked) if dry_run else put(directory, asked, accept_delta=accept_delta)
        if json_:
            print_json(asdict(found))
        else:
            print_text(str(found))


def offer(home: StateDirectory, asked: Asked) -> Offer:
    """What a question would cost now. Raises `BadInput`, `BudgetRefused` as asking it would."""
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        return Offer.of(*_admitted(home, ledger, asked))


def put(home: StateDirectory, asked: Asked, *, accept_delta: bool = False) -> Look:
    """Ask a question here: it is admitted, charged durably, and only then answered.

    Raises:
        BadInput: an unknown measure, run or population, a delta that is large for so many users.
        BudgetRefused: the budget does not hold it.
        Interrupted: Ctrl-C; `resumed` goes on.
    """
    home.prepare()
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        plan, cost = _admitted(home, ledger, asked, accept_delta=accept_delta)
    return _answer(home, Session.begin(home, plan, identity_is_stable=True, actor=SIMULATION, priced=(cost, {})))


def resumed(home: StateDirectory, run_id: str) -> Look:
    """The answer of a run that was interrupted, which goes on, or that has ended. Nothing is charged a second time.

    Raises `BadInput` for a run that asked nothing.
    """
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        run = ledger.run(run_id)
        question = question_of(run.plan)
        if question is None or run.ended_at is not None:
            return look(ledger, run_id)
        _provide(home, ledger, question)
    return _answer(home, Session.resume(home, run_id, identity_is_stable=True))


def _answer(home: StateDirectory, session: Session) -> Look:
    run_id = session.account.id
    run_here(session, local_grid(session.plan, 1), f"run {run_id}", quiet=True)
    with Ledger.open(home.ledger) as ledger:
        return look(ledger, run_id)


def _admitted(home: StateDirectory, ledger: Ledger, asked: Asked, *, accept_delta: bool = True) -> tuple[Plan, Cost]:
    """The plan of a question and its cost, if its population admits it."""
    from fieldfare_client.questions import names_of_asked  # imports PyTorch

    _provide(home, ledger, asked.question)
    names = names_of_asked(asked.plan(1).task_reference)
    plan, cost = plan_for(asked, names, ledger)
    print_warnings(check_population_size(plan, len(names), accepted=accept_delta))
    admit(plan, cost, ledger, names)
    if plan.run.cohort < len(names):
        print_warnings([f"{plan.run.cohort} of {len(names)} users are asked: the others have too little left"])
    return plan, cost


def _provide(home: StateDirectory, ledger: Ledger, question: Question) -> None:
    """Let the nodes of this process read the models that a question is about. Raises `BadInput` without them."""
    from fieldfare_client.questions import provide  # imports PyTorch

    for run in question.runs:
        file = home.root / ledger.run(run).id / "model.safetensors"
        if not file.is_file():
            raise BadInput(f"the model of run {run}", f"it released none, or not into {home.root}.", "another run")
        provide(run, file)
