"""Running noise: row t of B z, one row a call, for every shape of B that Fieldfare knows.

All streams number the rows of z by round (row t of z is drawn in round t; trees number their nodes), so one key
gives one z whatever the mechanism. A round draws z, applies B and hands the row on chunk by chunk, while the chunk is
in the cache: `add_to` needs the state and the vector added to, `next` the state and the vector it returns. A state is
exactly resumable and says which key and which coefficients it belongs to; `skip` rebuilds it from the key alone.

Stamping (`restart_every = r`) makes B block-diagonal: the state is cleared every r rounds while z goes on, so no row of
z is ever used twice.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch

from fieldfare.errors import BadInput
from fieldfare.noise import CHUNK, Drawer, SecureNoise, empty, in_chunks, scratch, zeros
from fieldfare.streams.base import HorizonError, Stream, Take, require_fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_DEVICE_STEP: Final = 1 << 24
_TORN: Final = -1
"""`round` while a round runs, and after an exception ended it half-way: such a state is refused."""
_SIDE_BY_SIDE: Final = 1 << 11
"""Width of rings: a block of the sum stays in the first-level cache while block after block of the ring is added."""

Span = Any
"""A piece of a vector, shape (blocks, width): a numpy view on the host, a tensor on an accelerator."""


class ChunkedStream(Stream):
    """A stream whose rows are made chunk by chunk, each chunk on its own.

    Subclasses say how many vectors they keep (`slots`), and what one chunk of one round does (`_chunk`).

    Raises:
        BadInput: numel or horizon below 1, restart_every below 1, or a dtype other than float32 and float64.
    """

    slots: int = 0
    """Vectors of `numel` elements kept from round to round."""
    width: ClassVar[int] = CHUNK
    """Elements of one kept vector that lie side by side on the host, before the next vector's (see `_kept_span`)."""
    name: ClassVar[str]

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        restart_every: int | None = None,
        coefficients: bytes = b"",
    ) -> None:
        for field, value in (("numel", numel), ("horizon", horizon), ("restart_every", restart_every)):
            if value is not None and value < 1:
                raise BadInput(f"{field} = {value}", "must be at least 1.", "1")
        if dtype not in (torch.float32, torch.float64):
            raise BadInput(f"dtype = {dtype}", "noise is drawn in float32 or float64.", "torch.float32")
        self.numel, self.horizon, self.restart_every = numel, horizon, restart_every
        self.dtype, self.device = dtype, torch.device(device)
        self._on_host = self.device.type == "cpu"
        self.round = 0
        self._noise = noise
        self._width = self.width if self._on_host else _DEVICE_STEP
        self._kept = zeros(self.slots * numel, dtype, self.device)
        about = f"{self.name}:{numel}:{horizon}:{restart_every}:{dtype}:{noise.source}:{noise.fingerprint()}:"
        self._identity = hashlib.blake2b(about.encode() + coefficients, digest_size=16).hexdigest()

    def next(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Row `round` of B z into `out` (or a new vector), shape (numel,); then advances.

        Raises:
            HorizonError: the mechanism has no row `round`: its sensitivity covers `horizon` rows only.
            BadInput: `out` has another shape, dtype or device.
        """
        self._ready()
        if out is None:
            out = empty(self.numel, self.dtype, self.device)
        require_fit(out, self.numel, (self.dtype,), self.device)
        self._advance(out, None)
        return out

    def each_piece(self, take: Take) -> None:
        """Hand row `round` of B z to `take` in pieces of at most 2^17 elements (2^24 on an accelerator).

        Torch starts threads of its own, beside ours, on more than 2^15: a `take` that works with torch cuts further.
        """
        self._ready()
        self._advance(None, take)

    def state_dict(self) -> dict[str, Any]:
        """`buffers` (slots, numel), `round` and `identity`: a digest of kind, shape, coefficients and key.

        Secret like the key: buffers and released values together give the noise away.
        """
        self._whole()
        buffers = torch.empty(self.slots, self.numel, dtype=self.dtype, device=self.device)
        for lo, hi, width in self._parts(0, self.numel):
            held = self._kept_span(self._kept, lo, hi, width)
            buffers[:, lo:hi].view(held.shape).copy_(held)
        return {"identity": self._identity, "round": self.round, "buffers": buffers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue bit for bit where `state` was taken.

        Raises:
            BadInput: a field is missing, the state belongs to another key, mechanism or model, or it is torn.
        """
        missing = {"identity", "round", "buffers"} ^ set(state)
        if missing:
            raise BadInput(f"noise state with fields {sorted(state)}", f"differs in {sorted(missing)}.", "state_dict()")
        if state["identity"] != self._identity:
            raise BadInput(
                "noise state",
                "belongs to another key, mechanism, horizon, size or dtype, or an older Fieldfare wrote it.",
                "a state of this very stream",
            )
        buffers, at = state["buffers"], state["round"]
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at <= self.horizon:
            raise BadInput(f"noise state at round {at!r}", f"must be in [0, {self.horizon}].", "skip(round)")
        if not isinstance(buffers, torch.Tensor) or buffers.shape != (self.slots, self.numel):
            raise BadInput("noise state", f"needs buffers of shape {(self.slots, self.numel)}.", "skip(round)")
        if buffers.dtype != self.dtype or not bool(torch.isfinite(buffers).all()):
            raise BadInput("noise state", f"needs finite buffers of {self.dtype}: it is torn.", "skip(round)")
        for lo, hi, width in self._parts(0, self.numel):
            held = self._kept_span(self._kept, lo, hi, width)
            held.copy_(buffers[:, lo:hi].view(held.shape))
        self.round = at

    def skip(self, t: int) -> None:
        """Go to row t from the key alone; afterwards `next` gives bit for bit what an uninterrupted stream gives.

        Costs as many rounds as `_replay_from` names: none for streams without state, the window for windows, all
        rounds since the last restart for recursions.
        """
        if not 0 <= t <= self.horizon:
            raise BadInput(f"skip to round {t}", f"must be in [0, {self.horizon}].", str(min(max(t, 0), self.horizon)))
        start = max(self._block(t), self._replay_from(t))
        if not start <= self.round <= t:
            self._kept.zero_()
            self.round = start
        while self.round < t:
            self._advance(None, None)

    def _block(self, t: int) -> int:
        """First round of the stamped block that round t belongs to."""
        return t - t % self.restart_every if self.restart_every else 0

    def _replay_from(self, t: int) -> int:
        """The earliest round that the state before round t depends on (before stamping)."""
        return 0

    def _row_of(self, t: int) -> int:
        """The row of z that round t draws; trees, which have more rows than rounds, number their nodes."""
        return t

    def _ready(self) -> None:
        self._whole()
        if self.round >= self.horizon:
            raise HorizonError(
                f"round {self.round}: the mechanism was built and charged for {self.horizon} rounds. "
                f"Nearest allowed: round {self.horizon - 1}, or a new mechanism with more rounds."
            )

    def _whole(self) -> None:
        if self.round == _TORN:
            raise BadInput("noise state", "is torn: an exception ended a round half-way.", "skip(round)")

    def _advance(self, out: torch.Tensor | None, take: Take | None) -> None:
        """One round: into `out`, or piece by piece to `take`, or nowhere."""
        t = self.round
        age = t - self._block(t)
        self._before(t, age)
        draw = self._noise.drawer("z", self._row_of(t), 0, self.numel)
        self.round = _TORN
        if age == 0:
            self._kept.zero_()
        ops: Ops = _HOST if self._on_host else _DEVICE
        vector: Any = out.numpy() if self._on_host and out is not None else out
        kept: Any = self._kept.numpy() if self._on_host else self._kept

        def work(lo: int, hi: int) -> None:
            row = ops.scratch("row", hi - lo, kept) if vector is None else vector[lo:hi]
            self._piece(t, age, draw, row, kept, ops, lo)
            if take is not None:
                take(lo, ops.tensor(row))

        if self._on_host:
            in_chunks(work, self.numel, 0, self._noise.threads)
        else:
            for lo in range(0, self.numel, _DEVICE_STEP):
                work(lo, min(lo + _DEVICE_STEP, self.numel))
        self.round = t + 1

    def _piece(self, t: int, age: int, draw: Drawer, row: Any, kept: Any, ops: Ops, lo: int) -> None:
        """Elements [lo, lo + len(row)) of round t: drawn, and turned into those of B z while they are in the cache."""
        z = ops.scratch("z", len(row), row)
        ops.draw(draw, z, lo)
        for start, end, width in self._parts(lo, lo + len(row)):
            out, drawn = (x[start - lo : end - lo].reshape(-1, width) for x in (row, z))
            self._chunk(t, age, out, drawn, self._kept_span(kept, start, end, width), ops, start)

    def _draw_kept(self, slot: int, row: int) -> None:
        """Set one kept vector to row `row` of z."""
        drawn = self._noise.normal_(empty(self.numel, self.dtype, self.device), row=row)
        for lo, hi, width in self._parts(0, self.numel):
            self._kept_span(self._kept, lo, hi, width)[slot] = drawn[lo:hi].reshape(-1, width)

    def _parts(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """[lo, hi), lo a multiple of the width: (start, end, width) of its whole blocks and of the vector's rest."""
        even = hi - (hi - lo) % self._width
        if even > lo:
            yield lo, even, self._width
        if hi > even:
            yield even, hi, hi - even

    def _kept_span(self, kept: Any, lo: int, hi: int, width: int) -> Any:
        """Elements [lo, hi) of every kept vector, shape (slots, blocks, width): a view of the state, `kept`.

        The state lies block by block: `width` elements of the first vector, the same elements of the second, ... so
        that a round reads all of it from one end to the other, however many vectors there are.
        """
        mine = kept[self.slots * lo : self.slots * hi]
        return mine.reshape((hi - lo) // width, self.slots, width).swapaxes(0, 1)

    def _before(self, t: int, age: int) -> None:
        """Whatever a round needs once, before its chunks."""

    @abstractmethod
    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        """Given the elements from `lo` on of row t of z, write those of row t of B z to `out` and update `buffers`.

        `out` and `z` have shape (blocks, width), `buffers` (slots, blocks, width). `z` is scratch: overwrite it freely.
        """


class Ops(ABC):
    """The few vector operations a stream needs. On the host none depends on where a chunk was cut."""

    @abstractmethod
    def draw(self, drawer: Drawer, x: Span, lo: int) -> None:
        """x = the elements of the drawer's row from `lo` on"""

    @abstractmethod
    def scratch(self, name: str, size: int, like: Any) -> Any:
        """A vector of `size` elements like `like`, undefined contents, that lives until the chunk is done."""

    @abstractmethod
    def tensor(self, x: Any) -> torch.Tensor:
        """The same memory as a tensor."""

    @abstractmethod
    def axpy(self, y: Span, a: float, x: Span) -> None:
        """y += a x; the product is rounded to y's dtype, never `a` itself: what is applied is what was charged."""

    @abstractmethod
    def scale(self, y: Span, a: float) -> None:
        """y *= a, in the same way"""

    @abstractmethod
    def combine(self, y: Span, z: Span, weights: NDArray[np.float64], rows: Span) -> None:
        """y = z + sum_i weights_i rows_i; `weights` shape (m,), all of them float32 values, `rows` m spans."""

    def copy(self, y: Span, x: Span) -> None:
        """y = x"""
        y[:] = x


class _Host(Ops):
    def draw(self, drawer: Drawer, x: Span, lo: int) -> None:
        drawer.into(x.reshape(-1), lo)

    def scratch(self, name: str, size: int, like: Any) -> Any:
        return scratch(name, size, like.dtype)

    def tensor(self, x: Any) -> torch.Tensor:
        return torch.from_numpy(x)

    def axpy(self, y: Span, a: float, x: Span) -> None:
        product = scratch("product", y.size, y.dtype).reshape(y.shape)
        np.multiply(x, a, out=product, dtype=np.float64, casting="same_kind")
        np.add(y, product, out=y)

    def scale(self, y: Span, a: float) -> None:
        np.multiply(y, a, out=y, dtype=np.float64, casting="same_kind")

    def combine(self, y: Span, z: Span, weights: NDArray[np.float64], rows: Span) -> None:
        # einsum reads each row once and multiplies and adds in the same pass. BLAS would be faster still, but its
        # rounding depends on its own number of threads.
        np.einsum("i,ibj->bj", weights.astype(y.dtype), rows, out=y)
        np.add(y, z, out=y)


class _Device(Ops):
    def draw(self, drawer: Drawer, x: Span, lo: int) -> None:
        drawer.to_device(x.reshape(-1), lo)

    def scratch(self, name: str, size: int, like: Any) -> Any:
        return torch.empty(size, dtype=like.dtype, device=like.device)

    def tensor(self, x: Any) -> torch.Tensor:
        return x  # type: ignore[no-any-return]

    def axpy(self, y: Span, a: float, x: Span) -> None:
        y.add_((x.double() * a).to(y.dtype))

    def scale(self, y: Span, a: float) -> None:
        y.copy_(y.double() * a)

    def combine(self, y: Span, z: Span, weights: NDArray[np.float64], rows: Span) -> None:
        y.copy_(z)
        for weight, row in zip(weights.tolist(), rows, strict=True):
            y.add_(row, alpha=weight)


_HOST = _Host()
_DEVICE = _Device()


def _vector(field: str, values: NDArray[np.float64], least: int = 0) -> NDArray[np.float64]:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least or not np.isfinite(array).all():
        raise BadInput(f"{field} of shape {array.shape}", f"must be a finite vector of at least {least} numbers.")
    return array


class IndependentStream(ChunkedStream):
    """B = I: fresh noise every round. No state."""

    name = "independent"

    def _replay_from(self, t: int) -> int:
        return t

    def _piece(self, t: int, age: int, draw: Drawer, row: Any, kept: Any, ops: Ops, lo: int) -> None:
        ops.draw(draw, row, lo)  # no detour: what is drawn is the result

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        ops.copy(out, z)


class WindowStream(ChunkedStream):
    """Banded B: row t is sum_{i < p} beta_i z_{t-i}, `beta` shape (p,). Keeps the last p - 1 rows of z in a ring."""

    name = "window"
    width = _SIDE_BY_SIDE

    def __init__(
        self, numel: int, noise: SecureNoise, horizon: int, beta: NDArray[np.float64], **settings: Any
    ) -> None:
        self._beta = _vector("beta", beta, 1)[:horizon]
        self.slots = len(self._beta) - 1
        super().__init__(numel, noise, horizon, coefficients=self._beta.tobytes(), **settings)

    def _replay_from(self, t: int) -> int:
        return max(0, t - self.slots)

    def _before(self, t: int, age: int) -> None:
        self._by_slot = _by_slot(self._beta, t)

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        if self.slots == 0:
            out[:] = z
            out *= float(self._beta[0])
            return
        first = float(self._beta[0])
        if first == 1:
            ops.combine(out, z, self._by_slot, buffers)
        else:
            ops.combine(out, z * first, self._by_slot, buffers)
        buffers[t % self.slots] = z


class InverseBandStream(ChunkedStream):
    """B = C^-1 for banded C, `c` shape (p,): solves C y = z row by row, y_t = (z_t - sum_{0<i<p} c_i y_{t-i}) / c_0.

    Keeps the last p - 1 rows of y. With `column_norms`, shape (horizon,), C's columns are divided by those numbers
    and row t is column_norms[t] y_t; when stamped the norms are those of one block, shape (restart_every,).
    `skip` replays every round since the last restart: y is a recursion.
    """

    name = "inverse-band"
    width = _SIDE_BY_SIDE

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        c: NDArray[np.float64],
        *,
        column_norms: NDArray[np.float64] | None = None,
        **settings: Any,
    ) -> None:
        self._c = _vector("c", c, 1)[:horizon]
        if self._c[0] == 0:
            raise BadInput("c[0] = 0", "makes C singular.", "1")
        block = min(horizon, settings.get("restart_every") or horizon)
        self._norms = None if column_norms is None else _vector("column_norms", column_norms, block)
        self.slots = len(self._c) - 1
        about = self._c.tobytes() + (b"" if self._norms is None else self._norms.tobytes())
        super().__init__(numel, noise, horizon, coefficients=about, **settings)

    def _before(self, t: int, age: int) -> None:
        self._by_slot = -_by_slot(self._c, t)

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        if self.slots:
            ops.combine(out, z, self._by_slot, buffers)
        else:
            out[:] = z
        if self._c[0] != 1:
            out /= float(self._c[0])
        if self.slots:
            buffers[t % self.slots] = out
        if self._norms is not None:
            ops.scale(out, float(self._norms[age]))


class BufferStream(ChunkedStream):
    """Toeplitz B with beta_0 = 1 and beta_t = sum_i omega_i theta_i^(t-1); `omega`, `theta` shape (m,). m buffers.

    Row t is z_t + sum_i omega_i S_i, then S_i <- theta_i S_i + z_t (buffered linear Toeplitz, Dvijotham, McMahan,
    Pillutla, Steinke, Thakurta 2024). `skip` replays every round since the last restart.
    """

    name = "buffers"

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        omega: NDArray[np.float64],
        theta: NDArray[np.float64],
        **settings: Any,
    ) -> None:
        self._omega, self._theta = _vector("omega", omega), _vector("theta", theta)
        if len(self._omega) != len(self._theta):
            raise BadInput(f"{len(self._omega)} omega, {len(self._theta)} theta", "must be as many.")
        self.slots = len(self._omega)
        super().__init__(numel, noise, horizon, coefficients=self._omega.tobytes() + self._theta.tobytes(), **settings)

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        if self.slots == 0:
            out[:] = z
            return
        ops.combine(out, z, self._omega, buffers)
        for held, theta in zip(buffers, self._theta.tolist(), strict=True):
            held *= theta
            held += z


class MemoryStream(ChunkedStream):
    """Any lower-triangular B: `rows(t)` gives row t's coefficients of z_0 .. z_t, shape (t + 1,), within a block.

    Keeps every row of z since the last restart: min(horizon, restart_every) vectors.
    """

    name = "memory"

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        rows: Callable[[int], NDArray[np.float64]],
        *,
        identity: bytes = b"",
        **settings: Any,
    ) -> None:
        self._rows = rows
        self.slots = min(horizon, settings.get("restart_every") or horizon)
        self._row = np.zeros(0)
        super().__init__(numel, noise, horizon, coefficients=identity, **settings)

    def _before(self, t: int, age: int) -> None:
        self._row = _row(self._rows, age)

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        ops.copy(buffers[age], z)
        ops.copy(out, z)
        ops.scale(out, float(self._row[age]))
        for i in range(age - 1, -1, -1):
            if self._row[i] != 0:
                ops.axpy(out, float(self._row[i]), buffers[i])


class ReplayStream(ChunkedStream):
    """The same numbers as `MemoryStream` without its memory: past rows of z are drawn again from the key.

    O(numel) memory, as many draws as row t has non-zero coefficients. Bit for bit equal to `MemoryStream`.
    """

    name = "replay"

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        rows: Callable[[int], NDArray[np.float64]],
        *,
        identity: bytes = b"",
        **settings: Any,
    ) -> None:
        self._rows = rows
        self._row = np.zeros(0)
        self._past: list[tuple[float, Drawer]] = []
        super().__init__(numel, noise, horizon, coefficients=identity, **settings)

    def _replay_from(self, t: int) -> int:
        return t

    def _before(self, t: int, age: int) -> None:
        self._row = _row(self._rows, age)
        used = [i for i in range(age - 1, -1, -1) if self._row[i] != 0]
        self._past = [(float(self._row[i]), self._noise.drawer("z", t - age + i, 0, self.numel)) for i in used]

    def _chunk(self, t: int, age: int, out: Span, z: Span, buffers: Span, ops: Ops, lo: int) -> None:
        ops.copy(out, z)
        ops.scale(out, float(self._row[age]))
        for weight, draw in self._past:
            ops.draw(draw, z, lo)
            ops.axpy(out, weight, z)


def _by_slot(coefficients: NDArray[np.float64], t: int) -> NDArray[np.float64]:
    """Coefficients of lags 1 .. p by the ring's slots: lag i lies in slot (t - i) mod p. Unused slots hold zeros."""
    p = len(coefficients) - 1
    out = np.empty(p)
    lags = np.arange(1, p + 1)
    out[(t - lags) % max(p, 1)] = coefficients[1:]
    return out


def _row(rows: Callable[[int], NDArray[np.float64]], t: int) -> NDArray[np.float64]:
    row = _vector(f"row {t} of B", rows(t), t + 1)
    if len(row) != t + 1:
        raise BadInput(f"row {t} of B with {len(row)} coefficients", "B is lower-triangular.", str(t + 1))
    return row
