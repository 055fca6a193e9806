"""`ff.ask`: a question about users' data, charged to their population before its answer is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldfare.errors import Conflict, NotGiven, WrongForm
from fieldfare.names import OWN_APP
from fieldfare.plan import Plan
from fieldfare.task import Task, hold
from fieldfare_client.app import user_names
from fieldfare_server.cli.ask import offer, put, resumed
from fieldfare_server.evidence.looks import Look, Offer, look
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.notebook.simulation import Afresh, Budget, home_of, make_population
from fieldfare_server.planning.questions import Asked, priced, require_clear
from fieldfare_server.run.private.asking import Asking


def ask(
    question: Mapping[str, object] | None = None,
    *,
    task: str | Task = "",
    parameters: Mapping[str, object] | None = None,
    population: str = "",
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta: float | None = None,
    adjacency: str | None = None,
    client: Mapping[str, object] | None = None,
    budget: Budget | None = None,
    ledger: str | Path | None = None,
    dry_run: bool = False,
    resume: str = "",
    accept_delta: bool = False,
    clip_of: Plan | None = None,
    grid: object = None,
    dialect: str = "plain",
    query: str = "",
    content: object = None,
    cohort: int | None = None,
    trust_node_ids: bool = False,
) -> Look | Offer:
    """Ask the users of a task a question, and charge their population before the answer is shown.

    Example:
        >>> import fieldfare as ff
        >>> question = {"kind": "mean", "measure": "rows", "low": 0, "high": 50}
        >>> offer = ff.ask(question, task="digits", population="demo", budget=2, epsilon=0.5, delta=1e-3, dry_run=True)
        >>> look = ff.ask(question, task="digits", population="demo", budget=2, epsilon=0.5, delta=1e-3)
        >>> print(look)
        question: mean of rows from 0.0 to 50.0, task digits
          mean: ... (... to ...)
          users with a value: somewhere from ... to 100
        100 users answered; epsilon 0.5 at delta 0.001, charged to population demo by run ...

    Guarantee: the answer, together with all that other runs and questions release, is within the population's
    budget: a question is a run of one round, with its noise, journal, odometers and certificate.

    Args:
        question: the `[question]` table: a kind (count, histogram, mean, quantile, sums, auc, items, choose),
            a measure, and public bounds of it.
        task: whose users are asked: a name, or an object of this process.
        parameters: of a task that is named.
        population: whose budget is charged.
        epsilon, delta: what the question may cost, taken alone; or `noise_multiplier` in place of epsilon:
            the noise of one user's contribution. delta is 1e-5 if left out, of `clip_of` its plan's.
        adjacency: the population's; None: "zero_out", of `clip_of` its plan's.
        client: the local training of measure "update-norm", as a plan's `[client]` table.
        budget, ledger: as for `ff.simulate`. A question about a released model needs the ledger of its run.
        dry_run: say what it would cost and how wide the answer would be; ask and charge nothing.
        resume: the answer of this run of `ledger`, which was interrupted or has ended; nothing is charged
            again.
        accept_delta: ask although delta is large for so many users, with a warning.
        clip_of: in place of a question and a task: ask for the median update norm of this plan, at `epsilon`
            (0.1 if left out), from the plan's population or from `population`. Then
            `clip=look.answer[0].value`.
        grid: in a Flower ServerApp: ask the users of this grid's nodes in place of a task's. `ledger`: as
            `home` of `ff.PrivateStrategy`.
        dialect: "plain": a user is a node, whose `@app.query` replies a MetricRecord with what the question
            names; "cohort": a node answers for each of its users by `@ff.private.measure`.
        query, content: the action of `@app.query(action)`, and the RecordDict that it gets.
        cohort: users who are asked; None: all who can pay, of a grid as many as there are nodes (needed in the
            cohort dialect).
        trust_node_ids: ask a grid whose SuperLink authenticates no node; ledger and page show it.

    Returns:
        The answer with its intervals (`Look`), or, of a dry run, the price and the width (`Offer`).

    Raises:
        BadInput: no bounds, an unknown measure or run, or an adjacency under which presence is secret.
        BudgetRefused: the budget does not hold it.
        Interrupted: Ctrl-C. In a named ledger the question can be resumed.
    """
    given = {"delta": delta, "adjacency": adjacency, "epsilon": epsilon, "noise_multiplier": noise_multiplier}
    said = {name: value for name, value in given.items() if value is not None}
    privacy: dict[str, object] = {"population": population, "delta": 1e-5, "adjacency": "zero_out", **said}
    size: dict[str, object] = {} if cohort is None else {"cohort": cohort}
    if grid is not None:
        if question is None or resume or task or parameters or client or clip_of is not None or dry_run:
            raise Conflict("ask", "a grid takes a question, and its own app answers.", "ff.ask({...}, grid=grid)")
        home = StateDirectory.of(None) if ledger is None else home_of(ledger)[0]
        run = {"task": OWN_APP, "trust_node_ids": trust_node_ids, **size}
        asked = Asked.of({"question": question, "run": run, "privacy": privacy})
        app = {"dialect": dialect, "accept_delta": accept_delta, "query": query, "content": content}
        return _ask_grid(grid, asked, home, budget, app)
    if query or content is not None or dialect != "plain" or trust_node_ids:
        what = "dialect, query, content and trust_node_ids"
        raise Conflict("ask", f"{what} are for a grid's app.", "ff.ask({...}, grid=grid)")
    home, _kept = home_of(ledger)  # a temporary one lives as long as this call
    asks = task or parameters or client or any(each is not None for each in (question, noise_multiplier, cohort))
    if clip_of is not None and (resume or asks):
        raise Conflict("ask", "the plan of clip_of says what is asked of whom.", "ff.ask(clip_of=plan, ...)")
    if clip_of is None and (resume or question is None):
        if not resume or asks or said or population or budget is not None or ledger is None:
            raise NotGiven("ask", "needs a question, or resume=RUN with its ledger alone.", "ff.ask({...})")
        return resumed(home, resume, dry_run=dry_run)
    how = {"fresh": ledger is None, "dry": dry_run, "accept_delta": accept_delta}
    if clip_of is not None:
        own = {"population": population or clip_of.privacy.population, **said}
        named = clip_of.privacy.model_copy(update=own)
        of = clip_of.model_copy(update={"privacy": named})
        wanted = Asked.clip_of(of) if epsilon is None else Asked.clip_of(of, epsilon)
        return _put(home, wanted, budget, **how, clip=True)
    run = {"task": hold(task) if isinstance(task, Task) else task, **size}
    table = {"question": question, "run": run, "task": dict(parameters or {}), "privacy": privacy}
    asked = Asked.of(table if client is None else {**table, "client": client})
    return _put(home, asked, budget, **how, clip=False)


def _ask_grid(grid: Any, asked: Asked, home: StateDirectory, budget: Budget | None, app: dict[str, Any]) -> Look:
    """Ask the users of a grid's nodes; `app`: as `Asking` takes. Raises `BadInput` for what only a task can answer."""
    if asked.question.is_of_task:
        what = f"question of {asked.question.kind!r} by {asked.question.measure!r}"
        raise Conflict(what, "a Flower app has no such measure.", "task=, without grid=")
    if app["dialect"] == "cohort":
        asked.plan_for_nodes()  # refuses where it is not said how many
    if isinstance(budget, tuple):
        raise WrongForm(f"budget = {budget!r}", "is epsilon; the delta is the question's.", f"{budget[0]:g}")
    run = Asking(asked.plan, home, budget=budget, **app).ask(grid)
    with Ledger.open(home.ledger) as ledger:
        return look(ledger, run)


@Afresh()
def _put(
    home: StateDirectory, asked: Asked, budget: Budget | None, *, fresh: bool, dry: bool, accept_delta: bool, clip: bool
) -> Look | Offer:
    """Ask in `home`, which is a temporary one where it is `fresh`."""
    plan, cost = priced(asked, int(asked.plan(1).takes(user_names(asked.of_users)).sum()))
    if clip:
        require_clear(asked, plan, cost)
    if dry and fresh:
        user_names(plan.task_reference)  # an unknown measure or run
        return Offer.of(plan, cost)
    if not dry:
        home.prepare()
        with Ledger.open(home.ledger, create=True, head_file=home.head_file) as opened:
            make_population(opened, asked.privacy.population, [plan], [cost], budget)
    return offer(home, asked) if dry else put(home, asked, accept_delta=accept_delta)
