"""`fieldfare doctor`: find what is wrong with a deployment, from inside it, and say how to mend it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import BadInput
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import BAD_INPUT, out, print_json, print_table, refusals
from fieldfare_server.doctor import Finding, machine, skipped
from fieldfare_server.doctor.budget_api import check_api
from fieldfare_server.doctor.certificates import check_certificates
from fieldfare_server.doctor.ledger import check_ledger, has_only_simulated_populations, report_refusal
from fieldfare_server.doctor.secrets import (
    check_ledger_password,
    check_node_identity,
    check_permissions,
    check_strength,
)
from fieldfare_server.doctor.strangers import strangers
from fieldfare_server.doctor.superlink import check_superlink
from fieldfare_server.files.home import StateDirectory


def doctor(
    node: Annotated[bool, typer.Option("--node", help="this is a node: it has no ledger")] = False,
    superlink: Annotated[str | None, typer.Option(help="host:port of the SuperLink, or of its gate")] = None,
    root_certificates: Annotated[Path | None, typer.Option(help="the federation's ca.crt")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="the SuperLink has no TLS")] = False,
    secrets: Annotated[Path | None, typer.Option(help="directory of this side's certificates and keys")] = None,
    url: Annotated[str | None, typer.Option(help="the budget API")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="with --url: certificates (PEM) to trust")] = None,
    task: Annotated[str | None, typer.Option(help="with --node: the task it trains [FIELDFARE_TASK]")] = None,
    against: Annotated[Path | None, typer.Option(help="the other side's `doctor --json` output, to compare")] = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Check clocks, certificates, secrets, versions, identities, space, ledger and API; say how to mend each finding.

    Run it in the coordinator's container, or with --node in a node's. It changes nothing, with one exception: where
    FIELDFARE_NODE_AUTH claims that the SuperLink admits no strangers, the check connects as one, and a SuperLink
    that admits it drops it again. Exit code 2 if there is a fault; warnings alone give 0.
    """
    with refusals(json_):
        if node and (home or ledger or url):
            raise BadInput("doctor --node", "a node has neither a ledger nor an API.", "--superlink, --secrets")
        if superlink and insecure == (root_certificates is not None):
            raise BadInput("doctor", "say how the SuperLink is trusted.", "--root-certificates ca.crt, or --insecure")
        if root_certificates is not None and not root_certificates.is_file():
            raise BadInput(f"--root-certificates {root_certificates}", "there is no such file.", "the server's ca.crt")
        state, findings = (None, []) if node else _state_directory(home, ledger)
        reached = list(check_superlink(superlink, root_certificates, node=node)) if superlink else []
        findings += [
            *_machine(node, state, against, task or os.environ.get("FIELDFARE_TASK"), superlink),
            *_secrets(secrets, node, state),
            *(check_ledger(state) if state else ()),
            *(reached or [skipped("SuperLink", "no --superlink was given.")]),
        ]
        if superlink and not node and _states_authentication() and not any(one.state == "fault" for one in reached):
            findings.append(strangers(superlink, root_certificates))
        if not node:
            findings += check_api(url, ca_file) if url else [skipped("API", "no --url was given.")]
    _print_findings(findings, node, json_)


def _states_authentication() -> bool:
    return os.environ.get("FIELDFARE_NODE_AUTH") == "required"


def _state_directory(home: Path | None, ledger: str | None) -> tuple[StateDirectory | None, list[Finding]]:
    """The state directory, or None and the finding that says why: all other checks can still run."""
    try:
        return StateDirectory.of(home, ledger), []
    except BadInput as error:
        return None, [
            report_refusal("ledger", error, "make the secrets (`fieldfare certificates server`) and mount them")
        ]


def _machine(
    node: bool, state: StateDirectory | None, against: Path | None, task: str | None, superlink: str | None
) -> Iterator[Finding]:
    yield from machine.check_faults()
    volumes = [Path(os.environ["FLWR_HOME"])] if "FLWR_HOME" in os.environ else []
    yield from machine.check_disk(*([state.root] if state else []), *volumes)
    if not node:
        simulated = state is not None and superlink is None and has_only_simulated_populations(state)
        yield machine.check_node_authentication(simulated)
    else:
        yield machine.check_task(task) if task else skipped("task", "neither --task nor FIELDFARE_TASK was given.")
    yield from (
        machine.compare_versions(against, node)
        if against
        else [skipped("versions on both sides", "no --against was given.")]
    )


def _secrets(directory: Path | None, node: bool, state: StateDirectory | None) -> Iterator[Finding]:
    if directory is None:
        yield skipped("secrets", "no --secrets was given.")
    elif not directory.is_dir():
        raise BadInput(f"--secrets {directory}", "there is no such directory.", "/secrets")
    else:
        yield from check_certificates(directory)
        yield from check_permissions(directory)
        yield from check_strength(directory)
        if node:
            yield check_node_identity(directory)
    if state:
        yield check_ledger_password(state.ledger)
        if state.root.is_dir():
            yield from check_permissions(state.root)


def _print_findings(findings: list[Finding], node: bool, as_json: bool) -> None:
    bad = sum(finding.state == "fault" for finding in findings)
    if as_json:
        print_json(
            {
                "ok": not bad,
                "side": "node" if node else "server",
                "versions": machine.versions(),
                "findings": [finding.to_json() for finding in findings],
            }
        )
    else:
        order = {"fault": 0, "warning": 1, "skipped": 2, "ok": 3}
        rows = [(f.state, f.check, f.said, f.mend) for f in sorted(findings, key=lambda f: order[f.state])]
        print_table("fieldfare doctor", ("state", "what", "found", "mend"), rows)
        warned = sum(finding.state == "warning" for finding in findings)
        out.print(f"{bad} faults, {warned} warnings.")
    if bad:
        sys.exit(BAD_INPUT)
