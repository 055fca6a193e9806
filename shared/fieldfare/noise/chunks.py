"""Work on cache-sized chunks, on several threads, with the same bits for any number of threads; and memory for it."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fieldfare.lazily import torch

# Elements worked on at a time: as many as stay in one core's cache.
CHUNK: Final = 1 << 17
# The same on an accelerator: bounds the scratch.
DEVICE_CHUNK: Final = 1 << 24


def in_chunks(work: Callable[[int, int], None], n: int, offset: int = 0, threads: int | None = None) -> None:
    """Call `work(lo, hi)` on spans that together are [0, n), from up to `threads` threads.

    The cuts depend on n and offset only, so a `work` that treats its spans independently gives the same bits
    with any number of threads. What `work` raises is raised here, after every thread has stopped.

    Args:
        work: called from several threads at once.
        n: elements in all.
        offset: cuts lie where offset + position is a multiple of `CHUNK`.
        threads: most threads to use, this one included; None means torch's own number.
    """
    cuts = [0, *range(CHUNK - offset % CHUNK, n, CHUNK), n]
    spans = list(itertools.pairwise(cuts))
    wanted = torch.get_num_threads() if threads is None else threads
    workers = min(wanted, len(spans) // 2)  # at least two chunks for each
    if workers > 1:  # counting the cores takes as long as drawing thousands of numbers
        workers = min(workers, os.cpu_count() or 1)
    if workers <= 1:
        for lo, hi in spans:
            work(lo, hi)
        return
    remaining = iter(spans)
    turn = threading.Lock()

    def drain() -> None:
        while True:
            with turn:
                span = next(remaining, None)
            if span is None:
                return
            work(*span)

    helpers = [_pool().submit(drain) for _ in range(workers - 1)]
    try:
        drain()
    finally:
        # If `work` raised here, leave nothing for the helpers, and wait: they must not touch the caller's
        # memory after this call has returned.
        with turn:
            for _ in remaining:
                pass
        wait(helpers)
    for helper in helpers:
        helper.result()


def empty(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a float32 or float64 vector of shape (n,), contents undefined.

    On the host numpy allocates it: numpy asks for huge pages, which are three times as fast to touch first
    and a fifth faster to read and write.
    """
    if device.type != "cpu":
        return torch.empty(n, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(n, numpy_dtype(dtype)))


def numpy_dtype(dtype: torch.dtype) -> type[np.float32] | type[np.float64]:
    return np.float64 if dtype == torch.float64 else np.float32


def scratch(name: str, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return this thread's scratch vector `name`: `size` items of `dtype`, undefined, kept for the next call."""
    kept: dict[tuple[str, str], NDArray[np.generic]] = _local.__dict__.setdefault("kept", {})
    array = kept.get((name, dtype.str))
    if array is None or len(array) < size:
        array = kept[name, dtype.str] = np.empty(size, dtype)
    return array[:size]


_local = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    """Return the one pool of this process. A forked child makes another one: threads do not survive a fork."""
    with _pools_lock:
        pid = os.getpid()
        if pid not in _pools:
            _pools.clear()
            _pools[pid] = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="fieldfare-noise")
        return _pools[pid]
