"""What the blinder signs of each answer, and of its journal's end: so one that went back to an old copy is seen.

Its journal is a chain: row N is SHA-256 over row N - 1 and the digest of the question that it answered there.
Rows of a blinder that was restored stand for other questions than those that it signed before.

    fieldfare-receipt-v1 KEY QUESTION MASKS NODES ROW HASH SIGNATURE
    fieldfare-receipt-v2 KEY QUESTION MASKS NODES ROW HASH NOISE SIGNATURE
    fieldfare-blinder-head-v1 KEY ROW HASH AT SIGNATURE

`KEY`: Ed25519, 64 hex digits. `QUESTION`, `MASKS`: SHA-256 of what was asked, and of the words that were answered.
`NODES`, `ROW`: decimal. `HASH`: of the row. `NOISE`: multiplier, in clip norms, of the noise that the blinder took
from the masks, the shortest decimal of a float64; v1: there was none. `AT`: when ROW was its last, by its own clock, in
milliseconds since 1970; row 0 is the beginning. `SIGNATURE`: by KEY of the ASCII text before it, without the space.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from fieldfare.errors import BadInput
from fieldfare.signatures import is_signed, public_key, sign

_DIGEST = "([0-9a-f]{64})"
_COUNT = "([1-9][0-9]{0,17})"
_NOISE = r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-][0-9]{1,3})?)"
_SAID = f"{' '.join([_DIGEST] * 3)} {_COUNT} {_COUNT} {_DIGEST}(?: {_NOISE})?"
_LINE = re.compile(f"(fieldfare-receipt-v[12] {_SAID}) ([0-9a-f]{{128}})")
_HEAD = re.compile(f"(fieldfare-blinder-head-v1 {_DIGEST} ([0-9]{{1,18}}) {_DIGEST} ([0-9]{{1,18}})) ([0-9a-f]{{128}})")


class BlinderWentBack(BadInput):
    """The blinder's journal is not the one that was seen: an older copy would answer again what it has forgotten."""

    told = ""
    """What a node tells the server of it: the end that it saw, which the blinder signed."""


@dataclass(frozen=True)
class Receipt:
    """A receipt whose signature was checked: `of` signs one, `parse` reads one."""

    key: str
    question: str
    masks: str
    nodes: int
    row: int
    hash: str
    noise: float
    text: str  # the line

    @classmethod
    def of(cls, private: bytes, question: str, masks: str, nodes: int, row: int, hash: str, noise: float = 0.0) -> Self:
        """Sign a receipt. private: the 32 bytes of an Ed25519 private key."""
        said = f"{(key := public_key(private))} {question} {masks} {nodes} {row} {hash}"
        signed = f"fieldfare-receipt-v2 {said} {noise!r}" if noise else f"fieldfare-receipt-v1 {said}"
        return cls(key, question, masks, nodes, row, hash, noise, f"{signed} {sign(private, signed.encode()).hex()}")

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read a line. Raises `BadInput` on another format, or where the signature is not the key's."""
        found = _signed(_LINE, text)
        noise = float(found[8] or 0.0)
        if found[1].startswith("fieldfare-receipt-v2") != (0 < noise < math.inf):
            raise _malformed()
        return cls(found[2], found[3], found[4], int(found[5]), int(found[6]), found[7], noise, found[0])


@dataclass(frozen=True)
class BlinderHead:
    """Where a blinder's journal ended, whose signature was checked: `of` signs it, `parse` reads it."""

    key: str
    row: int
    hash: str
    at: int
    text: str  # the line

    @classmethod
    def of(cls, private: bytes, row: int, hash: str, at: int) -> Self:
        """Sign it. private: the 32 bytes of an Ed25519 private key."""
        signed = f"fieldfare-blinder-head-v1 {(key := public_key(private))} {row} {hash} {at}"
        return cls(key, row, hash, at, f"{signed} {sign(private, signed.encode()).hex()}")

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read a line. Raises `BadInput` as `Receipt.parse`."""
        found = _signed(_HEAD, text)
        return cls(found[2], int(found[3]), found[4], int(found[5]), found[0])

    def denies(self, seen: BlinderHead) -> bool:
        """Whether no journal can have had this end and, before or after, `seen`: it went back. One that is only older,
        since another run has asked meanwhile, denies nothing."""
        return (self.at > seen.at and self.row < seen.row) or (self.row == seen.row and self.hash != seen.hash)


def _signed(line: re.Pattern[str], text: object) -> re.Match[str]:
    """The parts of a line: [1] what is signed, [2] the key, and last the signature, which is right."""
    found = line.fullmatch(text) if isinstance(text, str) else None
    if found is None or not is_signed(found[2], bytes.fromhex(found[line.groups]), found[1].encode()):
        raise _malformed()
    return found


def _malformed() -> BadInput:
    return BadInput("what a blinder signed", "it is no line of the format, signed by its key.", code="receipt")


class Receipts:
    """Receipts that were seen, of any blinders, in any order."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        """seen: their lines. Raises `BadInput` as `Receipt.parse` and `add`."""
        self._rows: dict[tuple[str, int], Receipt] = {}
        for text in seen:
            self.add(Receipt.parse(text))

    def add(self, new: Receipt, again: bool = False) -> None:
        """Remember a receipt. Raises `BadInput` where one journal cannot hold it and those that were seen, each once;
        `again`: it may be there already, since its round was asked about before, and is not committed."""
        before, same, after = (self._rows.get((new.key, new.row + step)) for step in (-1, 0, 1))
        if same == new and not again:
            raise BadInput("what a blinder signed", f"its row {new.row} stands for two rounds.", code="receipt")
        # Another question, or the same under the blinder's own noise and another row of it.
        fits = same in (None, new)
        fits &= before is None or new.hash == next_row(before.hash, new.question)
        fits &= after is None or after.hash == next_row(new.hash, after.question)
        if not fits:
            why = f"its row {new.row} is another than that which it signed before: it went back to an old copy."
            raise BlinderWentBack("the blinder's journal", why, "its newest copy")
        self._rows[new.key, new.row] = new

    def denied_by(self, end: str) -> BlinderWentBack | None:
        """The refusal of a journal that ended in `end`, a line of `BlinderHead` signed after all that was seen, and
        cannot hold it; None where it can, and for "". Raises `BadInput` as `Receipt.parse`."""
        head = BlinderHead.parse(end) if end else None
        for (key, row), seen in self._rows.items():
            if head and key == head.key and (row > head.row or (row == head.row and seen.hash != head.hash)):
                why = f"it ends in row {head.row}, and the ledger has a receipt of row {row}."
                return BlinderWentBack("the blinder's journal", why, "its newest copy")
        return None


def next_row(before: str, question: str) -> str:
    """The hash of the row, hex, that answers `question` after the row of hash `before`; "" before the first."""
    return hashlib.sha256(f"fieldfare.blinder.row.v1 {before} {question}".encode()).hexdigest()
