"""Language models on the text of many authors: the GNU C library's ChangeLogs (Debian package `glibc-doc`).

Each author is a user, known only by a hash of names and mail addresses; addresses are left out of the text. The task
stands in for StackOverflow and needs no download. FIELDFARE_CHANGELOGS names the folder; /usr/share/doc/glibc-doc by
default. Files are `ChangeLog*`, plain or gzipped; an entry starts with a line "2013-01-31  A. Author  <a@b.org>".
glibc-doc 2.36 has 28 985 entries of 777 people, who are 811 names at 1 056 addresses.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fieldfare.errors import NotFound
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.split import by_hash
from fieldfare_client.users import UserTable
from fieldfare_research.sequences import PADDING, next_symbols, sequence_loss

DATE = r"(?:\d{4}-\d+-\d+|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+)(?=\s)"
CLOCK = r"(?:\s+(?:[-+]?\d[\d:.]*|[A-Z]{3,4}(?=\s+\d{4})))*"
HEADER = re.compile(rf"^{DATE}{CLOCK}\s+(?P<name>\S.*?)\s*[<(](?P<mail>[^<>()\s]+(?: at [^<>()\s]+)?)")
DATED = re.compile(f"^{DATE}")
ADDRESS = re.compile(r"<[^<>\s]+@[^<>\s]+>|\S+@\S+")
LENGTH = 64
"""Symbols predicted in one example; the last one is cut into a shorter text by padding, which has no loss."""


def entries(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Split a ChangeLog into entries: (author, text), where `author` is a hash of the name and one of the address.

    Addresses are left out of the text. Text under a date without a readable author is dropped, because it must not
    count as another author's.
    """
    author, text = None, []
    for line in (*lines, "0000-00-00 "):
        if DATED.match(line) is None:
            text.append(ADDRESS.sub("", line.strip("\r\n")))
            continue
        if author is not None and any(text):
            yield author, "\n".join(text).strip()
        header, text = HEADER.match(line), []
        author = None if header is None else (_hash(header["name"]), _hash(header["mail"].replace(" at ", "@")))


def _hash(text: str) -> str:
    plain = " ".join(text.lower().split())
    return hashlib.blake2b(plain.encode(), digest_size=16, person=b"fieldfare.author").hexdigest()


def people(authors: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Map each name and address to a person: authors who share a name or an address are one person.

    A user is the unit of privacy. A person with three addresses would be three users, each protected by a third.
    """
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    for name, mail in authors:
        first, second = sorted((find(name), find(mail)))
        leader[second] = first
    return {key: find(key) for key in leader}


def characters(text: str) -> NDArray[np.int64]:
    """Encode text as symbols 1 to 96: a newline, then printable ASCII. All others become a question mark."""
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64)
    symbols: NDArray[np.int64] = np.where(codes == 10, 1, np.where((codes < 32) | (codes > 126), ord("?"), codes) - 30)
    return symbols


def words(text: str, buckets: int = 2048) -> NDArray[np.int64]:
    """Encode text as symbols 1 to `buckets`, each word's hash. A fixed vocabulary tells nothing about the users."""
    tokens = re.findall(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]", text.lower())
    digests = (hashlib.blake2b(word.encode(), digest_size=8).digest() for word in tokens)
    return np.fromiter((int.from_bytes(d, "little") % buckets + 1 for d in digests), np.int64, len(tokens))


def sequences(symbols: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Cut symbols into examples (rows, length + 1), padded; each begins with the last symbol of the one before."""
    rows = max(0, -(-(len(symbols) - 1) // length))
    out = np.zeros((rows, length + 1), np.int64)
    for row in range(rows):
        part = symbols[row * length : (row + 1) * length + 1]
        out[row, : len(part)] = part
    return out


def folder_texts(folder: Path) -> dict[str, list[str]]:
    """Read all entries, by person. Raises `BadInput` where there is no ChangeLog."""
    files = sorted(path for path in folder.glob("ChangeLog*") if path.is_file()) if folder.is_dir() else []
    if not files:
        raise NotFound(f"{folder}", "holds no ChangeLog.", "apt install glibc-doc, or set FIELDFARE_CHANGELOGS")
    collected: list[tuple[tuple[str, str], str]] = []
    for path in files:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        collected += entries(raw.decode("utf-8", "replace").splitlines())
    person = people(author for author, _ in collected)
    texts: dict[str, list[str]] = {}
    for (name, _), text in collected:
        texts.setdefault(person[name], []).append(text)
    return texts


class LanguageModel(nn.Module):
    """Embedding, one GRU, and a linear layer: outputs (n, length, symbols)."""

    def __init__(self, symbols: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.recurrent = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(inputs))
        outputs: torch.Tensor = self.head(hidden)
        return outputs


class ChangelogTask(Task):
    """Next character: 97 symbols. `folder`: other ChangeLogs, for tests."""

    name: ClassVar[str] = "changelog"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "A tenth of the authors, chosen by a hash, who are never trained on; public text."
    symbols: ClassVar[int] = 97
    width: ClassVar[int] = 16
    hidden: ClassVar[int] = 64
    length: ClassVar[int] = LENGTH

    def __init__(self, folder: Path | None = None, held_out_share: float = 0.1) -> None:
        self.folder, self.held_out_share = folder, held_out_share
        self._table: UserTable | None = None

    def encode(self, text: str) -> NDArray[np.int64]:
        """Symbols of an entry, (n,)."""
        return characters(text)

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            return LanguageModel(self.symbols, self.width, self.hidden)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return sequence_loss(outputs, targets)

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return next_symbols(columns["x"])

    def users(self) -> UserTable:
        table = self._all()
        return table.select(np.flatnonzero(~self._kept(table)))

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        table = self._all()
        inputs, targets = self.prepare(table.rows(np.flatnonzero(self._kept(table))).columns)
        right = loss = 0.0
        real = int((targets != PADDING).sum())
        with torch.no_grad():
            for first in range(0, len(inputs), 256):
                outputs, wanted = model(inputs[first : first + 256]), targets[first : first + 256]
                right += float(((outputs.argmax(-1) == wanted) & (wanted != PADDING)).sum())
                each = nn.functional.cross_entropy(outputs.transpose(1, 2), wanted, reduction="none")
                loss += float((each * (wanted != PADDING)).sum())
        return {"accuracy": right / max(real, 1), "loss": loss / max(real, 1)}

    def _kept(self, table: UserTable) -> NDArray[np.bool_]:
        return by_hash(table.pseudonyms, max(1, round(self.held_out_share * len(table))))

    def _all(self) -> UserTable:
        if self._table is None:
            named = os.environ.get("FIELDFARE_CHANGELOGS", "/usr/share/doc/glibc-doc")
            texts = folder_texts(Path(named) if self.folder is None else self.folder)
            ids, owner, rows = sorted(texts), [], []
            for index, author in enumerate(ids):
                examples = np.concatenate([sequences(self.encode(text), self.length) for text in texts[author]])
                rows.append(examples.astype(np.int16))
                owner.append(np.full(len(examples), index, np.int64))
            self._table = UserTable.owned(ids, np.concatenate(owner), {"x": np.concatenate(rows)})
        return self._table


class ChangelogWordsTask(ChangelogTask):
    """Next word, of 2 048 hashed ones."""

    name: ClassVar[str] = "changelog-words"
    symbols: ClassVar[int] = 2049
    width: ClassVar[int] = 32
    length: ClassVar[int] = 20

    def encode(self, text: str) -> NDArray[np.int64]:
        return words(text)
