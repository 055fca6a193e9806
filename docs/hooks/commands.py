"""MkDocs calls this for every page: the list of commands is made of the commands themselves and of their help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import typer.main

from fieldfare_server.cli.application import NOT_SERVED, assemble

PLACE = "<!-- every command -->"
PAGES = {
    "ask": "questions",
    "blinder": "masked-sums",
    "certificate": "certificate",
    "certificates": "deployment",
    "charge": "charges",
    "forecast": "accuracy",
    "head": "head",
    "ledger": "log",
    "mechanisms": "mechanisms",
    "node-key": "masked-sums",
    "nodes": "deployment",
    "population": "privacy-officer",
    "suggest": "accuracy",
    "task": "your-task",
    "tune": "tuning",
}
"""Where a command, or a group of commands, is explained."""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below `command`, with its words."""
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from commands(command.commands[name], (*path, name))
    else:
        yield path, command


def markdown() -> str:
    """Return a row for each command, then what no command of a service answers, then those without `--json`."""
    rows, without = ["| command | what it does |", "|---|---|"], []
    for path, command in commands(typer.main.get_command(assemble())):
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        words = " ".join(["fieldfare", *path, *(str(each.make_metavar(click.Context(command))) for each in arguments)])
        page = PAGES.get(path[0])
        rows.append(f"| `{words}` | {command.get_short_help_str(300)}{f' [More]({page}.md)' if page else ''} |")
        if not any("--json" in each.opts for each in command.params):
            without.append(f"`{' '.join(path)}`")
    rows += ["", f"Every command takes `--json` but {', '.join(without)}."]
    rows += ["", "These ask no service:", "", "| command | why |", "|---|---|"]
    rows += [f"| `{name}` | {why.rstrip('.')} |" for name, why in NOT_SERVED.items()]
    return "\n".join(rows)


def on_page_markdown(text: str, **_: Any) -> str:
    """The page's Markdown, with the list in its place."""
    return text.replace(PLACE, markdown()) if PLACE in text else text
