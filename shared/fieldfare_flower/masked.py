"""The messages of masked sums: what a node is told, what it answers, and what the server asks the blinder.

A masked reply has no update and no counts in clear: its words hold both, under a mask whose seed only the blinder
reads. Neither the server nor the blinder is trusted to send anything well-formed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, MetricRecord, RecordDict

from fieldfare.errors import BadInput
from fieldfare.masking.boxes import BOX_BYTES, Purpose
from fieldfare.masking.words import RINGS, Words
from fieldfare_flower.messages import (
    HEADER,
    MASKED_VERSION,
    MASKING,
    REPORT,
    SEAL,
    Occasion,
    read_report,
    records_of,
)
from fieldfare_flower.npy import BadReply, SharedArray, read_array

VERSION = 1
"""Of the masks themselves: another scheme has another number."""
MASKED, WORDS = "masked", "words"
ASK, MASKS, RECEIPT = "ask", "masks", "receipt"
_MOST = 1 << 62


@dataclass(frozen=True)
class Masking:
    """What a node must know to mask its reply to an instruction.

    Args:
        blinder: the blinder's public key, as nodes pin it.
        spacing_log2: the grid's spacing is 2 to this.
        bits: of a word.
        plan: SHA-256 of the plan, hex.
        shares: of each query.
        weights: of each number that rides beside the update.
    """

    blinder: str
    spacing_log2: int
    bits: int
    plan: str
    shares: tuple[float, ...] = (1.0,)
    weights: tuple[float, ...] = ()

    @property
    def spacing(self) -> float:
        """Of the grid."""
        return 2.0**self.spacing_log2

    def write(self, content: RecordDict) -> None:
        """Put it into the instruction `content`, which then is of the version that knows masks."""
        known: dict[str, ConfigRecordValues] = {"blinder": self.blinder, "spacing_log2": self.spacing_log2}
        known |= {"version": VERSION, "bits": self.bits, "plan": self.plan}
        known |= {"shares": list(self.shares), "weights": list(self.weights)}
        content[MASKING] = ConfigRecord(known)
        content.config_records[HEADER]["version"] = MASKED_VERSION

    @classmethod
    def read(cls, content: RecordDict) -> Masking | None:
        """What an instruction says of masks; None for none. Raises `BadReply` for anything else."""
        record = records_of(content, ConfigRecord).get(MASKING)
        if record is None:
            return None
        blinder, log2, bits, plan = (record.get(name) for name in ("blinder", "spacing_log2", "bits", "plan"))
        shares, weights = record.get("shares"), record.get("weights")
        if record.get("version") != VERSION or not isinstance(blinder, str) or not isinstance(plan, str):
            raise BadReply("version", "masks of another kind")
        if type(log2) is not int or abs(log2) > 900 or type(bits) is not int or bits not in RINGS:
            raise BadReply("schema", "no ring")
        if not _is_numbers(shares) or not _is_numbers(weights) or not shares:
            raise BadReply("schema", "no shares and weights")
        return cls(blinder, log2, bits, plan, tuple(shares), tuple(weights))  # type: ignore[arg-type]


def _is_numbers(values: object) -> bool:
    """Whether it is a list of finite numbers of at least 0."""
    return isinstance(values, list) and all(type(v) is float and 0 <= v < math.inf for v in values)


def write_reply(occasion: Occasion, words: Words, users: int, box: bytes) -> RecordDict:
    """A node's masked reply. words: masked, shape (numel,). users: how many it sums."""
    return RecordDict(
        {
            HEADER: ConfigRecord({**occasion.to_config(), "version": MASKED_VERSION}),
            MASKED: ArrayRecord({WORDS: SharedArray(words)}),
            REPORT: MetricRecord({"users": users}),
            SEAL: ConfigRecord({"box": box}),
        }
    )


def read_reply(content: RecordDict, occasion: Occasion, sent: int, numel: int, bits: int) -> tuple[Words, int, bytes]:
    """(words, users, box) of a node's reply to `occasion`. sent: how many users it was asked to train.

    Raises `BadReply` as `TrainReply.read`; its box is not looked into.
    """
    _, users = read_report(content, occasion, sent, MASKED, {"users"})
    records = records_of(content, ConfigRecord)
    if set(records) != {HEADER, SEAL} or set(records[SEAL]) != {"box"}:
        raise BadReply("schema", "records other than words, a report and a seal")
    box = records[SEAL]["box"]
    if not isinstance(box, bytes) or len(box) != BOX_BYTES:
        raise BadReply("schema", "no box")
    return _words(content, MASKED, numel, bits), users, box


def _words(content: RecordDict, record: str, numel: int, bits: int) -> Words:
    arrays = records_of(content, ArrayRecord).get(record, ArrayRecord())
    if set(arrays) != {WORDS}:
        raise BadReply("schema", "not one vector of words")
    words: Words = read_array(arrays[WORDS], (RINGS[bits][0].name,), (numel,))
    return words


@dataclass(frozen=True)
class MasksAsked:
    """The server's one question about a round: the sum of the masks of its set.

    Args:
        run, round, attempt: which.
        numel, bits: of the masks.
        plan: SHA-256 of the plan, hex.
        nodes: in the set.
        boxes: of each, in the same order.
    """

    run: str
    round: int
    attempt: int
    numel: int
    bits: int
    plan: str
    nodes: tuple[int, ...]
    boxes: tuple[bytes, ...]

    def purposes(self) -> list[Purpose]:
        """What each box must have been made for."""
        about = (self.run, self.round, self.attempt)
        return [Purpose(*about, node, self.numel, self.plan) for node in self.nodes]

    def digest(self) -> str:
        """SHA-256, hex, of the question: of what each box must be for, and of each box, in order."""
        hasher = hashlib.sha256(b"fieldfare.masks.v1\0" + self.bits.to_bytes(8, "big"))
        for purpose, box in zip(self.purposes(), self.boxes, strict=True):
            hasher.update(purpose.info() + box)
        return hasher.hexdigest()

    def write(self) -> RecordDict:
        """The question as a message's content."""
        numbers: dict[str, ConfigRecordValues] = {"round": self.round, "attempt": self.attempt, "numel": self.numel}
        # Ids of nodes have 64 bits, of which Flower's lists of numbers keep 63.
        sets: dict[str, ConfigRecordValues] = {"nodes": list(map(str, self.nodes)), "boxes": list(self.boxes)}
        names: dict[str, ConfigRecordValues] = {"version": VERSION, "run": self.run, "bits": self.bits}
        return RecordDict({ASK: ConfigRecord({**names, "plan": self.plan, **numbers, **sets})})

    @classmethod
    def read(cls, content: RecordDict) -> MasksAsked:
        """Raises `BadReply` on anything but a well-formed question about distinct nodes."""
        record: Mapping[str, Any] = records_of(content, ConfigRecord).get(ASK, ConfigRecord())
        run, plan, bits = record.get("run"), record.get("plan"), record.get("bits")
        numbers = [record.get(name) for name in ("round", "attempt", "numel")]
        nodes, boxes = record.get("nodes"), record.get("boxes")
        if record.get("version") != VERSION or not isinstance(run, str) or not isinstance(plan, str):
            raise BadReply("version", "no question about masks")
        if (
            type(bits) is not int
            or bits not in RINGS
            or not all(type(number) is int and 0 <= number < _MOST for number in numbers)
        ):
            raise BadReply("schema", "no round")
        if not isinstance(nodes, list) or not isinstance(boxes, list) or len(nodes) != len(boxes):
            raise BadReply("schema", "not one box for each node")
        if not all(isinstance(n, str) and n.isascii() and n.isdigit() and len(n) <= 20 for n in nodes):
            raise BadReply("schema", "no ids of nodes")
        if not all(isinstance(box, bytes) and len(box) == BOX_BYTES for box in boxes):
            raise BadReply("schema", "no boxes")
        round, attempt, numel = map(int, numbers)  # type: ignore[arg-type]
        asked = cls(run, round, attempt, numel, bits, plan, tuple(map(int, nodes)), tuple(boxes))
        try:
            asked.digest()
        except BadInput:
            raise BadReply("schema", "no reply of a run") from None
        return asked

    def write_answer(self, masks: Words) -> RecordDict:
        """The blinder's answer. masks: their sum, shape (numel,)."""
        receipt: dict[str, ConfigRecordValues] = {
            "question": self.digest(),
            "masks": digest_of(masks),
            "nodes": len(self.nodes),
        }
        return RecordDict({MASKS: ArrayRecord({WORDS: SharedArray(masks)}), RECEIPT: ConfigRecord(receipt)})

    def read_answer(self, content: RecordDict) -> Words:
        """The sum of the masks. Raises `BadReply` for what does not answer this question."""
        masks = _words(content, MASKS, self.numel, self.bits)
        receipt = records_of(content, ConfigRecord).get(RECEIPT, ConfigRecord())
        if dict(receipt) != {"question": self.digest(), "masks": digest_of(masks), "nodes": len(self.nodes)}:
            raise BadReply("round", "a receipt for another question or answer")
        return masks


def digest_of(words: Words | Sequence[int]) -> str:
    """SHA-256, hex, of words as they travel."""
    return hashlib.sha256(np.ascontiguousarray(words).tobytes()).hexdigest()
