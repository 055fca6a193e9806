"""`ff.ask`: a question about users' data, charged to their population before its answer is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.task import Task, hold
from fieldfare_client.app import forget_users, user_names
from fieldfare_server.cli.ask import offer, put, resumed
from fieldfare_server.evidence.looks import Look, Offer
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.notebook.simulation import Budget, home_of, make_population
from fieldfare_server.planning.questions import CLIP_EPSILON, Asked, require_clear
from fieldfare_server.run.pricing import price_with_model


def ask(
    question: Mapping[str, object] | None = None,
    *,
    task: str | Task = "",
    parameters: Mapping[str, object] | None = None,
    population: str = "",
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    adjacency: str = "zero_out",
    client: Mapping[str, object] | None = None,
    budget: Budget | None = None,
    ledger: str | Path | None = None,
    dry_run: bool = False,
    resume: str = "",
    accept_delta: bool = False,
    clip_of: Plan | None = None,
) -> Look | Offer:
    """Ask the users of a task a question, and charge their population before the answer is shown.

        ff.ask({"kind": "mean", "measure": "rows", "low": 0, "high": 50}, task="digits", population="demo", budget=2,
               epsilon=0.1)

    Guarantee: the answer, together with all that other runs and questions release, is within the population's budget:
    a question is a run of one round, with its noise, journal, odometers and certificate.

    Args:
        question: the `[question]` table: a kind (count, histogram, mean, quantile, auc, choose), a measure, and public
            bounds of it.
        task: whose users are asked: a name, or an object of this process.
        parameters: of a task that is named.
        population: whose budget is charged.
        epsilon, delta: what the question may cost, taken alone; or `noise_multiplier` in place of epsilon: the noise of
            one user's contribution.
        adjacency: the population's.
        client: the local training of measure "update-norm", as a plan's `[client]` table.
        budget, ledger: as for `ff.simulate`. A question about a released model needs the ledger of its run.
        dry_run: say what it would cost and how wide the answer would be; ask and charge nothing.
        resume: the answer of this run of `ledger`, which was interrupted or has ended; nothing is charged again.
        accept_delta: ask although delta is large for so many users, with a warning.
        clip_of: in place of a question and a task: ask for the median update norm of this plan, at `epsilon` (0.1 if
            left out), from the plan's population or from `population`. Then `clip=look.answer[0].value`.

    Returns:
        The answer with its intervals (`Look`), or, of a dry run, the price and the width (`Offer`).

    Raises:
        BadInput: no bounds, an unknown measure or run, or an adjacency under which presence is secret.
        BudgetRefused: the budget does not hold it.
        Interrupted: Ctrl-C. In a named ledger the question can be resumed.
    """
    home, kept = home_of(ledger)
    if clip_of is not None and (question is not None or resume or task or parameters or client or noise_multiplier):
        raise BadInput("ask", "the plan of clip_of says what is asked of whom.", "ff.ask(clip_of=plan, ...)")
    if clip_of is None and (resume or question is None):
        if not resume or question is not None or ledger is None:
            raise BadInput("ask", "needs a question, or resume=RUN with its ledger, and not both.", "ff.ask({...})")
        return resumed(home, resume)
    if clip_of is not None:
        named = clip_of.privacy.model_copy(update={"population": population or clip_of.privacy.population})
        wanted = Asked.clip_of(clip_of.model_copy(update={"privacy": named}), epsilon or CLIP_EPSILON)
        return _put(home, wanted, budget, ledger is None, dry_run=dry_run, accept_delta=accept_delta, clip=True)
    run = {"task": hold(task) if isinstance(task, Task) else task}
    privacy: dict[str, Any] = {"population": population, "delta": delta, "adjacency": adjacency}
    for name, value in (("epsilon", epsilon), ("noise_multiplier", noise_multiplier)):
        if value is not None:
            privacy[name] = value
    table = {"question": question, "run": run, "task": dict(parameters or {}), "privacy": privacy}
    asked = Asked.of(table if client is None else {**table, "client": client})
    try:
        return _put(home, asked, budget, ledger is None, dry_run=dry_run, accept_delta=accept_delta)
    finally:
        del kept


def _put(
    home: StateDirectory,
    asked: Asked,
    budget: Budget | None,
    fresh: bool,
    *,
    dry_run: bool,
    accept_delta: bool,
    clip: bool = False,
) -> Look | Offer:
    """Ask in `home`, which is a temporary one where it is `fresh`."""
    try:
        plan = asked.plan(len(user_names(asked.of_users)))
        cost = price_with_model(plan)
        if clip:
            require_clear(asked, plan, cost)
        if dry_run and fresh:
            return Offer.of(plan, cost)
        if not dry_run:
            home.prepare()
            with Ledger.open(home.ledger, create=True, head_file=home.head_file) as opened:
                make_population(opened, asked.privacy.population, [plan], [cost], budget)
        return offer(home, asked) if dry_run else put(home, asked, accept_delta=accept_delta)
    finally:
        # Each question has a table of its own, and a notebook asks many.
        forget_users()
