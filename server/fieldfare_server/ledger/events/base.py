"""What an event is, and the one way between it and the text that the log keeps of it.

An event is a frozen dataclass. Its fields are the members of its JSON body; a field with a default is left out of the
body where it has that default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import isfunction, signature
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, get_args, get_origin, get_type_hints

from fieldfare.errors import LedgerError


class Unfit(Exception):
    """Something does not fit: in which table, in which row, and why."""

    def __init__(self, table: str, row: str, why: str) -> None:
        self.table, self.row, self.why = table, row, why
        super().__init__(f"{table} {row}: {why}")


def require(holds: bool, why: str) -> None:
    """Raise `LedgerError` unless an event is allowed: only a forger, or a faulty program, meets this."""
    if not holds:
        raise LedgerError("the event", why)


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    action: ClassVar[str]  # its name in the log

    def body(self) -> dict[str, Any]:
        """The members of its body."""
        return {
            name: value
            for name, _, optional in shape(type(self))
            if (value := getattr(self, name)) is not None or not optional
        }

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        """The event of a body. Raises TypeError unless the body has exactly its members, each of its type."""
        event = cls(**body)
        for name, kinds, _ in shape(cls):
            if type(getattr(event, name)) not in kinds:
                raise TypeError(f"{name} is not of its type")
        return event


class Record(NamedTuple):
    """An event, and what the log says of it besides: a row of the log without its links."""

    number: int
    at: float  # when it happened, by its writer's clock: seconds since 1970
    actor: str
    event: Event
    population: str | None = None
    run: str | None = None
    round: int | None = None

    @property
    def place(self) -> str:
        """The name of its population. Raises `LedgerError` without one."""
        require(self.population is not None, "it names no population")
        return str(self.population)


Shape: TypeAlias = tuple[tuple[str, tuple[type, ...], bool], ...]


def shape(cls: type[Event]) -> Shape:
    """(name, types of its JSON value, whether it may be left out) of each field of an event."""
    known = _SHAPES.get(cls)
    if known is None:
        hints = get_type_hints(cls)
        known = tuple((field.name, _kinds(hints[field.name]), field.default is None) for field in fields(cls))
        _SHAPES[cls] = known
    return known


# Each worked out once: a journal of millions of rows asks for them row by row.
_SHAPES: dict[type[Event], Shape] = {}


def _kinds(hint: Any) -> tuple[type, ...]:
    if isinstance(hint, UnionType):
        return tuple(kind for each in get_args(hint) for kind in _kinds(each))
    if (origin := get_origin(hint)) is not None:
        return {Mapping: (dict,), dict: (dict,), tuple: (list, tuple)}[origin]
    return {float: (float, int), NoneType: (NoneType,)}.get(hint, (hint,))


def by_kind(functions: Iterable[object], *parameters: str) -> dict[type[Any], Callable[..., Any]]:
    """Those of `functions` that take exactly these parameters, by each type that their last one may have."""
    found: dict[type[Any], Callable[..., Any]] = {}
    for each in functions:
        if isfunction(each) and tuple(signature(each).parameters) == parameters:
            hint = get_type_hints(each)[parameters[-1]]
            found |= dict.fromkeys(get_args(hint) or (hint,), each)
    return found


_raw_decode = json.JSONDecoder().raw_decode


def loads(text: Any) -> Any:
    """`json.loads`, without its search for spaces around an object that has none."""
    if type(text) is str and text[:1] == "{":
        value, end = _raw_decode(text)
        if end == len(text):
            return value
    return json.loads(text)
