"""What a training loop finds in the process, and what it leaves there: its own randomness in, nothing out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (lambda: torch.backends.cudnn.benchmark, lambda value: setattr(torch.backends.cudnn, "benchmark", value)),
    (lambda: torch.backends.cudnn.deterministic, lambda value: setattr(torch.backends.cudnn, "deterministic", value)),
)
"""torch's settings of a process that change what training computes: (read, write)."""


def uses_cuda() -> bool:
    """Whether this process has begun to use a GPU."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@contextmanager
def own_randomness(key: int) -> Iterator[None]:
    """Seed `random`, numpy and torch (CPU and CUDA) from `key` inside, and let gradients be computed.

    Afterwards the generators continue where they were, and torch's settings are what they were, so that nothing passes
    from one user's loop to the next. Generators that a loop keeps for itself are out of reach.
    """
    ours, arrays = random.getstate(), np.random.get_state()
    tensors = torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if uses_cuda() else []
    settings = [read() for read, _ in _SETTINGS]
    random.seed(key)
    np.random.seed(key % 2**32)
    if torch.accelerator.is_available():
        torch.manual_seed(key)
    else:
        torch.default_generator.manual_seed(key)  # the same, without a look at every kind of device
    try:
        with torch.enable_grad():
            yield
    finally:
        for (read, write), before in zip(_SETTINGS, settings, strict=True):
            if read() != before:
                write(before)
        random.setstate(ours)
        np.random.set_state(arrays)
        torch.set_rng_state(tensors)
        if devices:
            torch.cuda.set_rng_state_all(devices)
