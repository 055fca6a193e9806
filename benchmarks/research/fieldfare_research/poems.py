"""Next character in classical Chinese verse. Every poet of Song is a user; the poems of Tang are public.

The npm package `chinese-poetry` (MIT) holds the complete Tang and Song verse in traditional characters. The vocabulary,
the 2 000 most frequent characters, comes from Tang alone. Users are the 8 704 Song names that do not occur in Tang and
are not words for an unknown author. A name is a user: two poets of one name are protected together, and one poet under
two names is two users.

`fieldfare data fetch poems` writes `poems-train.arrow`, `-tune`, `-test` and `-public` (Tang, one owner). Columns:
`tokens` int16 (33,), a window of 32 predicted symbols; `rank` uint8, the window's place among its poet's in the order
of a hash, by which `most` chooses.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from fieldfare.errors import Differs, NotFound, Unreadable, WrongForm
from fieldfare.registry import USERS, Table
from fieldfare.task import Task, seeded
from fieldfare_client.sources import Package, Parts, Source, data_folder
from fieldfare_client.users import UserTable
from fieldfare_research.sequences import PADDING, next_symbols, sequence_loss
from fieldfare_research.tables import SCORED, Scored, parts_by_digest, table

VOCABULARY = 2000
BEGIN, END, UNKNOWN = VOCABULARY + 1, VOCABULARY + 2, VOCABULARY + 3
SYMBOLS = VOCABULARY + 4
LENGTH = 32
TRAIN_USERS = 7_806
MOST = 16
"""Windows of a poet that are kept: those with the least hash."""
PUNCTUATION = 2
"""The first symbols of the vocabulary, a comma and a full stop: metre alone decides where they stand."""
NAMELESS = frozenset(("", "無名氏", "佚名", "不詳", "失名", "闕名"))
MISSING = "□"
FOLDER = "package/dist/quantangshi"
Poem = tuple[str, str]
"""(author, text)."""


def read_poems(folder: Path, dynasty: str) -> list[Poem]:
    """The poems of `poet.DYNASTY.N.json`, N = 0, 1000, ..., in order; empty ones are left out. Raises `BadInput`."""
    paths = sorted(folder.glob(f"poet.{dynasty}.*.json"), key=lambda path: int(path.suffixes[-2][1:]))
    poems = []
    for path in paths:
        try:
            for entry in json.loads(path.read_text("utf-8")):
                text = "".join(entry["paragraphs"])
                if text:
                    poems.append((entry["author"].strip(), text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unreadable(path.name, f"is no list of poems with author and paragraphs: {error}.") from None
    if not poems:
        raise NotFound(f"poet.{dynasty}.*.json", "hold no poem.")
    return poems


def vocabulary(poems: Iterable[Poem]) -> str:
    """The most frequent characters, most frequent first, ties by code point; a mark for missing ones is none."""
    counts = Counter("".join(text for _, text in poems))
    counts.pop(MISSING, None)
    ordered = sorted(counts, key=lambda character: (-counts[character], character))
    return "".join(ordered[:VOCABULARY])


def windows(text: str, codes: Mapping[str, int]) -> Iterator[list[int]]:
    """Windows of 33 symbols that overlap by one, padded; one without a predicted vocabulary symbol is left out."""
    symbols = [BEGIN, *(codes.get(character, UNKNOWN) for character in text), END]
    for first in range(0, len(symbols) - 1, LENGTH):
        window = symbols[first : first + LENGTH + 1]
        if any(1 <= symbol <= VOCABULARY for symbol in window[1:]):
            yield window + [PADDING] * (LENGTH + 1 - len(window))


def build(folder: Path) -> tuple[Parts, dict[str, Any]]:
    """Tables of the unpacked npm package, and their counts."""
    tang = read_poems(folder / FOLDER, "tang")
    public = {author for author, _ in tang}
    known = vocabulary(tang)
    codes = {character: code for code, character in enumerate(known, start=1)}
    texts: dict[str, dict[str, None]] = {}
    for author, text in read_poems(folder / FOLDER, "song"):
        if author not in public and author not in NAMELESS:
            texts.setdefault(author, {})[text] = None
    names = sorted(texts)
    rows, ranks, owner = [], [], []
    for place, name in enumerate(names):
        made = [window for text in texts[name] for window in windows(text, codes)]
        hashes = [hashlib.sha256(f"fieldfare-poems:{name}:{index}".encode()).digest() for index in range(len(made))]
        order = sorted(range(len(made)), key=hashes.__getitem__)[:MOST]
        for rank, index in sorted(enumerate(order), key=lambda pair: pair[1]):
            rows.append(made[index])
            ranks.append(rank)
            owner.append(place)
    song = UserTable.owned(
        [f"poems-{name}" for name in names],
        np.array(owner, np.int64),
        {"tokens": np.array(rows, np.int16).reshape(-1, LENGTH + 1), "rank": np.array(ranks, np.uint8)},
    )
    parts: Parts = {
        part: song.select(chosen) for part, chosen in parts_by_digest(f"fieldfare-poems:{n}" for n in names).items()
    }
    shown = [window for author, text in tang if author not in NAMELESS for window in windows(text, codes)]
    tokens = np.array(shown, np.int16).reshape(-1, LENGTH + 1)
    columns: dict[str, NDArray[Any]] = {"tokens": tokens, "rank": np.zeros(len(tokens), np.uint8)}
    parts["public"] = UserTable(["poems-tang"], np.array([0, len(tokens)]), columns)
    counts = {
        "users": len(names),
        "sha256 of vocabulary": hashlib.sha256(known.encode()).hexdigest(),
        "sha256 of names": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "sha256 of rows, most = 4": _digest(np.asarray(rows)[np.asarray(ranks) < 4]),
        "sha256 of rows, most = 16": _digest(np.asarray(rows)),
        "sha256 of public rows": _digest(tokens),
    }
    return parts, counts


def _digest(rows: NDArray[Any]) -> str:
    return hashlib.sha256(rows.astype("<i2").tobytes()).hexdigest()


SOURCE = Source(
    "poems",
    build,
    rule=1,
    package=Package(
        client="npm",
        name="chinese-poetry",
        version="2.0.1",
        file="chinese-poetry-2.0.1.tgz",
        size=85_464_664,
        sha256="25b549e46919c3a0569db6b68ddc96956b04a484ea4518ad2bbd4f137e307e86",
        licence="MIT, JackeyGao 2016",
        licence_member="package/LICENSE",
    ),
    members=(f"{FOLDER}/poet.tang.", f"{FOLDER}/poet.song."),
)


def base_name(sha256: str) -> str:
    """The file of a base model: several, of different widths, lie in one folder."""
    return f"poems-base-{sha256[:12]}.safetensors"


class Adapted(nn.Module):
    """A linear layer, and with `rank` above 0 a trained low-rank term: W x + b + B A x (Hu et al. 2022), B = 0 first.

    A is drawn from N(0, 1 / inputs). There is no factor alpha / rank: the server's learning rate has that part.
    """

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.whole = nn.Linear(inputs, outputs)
        self.rank = rank
        if rank:
            self.down = nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
            self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.whole(inputs)
        return outputs + inputs @ self.down.T @ self.up.T if self.rank else outputs


class Verse(nn.Module):
    """A causal transformer of one layer and four heads, ReLU, layer norms first, learned positions, tied embedding and
    an output bias: 75 764 parameters at width 32, 165 908 at 64."""

    heads = 4

    def __init__(self, width: int, rank: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.first, self.second, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.mixed = Adapted(width, 3 * width, rank), Adapted(width, width, rank)
        self.wide, self.narrow = Adapted(width, 2 * width, rank), Adapted(2 * width, width, rank)
        self.bias = nn.Parameter(torch.zeros(SYMBOLS))
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -1e9).triu(1), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows, length = inputs.shape
        state = self.embedding(inputs) + self.positions[:length]
        width = state.shape[-1]
        parts = self.qkv(self.first(state)).reshape(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mask: torch.Tensor = self.get_buffer("mask")[:length, :length]
        weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(width // self.heads) + mask, -1)
        state = state + self.mixed((weights @ value).transpose(1, 2).reshape(rows, length, width))
        state = state + self.narrow(torch.relu(self.wide(self.second(state))))
        outputs: torch.Tensor = self.last(state) @ self.embedding.weight.T + self.bias
        return outputs


class PoemsParameters(Table):
    """Classical Chinese verse, a poet a user."""

    users: int = Field(
        default=TRAIN_USERS, ge=1, le=TRAIN_USERS, description="evenly among all names", json_schema_extra=USERS
    )
    width: int = Field(default=64, ge=4, le=1024, multiple_of=4, description="of the transformer")
    most: int = Field(default=MOST, ge=1, le=MOST, description="windows of a poet that are trained on")
    trained: Literal["all", "adapters", "last"] = Field(
        default="all",
        description="everything; low-rank adapters of the layer and the output bias; last layer norm and output bias",
    )
    rank: int = Field(default=4, ge=1, le=64, description="of the adapters, where these are trained")
    base: str = Field(
        default="",
        pattern="^([0-9a-f]{64})?$",
        description="SHA-256 of a base model in FIELDFARE_DATA (benchmarks/claims/base.py); empty: random weights",
    )
    scored: Scored = SCORED


class PoemsTask(Task):
    """Next character. `folder`: for tests."""

    Parameters: ClassVar[type[Table]] = PoemsParameters
    name: ClassVar[str] = "poems"
    score_name: ClassVar[str] = "accuracy"
    held_out: ClassVar[str] = "A twentieth of the poets, chosen by a hash, who are never trained on; published verse."

    def __init__(
        self,
        width: int = 64,
        most: int = MOST,
        trained: Literal["all", "adapters", "last"] = "all",
        rank: int = 4,
        base: str = "",
        scored: Scored = "test",
        folder: Path | None = None,
        users: int = TRAIN_USERS,
    ) -> None:
        self.users_count = users
        self.width, self.most, self.trained, self.rank = width, most, trained, rank
        self.base, self.scored, self.folder = base, scored, folder

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            model = Verse(self.width, self.rank if self.trained == "adapters" else 0)
        if self.base:
            weights, own = self._base_weights(), model.state_dict()
            shapes = {name: value.shape for name, value in own.items() if not name.endswith((".down", ".up"))}
            if {name: value.shape for name, value in weights.items()} != shapes:
                raise WrongForm(f"task.base = {self.base[:12]!r}", "is a model of another shape.", "its own width")
            model.load_state_dict(own | weights)
        for name, value in model.named_parameters():
            value.requires_grad_(self._trains(name))
        return model

    def _trains(self, name: str) -> bool:
        if self.trained == "adapters":
            return name == "bias" or name.endswith((".down", ".up"))
        return self.trained == "all" or name == "bias" or name.startswith("last.")

    def _base_weights(self) -> dict[str, torch.Tensor]:
        # Imported here: the names of tasks are looked up by commands that must not wait for it.
        from safetensors.torch import load as load_weights

        folder = self.folder or data_folder()
        path = (folder or Path()) / base_name(self.base)
        try:
            content = path.read_bytes()
        except OSError:
            raise NotFound(f"task.base = {self.base[:12]!r}", f"needs {path}.", "benchmarks/claims/base.py") from None
        if hashlib.sha256(content).hexdigest() != self.base:
            raise Differs(str(path), "is another model than task.base names.", hashlib.sha256(content).hexdigest())
        weights: dict[str, torch.Tensor] = load_weights(content)
        return weights

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return sequence_loss(outputs, targets)

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return next_symbols(columns["tokens"])

    def users(self) -> UserTable:
        everybody = table("poems", "train", ("tokens", "rank"), self.folder)
        count = min(self.users_count, len(everybody))
        everything = everybody.select(np.arange(count) * len(everybody) // count)
        if self.most >= MOST:
            return everything
        rows = everything.rows(np.arange(len(everything)))
        chosen = rows.columns["rank"].numpy() < self.most
        owner = np.repeat(np.arange(len(everything)), rows.sizes)[chosen]
        columns = {name: values.numpy()[chosen] for name, values in rows.columns.items()}
        return UserTable.owned(everything.pseudonyms, owner, columns)

    def public(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, targets) of Tang, for a base model."""
        return self.prepare(table("poems", "public", ("tokens",), self.folder).rows(np.arange(1)).columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """`accuracy` as StackOverflow is scored: without unknown, begin, end and padding, punctuation counted.
        `accuracy_characters` and `nats` (mean cross-entropy) leave comma and full stop out."""
        poets = table("poems", self.scored, ("tokens", "rank"), self.folder)
        inputs, targets = self.prepare(poets.rows(np.arange(len(poets))).columns)
        right = counted = right_characters = characters = 0
        nats = 0.0
        with torch.no_grad():
            for part, wanted in zip(torch.split(inputs, 256), torch.split(targets, 256), strict=True):
                word = (wanted >= 1) & (wanted <= VOCABULARY)
                outputs, wanted = model(part)[word], wanted[word]
                hit, letter = outputs.argmax(-1) == wanted, wanted > PUNCTUATION
                each = nn.functional.cross_entropy(outputs, wanted, reduction="none")
                right, counted = right + int(hit.sum()), counted + len(wanted)
                right_characters += int((hit & letter).sum())
                characters += int(letter.sum())
                nats += float(each[letter].double().sum())
        return {
            "accuracy": right / max(counted, 1),
            "accuracy_characters": right_characters / max(characters, 1),
            "nats": nats / max(characters, 1),
        }
