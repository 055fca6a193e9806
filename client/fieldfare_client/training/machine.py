"""What training asks of the machine: tiny numbers count as zero, and freed memory stays with the process."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

# Names, because a product of two literals is computed once and for all when Python compiles.
_TINIEST, _ONE = 5e-324, 1.0
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # glibc's `M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` (malloc.h)
KEPT_BYTES = 2**27  # of freed memory that stays with the process, at most


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Compute with 0 for numbers below 2^-126 (2^-1022 in float64) in this thread, inside the block, where
    the CPU can.

    A model full of noise saturates its gates, whose gradients are then so small that a CPU takes a hundred
    times as long for each: an LSTM trained 1.7 times as long. Afterwards the thread computes as before.
    """
    before = _TINIEST * _ONE == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def clock(device: torch.device) -> float:
    """Return the time in seconds, when all work that was given to `device` is done.

    CPU seconds where they cover all of the work: another process's load must not decide what looks faster.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.process_time() if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter()


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Let the allocator keep up to `KEPT_BYTES` of freed memory, for this process and for good; whether it
    does now.

    glibc would give arrays of some MB back every time, and the system hands out every page of them empty: a
    third of a round of a small model. Only glibc is asked, where the environment says nothing (`MALLOC_...`).
    """
    if any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        if not os.confstr("CS_GNU_LIBC_VERSION"):
            return False
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, ValueError):  # not glibc
        return False
    # 2^25 is the largest that glibc takes: larger arrays come from the system as before.
    return bool(mallopt(_MMAP_THRESHOLD, 2**25) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


@contextmanager
def same_bits_every_time(device: torch.device, strict: bool) -> Iterator[None]:
    """Let operations on a GPU give the same bits every time inside the block; on a CPU they do without being
    told.

    Args:
        device: that computes.
        strict: raise RuntimeError for an operation of which torch has no such kernel, instead of warning.
    """
    if device.type != "cuda":
        yield
        return
    # Without it cuBLAS may use its workspaces in another order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    cudnn, filled = torch.backends.cudnn, torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    kept = cudnn.benchmark, filled.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    cudnn.benchmark, filled.fill_uninitialized_memory = False, False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.benchmark, filled.fill_uninitialized_memory = kept  # type: ignore[attr-defined]
