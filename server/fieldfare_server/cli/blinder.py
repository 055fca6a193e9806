"""`fieldfare blinder`: the party that knows the masks of masked sums; `fieldfare node-key`: by which it knows nodes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldfare.accounting.filter import gauge
from fieldfare.errors import AlreadyThere, Differs, NotFound, NotGiven
from fieldfare.text import decimal, up
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.output import print_outcome, print_text, refusals
from fieldfare_server.files.plan_file import read_plan
from fieldfare_server.run.pricing import blinder_noise_of, numbers_released

if TYPE_CHECKING:
    from fieldfare_client.blinder import Blinder

blinder = typer.Typer(no_args_is_help=True, help="The party that knows the masks of masked sums, and no data.")

AtOption = Annotated[
    Path, typer.Option("--at", envvar="FIELDFARE_BLINDER", help="directory with its key and journal", metavar="DIR")
]
HERE = Path("blinder")


def open_blinder(at: Path, new: bool = False) -> Blinder:
    """The blinder at `at`. Raises `BadInput` where there is none: an empty one would not know what it answered."""
    from fieldfare_client.blinder import FILE, Blinder  # imports Flower

    if new and (at / FILE).exists():
        raise AlreadyThere(f"blinder {str(at)!r}", "there is one.", "`fieldfare blinder key`")
    if not new and not (at / FILE).exists():
        raise NotFound(f"blinder {str(at)!r}", "there is none.", "`fieldfare blinder init`, or its newest copy")
    return Blinder(at)


@blinder.command()
def init(at: AtOption = HERE) -> None:
    """Make a key and an empty journal; print the public key, which plans and nodes name."""
    with refusals(as_json=False):
        print_text(open_blinder(at, new=True).public_key)


@blinder.command()
def key(at: AtOption = HERE) -> None:
    """Print the public key."""
    with refusals(as_json=False):
        print_text(open_blinder(at).public_key)


@blinder.command()
def admit(
    name: Annotated[str, typer.Argument(help="whose node it is, for people")],
    node: Annotated[str, typer.Argument(metavar="KEY", help='"ffn1:..." as `fieldfare node-key` printed it')],
    at: AtOption = HERE,
) -> None:
    """Open boxes of this node from now on. Ask its operator for the key, and not who runs the server."""
    with refusals(as_json=False):
        open_blinder(at).admit({node: name})
        print_outcome(f"{name} is admitted.")


@blinder.command()
def approve(
    plan: Annotated[Path, typer.Argument(help="plan file")],
    words: Annotated[
        int, typer.Option(min=0, help="numbers of a reply, where the plan's task is not installed here; 0: ask it")
    ] = 0,
    at: AtOption = HERE,
) -> None:
    """Answer for this very plan from now on. Read it first: the server is shown its sums."""
    with refusals(as_json=False):
        read = read_plan(plan)
        opened, aggregation = open_blinder(at), read.aggregation
        if aggregation.party != opened.public_key:
            raise Differs("aggregation.blinder", "is not this blinder.", f'blinder = "{opened.public_key}"')
        words = words or numbers_released(read)
        noise, least = blinder_noise_of(read, words), aggregation.fewest_nodes
        if noise is not None and not opened.rows("budget"):
            why = "the server learns from its runs, and nothing says how much it may."
            raise NotGiven(f"plan {read.digest()}", why, "`fieldfare blinder budget --epsilon 8 --delta 1e-6`")
        opened.approve(read.digest(), least, words, noise)
        learns = "which the server reads without noise"
        if noise is not None:
            shown = gauge(noise.mu_squared, read.privacy.delta, 0.0)
            learns = f"under noise of this blinder's: a run shows the server epsilon {up(shown, 6):g} of a user"
            if opened.hello("", read.digest()).noise is None:
                learns += ", for which its budget has no room: no run begins before `fieldfare blinder budget`"
        print_outcome(
            f"Plan {read.digest()} is approved: {read.run.rounds} rounds of {read.run.cohort} users, clip "
            f"{read.clipping.norm:g}, sums of {words} numbers from at least {least} nodes, {learns}."
        )


@blinder.command()
def budget(
    epsilon: Annotated[float, typer.Option(help="epsilon")],
    delta: Annotated[float, typer.Option(help="delta")],
    at: AtOption = HERE,
) -> None:
    """Let the server learn no more than this of any user, from all runs together that this blinder adds noise to."""
    with refusals(as_json=False):
        open_blinder(at).limit(epsilon, delta)
        print_outcome(f"The server may learn ({epsilon:g}, {decimal(delta)}) of a user, from all runs together.")


@blinder.command()
@command
def status(at: AtOption = HERE) -> CommandResult:
    """Show the nodes that it admitted, the plans that it approved, and its newest answers."""
    opened = open_blinder(at)
    shown = {table: opened.rows(table) for table in ("nodes", "plans", "answers", "budget", "charges")}

    def tell() -> None:
        for node, name in shown["nodes"]:
            print_text(f"node {name}: ffn1:{node}")
        for plan, least, words in shown["plans"]:
            print_text(f"plan {plan}: {words} numbers, at least {least} nodes")
        for epsilon, delta in shown["budget"]:
            spent = gauge(sum(charge for _, _, charge in shown["charges"]), delta, 0.0)
            print_text(
                f"budget: epsilon {up(spent, 6):g} of {epsilon:g} shown to the server, at delta {decimal(delta)}"
            )
        for row, run, index, count, asked in shown["answers"][-10:]:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(asked))
            print_text(f"answer {row}: round {index + 1} of run {run}, {count} nodes, {when} UTC")

    return CommandResult({"key": opened.public_key, **shown}, tell)


@blinder.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, at: AtOption = HERE) -> None:
    """Answer as a node of a federation, until stopped. Arguments that it does not know are those of flower-supernode.

    It starts no app: code that the server sends never runs here.
    """
    from fieldfare_flower import supernode

    with refusals(as_json=False):
        opened = open_blinder(at)
        sys.argv = ["flower-supernode", *context.args]
        supernode.main(opened.reply)


def node_key(
    file: Annotated[Path, typer.Argument(help="where the private key is, or goes: at the node, and nowhere else")],
) -> None:
    """Make the key by which a node signs what it sends to a blinder; print its public part.

    The node's configuration names the file: node-key="FILE". Of a file that is there the public part is printed.
    """
    from fieldfare_client.masking import make_node_key

    with refusals(as_json=False):
        print_text(make_node_key(file))
