"""`ff.tune`: trials on a share of the users, charged to them alone, and a plan for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from fieldfare.plan import Plan
from fieldfare_server.cli.tune import way_of
from fieldfare_server.ledger import Ledger
from fieldfare_server.notebook.simulation import Afresh, Budget, home_of, make_population
from fieldfare_server.planning.tuning import HELD_OUT, Tuned, Tuning, Ways
from fieldfare_server.run.pricing import require_plans


@Afresh()
def tune(
    plan: Plan,
    over: Mapping[str, Sequence[JsonValue]],
    *,
    share: float | None = None,
    score: str = HELD_OUT,
    population: str | None = None,
    budget: Budget | None = None,
    sealed: bool = False,
    ledger: str | Path | None = None,
    dry_run: bool = False,
    accept_delta: bool = False,
    progress: bool = True,
) -> Tuned | Ways:
    """Try settings of a plan on a share of its users, and hand the best to a plan for the others.

    Example:
        >>> import fieldfare as ff
        >>> plan = ff.Plan(task="digits", epsilon=24, delta=1e-3, rounds=4, cohort=20, mechanism="nu", population="p")
        >>> ways = ff.tune(plan, {"server_optimizer.learning_rate": [0.3, 1.0]}, share=0.3, dry_run=True)
        >>> print(ways)
        2 trials and a final run, at most epsilon 24 at delta 0.001 for each user in all; compared by: public ...
          on a share of 0.3: noise of the final model 1.43 times that of one run on all users, ...
        >>> tuned = ff.tune(plan, {"server_optimizer.learning_rate": [0.3, 1.0]}, share=0.3, budget=24, progress=False)
        >>> tuned.plan.server_optimizer.learning_rate in (0.3, 1.0)
        True

    Guarantee: a trial is an ordinary run, and so is the question that compares trials; no user pays more for
    all of it than the dearest of the final runs costs, and the users of the two parts are disjoint. Sealed, all
    users are charged that before the first trial, and nothing but the best one's settings, score and model is
    shown or kept; how long the search takes is not hidden.

    Args:
        plan: what is trained in the end, at its own epsilon.
        over: keys of the plan and the values to try; every combination is a trial.
        share: of the users, for trials; None: the plan's `tuning.share`, or a tenth.
        score: "held-out": the task's own, on data that its author declares public. "correct", or a measure
            with its bounds such as "loss=0,4": a question to the users of the share, charged.
        population, budget, ledger: as for `ff.simulate`.
        sealed: make as many trials as there are combinations, each of a combination that is drawn, and show the
            best of a secret number of them alone. Its model is the final one.
        dry_run: what the ways of tuning would cost; runs and charges nothing.
        accept_delta: run although delta is large for so many users, with a warning.
        progress: show a bar on a terminal, lines elsewhere.

    Returns:
        The trials, the best first, and the plan for the others (`Tuned`); sealed, the best one, the plan that it
        was trained by, and the file of its model (`Tuned.model`); of a dry run the price (`Ways`).

    Raises:
        BadInput: fewer than two trials, a key that no plan has, a population that charges all users alike.
        BudgetRefused: the budget does not hold all of it.
        Interrupted: Ctrl-C. In a named ledger the same call goes on.
        ChargedInVain: Ctrl-C, sealed, or no trial that counts has a model. The search stays charged.
    """
    require_plans("ff.tune", (plan,))
    if population is not None:
        plan = plan.model_copy(update={"privacy": plan.privacy.model_copy(update={"population": population})})
    tuning = Tuning.of(plan, over, share=share, score=score, sealed=sealed)
    require, run_trials = way_of(sealed)
    if dry_run and ledger is None:
        return tuning.offer()
    home, kept = home_of(ledger)
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as opened:
        most = max(tuning.costs, key=lambda cost: cost.loss.mu)
        make_population(opened, plan.privacy.population, [most.plan], [most], budget)
        if dry_run:
            require(opened, tuning)
            return tuning.offer()
    return replace(run_trials(home, tuning, accept_delta=accept_delta, quiet=not progress), kept=kept)
