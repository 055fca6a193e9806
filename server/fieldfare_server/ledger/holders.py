"""Names of lease holders, from which others on the same machine can see whether the holder's process is alive."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from fieldfare.errors import BadInput

# Who holds a run whose users are simulated by one command on one machine; no federation can resume it.
SIMULATION = "simulation"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def is_simulation(started_by: str) -> bool:
    """Return whether a run that this holder started is a simulation. Runs of earlier versions do not say so."""
    return started_by.startswith(f"{SIMULATION}@")


def command_to_resume(run_id: str, started_by: str, simulated: str = "simulate") -> str:
    """Return the command that goes on with a run where its users are; `simulated`: of users of this machine."""
    if is_simulation(started_by):
        return f"fieldfare {simulated} --resume {run_id}"
    return f"fieldfare run --resume {run_id} --superlink ..."


def require_same_users(run_id: str, started_by: str, here: bool) -> None:
    """Raise `BadInput` where a federation's run would go on with users of this machine (`here`), or the other way."""
    if is_simulation(started_by) != here:
        near = command_to_resume(run_id, started_by)
        why = "it began with other users: a federation's are not those of this machine's task."
        raise BadInput(f"run {run_id}", why, near, code="other-users")


def this_process() -> str:
    """Return the holder name of this process: machine/boot/pid namespace/pid/start time."""
    pid = os.getpid()
    return "/".join((platform.node(), _boot_id(), _pid_namespace(), str(pid), _start_time(pid) or "?"))


def process_is_gone(holder: str) -> bool:
    """Return whether `holder` names a dead process of this machine, this boot and this container.

    False for every name that this process cannot judge. The name may follow a prefix that ends in "@".
    """
    parts = holder.rpartition("@")[2].split("/")
    if len(parts) != 5 or not _boot_id() or parts[:3] != [platform.node(), _boot_id(), _pid_namespace()]:
        return False
    # The start time tells the holder from a later process to which the system gave the same pid.
    return parts[3].isdecimal() and parts[4] != "?" and _start_time(int(parts[3])) != parts[4]


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """The process's start in clock ticks since boot (field 22 of /proc/PID/stat); None if it is not alive."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
