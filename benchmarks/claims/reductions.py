"""What a setting of the headline made smaller than the paper, and what scores without any training."""

from __future__ import annotations

from typing import Any

import harness
import torch
from headline_plans import BASES

from fieldfare.task import load_task
from fieldfare_client.tasks.scores import auc
from fieldfare_research.chess import ChessTask, transitions
from fieldfare_research.tables import table

ONE_PASS = "All users of a round train in one pass, which gives the sums of the product's nodes to round-off."


def reduction(stored: harness.Table) -> str:
    """What was made smaller than in the paper, for the page; with a blank at its end."""
    name, size = stored["data"], stored["size"]
    if name == "fashion":
        reduced = "The paper's CIFAR-10 protocol, reduced" if size != "full" else "Rounds and cohort of the paper"
        return (
            f"{reduced}: Fashion-MNIST with one image a user, so that privacy is that of an image; a network of 18 842 "
            "parameters. The paper runs 2 000 rounds of 500 of 50 000 users, 20 times each, on CIFAR-10 and with 12 "
            f"seeds. {ONE_PASS} "
        )
    if name == "chess":
        trivial = stored["baselines"]
        smaller = (
            "This size has few players, taken evenly among all FIDE numbers, so that privacy costs something. "
            if size == "small"
            else ""
        )
        return (
            "Will a player's rating change next month? The paper has no such task: its mechanisms are compared here on "
            "people, a FIDE number being a user, with a recurrent network of 4 073 parameters over 35 months. "
            "Score: the area under the ROC curve over all known months of players that are never trained on. Without a "
            f'model, answering "as it was last month" scores {trivial["it changed last month"]:.4f}, and counting the '
            f"changes of the last twelve months {trivial['changes in the last 12 months']:.4f}. {smaller}{ONE_PASS} "
        )
    if name == "poems":
        smaller = (
            f"{SMALL_POEMS} A transformer of one layer and width 32, 75 764 parameters; its base is made by `python "
            f"benchmarks/claims/base.py {BASES[size]}`. "
            if size == "small"
            else ""
        )
        return (
            "Fine-tuning of a base model that is trained on Tang, which is public; the paper trains StackOverflow from "
            f"random weights, 2 052 rounds of a model of 4 million parameters. {smaller}{ONE_PASS} "
        )
    return ""


SMALL_POEMS = """Of the 7 806 poets every second one is a user, with one window of at most 32 characters; the
reduced protocol has 60 rounds of all poets with four. The base has seen 6 400 windows, 5 % of those of Tang, so
that there is something to learn: without privacy these rounds gain 0.163 nats from it on tune users, 0.103 from a
base of 300 steps and 0.034 from one of 2 600. It was chosen on tune users, from these runs and some of `nu`. The
clip norm is a fifth of the median length of a tune poet's update at the base, 1.43. The factor between rate and
noise comes from `nu` on tune users, at rates of 2, 5 and 10 for epsilon 1, 12 for epsilon 4 and 30 for epsilon 8.
Looked at and not charged: that median and these scores, none of which was made again. Charged, the median is a
question of epsilon 0.1 (`fieldfare ask --clip-of`, 64 bins), whose rank is off by .07 for 1 000 poets (one standard
deviation).
nats is the mean cross-entropy of characters and what settings are chosen by; accuracy counts comma and full stop
and no unknown character, as StackOverflow is scored. To answer by position alone is right in 0.1420 of the cases:
below that, accuracy says how much metre a model knows, and nats are the better score."""


def base_scores(task: harness.Table) -> dict[str, float]:
    """Scores of the base model of `poems` on test poets, once every choice is stored. task: of a plan."""
    kind = type(load_task("poems"))
    made: Any = kind.configured(kind.Parameters(**task))
    scores: dict[str, float] = made.evaluate(made.build_model())
    return scores


def baselines(name: str, part: harness.Part = "test") -> dict[str, float]:
    """Scores that need no model: for `chess`, the area under the curve of two counts of the past; else nothing."""
    if name != "chess":
        return {}
    players = table("chess", part, ("rating", "birth"), None)
    rows = players.rows(range(len(players))).columns
    _, targets = ChessTask().prepare(rows)
    rating = rows["rating"].numpy()
    changed = torch.from_numpy(transitions(rating) & (rating[:, 1:] != rating[:, :-1])).double()
    total = torch.cat((torch.zeros(len(changed), 1), changed.cumsum(1)), 1)  # changes before each month
    steps = torch.arange(targets.shape[1])
    year = total[:, steps + 1] - total[:, (steps - 11).clamp(min=0)]
    known = targets >= 0
    return {
        "it changed last month": auc(changed[:, :-1][known], targets[known]),
        "changes in the last 12 months": auc(year[known], targets[known]),
    }
