"""The program, assembled from its commands. Only the command that is called is imported: some import all of torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from fieldfare import __version__
from fieldfare.errors import NotGiven, Unsupported
from fieldfare_flower import logs
from fieldfare_server.cli.output import print_as_it_is, refusals

# Name -> the first sentence of its help, which `fieldfare --help` shows without importing the command.
COMMANDS = {
    "init": "Write a commented plan and a task over a CSV file into a directory: they run at once.",
    "demo": "Train on 336 776 real flights at one epsilon: noise independent, correlated, and none.",
    "plan": "What a plan will cost and how much noise it adds.",
    "suggest": "Price other rounds, cohorts, clip norms, mechanisms and samplers, and write the plan with the "
    "least noise.",
    "simulate": "Run a plan on this machine and charge its population.",
    "ask": "Ask users a question, charge their population, and print the answer with its interval.",
    "tune": "Try settings of a plan on a share of its users, and write the best into a plan for the others.",
    "compare": "The same budget, several mechanisms: a table, and with --train a plot of held-out scores.",
    "mechanisms": "All kinds of mechanism, with the error of a prefix sum at equal privacy.",
    "run": "Submit a plan to a SuperLink and follow the run to its end.",
    "supervise": "Watch the ledger for runs without a coordinator and submit them to the federation "
    "again, until stopped.",
    "serve": "Serve the budget API and page.",
    "budget": "What each population has spent, reserved and left.",
    "charge": "Reserve, commit or release a loss of another trainer.",
    "runs": "List the newest runs.",
    "report": "The privacy statement of one run; every number in it comes from the ledger.",
    "certificate": "The certificate of one run, for docs/check_certificate.py: canonical JSON that names no user.",
    "audit": "Test whether the run's plan gets the noise that was charged; the ledger stores the result.",
    "verify": "Recompute the audit chain, every charge and every checkpoint digest; name the first row that does not "
    "match.",
    "doctor": "Check clocks, certificates, secrets, versions, identities, space, ledger and API; say how to mend each "
    "finding.",
    "abandon": "End a run that will not be resumed: what it reserved and did not spend returns to the budget.",
    "model": "Write the model of a run with all its parameters and buffers.",
    "node-key": "Make the key by which a node signs what it sends to a blinder; print its public part.",
    "backup": "Copy the ledger while it is written to: SQLite by itself, PostgreSQL with pg_dump.",
    "migrate": "Create the ledger, or upgrade it to this version; give PostgreSQL's roles their rights. "
    "Back it up first.",
}
GROUPS = {
    "task": "Try a task on this machine.",
    "data": "Fetch public data sets, or list them.",
    "population": "The budgets that populations of users share.",
    "token": "Create, list or revoke API tokens.",
    "certificates": "Make keys, certificates and secrets of a federation.",
    "head": "The key that signs the journal's head.",
    "blinder": "The party that knows the masks of masked sums, and no data.",
    "nodes": "Admit nodes to the federation, or remove them.",
    "ledger": "Put a ledger right, and make it again from a copy.",
}

# Commands that read, and that no service answers: why `--url` is refused.
NOT_SERVED = {
    "verify": "it recomputes the log, every charge and every file here; a service can only say what it believes of "
    "itself, as at /v1/audit/verification.",
    "certificate": "it needs the run's strategy, and the key that signs the log's head: no service holds them.",
    "audit": "it runs the plan again here, with the task's code, and writes the result to the ledger.",
    "model": "no service holds a model.",
    "token list": "a token that leaked would show all others.",
}

# The modules of commands that share one; every other command has a module of its name.
_MODULES = dict.fromkeys(("audit", "verify", "abandon"), "history") | {"node-key": "blinder"}

# Entry points of this group add a command each, under its name.
ADDED = "fieldfare.commands"


def added() -> dict[str, EntryPoint]:
    """Return the commands of installed add-ons, by name. None replaces a command of the program's own."""
    return {point.name: point for point in entry_points(group=ADDED) if point.name not in COMMANDS | GROUPS}


def called(arguments: Sequence[str]) -> str | None:
    """Return the command among command-line arguments: the first that is no option. The program's own options
    take no value.

    None without one: the program then only shows its help or its version.
    """
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def require_said(arguments: Sequence[str]) -> None:
    """Raise `NotGiven` for an empty word, as an unset variable of a shell is: nothing starts by mistake."""
    for before, word in zip(("fieldfare", *arguments), arguments, strict=False):
        if not word.strip() or (word.startswith("--") and not word.partition("=")[2].strip() and "=" in word):
            what = word.rstrip("= ") or f"what follows {before}"
            raise NotGiven(what, "it is empty: is a variable of the shell unset? Nothing was started.")


def require_servable(arguments: Sequence[str]) -> None:
    """Raise `BadInput` where `--url` is given to a command that no service answers."""
    if not any(argument.partition("=")[0] == "--url" for argument in arguments):
        return
    words = [argument for argument in arguments if not argument.startswith("-")]
    for name in (" ".join(words[:1]), " ".join(words[:2])):
        if name in NOT_SERVED:
            raise Unsupported(f"{name} --url", NOT_SERVED[name], "--home or --ledger, where the ledger is")


def assemble(wanted: str | None = None) -> typer.Typer:
    """Return the program with command `wanted` alone if there is such a command, otherwise with all of them."""
    program, own = _program(), COMMANDS | GROUPS
    more = {} if wanted in own else added()
    alone = {wanted} if wanted in own or wanted in more else set(own) | set(more)
    for name in own:
        if name not in alone:
            continue
        module = import_module(f"fieldfare_server.cli.{_MODULES.get(name, name)}")
        if name in GROUPS:
            program.add_typer(getattr(module, name), name=name)
        else:
            program.command()(getattr(module, name.replace("-", "_")))
    for name, point in more.items():
        if name in alone:
            program.command(name)(point.load())
    return program


def overview() -> typer.Typer:
    """Return the program with its commands' names and summaries, none of which is imported: for help and version."""
    program = _program()
    for name, summary in (COMMANDS | GROUPS).items():
        program.command(name, help=summary)(lambda: None)
    for name, point in added().items():
        program.command(name, help=f"From {point.value.partition('.')[0]}.")(lambda: None)
    return program


def _program() -> typer.Typer:
    program = typer.Typer(
        name="fieldfare",
        help="Federated learning with user-level differential privacy, and a budget that everybody can see.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # click names the nearest command; Typer would say it once more.
        suggest_commands=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_options)
    return program


def __getattr__(name: str) -> object:
    # `application`, the program with all commands, is built on request: it imports every command.
    if name == "application":
        return assemble()
    raise AttributeError(name)


def _version(value: bool) -> None:
    if value:
        print_as_it_is(f"fieldfare {__version__}\n")
        raise typer.Exit


def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log what happens to standard error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and leave")
    ] = False,
) -> None:
    with refusals(as_json=False):
        logs.configure("info" if verbose else "warning")
    # Flower logs every step at INFO, which would drown the progress bar.
    logging.getLogger("flwr").setLevel(logging.WARNING)
