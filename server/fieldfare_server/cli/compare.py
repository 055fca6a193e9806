"""`fieldfare compare`: the same budget, several mechanisms."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldfare.costing import cost_of
from fieldfare.errors import NotAllowed, Unreadable
from fieldfare.plan import Plan
from fieldfare_server.cli import sessions
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import err, out, print_text, print_things
from fieldfare_server.cli.plot import can_plot, plot_traces
from fieldfare_server.cli.progress import Trace, check_first, local_grid, run_here
from fieldfare_server.files.plan_file import read_plan

# Of a row: root-mean-square noise in a prefix sum, in units of the clip norm, at the plan's budget.
ERROR = "prefix_noise_rms"


@command
def compare(
    path: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="the plan file")],
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", help="a kind, or a TOML table: '{kind = \"blt\", buffers = 4}'; repeatable"),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="also train with each, uncharged: only for public or simulated data")
    ] = False,
    data_is_public: Annotated[bool, typer.Option("--data-is-public", help="state that, as --train requires")] = False,
    nodes: Annotated[int, typer.Option(min=1, help="simulated nodes the users are spread over")] = 1,
    to: Annotated[Path, typer.Option("--out", help="the plot")] = Path("compare.png"),
    json_: JsonOption = False,
) -> CommandResult:
    """The same budget, several mechanisms: a table, and with --train a plot of held-out scores.

    Without --train the command only reads the plan. With --train it trains once with each mechanism and once
    without noise, in rehearsals that no ledger records; the results of a rehearsal are not private.
    """
    base = read_plan(path)
    specs = [_spec(text) for text in (mechanism or ["nu", "independent"])]
    rows, traces = compare_mechanisms(base, specs, train, data_is_public, nodes, quiet=json_)
    picture = (
        plot_traces(traces, to, f"{base.run.task}: same budget, different noise") if traces and can_plot() else None
    )
    shown = {"plans": rows, "rehearsals": [t.to_json() for t in traces], "plot": str(picture) if picture else None}
    return CommandResult(shown, lambda: _print_comparison(rows, traces, picture))


def compare_mechanisms(
    base: Plan, specs: list[dict[str, object]], train: bool, data_is_public: bool, nodes: int, quiet: bool
) -> tuple[list[dict[str, Any]], list[Trace]]:
    """Return (what each mechanism costs in the place of that of `base`, rehearsals with each and without
    noise).

    Without `train` there are no rehearsals. Raises `BadInput` for a mechanism that cannot meet the plan, and
    for rehearsals on data that are not stated to be public, on a faulty task or with too few users.
    """
    if train and not data_is_public:
        why = "rehearsals are not charged, so they may only touch data that are public."
        raise NotAllowed("compare --train", why, "--train --data-is-public, or fieldfare simulate, which is charged")
    if train:
        # A rehearsal charges nothing, so no delta is too large for it.
        check_first(base, accept_delta=True)
    plans = [Plan.parse({**base.model_dump(mode="json"), "mechanism": spec}) for spec in specs]
    rows = [{"label": label_of(spec), **cost_of(plan).to_json()} for spec, plan in zip(specs, plans, strict=True)]
    return rows, _train(base, plans, rows, nodes, quiet) if train else []


def _spec(text: str) -> dict[str, object]:
    if not text.lstrip().startswith("{"):
        return {"kind": text}
    try:
        table = tomllib.loads(f"mechanism = {text}")["mechanism"]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unreadable(
            f"--mechanism {text!r}", f"is not a TOML table: {error}.", '{kind = "nu", nu = 0.01}'
        ) from None
    return dict(table)


def label_of(spec: dict[str, object]) -> str:
    """Return what plots and tables call a `[mechanism]` table: nu, or blt(buffers=4)."""
    rest = ", ".join(f"{key}={value}" for key, value in spec.items() if key != "kind")
    return f"{spec.get('kind')}({rest})" if rest else str(spec.get("kind"))


def _train(base: Plan, plans: list[Plan], rows: list[dict[str, Any]], nodes: int, quiet: bool) -> list[Trace]:
    if not quiet:
        err.print("Rehearsals: not charged, NOT PRIVATE.")

    def rehearse(plan: Plan, label: str, noise: bool) -> Trace:
        return run_here(sessions().rehearse(plan, noise=noise), local_grid(plan, nodes), label, quiet, private=False)

    traces = [rehearse(plan, row["label"], True) for plan, row in zip(plans, rows, strict=True)]
    return [*traces, rehearse(base, "no noise", False)]


def _print_comparison(rows: list[dict[str, Any]], traces: list[Trace], picture: Path | None) -> None:
    scores = {trace.label: trace.score for trace in traces}
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "mechanism": lambda row: row["label"],
        "noise multiplier": lambda row: row["noise_multiplier"],
        "sensitivity": lambda row: row["sensitivity"],
        "epsilon": lambda row: row["epsilon"],
        "error of a prefix sum": lambda row: row[ERROR],
        "buffers": lambda row: row["buffers"],
        "held-out score": lambda row: scores.get(row["label"]),
    }
    caption = "error: root-mean-square noise in a prefix sum, in units of the clip norm, at the plan's budget."
    print_things("Same budget, different noise", columns, rows, caption)
    if "no noise" in scores:
        out.print(f"Without noise (NOT PRIVATE): {scores['no noise']}")
    if picture:
        print_text(f"Plot: {picture}")
