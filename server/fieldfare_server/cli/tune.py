"""`fieldfare tune`: trials on a share of the users, each charged before it is shown, and a plan for the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from pydantic import JsonValue

from fieldfare.atomic import write_out
from fieldfare.errors import Conflict, Differs, NotNow, WrongForm
from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare.text import up
from fieldfare_server.cli import sessions
from fieldfare_server.cli.ask import put, resumed
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.options import AcceptDeltaOption, JsonOption, PlanArgument
from fieldfare_server.cli.output import print_progress, print_text
from fieldfare_server.cli.progress import check_first, local_grid, run_here
from fieldfare_server.cli.sealed import require_sealed, search
from fieldfare_server.evidence.looks import Look
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import plan_path, plan_text, read_plan
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.ledger.states import ACTIVE
from fieldfare_server.ledger.views import RunView
from fieldfare_server.planning.tuning import HELD_OUT, Tried, Tuned, Tuning, behind


@on_home
def tune(
    directory: StateDirectory,
    path: PlanArgument = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="what is tried: a key of the plan and its values; repeatable"),
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="of the users, for trials [the plan's, or a tenth]", show_default=False)
    ] = None,
    score: Annotated[
        str, typer.Option(help="held-out: the task's public score; correct, or loss=LOW,HIGH: a charged question")
    ] = HELD_OUT,
    to: Annotated[Path, typer.Option("--out", help="the plan for the others, with the best values")] = Path(
        "tuned.toml"
    ),
    sealed: Annotated[
        bool, typer.Option("--sealed", help="charge all users first, and show the best trial alone: the final model")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print what the ways of tuning cost; run and charge nothing")
    ] = False,
    accept_delta: AcceptDeltaOption = False,
    json_: JsonOption = False,
) -> CommandResult:
    """Try settings of a plan on a share of its users, and write the best into a plan for the others.

    The same command again goes on where it was interrupted, or shows what it found: nothing is charged twice.
    With --sealed it is another search, charged anew, and the plan is the one that the best model was trained by.
    """
    values = list(map(_values, over or []))
    for index, (key, _) in enumerate(values):
        if key in dict(values[:index]):
            raise Conflict(f"--over {key}", "is given twice.", f"all its values at once, --over {key}=1,2,3")
    tuning = Tuning.of(read_plan(plan_path(path)), dict(values), share=share, score=score, sealed=sealed)
    require, run_trials = way_of(sealed)
    offer = tuning.offer()
    if dry_run:
        with Ledger.open(directory.ledger, head_file=directory.head_file) as opened:
            require(opened, tuning)
        return CommandResult(asdict(offer), lambda: print_text(f"{offer}\nNothing was run or charged."))
    print_progress(str(offer))
    tuned = run_trials(directory, tuning, accept_delta=accept_delta, quiet=json_)
    write_out(to, plan_text(tuned.plan))
    whose = f"of the model {tuned.model}" if sealed else "for the others, with the values of the first line"
    shown: dict[str, object] = {"trials": [asdict(tried) for tried in tuned.trials], "plan": str(to)}
    shown |= {"model": tuned.model} if sealed else {}
    return CommandResult(shown, lambda: print_text(f"{tuned}\n{to}: the plan {whose}."))


def way_of(sealed: bool) -> tuple[Callable[[Ledger, Tuning], object], Callable[..., Tuned]]:
    """Return what refuses trials that may not run, and what runs them: `require_sealed` and `search`, or ours."""
    return (require_sealed, search) if sealed else (require_admitted, try_all)


def try_all(home: StateDirectory, tuning: Tuning, *, accept_delta: bool = False, quiet: bool = False) -> Tuned:
    """Run all trials here, compare them, and make the plan for the others.

    What the ledger has of it already is not run again. Before the first trial all of it is admitted.

    Raises:
        BadInput: a plan does not fit its users, or a trial ended early.
        BudgetRefused: the budget does not hold all of it.
        Interrupted: Ctrl-C. The same again goes on.
    """
    trials = [tuning.trial(place) for place in range(len(tuning.settings))]
    for trial in {trial.task_reference: trial for trial in reversed(trials)}.values():  # the first of each task
        check_first(trial, accept_delta=accept_delta)
    home.prepare()
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        require_admitted(ledger, tuning)
    runs = [_completed(home, tuning, number, quiet) for number in range(1, 1 + len(tuning.settings))]
    asked = tuning.question([run.id for run in runs], tuning.size(_users(tuning)))
    if asked is None:
        return _tuned(home, tuning, runs, None)
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        found = _found(ledger, asked.plan_for_nodes())
    look = put(home, asked, accept_delta=True) if found is None else resumed(home, found.id)
    return _tuned(home, tuning, runs, look)


def require_admitted(ledger: Ledger, tuning: Tuning) -> None:
    """Raise as `Tuning.admit` for what the ledger does not have yet."""
    found = [_found(ledger, tuning.trial(index)) for index in range(len(tuning.settings))]
    runs = [run.id for run in found if run is not None and run.state == "done"]
    names = _users(tuning)
    asked = tuning.question(runs, tuning.size(names)) if len(runs) == len(found) else None
    if len(runs) < len(found) or (asked is not None and _found(ledger, asked.plan_for_nodes()) is None):
        tuning.admit(ledger, names, frozenset(at for at, run in enumerate(found) if run is not None))


def _users(tuning: Tuning) -> NDArray[np.uint64]:
    """Return the pseudonyms of all users. Raises `BadInput` where a trial's task would have others."""
    from fieldfare_client.app import user_names  # imports PyTorch

    names, *others = map(user_names, dict.fromkeys(plan.task_reference for plan in tuning.finals))
    if not all(np.array_equal(names, other) for other in others):
        raise Differs("over [task]", "trials would have other users than the final run.", "one tuning for each of them")
    return names


def _found(ledger: Ledger, plan: Plan) -> RunView | None:
    """Return the newest run of this very plan that has ended well, or goes on."""
    runs = ledger.runs(population=plan.privacy.population, plan_digest=plan.digest()).items
    return next((run for run in runs if run.state == "done" or run.state in ACTIVE), None)


def _completed(home: StateDirectory, tuning: Tuning, number: int, quiet: bool) -> RunView:
    """Return a trial's run that has reached its end: one that the ledger has, one that goes on, or a new one."""
    plan, label = tuning.trial(number - 1), f"trial {number}"
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        if (found := _found(ledger, plan)) is None:  # caps may have been tightened since the one before
            require_admitted(ledger, tuning)
    if found is not None and found.state == "done":
        return found
    session = (
        sessions().begin(home, plan, identity_is_stable=True, actor=SIMULATION)
        if found is None
        else sessions().resume(home, found.id, identity_is_stable=True, actor=SIMULATION)
    )
    run_here(session, local_grid(plan, 1), label, quiet)
    with Ledger.open(home.ledger) as ledger:
        ended = ledger.run(session.account.id)
    if ended.state != "done":
        why = f"it ended early: {ended.state}. {ended.message}"
        raise NotNow(f"{label}, run {ended.id}", why, "the same command again, which tries it anew")
    return ended


def _tuned(home: StateDirectory, tuning: Tuning, runs: Sequence[RunView], look: Look | None) -> Tuned:
    task = load_task(tuning.plan.task_reference)
    if look is not None:
        answers = {each.name: each for each in look.answer}
        tried = [
            Tried(values, run.id, run.spent_epsilon, (at := answers[run.id]).value, at.low, at.high)
            for values, run in zip(tuning.settings, runs, strict=True)
        ]
        order = [[run.id for run in runs].index(each.name) for each in look.answer[: len(runs)]]
        declared = f"users of the share, charged: epsilon {up(look.epsilon):g} by run {look.run}"
        name = tuning.asks[0] if tuning.asks else ""
    else:
        with Ledger.open(home.ledger) as ledger, ledger.snapshot() as snapshot:
            series = [snapshot.round_series(run.id, points=2)[-1].statistics for run in runs]
        tried = [
            Tried(values, run.id, run.spent_epsilon, last.get("score"))
            for values, run, last in zip(tuning.settings, runs, series, strict=True)
        ]
        order, name, declared = (
            sorted(range(len(tried)), key=lambda at: behind(tried[at].score, task.least_is_best)),
            task.score_name,
            f"public data, the {'least' if task.least_is_best else 'largest'} score first. {task.held_out}",
        )
    return Tuned(tuning.finals[order[0]], tuple(tried[at] for at in order), name, declared, str(home.root))


def _values(text: str) -> tuple[str, list[JsonValue]]:
    """Return ("run.cohort", [10, 20]) of "run.cohort=10,20". What is not JSON is text."""
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise WrongForm(f"--over {text}", "needs a key and values.", "--over server_optimizer.learning_rate=0.1,0.3,1")
    found: list[JsonValue] = []
    for each in map(str.strip, values.split(",")):
        try:
            found.append(json.loads(f"0{each}" if each.startswith(".") else each))
        except ValueError:
            found.append(each)
    return key.strip(), found
