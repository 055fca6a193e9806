"""What commits a round: the metadata of its checkpoint; and what is released with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import CheckpointError
from fieldfare.lazily import torch
from fieldfare_server.ledger import Outcome
from fieldfare_server.optimizers import State
from fieldfare_server.run.presence.selection import Users
from fieldfare_server.run.rehearsal import Statistics
from fieldfare_server.run.round.ridden import Past
from fieldfare_server.run.round.running_noise import StreamFacts

# Fields that the records of some runs lack.
_OPTIONAL = ("nonce", "nonces", "strategy", "charges", "model", "metrics", "receipt")


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """All that commits one round: the metadata of its checkpoint, as JSON. The field names are the file's keys."""

    round: int
    attempt: int
    plan: str  # the plan's digest
    schema: str  # the digest of the model's schema
    participants: Users  # indices of the users whose updates are in the sum, shape (n,)
    spent: PrivacyLoss  # of the run, this round included
    statistics: Statistics
    rejects: dict[str, int]  # replies that were dropped or cut, by reason
    reports: int  # users whose updates are in the sum
    clip: float  # the clip norm of the next round
    score: dict[str, float]
    noise: StreamFacts
    # Bits of the run's key, hex. The file holds the participants and its digest is shown: without these bits,
    # anyone could try cohorts against the digest.
    blind: str
    nonce: str | None = None  # this round's, hex; None for a run without nonces
    # SHA-256, hex, of the nonces of all rounds so far, this one included. The ledger holds the others.
    nonces: str | None = None
    # Under individual accounting: what the round costs each of `participants`, in units of 2^-44 mu^2.
    charges: list[int] | None = None
    # SHA-256 of the stored strategy whose noise is in the sum; None where none was stored when the round was made.
    strategy: str | None = None
    # Digest of the released model (`files.checkpoint.model_digest`); None in records of earlier versions.
    model: str | None = None
    metrics: list[list[float]] | None = None  # of a run with metrics: `Released.metrics`
    receipt: str | None = None  # of a masked round: what the blinder signed (`masking.receipts`)

    def to_json(self) -> dict[str, object]:
        """Return finite JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in _OPTIONAL:
            if fields[name] is None:
                del fields[name]
        return {**fields, "participants": self.participants.tolist(), "spent": self.spent.to_json()}

    @classmethod
    def from_json(cls, meta: Mapping[str, Any]) -> Self:
        """Return the record that `to_json` wrote. Raises `CheckpointError` on anything else."""
        try:
            meta = {**dict.fromkeys(_OPTIONAL), **meta}
            fields = {name: meta[name] for name in cls.__dataclass_fields__}
            participants = np.asarray(meta["participants"], np.int64)
            return cls(**{**fields, "participants": participants, "spent": PrivacyLoss.from_json(meta["spent"])})
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError("the metadata of a checkpoint", f"is not a round's record ({error}).") from None

    def outcome(self) -> Outcome:
        """Return what the ledger is told."""
        return Outcome(
            self.participants,
            self.spent,
            self.statistics,
            self.rejects,
            self.reports,
            nonce=None if self.nonce is None else bytes.fromhex(self.nonce),
            charges=None if self.charges is None else np.asarray(self.charges, np.int64),
            model=self.model,
            receipt=self.receipt,
        )


@dataclass(frozen=True, eq=False)
class Released:
    """The newest model whose charge is durable, and what the next round starts from."""

    next_round: int
    params: torch.Tensor  # flat float32 (d,)
    optimizer_state: State
    clip: float  # the clip norm of the next round
    spent: PrivacyLoss = field(default_factory=PrivacyLoss)
    score: dict[str, float] = field(default_factory=dict)
    # Per coordinate of the newest mean update; 0 until a round is committed in this process.
    noise_std: float = 0.0
    metrics: Past = ()  # the metrics' noised sums, one row for each round of the moving mean
