"""Kinds of mechanism by name. A new mechanism is one file with a `MechanismSpec` subclass under `@register`."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from numbers import Integral
from typing import TypeVar

from threadpoolctl import threadpool_limits

from fieldfare.errors import OutOfRange
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.participation import Participation
from fieldfare.registry import Registry

S = TypeVar("S", bound=MechanismSpec)

_registry: Registry[MechanismSpec] = Registry("mechanism")
kinds = _registry.kinds
parse = _registry.parse
spec = _registry.spec


def register(spec: type[S]) -> type[S]:
    """Make a spec reachable by its `kind`; a class decorator.

    Raises:
        TypeError: the class has no `about` with an example of its kind.
    """
    about = spec.__dict__.get("about")
    kind = spec.model_fields["kind"].default
    if not isinstance(about, About) or about.example.get("kind") != kind:
        raise TypeError(f"{spec.__name__} needs an `about: ClassVar[About]` whose example is of kind {kind!r}")
    _registry.register(spec)
    return spec


def describe(kind: str) -> About:
    """Return a kind's row in the table of mechanisms. Raises `BadInput` for an unknown kind."""
    return _registry.spec(kind).about


def build(
    spec: MechanismSpec | Mapping[str, object],
    rounds: int,
    participation: Participation | None = None,
    cache: MutableMapping[str, bytes] | None = None,
) -> Mechanism:
    """Return the mechanism that `spec` names.

    Args:
        spec: a parsed or raw `[mechanism]` table.
        rounds: the horizon, at least 1.
        participation: what optimised kinds optimise for (None: one participation).
        cache: results of optimisations, by name (None: those that take minutes are kept in this process).

    Raises:
        BadInput: the spec or the rounds are out of range.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, Integral) or rounds < 1:
        raise OutOfRange(f"rounds = {rounds!r}", "must be at least 1, and an integer.", "1")
    parsed = parse(spec)
    # Its BLAS is one of its own, and only what is loaded is limited: unless it begins with one thread.
    if any(os.environ.get(f"{name}_NUM_THREADS") != "1" for name in ("OMP", "OPENBLAS", "MKL")):
        _ = scipy.linalg
    # One thread: sums are then made in one order, whatever OMP_NUM_THREADS says.
    with threadpool_limits(1, "blas"):
        if cache is None:
            return parsed.build(rounds, participation)
        return parsed.build_cached(rounds, participation, cache)
