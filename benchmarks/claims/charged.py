"""Rows of the LoRA page, and of the headline's poems, made again with every look charged: clip norm, rate, the model.

    FIELDFARE_DATA=DIR python benchmarks/claims/charged.py lora --base SHA256 --home DIR [--rows full] [--epsilons 8]
    FIELDFARE_DATA=DIR python benchmarks/claims/charged.py poems --base SHA256 --home DIR [--runs 3]

A share of the users pays for the looks: one question for the median norm of their updates at the base model, from which
the clip norm follows by the factor of the uncharged rows, and trials of three rates. The others train the model that is
kept. All of it is charged to one population in a ledger of the row's own, in --home, by the product's own `ff.ask`,
`ff.tune` and `ff.simulate`. The same command again goes on where it was interrupted; what is done is neither made nor
charged again. Each row's ledger is verified, every charge computed again, before the row is stored. Trials are compared
by nats of tune poets, and scores are those of test poets: both gave their verse to the public. Users of a round train
in one pass, as those of the uncharged rows did.

Rows of the headline that hide who is there are not among these: where presence is secret nothing may be asked, and all
users are charged alike, so a share saves nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import harness
import headline_plans
import lora_plans
import torch
from one_pass import one_pass
from safetensors.torch import load_file, save

import fieldfare as ff
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare_research.poems import PoemsTask
from fieldfare_server.evidence.looks import Look
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.chain import HeadFile, held_heads
from fieldfare_server.notebook.simulation import home_of
from fieldfare_server.planning.tuning import Tuned

POPULATION, SHARE, RATE = "charged", 0.1, "server_optimizer.learning_rate"
RATIOS, VERIFIED = (-1, 0, 1), "verified rows of the ledger"
POEMS = headline_plans.SETTINGS["poems", "small"]
"""Of the headline."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is the same for all rows of a page."""

    rows: Sequence[str]
    epsilons: Sequence[float]
    table: Callable[[str, float, str], harness.Table]
    """(row, epsilon, SHA-256 of the base model) -> a plan whose rate and clip norm do not count."""
    rates: Callable[[harness.Table], list[float]]
    """Rates to try for a plan with its clip norm."""
    factor: float
    """The clip norm as a part of the median norm."""
    looks: float
    """epsilon of the question for the clip norm, taken alone."""
    scales: bool = False
    """Whether a rate is proportional to 1 / noise, so that trials, which have more, try lower ones."""


def _lora_table(row: str, epsilon: float, base: str) -> harness.Table:
    table = lora_plans.plan_table(row, epsilon, lora_plans.Size(base))
    return lora_plans.with_rate(table, lora_plans.RATE[table["task"]["trained"]])


def _lora_rates(table: harness.Table) -> list[float]:
    return [lora_plans.RATE[table["task"]["trained"]] * lora_plans.RATIO**each for each in RATIOS]


def _poems_table(row: str, epsilon: float, base: str) -> harness.Table:
    fewer = dataclasses.replace(POEMS, cohort=math.floor((1 - SHARE) * POEMS.cohort))
    table = headline_plans.table_of("poems", fewer, row, epsilon)
    return headline_plans.with_rate({**table, "task": {**table["task"], "base": base}}, 1.0, POEMS.momentum)


def _poems_rates(table: harness.Table) -> list[float]:
    s = dataclasses.replace(POEMS, cohort=table["run"]["cohort"], clip=table["clipping"]["norm"])
    (first, *_), ratio = headline_plans.rates(s, headline_plans.prefix_noise(table), len(RATIOS)), headline_plans.RATIO
    return [first * ratio ** (1 + place) * (1 - s.momentum) for place, _ in enumerate(RATIOS)]


RECIPES = {
    "lora": Recipe(
        [row for row in lora_plans.ROWS if not row.endswith(lora_plans.PER_LAYER)],
        lora_plans.EPSILONS,
        _lora_table,
        _lora_rates,
        0.3,
        0.1,
    ),
    "poems": Recipe(
        [row for row, (_, sampling) in headline_plans.ROWS.items() if sampling == "apart"],
        *(headline_plans.EPSILONS, _poems_table, _poems_rates, 0.2, 0.2, True),
    ),
}


def budget_of(epsilon: float, delta: float, looks: float) -> float:
    """Epsilon that holds trials which cost a run of `epsilon` together, and a question of epsilon `looks`: rounded up,
    because a question's price is, too."""
    mu = math.hypot(gaussian_mu(epsilon, delta), gaussian_mu(looks, delta))
    return math.ceil(1e2 * gaussian_epsilon(mu, delta)) / 1e2


def made_again(
    table: harness.Table, recipe: Recipe, home: Path, share: float = SHARE, score: str = "", accept_delta: bool = False
) -> harness.Table:
    """Ask, tune and train, each once; return what was found and what every user paid.

    Args:
        table: a plan whose learning rate and clip norm do not count.
        score: of the task `poems` nothing: nats, the lower the better. Else a score of which more is better.
    """
    privacy = {**table["privacy"], "population": POPULATION}
    budget = budget_of(privacy["epsilon"], privacy["delta"], recipe.looks)
    # Trials have more noise than signal at small epsilons: that is what they are made to show.
    changed = {"privacy": privacy, "run": {**table["run"], "accept_noise": True}, "tuning": {"share": share}}
    plan = Plan.parse({**table, **changed, "task": _scored(table["task"], "tune")})
    of_share = plan.model_copy(update={"tuning": plan.tuning.model_copy(update={"users": "share"})})  # type: ignore[union-attr]
    asked = runs_of(home, asks=True)
    if asked:
        look = ff.ask(resume=asked[0], ledger=home)
    else:
        look = ff.ask(clip_of=of_share, epsilon=recipe.looks, budget=budget, ledger=home, accept_delta=accept_delta)
    assert isinstance(look, Look)
    median = look.answer[0]  # what follows it says how many users have a value
    assert median.value is not None  # such a question is refused before it is asked
    clip = float(f"{recipe.factor * median.value:.3g}")
    plan = plan.model_copy(update={"clipping": plan.clipping.at(clip)})
    rates = recipe.rates({**table, "clipping": {**table["clipping"], "norm": clip}})
    # A trial has a share of the cohort, and noise for a part of the budget: so much more of it in its mean.
    slower = share / math.sqrt(len(rates)) if recipe.scales else 1.0
    of_trial = {rate * slower: rate for rate in rates}
    tuned = ff.tune(plan, {RATE: list(of_trial)}, share=share, ledger=home, accept_delta=accept_delta, progress=False)
    assert isinstance(tuned, Tuned)
    trials = {of_trial[float(str(trial.values[RATE]))]: trial.run for trial in tuned.trials}
    scores = {rate: scores_of(plan, home, run, "tune") for rate, run in sorted(trials.items())}
    best = min(scores, key=lambda rate: -scores[rate][score] if score else scores[rate]["nats"])
    final = [run for run in runs_of(home, asks=False) if run not in trials.values()]
    if not final:
        rated = plan.server_optimizer.model_copy(update={"learning_rate": best})
        ff.simulate(
            tuned.plan.model_copy(update={"server_optimizer": rated}),
            **{"ledger": home, "accept_delta": accept_delta, "progress": False},
        )
    elif state_of(home, final[0]) != "done":
        ff.simulate(resume=final[0], ledger=home, progress=False)
    (kept,) = (run for run in runs_of(home, asks=False) if run not in trials.values())
    return {
        **{"clip": clip, "median": [median.value, median.low, median.high]},
        "trials": {f"{rate:.4g}": each[score or "nats"] for rate, each in scores.items()},
        "rate": best,
        "scores": scores_of(plan, home, kept, "test"),
        **paid(home, kept, privacy["delta"]),
    }


def _scored(parameters: harness.Table, part: harness.Part) -> harness.Table:
    return {**parameters, "scored": part} if "base" in parameters else parameters


def scores_of(plan: Plan, home: Path, run: str, part: harness.Part) -> dict[str, float]:
    """All scores of a run's released model, of tune or of test poets."""
    task = load_task(plan.model_copy(update={"task": _scored(dict(plan.task), part)}).task_reference)
    model = task.build_model()
    model.load_state_dict(load_file(home_of(home)[0].root / run / "model.safetensors"), strict=False)
    return task.evaluate(model)


def runs_of(home: Path, *, asks: bool) -> list[str]:
    """Return the runs of the ledger in `home`, the oldest first; none where there is no ledger yet."""
    if not (home / "ledger.sqlite3").is_file():
        return []
    with Ledger.open(home_of(home)[0].ledger) as ledger:
        return [view.id for view in reversed(ledger.runs(asks=asks).items)]


def state_of(home: Path, run: str) -> str:
    with Ledger.open(home_of(home)[0].ledger) as ledger:
        return str(ledger.run(run).state)


def paid(home: Path, kept: str, delta: float) -> harness.Table:
    """Epsilon of the users of the share and of all others, by the ledger."""
    with Ledger.open(home_of(home)[0].ledger) as ledger:
        views = ledger.runs(population=POPULATION).items
        most = ledger.population(POPULATION).spent_epsilon
    looks = PrivacyLoss(math.fsum(view.spent.mu_squared for view in views if view.id != kept))
    (final,) = (view.spent for view in views if view.id == kept)
    return {
        "epsilon of the share": looks.epsilon(delta),
        "epsilon of the others": final.epsilon(delta),
        "epsilon of the user who spent most": most,
    }


def verified(home: Path) -> int:
    """Compute every charge of the ledger in `home` again; return how many rows its journal has, if all of them fit."""
    at = home_of(home)[0]
    with Ledger.open(at.ledger, head_file=at.head_file) as ledger:
        report = verify(ledger, at.root, recompute=recharge, held=held_heads([HeadFile(at.head_file)]))
    if report.fault or report.missing or report.unpinned:
        sys.exit(f"{home} is not whole: {report.fault or {**report.missing, **report.unpinned}}")
    return report.checked["audit"]


def once(evaluate: Callable[[PoemsTask, torch.nn.Module], dict[str, float]]) -> Any:
    """Score a model once on the same poets, though checks, runs and this command all ask: half of a row's time else."""
    known: dict[object, dict[str, float]] = {}

    def found(task: PoemsTask, model: torch.nn.Module) -> dict[str, float]:
        at = task.scored, task.width, task.rank, sha256(save(model.state_dict())).hexdigest()
        return dict(known[at] if at in known else known.setdefault(at, evaluate(task, model)))

    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", choices=list(RECIPES))
    parser.add_argument("--base", required=True, help="SHA-256 that benchmarks/claims/base.py prints")
    parser.add_argument("--home", type=Path, required=True, help="where each row's ledger and runs are kept")
    parser.add_argument("--rows", nargs="+", help="some of the page's; all if left out")
    parser.add_argument("--epsilons", nargs="+", type=float, help="some of the page's; all if left out")
    parser.add_argument("--runs", type=int, default=1, help="of each row, each from its own question on")
    given = parser.parse_args()
    PoemsTask.evaluate = once(PoemsTask.evaluate)  # type: ignore[method-assign]
    recipe, path = RECIPES[given.page], harness.ROOT / "benchmarks/results/charged.json"
    rows, epsilons = given.rows or recipe.rows, given.epsilons or recipe.epsilons
    for place, epsilon, row in ((n, e, r) for n in range(given.runs) for e in epsilons for r in rows):
        label, began = f"{row}, epsilon {epsilon:g}", time.process_time()
        done = given.home / f"{label}, {place}" / "charged.json"
        if not done.is_file():
            # Of a row that was interrupted before, the seconds of its end alone say nothing.
            whole = not runs_of(done.parent, asks=True)
            with one_pass():
                made = made_again(recipe.table(row, epsilon, given.base), recipe, done.parent)
            made |= {"cpu seconds": round(time.process_time() - began, 1)} if whole else {}
            made |= {"commit": harness.commit()}
            done.write_text(json.dumps(made, indent=1) + "\n")
        found = json.loads(done.read_text())
        if VERIFIED not in found:
            found[VERIFIED] = verified(done.parent)
            done.write_text(json.dumps(found, indent=1) + "\n")
        print(label, found["scores"], found.get("cpu seconds"), flush=True)
        stored = json.loads(path.read_text())
        page = stored.setdefault(given.page, {})
        if page.get("base") != given.base:
            task = load_task(Plan.parse(recipe.table(row, epsilon, given.base)).task_reference)
            page |= {"base": given.base, "base scores": task.evaluate(task.build_model()), "rows": {}}
        known = page["rows"].setdefault(label, [])
        known[place : place + 1] = [found]
        path.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
