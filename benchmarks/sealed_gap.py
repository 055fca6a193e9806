"""How far the charge of sealed trials is from the worst scores that a search finds: `docs/tuning.md` has its table.

    python benchmarks/sealed_gap.py [--tries 3000] [--out benchmarks/results/sealed_gap.md]

A trial is N(b mu, 1) cut into cells of equal chance halfway between its worlds; a score puts the cells in an order.
Over all orders of seven cells, and by climbing over exchanges of two cells in finer worlds, it looks for the order
whose best of K trials needs the largest mu. Whatever it finds is a lower bound of what any right charge is.
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from fieldfare.accounting.sealed import largest_mu, law, least_mu

MU, LEAK = 0.268, 2e-24
TRIALS = (2, 3, 5, 8)
FINE = (12, 24, 48)


def worlds(cells: int) -> np.ndarray:
    """The chances of the cells in either world, shape (2, cells)."""
    cuts = np.concatenate([[-np.inf], MU / 2 + ndtri(np.arange(1, cells) / cells), [np.inf]])
    return np.stack([np.diff(ndtr(cuts)), np.diff(ndtr(cuts - MU))])


def needed(outcomes: np.ndarray, orders: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """The mu that the best of K trials needs, shape (n,), for each order of the cells, shape (n, cells)."""
    ranks = np.cumsum(outcomes[:, orders], axis=2)
    ranks = np.concatenate([np.zeros((*ranks.shape[:2], 1)), np.minimum(ranks, 1.0)], axis=2)
    power = sum(chance * ranks**k for k, chance in enumerate(chances.tolist(), start=1))
    a, b = np.diff(power, axis=2)
    most = np.zeros(len(orders))
    for one, other in ((a, b), (b, a)):
        by_ratio = np.argsort(-one / other, axis=1)
        p, q = (np.cumsum(np.take_along_axis(each, by_ratio, 1), axis=1)[:, :-1] for each in (one, other))
        most = np.maximum(most, (ndtri(p) - ndtri(q)).max(axis=1))
    return most


def climb(cells: int, chances: np.ndarray, tries: int) -> float:
    """The largest mu that exchanges of two cells find, from the order of the losses, its reverse and drawn ones."""
    outcomes, draw, best = worlds(cells), np.random.default_rng(cells), 0.0
    starts = [np.arange(cells), np.arange(cells)[::-1], *(draw.permutation(cells) for _ in range(4))]
    for order in starts:
        (value,) = needed(outcomes, order[None], chances)
        for _ in range(tries // 50):
            changed = np.tile(order, (50, 1))
            for row in changed:
                i, j = draw.choice(cells, 2, replace=False)
                row[[i, j]] = row[[j, i]]
            found = needed(outcomes, changed, chances)
            if found.max() > value:
                order, value = changed[int(found.argmax())], float(found.max())
        best = max(best, float(value))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tries", type=int, default=3000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load, orders = os.getloadavg()[0], np.array(list(itertools.permutations(range(7))))
    rows = []
    for trials in TRIALS:
        chances = law(trials)
        charged, all_paid = least_mu(MU, trials, LEAK), MU * trials**0.5
        every = float(needed(worlds(7), orders, chances).max())
        found = [climb(cells, chances, arguments.tries) for cells in FINE]
        most = max(every, *found)
        shown = " | ".join(f"{value:.4f}" for value in (all_paid, charged, every, *found))
        rows.append(f"| {trials} | {shown} | {charged / most:.2f} | {largest_mu(MU, trials, LEAK):.4f} |")
    climbed = " | ".join(f"climbing, {cells} cells" for cells in FINE)
    text = f"""# What sealed trials are charged, and the worst that a search finds

`python benchmarks/sealed_gap.py --tries {arguments.tries}`; load {load:.1f}.

Trials of mu {MU} (epsilon 1 alone, at delta 1e-5), K from 1 to n with chances in proportion to 1 / K. The last
column is the mu of each trial whose best is charged no more than one trial of mu {MU}.

| n | all charged | sealed, as charged | every order of 7 cells | {climbed} | charged / worst | mu a trial |
|---|---|---|---|{"---|" * len(FINE)}---|---|
{chr(10).join(rows)}

A search finds no bound: that no score needs more than these is not shown.
"""
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
