"""A task over a CSV file: one row an example, one column that says whose it is. Change it to fit your data.

The plan names it as `csv_task:CsvTask`; its table [task] sets the parameters below.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fieldfare.errors import NotFound, TooFew, Unreadable, WrongForm
from fieldfare.lazily import torch  # `import torch`, when it is first used: what counts people needs none
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.scores import auc
from fieldfare_client.users import UserTable


class CsvParameters(Table):
    """A CSV file with a header: numbers, words that are listed here, and a target of two values."""

    file: str = Field(default="people.csv", description="the data; a path is taken from the directory of this module")
    user: str = Field(default="person", description="column that says whose row it is: the unit of privacy")
    target: str = Field(default="label", description="column to predict: 0 or 1, or two words: the second is 1")
    words: dict[str, list[str]] = Field(default={}, description="columns of words: all that may stand there ('' too)")
    ignore: list[str] = Field(default=[], description="columns that the model does not read")
    divide: dict[str, PositiveFloat] = Field(default={}, description="what to divide numbers by: known beforehand")
    hidden: int = Field(default=8, ge=1, le=10_000, description="width of the hidden layer")
    held_out: float = Field(default=0.2, gt=0, lt=1, description="share of users never trained on; keep it")


class CsvTask(Task):
    """A small perceptron on every column but user, target and those ignored; each listed word is an input of 0 or 1."""

    Parameters: ClassVar[type[Table]] = CsvParameters
    name: ClassVar[str] = "csv"
    score_name: ClassVar[str] = "auc"
    # Scores are shown without noise: the people they are computed on are not protected by the budget.
    held_out: ClassVar[str] = "Users chosen by a hash, who are never trained on; their data count as public."

    def __init__(
        self,
        file: str,
        user: str,
        target: str,
        words: dict[str, list[str]],
        ignore: list[str],
        divide: dict[str, float],
        hidden: int,
        held_out: float,
    ) -> None:
        self.file, self.user, self.target = Path(__file__).parent / file, user, target
        self.words, self.ignore, self.divide = words, ignore, divide
        self.hidden, self.share = hidden, held_out
        self._table: UserTable | None = None

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):  # the same weights on every machine
            first = torch.nn.Linear(self._inputs(), self.hidden)
            return torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Linear(self.hidden, 1))

    def known_schema(self) -> Schema:
        """State the model's size: plans are priced without PyTorch. Delete this if the model is not layers in a row."""
        return Schema.of_layers(self._inputs(), self.hidden, 1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # One number a row: (n,).
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    def users(self) -> UserTable:
        table = self._all()
        trained = np.flatnonzero(~held_out(table.pseudonyms, self.share))
        if not trained.size:
            why = f"has so few users ({len(table)}) that all of them are held out for the score."
            raise TooFew(self.file.name, why, "more users, or a smaller held_out")
        return table.select(trained)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        table = self._all()
        rows = table.rows(np.flatnonzero(held_out(table.pseudonyms, self.share))).columns
        if not len(rows["y"]) or bool((rows["y"] == rows["y"][0]).all()):
            why = "all rows of held-out users have the same target, or there are none, and AUC tells two apart."
            raise TooFew(self.file.name, why, "rows of both targets, or a larger held_out")
        with torch.no_grad():
            return {"auc": auc(model(rows["x"])[:, 0], rows["y"])}

    def _columns(self) -> list[str]:
        """Return the columns that the model reads: the header alone, no user's data."""
        header = next(self._lines(), (1, []))[1]
        for column in (self.user, self.target, *self.words, *self.ignore, *self.divide):
            if column not in header:
                commas = len(header) != 1 or not {";", "\t"}.intersection(header[0])
                why = f"is not in the first line of {self.file.name}, which must name the columns."
                raise NotFound(f"column {column!r}", why, ", ".join(header) if commas else "commas between columns")
        if twice := {column for column in header if header.count(column) > 1}:
            raise WrongForm(f"column {min(twice)!r}", f"stands twice in the first line of {self.file.name}.")
        if len({*self.words.get(self.target, "01")}) != 2:
            raise WrongForm(
                f"[task.words] {self.target!r}", "is the target, which has two words.", "its words for 0 and 1"
            )
        read = [column for column in header if column not in (self.user, self.target, *self.ignore)]
        if not read:
            raise WrongForm(self.file.name, "has no column to predict from.", "a column of numbers")
        return read

    def _inputs(self) -> int:
        return sum(len(self.words.get(column, [column])) for column in self._columns())

    def rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield where each row stands, and its cells by column. Raises `BadInput` where one is nobody's."""
        self._columns()
        lines = self._lines()
        header = next(lines)[1]
        for number, cells in lines:
            where = f"{self.file.name}, line {number}"
            if len(cells) != len(header):
                raise WrongForm(where, f"has {len(cells)} cells; the first line names {len(header)} columns.")
            row = dict(zip(header, cells, strict=True))
            # Rows without a name would all be one user's.
            if not row[self.user]:
                raise WrongForm(f"{where}, column {self.user!r}", "is empty: whose row is it?", "a name or a number")
            yield where, row

    def _all(self) -> UserTable:
        if self._table is None:
            columns, labels = self._columns(), self.words.get(self.target, ["0", "1", "0.0", "1.0"])
            users, inputs, targets = [], [], []
            for where, row in self.rows():
                if (label := row[self.target]) not in labels:
                    near = "0 or 1, or [task.words] with its two words" if len(labels) > 2 else " or ".join(labels)
                    raise WrongForm(f"{where}, column {self.target!r}", f"{label!r} is not a target.", near)
                users.append(row[self.user])
                inputs.append([value for column in columns for value in self._values(where, column, row[column])])
                targets.append(float(labels.index(label) % 2))
            if not users:
                raise TooFew(self.file.name, "has no row below its first line.")
            # float32, because models are; data are read once.
            x, y = np.array(inputs, np.float32), np.array(targets, np.float32)
            ends = np.cumsum([len(self.words.get(column, [column])) for column in columns])
            # A question asks for a column by its name: for its numbers, or for its words' places in [task.words].
            own = {
                column: part.argmax(axis=1) if column in self.words else part[:, 0] * self.divide.get(column, 1.0)
                for column, part in zip(columns, np.split(x, ends[:-1], axis=1), strict=True)
            }
            self._table = UserTable.grouped(np.array(users), {**own, self.target: y, "x": x, "y": y})
        return self._table

    def _values(self, where: str, column: str, cell: str) -> list[float]:
        where = f"{where}, column {column!r}"
        if (words := self.words.get(column)) is None:
            return [_number(where, cell) / self.divide.get(column, 1.0)]
        if cell not in words:
            raise WrongForm(where, f"{cell!r} is none of its words in [task.words].", ", ".join(map(repr, words)))
        return [float(cell == word) for word in words]

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and cells of each line that is not empty."""
        name = f"file {self.file.name!r}"
        try:
            with self.file.open(newline="", encoding="utf-8-sig") as file:
                for cells in (reader := csv.reader(file)):
                    if any(cells):
                        yield reader.line_num, [cell.strip() for cell in cells]
        except OSError as error:
            near = ", ".join(sorted(path.name for path in self.file.parent.glob("*.csv")))
            raise Unreadable(name, f"cannot be read: {error.strerror}.", near) from None
        except (UnicodeDecodeError, csv.Error):
            raise Unreadable(name, "is not CSV in UTF-8.", "save it again as 'CSV UTF-8'") from None


def held_out(pseudonyms: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Return who is held out for the score, about a `share`: each by a hash of the own name and nobody else's.

    So who was trained on stays a user of the budget whoever joins the file or leaves it, and is never scored.
    """
    return pseudonyms < np.uint64(int(share * 2**64))


def _number(where: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not abs(value) < 1e38:  # NaN, infinity, and what float32 cannot hold
        said = repr(cell) if cell else "an empty cell"
        near = "a number; all words of the column in [task.words]; the column in ignore; or leave the row out"
        raise WrongForm(where, f"{said} is not a number below 1e38.", near)
    return value
