"""Keyed, seekable, cryptographically secure Gaussian noise.

`SecureNoise` is an infinite matrix of independent N(0, 1) entries for each stream name, fixed by a 256-bit key: any
(row, element range) can be drawn again, in any order, in any split, by any number of threads, with the same floats.

How a number is made
    AES-256 in counter mode gives the random bits (NIST SP 800-38A). The AES key is BLAKE2b(run key, purpose, stream
    name), so two streams never share a keystream; the counter is (row, plane, position), so two rows never do.
    Elements come in units of 4 096: 2 048 Box-Muller pairs, cosines first, sines second. A pair takes 96 bits:
    31 + 31 bits for the radius, 32 for the angle (float64 takes 32 more angle bits from a second plane, so both
    dtypes give the same number up to rounding). `fieldfare.noise.box_muller` has the arithmetic and its error.

How far the tail is right
    The radius is sqrt(-2 ln U) with U on a grid of 2^-62, kept to full *relative* float precision next to 0. A tail of
    probability p is therefore off by at most 2^-62 / p relatively: 0.02 % at p = 1e-15, and the largest number that
    can come out is 9.35. (With 32-bit uniforms the tail ends at 6.7.) In the centre float32 values lie on the
    usual float32 Box-Muller grid: U next to 1 is a multiple of 2^-24.

What is assumed, and what is not covered
    AES-256 is assumed to be a pseudorandom permutation. With q blocks under one key the counter mode can be told from
    random with advantage q^2 / 2^129: 20 000 rounds of 1e8 elements are 2^40 blocks, an advantage of 2^-49, which adds
    to delta. The floats are the same on machines whose numpy uses the same vector code; across CPU families the last
    bit of a logarithm, or of a float32 cosine, may differ. A sum of floats does not hide which floats went in (Mironov
    2012; Casacuberta et al. 2022): see `fieldfare.privatise` for the grid that closes this, and for what stays open.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fieldfare.errors import BadInput
from fieldfare.noise import box_muller

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Bytes = bytes  # inside SecureNoise the name `bytes` is a method

Source = Literal["aes-256-ctr", "philox-4x32-10"]

UNIT: Final = 4096
"""Elements drawn together: the granularity of seeking."""
CHUNK: Final = 1 << 17
"""Elements worked on at a time: what stays in one core's cache."""

_HALF: Final = UNIT // 2
_WORDS: Final = 3 * _HALF
_BLOCKS: Final = _WORDS * 4 // 16
_FINE_BLOCKS: Final = _HALF * 4 // 16
_FINE_PLANE: Final = 1 << 62
_MAX_ELEMENTS: Final = 1 << 48
_MAX_ROW: Final = 1 << 62
_MAP: Final = "2"
"""Version of the map from bits to floats. Whatever changes a float of it changes this."""
_ZEROS: Final = memoryview(bytes(CHUNK // UNIT * _WORDS * 4))


class SecureNoise:
    """Independent standard normals addressed by (stream, row, element), fixed by `key`.

    Args:
        key: 32 bytes from `secrets.token_bytes(32)`. Whoever knows it can subtract the noise: it is as secret as the
            data. It is never shown, copied into state or pickled.
        device: where `standard_normal` puts its result; `normal_` fills a tensor on any device.
        source: `"aes-256-ctr"` (drawn on the host, copied to the device), or `"philox-4x32-10"`: the counter-based
            generator of Salmon et al. 2011, computed on the device, statistically sound but *not* cryptographic.
            Plans, ledger and page name the source.
        threads: most host threads to use; None means torch's own number. Never changes a float.

    Guarantee: for every stream name the entries are computationally indistinguishable from i.i.d. N(0, 1) (up to
    the rounding above) and from every other stream's; equal arguments give equal floats.

    Raises:
        BadInput: the key is not 32 bytes, or the source is unknown.
    """

    __slots__ = ("_aes_keys", "_first", "_key", "_lock", "device", "source", "threads")

    def __init__(
        self,
        key: bytes,
        device: str | torch.device = "cpu",
        *,
        source: Source = "aes-256-ctr",
        threads: int | None = None,
    ) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise BadInput("noise key", "must be exactly 32 bytes (256 random bits).", "secrets.token_bytes(32)")
        if source not in ("aes-256-ctr", "philox-4x32-10"):
            raise BadInput(f"noise source {source!r}", "is unknown.", "'aes-256-ctr' or 'philox-4x32-10'")
        if threads is not None and threads < 1:
            raise BadInput(f"threads = {threads}", "must be at least 1.", "1")
        self._key = key
        self._first = 0
        self._aes_keys: dict[str, _Bytes] = {}
        self._lock = threading.Lock()
        self.device = torch.device(device)
        self.source: Source = source
        self.threads = threads

    def __repr__(self) -> str:
        return f"SecureNoise(source={self.source!r}, device={str(self.device)!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("SecureNoise holds a secret key and cannot be pickled or copied; derive a new one from the key")

    def derive(self, label: str) -> SecureNoise:
        """An independent source for another purpose, with a key of its own that does not reveal this one."""
        return SecureNoise(self._subkey("derive", label), self.device, source=self.source, threads=self.threads)

    def from_row(self, first: int) -> SecureNoise:
        """The same source with the rows of "z" counted from `first`: its row r is row first + r here.

        Every other stream, and everything else, is the same. Raises `BadInput` for a negative `first`.
        """
        _check(first, 0, 0)
        view = SecureNoise(self._key, self.device, source=self.source, threads=self.threads)
        view._first = self._first + first
        return view

    def fingerprint(self) -> str:
        """32 hex digits that tell this key from another without revealing it (a keyed BLAKE2b output).

        They also tell the map from random bits to floats: a state that an older one made is refused, never continued.
        """
        return self._subkey("fingerprint", _MAP).hex()[:32]

    def normal_(self, out: torch.Tensor, *, row: int, offset: int = 0, stream: str = "z") -> torch.Tensor:
        """Fill `out`, shape (n,), float32 or float64, with elements [offset, offset + n) of row `row` of `stream`.

        Returns `out`. Works in chunks: needs a few cache-sized scratch arrays beside `out`.

        Raises:
            BadInput: `out` is not a contiguous float32/float64 vector, or row or offset is out of range.
        """
        if out.ndim != 1 or not out.is_contiguous() or out.dtype not in (torch.float32, torch.float64):
            raise BadInput(
                f"noise target of shape {tuple(out.shape)}, {out.dtype}",
                "must be a contiguous vector of float32 or float64.",
                "out.view(-1)",
            )
        draw = self.drawer(stream, row, offset, out.numel())
        if out.device.type != "cpu":
            for lo in range(0, out.numel(), _DEVICE_CHUNK):
                draw.to_device(out[lo : lo + _DEVICE_CHUNK], offset + lo)
            return out
        array = out.numpy()

        def fill(lo: int, hi: int) -> None:
            draw.into(array[lo:hi], offset + lo)

        in_chunks(fill, out.numel(), offset, self.threads)
        return out

    def standard_normal(
        self, n: int, *, row: int, offset: int = 0, stream: str = "z", dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """`normal_` into a new vector, shape (n,), of `dtype` on this source's device."""
        return self.normal_(empty(n, dtype, self.device), row=row, offset=offset, stream=stream)

    def bytes(self, n: int, *, row: int, offset: int = 0, stream: str) -> memoryview:
        """`n` uniform secret bytes from position `offset` of row `row` of the byte stream `stream`.

        Always AES-256-CTR, whatever the source of normals; never shares bits with a stream of normals.
        """
        _check(row, offset, n)
        first = offset // 16
        skip = offset - 16 * first
        encryptor = _ctr(self._aes_key("bytes", stream), row, first)
        return memoryview(encryptor.update(bytes_of_zeros(n + skip)))[skip:]

    def generator(self, stream: str, row: int = 0) -> np.random.Generator:
        """A numpy generator seeded from the key for choices that need no secrecy (cohorts, shuffles). Not for noise."""
        _check(row, 0, 0)
        seed = int.from_bytes(self._subkey("generator", f"{row}:{stream}")[:16], "little")
        return np.random.Generator(np.random.Philox(key=seed))

    def uniform(self, n: int, *, row: int, stream: str) -> NDArray[np.float64]:
        """`n` uniforms in [0, 1) with 53 bits, shape (n,), from secret bytes: for decisions that affect privacy."""
        words = np.frombuffer(self.bytes(8 * n, row=row, stream=stream), dtype="<u8")
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def drawer(self, stream: str, row: int, offset: int, n: int) -> Drawer:
        """What draws pieces of one row inside a caller's own chunk loop; `in_chunks` gives the loop."""
        _check(row, offset, n)
        if stream == "z":
            row += self._first
            _check(row, offset, n)
        if self.source == "philox-4x32-10":
            from fieldfare.noise.philox import PhiloxDrawer

            return PhiloxDrawer(self._subkey("philox", stream), row)
        return AesDrawer(self._aes_key("normal", stream), row)

    def _subkey(self, purpose: str, label: str) -> _Bytes:
        message = f"{len(purpose)}:{purpose}{label}".encode()
        return hashlib.blake2b(message, key=self._key, digest_size=32, person=b"fieldfare.noise1").digest()

    def _aes_key(self, purpose: str, stream: str) -> _Bytes:
        name = f"{purpose}:{stream}"
        with self._lock:
            if name not in self._aes_keys:
                self._aes_keys[name] = self._subkey(purpose, stream)
            return self._aes_keys[name]


class Drawer(ABC):
    """Draws pieces of one row of one stream. Safe to use from several threads at once."""

    @abstractmethod
    def into(self, out: NDArray[Any], offset: int) -> None:
        """Fill the contiguous float32/float64 vector `out` with elements [offset, offset + len(out)) of the row."""

    def to_device(self, out: torch.Tensor, offset: int) -> None:
        """The same for a tensor on an accelerator: drawn on the host, copied chunk by chunk."""
        host = np.empty(out.numel(), _numpy(out.dtype))

        def fill(lo: int, hi: int) -> None:
            self.into(host[lo:hi], offset + lo)

        in_chunks(fill, len(host), offset, None)
        out.copy_(torch.from_numpy(host))


class AesDrawer(Drawer):
    """Box-Muller on the AES-256-CTR keystream."""

    __slots__ = ("_key", "_row")

    def __init__(self, key: bytes, row: int) -> None:
        self._key = key
        self._row = row

    def into(self, out: NDArray[Any], offset: int) -> None:
        lo, end = offset, offset + len(out)
        while lo < end:
            first = lo // UNIT
            hi = min(end, (first + CHUNK // UNIT) * UNIT)
            last = -(-hi // UNIT)
            span = out[lo - offset : hi - offset]
            if lo == first * UNIT and hi == last * UNIT:
                self._units(span.reshape(last - first, 2, _HALF), first)
            else:
                whole = _scratch("whole", (last - first) * UNIT, out.dtype)
                self._units(whole.reshape(last - first, 2, _HALF), first)
                span[:] = whole[lo - first * UNIT : hi - first * UNIT]
            lo = hi

    def _units(self, out: NDArray[Any], first: int) -> None:
        """Fill `out`, shape (units, 2, UNIT / 2), with units `first`, `first` + 1, ..."""
        units = len(out)
        words = self._words(units, first * _BLOCKS, 3)
        fine = None
        if out.dtype == np.float64:
            fine = self._words(units, _FINE_PLANE + first * _FINE_BLOCKS, 1).reshape(units, _HALF)
        planes = _scratch("planes", box_muller.PLANES * units * _HALF, out.dtype)
        box_muller.pairs(out, words, fine, planes.reshape(box_muller.PLANES, units, _HALF))

    def _words(self, units: int, block: int, planes: int) -> NDArray[np.uint32]:
        """Keystream as little-endian words, shape (units, planes, UNIT / 2), from AES block `block` of this row."""
        size = units * planes * _HALF * 4
        buffer = _scratch("words" if planes == 3 else "fine", size + 16, np.dtype(np.uint8))
        _ctr(self._key, self._row, block).update_into(_ZEROS[:size], buffer.data)
        return buffer[:size].view("<u4").reshape(units, planes, _HALF)


def in_chunks(work: Callable[[int, int], None], n: int, offset: int = 0, threads: int | None = None) -> None:
    """Call `work(lo, hi)` on [0, n) cut where offset + position is a multiple of `CHUNK`, on up to `threads` threads.

    The cuts depend on n and offset only, so `work` that treats its spans independently gives the same bits with
    any number of threads. Exceptions of `work` are raised here.
    """
    cuts = [0, *range(CHUNK - offset % CHUNK, n, CHUNK), n]
    spans = list(itertools.pairwise(cuts))
    wanted = torch.get_num_threads() if threads is None else threads
    workers = max(1, min(wanted, os.cpu_count() or 1, len(spans) // 2))
    if workers == 1:
        for lo, hi in spans:
            work(lo, hi)
        return
    ahead = iter(spans)
    turn = threading.Lock()

    def drain() -> None:
        while True:
            with turn:
                span = next(ahead, None)
            if span is None:
                return
            work(*span)

    helpers = [_pool().submit(drain) for _ in range(workers - 1)]
    try:
        drain()
    finally:
        with turn:
            for _ in ahead:
                pass
        wait(helpers)  # nobody works on the caller's memory any more, whatever was raised here
    for helper in helpers:
        helper.result()


def empty(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A float32 or float64 vector, contents undefined. On the host it is numpy's, which asks for huge pages: they are
    three times as fast to touch first, and a fifth faster to read and write."""
    if device.type != "cpu":
        return torch.empty(n, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(n, _numpy(dtype)))


def zeros(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`empty`, but zero."""
    if device.type != "cpu":
        return torch.zeros(n, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(n, _numpy(dtype)))


def _numpy(dtype: torch.dtype) -> type[np.float32] | type[np.float64]:
    return np.float64 if dtype == torch.float64 else np.float32


_DEVICE_CHUNK: Final = 1 << 24
_local = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    """One pool a process (a forked child makes its own: threads do not survive a fork)."""
    with _pools_lock:
        pid = os.getpid()
        if pid not in _pools:
            _pools.clear()
            _pools[pid] = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="fieldfare-noise")
        return _pools[pid]


def _scratch(name: str, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """This thread's scratch vector: `size` items of `dtype`, contents undefined, kept for the next call."""
    kept: dict[tuple[str, str], NDArray[Any]] = _local.__dict__.setdefault("kept", {})
    array = kept.get((name, dtype.str))
    if array is None or len(array) < size:
        array = kept[name, dtype.str] = np.empty(size, dtype)
    return array[:size]


scratch = _scratch


def bytes_of_zeros(n: int) -> memoryview | bytes:
    """n zero bytes; a view of a shared constant where that is long enough."""
    return _ZEROS[:n] if n <= len(_ZEROS) else bytes(n)


def _ctr(key: bytes, row: int, block: int) -> Any:
    """An AES-256-CTR encryptor at counter (row, block): 64 bits each, big-endian, so rows never overlap."""
    counter = ((row << 64) | block).to_bytes(16, "big")
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


def _check(row: int, offset: int, n: int) -> None:
    if not 0 <= row < _MAX_ROW:
        raise BadInput(f"row = {row}", f"must be in [0, {_MAX_ROW}).", str(min(max(row, 0), _MAX_ROW - 1)))
    if offset < 0 or n < 0 or offset + n > _MAX_ELEMENTS:
        raise BadInput(
            f"elements [{offset}, {offset + n})", f"must lie in [0, {_MAX_ELEMENTS}).", f"[0, {_MAX_ELEMENTS})"
        )
