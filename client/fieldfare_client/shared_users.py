"""One copy of a task's users: in a process while somebody has them, and for all actors of a Ray job on a machine.

The first actor reads them, the others map its copy. That is memory without a name in any folder: others find
it through the process that holds it, and it is gone when the last of them is, however that ends. Only
processes of the same account can open it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

from fieldfare.atomic import alone_at
from fieldfare.task import Task, Users
from fieldfare_client.storage import open_table, write_to
from fieldfare_client.users import UserTable

_MEMORY = Path("/dev/shm")  # noqa: S108 (a folder is made in it, which only this account can enter)
SHARED = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
PROC = Path("/proc/self/fd")
# File descriptors of the copies that this process made; open for its whole life.
_held: list[int] = []
# The tables that somebody of this process has, and the tasks that have read them, by name.
_tables: WeakValueDictionary[str, UserTable] = WeakValueDictionary()
_readers: WeakValueDictionary[str, Task] = WeakValueDictionary()


def shared_file(until: ExitStack) -> tuple[Path, IO[bytes]]:
    """Return where processes of this account find a new file, and the file, which `until` closes.

    It is in memory where there is a RAM disk. On Linux nothing of it is left, however this process ends.
    """
    made = tempfile.TemporaryFile if PROC.is_dir() else tempfile.NamedTemporaryFile
    file: Any = until.enter_context(made(prefix="fieldfare-", dir=SHARED))
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}" if PROC.is_dir() else file.name), file


def users_of(name: str, task: Task) -> Users:
    """Return `task.users()`: read once while somebody has both, and once a machine in actors of a Ray job.

    Args:
        name: as `load_task` takes it; the same name is the same users for the whole job.
        task: loaded from `name`.

    Raises whatever `task.users()` raises.
    """
    table = _tables.get(name)
    if table is not None and _readers.get(name) is task:  # another may be of a notebook's cell that ran again
        return table
    users = _read(name, task)
    if isinstance(users, UserTable):
        _tables[name], _readers[name] = users, task
    return users


def _read(name: str, task: Task) -> Users:
    job = ray_job()
    if not job or not hasattr(os, "memfd_create"):
        return task.users()
    folder = SHARED / f"fieldfare-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        return task.users()  # another account got there first: what it can enter holds no users
    key = hashlib.sha256(f"{job}\n{name}".encode()).hexdigest()[:32]
    with alone_at(folder / key):
        link = folder / f"{key}.arrow"
        if _leads_to(link, key):
            return _opened(link)
        users = task.users()
        if not isinstance(users, UserTable) or users.source is not None or not len(users):
            return users  # a file that every process maps by itself, or nothing to share
        _held.append(os.memfd_create(key))
        with open(_held[-1], "wb", closefd=False) as file:
            write_to(file, [users], name)
        link.unlink(missing_ok=True)
        link.symlink_to(f"/proc/{os.getpid()}/fd/{_held[-1]}")
        return _opened(link)


def ray_job() -> str:
    """Return the Ray job of which this process is an actor, and its cluster; empty where it is not one."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return ""
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return ""
    return f"{context.gcs_address} {context.get_job_id()}"


def _leads_to(link: Path, key: str) -> bool:
    """Return whether `link` leads to a copy named `key` that a living process holds."""
    try:
        return os.readlink(os.readlink(link)).startswith(f"/memfd:{key}")
    except OSError:
        return False


def _opened(link: Path) -> UserTable:
    table = open_table(link)
    table.source = None  # no name that another process could open later
    return table
