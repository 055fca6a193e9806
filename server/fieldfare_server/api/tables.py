"""Lists as CSV: one line an item, nested values under dotted names. A page at a time, so that memory stays small."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeVar

from fastapi.responses import StreamingResponse
from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)

# What a route that may answer with a table adds to its responses in the OpenAPI document.
CSV: dict[int | str, dict[str, object]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


def csv_of(model: type[T], items: Iterable[T], name: str) -> StreamingResponse:
    """Return `items` as a CSV file called `name`, with the columns of `model`.

    An error of the first page is raised here, where it still becomes a problem document. Each page is a snapshot,
    because a slow download must not hold one open.
    """
    rest = iter(items)
    first = [item for item in [next(rest, None)] if item is not None]
    columns = tuple(_columns(model))

    def lines() -> Iterator[str]:
        yield _line(columns)
        for item in chain(first, rest):
            flat = dict(_flat(item.model_dump(mode="json")))
            yield _line([_cell(flat.get(column)) for column in columns])

    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)


def _columns(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _columns(inner, f"{before}{name}.")
        else:
            yield before + name


def _flat(values: dict[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        yield before + name, value
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True) if value else ""
    text = str(value)
    # A spreadsheet runs a text that begins like a formula.
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _line(cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue()
