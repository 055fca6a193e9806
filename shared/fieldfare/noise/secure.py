"""Keyed, seekable, cryptographically secure Gaussian noise.

`SecureNoise` is an infinite matrix of independent N(0, 1) entries for each stream name, fixed by a 256-bit
key: any (row, element range) can be drawn again, in any order, in any split, by any number of threads, with
the same floats.

How a number is made
    AES-256 in counter mode gives the random bits (NIST SP 800-38A). The AES key is BLAKE2b(run key, purpose,
    stream name), so two streams never share a keystream; the counter is (row, plane, position), so two rows
    never do.

    Float64, map 3: element p of a row takes word p of 64 bits. `fieldfare.noise.staircase` has the arithmetic
    and its error. Float32, and float64 of map 2: elements come in units of 4 096: 2 048 Box-Muller pairs,
    cosines first, sines second. A pair takes 96 bits: 31 + 31 bits for the radius, 32 for the angle (float64
    takes 32 more angle bits from a second plane). `fieldfare.noise.box_muller` has the arithmetic and its
    error.

Which map a run has
    A run is drawn by the map of its ledger's `format` from its first row to its last, whatever version
    resumes it: runs begun before map 3 go on with map 2. The map is part of the fingerprint that every noise
    state carries.

Which noise no copy can repeat
    A key and a row alone fix a number, so two copies of one process or one disk would add the same noise to
    two sums. `with_nonces` gives a view in which row j of "z" is drawn under HMAC-SHA256(key, "row" | nonce
    of birth(j)), where birth(j) is the round in which that row is first used. `nonce` makes a round's nonce
    from fresh bits and from the sum that the round releases, once that sum is final: two sums never share a
    row, even where the fresh bits repeat.

How far the tail is right
    Map 3: to a factor 1 +- 2^-79 / p at probability p; the largest number is 13.7. Box
    and Muller: the radius is sqrt(-2 ln U) with U on a grid of 2^-62, kept to full *relative* float precision
    next to 0. A tail of probability p is therefore off by at most 2^-62 / p relatively: 0.02 % at p = 1e-15.
    The largest number that can come out is 9.35. (With 32-bit uniforms the tail ends at 6.7.) In the centre
    float32 values lie on the usual float32 Box-Muller grid: U next to 1 is a multiple of 2^-24.

What is assumed, and what is not covered
    AES-256 is assumed to be a pseudorandom permutation. With q blocks under one key, counter mode can be told
    from random with advantage q^2 / 2^129: 20 000 rounds of 1e8 elements are 2^40 blocks, an advantage of
    2^-49, which adds to delta. The floats are the same on machines whose numpy uses the same vector code;
    across CPU families the last bit of a logarithm, or of a float32 cosine, may differ: in map 3 that is one
    number in 38 000, in Box and Muller's any. A sum of floats does not hide which floats went in (Mironov
    2012; Casacuberta et al. 2022): see `fieldfare.privatise` for the grid that closes this, and for what
    stays open.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NoReturn, get_args

import numpy as np

from fieldfare.errors import OutOfRange, Unknown, WrongForm
from fieldfare.lazily import torch
from fieldfare.noise.aes import AesDrawer, keystream
from fieldfare.noise.chunks import DEVICE_CHUNK, empty, in_chunks
from fieldfare.noise.philox import PhiloxDrawer
from fieldfare.noise.staircase import StaircaseDrawer
from fieldfare.nonces import NONCE_BYTES, digest_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise.drawer import Drawer

_Bytes = bytes  # inside SecureNoise the name `bytes` is a method

Source = Literal["aes-256-ctr", "philox-4x32-10"]

_MAX_ELEMENTS: Final = 1 << 48
_MAX_ROW: Final = 1 << 62
# Row of z -> the round in which it is first used: `Mechanism.birth`.
Births = Callable[[int], int]
# Version of the map from bits to floats: 2, Box and Muller; 3, the staircase for float64. A change that
# alters any float needs another version: a run keeps its own.
Map = Literal[2, 3]
NEWEST_MAP: Final[Map] = 3


class SecureNoise:
    """Independent standard normals addressed by (stream, row, element), fixed by `key`.

    Args:
        key: 32 bytes from `secrets.token_bytes(32)`. With it the noise can be subtracted: it is as secret as
            the data. It is never shown, copied into state or pickled.
        device: where `standard_normal` puts its result; `normal_` fills a tensor on any device.
        source: `"aes-256-ctr"` (drawn on the host, copied to the device), or `"philox-4x32-10"`: the
            counter-based generator of Salmon et al. 2011, computed on the device, statistically sound but
            *not* cryptographic. Plans, ledger and page name the source.
        threads: most host threads to use; None means torch's own number. Never changes a float.
        map: how bits become floats; a run that an older version began keeps its own
            (`ledger.state.formats.noise_map`).

    Guarantee: for every stream name the entries are computationally indistinguishable from i.i.d. N(0, 1) (up
    to the rounding above) and from every other stream's; equal arguments give equal floats.

    Raises:
        BadInput: the key is not 32 bytes, the source or the map is unknown, or threads < 1.
    """

    __slots__ = ("_birth", "_first", "_key", "_nonces", "device", "map", "source", "threads")

    def __init__(
        self,
        key: bytes,
        device: str | torch.device = "cpu",
        *,
        source: Source = "aes-256-ctr",
        threads: int | None = None,
        map: Map = NEWEST_MAP,
    ) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise WrongForm("noise key", "must be exactly 32 bytes (256 random bits).", "secrets.token_bytes(32)")
        if source not in get_args(Source):
            raise Unknown(
                f"noise source {source!r}", "is unknown.", " or ".join(repr(known) for known in get_args(Source))
            )
        if map not in get_args(Map):
            raise Unknown(f"noise map {map!r}", "is unknown.", " or ".join(str(name) for name in get_args(Map)))
        if threads is not None and threads < 1:
            raise OutOfRange(f"threads = {threads}", "must be at least 1.", "1")
        self._key = key
        self._first = 0
        self._nonces: Sequence[_Bytes] | None = None
        self._birth: Births | None = None
        self.device = torch.device(device)
        self.source: Source = source
        self.threads = threads
        self.map: Map = map

    def __repr__(self) -> str:
        return f"SecureNoise(source={self.source!r}, device={str(self.device)!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("SecureNoise holds a secret key and cannot be pickled or copied; derive a new one from the key")

    def derive(self, label: str) -> SecureNoise:
        """Return an independent source for another purpose. Its key does not reveal this one."""
        return self._copy(self._subkey("derive", label))

    def from_row(self, first: int) -> SecureNoise:
        """Return the same source with the rows of "z" counted from `first`: its row r is row first + r here.

        Every other stream, and everything else, is the same. Raises `BadInput` for a negative `first`.
        """
        _require_range(first, 0, 0)
        view = self._copy(self._key)
        view._first, view._nonces, view._birth = self._first + first, self._nonces, self._birth
        return view

    def with_nonces(self, nonces: Sequence[_Bytes], birth: Births) -> SecureNoise:
        """Return the same source with each row of "z" drawn under the nonce of the round in which it is first
        used.

        Every other stream is the same. Where the nonce of a row's round is missing, drawing that row is
        refused.

        Args:
            nonces: 16 bytes for each round, in order. Kept by reference: append a round's nonce before its
                rows.
            birth: the round of a row (counted from the first row of the whole run): `Mechanism.birth`.
        """
        view = self._copy(self._key)
        view._first, view._nonces, view._birth = self._first, nonces, birth
        return view

    def nonce(self, run: str, round: int, fresh: _Bytes, digest: _Bytes) -> _Bytes:
        """Return the nonce of one round of one run, 16 bytes: it shows nothing of the sum to who has no key.

        Args:
            run: the run's id.
            round: in [0, 2^63).
            fresh: 16 bytes that the operating system drew after the sum was final.
            digest: SHA-256, 32 bytes, of the final sum and of the schema that gives it its meaning.

        Raises:
            BadInput: `fresh` or `digest` has another length.
        """
        if len(fresh) != NONCE_BYTES or len(digest) != 32:
            raise WrongForm(
                f"{len(fresh)} fresh bytes and a digest of {len(digest)}", "must be 16 and 32.", "16 and 32"
            )
        name = run.encode()
        # The name comes with its length, so no two (run, round) make the same message. The digest binds the
        # nonce to the sum: another sum in the same round, after an old copy was put back, has another nonce.
        message = b"nonce" + len(name).to_bytes(4, "big") + name + round.to_bytes(8, "big") + fresh + digest
        return hmac.digest(self._key, message, "sha256")[:NONCE_BYTES]

    def fingerprint(self) -> str:
        """Return 32 hex digits that tell this key from another without revealing it (a keyed BLAKE2b output).

        They depend on the map from random bits to floats too, and on the nonces so far: a state that an older
        map or another branch of the run made is refused, never continued.
        """
        return self._subkey("fingerprint", str(self.map) + self._nonce_digest()).hex()[:32]

    def normal_(self, out: torch.Tensor, *, row: int, offset: int = 0, stream: str = "z") -> torch.Tensor:
        """Fill `out` with elements [offset, offset + n) of row `row` of `stream`; return `out`.

        Works in chunks: apart from `out` it needs a few cache-sized scratch arrays.

        Args:
            out: shape (n,), contiguous, float32 or float64, on any device.
            row: in [0, 2^62).
            offset: offset + n is at most 2^48.
            stream: a name; each name has its own matrix.

        Raises:
            BadInput: `out` is not such a vector, or row or offset is out of range.
        """
        if out.ndim != 1 or not out.is_contiguous() or out.dtype not in (torch.float32, torch.float64):
            raise WrongForm(
                f"noise target of shape {tuple(out.shape)}, {out.dtype}",
                "must be a contiguous vector of float32 or float64.",
                "out.view(-1)",
            )
        # Element i of a row is a function of (key, stream, row, i): neither chunks nor threads change a float.
        drawer = self.drawer(stream, row, offset, out.numel())
        if out.device.type != "cpu":
            for lo in range(0, out.numel(), DEVICE_CHUNK):
                drawer.to_device(out[lo : lo + DEVICE_CHUNK], offset + lo)
            return out
        array = out.numpy()

        def fill(lo: int, hi: int) -> None:
            drawer.into(array[lo:hi], offset + lo)

        in_chunks(fill, out.numel(), offset, self.threads)
        return out

    def standard_normal(
        self, n: int, *, row: int, offset: int = 0, stream: str = "z", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return `normal_` into a new vector, shape (n,), of `dtype` (default float32) on this source's
        device.

        Args:
            n: how many numbers.
            row, offset, stream: as in `normal_`.
            dtype: float32 or float64; None: float32.
        """
        return self.normal_(empty(n, dtype or torch.float32, self.device), row=row, offset=offset, stream=stream)

    def bytes(self, n: int, *, row: int, offset: int = 0, stream: str) -> memoryview:
        """Return `n` uniform secret bytes from position `offset` of row `row` of the byte stream `stream`.

        Always AES-256-CTR, whatever the source of normals; never shares bits with a stream of normals.

        Args:
            n: how many bytes.
            row: of the byte stream, at least 0.
            offset: of the first byte in its row.
            stream: the purpose. No two purposes share bytes.
        """
        _require_range(row, offset, n)
        return keystream(self._subkey("bytes", stream), row, offset, n)

    def generator(self, stream: str, row: int = 0) -> np.random.Generator:
        """Return a numpy generator seeded from the key for choices that need no secrecy (cohorts, shuffles).
        Not for noise.
        """
        _require_range(row, 0, 0)
        seed = int.from_bytes(self._subkey("generator", f"{row}:{stream}")[:16], "little")
        return np.random.Generator(np.random.Philox(key=seed))

    def uniform(self, n: int, *, row: int, stream: str) -> NDArray[np.float64]:
        """Return `n` uniforms in [0, 1) with 53 bits, shape (n,), from secret bytes: for decisions that
        affect privacy.

        Args:
            n: how many numbers.
            row: of the byte stream, at least 0.
            stream: as in `bytes`, from which the numbers are made.
        """
        words = np.frombuffer(self.bytes(8 * n, row=row, stream=stream), dtype="<u8")
        # The upper 53 bits: float64 holds each multiple of 2^-53 exactly, so all are equally likely.
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def drawer(self, stream: str, row: int, offset: int, n: int) -> Drawer:
        """Return the drawer of row `row` of `stream`, for a caller that runs its own chunk loop
        (`in_chunks`).

        Args:
            stream: the purpose; "z" is the noise of rounds.
            row: at least 0.
            offset, n: the elements of the row that will be drawn.

        Raises `BadInput` where the row, or elements [offset, offset + n) of it, are out of range.
        """
        _require_range(row, offset, n)
        # Only z is counted from another row on: coins, choices and the blind have rows of their own.
        if stream == "z":
            row += self._first
            _require_range(row, offset, n)
        return self._drawer_of_row(stream, row)

    def _drawer_of_row(self, stream: str, row: int) -> Drawer:
        """Choose the drawer of a row, here and nowhere else: all floats of a row, on every path, come from
        this drawer.
        """
        source = self._source_of_row(stream, row)
        if self.source == "philox-4x32-10":
            return PhiloxDrawer(source._subkey("philox", stream), row)
        pairs = AesDrawer(source._subkey("normal", stream), row)
        return pairs if self.map == 2 else StaircaseDrawer(source._subkey("staircase", stream), row, pairs)

    def _source_of_row(self, stream: str, row: int) -> SecureNoise:
        """Return what row `row` (of the whole run) of `stream` is drawn from. Raises `BadInput` where a nonce
        is missing.
        """
        if stream != "z" or self._nonces is None or self._birth is None:
            return self
        born = self._birth(row)
        if not 0 <= born < len(self._nonces):
            raise OutOfRange(
                f"row {row} of z", f"round {born} bears it, and there are nonces of {len(self._nonces)} rounds only."
            )
        nonce = self._nonces[born]
        if len(nonce) != NONCE_BYTES:
            raise WrongForm(f"the nonce of round {born}", f"has {len(nonce)} bytes.", f"{NONCE_BYTES} bytes")
        # Each nonce has a key of its own: two branches of a run that was put back never share the bits of a row.
        return self._copy(hmac.digest(self._key, b"row" + nonce, "sha256"))

    def _nonce_digest(self) -> str:
        """Return the digest of the nonces in hex; empty without nonces."""
        if self._nonces is None:
            return ""
        return ":" + digest_of(self._nonces)

    def _copy(self, key: _Bytes) -> SecureNoise:
        return SecureNoise(key, self.device, source=self.source, threads=self.threads, map=self.map)

    def _subkey(self, purpose: str, label: str) -> _Bytes:
        # The length comes first: ("normal", "z") and ("normalz", "") are different messages.
        message = f"{len(purpose)}:{purpose}{label}".encode()
        return hashlib.blake2b(message, key=self._key, digest_size=32, person=b"fieldfare.noise1").digest()


def _require_range(row: int, offset: int, n: int) -> None:
    if not 0 <= row < _MAX_ROW:
        raise OutOfRange(f"row = {row}", f"must be in [0, {_MAX_ROW}).", str(min(max(row, 0), _MAX_ROW - 1)))
    if offset < 0 or n < 0 or offset + n > _MAX_ELEMENTS:
        raise OutOfRange(
            f"elements [{offset}, {offset + n})", f"must lie in [0, {_MAX_ELEMENTS}).", f"[0, {_MAX_ELEMENTS})"
        )
