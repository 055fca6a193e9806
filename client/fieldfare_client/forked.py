"""Work in a copy-on-write child of this process: what it changes in memory ends with it.

Each child begins at memory in which no Python of a loop or task has seen a user. So a user's training in one cannot
reach the next user's by anything that a process holds: module globals, optimizers, generators, caches,
settings of torch, the environment, memory that processes share. **Not kept apart** is what lies outside of
memory: files, the network, databases, other processes and a GPU.

A child is forked by a thread made for it. That thread has no OpenMP threads yet, whose absence in a child
would make torch wait for ever, and it is the child's main thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import math
import mmap
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from numpy.typing import NDArray

from fieldfare.errors import Unsupported
from fieldfare.lazily import has_torch, torch
from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task
from fieldfare_flower import own_data

log = logging.getLogger("fieldfare.client")

Answer: TypeAlias = dict[str, Any]  # what JSON can hold
_Forked = TypeVar("_Forked")
# Packages that import parts of theirs while they train: once for this process, not for each child.
_LAZY = ("torch.", "numpy.", "scipy.", "sklearn.")
_late: list[str] = []  # what earlier children imported so, and this process has not yet
_MANY = 32  # children after which `gather_memory` has earned what it takes, a tenth to a third of a second
_HUGE, _COLLAPSE = 2 << 20, 25  # bytes of a huge page, and Linux's MADV_COLLAPSE (6.1)
_MAP_FIXED = 0x10
# How Linux names shared memory that is no file of anybody's disk.
_SHARED = (b"/dev/zero", b"/dev/shm/", b"/memfd:", b"/SYSV")
# Ray's store of objects, gigabytes that a simulation's actors map. What lies there is never changed again.
_STORE = b"/dev/shm/plasma"
_asked = count(1)
# Packages whose tasks keep nothing between users, and what every class comes from.
_OURS = {"fieldfare", "fieldfare_client", "fieldfare_research", "abc", "builtins"}
_OWN_THREADS = {"jax": "JAX", "tensorflow": "TensorFlow"}


class Ended(Exception):
    """A child ended without an answer: a signal, a crash, `sys.exit`."""


def why_not() -> str:
    """Return why this process cannot be forked for training; empty where it can."""
    if sys.platform != "linux":
        return f"training processes cannot be forked on {sys.platform}"
    if used := next((word for module, word in _OWN_THREADS.items() if module in sys.modules), ""):
        return f"{used} is loaded, whose threads a forked process lacks"
    if has_torch() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "this process has a GPU open, which a forked one cannot use"
    return ""


def why_not_by_default() -> str:
    """Return why nobody who left it open should get forks; as `why_not`, and where each would open a GPU for itself."""
    if why := why_not():
        return why
    gpu = has_torch() and torch.accelerator.is_available()
    return "there is a GPU, which each training process would have to open for itself" if gpu else ""


def is_apart(setting: str, wanted: bool) -> tuple[bool, str]:
    """Return whether each user trains in a child, and why not where that was wanted.

    Args:
        setting: "process", "none", or "auto" for `wanted`, where this machine can.
        wanted: by default.

    Raises:
        BadInput: "process", where this process cannot be forked.
    """
    if setting == "process" and (why := why_not()):
        raise Unsupported('isolation = "process"', f"is not possible here: {why}.", '"auto" or "none"')
    why = why_not_by_default() if setting == "auto" and wanted else ""
    return setting == "process" or (setting == "auto" and wanted and not why), why


def has_own_python(task: Task) -> bool:
    """Return whether code that did not come with Fieldfare trains: loss, `prepare`, model, or a part of them."""
    return any(kind.__module__.partition(".")[0] not in _OURS for kind in type(task).__mro__)


def trains_apart(task: Task, client: ClientSpec, isolated: bool, device: str = "cpu") -> bool:
    """Return whether each user of `task` trains in a child. Says in the log where that is wanted and cannot
    be.

    Built-in tasks keep nothing between users, so they train as fast as they can (`training.isolation` has the
    proof).

    Args:
        task: whose code trains.
        client: the plan's local training.
        isolated: it is secret who trains.
        device: where users train.

    Raises:
        BadInput: as `is_apart`; or `isolation = "process"` on a GPU.
    """
    wanted = isolated and has_own_python(task)
    elsewhere = "users train on a GPU" if device != "cpu" else ""
    if wanted and client.engine == "batched":
        elsewhere = 'client.engine = "batched" trains users together'
    if elsewhere and client.isolation == "process":
        raise Unsupported('client.isolation = "process"', f"is not possible: {elsewhere}.", '"auto" or "none"')
    apart, why = is_apart(client.isolation, wanted and not elsewhere)
    if wanted and client.isolation == "auto" and (why or elsewhere):
        log.warning("task %s: what its Python keeps of a user reaches the next one: %s", task.name, why or elsewhere)
    return apart


def ask(work: Callable[[], Answer], until: float = math.inf, into: NDArray[Any] | None = None) -> Answer:
    """Return what `work` returns in a child, which has this thread's context and ends with it.

    Errors that it tells `own_data` are told here. What it writes to `into`, an array over shared memory, is here
    too; all other memory is a copy there, also what processes share. Raises `Ended`, at `until` of
    `time.monotonic` at the latest, and OSError where there is no room for a process.
    """

    def told() -> Answer:
        errors: list[str] = []
        with own_data.first_error(errors):
            answer = work()
        return {"answer": answer, "errors": errors}

    found = _ask(lambda tell: tell(told()), until, 0 if into is None else into.ctypes.data)
    if found is None:
        late = time.monotonic() >= until
        raise Ended("the training outlasted its round" if late else "the training ended its process")
    for text in found["errors"]:
        own_data.note_error(own_data.FailedThere(f"\n{text}"))
    answer: Answer = found["answer"]
    return answer


def ask_once(work: Callable[[Callable[[Answer], None]], None]) -> Answer | None:
    """Return what `work` tells first, in a child; None where it ends without a word. Raises `BadInput` as `why_not`."""
    if why := why_not():
        raise Unsupported("this process", f"cannot be forked: {why}.", "a fresh process, before a GPU is used")
    return _ask(work)


def in_new_thread(fork: Callable[[], _Forked]) -> _Forked:
    """Return what `fork` returns in a thread made for it, in this one's context. Raises what it raises."""
    done: Future[_Forked] = Future()

    def run() -> None:
        try:
            done.set_result(fork())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="fieldfare-fork")
    thread.start()
    thread.join()
    return done.result()


def gather_memory() -> None:
    """Ask the kernel for huge pages under what this process has in memory. Contents stay, and nothing else changes.

    A fork copies a table entry for each page, and its child's end drops it: with torch that is most of what a
    child costs. Where the kernel has no huge pages, or finds none, all stays as it is.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    start = stop = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            bounds, named = words[0].split("-"), words[5:] not in ([], ["[heap]"])
            low, high = (int(bound, 16) for bound in bounds)
            start, stop = (0, 0) if named else (-(-low // _HUGE) * _HUGE, high // _HUGE * _HUGE)
        elif words[0] == "Anonymous:" and 0 < stop - start <= 2048 * int(words[1]):  # not what is hardly used: stacks
            madvise(start, stop - start, _COLLAPSE)


def _part_shared_memory(into: int) -> None:
    """Put copies of this process's own in the place of memory that it shares with others, such as the next child.

    `multiprocessing.Value`, tensors after `share_memory_` and the like. Mapped files and Ray's store stay what they
    are, and so does `into`, the address of the memory that a parent reads an answer from; 0: none.
    """
    remap = ctypes.CDLL(None, use_errno=True).mmap
    numbers = (ctypes.c_int,) * 3
    remap.restype, remap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, *numbers, ctypes.c_long)
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        name = line.split(maxsplit=5)[-1]
        if b" rw-s " not in line or not name.startswith(_SHARED) or name.startswith(_STORE):
            continue
        low, high = (int(bound, 16) for bound in line.split()[0].split(b"-"))
        if not low <= into < high:
            held, how = ctypes.string_at(low, high - low), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
            if remap(low, high - low, mmap.PROT_READ | mmap.PROT_WRITE, how, -1, 0) != low:
                raise OSError(ctypes.get_errno(), "shared memory cannot be parted")
            ctypes.memmove(low, held, high - low)


def _ask(work: Callable[[Callable[[Answer], None]], None], until: float = math.inf, into: int = 0) -> Answer | None:
    if next(_asked) == _MANY:
        with contextlib.suppress(OSError):  # no /proc/self/smaps: children cost what they did
            gather_memory()
    while _late:  # only now that another child follows: PyTorch's own take seconds
        with contextlib.suppress(Exception):  # then each child imports it
            import_module(_late.pop(0))
    reader, writer = os.pipe()
    before = len(sys.modules)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()  # else the child would print it again

    def tell(answer: Answer) -> None:
        # The newest alone: to look at a name counts a reference to it, which would copy the page of each.
        new = list(islice(reversed(sys.modules), len(sys.modules) - before)) if len(sys.modules) > before else []
        lazy = [name for name in reversed(new) if name.startswith(_LAZY)]
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps([answer, lazy]) + "\n")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    def fork() -> int:
        if child := os.fork():
            return child
        try:
            os.close(reader)
            _part_shared_memory(into)
            gc.freeze()  # a collection would copy every object of the parent
            work(tell)
        finally:
            os._exit(1)

    with os.fdopen(reader, encoding="utf-8") as pipe:
        try:
            child = in_new_thread(fork)
        finally:
            os.close(writer)
        try:
            waiting = select.poll()
            waiting.register(pipe, select.POLLIN)
            left = None if until == math.inf else 1000 * max(until - time.monotonic(), 0.0)
            # Not to the end of the file: processes that the child has begun may hold it open.
            text = pipe.readline() if waiting.poll(left) else ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)  # it has told all, or this process wants no more of it
            os.waitpid(child, 0)
    told: tuple[Answer | None, list[str]] = json.loads(text) if text.endswith("\n") else (None, [])
    _late.extend(told[1])
    return told[0]
