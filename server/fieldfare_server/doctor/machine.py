"""This machine: space on its volumes, versions, environment, and the node's task."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from fieldfare import __version__
from fieldfare.errors import FieldfareError
from fieldfare.task import load_task
from fieldfare_server import faults
from fieldfare_server.doctor.finding import Finding, fault, fine, warning
from fieldfare_server.ledger.sql import migrate

GIB = 1 << 30
# Free bytes below which nothing works, and below which the operator should look.
LITTLE, LOW = 200 << 20, 1 << 30


def check_disk(*volumes: Path) -> Iterator[Finding]:
    """Free space and write permission of each volume and of the directory for temporary files."""
    for path in dict.fromkeys((*volumes, Path(tempfile.gettempdir()))):
        check = f"volume {path}"
        existing = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(existing).free
        if not os.access(existing, os.W_OK):
            yield fault(check, "cannot be written by this user.", f"chown it to user {os.getuid()}")
        elif free < LITTLE:
            yield fault(check, f"has {free >> 20} MiB left: a round could not be checkpointed.", "make room")
        elif free < LOW:
            yield warning(
                check, f"has {free >> 20} MiB left.", "make room: a checkpoint is the model and its noise state"
            )
        else:
            yield fine(check, f"has {free >> 30} GiB left.")


def check_limits(root: Path = Path("/")) -> Iterator[Finding]:
    """Check whether this process may take all of the machine's memory, or of its process table.

    root: of the file system that holds /proc and /sys; another one in tests.
    """
    memory = _limit(root, "memory", ("memory.max", "memory.limit_in_bytes"))
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        memory = min(memory, address_space)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if memory < total:
        yield fine("memory limit", f"{memory / GIB:.1f} of this machine's {total / GIB:.1f} GiB.")
    else:
        yield warning(
            "memory limit",
            f"there is none below this machine's {total / GIB:.1f} GiB: one large model or reply ends its neighbours.",
            "mem_limit in the compose file, resources.limits.memory in the chart, MemoryMax= in a systemd unit",
        )
    processes = _limit(root, "pids", ("pids.max",))
    most = int((root / "proc/sys/kernel/pid_max").read_text())
    if processes < most:
        yield fine("process limit", f"{processes:.0f} processes and threads.")
    else:
        yield warning(
            "process limit",
            "there is none: code that only starts processes stops this machine.",
            "pids_limit in the compose file, podPidsLimit of the kubelet, TasksMax= in a systemd unit",
        )


def _limit(root: Path, controller: str, names: tuple[str, ...]) -> float:
    """Return the smallest limit that a control group of this process, or one above it, sets; infinity for none."""
    smallest = math.inf
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        # Version 2 names no controllers; version 1 mounts some together, as "cpu,cpuacct".
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers.partition(",")[0]
        if controllers and not mount.is_dir():
            mount = root / "sys/fs/cgroup" / controller
        place = mount / path.lstrip("/")
        # A container sees its own group at the mount's root, under whatever name /proc shows for it.
        for group in (place, *place.parents):
            for text in (_text(group / name) for name in names):
                if text not in ("", "max"):
                    smallest = min(smallest, float(text))
            if group == mount:
                break
    return smallest


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def versions() -> dict[str, object]:
    """Return what should be equal on both sides; `wire` and `flwr` must be."""
    from fieldfare_flower import messages as wire  # imports Flower

    return {
        "fieldfare": __version__,
        "flwr": metadata.version("flwr"),
        "wire": wire.VERSION,
        "migration": migrate.latest(),
    }


def compare_versions(path: Path, node: bool) -> Iterator[Finding]:
    """Compare with the output of the other side's `fieldfare doctor --json`. `node`: whether this side is a node."""
    check = "versions on both sides"
    try:
        output = json.loads(path.read_text())
        theirs, side = output["versions"], output["side"]
    except (OSError, ValueError, KeyError, TypeError):
        yield fault(check, f"{path} is not what `fieldfare doctor --json` prints.", "run it on the other side")
        return
    if side == ("node" if node else "server"):
        yield warning(check, f"{path} was written by a {side}, as this is.", "compare with one of the other side")
        return
    differ = {name: (ours, theirs.get(name)) for name, ours in versions().items() if ours != theirs.get(name)}
    if "wire" in differ or "flwr" in differ:
        yield fault(check, f"{_listed(differ)}: messages would be refused.", "the same image on both sides")
    elif differ:
        yield warning(check, f"{_listed(differ)}.", "the same image on both sides")
    else:
        yield fine(check, "are the same.")


def _listed(differ: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{name} is {ours} here and {theirs} there" for name, (ours, theirs) in differ.items())


def check_faults() -> Iterator[Finding]:
    """Check whether the environment injects faults, as only tests should."""
    if os.environ.get(faults.VARIABLE):
        detail = f"{faults.VARIABLE} is set: processes started with it fail on purpose, as tests want."
        yield fault("environment", detail, f"unset {faults.VARIABLE} and start everything again")


def check_node_authentication(only_simulated: bool = False) -> Finding:
    """Check what FIELDFARE_NODE_AUTH states about this coordinator's SuperLink.

    only_simulated: this home has seen simulations alone, and no SuperLink was named: it has no nodes.
    """
    check, stated = "node authentication", os.environ.get("FIELDFARE_NODE_AUTH", "")
    if stated == "required":
        return fine(check, "the operator states that the SuperLink authenticates nodes.")
    if only_simulated and not stated:
        return fine(check, "every population here has been simulated only: runs have no nodes but this process.")
    mend = "run the SuperLink with --enable-supernode-auth and the coordinator with FIELDFARE_NODE_AUTH=required"
    if stated == "simulated":
        return warning(check, "FIELDFARE_NODE_AUTH=simulated: right only where the operator runs every node.", mend)
    unsaid = "nothing is stated: each run tries the SuperLink, and one that registers strangers needs trust_node_ids."
    return warning(check, unsaid, mend)


def check_task(name: str) -> Finding:
    """Check whether a node's task can be imported here. The task's data is not touched."""
    check = f"task {name}"
    try:
        load_task(name)
    except (FieldfareError, ImportError, AttributeError) as error:
        return fault(check, f"cannot be loaded: {error}", "install its package in the node's image")
    return fine(check, "can be loaded.")
