"""The plots of `demo` (noise of each way, held-out score) and of `compare` (held-out score and epsilon by rounds)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fieldfare_server.cli.progress import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0b6e4f", "#c8553d", "#6b7280", "#3a6ea5", "#8e5ea2", "#b8860b", "#2f4858", "#d1495b")
STORY_COLOURS = ("#c8553d", "#0b6e4f", "#3a6ea5", "#8e5ea2", "#6b7280")


def can_plot() -> bool:
    """Return whether matplotlib is installed: without it, results are told and not drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def plot_traces(traces: Sequence[Trace], path: Path, title: str) -> Path:
    """Write the plot as a PNG and return its path."""
    import matplotlib

    matplotlib.use("Agg")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_traces(traces, title).savefig(path, dpi=150)
    return path


def plot_story(traces: Sequence[Trace], who: Sequence[str], path: Path, title: str) -> Path:
    """Write what the same epsilon buys as a PNG: the noise of each way and who can use it, then scores by
    rounds.

    Args:
        traces: of runs at one epsilon, then any that are not private.
        who: who can use each private one, in the same order.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4.2), width_ratios=(5, 6), constrained_layout=True)
    private = [trace for trace in traces if trace.private]
    places = range(len(private))
    noise = [trace.prefix_noise for trace in private]
    left.barh(places, noise, color=STORY_COLOURS[: len(private)], height=0.42)
    for place, trace, users in zip(places, private, who, strict=True):
        left.annotate(
            f"{trace.prefix_noise:.1f}", (trace.prefix_noise, place), (4, 0), textcoords="offset points", va="center"
        )
        left.annotate(
            f"{trace.label}: {users}", (0, place - 0.27), (1, 0), textcoords="offset points", va="bottom", fontsize=9
        )
    left.set(yticks=[], xlabel="noise in the sum of all updates so far (RMS, clip norms)", xlim=(0, 1.12 * max(noise)))
    left.set(ylim=(len(private) - 0.6, -0.75), title=f"What epsilon {private[0].reports[-1].epsilon_limit:g} buys")
    for trace, colour in zip(traces, STORY_COLOURS, strict=False):
        rounds = [report.round + 1 for report in trace.reports]
        label = trace.label if trace.private else f"{trace.label} (NOT PRIVATE)"
        scores = [report.score for report in trace.reports]
        right.plot(rounds, scores, "-" if trace.private else "--", color=colour, label=label, linewidth=1.8)
    right.set(xlabel="round", ylabel=f"held-out {traces[0].reports[-1].score_name}", title=title)
    right.grid(alpha=0.25)
    right.legend(frameon=False, loc="lower right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def draw_traces(traces: Sequence[Trace], title: str) -> Figure:
    """Return the plot as a figure that no window shows. A notebook shows it once, as a cell's value."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4.2), width_ratios=(3, 2), constrained_layout=True)
    for trace, colour in zip(traces, COLOURS, strict=False):
        rounds = [report.round + 1 for report in trace.reports]
        style = "-" if trace.private else "--"
        label = trace.label if trace.private else f"{trace.label} (NOT PRIVATE)"
        left.plot(rounds, [report.score for report in trace.reports], style, color=colour, label=label, linewidth=1.8)
        if trace.private:
            spent = [report.epsilon for report in trace.reports]
            right.step(rounds, spent, color=colour, label=label, where="post", linewidth=1.8)
    first = traces[0].reports[-1]
    left.set(xlabel="round", ylabel=f"held-out {first.score_name}", title=title)
    right.set(xlabel="round", ylabel="epsilon if stopped now", title="What each run had spent")
    if first.epsilon_limit:
        right.axhline(first.epsilon_limit, color="#9ca3af", linewidth=1, linestyle=":")
        right.annotate("limit of the run", (1, first.epsilon_limit), va="bottom", fontsize=8, color="#6b7280")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, loc="lower right")
    # Otherwise a notebook would show it a second time, when the cell ends.
    pyplot.close(figure)
    return figure
