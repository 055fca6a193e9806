"""StackOverflow next-word prediction, the benchmark of Reddi et al. 2020 and of the DP-FTRL papers.

Data are read from FIELDFARE_DATA: `stackoverflow-train.arrow`, `-tune` and `-test`, one row a user, with one column
`tokens`: int16 (21,), made by `encode` from a sentence and the 10 000 most frequent words of the vocabulary.
`fieldfare data fetch stackoverflow --from FOLDER` makes them of the files that TensorFlow Federated publishes; or write
them with `fieldfare_client.storage.write`, from anything that yields a user's sentences.

TensorFlow Federated's split `test` holds later posts of the users of `train`, so it is no held-out data under
user-level privacy, and is not read: the users of its split `heldout` are the tune and the test table here, half each,
by a hash of their ids. Its word counts come from the training users without noise; the papers take the vocabulary as
public, and so does this task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import Conflict
from fieldfare.lazily import torch
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.sources import Parts, Source
from fieldfare_client.users import UserTable
from fieldfare_research import tff
from fieldfare_research.sequences import PADDING, next_symbols, sequence_loss
from fieldfare_research.tables import SCORED, Scored, table

LENGTH = 20
VOCABULARY = 10_000
FIRST, LAST, UNKNOWN = VOCABULARY + 1, VOCABULARY + 2, VOCABULARY + 3
SYMBOLS = VOCABULARY + 4
MOST_SENTENCES = 256
"""Of a user: the published cap."""


def encode(sentences: Iterable[str], vocabulary: Mapping[str, int]) -> NDArray[np.int16]:
    """Encode sentences as examples (sentences, 21): a start symbol, up to 20 words, an end symbol if it fits, padding.

    `vocabulary` maps each known word to 1 to 10 000.
    """
    out = []
    for sentence in sentences:
        known = [vocabulary.get(word, UNKNOWN) for word in sentence.lower().split()[:LENGTH]]
        symbols = [FIRST, *known, LAST][: LENGTH + 1]
        out.append(symbols + [PADDING] * (LENGTH + 1 - len(symbols)))
    return np.array(out, np.int16).reshape(-1, LENGTH + 1)


def vocabulary(words: Sequence[str]) -> dict[str, int]:
    """Number the first 10 000 words of a list, most frequent first."""
    return {word: place for place, word in enumerate(words[:VOCABULARY], start=1)}


def held_out_part(client: str) -> Scored:
    """Whether a user of `heldout` is for tuning or for the test: the same whatever other users there are."""
    digest = hashlib.sha256(f"fieldfare-stackoverflow:{client}".encode()).digest()
    return "tune" if int.from_bytes(digest[:8], "big") % 2 else "test"


def build(given: Path, block: int = 2000) -> tuple[Parts, dict[str, Any]]:
    """Tables of TensorFlow Federated's files (`tasks/tff.py`): its users of `train`, and those of `heldout` in two
    halves, tune and test."""
    codes = vocabulary(tff.word_count(given))
    held_out: set[str] = set()

    def blocks(part: str) -> Iterator[UserTable]:
        named: list[str] = []
        rows: list[NDArray[np.int16]] = []
        for client, sentences in tff.sentences(given, "train" if part == "train" else "heldout", MOST_SENTENCES):
            if part != "train":
                held_out.add(client)
                if held_out_part(client) != part:
                    continue
            elif client in held_out:
                raise Conflict(f"user {client}", "is in both train and heldout.")
            named.append(client)
            rows.append(encode(sentences, codes))
            if len(named) == block:
                yield joined(named, rows)
                named, rows = [], []
        if named:
            yield joined(named, rows)

    def joined(named: list[str], rows: list[NDArray[np.int16]]) -> UserTable:
        owner = np.repeat(np.arange(len(named)), [len(part) for part in rows])
        return UserTable.owned([f"stackoverflow-{name}" for name in named], owner, {"tokens": np.concatenate(rows)})

    # Held-out users are written first, so that a user of both splits is noticed.
    return {part: blocks(part) for part in ("test", "tune", "train")}, {"vocabulary": len(codes)}


class StackOverflowParameters(Table):
    """Questions and answers of StackOverflow."""

    scored: Scored = SCORED


class StackOverflowTask(Task):
    """The published run (Kairouz et al. 2021): cohort 100, batch 16, one epoch, at most 256 sentences a user, local
    learning rate 0.5, server SGD with momentum 0.9, clip norm 1. `folder`: for tests."""

    Parameters: ClassVar[type[Table]] = StackOverflowParameters
    name: ClassVar[str] = "stackoverflow"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "Sentences of the data set's held-out users, who are never trained on."

    def __init__(self, folder: Path | None = None, test_sentences: int = 10_000, scored: Scored = "test") -> None:
        self.folder, self.test_sentences, self.scored = folder, test_sentences, scored

    def build_model(self) -> torch.nn.Module:
        from fieldfare_research.next_word import NextWord

        with seeded(self.seed):
            return NextWord(SYMBOLS)

    def known_schema(self) -> Schema:
        gates = 4 * 670
        shapes = {
            **{"embedding.weight": (SYMBOLS, 96), "recurrent.weight_ih_l0": (gates, 96)},
            **{"recurrent.weight_hh_l0": (gates, 670), "recurrent.bias_ih_l0": (gates,)},
            **{"narrow.weight": (96, 670), "narrow.bias": (96,), "head.weight": (SYMBOLS, 96), "head.bias": (SYMBOLS,)},
        }
        return Schema(tuple(shapes), tuple(shapes.values()))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return sequence_loss(outputs, targets)

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return next_symbols(columns["tokens"])

    def users(self) -> UserTable:
        return table("stackoverflow", "train", ("tokens",), self.folder)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """Accuracy without out-of-vocabulary words, end symbols and padding, as published."""
        held_out = table("stackoverflow", self.scored, ("tokens",), self.folder)
        chosen = np.flatnonzero(np.cumsum(held_out.sizes) <= self.test_sentences)
        inputs, targets = self.prepare(held_out.rows(chosen).columns)
        right = counted = 0
        with torch.no_grad():
            for part, wanted in zip(torch.split(inputs, 64), torch.split(targets, 64), strict=True):
                words = (wanted >= 1) & (wanted <= VOCABULARY)
                right += int(((model(part).argmax(-1) == wanted) & words).sum())
                counted += int(words.sum())
        return {"accuracy": right / max(counted, 1)}


SOURCE = Source(
    "stackoverflow",
    build,
    rule=2,
    prepare=tff.prepare,
    needs="the folder of stackoverflow.word_count and stackoverflow.sqlite(.lzma) or stackoverflow_*.h5",
)
TASKS = {"stackoverflow": StackOverflowTask}
