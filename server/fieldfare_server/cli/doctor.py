"""`fieldfare doctor`: find what is wrong with a deployment, from inside it, and say how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import BadInput, Conflict, NotFound
from fieldfare_server.cli.command import command
from fieldfare_server.cli.doctor_masks import check_blinder, check_masks
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption, trusted
from fieldfare_server.cli.output import BAD_INPUT, out, print_json, print_table
from fieldfare_server.doctor import machine
from fieldfare_server.doctor.budget_api import check_api
from fieldfare_server.doctor.certificates import check_certificates
from fieldfare_server.doctor.finding import Finding, guard, skipped
from fieldfare_server.doctor.ledger import check_ledger, has_only_simulations, report_refusal
from fieldfare_server.doctor.secrets import (
    check_ledger_password,
    check_node_identity,
    check_permissions,
    check_strength,
)
from fieldfare_server.doctor.strangers import strangers
from fieldfare_server.doctor.superlink import check_superlink
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import read_plan


@command
def doctor(
    node: Annotated[bool, typer.Option("--node", help="this is a node: it has no ledger")] = False,
    superlink: Annotated[str | None, typer.Option(help="host:port of the SuperLink, or of its gate")] = None,
    root_certificates: Annotated[Path | None, typer.Option(help="the federation's ca.crt")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="the SuperLink has no TLS")] = False,
    secrets: Annotated[Path | None, typer.Option(help="directory of this side's certificates and keys")] = None,
    url: Annotated[str | None, typer.Option(help="the budget API")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="with --url: certificates (PEM) to trust")] = None,
    task: Annotated[str | None, typer.Option(help="with --node: the task it trains [FIELDFARE_TASK]")] = None,
    node_config: Annotated[
        str,
        typer.Option(
            help="with --node: as its SuperNode's, with `blinder` and `node-key`", envvar="FIELDFARE_NODE_CONFIG"
        ),
    ] = "",
    blinder: Annotated[
        Path | None, typer.Option(help="this is the blinder's machine: the directory of its key and journal")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="of a masked run: does it name the blinder of this machine?")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="the other side's `doctor --json` output, to compare")] = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Check clocks, certificates, secrets, versions, identities, space, ledger and API; say how to mend each
    finding.

    Run it in the coordinator's container, with --node in a node's, or with --blinder at a blinder. It changes
    nothing, with one exception: where FIELDFARE_NODE_AUTH claims that the SuperLink admits no strangers, the check
    connects as one, and a SuperLink that admits it drops it again. Exit code 2 if there is a fault; warnings alone
    give 0.
    """
    apart = node or blinder is not None
    if apart and (home or ledger or url):
        raise Conflict("doctor", "node and blinder have neither a ledger nor an API.", "--superlink, --secrets")
    if superlink:
        trusted("doctor", root_certificates, insecure)
    if root_certificates is not None and not os.path.isfile(root_certificates):
        raise NotFound(f"--root-certificates {root_certificates}", "there is no such file.", "the server's ca.crt")
    if secrets is not None and not os.path.isdir(secrets):
        raise NotFound(f"--secrets {secrets}", "there is no such directory.", "/secrets")
    planned = None if plan is None else read_plan(plan)
    state, findings = (None, []) if apart else _state_directory(home, ledger)
    trained = task or os.environ.get("FIELDFARE_TASK")
    findings += _machine(apart, state, against, trained, superlink, blinder)
    findings += _secrets(secrets, node, state)
    if node:
        findings += guard("masked sums", lambda: check_masks(node_config, planned))
    if blinder is not None:
        findings += guard("blinder", lambda: check_blinder(blinder, planned))
    if state:
        findings += guard("ledger", lambda: check_ledger(state))
    findings += _network(superlink, root_certificates, apart)
    if not apart:
        findings += guard("API", lambda: check_api(url, ca_file)) if url else [skipped("API", "no --url was given.")]
    _print_findings(findings, apart, json_)


def _state_directory(home: Path | None, ledger: str | None) -> tuple[StateDirectory | None, list[Finding]]:
    """Return the state directory, or None and the finding that says why: all other checks can still run."""
    try:
        return StateDirectory.of(home, ledger), []
    except BadInput as error:
        return None, [
            report_refusal("ledger", error, "make the secrets (`fieldfare certificates server`) and mount them")
        ]


def _machine(
    node: bool,
    state: StateDirectory | None,
    against: Path | None,
    task: str | None,
    superlink: str | None,
    blinder: Path | None,
) -> Iterator[Finding]:
    yield from guard("environment", machine.check_faults)
    volumes = [Path(os.environ["FLWR_HOME"])] if "FLWR_HOME" in os.environ else []
    volumes += [blinder] if blinder else []
    yield from guard("volumes", lambda: machine.check_disk(*([state.root] if state else []), *volumes))
    yield from guard("limits", machine.check_limits)
    if not node:
        simulated = state is not None and superlink is None and has_only_simulations(state)
        yield machine.check_node_authentication(simulated)
    elif task:
        yield from guard(f"task {task}", lambda: [machine.check_task(task)])
    else:
        yield skipped("task", "neither --task nor FIELDFARE_TASK was given.")
    if against:
        yield from guard("versions on both sides", lambda: machine.compare_versions(against, node))
    else:
        yield skipped("versions on both sides", "no --against was given.")


def _secrets(directory: Path | None, node: bool, state: StateDirectory | None) -> Iterator[Finding]:
    if directory is None:
        yield skipped("secrets", "no --secrets was given.")
    else:
        for check in (check_certificates, check_permissions, check_strength):
            yield from guard(f"secrets in {directory}", partial(check, directory))
        if node:
            yield from guard("node identity", lambda: [check_node_identity(directory)])
    if state:
        yield check_ledger_password(state.ledger)
        if os.path.isdir(state.root):
            yield from guard(f"secrets in {state.root}", lambda: check_permissions(state.root))


def _network(superlink: str | None, root_certificates: Path | None, node: bool) -> Iterator[Finding]:
    if superlink is None:
        yield skipped("SuperLink", "no --superlink was given.")
        return
    faults = 0
    for finding in guard(f"SuperLink {superlink}", lambda: check_superlink(superlink, root_certificates, node=node)):
        faults += finding.state == "fault"
        yield finding
    if not node and not faults and os.environ.get("FIELDFARE_NODE_AUTH") == "required":
        yield from guard("strangers", lambda: [strangers(superlink, root_certificates)])


def _print_findings(findings: list[Finding], node: bool, as_json: bool) -> None:
    bad = sum(finding.state == "fault" for finding in findings)
    if as_json:
        about = {"ok": not bad, "side": "node" if node else "server", "versions": machine.versions()}
        print_json(about | {"findings": [finding.to_json() for finding in findings]})
    else:
        order = {"fault": 0, "warning": 1, "skipped": 2, "ok": 3}
        rows = [(f.state, f.check, f.said, f.mend) for f in sorted(findings, key=lambda f: order[f.state])]
        print_table("fieldfare doctor", ("state", "what", "found", "mend"), rows)
        warned = sum(finding.state == "warning" for finding in findings)
        out.print(f"Faults: {bad}. Warnings: {warned}.")
    if bad:
        raise typer.Exit(BAD_INPUT)
