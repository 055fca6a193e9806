"""What the doctor asks of masked sums: a node's keys, code and budget; the blinder's key, journal and budget."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from fieldfare.errors import FieldfareError
from fieldfare.masking.boxes import read_key, write_node_key
from fieldfare.plan import Plan
from fieldfare_server.cli.blinder import open_blinder
from fieldfare_server.doctor.finding import Finding, fault, fine, warning


def check_blinder(at: Path, plan: Plan | None = None) -> Iterator[Finding]:
    """Check the blinder in `at`: what it could answer for, if a run began now. plan: one that it should answer for."""
    try:
        opened = open_blinder(at)
    except FieldfareError as error:
        yield fault("blinder", f"it answers nobody: {error}", "--blinder DIR, of `fieldfare blinder init`")
        return
    nodes, plans, answers = (opened.rows(table) for table in ("nodes", "plans", "answers"))
    key, number = opened.public_key, len(answers)
    yield fine("blinder", f"{key}; {len(nodes)} nodes are admitted, {number} questions answered.")
    for digest, least, _ in plans:
        check = f"plan {digest[:12]}"
        if opened.hello("", digest).noise is None:
            said, mend = "its budget has no room for another run of it.", "`fieldfare blinder budget`, a smaller run"
            yield warning(check, said, mend)
        elif len(nodes) < least:
            mend = "`fieldfare blinder admit` each node, by the key that its operator tells"
            yield fault(check, f"needs {least} nodes, and {len(nodes)} are admitted.", mend)
        else:
            yield fine(check, f"would be answered, for sums of {least} nodes or more.")
    if plan is not None:
        yield _named(plan.aggregation.party, key)
        if plan.digest() not in {digest for digest, _, _ in plans}:
            check = f"plan {plan.digest()[:12]}"
            yield fault(check, "is not approved.", "read it, then `fieldfare blinder approve PLAN`")


def _named(party: str, key: str) -> Finding:
    if party == key:
        return fine("key", "the plan names this blinder.")
    other = f"{party[:13]}..." if party else "no blinder"
    return fault("key", f"the plan names {other}, not {key[:13]}...", "ask the blinder's operator, by telephone")


def check_masks(config: str, plan: Plan | None = None) -> Iterator[Finding]:
    """Check a node's code and budget; where its configuration names a blinder, its keys too, and that both are set.

    config: of its SuperNode, the text of `--node-config`. plan: one that it should send masked sums for.
    """
    from fieldfare_client import budget
    from fieldfare_client.masking import BLINDER, NODE_KEY
    from fieldfare_flower import pinned

    given = {name: value for name, _, value in (pair.partition("=") for pair in shlex.split(config))}
    key, code, agreed = given.get(BLINDER), os.environ.get(pinned.VARIABLE), os.environ.get(budget.VARIABLE)
    if key:
        yield from _check_keys(key, given.get(NODE_KEY, ""), plan)
    try:
        if digests := pinned.allowed(Path(code)) if code else None:
            yield fine("code", f"{len(digests)} apps may start here.")
        elif code:
            yield fault("code", f"{code} allows no app, so nothing starts here.", "`sha256sum our.app.fab >> FILE`")
        elif key:
            said = f"{pinned.VARIABLE} is not set: whatever code the server sends starts here, and may send no masks."
            yield warning("code", said, f"{pinned.VARIABLE}=FILE with the digests of the apps that you know")
    except FieldfareError as error:
        yield fault("code", f"nothing starts here: {error}", f"{pinned.VARIABLE}=FILE, a digest a line")
    try:
        if agreed:
            from fieldfare_client.budget.charges import gauges
            from fieldfare_client.budget.settings import NodeBudget

            settings = NodeBudget.read(Path(agreed))
            gauges(settings)
            names = ", ".join(sorted(settings.populations))
            yield fine("budget", f"populations {names}; charges in {settings.charges}.")
        elif key:
            said = f"{budget.VARIABLE} is not set: the server decides how often a user is asked, for which populations."
            mend = f"{budget.VARIABLE}=FILE, `python -m fieldfare_client.budget init --file FILE`"
            yield warning("budget", said, mend)
    except (FieldfareError, ModuleNotFoundError) as error:
        yield fault("budget", f"this node trains nobody: {error}", "docs/node-budget.md")


def _check_keys(key: str, file: str, plan: Plan | None) -> Iterator[Finding]:
    from fieldfare_client.masking import NODE_KEY, node_key

    try:
        read_key(key)
        if plan is not None:
            yield _named(plan.aggregation.party, key)
        yield fine("blinder", f"{key[:13]}...{key[-8:]}: compare it with the blinder's operator, not the server's.")
    except FieldfareError:
        yield fault("blinder", "its key is none, so this node answers nobody.", "the line of `fieldfare blinder key`")
    try:
        public = write_node_key(node_key(Path(file)))
        yield fine(NODE_KEY, f"nobody else can read it; `fieldfare blinder admit NAME {public}`.")
    except FieldfareError as error:
        yield fault(NODE_KEY, f"no box can be signed: {error}", '`fieldfare node-key FILE`, and node-key="FILE"')
