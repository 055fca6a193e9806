"""What many seeds of the headline say: comparisons that survive Holm's correction, crossings with intervals, DP-SGD at
its best split of rounds and cohort."""

from __future__ import annotations

import textwrap

import harness
import numpy as np
import paired
from headline_plans import ALLOCATED, BANDED_BINS, CYCLIC, NU_BINS, POISSON
from numpy.typing import NDArray

LEAST = 6
"""Seeds below which no correction for many comparisons can leave anything: 2 / 2^n is above .05 / 2."""
BEST = "DP-SGD, Poisson, best split (add_remove)"
PAIRS = (
    *((("nu", other)) for other in (POISSON, BEST, "optimal-cc", "tree, online", "independent")),
    *(((row, "nu")) for row in ("blt", "banded", "dense")),
    *(((row, POISSON)) for row in (CYCLIC, ALLOCATED)),
    *(((NU_BINS, other)) for other in ("nu", POISSON, ALLOCATED, BEST)),
    *(((BANDED_BINS, other)) for other in ("banded", POISSON, ALLOCATED, BEST)),
)
"""(row, against which): all that is tested, at each epsilon, two-sided."""
CROSSINGS = (("nu", POISSON), ("nu", BEST), ("nu", ALLOCATED), (NU_BINS, ALLOCATED), (NU_BINS, BEST))


def was_run(stored: harness.Table, row: str) -> bool:
    return any(label.startswith(f"{POISSON if row == BEST else row}, epsilon ") for label in stored["cells"])


def too_few(stored: harness.Table, found: Tested) -> bool:
    """Whether no comparison could survive the correction: with all seeds of one sign, p is 2 / 2^seeds."""
    return 2 / 2 ** min(len(cell["scores"]) for cell in stored["cells"].values()) * len(found) >= 0.05


def many(stored: harness.Table) -> bool:
    return min(len(cell["scores"]) for cell in stored["cells"].values()) >= LEAST


def epsilons_of(stored: harness.Table) -> list[float]:
    return sorted(
        {
            float(epsilon)
            for label in stored["cells"]
            if (epsilon := label.rpartition(", epsilon ")[2]) and label != epsilon
        }
    )


def splits_of(stored: harness.Table, epsilon: float) -> dict[str, harness.Table]:
    """{rounds x cohort: DP-SGD's cell}, the headline's first."""
    label, s = f"{POISSON}, epsilon {epsilon:g}", stored["setting"]
    found = {f"{s['rounds']}x{s['cohort']}": stored["cells"][label]}
    return found | {name: cells[label] for name, cells in stored.get("splits", {}).items()}


def best_split(stored: harness.Table, epsilon: float) -> str:
    """The split that scored best on tune users."""
    sign = 1.0 if stored["setting"]["higher"] else -1.0
    cells = splits_of(stored, epsilon)
    return max(cells, key=lambda name: sign * cells[name]["tune_scores"][cells[name]["choice"]])


def scores_of(stored: harness.Table, row: str, epsilon: float) -> list[float]:
    if row == BEST:
        return list(splits_of(stored, epsilon)[best_split(stored, epsilon)]["scores"])
    return list(stored["cells"][f"{row}, epsilon {epsilon:g}"]["scores"])


def ahead(stored: harness.Table, row: str, other: str, epsilon: float) -> list[float]:
    """How far a row is ahead of another, by seed."""
    sign = 1.0 if stored["setting"]["higher"] else -1.0
    pair = scores_of(stored, row, epsilon), scores_of(stored, other, epsilon)
    return [sign * (one - two) for one, two in zip(*pair, strict=True)]


def aheads(stored: harness.Table, row: str, other: str) -> NDArray[np.float64]:
    return np.array([ahead(stored, row, other, epsilon) for epsilon in epsilons_of(stored)])


Tested = dict[tuple[str, str, float], tuple[float, float, float, float, float]]
"""{(row, other, epsilon): (mean by which row is ahead, lower and upper end, p, p after Holm)}."""


def tested(stored: harness.Table) -> Tested:
    """Every comparison of PAIRS whose rows were run; with the best split only where it is another than the
    headline's."""
    differences = {
        f"{row}|{other}|{epsilon:g}": ahead(stored, row, other, epsilon)
        for row, other in PAIRS
        if was_run(stored, row) and was_run(stored, other)
        for epsilon in epsilons_of(stored)
        if other != BEST or best_split(stored, epsilon) != next(iter(splits_of(stored, epsilon)))
    }
    once = {name: paired.sign_flip(values) for name, values in differences.items()}
    corrected = paired.holm(once)
    found: Tested = {}
    for name, values in differences.items():
        row, other, epsilon = name.split("|")
        found[row, other, float(epsilon)] = (
            float(np.mean(values)),
            *paired.bootstrap(values),
            once[name],
            corrected[name],
        )
    return found


def against(stored: harness.Table, found: Tested, row: str, other: str, epsilon: float) -> str:
    """ahead, behind or undecided, after Holm."""
    if (row, other, epsilon) not in found:
        other = POISSON  # whose split is the best one
    mean, *_, corrected = found[row, other, epsilon]
    return "undecided" if corrected >= 0.05 else "ahead" if mean > 0 else "behind"


def both_ahead(stored: harness.Table, found: Tested, row: str, alone: str) -> list[float]:
    """epsilons at which a row that is sampled and correlated is ahead of each of its halves: correlated alone, and
    DP-SGD at its best split and random allocation, whichever is the stronger."""
    return [
        epsilon
        for epsilon in epsilons_of(stored)
        if all(against(stored, found, row, other, epsilon) == "ahead" for other in (alone, BEST, ALLOCATED))
    ]


def _noted(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def section(stored: harness.Table) -> str:
    """What benchmarks/results/claims/headline.md says of a result with many seeds; with an empty line at its end."""
    if not many(stored):
        return ""
    epsilons, found = epsilons_of(stored), tested(stored)
    header = ("row", "against", *(f"epsilon {e:g}" for e in epsilons))
    rows = []
    for row, other in PAIRS:
        if not any((row, other, epsilon) in found for epsilon in epsilons):
            continue
        cells = []
        for epsilon in epsilons:
            if (row, other, epsilon) not in found:
                cells.append("the same split")
                continue
            mean, low, high, _, corrected = found[row, other, epsilon]
            mark = "**" if corrected < 0.05 else ""
            cells.append(f"{mark}{mean:+.4f}{mark} [{low:+.4f}, {high:+.4f}], {_noted(corrected)}")
        rows.append((row, other, *cells))
    kept = sum(corrected < 0.05 for *_, corrected in found.values())
    parts = [
        textwrap.fill(
            "By how much a row is ahead of another, paired by seed: mean [95 % bootstrap interval over seeds], p after "
            f"Holm's correction over all {len(found)} comparisons of this table. p: over all signs of the differences, "
            f"two-sided, exact. Bold: p below 0.05, of which there are {kept}"
            + (": so few seeds cannot leave any." if too_few(stored, found) else ":"),
            120,
        ),
        harness.markdown_table(header, rows),
    ]
    if "splits" in stored:
        parts += [splits(stored, header[2:], epsilons)]
    at = []
    for row, other in CROSSINGS:
        if (other == BEST and "splits" not in stored) or not was_run(stored, row):
            continue
        place, low, high = paired.crossing(aheads(stored, row, other), epsilons)
        said = [paired.told(value, epsilons) for value in (place, low, high)]
        at.append((row, other, said[0], f"{said[1]} to {said[2]}"))
    parts += [
        "epsilon from which a row's mean is ahead, interpolated in log epsilon; 95 % bootstrap interval over seeds:",
        harness.markdown_table(("row", "against", "from epsilon", "interval"), at),
    ]
    for row, alone in ((NU_BINS, "nu"), (BANDED_BINS, "banded")):
        if not was_run(stored, row):
            continue
        where = both_ahead(stored, found, row, alone)
        parts.append(
            f"{row} is ahead of `{alone}`, of random allocation and of DP-SGD at its best split, after Holm: "
            + (f"at epsilon {', '.join(f'{e:g}' for e in where)}." if where else "nowhere.")
        )
    if twice := stored.get("made twice"):
        parts.append(
            f"All runs of `many.py` were made twice, in another order: {twice['equal']} of {twice['runs']} pairs are "
            "equal to the bit (model and scores)."
        )
    return "\n\n".join(parts) + "\n\n"


def splits(stored: harness.Table, columns: tuple[str, ...], epsilons: list[float]) -> str:
    rows, count = [], len(splits_of(stored, epsilons[0]))
    for name in splits_of(stored, epsilons[0]):
        of = [splits_of(stored, epsilon)[name] for epsilon in epsilons]
        tune = [cell["tune_scores"][cell["choice"]] for cell in of]
        rows.append((name, *(f"{harness.show(c['scores'])}, {t:.4f}" for c, t in zip(of, tune, strict=True))))
    best = ", ".join(best_split(stored, epsilon) for epsilon in epsilons)
    text = f"""DP-SGD at {count} splits of as many visits into rounds x cohort, each with rates tuned like a row's, so
that it has {count} times the tuning of others: mean and Student's interval on test users, score on tune users. By the
latter the best are {best}. Random allocation was run at one split."""
    return f"""{textwrap.fill(" ".join(text.split()), 120)}

{harness.markdown_table(("rounds x cohort", *columns), rows)}"""
