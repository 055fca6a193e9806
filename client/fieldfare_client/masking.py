"""How a node masks its reply: for the blinder that its own configuration names, and for no other.

The configuration of a node says `blinder="ffb1:..." node-key="FILE"` (`--node-config`); a message never does. A node
that names a blinder sends nothing in clear any more, whoever asks. With the key in the file, which no message holds
either, it signs each box, so that the blinder knows the nodes that it admitted. Beside it, in FILE.blinder, lies the
furthest end of the blinder's journal that it was shown: a blinder that is put back from an older copy is refused.
"""

from __future__ import annotations

import math
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from fieldfare.atomic import make_file
from fieldfare.errors import BadInput, Refused, Unreadable
from fieldfare.masking.boxes import Purpose, read_key, seal, write_node_key
from fieldfare.masking.receipts import BlinderHead, BlinderWentBack
from fieldfare.masking.words import RINGS, SEED_BYTES, add_mask_, encode
from fieldfare_client import budget
from fieldfare_client.witness import keep
from fieldfare_flower.masked import Masking, Seal, digest_of_config, write_reply
from fieldfare_flower.messages import Occasion

if TYPE_CHECKING:
    from fieldfare.cost import Cost

BLINDER = "blinder"  # the key of a node's configuration with the public key of its blinder
NODE_KEY = "node-key"  # the key of a node's configuration with the file of the key that signs its boxes


class NotMasked(Refused):
    """This node sends masked sums only, and was asked for one in clear."""


class BlinderNotPinned(Refused):
    """This node does not mask for the blinder that the server names."""


class ConfigurationDiffers(Refused):
    """This node was given another run configuration than the instruction names, as no other node of the sum may be."""


def make_node_key(file: Path) -> str:
    """The public key of the key in `file`, which is made where there is none. Raises `BadInput` as `node_key`."""
    with suppress(FileExistsError):
        make_file(file, secrets.token_bytes(32))
    return write_node_key(node_key(file))


def node_key(file: Path) -> bytes:
    """The private key in `file`, 32 bytes. Raises `BadInput` where it is none, or others can read it."""
    what = f"{NODE_KEY} = {str(file)!r}"
    try:
        key, mode = file.read_bytes(), file.stat().st_mode & 0o777
    except OSError as error:
        raise Unreadable(what, f"cannot be read ({error.strerror}).", "`fieldfare node-key`") from None
    if len(key) != 32 or mode & 0o077:
        raise Unreadable(what, f"has {len(key)} bytes and mode {mode:o}.", "32 bytes that nobody else can read")
    return key


def masking_of(context: Context, content: RecordDict) -> Masking | None:
    """How the reply to the instruction `content` is masked; None where it is sent in clear.

    Raises `NotMasked`, `BlinderNotPinned`, `ConfigurationDiffers`; `BlinderWentBack` where its journal ends before
    a row that was shown, or is not shown any more; `BadReply` for a malformed instruction; `BadInput` without a key.
    """
    masking, pinned = Masking.read(content), str(context.node_config.get(BLINDER, ""))
    if masking is None:
        if pinned:
            raise NotMasked("an instruction without masks", f"this node's configuration has a {BLINDER}.")
        return None
    if masking.blinder != pinned:
        named = "another one" if pinned else "none"
        raise BlinderNotPinned("the instruction's blinder", f"this node's configuration names {named}.")
    if masking.config != digest_of_config(context.run_config):
        raise ConfigurationDiffers("the run's configuration", "is not the one that the instruction names.")
    node_key(_file(context))
    _watch(masking.head, read_key(pinned)[1], Path(f"{_file(context)}.blinder"))
    return masking


def _watch(shown: str, key: str, file: Path) -> None:
    """Compare the end of the journal of the blinder that signs by `key` with that in `file`, and keep the further."""
    what = "the blinder's journal"
    near = f"its newest copy; where that is lost, another blinder with a new key. {str(file)!r} has what was seen"
    try:
        seen = BlinderHead.parse(file.read_text().strip()) if file.exists() else None
        head = BlinderHead.parse(shown) if shown else None
    except (OSError, UnicodeDecodeError, BadInput) as error:
        raise BlinderWentBack(what, f"its end, shown or kept, cannot be read ({error}).", near) from None
    if seen is not None and seen.key != key:  # this node's operator has named another one since
        seen = None
    if head is not None and head.key != key:
        raise BlinderWentBack(what, "what is shown as its end is another blinder's.", near)
    if seen is not None and (head is None or head.denies(seen)):
        now = "its end is not shown any more" if head is None else f"it ends in row {head.row}"
        refused = BlinderWentBack(what, f"{now}, and its row {seen.row} was shown before.", near)
        refused.told = seen.text
        raise refused
    if head is not None and (seen is None or head.row > seen.row):
        keep(file, head.text)


def _file(context: Context) -> Path:
    return Path(str(context.node_config.get(NODE_KEY, "")))


def mask_reply(
    masking: Masking,
    context: Context,
    cost: Cost | None,
    occasion: Occasion,
    update: NDArray[np.float32],
    users: int,
    counts: tuple[float, ...],
) -> RecordDict:
    """The masked reply that says what a plain one with these figures says, under a mask that no other reply has.

    cost: what `budget.charge` returned. update: the queries' sums of clipped updates, one after another, finite, shape
    (queries x d,). counts: sums of what rides beside them. Raises `NodeBudgetRefused` where the masks are not those of
    the plan, or would hide the sum of nobody.
    """
    budget.require_ring(masking, cost, update.size + len(counts), users)
    # Each as the server weighs it in a plain sum: the words then stand for the same cells.
    ring, queries = (2.0**masking.spacing_log2, masking.bits), update.reshape(len(masking.shares), -1)
    parts = [(query, math.sqrt(share)) for query, share in zip(queries, masking.shares, strict=True)]
    try:
        with np.errstate(over="ignore"):
            words = encode([*parts, (np.asarray(counts, np.float64) * masking.weights, 1.0)], *ring)
    except BadInput:
        # The server chose this ring. An error in place of the reply would tell it that this update is larger.
        words = np.zeros(update.size + len(counts), RINGS[masking.bits][0])
    seed = secrets.token_bytes(SEED_BYTES)
    add_mask_(words, seed)
    about = occasion.run, occasion.round, occasion.attempt, context.node_id, words.size
    purpose = Purpose(*about, masking.plan, masking.instruction)
    box = seal(read_key(masking.blinder)[0], seed, purpose)
    return write_reply(occasion, words, users, Seal.of(box, purpose, masking.bits, node_key(_file(context))))
