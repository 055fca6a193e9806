"""The signed head of a journal: one line of text that anyone can keep, so that the past cannot be taken back.

A journal is a chain of hashes; its head, (ledger, count, hash), stands for every row before it. The
coordinator signs the head with a key that is not in the ledger's database. Who keeps a head recognises a
journal that went back, or that goes on from another past (a fork): a restored backup, a copied directory, a
rewound machine, a forger.

    fieldfare-head-v1 LEDGER COUNT HASH KEY SIGNATURE

`LEDGER`: 32 hex digits. `COUNT`: decimal. `HASH`: of row COUNT, 64 hex digits. `KEY`: Ed25519 public key, as long.
`SIGNATURE`: Ed25519 (RFC 8032) by KEY of the ASCII text before it, up to and without the space, 128 hex digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from fieldfare.errors import BadInput
from fieldfare.head_keys import successor
from fieldfare.signatures import is_signed, public_key, sign

FORMAT = "fieldfare-head-v1"
KEY_BYTES = 32
MOST_HEAD = 500  # characters of a journal's signed end at most: what is longer is cut, and is none

_LINE = re.compile(
    rf"({FORMAT} ([0-9a-f]{{32}}) ([1-9][0-9]{{0,18}}) ([0-9a-f]{{64}}) ([0-9a-f]{{64}})) ([0-9a-f]{{128}})"
)


# Why a head is refused: in a fixed word, which a node may send, and in words for people.
REASONS = {
    "went-back": "it ends before a row that was seen",
    "forked": "a row of it is not the row that was seen",
    "another-key": "another key signs its head than before",
    "another-ledger": "another ledger is shown in its place",
    "not-shown": "its head is not shown any more",
    "not-contained": "it is not shown to contain a row that was seen",
    "malformed": "its head is no line of the format, or not signed by its key",
    "no-memory": "the file in which the newest head was kept cannot be read",
}

_TOLD = re.compile(r"([a-z-]{1,20}) (\d{1,19}) (\d{1,19})")


class HeadRefused(BadInput):
    """A head that contradicts one that was seen before, or that its key did not sign."""

    def __init__(self, what: str, why: str, nearest: str = "", *, reason: str, told: str = "0 0") -> None:
        """reason: a word of `REASONS`; told: the row that was seen, the last that is shown (0: none), the head seen."""
        super().__init__(what, why, nearest)
        self.reason = reason
        # What a node may tell the server of it: the word, both numbers, and the head.
        self.told = f"{reason} {told}"


def read_told(text: str) -> tuple[str, int, int] | None:
    """Return (reason, seen, shown) of `HeadRefused.told` without a head, which came from elsewhere; else None."""
    found = _TOLD.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found and found[1] in REASONS else None


@dataclass(frozen=True)
class SignedHead:
    """A head whose signature was checked: `of` signs one, `parse` reads one."""

    ledger: str
    count: int
    hash: str
    key: str
    signature: str

    @classmethod
    def of(cls, ledger: str, count: int, hash: str, private_key: bytes) -> Self:
        """Sign a head. private_key: the 32 bytes of an Ed25519 private key."""
        key = public_key(private_key)
        text = f"{FORMAT} {ledger} {count} {hash} {key}"
        return cls(ledger, count, hash, key, sign(private_key, text.encode("ascii")).hex())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a line. Raises `HeadRefused` on another format, or where the signature is not the key's."""
        return cls(*_parts(text.strip()))

    def __str__(self) -> str:
        return f"{FORMAT} {self.ledger} {self.count} {self.hash} {self.key} {self.signature}"


@lru_cache(maxsize=64)
def _parts(line: str) -> tuple[str, int, str, str, str]:
    """Return (ledger, count, hash, key, signature) of a line whose signature is right. Lines are shown again."""
    match = _LINE.fullmatch(line)
    if match is None:
        why = "it is not a line of the format."
        raise HeadRefused("the journal's head", why, f"{FORMAT} LEDGER COUNT HASH ...", reason="malformed")
    signed, ledger, count, hash, key, signature = match.groups()
    if not is_signed(key, bytes.fromhex(signature), signed.encode("ascii")):
        raise HeadRefused(f"the head of ledger {ledger}", "its signature is not that of its key.", reason="malformed")
    return ledger, int(count), hash, key, signature


def follow(
    held: SignedHead | None, shown: SignedHead | None, rows: Mapping[int, str], keys: Iterable[str] = ()
) -> SignedHead | None:
    """Return the head to hold from now on: `shown`, if it continues `held`.

    Args:
        held: the newest head seen so far; None: none yet.
        shown: what the server shows now; None: nothing, which only a server that never showed a head may do.
        rows: hashes of earlier journal rows by their number, by which the server shows that it continues.
        keys: the lines by which the head's key changed, in their order (`fieldfare.head_keys`).

    Raises:
        HeadRefused: the server shows no head any more, another ledger's, another key's, an older one, or one
            whose journal does not contain, or is not shown to contain, the row that was seen.
    """
    if held is None:
        return shown
    seen = held.count

    def refusal(reason: str, why: str) -> HeadRefused:
        remedy = "ask its operator; `fieldfare verify --head` compares it with the head that you hold"
        told = f"{seen} {0 if shown is None else shown.count} {held}"
        return HeadRefused(f"the journal of ledger {held.ledger}", why, remedy, reason=reason, told=told)

    # In this order: numbers and hashes of another ledger, or under another key, say nothing of this one.
    if shown is None:
        raise refusal("not-shown", f"its head is not shown any more, and row {seen} of it was seen.")
    if shown.ledger != held.ledger:
        raise refusal("another-ledger", f"the head of another ledger, {shown.ledger}, is shown instead.")
    if shown.key not in (held.key, successor(held.ledger, held.key, keys)[0]):
        raise refusal(
            "another-key", "its head is signed with another key than before, which the one before did not name."
        )
    if shown.count < seen:
        raise refusal("went-back", f"it went back: it ends in row {shown.count}, and row {seen} was seen.")
    there = shown.hash if shown.count == seen else rows.get(seen)
    if there is None:
        raise refusal("not-contained", f"it is not shown to contain row {seen}, which was seen.")
    if there != held.hash:
        raise refusal("forked", f"it forked: its row {seen} is not the row that was seen.")
    return shown
