"""Who may sign a journal's head: the key changes by a line that the key before signs, or a key that it had
enrolled.

    fieldfare-key-v1 LEDGER enrol  OLD NEW SIGNER SIGNATURE     NEW, kept offline, may name the next key after OLD
    fieldfare-key-v1 LEDGER rotate OLD NEW SIGNER SIGNATURE     NEW signs heads after OLD

Keys are Ed25519, 64 hex digits; SIGNATURE is by SIGNER of the ASCII text before it, without the last space.
Who holds a head needs nothing but these lines, in their order, to tell whether another key is the right one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from fieldfare.signatures import is_signed, public_key, sign

FORMAT = "fieldfare-key-v1"
Verb = Literal["enrol", "rotate"]
_KEY = "([0-9a-f]{64})"
_LINE = re.compile(rf"({FORMAT} ([0-9a-f]{{32}}) (enrol|rotate) {_KEY} {_KEY} {_KEY}) ([0-9a-f]{{128}})")


@dataclass(frozen=True)
class KeyLine:
    """A line whose signature was checked: `of` signs one, `parse` reads one."""

    ledger: str
    verb: str
    old: str
    new: str
    signer: str
    signature: str

    @classmethod
    def of(cls, ledger: str, verb: Verb, old: str, new: str, private_key: bytes) -> Self:
        """Sign a line. private_key: the signer's 32 bytes."""
        signer = public_key(private_key)
        signed = f"{FORMAT} {ledger} {verb} {old} {new} {signer}"
        return cls(ledger, verb, old, new, signer, sign(private_key, signed.encode("ascii")).hex())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a line. Raises ValueError on another format, or where the signature is not the signer's."""
        match = _LINE.fullmatch(text)
        if match is None:
            raise ValueError("it is no line of a head's key")
        signed, ledger, verb, old, new, signer, signature = match.groups()
        if not is_signed(signer, bytes.fromhex(signature), signed.encode("ascii")):
            raise ValueError("its signature is not that of its signer")
        return cls(ledger, verb, old, new, signer, signature)

    def __str__(self) -> str:
        return f"{FORMAT} {self.ledger} {self.verb} {self.old} {self.new} {self.signer} {self.signature}"


def successor(ledger: str, key: str, lines: Iterable[str]) -> tuple[str, frozenset[str]]:
    """Return (the key that signs after `key`, by `lines` in their order; the offline keys that it has
    enrolled).

    Lines that say nothing of `key` or its successors count for nothing, whoever signed them, nor do other texts.
    """
    enrolled: frozenset[str] = frozenset()
    for text in lines:
        with contextlib.suppress(ValueError):
            line = KeyLine.parse(text)
            if line.ledger != ledger or line.old != key:
                continue
            if line.verb == "enrol" and line.signer == key:
                enrolled |= {line.new}
            elif line.verb == "rotate" and line.signer in {key, *enrolled}:
                # What the old key had enrolled speaks for the new one only once the new one says so.
                key, enrolled = line.new, frozenset()
    return key, enrolled
