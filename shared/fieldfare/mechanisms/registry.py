"""Kinds of mechanism by name. A new mechanism is one file with a `MechanismSpec` subclass under `@register`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.registry import Registry

if TYPE_CHECKING:
    from fieldfare.participation import Participation

S = TypeVar("S", bound=MechanismSpec)

_registry: Registry[MechanismSpec] = Registry("mechanism")
kinds = _registry.kinds
parse = _registry.parse


def register(spec: type[S]) -> type[S]:
    """Class decorator: make a spec reachable by its `kind`.

    Raises TypeError unless the class says what it is (`about`, with an example of its own kind).
    """
    about = spec.__dict__.get("about")
    kind = spec.model_fields["kind"].default
    if not isinstance(about, About) or about.example.get("kind") != kind:
        raise TypeError(f"{spec.__name__} needs an `about: ClassVar[About]` whose example is of kind {kind!r}")
    _registry.register(spec)
    return spec


def describe(kind: str) -> About:
    """What is worth knowing about a kind before one builds it. Raises `BadInput` for an unknown one."""
    return _registry.spec(kind).about


def build(
    spec: MechanismSpec | Mapping[str, Any], rounds: int, participation: Participation | None = None
) -> Mechanism:
    """The mechanism that `spec` names, for `rounds` rounds, optimised for `participation` where the kind optimises."""
    if isinstance(rounds, bool) or not isinstance(rounds, Integral) or rounds < 1:
        raise BadInput(f"rounds = {rounds!r}", "must be at least 1, and an integer.", "1")
    return parse(spec).build(rounds, participation)
