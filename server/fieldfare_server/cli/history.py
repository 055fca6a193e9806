"""`fieldfare audit`, `verify`, `abandon`: test and end the runs of a ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import Conflict, Differs, LedgerError, Unreadable
from fieldfare.signed_head import FORMAT, SignedHead
from fieldfare.text import up
from fieldfare_server.api.schemas import Run
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.output import out, print_table, print_text
from fieldfare_server.cli.progress import local_grid
from fieldfare_server.evidence.forks import find_fork
from fieldfare_server.evidence.run_evidence import describe_canaries
from fieldfare_server.evidence.verify import recharge
from fieldfare_server.evidence.verify import verify as check
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Head, HeadFile, Ledger
from fieldfare_server.ledger.chain import held_heads
from fieldfare_server.ledger.sql.segments import Segments


@on_home
def verify(
    directory: StateDirectory,
    against: Annotated[
        str | None, typer.Option(help="URL of another copy of this ledger: name the round in which the two part")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="a signed head that was kept elsewhere, or a file of them; this home holds it afterwards"),
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="no head was kept: accept the ledger as it is, and hold its head from now on")
    ] = False,
) -> CommandResult:
    """Recompute the audit chain, every charge and every checkpoint digest; name the first row that does not
    match.

    Destroys first what a crash left of the keys and checkpoints of ended runs.
    """
    from fieldfare_server.run.ending import destroy_left_behind  # imports Flower

    if head is not None and hold:
        raise Conflict("--head, --hold", "a head was kept, or none was.", "one of the two")
    file = HeadFile(directory.head_file)
    given = head is not None or hold
    with Ledger.open(directory.ledger, head_file=None if given else directory.head_file) as opened:
        if head is None:
            seen = [] if hold else held_heads([file])
        else:
            # A head that was kept elsewhere adds to what this home has seen, which may be newer.
            seen = [*kept_heads(head, opened.head().ledger), *_readable(file, opened.head().ledger)]
        if not given:
            destroy_left_behind(directory, opened, actor())
        result = check(opened, directory.root, recompute=recharge, held=seen)
        if result.ok and against is not None:
            with Ledger.open(against) as other:
                result = replace(result, fault=find_fork(opened, other))
        copy = Segments.beside(directory.head_file)
        if hold and result.ok and any(opened.row_hash(end.count) != end.hash for end in list(copy.heads())[-1:]):
            copy.set_aside()  # the ledger as it is does not go on from them
    if given and result.ok and result.head is not None:
        file.write(result.head, again=True)
    shown: dict[str, object] = {"ok": result.ok, "fault": str(result.fault) if result.fault else None}
    shown |= {"checked": result.checked, "not_recomputed": {**result.missing, **result.unpinned}}

    def tell() -> None:
        if result.ok:
            out.print("The ledger is whole: " + ", ".join(f"{what} {n}" for what, n in result.checked.items()) + ".")
            for run, why in result.unpinned.items():
                print_text(f"The charges of run {run} cannot be recomputed: {why}")

    refusal = None
    if result.fault:
        # Only a damaged ledger is replaced: the backup of a whole one would give back what is spent.
        ledger_is_whole = result.fault.table == "checkpoints"
        remedy = "a copy of the run's directory; the ledger is whole" if ledger_is_whole else "its backup"
        refusal = LedgerError(f"ledger {opened.url}", f"the first row that does not fit is {result.fault}.", remedy)
    elif result.missing:
        run, why = next(iter(result.missing.items()))
        refusal = LedgerError(f"charges of run {run}", f"the ledger is whole, but they cannot be recomputed. {why}")
    return CommandResult(shown, tell, refusal)


def kept_heads(value: str, ledger: str) -> list[Head]:
    """Return the heads of `ledger` in the file `value`, or the one that `value` itself is.

    Raises `HeadRefused` for a line that is not a head, or that its key did not sign, and `BadInput` where
    no line is of this ledger.
    """
    path = Path(value)
    is_head = value.strip().startswith(FORMAT)
    if not is_head and not path.is_file():
        raise Unreadable(f"--head {value[:200]!r}", "is neither a head nor a file.", f"a line {FORMAT} ...")
    lines = [value] if is_head else path.read_text(encoding="utf-8", errors="replace").splitlines()
    heads = [SignedHead.parse(line) for line in lines if line.strip()]
    of_this = [Head(each.ledger, each.count, each.hash) for each in heads if each.ledger == ledger]
    if not of_this:
        named = ", ".join(sorted({each.ledger for each in heads})) or "none at all"
        raise Differs("--head", f"it is not a head of ledger {ledger}.", f"the ledger that it names: {named}")
    return of_this


def _readable(file: HeadFile, ledger: str) -> list[Head]:
    """Return what this home holds of `ledger`, if that can be read: `--head` is also the remedy where it cannot."""
    try:
        held = file.read()
    except LedgerError:
        return []
    return [held] if held is not None and held.ledger == ledger else []


@on_home
def abandon(
    directory: StateDirectory,
    run: Annotated[str, typer.Argument(metavar="RUN")],
    reason: Annotated[str, typer.Option(help="why; the audit log keeps it for ever")],
) -> CommandResult:
    """End a run that will not be resumed: what it reserved and did not spend returns to the budget.

    Refused while a coordinator holds the run. Needs no key and no checkpoint: the run's machine may be gone.
    Where they are in this home, the last model is written, and key and checkpoints are destroyed.
    """
    from fieldfare_server.run.ending import destroy  # imports Flower

    with Ledger.open(directory.ledger, head_file=directory.head_file) as opened:
        ended = opened.abandon(run, reason=reason, actor=actor())
        destroy(directory, opened, run, actor())
    text = (
        f"Run {ended.id} has ended after {ended.next_round} of {ended.rounds} rounds; "
        f"epsilon {up(ended.spent_epsilon):g} of {up(ended.planned_epsilon):g} was spent, the rest is free again."
    )
    return CommandResult(Run.of(ended, None), lambda: out.print(text))


@on_home
def audit(directory: StateDirectory, run: Annotated[str, typer.Argument(metavar="RUN")]) -> CommandResult:
    """Test whether the run's plan gets the noise that was charged; the ledger stores the result.

    The plan runs again in a real session on replies of known sums, and is resumed midway. The residual test
    detects a 1 % error of scale, a wrong correlation, a lost state. It draws fresh noise under its own key:
    the run's noise stays secret. Then it runs with canaries on nodes that select, train and clip as the run's
    do, and what the release tells of each of them is compared with the charge.
    """
    from fieldfare_server.evidence.residual_test import run_residual_test  # imports Flower

    with Ledger.open(directory.ledger, head_file=directory.head_file) as opened:
        result = run_residual_test(
            opened, run, actor=actor(), root=directory.root, grid_of=lambda plan: local_grid(plan, 2)
        )

    def tell() -> None:
        print_text(f"Residual test: {'passed' if result.residual.passed else 'FAILED'}. {result.residual.message}")
        if result.canaries is not None:
            figures = describe_canaries(result.canaries.model_dump())
            print_table("Canaries (a simulated attack; never a guarantee)", ("figure", "value"), figures)

    refusal = None if result.residual.passed else LedgerError(f"audit of run {run}", result.residual.message)
    return CommandResult(result.model_dump(mode="json"), tell, refusal)
