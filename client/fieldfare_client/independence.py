"""Does one user's update depend on another's training? Compared in processes of its own.

A user is trained alone, twice over, and after the others in several orders, each time in a process that was
forked before anybody trained: what the first user leaves behind (a fitted scaler, a cache, a file) would
otherwise be there for both sides of every comparison. Only digests, or a few projections, come back.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fieldfare.lazily import has_torch, torch
from fieldfare_client.forked import ask_once

Update: TypeAlias = "torch.Tensor | NDArray[np.float32]"
# Trains the user at a place in the list; its update, float (d,).
Train = Callable[[int], Update]
# Nanoseconds between two trainings, two ticks of the clock of file times: an older file is of another one.
GRAIN = 20_000_000


class Dependent(Exception):
    """An update that is not a function of its user alone; the text says how, without the user."""

    def __init__(self, place: int, why: str, nearest: str) -> None:
        self.place, self.why, self.nearest = place, why, nearest
        super().__init__(why)


class TrainingRaised(Exception):
    """A user's training raised; the text is the traceback."""

    def __init__(self, place: int, kind: str, text: str) -> None:
        self.place, self.kind = place, kind
        super().__init__(text)


# Whether two marks, as JSON gives them back, are of one update.
Same = Callable[[Any, Any], bool]


class Marks(NamedTuple):
    """What comes back of an update in its place."""

    of: Callable[[Update], object]
    same: Same


def _digest(update: Update) -> str:
    return hashlib.sha256(_values(update).tobytes()).hexdigest()


def _project(update: Update) -> list[float]:
    """Return the norm, and a few fixed random projections."""
    flat, generator = _values(update).astype(np.float64).reshape(-1), np.random.default_rng(0)
    return [float(np.linalg.norm(flat)), *(float(flat @ generator.standard_normal(flat.size)) for _ in range(4))]


def _values(update: Update) -> NDArray[np.generic]:
    return update if isinstance(update, np.ndarray) else update.detach().numpy()


def _are_close(one: list[float], other: list[float]) -> bool:
    reach = ROUNDING * max(one[0], other[0])
    return all(abs(a - b) <= reach for a, b in zip(one, other, strict=True))


# Of an update's norm, in each projection: what the order of sums may change.
ROUNDING = 1e-4
# Bit for bit.
EXACT = Marks(_digest, lambda one, other: bool(one == other))
UP_TO_ROUNDING = Marks(_project, _are_close)


def require_independent(train: Train, names: Sequence[str], marks: Marks = EXACT, apart: bool = False) -> None:
    """Train each of `names` alone, and in orders that put each after others; compare.

    Args:
        train: must begin at the same point each time.
        names: of two users or more, for the message.
        marks: how updates are compared.
        apart: each training has a child of its own (`forked`), so that only what lies outside of memory is
            carried on.

    Raises:
        Dependent: updates differ, or a training reads a file that an earlier one wrote.
        Raised: a training raised.
    """
    places = list(range(len(names)))
    began = time.time_ns()
    alone = [_trained(train, [place], began, marks)[0] for place in places]
    for place in places:
        if not all(marks.same(update, alone[place]) for update in _again(train, [place, place], began, marks, apart)):
            why = (
                "gives two different results from the same start: it keeps state between calls (an optimizer, a "
                "generator or a cache outside of train), or draws randomness that the seeds do not reach."
            )
            nearest = "everything that changes made inside of train; seeds from torch, numpy.random or random"
            raise Dependent(place, why, nearest)
    orders = dict.fromkeys(map(tuple, (places, places[::-1], places[1:] + places[:1])))
    for order in orders:
        for turn, (place, update) in enumerate(zip(order, _again(train, order, began, marks, apart), strict=True)):
            if not marks.same(update, alone[place]):
                before = names[order[turn - 1]]
                why = f"gives another result after that of user {before!r} than alone: it carries their data on."
                raise Dependent(place, why, _NEAREST)


FORGETFUL = "a task that keeps nothing of users between calls"
_NEAREST = "optimizer, scheduler, scalers and caches made inside of train; or rebuild=True where the model keeps them"


def _again(train: Train, order: Sequence[int], began: int, marks: Marks, apart: bool) -> list[object]:
    """Return `_trained` of users who train alone: that one raises now is another's doing."""
    try:
        if apart:
            return [_trained(train, [place], began, marks)[0] for place in order]
        return _trained(train, order, began, marks)
    except TrainingRaised as error:
        why = f"raises {error.kind} after that of others, and not alone: it carries their data on."
        raise Dependent(error.place, why, _NEAREST) from None


def _trained(train: Train, order: Sequence[int], began: int, marks: Marks) -> list[object]:
    """Return marks of the updates of the users at `order`, trained one after another in one new process."""
    answer = ask_once(lambda tell: _train_all(train, order, began, marks, tell))
    if answer is None:
        raise TrainingRaised(order[0], "SystemExit", "the training ended its process")
    if "file" in answer:
        why = f"reads {answer['file']}, which an earlier training wrote: the next user's update depends on it."
        raise Dependent(answer["place"], why, "a directory of its own for each user, or no file")
    if "raised" in answer:
        raise TrainingRaised(answer["place"], answer["raised"], answer["text"])
    updates: list[object] = answer["updates"]
    return updates


def _train_all(
    train: Train, order: Sequence[int], began: int, marks: Marks, tell: Callable[[dict[str, object]], None]
) -> None:
    updates, place, start = [], order[0], time.time_ns()

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("open", "sqlite3.connect") or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        if event == "open" and set(str(arguments[1] or "r")) & set("wax"):
            return
        path = os.fsdecode(arguments[0])
        if path.endswith((".py", ".pyc")) or path.startswith("/proc/"):
            return
        try:
            written = os.stat(path).st_mtime_ns
        except OSError:
            return
        if Path(path).is_file() and began < written <= start - GRAIN:
            tell({"file": path, "place": place})

    logging.disable()  # what the parent says of the same training is enough
    sys.addaudithook(listen)
    if has_torch():
        torch.set_num_threads(1)  # the threads of the parent are not here
    with threadpool_limits(1):
        for place in order:
            time.sleep(GRAIN / 1e9)
            start = time.time_ns()
            try:
                update = train(place)
            except Exception as error:
                tell({"raised": type(error).__name__, "text": traceback.format_exc(), "place": place})
                return
            updates.append(marks.of(update))
    tell({"updates": updates})
