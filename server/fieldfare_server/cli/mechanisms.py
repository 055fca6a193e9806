"""`fieldfare mechanisms`: list the kinds of noise with their cost and their error."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from fieldfare import mechanisms as registry
from fieldfare.errors import BadInput, OutOfRange
from fieldfare.participation import MinSeparation
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.output import out, print_table


@command
def mechanisms(
    rounds: Annotated[int, typer.Option(min=1, max=1_000_000, help="of the run")] = 2000,
    separation: Annotated[int, typer.Option(min=1, help="rounds between two of a user, at least")] = 100,
    max_participations: Annotated[int | None, typer.Option(min=1, help="of a user [20, or as many as fit]")] = None,
    slow: Annotated[bool, typer.Option("--slow", help="also mechanisms that take minutes to optimise")] = False,
) -> CommandResult:
    """All kinds of mechanism, with the error of a prefix sum at equal privacy."""
    fit = -(-rounds // separation)
    if max_participations is not None and max_participations > fit:
        why = f"so many rounds that are {separation} apart do not fit into {rounds} rounds."
        raise OutOfRange(f"--max-participations {max_participations}", why, str(fit))
    most = min(20, fit) if max_participations is None else max_participations
    participation = MinSeparation(separation, most)
    rows = []
    for kind in registry.kinds():
        description = registry.describe(kind)
        error = None
        if slow or not description.slow:
            # A kind's example may not fit the horizon (64 bands in 10 rounds): its row then has no error.
            with suppress(BadInput):
                error = registry.build(description.example, rounds, participation).mean_error(rounds, participation)
        rows.append((kind, description.source, description.memory, description.cost, description.anytime, error))
    # As in docs/mechanisms.md: the least error first, and last what was not computed.
    rows.sort(key=lambda row: (row[-1] is None, row[-1], row[0]))

    def tell() -> None:
        print_table(
            f"Mechanisms ({rounds} rounds, {most} participations, {separation} apart)",
            ("kind", "source", "memory", "cost a round", "anytime", "error"),
            rows,
        )
        out.print("error: root-mean-square noise in a prefix sum at equal privacy (rho = 1/2), clip norm 1")
        if not slow:
            out.print("A kind that takes minutes to optimise has no error here: --slow computes it.")

    names = ("kind", "source", "memory", "cost", "anytime", "mean_error")
    return CommandResult([dict(zip(names, row, strict=True)) for row in rows], tell)
