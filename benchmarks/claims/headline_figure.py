"""The picture of the headline: score against epsilon, a panel for each promise."""

from __future__ import annotations

import figure
import harness
import headline_seeds as seeds
import numpy as np
import paired
from headline_plans import ALLOCATED, BANDED_BINS, NO_PRIVACY, NU_BINS, POISSON

PUBLIC, SECRET = "Who takes part is public (zero_out)", "Who takes part is hidden (add_remove)"
SHOWN = {
    PUBLIC: {
        "nu": "nu",
        "banded": "banded",
        "tree, online": "tree",
        "independent": "independent",
        POISSON: "DP-SGD, see right",
    },
    SECRET: {
        NU_BINS: "nu, balls in bins",
        BANDED_BINS: "banded, balls in bins",
        ALLOCATED: "random allocation",
        POISSON: "DP-SGD, Poisson",
        "nu": "nu, see left",
    },
}
"""{promise: {row: its name}}: five lines a panel; the last of each is the other panel's, thin."""
ORDER = ("nu", POISSON, "banded", "tree, online", "independent", NU_BINS, BANDED_BINS, ALLOCATED)
"""Rows by their place in figure.STYLES."""


def lines_of(stored: harness.Table, panel: str) -> list[figure.Line]:
    """The lines of a panel; DP-SGD at its best split where several were run."""
    found = []
    for row, name in SHOWN[panel].items():
        of = seeds.BEST if row == POISSON and "splits" in stored else row
        points = []
        for epsilon in seeds.epsilons_of(stored):
            if f"{row}, epsilon {epsilon:g}" in stored["cells"]:
                mean, half = harness.interval(seeds.scores_of(stored, of, epsilon))
                half = half if np.isfinite(half) else 0.0
                points.append((epsilon, mean, mean - half, mean + half))
        if points:
            found.append(figure.Line(name, points, figure.STYLES[ORDER.index(row)], thin="see" in name))
    return found


def picture(stored: harness.Table) -> str:
    """The figure as SVG."""
    epsilons, higher, cells = seeds.epsilons_of(stored), stored["setting"]["higher"], stored["cells"]
    shown = {panel: lines_of(stored, panel) for panel in SHOWN}
    level = (NO_PRIVACY.split(" (")[0], float(np.mean(cells[NO_PRIVACY]["scores"]))) if NO_PRIVACY in cells else None
    means = [point[1] for lines in shown.values() for line in lines for point in line.points]
    ys = figure.ticks(min([*means, *([level[1]] if level else [])]), max([*means, *([level[1]] if level else [])]))
    word = stored["setting"]["score"] + ("" if higher else " (lower is better)")
    title, notes, band = f"{word} on {stored['data']} against epsilon", {PUBLIC: [""], SECRET: [""]}, None
    if seeds.many(stored):
        other = seeds.BEST if "splits" in stored else POISSON
        at, low, high = paired.crossing(seeds.aheads(stored, "nu", other), epsilons)
        words = [paired.told(value, epsilons, "{:.1f}".format) for value in (at, low, high)]
        notes[PUBLIC] = [f"nu passes DP-SGD at epsilon {words[0]}", f"(shaded: {words[1]} to {words[2]}, 95 %)"]
        band = (max(low, epsilons[0]), min(high, epsilons[-1]))
        if at > epsilons[-1]:
            notes[PUBLIC], band = [f"nu does not pass DP-SGD up to epsilon {epsilons[-1]:g}"], None
            if low <= epsilons[-1]:
                notes[PUBLIC] += [f"(resampled: {words[1]} to {words[2]}, 95 %)"]
        tested = seeds.tested(stored)
        where = seeds.both_ahead(stored, tested, NU_BINS, "nu")
        few = seeds.too_few(stored, tested)
        if epsilons[0] <= low and high <= epsilons[-1] and not few:  # a title claims what survives correction
            title = "Small epsilon: sample. Large epsilon: correlate." + (" Where one can: both." if where else "")
        first = f"Sampled and correlated leads at epsilon {', '.join(f'{e:g}' for e in where)}"
        notes[SECRET] = [
            first if where else "Sampled and correlated leads nowhere",
            "(ahead of nu and of both sampled rows)",
        ]
        if few:
            notes[SECRET] = ["Too few seeds for any of the", f"{len(tested)} comparisons to survive correction"]
    else:
        notes[PUBLIC] = [f"{min(len(cell['scores']) for cell in cells.values())} seeds: a direction at most"]
    return figure.panels(
        title,
        [figure.Panel(panel, lines, notes[panel], band if panel == PUBLIC else None) for panel, lines in shown.items()],
        figure.Axis("epsilon", epsilons, log=True),
        figure.Axis(
            f"{word} on {stored['data']}, test", ys, show=("{:.2f}" if ys[1] - ys[0] > 0.0099 else "{:.3f}").format
        ),
        level,
    )
