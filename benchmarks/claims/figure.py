"""A line chart with intervals as SVG, from numbers alone: the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Point = tuple[float, float]
"""(mean, half width of its interval)."""
COLOURS = ("#d55e00", "#8c8c8c", "#cc79a7", "#e69f00", "#0072b2", "#009e73", "#56b4e9", "#b8860b", "#6a3d9a")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 420, 70, 20, 320, 50


def lines(
    rows: Mapping[str, Mapping[str, Point]],
    columns: Sequence[str],
    level: tuple[str, float] | None = None,
    *,
    axes: tuple[str, str],
    dashed: Sequence[str] = (),
) -> str:
    """Draw a chart.

    Args:
        rows: a line each: {column: point}; it is broken where it lacks a column.
        columns: places of the x axis, from left to right, equally far apart.
        level: (name, value) of a horizontal line.
        axes: what stands on the x axis and on the y axis.
        dashed: rows that are drawn with dashes.
    """
    means = [value for row in rows.values() for value, _ in row.values()] + ([level[1]] if level else [])
    least, most = min(means), max(means)
    margin = 0.05 * (most - least or 1.0)
    least, most = least - margin, most + margin
    step = (WIDTH - LEFT - RIGHT) / max(1, len(columns))
    high = HEIGHT - TOP - BOTTOM

    def x(column: int) -> float:
        return LEFT + step * (column + 0.5)

    def y(value: float) -> float:
        return TOP + high * (most - min(max(value, least), most)) / (most - least)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13" role="img">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for value in _ticks(least, most):
        out.append(
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    for place, column in enumerate(columns):
        out.append(f'<text x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{escape(column)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out += [
        f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(axes[0])}</text>',
        f'<text transform="translate(14 {TOP + high / 2:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(axes[1])}</text>",
    ]
    if level:
        out.append(f'<path d="M{LEFT} {y(level[1]):.1f}H{WIDTH - RIGHT}" stroke="#000000" stroke-dasharray="2 3"/>')
        out.append(
            f'<path d="M{WIDTH - RIGHT + 12} {TOP + 10}h26" stroke="#000000" stroke-dasharray="2 3"/>'
            f'<text x="{WIDTH - RIGHT + 46}" y="{TOP + 14}">{escape(level[0])}</text>'
        )
    for index, (name, row) in enumerate(rows.items()):
        colour, dash = COLOURS[index % len(COLOURS)], ' stroke-dasharray="7 4"' if name in dashed else ""
        shift = (index - (len(rows) - 1) / 2) * 4  # apart, so that intervals can be told apart
        drawn = [(place, x(place) + shift, *row[column]) for place, column in enumerate(columns) if column in row]
        places = {place for place, *_ in drawn}
        path = " ".join(f"{'L' if at - 1 in places else 'M'}{px:.1f} {y(mean):.1f}" for at, px, mean, _ in drawn)
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        for _, px, mean, half in drawn:
            out.append(
                f'<path d="M{px:.1f} {y(mean - half):.1f}V{y(mean + half):.1f}" stroke="{colour}"/>'
                f'<circle cx="{px:.1f}" cy="{y(mean):.1f}" r="3" fill="{colour}"/>'
            )
        at = TOP + 34 + 20 * index
        out.append(
            f'<path d="M{WIDTH - RIGHT + 12} {at - 4}h26" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{WIDTH - RIGHT + 46}" y="{at}">{escape(name)}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def _ticks(least: float, most: float) -> list[float]:
    """Four to ten round values in the range."""
    raw = (most - least) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [step * count for count in range(math.ceil(least / step), math.floor(most / step) + 1)]
