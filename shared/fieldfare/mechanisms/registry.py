"""Kinds of mechanism by name. A new mechanism is one file with a `MechanismSpec` subclass under `@register`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import Mechanism, MechanismSpec
from fieldfare.registry import Registry

if TYPE_CHECKING:
    from fieldfare.participation import Participation

_registry: Registry[MechanismSpec] = Registry("mechanism")
register = _registry.register
kinds = _registry.kinds
parse = _registry.parse


def build(
    spec: MechanismSpec | Mapping[str, Any], rounds: int, participation: Participation | None = None
) -> Mechanism:
    """The mechanism that `spec` names, for `rounds` rounds, optimised for `participation` where the kind optimises."""
    if rounds < 1:
        raise BadInput(f"rounds = {rounds}", "must be at least 1.", "1")
    return parse(spec).build(rounds, participation)
