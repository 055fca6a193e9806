"""Stamping ("xS"): independent copies of a mechanism, restarted every r rounds (Choquette-Choo et al. 2023b).

C and B are block-diagonal: squared column sums add over blocks, and the prefix errors of finished blocks add
to those of the running one. The programs that maximise over patterns are in `factorization/stamping.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.errors import Differs, OutOfRange, Unreadable
from fieldfare.factorization.sensitivity import Sensitivity, require_increasing
from fieldfare.factorization.stamping import best_split, block_lengths, block_rounds, tight_patterns
from fieldfare.lazily import scipy, torch
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.noise import SecureNoise
from fieldfare.participation import IN_STEP, MinSeparation, Participation, Poisson, Single
from fieldfare.streams.base import HorizonError, OnDevice, Stream, Take


def stamped(block: Mechanism, restart_every: int | None, rounds: int) -> Mechanism:
    """Return `block` restarted every `restart_every` rounds for `rounds` rounds; `block` itself when it never
    restarts.

    Raises:
        BadInput: the block was not built for `block_rounds(restart_every, rounds)` rounds.
    """
    needed = block_rounds(restart_every, rounds)
    if block.rounds != needed:
        raise OutOfRange(f"a block of {block.rounds} rounds", "is not what one restart runs.", str(needed))
    return block if block.rounds == rounds else Stamped(block, rounds)


class Stamped(Mechanism):
    """Independent copies of `block`, one after the other, the last one cut at `rounds`.

    Formal guarantee: B C = I in every block; round t releases x_t + sigma (B z)_t, and no row of z serves two
    blocks. The sensitivity under min-separation is exact for Toeplitz blocks with non-negative non-increasing
    coefficients (`tight_patterns`, or `best_split` where the separation divides the block), and for uncapped
    fixed orders of such blocks (every offset is tried). Any other block gets the upper bound of `best_split`.
    zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    def __init__(self, block: Mechanism, rounds: int) -> None:
        self.kind = block.kind  # stamping is a setting of the plan's kind, not a kind
        self.block = block
        self.rounds = rounds

    def __repr__(self) -> str:
        return f"Stamped({self.block!r}, rounds={self.rounds})"

    @property
    def whole(self) -> bool:
        return self.block.whole

    @property
    def buffers(self) -> int:
        return self.block.buffers

    @property
    def noise_rows(self) -> int:
        return self.block.noise_rows * len(self.lengths())

    def birth(self, row: int) -> int:
        """Ask the row's block, and count its rounds from the run's first."""
        block, inside = divmod(row, self.block.noise_rows)
        return block * self.block.rounds + self.block.birth(inside)

    def strategy_matrix(self, n: int) -> Floats:
        blocks = [self.block.strategy_matrix(m) for m in self.lengths(n)]
        return np.asarray(scipy.linalg.block_diag(*blocks), dtype=np.float64)

    def noising_matrix(self, n: int) -> Floats:
        blocks = [self.block.noising_matrix(m) for m in self.lengths(n)]
        return np.asarray(scipy.linalg.block_diag(*blocks), dtype=np.float64)

    def row_norms(self, n: int | None = None) -> Floats:
        return np.concatenate([self.block.row_norms(m) for m in self.lengths(n)])

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        done, parts = 0.0, []
        for m in self.lengths(n):
            squared = done + np.square(self.block.prefix_row_norms(m))
            parts.append(squared)
            done = float(squared[-1])
        return np.asarray(np.sqrt(np.concatenate(parts)))

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        lengths, r = self.lengths(rounds), self.block.rounds
        split: list[dict[int, list[int]]] = [{} for _ in lengths]
        for index, pattern in enumerate(patterns):
            require_increasing(pattern)
            for t in pattern:
                if t // r < len(lengths):
                    split[t // r].setdefault(index, []).append(t % r)
        squared = np.zeros(len(patterns))
        for part, m in zip(split, lengths, strict=True):
            if part:
                squared[list(part)] += np.square(self.block.pattern_norms(list(part.values()), m))
        return np.asarray(np.sqrt(squared))

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        lengths = self.lengths(rounds)
        n = sum(lengths)
        b, k = participation.separation_and_count(n)
        k = min(k, -(-n // b))
        block = self.block if isinstance(self.block, ToeplitzMechanism) and self.block.monotone else None
        if isinstance(participation, IN_STEP) and k == -(-n // b):
            return self._fixed_order(b, n, exact=k == 1 or block is not None)
        # Tight patterns change their residue from block to block, so only these sets are sure to contain them.
        free = isinstance(participation, Single | MinSeparation | Poisson)
        if block is not None and k > 1 and block.rounds % b:
            value = tight_patterns(block.strategy_coefs, lengths, b, k)
            if value is not None:
                how = "tight patterns over blocks, by dynamic programming"
                return Sensitivity(value, "exact" if free else "upper bound", how)
        # When b divides the block, tight patterns of neighbouring blocks never exclude each other.
        joint = k == 1 or (free and block is not None and block.rounds % b == 0)
        return self._split(lengths, b, k, joint=joint)

    def applied(self) -> dict[str, Floats]:
        return self.block.applied()

    def applying(self, numbers: Mapping[str, Floats]) -> Stamped:
        return Stamped(self.block.applying(numbers), self.rounds)

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        return StampedStream(self, numel, noise, **settings)

    def lengths(self, n: int | None = None) -> list[int]:
        """Return the rounds of each block among the first n."""
        return block_lengths(self.block.rounds, self._released(n))

    def _fixed_order(self, period: int, n: int, *, exact: bool) -> Sensitivity:
        patterns = [range(start, n, period) for start in range(min(period, n))]
        value = float(self.pattern_norms(patterns, n).max())
        return Sensitivity(value, "exact" if exact else "upper bound", "every offset of the fixed order")

    def _split(self, lengths: list[int], b: int, k: int, joint: bool) -> Sensitivity:
        """Return the best split into blocks; exact when `joint`: the blocks' worst patterns are allowed together."""
        gains: dict[int, Floats] = {}
        for m in set(lengths):
            inside = [self.block.sensitivity(MinSeparation(b, j), m) for j in range(1, min(k, -(-m // b)) + 1)]
            joint = joint and all(s.bound == "exact" for s in inside)
            gains[m] = np.concatenate([[0.0], np.square(inside)])
        how = "best split of the participations into blocks"
        return Sensitivity(best_split(lengths, gains, k), "exact" if joint else "upper bound", how)


class StampedStream(Stream):
    """Runs the block's stream, and at every restart a new one on fresh noise.

    Block s uses rows [s m, (s + 1) m) of z, with m the rows of a full block's C, so no row serves twice.
    """

    def __init__(self, mechanism: Stamped, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> None:
        self.numel, self.dtype, self.round = numel, settings.get("dtype") or torch.float32, 0
        self._mechanism, self._noise, self.device = mechanism, noise, torch.device(settings.get("device", "cpu"))
        self._rows = mechanism.block.noise_rows
        self._block = 0
        self._stream = self._start(0)

    def next(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return row `round` of B z, shape (numel,), and advance. Raises `HorizonError` past the mechanism's rounds."""
        self._ready()
        row = self._stream.next(out)
        self.round += 1
        return row

    def each_piece(self, take: Take) -> None:
        """Hand row `round` of B z to `take`; then advance. Raises `HorizonError` past the mechanism's rounds."""
        self._ready()
        self._stream.each_piece(take)
        self.round += 1

    def state_dict(self) -> dict[str, object]:
        """Return the running block's state and the round of the whole run."""
        return {**{f"block.{key}": value for key, value in self._stream.state_dict().items()}, "round": self.round}

    def position(self) -> dict[str, int | str]:
        """Return `state_dict` without its tensors."""
        return {**{f"block.{key}": value for key, value in self._stream.position().items()}, "round": self.round}

    @property
    def state_bytes(self) -> int:
        """Of the running block's state."""
        return self._stream.state_bytes

    def replayed_rows(self, t: int) -> int:
        """Return `replayed_rows` of the block that t is in."""
        return self._stream.replayed_rows(
            t - max(0, t - 1) // self._mechanism.block.rounds * self._mechanism.block.rounds
        )

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue bit for bit where `state` was taken. Raises `BadInput` for a foreign or torn state."""
        at = state.get("round")
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at <= self._mechanism.rounds:
            raise OutOfRange(
                f"noise state at round {at!r}", f"must be in [0, {self._mechanism.rounds}].", "skip(round)"
            )
        inside = {key.removeprefix("block."): value for key, value in state.items() if key.startswith("block.")}
        if len(inside) + 1 != len(state):
            raise Differs(f"noise state with fields {sorted(state)}", "is not that of a stamped stream.", "skip(round)")
        # A state taken at a restart is the finished block's.
        block = max(0, at - 1) // self._mechanism.block.rounds
        candidate = self._start(block)
        candidate.load_state_dict(inside)
        if candidate.round != at - block * self._mechanism.block.rounds:
            raise Unreadable("noise state", "has a block at another round than the run: it is torn.", "skip(round)")
        self._stream, self._block, self.round = candidate, block, at

    def skip(self, t: int) -> None:
        """Go to row t from the key alone: only the block that t is in is rebuilt."""
        if not 0 <= t <= self._mechanism.rounds:
            near = str(min(max(t, 0), self._mechanism.rounds))
            raise OutOfRange(f"skip to round {t}", f"must be in [0, {self._mechanism.rounds}].", near)
        r = self._mechanism.block.rounds
        block = max(0, t - 1) // r
        self._enter(block)
        self._stream.skip(t - block * r)
        self.round = t

    def _ready(self) -> None:
        if self.round >= self._mechanism.rounds:
            raise HorizonError(
                f"round {self.round}: the mechanism was built and charged for {self._mechanism.rounds} rounds. "
                f"Nearest allowed: round {self._mechanism.rounds - 1}, or a new mechanism with more rounds."
            )
        self._enter(self.round // self._mechanism.block.rounds)

    def _enter(self, block: int) -> None:
        if block != self._block:
            del self._stream  # frees its buffers first, so that the peak is one block's state
            self._stream = self._start(block)
            self._block = block

    def _start(self, block: int) -> Stream:
        noise = self._noise.from_row(block * self._rows)
        return self._mechanism.block.stream(self.numel, noise, dtype=self.dtype, device=self.device)
