"""Kinds of server optimizer by name. A new kind is one file with a `ServerOptimizer` subclass under `@register`."""

from __future__ import annotations

from collections.abc import Mapping

from fieldfare.plan import ServerOptimizerSpec
from fieldfare.registry import Registry
from fieldfare_server.optimizers.base import ServerOptimizer

_registry: Registry[ServerOptimizer] = Registry("server_optimizer")
register = _registry.register
kinds = _registry.kinds
parse = _registry.parse
spec = _registry.spec


def build(spec: ServerOptimizerSpec | Mapping[str, object]) -> ServerOptimizer:
    """Return the optimizer that `spec` names. Raises `BadInput` with the nearest allowed key or value."""
    if isinstance(spec, ServerOptimizerSpec) and not isinstance(spec, ServerOptimizer):
        raise TypeError(f"{type(spec).__name__} names no optimizer")
    return parse(spec)
