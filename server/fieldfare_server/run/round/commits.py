"""What commits: each round's checkpoint, then its charge, and only then its model is shown; one at a time or
in groups.

Where the account commits in groups (simulated users only), rounds go on from `newest`, which no one but the
nodes of this process sees, and `released` stays at the last round whose charge is durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fieldfare.lazily import torch
from fieldfare_server import faults
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.rehearsal import Account
from fieldfare_server.run.round.noise_state import NoiseState
from fieldfare_server.run.round.record import Released, RoundRecord
from fieldfare_server.run.round.running_noise import StreamFacts

# The digest that a rehearsal, which stores nothing, gives to its account.
NO_CHECKPOINT = "0" * 64
# How long a group of rounds goes on, by the processor and by the clock: what a crash of a simulation may cost, and how
# late its rounds are shown.
GROUP_WORK, GROUP_SECONDS = 0.5, 2.0

Show = Callable[[Released], None]


@dataclass(frozen=True, eq=False)
class _Held:
    """A round that is done and not durable yet. Nothing of it may be seen."""

    record: RoundRecord
    released: Released
    show: Show


class Commits:
    """The account and the files of one run: what makes its rounds durable, and what of them may be seen."""

    def __init__(
        self, account: Account, files: RunFiles | None, noise_state: NoiseState, rounds: int, start: Released
    ) -> None:
        """
        Args:
            files: None for a rehearsal, which stores nothing.
            rounds: of the plan.
            start: what the next round starts from.
        """
        self._account, self._files, self._noise_state, self._rounds = account, files, noise_state, rounds
        self.released = start  # the newest model that may be seen
        self.newest = start  # the newest model that there is
        self._held: list[_Held] = []
        self._held_since = 0.0, 0.0  # by the processor, and by the clock
        # The noise's state after the last round that is held.
        self._held_noise: tuple[dict[str, torch.Tensor], StreamFacts] = {}, {}

    def commit(self, opened: OpenRound, record: RoundRecord, made: Released, show: Show) -> None:
        """Make a round durable, then show it: now, or with its group. Raises as `Rounds.commit_round`.

        Args:
            opened: the round in the ledger.
            record: what the ledger and a resumed run need of it.
            made: the model that it gives.
            show: called with `made` once its charge is durable.
        """
        if self._account.grouped:
            self._hold(opened, _Held(record, made, show))
            return
        # Checkpoint: the model with all that its commit needs, written before the charge, seen by no one yet.
        digest = self._write_checkpoint(record, made, *self._noise_state.take())

        # Commit: the charge becomes durable.
        self.commit_written(opened, record, digest)

        # Release: only now may the model be seen.
        self.newest = self.released = made
        faults.point("strategy.released")
        show(made)

    def _write_checkpoint(
        self, record: RoundRecord, made: Released, tensors: Mapping[str, torch.Tensor], facts: StreamFacts
    ) -> str:
        """Write the state after the round of `record`; returns its digest. tensors, facts: the noise's state then."""
        if self._files is None:
            return NO_CHECKPOINT
        named = {**prefixed("opt.", made.optimizer_state), **prefixed("noise.", tensors)}
        meta = replace(record, noise=facts).to_json()
        return self._files.write(record.round, {"params": made.params, **named}, meta)

    def commit_written(self, opened: OpenRound, record: RoundRecord, digest: str) -> None:
        """Commit a round whose checkpoint is written: of `digest`, with the metadata `record`."""
        self._account.commit_round(opened, record.outcome(), digest)
        self._promote(digest)

    def _promote(self, digest: str) -> None:
        if self._files is not None:
            self._files.promote(digest)

    def go_on_from(self, released: Released) -> None:
        """Continue from the newest committed checkpoint."""
        self.newest = self.released = released

    # -- groups of rounds of simulated users -----------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether a group of rounds is under way."""
        return bool(self._held)

    def _hold(self, opened: OpenRound, held: _Held) -> None:
        """Go on from a round that is not durable yet; commit its group if that has lasted long enough."""
        self._account.hold_round(opened, held.record.outcome())
        if not self._held:
            self._held_since = time.process_time(), time.monotonic()
        self._held.append(held)
        # Taken after each round, not at the commit: the next round may have drawn from the stream by then.
        self._held_noise = self._noise_state.take()
        self.newest = held.released
        last = held.released.next_round == self._rounds
        worked, lasted = time.process_time() - self._held_since[0], time.monotonic() - self._held_since[1]
        if last or worked >= GROUP_WORK or lasted >= GROUP_SECONDS:
            self.commit_held()

    def commit_held(self) -> None:
        """Make the held rounds durable, with one checkpoint and one transaction; then show them, in order.

        Also in the middle of a later round, as after Ctrl-C there. Raises as `commit`.
        """
        if not self._held:
            return
        last = self._held[-1]
        digest = self._write_checkpoint(last.record, last.released, *self._held_noise)
        # One transaction for all: either every held round is charged, or a crash repeats them all under fresh nonces.
        self._account.commit_group(digest)
        self._promote(digest)
        held, self._held, self._held_noise = self._held, [], ({}, {})
        for each in held:
            self.released = each.released
            faults.point("strategy.released")
            each.show(each.released)


def prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return `tensors`, each name with `prefix` before it."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return those of `tensors` whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
