"""How a node masks its reply: for the blinder that its own configuration names, and for no other.

The configuration of a node says `blinder = "ffb1:..."` (`--node-config`); a message never does. A node that names a
blinder sends nothing in clear any more, whoever asks.
"""

from __future__ import annotations

import math

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from fieldfare.errors import Refused
from fieldfare.masking.boxes import Purpose, read_key, seal
from fieldfare.masking.masks import add_mask_, fresh_seed
from fieldfare.masking.words import encode
from fieldfare_flower.masked import Masking, write_reply
from fieldfare_flower.messages import Occasion

BLINDER = "blinder"
"""The key of a node's configuration with the public key of its blinder."""


class NotMasked(Refused):
    """This node sends masked sums only, and was asked for one in clear."""


class BlinderNotPinned(Refused):
    """This node does not mask for the blinder that the server names."""


def masking_of(context: Context, content: RecordDict) -> Masking | None:
    """How the reply to the instruction `content` is masked; None where it is sent in clear.

    Raises:
        NotMasked: the node names a blinder, and the instruction no masks.
        BlinderNotPinned: the node names another blinder than the instruction, or none.
        BadReply: the instruction is malformed.
    """
    masking, pinned = Masking.read(content), str(context.node_config.get(BLINDER, ""))
    if masking is None:
        if pinned:
            raise NotMasked("an instruction without masks", f"this node's configuration has a {BLINDER}.")
        return None
    if masking.blinder != pinned:
        named = "another one" if pinned else "none"
        raise BlinderNotPinned("the instruction's blinder", f"this node's configuration names {named}.")
    read_key(pinned)
    return masking


def mask_reply(
    masking: Masking, occasion: Occasion, node: int, update: NDArray[np.float32], users: int, counts: tuple[float, ...]
) -> RecordDict:
    """The masked reply that says what a plain one with these figures says, under a mask that no other reply has.

    Args:
        node: this node's id.
        update: the queries' sums of clipped updates, one after another, finite, shape (queries x d,).
        counts: sums of what rides beside them.
    """
    # Each as the server weighs it in a plain sum: the words then stand for the same cells.
    scales = np.repeat([math.sqrt(share) for share in masking.shares], update.size // len(masking.shares))
    values = np.concatenate([update * scales, np.asarray(counts, np.float64) * masking.weights])
    seed = fresh_seed()
    purpose = Purpose(occasion.run, occasion.round, occasion.attempt, node, values.size, masking.plan)
    words = add_mask_(encode(values, masking.spacing, masking.bits), seed)
    return write_reply(occasion, words, users, seal(read_key(masking.blinder), seed, purpose))
