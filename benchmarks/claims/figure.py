"""Panels of lines with intervals as SVG, from numbers alone: the same numbers give the same bytes.

Lines differ in colour, dash and marker, each enough to tell them apart, and their names stand at their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float, float, float]
"""(x, y, lower and upper end of its interval)."""


@dataclass(frozen=True)
class Style:
    colour: str
    dash: str
    """Of SVG; empty: solid."""
    marker: str
    """A path around (0, 0)."""


STYLES = (
    Style("#0072b2", "", "M-4-4h8v8h-8z"),
    Style("#d55e00", "9 4", "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"),
    Style("#009e73", "2 3", "M0-5.5L5 4H-5z"),
    Style("#8b5a2b", "12 3 2 3", "M0-5.5L5.5 0L0 5.5L-5.5 0z"),
    Style("#5b5b5b", "5 3", "M-5-4H5L0 5.5z"),
    Style("#cc3f8f", "14 3", "M-5-1.5H-1.5V-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5z"),
    Style("#6a3d9a", "6 2 1 2 1 2", "M-5-5L5 5L5-5L-5 5z"),
    Style("#b8860b", "3 1.5", "M-2.5-5H2.5V5H-2.5z"),
)


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]
    style: Style
    marked: frozenset[float] | None = None
    """Where a marker and an interval stand; None: at each point."""
    thin: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    """Sentences under the title."""
    band: tuple[float, float] | None = None
    """From x to x: where something happens."""


@dataclass(frozen=True)
class Axis:
    name: str
    ticks: Sequence[float]
    log: bool = False
    show: Callable[[float], str] = "{:g}".format
    ends: tuple[float, float] | None = None
    """None: the first and the last tick."""

    def share(self, value: float) -> float:
        """Where a value stands, from 0 at the least to 1."""
        least, most = self.ends or (self.ticks[0], self.ticks[-1])
        scale: Callable[[float], float] = math.log if self.log else float
        share = (scale(min(max(value, least), most)) - scale(least)) / (scale(most) - scale(least))
        # Logarithms differ in their last bit between processors, which would decide how a half is printed.
        return round(share, 12) if self.log else share


WIDE, GUTTER, LEFT, TOP, HIGH, BOTTOM, APART = 330, 180, 64, 108, 300, 46, 15


def panels(title: str, shown: Sequence[Panel], x: Axis, y: Axis, level: tuple[str, float] | None = None) -> str:
    """Draw panels side by side on the same axes.

    Args:
        title: what the picture says.
        level: (name, value) of a horizontal line.
    """
    step = WIDE + GUTTER
    width, height = LEFT + step * len(shown), TOP + HIGH + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="26" font-size="17" font-weight="bold">{escape(title)}</text>',
        f'<text transform="translate(16 {TOP + HIGH / 2:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.name)}</text>",
    ]
    for at, panel in enumerate(shown):
        out += _panel(panel, LEFT + at * step, x, y, level)
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(panel: Panel, left: float, x: Axis, y: Axis, level: tuple[str, float] | None) -> list[str]:
    def px(value: float) -> float:
        return left + 14 + (WIDE - 28) * x.share(value)

    def py(value: float) -> float:
        return TOP + HIGH * (1 - y.share(value))

    out = ["<g>", f'<text x="{left}" y="52" font-size="14" font-weight="bold">{escape(panel.title)}</text>']
    for row, note in enumerate(panel.notes):
        out.append(f'<text x="{left}" y="{70 + 17 * row}" fill="#333333">{escape(note)}</text>')
    if panel.band:
        low, high = (px(value) for value in panel.band)
        out.append(f'<rect x="{low:.1f}" y="{TOP}" width="{high - low:.1f}" height="{HIGH}" fill="#e3eefa"/>')
    for value in y.ticks:
        out.append(
            f'<path d="M{left} {py(value):.1f}h{WIDE}" stroke="#dddddd"/>'
            f'<text x="{left - 6}" y="{py(value) + 4:.1f}" text-anchor="end">{escape(y.show(value))}</text>'
        )
    for value in x.ticks:
        out.append(
            f'<text x="{px(value):.1f}" y="{TOP + HIGH + 18}" text-anchor="middle">{escape(x.show(value))}</text>'
        )
    out.append(f'<text x="{left + WIDE / 2:.1f}" y="{TOP + HIGH + 38}" text-anchor="middle">{escape(x.name)}</text>')
    ends = [(py(line.points[-1][1]), px(line.points[-1][0]), line.name, line.style.colour) for line in panel.lines]
    if level:
        out.append(f'<path d="M{left} {py(level[1]):.1f}h{WIDE}" stroke="#000000" stroke-dasharray="1 3"/>')
        ends.append((py(level[1]), left + WIDE, level[0], "#000000"))
    for index, line in enumerate(panel.lines):
        colour, dash = line.style.colour, f' stroke-dasharray="{line.style.dash}"' if line.style.dash else ""
        shift = 0.0 if line.marked is not None else (index - (len(panel.lines) - 1) / 2) * 3  # intervals apart
        path = " ".join(
            f"{'L' if place else 'M'}{px(one[0]) + shift:.1f} {py(one[1]):.1f}" for place, one in enumerate(line.points)
        )
        wide = "1.2" if line.thin else "2.2"
        out.append(f'<path class="line" d="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"{dash}/>')
        for value, mean, low, high in line.points:
            if line.marked is None or value in line.marked:
                at = f"{px(value) + shift:.1f}"
                out.append(
                    f'<path d="M{at} {py(low):.1f}V{py(high):.1f}" stroke="{colour}"/>'
                    f'<path class="marker" transform="translate({at} {py(mean):.1f})" d="{line.style.marker}" '
                    f'fill="{colour}"/>'
                )
    return [*out, *_names(ends, left + WIDE + 14), "</g>"]


def _names(ends: list[tuple[float, float, str, str]], at: float) -> list[str]:
    """Names at the ends of lines, APART from each other, each with a stroke to its end."""
    ends = sorted(ends)
    places: list[float] = []
    for y, *_ in ends:
        places.append(max(y, places[-1] + APART) if places else y)
    if places and (over := places[-1] - (TOP + HIGH)) > 0:  # push up from below
        places[-1] -= over
        for index in range(len(places) - 2, -1, -1):
            places[index] = min(places[index], places[index + 1] - APART)
    return [
        f'<path d="M{x + 6:.1f} {y:.1f}L{at - 3:.1f} {place:.1f}" stroke="{colour}" stroke-width="0.7"/>'
        f'<text x="{at:.1f}" y="{place + 4:.1f}" fill="{colour}">{escape(name)}</text>'
        for place, (y, x, name, colour) in zip(places, ends, strict=True)
    ]


def ticks(least: float, most: float) -> list[float]:
    """Four to ten round values that enclose the range."""
    raw = (most - least) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [step * count for count in range(math.floor(least / step), math.ceil(most / step) + 1)]
