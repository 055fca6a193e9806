"""What a setting of the headline made smaller than the paper, and what scores without any training."""

from __future__ import annotations

import harness
import torch

from fieldfare_client.tasks.chess import ChessTask, transitions
from fieldfare_client.tasks.files import table
from fieldfare_client.tasks.scores import auc

ONE_PASS = "All users of a round train in one pass, which gives the sums of the product's nodes to round-off."


def reduction(stored: harness.Table) -> str:
    """What was made smaller than in the paper, for the page; with a blank at its end."""
    name, size = stored["data"], stored["size"]
    if name == "fashion" and size != "full":
        return (
            "The paper's CIFAR-10 protocol, reduced: Fashion-MNIST with one image a user, so that privacy is that of "
            "an image; a network of 18 842 parameters. The paper runs 2 000 rounds of 500 of 50 000 users, 20 times "
            f"each, with 12 seeds. {ONE_PASS} "
        )
    if name == "chess":
        trivial = stored["baselines"]
        smaller = (
            "The specification's size is 1 000 rounds of 1 000 of 189 864 players; with so many players privacy costs "
            "next to nothing at these epsilons, which is why this size has fewer, taken evenly among all FIDE numbers. "
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
        return (
            "Fine-tuning of a base model that is trained on Tang, which is public; the paper trains StackOverflow from "
            f"random weights, 2 052 rounds of a model of 4 million parameters. {ONE_PASS} "
        )
    return ""


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
