"""The blinder's own noise, which hides the sum of a round from the server: the plan's mechanism once more, with a
multiplier, a key and nonces of its own.

Let S_t be the whole cells of round t's sum, A_t and B_t those of the server's and of the blinder's row of noise, and
M_t the sum of the masks. The blinder answers M_t - B_t, so what the server opens is S_t + B_t; it releases S_t + B_t +
A_t. All of it is modulo the ring, and all of it is read last.

**Who sees what.** Masked words are uniform and independent of everything but their sum (one-time masks; AES and HPKE
are assumed to be good). So all that the server ever holds of the data is a function of its own coins and of the
S_t + B_t. A node that tells it its words or seeds takes its own words out of S_t; what is left is the sum of the others
plus B_t, and how many others there are does not matter. B_t is in no other message, file or digest: a receipt has the
digest of M_t - B_t, which is as uniform as M_t.

**To the server** S_t + B_t, t = 1, 2, ... is the mechanism of `fieldfare.mechanisms` at `multiplier`: what one user
moves is the same (`Grid.charged_clip`), rounding to cells is post-processing (`privatise`), and what later rounds train
from is a function of S_t + B_t and of coins that know nothing of B. Its loss is `AggregationSpec.under_blinder`.
It holds for a server that follows the protocol, whoever reads all it sees. One that deviates chooses whom it asks, and
tells nodes without budgets how to clip: what nodes and blinder refuse bounds it, and no figure here is about it.

**To everybody else**, the blinder too, S_t + B_t is a sum that B_t moved by what is the same in both worlds, and A_t
hides it as it hides any: the charge is that of the server's noise alone. A_t's nonce is bound to S_t + B_t, and B_t's
to the question, which has boxes and no data; the two keys are two parties' own.

**When.** B_t's nonce comes from fresh bits and from the question after the question is final, and stands in the
blinder's journal with the digest of its answer before the answer leaves. The same question has the same answer, or none
(another processor may round another way). One question a round, rounds one after another, so each row serves one sum. A
void round asks nothing. An answer counts whether or not its round is committed: a run's whole loss is charged in the
blinder's journal with its first answer. A journal that went back would answer a round under a fresh nonce: two
releases, of which one is charged. Receipts show that where both reach the ledger; where they do not, nothing does.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fieldfare.cost import Cost
from fieldfare.costing import Sealed
from fieldfare.errors import NotFound
from fieldfare.masking.words import Words
from fieldfare.mechanisms import build
from fieldfare.noise import SecureNoise
from fieldfare.plan_tables import ParticipationSpec
from fieldfare.privatise import Grid, Privatiser
from fieldfare.streams.base import Stream

# Share by which a blinder's noise is more than the plan says: two machines' searches end at other last digits.
SPARE = 2.0**-20


def terms_of(multiplier: float, privatiser: Privatiser) -> tuple[float, ...]:
    """What a run must know of such noise before it begins: multiplier, and log2 of the spacing; () of none."""
    return (multiplier, float(privatiser.spacing_log2)) if multiplier else ()


@dataclass(frozen=True)
class BlinderNoise:
    """The noise that a blinder adds in runs of one plan. Its fields are finite JSON, as the blinder keeps them."""

    mechanism: Mapping[str, Any]  # these three are the plan's
    participation: Mapping[str, Any]
    rounds: int
    entries: Mapping[str, str]  # what optimisers decided for the mechanism, base64
    multiplier: float  # standard deviation of z, in clip norms
    std: float  # the same in units of the sum
    spacing: float  # of the run's grid
    bits: int  # of a word
    mu_squared: float  # what a whole run costs to the server

    @classmethod
    def of(cls, cost: Cost, privatiser: Privatiser, entries: Mapping[str, bytes]) -> Self | None:
        """That of a run of `cost`, whose sums `privatiser` makes releases; None where the plan has none."""
        plan, ratio = cost.plan, cost.plan.aggregation.noise_ratio * (1 + SPARE)
        if (loss := plan.aggregation.under_blinder(cost.loss, cost.resolution)) is None:
            return None
        mechanism, participation = (each.model_dump(mode="json") for each in (plan.mechanism, plan.participation))
        decided = {name: base64.b64encode(entry).decode() for name, entry in entries.items()}
        noise = ratio * cost.noise_multiplier, ratio * privatiser.std, 2.0**privatiser.spacing_log2, privatiser.bits
        return cls(mechanism, participation, plan.run.rounds, decided, *noise, loss.mu_squared)

    @property
    def privatiser(self) -> Privatiser:
        """Its noise in cells, on the grid of the run."""
        return Privatiser(self.std, Grid(self.spacing), bits=self.bits)

    def stream(self, numel: int, noise: SecureNoise, nonces: Sequence[bytes]) -> Stream:
        """Its rows, from row 0 on. nonces: of the rounds, kept by reference."""
        missing = NotFound("the mechanism of a plan", "what an optimiser decided for it is not in the blinder's file.")
        participation = ParticipationSpec.model_validate(self.participation).build()
        decided = {name: base64.b64decode(entry) for name, entry in self.entries.items()}
        mechanism = build(self.mechanism, self.rounds, participation, Sealed(decided, missing))
        return self.privatiser.stream(mechanism, numel, noise.with_nonces(nonces, mechanism.birth))

    def take_from_(self, masks: Words, stream: Stream) -> Words:
        """masks <- masks - the next row, modulo the ring, in place; return `masks`."""
        taken = self.privatiser.add_to_words_(np.negative(masks, out=masks), stream)  # overflow is meant
        return np.negative(taken, out=taken)
