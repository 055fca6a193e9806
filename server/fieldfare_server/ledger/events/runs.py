"""What happens to a run, and to its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class SeedDrawn(Event):
    """The seed of a certified charge was drawn, before its run is started."""

    action = "run.certify"
    attempt: int  # its number among the seeds of this law, from 1; of this plan in rows without `law`
    plan_digest: str
    seed: str  # 16 bytes, hex
    law: str | None = None  # `Plan.law`. None in rows that commit d6c95ba or an earlier one wrote.


@dataclass(frozen=True)
class Started(Event):
    """A run was started, and what it plans to spend is reserved."""

    action = "run.start"
    plan_digest: str
    rounds: int
    planned: str  # the loss that it plans, JSON of `PrivacyLoss`
    price: str  # what it reserves, JSON of `Price`
    noise_source: str
    key_commitment: str
    trust_node_ids: bool
    format: int  # `formats.FORMAT`
    strategy: str | None  # SHA-256 of the stored strategy that it applies
    accounting: str
    most: int | None  # the most that it can cost one user, in units, where it is charged to odometers
    plan: str  # SHA-256 of its plan
    # Digest of what it was pledged of the users that there were, where it is charged to odometers.
    pledged: str | None = None
    largest: int | None = None  # as of `populations.Tightened`
    # `multiplier`; of discrete noise also `scale`, in cells, and `values`, which it releases in all. None in
    # rows that commit d6c95ba or an earlier one wrote.
    noise: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Resumed(Event):
    """A coordinator took a run over."""

    action = "run.resume"
    token: int
    next_round: int


@dataclass(frozen=True)
class RunInterrupted(Event):
    """A coordinator gave a run back before its end."""

    action = "run.interrupt"
    message: str


@dataclass(frozen=True)
class Requested(Event):
    """A person asked a run to stop, to pause, or (None) to go on."""

    action = "run.request"
    request: str | None


@dataclass(frozen=True)
class Finished(Event):
    """A run ended: what it spent stays charged, the rest returns."""

    action = "run.finish"
    state: str
    message: str
    spent: str
    settled: str  # the composed loss of all ended runs of the population, with this one
    # Digest of what ended runs have cost each user, where the run was charged to odometers.
    odometers: str | None = None
    whole: bool | None = None  # it is charged all that it reserved: what it released is not known


@dataclass(frozen=True)
class KeyDestroyed(Event):
    """The noise key of an ended run was destroyed, with its noise states and checkpoints."""

    action = "run.key_destroyed"
    key_commitment: str


@dataclass(frozen=True)
class Audited(Event):
    """A residual test of a run's noise was made."""

    action = "run.audit"
    result: Mapping[str, object]

    def body(self) -> dict[str, object]:
        """The result itself."""
        return dict(self.result)

    @classmethod
    def of(cls, body: dict[str, object]) -> Self:
        """A test may tell whatever it finds."""
        return cls(body)


@dataclass(frozen=True)
class Opened(Event):
    """A round was opened, before anything of it was sent."""

    action = "round.open"
    attempt: int
    noise_row: int
    cohort_size: int
    cohort: str  # SHA-256 of who was selected


@dataclass(frozen=True)
class RoundClosed(Event):
    """The set of a masked round is final, and so is its masked sum: it may be opened, this once."""

    action = "round.close"
    attempt: int
    closing: str  # SHA-256 of the file with the masked sum, who is in it, and the boxes
    nodes: int  # how many nodes are in it


@dataclass(frozen=True)
class Voided(Event):
    """A round was closed, and nothing of it was released."""

    action = "round.void"
    attempt: int
    reason: str
    reports: int
    rejects: Mapping[str, object]


@dataclass(frozen=True)
class Committed(Event):
    """A round was charged; what it made may be seen."""

    action = "round.commit"
    spent: str  # the run's loss with this round
    epsilon: float  # `spent` at the population's delta
    checkpoint: str
    attempt: int
    noise_row: int
    participants: str  # SHA-256 of who took part
    participant_count: int
    statistics: str  # SHA-256 of the statistics
    reports: int
    rejects: Mapping[str, object]
    nonce: str | None = None
    # Digest of what it cost each participant, where the run is charged to odometers.
    charges: str | None = None
    # `files.checkpoint.model_digest` of the released model. None in rows as of those without `Started.noise`.
    model: str | None = None
    # Of a masked round: `masking.receipts.Receipt.text`. None in rows that earlier versions wrote.
    receipt: str | None = None
