"""The messages of masked sums: what a node is told, what it answers, and what the server asks the blinder.

A masked reply has no update and no counts in clear: its words hold both, under a mask whose seed only the
blinder reads. Neither the server nor the blinder is trusted to send anything well-formed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, MetricRecord, RecordDict

from fieldfare.errors import BadInput, Refused
from fieldfare.masking.boxes import BOX_BYTES, Purpose, signed_box
from fieldfare.masking.receipts import Receipt
from fieldfare.masking.words import RINGS, Words
from fieldfare.signatures import is_signed, public_key, sign
from fieldfare_flower.messages import (
    HEADER,
    MASKED_VERSION,
    MASKING,
    REPORT,
    SEAL,
    UNBOUND,
    Occasion,
    read_report,
    records_of,
    to_record,
)
from fieldfare_flower.npy import BadReply, read_array

VERSION = 2  # of the masks themselves: another scheme has another number
MASKED, WORDS = "masked", "words"
QUERY_MASKS = "query.masks"
ASK, MASKS, RECEIPT, HELLO = "ask", "masks", "receipt", "blinder"
# The members of two records with their types, in the order of the fields of `Masking` and `MasksAsked`.
_MASKING = {"blinder": str, "spacing_log2": int, "bits": int, "plan": str}
_MASKING |= {"shares": list, "weights": list, "config": str}
_ASKED = {"run": str, "round": int, "attempt": int, "numel": int, "bits": int, "plan": str, "instruction": str}
_ASKED |= {"nodes": list, "seals": list}

# Why the blinder does not answer: in a fixed word, all that it tells the server, and in words for people.
REFUSALS = {
    "masks-plan": "it approved no such plan, or another number of words.",
    "masks-few": "it opens no sum of so few different nodes.",
    "masks-node": "a node's key is not one that it admitted, or stands twice.",
    "masks-box": "a box was not made, or not signed, for this blinder, run, round, attempt, node, plan, instruction.",
    "masks-answered": "it answered for another set of this round, and answers once.",
    "masks-order": "it answered about a later round, and rounds only go up; with noise of its own, one by one.",
    "masks-budget": "what its own noise lets the server learn is used up.",
    "masks-noise": "this machine does not make the very noise again under which it answered this round.",
}


class MasksRefused(Refused):
    """The blinder does not answer; its code, of `REFUSALS`, says why."""

    def __init__(self, asked: MasksAsked, code: str) -> None:
        what = f"the blinder's masks of round {asked.round + 1} of run {asked.run}"
        nearest = f"`fieldfare abandon {asked.run}`: the last model stays, and what was not spent returns"
        if code == "masks-plan":
            nearest = f"`fieldfare blinder approve` of the run's plan, or {nearest}"
        super().__init__(what, REFUSALS[code], nearest, code=code)


@dataclass(frozen=True)
class Seal:
    """A seed for the blinder, signed by the node that masked with it: `masking.boxes`, `seal` and `signed_box`."""

    box: bytes
    key: str  # the node's, Ed25519, 64 hex digits
    signature: bytes

    @classmethod
    def of(cls, box: bytes, purpose: Purpose, bits: int, private: bytes) -> Seal:
        """Sign `box`. private: the node's key."""
        return cls(box, public_key(private), sign(private, signed_box(box, purpose, bits)))

    def is_signed(self, purpose: Purpose, bits: int) -> bool:
        """Whether the holder of its key made it for `purpose`."""
        return is_signed(self.key, self.signature, signed_box(self.box, purpose, bits))

    def packed(self) -> bytes:
        """All of it in one value: each record and each key of a message costs as much as a signature."""
        return self.box + bytes.fromhex(self.key) + self.signature

    @classmethod
    def unpack(cls, packed: object) -> Seal:
        """The inverse of `packed`. Raises `BadReply` for anything else."""
        if not isinstance(packed, bytes) or len(packed) != BOX_BYTES + 32 + 64:
            raise BadReply("schema", "no seal")
        return cls(packed[:BOX_BYTES], packed[BOX_BYTES:-64].hex(), packed[-64:])


@dataclass(frozen=True)
class Masking:
    """What a node must know to mask its reply to an instruction."""

    blinder: str  # its public key, as nodes pin it
    spacing_log2: int  # the grid's spacing is 2 to this
    bits: int  # of a word
    plan: str  # its SHA-256, hex
    shares: tuple[float, ...] = (1.0,)  # of each query
    weights: tuple[float, ...] = ()  # of each number that rides beside the update
    config: str = ""  # `digest_of_config` of the run's configuration, which no instruction holds
    # Where the blinder's journal ended when the server heard last, a line of `BlinderHead`; "": never told.
    head: str = ""
    instruction: str = field(default="", compare=False)  # `digest_of_instruction` of where it was read

    def write(self, content: RecordDict) -> None:
        """Put it into the instruction `content`, which then is of the version that knows masks."""
        content[MASKING] = _written(self, _MASKING, head=self.head)
        records_of(content, ConfigRecord)[HEADER]["version"] = MASKED_VERSION

    @classmethod
    def read(cls, content: RecordDict) -> Masking | None:
        """What an instruction says of masks; None for none. Raises `BadReply` for anything else."""
        records = records_of(content, ConfigRecord)
        if (record := records.get(MASKING)) is None:
            return None
        if HEADER not in records:  # what answers Flower's own messages does not mask
            raise BadReply("schema", "masks without a header")
        _, log2, bits, _, shares, weights, _ = told = _fields(record, _MASKING)
        numbers = bool(shares) and all(type(v) is float and 0 <= v < math.inf for v in (*shares, *weights))
        # Beyond 2^900 the spacing would leave float64's range in a product; shares above 1 would outweigh the clip.
        queries = records[HEADER].get("queries", 1)
        if abs(log2) > 900 or bits not in RINGS or not numbers or sum(shares) > 1 + 1e-12 or len(shares) != queries:
            raise BadReply("schema", "no ring, weights, and share of each query")
        return cls(*[*told, str(record.get("head", "")), digest_of_instruction(content)])


def _written(said: object, members: Mapping[str, type], **others: ConfigRecordValues) -> ConfigRecord:
    """The record from which `_fields` reads the `members` of `said`. others: what is written in another form."""
    known = {name: kind(getattr(said, name)) for name, kind in members.items() if name not in others}
    return ConfigRecord({"version": VERSION, **known, **others})


def _fields(record: Mapping[str, Any], members: Mapping[str, type]) -> list[Any]:
    """The values of a record of this version, lists as tuples. Raises `BadReply` unless each is of its kind: and True
    is no int."""
    values = [record.get(name) for name in members]
    if record.get("version") != VERSION or list(map(type, values)) != list(members.values()):
        raise BadReply("version", "masks of another kind")
    return [tuple(value) if isinstance(value, list) else value for value in values]


def write_reply(occasion: Occasion, words: Words, users: int, seal: Seal) -> RecordDict:
    """A node's masked reply. words: masked, shape (numel,). users: how many it sums."""
    header = ConfigRecord({**occasion.to_config(), "version": MASKED_VERSION, SEAL: seal.packed()})
    masked, report = to_record({WORDS: words}), MetricRecord({"users": users})
    return RecordDict({HEADER: header, MASKED: masked, REPORT: report})


def _words(content: RecordDict, record: str, numel: int, bits: int) -> Words:
    arrays = records_of(content, ArrayRecord).get(record, ArrayRecord())
    if set(arrays) != {WORDS}:
        raise BadReply("schema", "not one vector of words")
    words: Words = read_array(arrays[WORDS], (RINGS[bits][0].name,), (numel,))
    return words


@dataclass(frozen=True)
class MasksAsked:
    """The server's one question about a round: the sum of the masks of its set."""

    run: str
    round: int
    attempt: int
    numel: int  # words of a mask
    bits: int  # of a word
    plan: str  # its SHA-256, hex
    instruction: str  # `digest_of_instruction`, the same of all nodes
    nodes: tuple[int, ...] = ()
    seals: tuple[Seal, ...] = ()  # of each of `nodes`, in the same order

    def purpose(self, node: int) -> Purpose:
        """What the box of `node` must have been made for. `Purpose.info` refuses what no run has."""
        return Purpose(self.run, self.round, self.attempt, node, self.numel, self.plan, self.instruction)

    def digest(self) -> str:
        """SHA-256, hex, of the question: of what each box must be for, of each box and who signed it."""
        hasher = hashlib.sha256(b"fieldfare.masks.v1\0" + self.bits.to_bytes(8, "big"))
        for node, seal in zip(self.nodes, self.seals, strict=True):
            hasher.update(self.purpose(node).info() + seal.box + seal.key.encode())
        return hasher.hexdigest()

    def write(self) -> RecordDict:
        """The question as a message's content."""
        # Ids of nodes have 64 bits, of which Flower's lists of numbers keep 63.
        nodes, seals = list(map(str, self.nodes)), [seal.packed() for seal in self.seals]
        return RecordDict({ASK: _written(self, _ASKED, nodes=nodes, seals=seals)})

    @classmethod
    def read(cls, content: RecordDict) -> MasksAsked:
        """Raises `BadReply` on anything but a well-formed question. `purpose` refuses replies that no run has."""
        record = records_of(content, ConfigRecord).get(ASK, ConfigRecord())
        *about, nodes, seals = _fields(record, _ASKED)
        _, round, attempt, numel, bits, *_ = about
        numbers = bits in RINGS and all(0 <= number < 1 << 62 for number in (round, attempt, numel))
        ids = all(isinstance(n, str) and n.isascii() and n.isdigit() and len(n) <= 20 for n in nodes)
        if not numbers or not ids or len(nodes) != len(seals):
            raise BadReply("schema", "no round, or not one id and one seal for each node")
        return cls(*[*about, tuple(map(int, nodes)), tuple(map(Seal.unpack, seals))])

    def read_reply(self, content: RecordDict, node: int, sent: int) -> tuple[Words, int, Seal]:
        """(words, users, seal) of the reply of `node`, which was asked to train `sent` users.

        Raises `BadReply` as `TrainReply.read`, and where its seal is not signed, by whatever key, for this question.
        """
        occasion, records = Occasion(self.run, self.round, self.attempt), records_of(content, ConfigRecord)
        _, users = read_report(content, occasion, sent, MASKED, {"users"})
        if set(records) != {HEADER} or set(records[HEADER]) != {*occasion.to_config(), SEAL}:
            raise BadReply("schema", "records other than words, a report and a header with a seal")
        words, seal = _words(content, MASKED, self.numel, self.bits), Seal.unpack(records[HEADER][SEAL])
        if not seal.is_signed(self.purpose(node), self.bits):
            raise BadReply("node-key", "its box is not signed by its key")
        return words, users, seal

    def write_answer(self, masks: Words, private: bytes, row: int, hash: str, noise: float, head: str) -> RecordDict:
        """The blinder's answer: the sum of the masks, less noise of this multiplier, with a receipt that the key
        `private` signs. row, hash: of its journal, where the question stands. head: as in `Hello`.
        """
        receipt = Receipt.of(private, self.digest(), digest_of(masks), len(self.nodes), row, hash, noise)
        signed = ConfigRecord({"receipt": receipt.text, "head": head})
        return RecordDict({MASKS: to_record({WORDS: masks}), RECEIPT: signed})

    def read_answer(self, content: RecordDict, key: str) -> tuple[Words, Receipt, str]:
        """The sum of the masks, receipt and head. Raises `BadReply` unless the holder of `key` answered this."""
        masks = _words(content, MASKS, self.numel, self.bits)
        record = records_of(content, ConfigRecord).get(RECEIPT, ConfigRecord())
        try:
            receipt = Receipt.parse(record.get("receipt"))
        except BadInput:
            raise BadReply("schema", "no receipt") from None
        expected = (key, self.digest(), digest_of(masks), len(self.nodes))
        if (receipt.key, receipt.question, receipt.masks, receipt.nodes) != expected:
            raise BadReply("round", "a receipt for another question or answer")
        return masks, receipt, str(record.get("head", ""))


@dataclass(frozen=True)
class Hello:
    """What a blinder answers to `query.users`: it hosts nobody."""

    nodes: frozenset[str]  # the keys that it admitted, 64 hex digits each
    # `blinder_noise.terms_of` its noise under the plan that it was asked about; None: it has not approved the plan, or
    # does not let the run begin.
    noise: tuple[float, ...] | None
    head: str = field(compare=False)  # where its journal ends now, a line of `BlinderHead`

    def write(self, run: str, plan: str, private: bytes) -> RecordDict:
        """Its record, for `run` under `plan`. private: the key that signs the blinder's receipts."""
        said: dict[str, ConfigRecordValues] = {"nodes": sorted(self.nodes), "head": self.head}
        said |= {} if self.noise is None else {"noise": list(self.noise)}
        return RecordDict({HELLO: ConfigRecord({**said, "signature": sign(private, self._signed(run, plan))})})

    def _signed(self, run: str, plan: str) -> bytes:
        return json.dumps(["fieldfare.blinder.hello.v3", run, plan, self.noise, sorted(self.nodes)]).encode()

    @classmethod
    def read(cls, content: RecordDict, run: str, plan: str, key: str) -> Hello | None:
        """What the blinder whose receipts `key` signs says to `run`; None where it is not from it."""
        record = records_of(content, ConfigRecord).get(HELLO, ConfigRecord())
        nodes, noise, signature = (record.get(name) for name in ("nodes", "noise", "signature"))
        if not isinstance(nodes, list) or not isinstance(noise, list | None) or not isinstance(signature, bytes):
            return None
        told = None if noise is None else tuple(each for each in noise if isinstance(each, float))
        hello = cls(frozenset(map(str, nodes)), told, str(record.get("head", "")))
        return hello if is_signed(key, signature, hello._signed(run, plan)) else None


def digest_of_instruction(content: RecordDict) -> str:
    """SHA-256, hex, of all that an instruction with masks tells, but what is `UNBOUND`.

    Models, weights and settings that differ from node to node would choose whose update is left in a sum.
    """
    told: list[object] = []
    for name in sorted(content.keys() - UNBOUND):
        record = content[name]
        entries: list[Any] = sorted(record.items())
        if isinstance(record, ArrayRecord):  # whose order an app may go by
            values = ((key, array, hashlib.sha256(array.data).hexdigest()) for key, array in record.items())
            entries = [[key, array.dtype, array.stype, list(array.shape), data] for key, array, data in values]
        told.append([name, type(record).__name__, entries])
    return hashlib.sha256(json.dumps(told, default=lambda raw: {"": raw.hex()}).encode()).hexdigest()


def digest_of_config(config: Mapping[str, object]) -> str:
    """SHA-256, hex, of a run's configuration: one that differs from node to node would choose whose update is left."""
    return hashlib.sha256(json.dumps(sorted(config.items())).encode()).hexdigest()


def digest_of(words: Words | Sequence[int]) -> str:
    """SHA-256, hex, of words as they travel."""
    return hashlib.sha256(np.ascontiguousarray(words).data).hexdigest()
