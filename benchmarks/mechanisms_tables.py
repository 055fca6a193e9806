"""The tables of `mechanisms.py`: every ratio with its aim and whether it is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

RELEASE_AIMS = {"draw": (1.9, 1.0), "blt, 3 buffers": (3.5, 1.6), "banded, 16": (4.2, 2.5)}
"""Times `torch.randn` of that size in float32, for a release of at least 1e6 elements: by default; compiled."""
GRID_AIM = 2.0
"""Times a plain addition of two vectors, for the addition of noise rounded to the grid, in vectors as large."""


def table(report: dict[str, Any]) -> str:
    lines = ["# Mechanisms", "", f"`{report['command']}`", ""]
    lines += [", ".join(f"{key} {value}" for key, value in report["machine"].items())]
    for part, lines_of in LAYOUTS.items():
        if report[part]:
            lines += ["", *lines_of(report[part])]
    return "\n".join(lines) + "\n"


def lay_out(columns: str, rows: list[Row], name: Callable[[Row], str], figures: Callable[[Row], str]) -> list[str]:
    """The lines of a table: each row's name, then its figures or why it has none."""
    width = columns.count("|") - 1
    lines = [columns, "|" + "---|" * width]
    for row in rows:
        first = name(row)
        missing = width - first.count("|") - 1
        rest = row["skipped"] + " |" * missing if "skipped" in row else figures(row)
        lines.append(f"{first}| {rest} |")
    return lines


def measured(row: Row) -> str:
    """The cells that say what was measured."""
    return f"| {row['name']} | {row['size']:.0e} | {row['threads']} "


def rounds_table(rows: list[Row]) -> list[str]:
    def figures(row: Row) -> str:
        ratio = f"{row['ratio']:.2f} ({row['ratio_new_vector']:.2f}) | {at_most(row['ratio'], row['target'])}"
        added = f"{row['ms_added']:.2f} | {row['ratio_added']:.2f}"
        return f"{row['ms']:.2f} | {ratio} | {added} | {memory(row)}"

    columns = (
        "| mechanism | elements | threads | ms | ratio | aim | met | added, ms | ratio | buffers | peak, vectors |"
    )
    return [
        "One round, float32. Ratio: to `torch.randn` in turns, into existing vectors (in brackets: into new ones).",
        "Added: the round added to a sum in place (`add_to`), which is how a server releases, and its ratio likewise.",
        "Peak: resident memory without the buffers, over the process before the stream; the sum released is one of it.",
        "(Each thread has scratch of 2 to 7 MB, whatever the size, from a small round before.)",
        "",
        *lay_out(columns, rows, measured, figures),
    ]


def releases_table(rows: list[Row]) -> list[str]:
    def figures(row: Row) -> str:
        large = row["size"] >= 10**6
        aims = RELEASE_AIMS.get(row["name"]) if large else None
        aim = aims and aims[row.get("compiled", False)]
        ratios = f"{row['ratio_float64']:.2f} | {row['ratio_float32']:.2f} | {at_most(row['ratio_float32'], aim)}"
        met = at_most(row["ratio_add"], GRID_AIM if large else None)
        grid = f"{row['grid_ms']:.2f} | {row['ratio_add']:.2f} | {met}"
        return f"{row['ms']:.2f} | {ratios} | {grid} | {memory(row)} | {row['load_average']:.1f}"

    columns = (
        "| release | elements | threads | ms | to float64 | to float32 | aim | met | grid, ms | ratio | aim | met "
        "| buffers | peak, vectors | load |"
    )
    return [
        'What a server does in a round by default (`privacy.rounding = "grid"`): float64 noise, rounded and added to a',
        "float64 sum. Ratios: to `torch.randn` of that size in float64, and in float32, in turns. Vectors of 8 bytes.",
        "Grid: ready noise rounded and added to a sum, over a plain addition of the two. Medians; with one thread, of",
        "CPU time.",
        "",
        *lay_out(columns, rows, measured, figures),
    ]


def memory(row: Row) -> str:
    return f"{row['buffers']} | {row['peak_vectors_beside_state']:.2f}"


def builds_table(rows: list[Row]) -> list[str]:
    def figures(row: Row) -> str:
        seconds = f"{row['seconds']:.3f} | {at_most(row['seconds'], row['target_s'])}"
        return f"{seconds} | {row['mean_loss']:.6f} | {row['max_loss']:.6f}"

    columns = "| optimising | rounds | seconds | aim | met | squared mean error | squared max error |"
    return lay_out(columns, rows, lambda row: f"| {row['name']} | {row['rounds']} ", figures)


def peers_table(rows: list[Row]) -> list[str]:
    def figures(row: Row) -> str:
        its = f"{row['ms']:.1f} ({row['donated_ms']:.1f}) | {row['ours_ms']:.1f} ({row['ours_float32_ms']:.1f})"
        met = "yes" if row["times_faster"] >= row["target_times"] else "no"
        gain = f"{row['times_faster']:.1f} ({row['times_faster_float32']:.1f}) | {row['target_times']:.0f} | {met}"
        peaks = f"{row['peak_mb']:.0f} ({row['donated_peak_mb']:.0f}) | {row['ours_peak_mb']:.0f}"
        return f"{its} | {gain} | {peaks} | {row['load_average']:.1f}"

    columns = (
        "| jax-privacy | elements | threads | its ms | our ms | faster by | aim | met | its peak MB | our peak MB "
        "| load |"
    )
    shown = [{**row, "skipped": f"not run: {row['skipped']}"} if "skipped" in row else row for row in rows]
    return [
        "jax-privacy 2.0.0 adds its noise to an update, and so do we, each by its default (ours: float64 on a grid),",
        "in turns in one process, on as many cores; medians, with one thread of CPU time. In brackets: with its old",
        'state donated to it; ours in float32 with `rounding = "none"`.',
        "",
        *lay_out(columns, shown, measured, figures),
    ]


def at_most(figure: float, aim: float | None) -> str:
    """The cells of an aim and of whether `figure` meets it."""
    if aim is None:
        return " | "
    return f"{aim} | {'yes' if figure <= aim else 'no'}"


LAYOUTS: dict[str, Callable[[list[Row]], list[str]]] = {
    "rounds": rounds_table,
    "releases": releases_table,
    "builds": builds_table,
    "peers": peers_table,
}
