"""What a training loop finds in the process, and what it leaves there: its own randomness in, nothing out."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from ctypes import string_at
from functools import cache, partial
from operator import attrgetter
from typing import Any

import numpy as np

from fieldfare.lazily import has_torch, torch

_MT19937_BYTES = 4 * (624 + 1)  # words, and the place of the next, in numpy's `mt19937_state`


def _matmul_precision() -> str | None:
    """Return the older setting of the precision of products; None where the newer (`_PRECISE`) has been used.

    torch then refuses to tell: its own advice is to use the newer one alone.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _attribute(place: str, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    owner = attrgetter(place)(torch)
    return partial(getattr, owner, name), partial(setattr, owner, name)


# Where torch says how products of float32 are computed. The whole is first: what it leaves open, its parts
# take over from it.
_PRECISE = (
    *("", ".cudnn", ".cudnn.conv", ".cudnn.rnn", ".cuda.matmul"),
    *(".mkldnn", ".mkldnn.matmul", ".mkldnn.conv", ".mkldnn.rnn"),
)


@cache
def _settings() -> tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...]:
    """Return torch's settings of a process that change what training computes: (read, write)."""
    precise = _PRECISE if hasattr(torch.backends, "fp32_precision") else ()  # since torch 2.9
    return (
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, torch.set_default_device),
        (torch.get_num_threads, torch.set_num_threads),
        (_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        _attribute("backends.cudnn", "benchmark"),
        _attribute("backends.cudnn", "deterministic"),
        *(_attribute(f"backends{place}", "fp32_precision") for place in precise),
    )


def settings() -> tuple[object, ...]:
    """Return what torch's settings of this process are that change what training computes."""
    return tuple(read() for read, _ in _settings())


def uses_cuda() -> bool:
    """Return whether this process has begun to use a GPU with torch."""
    return has_torch() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def reseed(key: int) -> None:
    """Seed `random`, numpy and torch on the CPU from `key`, between users inside of `own_randomness`."""
    random.seed(key)
    np.random.seed(key % 2**32)
    if has_torch():
        torch.default_generator.manual_seed(key)


def python_generators() -> tuple[object, ...]:
    """Return the states of `random` and of numpy's global generator, to be compared."""
    numpys = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(numpys) is not np.random.MT19937:  # the task has put another in its place
        return random.getstate(), repr(numpys.state)
    # Its words and its place in them as they lie in memory: numpy takes each word out as an object of Python's.
    return random.getstate(), string_at(numpys.ctypes.state_address, _MT19937_BYTES)


@contextmanager
def own_randomness(key: int) -> Iterator[None]:
    """Seed `random`, numpy, Keras if it is loaded and torch if it is installed from `key` inside; compute
    gradients.

    Afterwards the generators continue where they were, and torch's settings are what they were, so that
    nothing passes from one user's loop to the next. Generators that a loop keeps for itself are out of reach.
    """
    ours, arrays = random.getstate(), np.random.get_state()
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(key % 2**32)  # its global generator: of the backend, too
    random.seed(key)
    np.random.seed(key % 2**32)
    try:
        with _torchs(key) if has_torch() else nullcontext():
            yield
    finally:
        random.setstate(ours)
        np.random.set_state(arrays)


@contextmanager
def _torchs(key: int) -> Iterator[None]:
    tensors = torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if uses_cuda() else []
    settings = [(read, write, read()) for read, write in _settings()]
    if torch.accelerator.is_available():
        torch.manual_seed(key)
    else:
        torch.default_generator.manual_seed(key)  # the same, without a look at every kind of device
    try:
        with torch.enable_grad():
            yield
    finally:
        for read, write, before in settings:
            if before is not None and read() != before:
                write(before)
        torch.set_rng_state(tensors)
        if devices:
            torch.cuda.set_rng_state_all(devices)
