"""`fieldfare ledger`: put a ledger right, and make it again from a copy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fieldfare_server.cli.administer import actor, on_ledger
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.output import print_outcome
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger, chain
from fieldfare_server.ledger.sql.mend import Mending
from fieldfare_server.ledger.sql.segments import Segments

ledger = typer.Typer(help="Put a ledger right, and make it again from a copy.", no_args_is_help=True)
KeyOption = Annotated[
    Path | None, typer.Option("--key", help="the key that seals the segments [ledger.segments.key of the home]")
]


@ledger.callback()
def _group() -> None:
    """Commands on the ledger as a whole."""


@ledger.command()
@on_ledger
def rebuild(opened: Ledger) -> CommandResult:
    """Make every table again from the journal and what it names by hash. Stop all services first, and back it up."""
    voided = opened.rebuild(actor=actor())
    rows = opened.head().count

    def tell() -> None:
        print_outcome(f"The tables say what the journal proves, up to row {rows}.")
        _tell_voided(voided)

    return CommandResult({"rows": rows, "voided": voided}, tell)


@ledger.command()
@on_home
def export(
    state: StateDirectory,
    directory: Annotated[Path, typer.Argument(help="where the segments go; a copy that is there goes on")],
    key: KeyOption = None,
) -> CommandResult:
    """Write journal and content as sealed segment files, while services work. Keep the key elsewhere too."""
    state.prepare()
    segments = _segments(directory, key, state)
    with Ledger.open(state.ledger, head_file=state.head_file) as opened:
        end = segments.follow(opened.database)
    shown = {"rows": end.count, "hash": end.hash}
    return CommandResult(shown, lambda: print_outcome(f"Rows in {directory.absolute()}: {end.count}."))


@ledger.command("import")
@on_home
def import_(
    state: StateDirectory,
    directory: Annotated[Path, typer.Argument(help="the segments: those of a home, or an export")],
    key: KeyOption = None,
) -> CommandResult:
    """Make a ledger from segments in an empty database: chain, heads and every rule are checked first."""
    state.prepare()
    segments = _segments(directory, key, state)
    held = chain.held_heads(map(chain.HeadFile, state.head_files))
    with Ledger.open(state.ledger, create=True) as opened:
        voided = opened.restore(segments, held=held, actor=actor())
    # What the home holds and keeps goes on from here.
    with Ledger.open(state.ledger, head_file=state.head_file) as opened:
        rows = opened.head().count

    def tell() -> None:
        print_outcome(f"The ledger has {rows} rows, and every table says what they prove.")
        _tell_voided(voided)

    return CommandResult({"rows": rows, "voided": voided}, tell)


@ledger.command()
@on_home
def mend(
    state: StateDirectory,
    yes: Annotated[bool, typer.Option("--yes", help="do it; without it, only what would be done is said")] = False,
) -> CommandResult:
    """Drop rows of the journal that stop every budget, and charge for them. Stop all services first, and back
    it up.

    Runs in the coordinator's home, whose segments are believed; on PostgreSQL with the URL of the tables'
    owner.
    """
    state.prepare()
    with Ledger.open(state.ledger, to_show=True) as opened:
        mending = opened.mend(state.head_files, actor=actor(), sure=yes)
    shown = {name: getattr(mending, name) for name in ("kept", "restored", "whole", "closed")}
    shown |= {"done": yes and mending.needed, "dropped": [asdict(row) for row in mending.dropped]}
    return CommandResult(shown, lambda: _tell_mended(mending, yes))


def _tell_mended(mending: Mending, done: bool) -> None:
    if not mending.needed:
        print_outcome(f"All {mending.end.count} rows fit. If a table does not: `fieldfare ledger rebuild`.")
        return
    verb = "is" if done else "would be"
    print_outcome(f"The first {mending.kept} rows stay as they are. {mending.restored} come back from a copy.")
    for row in mending.dropped[:_SHOWN]:
        where = "" if row.run is None else f" of run {row.run}"
        print_outcome(f"Row {row.number}, {row.action}{where}, {verb} dropped: {row.why}.")
    if len(mending.dropped) > _SHOWN:
        print_outcome(f"So {verb} {len(mending.dropped) - _SHOWN} more.")
    for run in mending.whole:
        print_outcome(f"Run {run} {verb} ended, and charged all that it reserved.")
    for name in mending.closed:
        print_outcome(f"Population {name} {verb} closed: `fieldfare population reopen` once you know what was dropped.")
    print_outcome("Nodes that saw a dropped row refuse the journal: docs/head.md says what their operators do.")
    if not done:
        print_outcome("Nothing was changed. Again with --yes to do it.")


# Dropped rows that are listed for people; --json has all.
_SHOWN = 20


def _segments(directory: Path, key: Path | None, state: StateDirectory) -> Segments:
    return Segments(directory, key or Segments.beside(state.head_file).key_file)


def _tell_voided(voided: tuple[str, ...]) -> None:
    for run in voided:
        print_outcome(f"The open round of run {run} is void: who was selected for it is lost.")
