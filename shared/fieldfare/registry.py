"""Named kinds that a plan can choose from: mechanisms, server optimizers, clippings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from fieldfare.errors import BadInput


class Table(BaseModel):
    """A table of a plan. Unknown keys and infinite numbers are refused, and `true` is not the number 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Pydantic would read `rounds = true` as 1."""
        allowed = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in (allowed, *get_args(allowed)):
            raise ValueError("must not be true or false")
        return value


S = TypeVar("S", bound=BaseModel)


class Registry(Generic[S]):
    """Spec classes by their `kind`. A new kind is one file with one spec class under `@registry.register`.

    section: the plan's table, for messages.
    """

    def __init__(self, section: str) -> None:
        self.section = section
        self._specs: dict[str, type[S]] = {}

    def register(self, spec: type[S]) -> type[S]:
        """Class decorator: register a spec class under the default of its `kind` field."""
        kind = spec.model_fields["kind"].default
        if kind in self._specs and self._specs[kind] is not spec:
            raise TypeError(f"two {self.section} kinds are called {kind!r}")
        self._specs[kind] = spec
        return spec

    def kinds(self) -> tuple[str, ...]:
        """The registered kinds, sorted."""
        return tuple(sorted(self._specs))

    def spec(self, kind: object) -> type[S]:
        """The class of a kind. Raises `BadInput` for an unknown one, naming the nearest."""
        if not isinstance(kind, str) or kind not in self._specs:
            near = difflib.get_close_matches(str(kind), self.kinds(), n=1) or [", ".join(self.kinds())]
            raise BadInput(f"{self.section}.kind = {kind!r}", "there is no such kind.", near[0])
        return self._specs[kind]

    def parse(self, spec: S | Mapping[str, Any]) -> S:
        """Validate a mapping such as {"kind": "nu", "nu": 0.01}.

        Raises `BadInput` (a ValueError) that names the field, the value and what is allowed.
        """
        if isinstance(spec, BaseModel):
            return spec
        model = self.spec(spec.get("kind"))
        try:
            return model.model_validate(dict(spec))
        except ValidationError as error:
            raise bad_input(error, self.section, model) from None


def bad_input(error: ValidationError, section: str, model: type[BaseModel]) -> BadInput:
    """The first fault of a pydantic error as one refusal: key, value, and the nearest allowed value."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    raised = context.get("error")
    if isinstance(raised, BadInput):  # a validator of ours, which names the key better than pydantic can
        return raised
    path = [str(part) for part in first["loc"]]
    what = key = ".".join([section, *path] if section else path)
    if not isinstance(first["input"], Mapping):
        what += f" = {first['input']!r}"
    if first["type"] == "extra_forbidden":
        known = list(_fields_at(model, path[:-1]))
        near = difflib.get_close_matches(path[-1], known, n=1) or [", ".join(known)]
        return BadInput(what, "unknown key.", near[0])
    if first["type"] == "missing":
        return BadInput(key, "is required.")
    nearest = next((str(context[bound]) for bound in ("ge", "le") if bound in context), "")
    if first["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        nearest = next(iter(difflib.get_close_matches(str(first["input"]), allowed, n=1)), context["expected"])
    if not nearest:
        nearest = next((f"{word} {context[b]}" for b, word in (("gt", "above"), ("lt", "below")) if b in context), "")
    message = str(first["msg"]).removeprefix("Value error, ")
    return BadInput(what, f"{message}.".replace("..", "."), nearest)


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """The field names of the table at `path` below `model`; none where the path leads to no table."""
    for name in path:
        field = model.model_fields.get(name)
        inner = field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
