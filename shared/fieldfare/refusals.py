"""What is wrong with a table of a plan, in words: key, value, what the key takes, the nearest key or value, line."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen, MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fieldfare.errors import BadInput

_Model = TypeVar("_Model", bound=BaseModel)
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}
_BOUNDS = ((Ge, "ge", "of at least"), (Gt, "gt", "above"), (Le, "le", "of at most"), (Lt, "lt", "below"))
_BOUND = re.compile(r"(below )?(-?\d[\d.]*(?:e[+-]?\d+)?)")
_SIZES = ((MinLen, "min_length", "of at least"), (MaxLen, "max_length", "of at most"))


def nearest_of(word: object, known: Sequence[str]) -> str:
    """Return those of `known` that look like `word` or contain it, else all of them: one line."""
    text = str(word)
    near = difflib.get_close_matches(text, known, n=3) or difflib.get_close_matches(text.lower(), known, n=3)
    near += [name for name in known if len(text) > 2 and text in name and name not in near]
    return ", ".join(near or known)


def expected(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return what a key of this type takes, as in "must be ...": "a whole number of at least 1", 'a number or
    "auto"'.
    """
    metadata, origin, inner = list(metadata), get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return expected(inner[0], [*annotation.__metadata__, *metadata])
    for item in list(metadata):
        metadata += item.metadata if isinstance(item, FieldInfo) else ()
    if origin is Literal:
        values = [json.dumps(value) for value in inner]
        return values[0] if len(values) == 1 else "one of " + ", ".join(values)
    if origin in (Union, types.UnionType):
        return " or ".join(expected(part, metadata) for part in inner if part is not type(None))
    if origin in (tuple, list):
        words = "a list" if origin is list or Ellipsis in inner else f"a list of {len(inner)}"
        return f"{_within(words, _SIZES, metadata)}, each {expected(inner[0])}"
    words = _NAMES.get(annotation, "a table")
    if annotation in (int, float):
        return _within(words, _BOUNDS, metadata)
    if annotation is str:
        most = [item.max_length for item in metadata if isinstance(item, MaxLen | Len) and item.max_length]
        if patterns := [str(item.pattern) for item in metadata if getattr(item, "pattern", None)]:
            dotted = "letters, digits, '.', '_' and '-' in quotes, beginning with a letter or a digit"
            words = dotted if "." in patterns[0] else "letters, digits, '_' and '-' in quotes"
        elif any(isinstance(item, MinLen) for item in metadata):
            words += " that is not empty"
        return ", ".join([words, *(f"at most {length} characters" for length in most)])
    return words


def _within(words: str, bounds: Iterable[tuple[type, str, str]], metadata: list[Any]) -> str:
    found = [f"{word} {_plain(getattr(m, key))}" for kind, key, word in bounds for m in metadata if isinstance(m, kind)]
    return f"{words} {' and '.join(found).replace('and of', 'and')}".rstrip()


def _plain(number: float) -> str:
    return f"{number:.0f}" if number == round(number) and abs(number) < 1e15 else f"{number:g}"


def takes(field: FieldInfo) -> str:
    """Return what a key of a table takes."""
    return expected(field.annotation, field.metadata)


def validated(model: type[_Model], table: Mapping[str, object], section: str) -> _Model:
    """Return `table` as `model` has it. Raises `BadInput` as `bad_input`."""
    try:
        return model.model_validate(dict(table))
    except ValidationError as error:
        raise bad_input(error, section, model) from None


def bad_input(error: ValidationError, section: str, model: type[BaseModel]) -> BadInput:
    """Return all faults of a pydantic error as one refusal, each with its key, its value and the nearest that
    is allowed.

    section: the table that `model` describes, empty for the whole plan.
    """
    faults: list[BadInput] = []
    missing: list[tuple[str, list[str]]] = []
    unknown: set[str] = set()
    seen: set[str] = set()
    for each in error.errors():
        raised = each.get("ctx", {}).get("error")
        if isinstance(raised, BadInput):  # a validator of ours, which names the key better than pydantic can
            faults += raised.faults
            continue
        # A key that takes several types fails once for each of them, and pydantic adds the type to its place.
        path, field = _resolve(model, [str(part) for part in each["loc"]])
        key = ".".join([section, *path] if section else path)
        if key in seen:
            continue
        seen.add(key)
        shown = key if isinstance(each["input"], Mapping) else f"{key} = {each['input']!r}"
        if each["type"] == "extra_forbidden":
            known = list(_fields(model, path[:-1]))
            nearest = _elsewhere(model, path[-1]) or nearest_of(path[-1], known)
            unknown.update(nearest.split(", "))
            faults.append(BadInput(shown, "unknown key.", nearest, code="key-unknown"))
        elif each["type"] == "missing" and path[-1] == each["loc"][-1]:  # no number that a list lacks
            missing.append((key, path))
        elif each["type"] == "union_tag_invalid":  # a table whose kind decides what else it has
            context = each["ctx"]
            kinds = re.findall(r"'([^']*)'", context["expected_tags"])
            where = f"{key}.{context['discriminator'].strip(chr(39))} = {context['tag']!r}"
            faults.append(
                BadInput(where, "there is no such kind.", nearest_of(context["tag"], kinds), code="kind-unknown")
            )
        elif each["type"] in ("value_error", "assertion_error"):
            message = str(each["msg"]).removeprefix("Value error, ")
            faults.append(BadInput(shown, f"{message}.".replace("..", "."), code="values-conflict"))
        else:
            why = f"must be {takes(field)}." if field else f"{each['msg']}."
            faults.append(BadInput(shown, why, _nearest(each), code="value-wrong"))
    # A misspelt key is one fault, not two.
    needed = (key for key, path in missing if not unknown & {key, path[-1]})
    faults += [BadInput(key, "is required.", code="key-required") for key in needed]
    return all_of(faults)


def all_of(faults: Sequence[BadInput]) -> BadInput:
    """Return one refusal for one or more faults."""
    return faults[0] if len(faults) == 1 else BadInput.of(faults)


def with_bounds(table: Mapping[str, Any], refusal: BadInput) -> dict[str, Any]:
    """Return a plan's table with every number beyond a bound at the bound that `refusal` names."""
    named = ((_key(fault), _BOUND.fullmatch(fault.nearest)) for fault in refusal.faults)
    bounds = {key: float(at[2]) * (1 - 1e-9 * bool(at[1])) for key, at in named if at}

    def put(inner: Mapping[str, Any], place: str) -> dict[str, Any]:
        return {
            key: put(value, f"{place}{key}.") if isinstance(value, Mapping) else bounds.get(f"{place}{key}", value)
            for key, value in inner.items()
        }

    return put(table, "")


def renamed(refusal: BadInput, other: BadInput) -> BadInput:
    """Return `refusal`, where following it leads to the refusal `other`: each key with what `other` names for it."""
    named = {_key(fault): fault.nearest for fault in other.faults if fault.nearest}
    return all_of([fault.naming(named.get(_key(fault), fault.nearest)) for fault in refusal.faults])


def _key(fault: BadInput) -> str:
    return fault.what.partition(" = ")[0]


def _nearest(fault: Mapping[str, Any]) -> str:
    context = fault.get("ctx", {})
    nearest = next((f"{context[bound]}" for bound in ("ge", "le") if bound in context), "")
    if fault["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        nearest = nearest_of(fault["input"], allowed)
    return nearest or next(
        (f"{word} {context[b]}" for b, word in (("gt", "above"), ("lt", "below")) if b in context), ""
    )


def _resolve(model: type[BaseModel], place: list[str]) -> tuple[list[str], FieldInfo | None]:
    """Return the keys at the beginning of `place`, and the field of the last; what pydantic adds about types
    is cut off.
    """
    path: list[str] = []
    field = None
    inner: object = model
    for name in place:
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        path.append(name)
        field = inner.model_fields.get(name)
        if field and get_origin(field.annotation) is dict and len(place) > len(path):  # a table of any names
            path.append(place[len(path)])
            return path, FieldInfo.from_annotation(get_args(field.annotation)[place[-1] != "[key]"])
        tables = _tables(field) if field else []
        inner = tables[0] if tables else None
    return path, field


def _tables(field: FieldInfo) -> list[type[BaseModel]]:
    parts = (field.annotation, *get_args(field.annotation))
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]


def _elsewhere(model: type[BaseModel], key: str) -> str:
    """Return `key` with its table, where one table of `model` alone has it; else nothing."""
    has = [name for name, field in model.model_fields.items() if any(key in one.model_fields for one in _tables(field))]
    return f"{has[0]}.{key}" if len(has) == 1 else ""


def _fields(model: type[BaseModel], path: list[str]) -> Mapping[str, FieldInfo]:
    """Return the fields of the table at `path` below `model`."""
    for name in path:
        model = _tables(model.model_fields[name])[0]
    return model.model_fields


def with_lines(refusal: BadInput, text: str) -> BadInput:
    """Return `refusal` with the line of each fault in the TOML file `text`, where its key or its table can be
    found there.
    """
    located = [fault.at(line_of(text, fault.what.partition(" = ")[0].split("."))) for fault in refusal.faults]
    return all_of(sorted(located, key=lambda fault: fault.line or 0))


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line (from 1) of the TOML file `text` that sets the key at `path`, or the nearest table
    around it; or None.

    The file is read by TOML's own parser, up to each line that has the key's name. The first line with which
    the key is there is the answer.
    """
    lines = text.splitlines()
    while path:
        for last in range(1, len(lines) + 1):
            if path[-1] in lines[last - 1] and _has(_parsed(lines, last), path):
                return last
        path = path[:-1]
    return None


def _parsed(lines: Sequence[str], last: int) -> object:
    """Return the table that the lines up to `last` make, with as many more as a value over several lines needs."""
    for end in range(last, len(lines) + 1):
        try:
            return tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
    return {}


def _has(table: object, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True
