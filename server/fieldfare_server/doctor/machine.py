"""This machine: space on the volumes, versions, and how the operator says that nodes are known."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from fieldfare import __version__
from fieldfare.errors import FieldfareError
from fieldfare.task import load_task
from fieldfare_flower import messages as wire
from fieldfare_server import faults
from fieldfare_server.doctor.finding import Finding, fault, fine, warning
from fieldfare_server.ledger import migrate

LITTLE, LOW = 200 << 20, 1 << 30
"""Bytes free below which nothing works, and below which somebody should look."""


def disk(*volumes: Path) -> Iterator[Finding]:
    """Free space and permission to write, of each volume and of the place for temporary files."""
    for path in dict.fromkeys((*volumes, Path(tempfile.gettempdir()))):
        check = f"volume {path}"
        there = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(there).free
        if not os.access(there, os.W_OK):
            yield fault(check, "cannot be written by this user.", f"chown it to user {os.getuid()}")
        elif free < LITTLE:
            yield fault(check, f"has {free >> 20} MiB left: a round could not be checkpointed.", "make room")
        elif free < LOW:
            yield warning(
                check, f"has {free >> 20} MiB left.", "make room: a checkpoint is the model and its noise state"
            )
        else:
            yield fine(check, f"has {free >> 30} GiB left.")


def versions() -> dict[str, Any]:
    """What has to agree between the two sides: `wire` must be equal; the others should be."""
    return {
        "fieldfare": __version__,
        "flwr": metadata.version("flwr"),
        "wire": wire.VERSION,
        "migration": migrate.latest(),
    }


def against(path: Path, node: bool) -> Iterator[Finding]:
    """Compare with what the other side's `fieldfare doctor --json` said. node: whether this side is a node."""
    check = "versions on both sides"
    try:
        said = json.loads(path.read_text())
        theirs, side = said["versions"], said["side"]
    except (OSError, ValueError, KeyError, TypeError):
        yield fault(check, f"{path} is not what `fieldfare doctor --json` prints.", "run it on the other side")
        return
    if side == ("node" if node else "server"):
        yield warning(check, f"{path} was said by a {side}, as this is.", "compare with one of the other side")
        return
    differ = _differ(versions(), theirs)
    if "wire" in differ or "flwr" in differ:
        yield fault(check, f"{_listed(differ)}: messages would be refused.", "the same image on both sides")
    elif differ:
        yield warning(check, f"{_listed(differ)}.", "the same image on both sides")
    else:
        yield fine(check, "are the same.")


def _differ(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (ours[name], theirs.get(name)) for name in ours if ours[name] != theirs.get(name)}


def _listed(differ: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} is {ours} here and {theirs} there" for name, (ours, theirs) in differ.items())


def faults_armed() -> Iterator[Finding]:
    """Whether the environment asks for faults, as only tests should."""
    if os.environ.get(faults.VARIABLE):
        said = f"{faults.VARIABLE} is set: processes started with it break themselves, as tests want."
        yield fault("environment", said, f"unset {faults.VARIABLE} and start everything again")


def node_authentication() -> Finding:
    """What FIELDFARE_NODE_AUTH says of this coordinator's SuperLink."""
    check, said = "node authentication", os.environ.get("FIELDFARE_NODE_AUTH", "")
    if said == "required":
        return fine(check, "the operator states that the SuperLink authenticates nodes.")
    mend = "run the SuperLink with --enable-supernode-auth and the coordinator with FIELDFARE_NODE_AUTH=required"
    if said == "simulated":
        return warning(check, "FIELDFARE_NODE_AUTH=simulated: right only where every node is ours.", mend)
    return fault(check, "node ids are whatever nodes claim; plans need trust_node_ids = true.", mend)


def task(name: str) -> Finding:
    """Whether a node's task can be imported here. Its data are not touched."""
    check = f"task {name}"
    try:
        load_task(name)
    except (FieldfareError, ImportError, AttributeError) as error:
        return fault(check, f"cannot be loaded: {error}", "install its package in the node's image")
    return fine(check, "can be loaded.")
