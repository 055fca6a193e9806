"""What can be wrong with a task, in the words of its author.

The text may quote users' data, so it stays on the machine that holds them. `Faulty.kind`, one word of a fixed
list, is all that a node sends.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, get_args

from fieldfare.errors import BadInput, FieldfareError, Refused
from fieldfare.lazily import torch

Kind = Literal["task", "users", "data", "model", "loss", "training", "score", "reply"]
# What a fault can be in: all that the server learns of it.
KINDS: tuple[Kind, ...] = get_args(Kind)
# Packages whose frames lead to a task's code. What the task calls of them itself, its author sees.
_NOT_THE_TASKS = {"fieldfare", "fieldfare_client", "fieldfare_flower", "fieldfare_server", "importlib", "torch"}
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


class Faulty(BadInput):
    """A task that cannot be trained."""

    told = ""  # the trace of a child that found it

    def __init__(self, kind: Kind, name: str, why: str, nearest: str = "", cause: BaseException | None = None) -> None:
        """cause: what the task's code raised."""
        self.kind, self.cause = kind, cause
        # Parameters stand in the plan's table [task], not in its name.
        super().__init__(f"run.task = {name.partition('?')[0]!r} ({kind})", why, nearest)

    def trace(self) -> str:
        """Return the traceback of `cause` from the task's own first frame on, "" without one. It may quote data."""
        frames = own_frames(self.cause)
        return self.told if frames is None else "".join(traceback.format_exception(None, self.cause, frames)).rstrip()


def own_frames(cause: BaseException | None) -> TracebackType | None:
    """Return the traceback of `cause` from its first frame outside of `_NOT_THE_TASKS` on; None without one."""
    frames = None if cause is None else cause.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_TASKS:
        frames = frames.tb_next
    return frames


def fault_of(error: Exception) -> Faulty | None:
    """Return `error` as a task's fault where it is one, or where a file outside of packages raised it; else None."""
    frames = None if isinstance(error, FieldfareError) else own_frames(error)
    if frames is None or frames.tb_frame.f_code.co_filename.startswith(_INSTALLED):
        return error if isinstance(error, Faulty) else None
    text, remedy = explain_error(error)
    return Faulty("task", frames.tb_frame.f_globals["__name__"], text, remedy or "`fieldfare task check`", error)


@contextmanager
def as_fault(kind: Kind, name: str, what: str, nearest: str = "") -> Iterator[None]:
    """Turn whatever the task's code raises inside the block into a `Faulty`."""
    try:
        yield
    except Faulty:
        raise
    except Refused as error:
        # Many refusals name the task already.
        subject = "" if error.what.startswith("run.task") else f"{error.what}: "
        raise Faulty(kind, name, subject + error.why, error.nearest) from error
    except (Exception, SystemExit) as error:  # any: it is the task's code
        text, remedy = explain_error(error)
        raise Faulty(kind, name, f"{what}: {text}", nearest or remedy, error) from error


def show_shape(values: torch.Tensor) -> str:
    return f"shape {tuple(values.shape)}, {show_dtype(values.dtype)}"


def show_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_REMEDIES: tuple[tuple[str, str], ...] = (
    ("shapes cannot be multiplied", "a first layer as wide as the inputs"),
    ("expected scalar type Long", "labels of int64: .to(torch.int64) in prepare()"),
    ("not implemented for 'Int'", "labels of int64: .to(torch.int64) in prepare()"),
    ("result type Float can't be cast to", "labels of float32: .to(torch.float32) in prepare()"),
    ("'indices' to have one of", "token ids of int64: .to(torch.int64) in prepare()"),
    ("must have the same dtype", "float32 on both sides: .to(torch.float32)"),
    ("Found dtype", "float32 on both sides: .to(torch.float32)"),
    ("expected m1 and m2 to have the same dtype", "float32 on both sides: .to(torch.float32)"),
    ("out of bounds", "labels from 0 to the number of outputs less 1"),
    ("Can't instantiate abstract class", "define the methods that are named"),
)


def explain_error(error: BaseException) -> tuple[str, str]:
    """Return the error's text, with its type, and what usually helps."""
    text = f"{type(error).__name__}: {str(error).strip()}".rstrip(": ")
    remedy = next((advice for part, advice in _REMEDIES if part in text), "")
    return text + ("" if text.endswith(".") else "."), remedy
