"""Every stream is B z: against the dense matrix, resumed at every round, skipped to, stamped, split, and stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from fieldfare.errors import BadInput
from fieldfare.noise import CHUNK, SecureNoise
from fieldfare.streams.banded import InverseBandStream, WindowStream
from fieldfare.streams.base import HorizonError
from fieldfare.streams.buffers import BufferStream
from fieldfare.streams.chunked import ChunkedStream
from fieldfare.streams.independent import IndependentStream
from fieldfare.streams.ops import DEVICE
from fieldfare.streams.rows import MemoryStream, ReplayStream
from support.refusals import Coded, coded

KEY = b"a fixed key for tests, 32 bytes!"
BETA = np.array([1.0, -0.5, -0.125, -0.0625, 0.3])
C = np.array([1.0, 0.5, 0.375, 0.3])
OMEGA = np.array([-0.3, -0.1, -0.05])
THETA = np.array([0.97, 0.8, 0.3])
NU = np.concatenate([[1.0], np.cumprod(0.95 * (np.arange(1, 300) - 1.5) / np.arange(1, 300))])

Make = Callable[..., ChunkedStream]


def lower(first: np.ndarray, n: int) -> np.ndarray:
    column = np.zeros(n)
    column[: min(n, len(first))] = first[:n]
    return np.tril(toeplitz(column))


def dense(name: str, n: int) -> np.ndarray:
    if name == "independent":
        return np.eye(n)
    if name == "window":
        return lower(BETA, n)
    if name == "inverse-band":
        return np.linalg.inv(lower(C, n))
    if name == "normalised":
        return np.linalg.inv(lower(C, n) / norms(n))
    if name == "buffers":
        beta = np.concatenate([[1.0], (OMEGA * THETA ** np.arange(n - 1)[:, None]).sum(1)])
        return lower(beta, n)
    return lower(NU, n)


def norms(n: int) -> np.ndarray:
    return np.linalg.norm(lower(C, n), axis=0)


def make(name: str, n: int, numel: int = 3, **settings: object) -> ChunkedStream:
    noise = SecureNoise(KEY, threads=settings.pop("threads", None))
    settings = {"dtype": torch.float64, **settings}
    if name == "independent":
        return IndependentStream(numel, noise, n, **settings)
    if name == "window":
        return WindowStream(numel, noise, n, BETA, **settings)
    if name == "inverse-band":
        return InverseBandStream(numel, noise, n, C, **settings)
    if name == "normalised":
        block = min(n, settings.get("restart_every") or n)
        return InverseBandStream(numel, noise, n, C, column_norms=norms(block), **settings)
    if name == "buffers":
        return BufferStream(numel, noise, n, OMEGA, THETA, **settings)
    kind = {"memory": MemoryStream, "replay": ReplayStream}[name]
    return kind(numel, noise, n, lambda t: NU[t::-1], **settings)


NAMES = ["independent", "window", "inverse-band", "normalised", "buffers", "memory", "replay"]


def z(n: int, numel: int, dtype: torch.dtype = torch.float64) -> np.ndarray:
    noise = SecureNoise(KEY)
    return np.stack([noise.standard_normal(numel, row=t, dtype=dtype).numpy() for t in range(n)])


def rows(stream: ChunkedStream, count: int) -> np.ndarray:
    return np.stack([stream.next().numpy() for _ in range(count)])


@pytest.mark.parametrize("n", [1, 2, 64, 257])
@pytest.mark.parametrize("name", NAMES)
def test_stream_is_b_times_z(name: str, n: int) -> None:
    expected = dense(name, n) @ z(n, 3)
    np.testing.assert_allclose(rows(make(name, n), n), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_b_times_z_too(name: str) -> None:
    expected = dense(name, 64) @ z(64, 3, torch.float32)
    np.testing.assert_allclose(rows(make(name, 64, dtype=torch.float32), 64), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("restart", [None, 7])
@pytest.mark.parametrize("name", NAMES)
def test_resume_at_every_round_is_bit_exact(name: str, restart: int | None) -> None:
    n = 23
    whole = rows(make(name, n, dtype=torch.float32, restart_every=restart), n)
    saved = make(name, n, dtype=torch.float32, restart_every=restart)
    for t in range(n + 1):
        state = saved.state_dict()
        resumed = make(name, n, dtype=torch.float32, restart_every=restart)
        resumed.load_state_dict(state)
        skipped = make(name, n, dtype=torch.float32, restart_every=restart)
        skipped.skip(t)
        for stream in (resumed, skipped):
            assert stream.round == t
            if t < n:
                assert np.array_equal(rows(stream, n - t), whole[t:])
        if t < n:
            assert np.array_equal(saved.next().numpy(), whole[t])


@pytest.mark.parametrize("restart", [None, 7])
@pytest.mark.parametrize("name", NAMES)
def test_replayed_rows_are_those_that_skip_goes_through(
    name: str, restart: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, advanced = 23, []
    stream = make(name, n, restart_every=restart)
    assert stream.state_bytes == stream.state_dict()["buffers"].nbytes
    advance = ChunkedStream._advance

    def counted(self: ChunkedStream, out: torch.Tensor | None, take: Any) -> None:
        advanced.append(self.round)
        advance(self, out, take)

    monkeypatch.setattr(ChunkedStream, "_advance", counted)
    for t in range(n + 1):
        advanced.clear()
        skipped = make(name, n, restart_every=restart)
        skipped.skip(t)
        assert len(advanced) == skipped.replayed_rows(t) <= t
        assert skipped.position() == {k: v for k, v in skipped.state_dict().items() if k != "buffers"}


@pytest.mark.parametrize("restart", [None, 7])
@pytest.mark.parametrize("name", NAMES)
def test_skip_goes_anywhere_from_anywhere(name: str, restart: int | None) -> None:
    n = 23
    whole = rows(make(name, n, restart_every=restart), n)
    stream = make(name, n, restart_every=restart)
    for t in (5, 6, 20, 13, 14, 0, 22, 21, 7, 8):
        stream.skip(t)
        assert np.array_equal(stream.next().numpy(), whole[t])
    stream.skip(n)
    with pytest.raises(HorizonError):
        stream.next()


def test_a_saved_state_is_not_changed_by_going_on() -> None:
    stream = make("buffers", 9)
    stream.next()
    state = stream.state_dict()
    before = state["buffers"].clone()
    stream.next()
    assert torch.equal(before, state["buffers"])


@pytest.mark.parametrize("name", NAMES)
def test_stamping_is_block_diagonal_and_never_draws_a_row_twice(name: str) -> None:
    n, restart = 26, 8
    noising = np.zeros((n, n))
    for start in range(0, n, restart):
        size = min(restart, n - start)
        # a short last block is a leading block of the same matrix (and of the same column norms)
        noising[start : start + size, start : start + size] = dense(name, restart)[:size, :size]
    expected = noising @ z(n, 3)
    np.testing.assert_allclose(rows(make(name, n, restart_every=restart), n), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_horizon_is_a_wall(name: str) -> None:
    """Row T of a T-round mechanism is noise that nobody charged for (PR #338 of jax-privacy was this bug)."""
    stream = make(name, 4)
    rows(stream, 4)
    with pytest.raises(HorizonError, match="round 4"):
        stream.next()
    with pytest.raises(BadInput, check=coded("out-of-range", "skip to round")):
        stream.skip(5)
    assert stream.round == 4


@pytest.mark.parametrize("name", NAMES)
def test_threads_and_chunks_do_not_change_a_bit(name: str) -> None:
    n, numel = 5, 3 * CHUNK + 1234
    one = rows(make(name, n, numel, dtype=torch.float32, threads=1), n)
    three = rows(make(name, n, numel, dtype=torch.float32, threads=3), n)
    assert np.array_equal(one, three)
    # Elements do not mix: a shorter model sees the leading part of the same rows.
    short = rows(make(name, n, 1000, dtype=torch.float32), n)
    assert np.array_equal(one[:, :1000], short)


def test_memory_and_replay_are_the_same_bits() -> None:
    memory = make("memory", 12, 5000, dtype=torch.float32, restart_every=5)
    replay = make("replay", 12, 5000, dtype=torch.float32, restart_every=5)
    assert np.array_equal(rows(memory, 12), rows(replay, 12))
    assert replay.state_dict()["buffers"].numel() == 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("restart", [None, 3])
@pytest.mark.parametrize("name", NAMES)
def test_adding_in_place_is_next_and_one_addition(name: str, restart: int | None, threads: int) -> None:
    """The same floats as a row, scaled and added, and the same state afterwards, with whole and broken chunks."""
    n, numel, scale = 5, 2 * CHUNK + 3 * 2048 + 77, 0.3
    settings = {"dtype": torch.float32, "restart_every": restart, "threads": threads}
    apart, fused = make(name, n, numel, **settings), make(name, n, numel, **settings)
    total = torch.linspace(-3.0, 3.0, numel)
    expected = total.clone()
    for t in range(n):
        expected += scale * apart.next()
        if t == 3:  # a state saved by the one continues the other
            state = fused.state_dict()
            fused = make(name, n, numel, **settings)
            fused.load_state_dict(state)
        assert fused.add_to(total, scale) is total
        assert torch.equal(total, expected)
        assert torch.equal(apart.state_dict()["buffers"], fused.state_dict()["buffers"])
        assert fused.round == t + 1
    with pytest.raises(HorizonError, match="round 5"):
        fused.add_to(total, scale)
    assert torch.equal(total, expected)


def test_adding_in_place_checks_what_it_adds_to() -> None:
    stream = make("buffers", 4, dtype=torch.float32)
    for wrong in (torch.zeros(4), torch.zeros(3, dtype=torch.float16), torch.zeros(3, 1), torch.zeros(3, dtype=int)):
        before = wrong.clone()
        with pytest.raises(BadInput, check=coded("wrong-form", "vector of shape")):
            stream.add_to(wrong)
        assert torch.equal(before, wrong)
    assert stream.round == 0  # a refused call draws nothing
    wide = torch.ones(3, dtype=torch.float64)  # float32 noise, scaled in float32, on a float64 sum
    expected = wide + (0.3 * make("buffers", 4, dtype=torch.float32).next()).double()
    assert torch.equal(stream.add_to(wide, 0.3), expected)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_are_the_row_and_do_not_depend_on_threads(name: str) -> None:
    numel = CHUNK + 2048 + 5
    row = rows(make(name, 1, numel), 1)[0]
    cuts = []
    for threads in (1, 3):
        pieces: dict[int, np.ndarray] = {}

        def keep(lo: int, piece: torch.Tensor, pieces: dict[int, np.ndarray] = pieces) -> None:
            pieces[lo] = piece.numpy().copy()

        make(name, 1, numel, threads=threads).each_piece(keep)
        cuts.append(sorted((lo, len(piece)) for lo, piece in pieces.items()))
        assert np.array_equal(np.concatenate([pieces[lo] for lo in sorted(pieces)]), row)
    assert cuts[0] == cuts[1]
    assert max(size for _, size in cuts[0]) <= CHUNK  # what stays in the cache


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_round_that_fails_half_way_is_never_continued(name: str, threads: int) -> None:
    """Some chunks have their next state and others do not: going on would apply another matrix than was charged."""
    n, numel = 4, 4 * CHUNK
    whole = rows(make(name, n, numel, dtype=torch.float32), n)
    stream = make(name, n, numel, dtype=torch.float32, threads=threads)
    stream.next()
    saved = stream.state_dict()

    def fail(lo: int, _: torch.Tensor) -> None:
        if lo >= CHUNK:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        stream.each_piece(fail)
    for go_on in (stream.next, stream.state_dict, lambda: stream.add_to(torch.zeros(numel))):
        with pytest.raises(BadInput, check=coded("unreadable", "noise state")):
            go_on()
    stream.skip(2)
    assert np.array_equal(stream.next().numpy(), whole[2])
    with pytest.raises(OSError, match="disk full"):
        stream.each_piece(fail)
    stream.load_state_dict(saved)
    assert np.array_equal(stream.next().numpy(), whole[1])


def test_out_is_filled_in_place_and_checked() -> None:
    stream = make("buffers", 4)
    out = torch.empty(3, dtype=torch.float64)
    assert stream.next(out) is out
    for wrong in (torch.empty(4, dtype=torch.float64), torch.empty(3), torch.empty(3, 1, dtype=torch.float64)):
        with pytest.raises(BadInput, check=coded("wrong-form", "vector of shape")):
            stream.next(wrong)
    assert stream.round == 1  # a refused call draws nothing


def test_a_foreign_or_torn_state_is_refused() -> None:
    stream = make("buffers", 9)
    rows(stream, 3)
    state = stream.state_dict()
    foreign = BufferStream(3, SecureNoise(KEY[::-1]), 9, OMEGA, THETA, dtype=torch.float64)
    with pytest.raises(BadInput, check=coded("differs", "noise state")):
        foreign.load_state_dict(state)
    other = BufferStream(3, SecureNoise(KEY), 9, OMEGA * 0.99, THETA, dtype=torch.float64)
    with pytest.raises(BadInput, check=coded("differs", "noise state")):
        other.load_state_dict(state)
    for damage in (
        {"round": 10},
        {"round": -1},
        {"round": True},
        {"buffers": state["buffers"][:2]},
        {"buffers": state["buffers"].float()},
        {"buffers": state["buffers"] * float("nan")},
        {"extra": 1},
    ):
        with pytest.raises(BadInput):
            stream.load_state_dict({**state, **damage})
    with pytest.raises(BadInput):
        stream.load_state_dict({k: v for k, v in state.items() if k != "round"})
    assert stream.round == 3
    assert KEY.hex() not in str(state)


def test_covariance_is_b_b_transposed() -> None:
    """Empirical covariance of 2e5 independent elements against B B^T; false alarm 1e-9 over all entries together."""
    n, numel = 6, 200_000
    sample = rows(make("buffers", n, numel, dtype=torch.float32), n).astype(np.float64)
    b = dense("buffers", n)
    true = b @ b.T
    empirical = sample @ sample.T / numel
    sd = np.sqrt((true**2 + np.outer(np.diag(true), np.diag(true))) / numel)
    assert (np.abs(empirical - true) < 6.9 * sd).all()  # two-sided normal tail 5e-12 each, 36 entries


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"numel": 0}, coded("out-of-range", "numel = 0")),
        ({"horizon": 0}, coded("out-of-range", "horizon = 0")),
        ({"restart_every": 0}, coded("out-of-range", "restart_every = 0")),
        ({"dtype": torch.float16}, coded("wrong-form", "dtype")),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: Coded) -> None:
    full = {"numel": 3, "noise": SecureNoise(KEY), "horizon": 3, **arguments}
    with pytest.raises(BadInput, check=message):
        IndependentStream(**full)  # type: ignore[arg-type]


def test_bad_coefficients_are_named() -> None:
    noise = SecureNoise(KEY)
    with pytest.raises(BadInput, check=coded("wrong-form", "beta of shape (2,)")):
        WindowStream(3, noise, 3, np.array([1.0, np.nan]))
    with pytest.raises(BadInput, check=coded("out-of-range", "c[0]")):
        InverseBandStream(3, noise, 3, np.array([0.0, 1.0]))
    with pytest.raises(BadInput, check=coded("wrong-form", "column_norms of shape (2,)")):
        InverseBandStream(3, noise, 3, C, column_norms=np.ones(2))
    with pytest.raises(BadInput, check=coded("wrong-form", "2 omega, 1 theta")):
        BufferStream(3, noise, 3, np.ones(2), np.ones(1))
    with pytest.raises(BadInput, check=coded("wrong-form", "row")):
        MemoryStream(3, noise, 3, lambda t: np.ones(3)).next()


@pytest.mark.parametrize("name", NAMES)
def test_the_accelerators_arithmetic_is_the_same_mechanism(name: str) -> None:
    """The tensor branch, run on host tensors: equal to the host branch up to rounding, and resumed bit for bit."""
    n = 23
    host = rows(make(name, n, restart_every=9), n)
    stream, again = make(name, n, restart_every=9), make(name, n, restart_every=9)
    stream._ops = again._ops = DEVICE
    device = rows(stream, n)
    np.testing.assert_allclose(device, host, rtol=0, atol=1e-12)
    again.skip(13)
    assert np.array_equal(rows(again, n - 13), device[13:])
    fused = make(name, n, restart_every=9)
    fused._ops = DEVICE
    assert np.array_equal(fused.add_to(torch.ones(3, dtype=torch.float64), 2.0).numpy(), 1.0 + 2.0 * device[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("source", ["aes-256-ctr", "philox-4x32-10"])
def test_cuda_streams_agree_with_the_host(source: str) -> None:
    noise = SecureNoise(KEY, source=source)  # type: ignore[arg-type]
    host = BufferStream(50_000, noise, 4, OMEGA, THETA)
    cuda = BufferStream(50_000, noise, 4, OMEGA, THETA, device="cuda")
    for _ in range(4):
        torch.testing.assert_close(cuda.next().cpu(), host.next(), rtol=1e-4, atol=5e-4)
