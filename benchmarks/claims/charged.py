"""A row of the LoRA page made again with every look charged: clip norm, learning rate, and the model that is kept.

    FIELDFARE_DATA=DIR python benchmarks/claims/charged.py 'rank 4, and bias' --base SHA256 --home DIR [--epsilon 8]

A share of the users pays for the looks: one question for the median norm of their updates at the base model, from which
the clip norm follows by the factor of `lora_plans.py`, and trials of the rates. The others train the model that is
kept. All of it is charged to one population in the ledger of --home, by the product's own `ff.ask`, `ff.tune` and
`ff.simulate`. The same command again goes on where it was interrupted; what is done is neither made nor charged again.
Scores are those of the task: on test poets, who gave their verse to the public.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import harness
from lora_plans import RATE, RATIO, ROWS, Size, plan_table, with_rate
from safetensors.torch import load_file

import fieldfare as ff
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare_server.evidence.looks import Look
from fieldfare_server.ledger import Ledger
from fieldfare_server.notebook.simulation import home_of
from fieldfare_server.planning.tuning import Tuned

FACTOR, POPULATION = 0.3, "charged"
"""The clip norm as a part of the median norm."""


def budget_of(epsilon: float, delta: float, looks: float) -> float:
    """Epsilon of trials that cost a run of `epsilon` together, and of a question of epsilon `looks`; rounded up."""
    mu = math.hypot(gaussian_mu(epsilon, delta), gaussian_mu(looks, delta))
    return math.ceil(1e4 * gaussian_epsilon(mu, delta)) / 1e4


def made_again(
    table: harness.Table, rates: list[float], home: Path, share: float, looks: float, accept_delta: bool = False
) -> harness.Table:
    """Ask, tune and train, each once; return what was found and what every user paid.

    Args:
        table: a plan without learning rate and clip norm that count.
        looks: epsilon of the question for the clip norm, taken alone.
    """
    privacy = {**table["privacy"], "population": POPULATION}
    budget = budget_of(privacy["epsilon"], privacy["delta"], looks)
    plan = Plan.parse({**with_rate(table, rates[0]), "privacy": privacy, "tuning": {"share": share}})
    of_share = plan.model_copy(update={"tuning": plan.tuning.model_copy(update={"users": "share"})})  # type: ignore[union-attr]
    asked = runs_of(home, asks=True)
    if asked:
        look = ff.ask(resume=asked[0], ledger=home)
    else:
        look = ff.ask(clip_of=of_share, epsilon=looks, budget=budget, ledger=home, accept_delta=accept_delta)
    assert isinstance(look, Look)
    (median,) = look.answer
    assert median.value is not None  # such a question is refused before it is asked
    clip = float(f"{FACTOR * median.value:.3g}")
    plan = plan.model_copy(update={"clipping": plan.clipping.at(clip)})
    tuned = ff.tune(
        plan, {"server_optimizer.learning_rate": list(rates)}, share=share, ledger=home, accept_delta=accept_delta
    )
    assert isinstance(tuned, Tuned)
    trials = {trial.run for trial in tuned.trials}
    final = [run for run in runs_of(home, asks=False) if run not in trials]
    if not final:
        ff.simulate(tuned.plan, ledger=home, accept_delta=accept_delta)
    elif state_of(home, final[0]) != "done":
        ff.simulate(resume=final[0], ledger=home)
    (kept,) = (run for run in runs_of(home, asks=False) if run not in trials)
    return {
        "clip": clip,
        "median": [median.value, median.low, median.high],
        "trials": {str(trial.values["server_optimizer.learning_rate"]): trial.score for trial in tuned.trials},
        "rate": tuned.plan.model_dump(mode="json")["server_optimizer"]["learning_rate"],
        "scores": scores_of(tuned.plan, home, kept),
        **paid(home, kept, privacy["delta"]),
    }


def scores_of(plan: Plan, home: Path, run: str) -> dict[str, float]:
    """All scores of a run's released model: the ledger has the first alone."""
    task = load_task(plan.task_reference)
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


def main() -> None:
    usual = Size("")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("row", choices=list(ROWS))
    parser.add_argument("--base", required=True, help="SHA-256 that benchmarks/claims/base.py prints")
    parser.add_argument("--home", type=Path, required=True, help="state directory of the ledger and the runs")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--share", type=float, default=0.1, help="of the users, who pay for the looks")
    parser.add_argument("--looks", type=float, default=0.1, help="epsilon of the question for the clip norm")
    for name in ("rounds", "cohort", "users", "width", "most"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    given = parser.parse_args()
    size = Size(given.base, given.rounds, given.cohort, given.users, given.width, given.most)
    middle = RATE[ROWS[given.row]["trained"]]
    rates = [middle / RATIO, middle, middle * RATIO]
    found = made_again(plan_table(given.row, given.epsilon, size), rates, given.home, given.share, given.looks)
    (given.home / "charged.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
