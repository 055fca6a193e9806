"""What the blinder signs of each answer, and by which one that went back to an old copy is seen.

Its journal is a chain: row N is SHA-256 over row N - 1 and the digest of the question that it answered there.
Rows of a blinder that was restored stand for other questions than those that it signed before.

    fieldfare-receipt-v1 KEY QUESTION MASKS NODES ROW HASH SIGNATURE
    fieldfare-receipt-v2 KEY QUESTION MASKS NODES ROW HASH NOISE SIGNATURE

`KEY`: Ed25519, 64 hex digits. `QUESTION`, `MASKS`: SHA-256 of what was asked, and of the words that were answered.
`NODES`, `ROW`: decimal. `HASH`: of the row. `NOISE`: multiplier, in clip norms, of the noise that the blinder took
from the masks, the shortest decimal of a float64; v1: there was none. `SIGNATURE`: by KEY of the ASCII text before it,
without the space.
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
    text: str
    """The line."""

    @classmethod
    def of(cls, private: bytes, question: str, masks: str, nodes: int, row: int, hash: str, noise: float = 0.0) -> Self:
        """Sign a receipt. private: the 32 bytes of an Ed25519 private key."""
        said = f"{(key := public_key(private))} {question} {masks} {nodes} {row} {hash}"
        signed = f"fieldfare-receipt-v2 {said} {noise!r}" if noise else f"fieldfare-receipt-v1 {said}"
        return cls(key, question, masks, nodes, row, hash, noise, f"{signed} {sign(private, signed.encode()).hex()}")

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read a line. Raises `BadInput` on another format, or where the signature is not the key's."""
        found = _LINE.fullmatch(text) if isinstance(text, str) else None
        noise = float((found and found[8]) or 0.0)
        if (
            found is None
            or found[1].startswith("fieldfare-receipt-v2") != (0 < noise < math.inf)
            or not is_signed(found[2], bytes.fromhex(found[9]), found[1].encode())
        ):
            raise BadInput("a blinder's receipt", "it is no line of the format, signed by its key.", code="receipt")
        return cls(found[2], found[3], found[4], int(found[5]), int(found[6]), found[7], noise, found[0])


class Receipts:
    """Receipts that were seen, of any blinders, in any order."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        """seen: their lines. Raises `BadInput` as `Receipt.parse` and `add`."""
        self._rows: dict[tuple[str, int], Receipt] = {}
        for text in seen:
            self.add(Receipt.parse(text))

    def add(self, new: Receipt) -> None:
        """Remember a receipt. Raises `BadInput` where one journal cannot hold it and those that were seen."""
        before, same, after = (self._rows.get((new.key, new.row + step)) for step in (-1, 0, 1))
        # A question that was answered twice under the blinder's own noise, each time another row of it.
        fits = same is None or (same.hash, same.masks) == (new.hash, new.masks)
        fits &= before is None or new.hash == next_row(before.hash, new.question)
        fits &= after is None or after.hash == next_row(new.hash, after.question)
        if not fits:
            why = f"its row {new.row} is another than that which it signed before: it went back to an old copy."
            raise BadInput("the blinder's journal", why, "its newest copy", code="blinder-went-back")
        self._rows[new.key, new.row] = new


def next_row(before: str, question: str) -> str:
    """The hash of the row, hex, that answers `question` after the row of hash `before`; "" before the first."""
    return hashlib.sha256(f"fieldfare.blinder.row.v1 {before} {question}".encode()).hexdigest()
