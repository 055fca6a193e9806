"""`fieldfare mechanisms`: what noise there is, and what it costs and buys."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from fieldfare import mechanisms as room
from fieldfare.errors import BadInput
from fieldfare.participation import MinSeparation
from fieldfare_server.cli.options import JsonOption
from fieldfare_server.cli.output import out, print_json, print_table, refusals


def mechanisms(
    rounds: Annotated[int, typer.Option(min=1)] = 2000,
    separation: Annotated[int, typer.Option(min=1)] = 100,
    max_participations: Annotated[int, typer.Option(min=1)] = 20,
    slow: Annotated[bool, typer.Option(help="also those that take minutes to optimise")] = False,
    json_: JsonOption = False,
) -> None:
    """All kinds of mechanism, with the error of a prefix sum at equal privacy."""
    with refusals(json_):
        participation = MinSeparation(separation, max_participations)
        rows = []
        for kind in room.kinds():
            about = room.describe(kind)
            error = None
            if slow or not about.slow:
                # Some examples do not fit some horizons (64 bands in 10 rounds): the row stays, without an error.
                with suppress(BadInput):
                    error = room.build(about.example, rounds, participation).mean_error(rounds, participation)
            rows.append((kind, about.source, about.memory, about.cost, about.anytime, error))
        if json_:
            names = ("kind", "source", "memory", "cost", "anytime", "mean_error")
            print_json([dict(zip(names, row, strict=True)) for row in rows])
        else:
            print_table(
                f"Mechanisms ({rounds} rounds, {max_participations} participations, {separation} apart)",
                ("kind", "source", "memory", "cost a round", "anytime", "error"),
                rows,
            )
            out.print("error: root-mean-square noise in a prefix sum at equal privacy (rho = 1/2), clip norm 1")
