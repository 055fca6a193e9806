"""Chess players: will a player's rating change next month? Every player is a user.

Debian's `scid-rating-data` holds the monthly FIDE ratings of 380 415 players (GPL-2.0-or-later). Used are the 37 lists
of March 2017 to March 2020; users are the 211 007 players with at least 12 known transitions among them. A rating
changes in a month in which the player took part in a rated event. A user is a FIDE number; a person with two is two.

`fieldfare data fetch chess` writes `chess-train.arrow`, `-tune` and `-test`, a row a user: `rating` int16 (37,), 0
where the player is not listed, and `birth` int16, 0 where the year is unknown.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from fieldfare.errors import BadInput
from fieldfare.registry import USERS, Table
from fieldfare.task import Task, seeded
from fieldfare_client.sources import Package, Parts, Source
from fieldfare_client.tasks.scores import auc
from fieldfare_client.users import UserTable
from fieldfare_research.tables import SCORED, Scored, parts_by_digest, table

FIRST_YEAR = 2013
MONTHS = dict.fromkeys(range(FIRST_YEAR, 2021), 12) | {2021: 4}
"""Monthly lists in the file. Before 2013 a year has 1 to 9 lists, whose months the file does not tell."""
START = (2017 - FIRST_YEAR) * 12 + 2
LISTS = 37
"""March 2017 to March 2020, before the pandemic."""
LEAST_TRANSITIONS = 12
TRAIN_USERS = 189_864
FILE = "usr/share/scid/data/spelling.ssp"
PLAYER = re.compile(r"^([^#\n]+?)\s*#(\S+)\s+(\S*)\s*(?:\[(\d+)\*?\])?\s*(\d{4})?")
STEPS, INPUTS = LISTS - 2, 8


def read(lines: Iterator[str]) -> Iterator[tuple[str, int, NDArray[np.int16]]]:
    """Each player with a FIDE number: (number, year of birth or 0, ratings of all monthly lists from 2013 or 0).

    One `%Elo` line holds several years, `2016:2045,2045,? 2017:...`. A year with another number of lists than `MONTHS`
    is left out, as is anything that is not four digits.
    """
    number, birth, ratings = "", 0, np.zeros(sum(MONTHS.values()), np.int16)
    inside = False
    for line in lines:
        if line.startswith("@"):
            inside = line.startswith("@PLAYER")
        if not inside:
            continue
        if line[:1] not in " \t#@=%\n":
            if number:
                yield number, birth, ratings
            header = PLAYER.match(line)
            number, birth = "", int(header[5]) if header and header[5] else 0
            ratings = np.zeros(len(ratings), np.int16)
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "%Bio" and rest.startswith("FIDEID "):
            number = rest.split()[1]
        elif word == "%Elo":
            for part in rest.split():
                year, _, values = part.partition(":")
                listed = values.split(",")
                if not year.isdigit() or len(listed) != MONTHS.get(int(year)):
                    continue
                first = (int(year) - FIRST_YEAR) * 12
                for month, value in enumerate(listed):
                    if len(value) == 4 and value.isdigit():
                        ratings[first + month] = int(value)
    if number:
        yield number, birth, ratings


def transitions(ratings: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Whether a list and the next one both know the player, (..., lists - 1)."""
    known = ratings > 0
    both: NDArray[np.bool_] = known[..., 1:] & known[..., :-1]
    return both


def build(folder: Path) -> tuple[Parts, dict[str, Any]]:
    """Tables of the unpacked Debian package, a row a player, ordered by the number as text; and their counts."""
    path = folder / FILE
    players: dict[str, tuple[int, NDArray[np.int16]]] = {}
    with path.open(encoding="latin-1", newline="\n") as lines:
        for number, birth, listed in read(lines):
            if number not in players:
                players[number] = birth, listed[START : START + LISTS]
    kept = sorted(n for n, (_, row) in players.items() if transitions(row).sum() >= LEAST_TRANSITIONS)
    if not kept:
        raise BadInput(path.name, "has no player with enough monthly ratings of 2017 to 2020.")
    rating = np.stack([players[number][1] for number in kept])
    births = np.array([players[number][0] for number in kept], np.int16)
    parts: Parts = {}
    for part, chosen in parts_by_digest(f"fieldfare-chess:{number}" for number in kept).items():
        ids = [f"chess-{kept[place]}" for place in chosen]
        parts[part] = UserTable(ids, np.arange(len(ids) + 1), {"rating": rating[chosen], "birth": births[chosen]})
    both = transitions(rating)
    counts = {
        "players": len(players),
        "users": len(kept),
        "transitions": int(both.sum()),
        "changes": int((both & (rating[:, 1:] != rating[:, :-1])).sum()),
        "births": int((births > 0).sum()),
        "sha256 of rows": hashlib.sha256(rating.astype("<i2").tobytes()).hexdigest(),
        "sha256 of numbers": hashlib.sha256("\n".join(kept).encode()).hexdigest(),
    }
    return parts, counts


SOURCE = Source(
    "chess",
    build,
    rule=1,
    package=Package(
        client="apt",
        name="scid-rating-data",
        version="202104-1",
        file="scid-rating-data_202104-1_all.deb",
        size=21_064_440,
        sha256="6055c7b2ea07f8586d304c7c4b6a64627e5aeb5da7575601092b4ff1add93955",
        licence="GPL-2.0-or-later",
        licence_member="usr/share/doc/scid-rating-data/copyright",
    ),
    members=(FILE,),
)


class Recurrent(nn.Module):
    """A GRU written with two linear layers, because `torch.vmap` does not map `nn.GRU` well, and a head that also sees
    the month's inputs: 4 073 parameters at width 32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.given, self.kept = nn.Linear(INPUTS, 3 * width), nn.Linear(width, 3 * width)
        self.head = nn.Linear(width + INPUTS, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs.new_zeros(len(inputs), self.width)
        outputs = []
        for month in range(inputs.shape[1]):
            now = inputs[:, month]
            gate_x, new_x = self.given(now).split((2 * self.width, self.width), 1)
            gate_h, new_h = self.kept(hidden).split((2 * self.width, self.width), 1)
            reset, keep = torch.sigmoid(gate_x + gate_h).chunk(2, 1)
            candidate = torch.tanh(new_x + reset * new_h)
            hidden = (1 - keep) * candidate + keep * hidden
            outputs.append(self.head(torch.cat((hidden, now), 1)))
        return torch.cat(outputs, 1)


class ChessParameters(Table):
    """Monthly ratings of chess players."""

    users: int = Field(
        default=TRAIN_USERS, ge=1, le=TRAIN_USERS, description="evenly among all numbers", json_schema_extra=USERS
    )
    width: int = Field(default=32, ge=1, le=4096, description="of the recurrent layer")
    scored: Scored = SCORED


class ChessTask(Task):
    """A recurrent model over 35 months. The score is the area under the ROC curve over all known months of players that
    are never trained on. `folder`: for tests."""

    Parameters: ClassVar[type[Table]] = ChessParameters
    name: ClassVar[str] = "chess"
    score_name: ClassVar[str] = "auc"
    held_out: ClassVar[str] = "A twentieth of the players, chosen by a hash, who are never trained on; public ratings."

    def __init__(
        self, users: int = TRAIN_USERS, width: int = 32, scored: Scored = "test", folder: Path | None = None
    ) -> None:
        self.users_count, self.width, self.scored, self.folder = users, width, scored, folder
        self._scored: tuple[torch.Tensor, torch.Tensor] | None = None

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            return Recurrent(self.width)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean over a player's known months; 0 where there is none. A target of -1 is unknown."""
        known = (targets >= 0).to(outputs.dtype)
        each = nn.functional.binary_cross_entropy_with_logits(outputs, targets.clamp(min=0), reduction="none")
        return (each * known).sum(1) / known.sum(1).clamp(min=1)

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """inputs (n, 35, 8) from the months up to t, and targets (n, 35): does month t + 1 differ? -1 if unknown."""
        rating, birth = columns["rating"].to(torch.float32), columns["birth"].to(torch.float32)
        known = rating > 0
        both = known[:, 1:] & known[:, :-1]
        change = (rating[:, 1:] - rating[:, :-1]) * both
        month = torch.arange(2, LISTS, device=rating.device) + 2  # March is month 2 from 0; of the target
        angle = 2 * math.pi * ((month % 12) + 1).to(torch.float32) / 12
        age, born = ((2018 - birth) / 20 - 1) * (birth > 0), (birth > 0).to(torch.float32)
        rows = len(rating)
        inputs = torch.stack(
            (
                (change[:, :-1] != 0).to(torch.float32),
                (change[:, :-1] / 40).clamp(-3, 3),
                known[:, 1:-1].to(torch.float32),
                (rating[:, 1:-1] - 1700) / 400 * known[:, 1:-1],
                age.unsqueeze(1).expand(rows, STEPS),
                born.unsqueeze(1).expand(rows, STEPS),
                torch.sin(angle).expand(rows, STEPS),
                torch.cos(angle).expand(rows, STEPS),
            ),
            2,
        )
        targets = torch.where(both[:, 1:], (change[:, 1:] != 0).to(torch.float32), -1.0)
        return inputs, targets

    def users(self) -> UserTable:
        everybody = table("chess", "train", ("rating", "birth"), self.folder)
        count = min(self.users_count, len(everybody))
        return everybody.select(np.arange(count) * len(everybody) // count)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if self._scored is None:
            players = table("chess", self.scored, ("rating", "birth"), self.folder)
            self._scored = self.prepare(players.rows(np.arange(len(players))).columns)
        inputs, targets = self._scored
        with torch.no_grad():
            outputs = torch.cat([model(part) for part in torch.split(inputs, 1000)])
            loss = float(self.loss(outputs, targets).mean())
        known = targets >= 0
        return {"auc": auc(outputs[known], targets[known]), "loss": loss}
