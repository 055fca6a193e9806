"""Named kinds that a plan can choose from: mechanisms, server optimizers, clippings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.config import JsonDict

from fieldfare.errors import BadInput
from fieldfare.refusals import bad_input, nearest_of

# Units of keys, for `json_schema_extra`: the plan reference and the JSON Schema show them.
SECONDS: JsonDict = {"unit": "seconds"}
ROUNDS: JsonDict = {"unit": "rounds"}
USERS: JsonDict = {"unit": "users"}
PROBABILITY: JsonDict = {"unit": "probability"}
NORM: JsonDict = {"unit": "L2 norm"}


class Table(BaseModel):
    """A table of a plan. Unknown keys and infinite numbers are refused, and `true` is not the number 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `rounds = true`, which pydantic would read as 1."""
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
        """Register a spec class under the default of its `kind` field; a class decorator."""
        kind = spec.model_fields["kind"].default
        if kind in self._specs and self._specs[kind] is not spec:
            raise TypeError(f"two {self.section} kinds are called {kind!r}")
        self._specs[kind] = spec
        return spec

    def kinds(self) -> tuple[str, ...]:
        """Return the registered kinds, sorted."""
        return tuple(sorted(self._specs))

    def spec(self, kind: object) -> type[S]:
        """Return the class of a kind. Raises `BadInput` for an unknown one, naming the nearest."""
        if kind is None:
            raise BadInput(f"{self.section}.kind", "is required.", ", ".join(self.kinds()), code="key-required")
        if not isinstance(kind, str) or kind not in self._specs:
            known = nearest_of(kind, self.kinds())
            raise BadInput(f"{self.section}.kind = {kind!r}", "there is no such kind.", known, code="kind-unknown")
        return self._specs[kind]

    def parse(self, spec: S | Mapping[str, object]) -> S:
        """Validate a mapping such as {"kind": "nu", "nu": 0.01}.

        Raises `BadInput` (a ValueError) that names the field, the value and what is allowed.
        """
        if isinstance(spec, BaseModel):
            return spec
        if not isinstance(spec, Mapping):
            raise BadInput(f"{self.section} = {spec!r}", "must be a table with a kind.", code="table-without-kind")
        model = self.spec(spec.get("kind"))
        try:
            return model.model_validate(dict(spec))
        except ValidationError as error:
            raise bad_input(error, self.section, model) from None
