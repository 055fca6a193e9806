"""State of plain arrays that users of a node train one after another: scikit-learn, Keras, JAX and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fieldfare.errors import Conflict, WrongForm
from fieldfare.schema import Arrays, Schema
from fieldfare.trees import refuse_tree_bytes, refuse_trees

_FORM = "a torch.nn.Module, or a list or a mapping of arrays, such as [model.coef_, model.intercept_]"


class Altered(Exception):
    """A loop left another model than the one it got, so there is no update to read."""


class LocalArrays:
    """A list or a mapping of arrays, of which every user gets copies. Floating ones are trained, others are
    kept.

    Names are those of the mapping, or "0", "1", ... as in `ArrayRecord([...])`.

    Args:
        built: what the app's `build` made.
        rebuild: must be false: nothing of a user's arrays is left for the next one.

    Raises:
        BadInput: it is no list or mapping of arrays of numbers, or has nothing to train; trees are named.
    """

    def __init__(self, built: object, rebuild: bool) -> None:
        refuse_trees("what ff.private.train(build) builds", built)
        if rebuild:
            why = "every user gets copies of the arrays."
            raise Conflict("ff.private.train(build, rebuild=True)", why, "leave rebuild out")
        try:
            self._built = _named(built)
        except Altered as error:
            raise WrongForm("ff.private.train(build)", f"{error}.", _FORM) from None
        self._listed = not isinstance(built, Mapping)
        trained = {name: value for name, value in self._built.items() if value.dtype.kind == "f"}
        self.schema = Schema(tuple(trained), tuple(value.shape for value in trained.values()))
        if self.schema.numel == 0:
            refuse_tree_bytes("ff.private.train(build)", self._built.values())
            why = "builds no floating array to train."
            raise WrongForm("ff.private.train(build)", why, "arrays of floating numbers")

    def initial(self) -> Arrays:
        """Return the trained arrays as they were built, float32 copies."""
        return {name: self._built[name].astype(np.float32) for name in self.schema.names}

    def set_public(self, values: Arrays) -> None:
        """Use `values` for arrays that are not trained from now on, by their names."""
        self._built |= {name: value for name, value in values.items() if name in self._built}

    def load(self, point: Arrays) -> object:
        """Return the arrays for the next user, in the form and the dtypes that were built; trained ones at `point`."""
        own = {name: np.array(point.get(name, value), dtype=value.dtype) for name, value in self._built.items()}
        return list(own.values()) if self._listed else own

    def read(self, point: Arrays, out: np.ndarray[Any, np.dtype[np.float32]], returned: object) -> None:
        """Write the update, returned less loaded arrays in float64, to `out`, float32 (d,).

        Raises `Altered` where the loop returned other arrays, or none.
        """
        if returned is None:
            raise Altered("the loop returned nothing, and what it returns is the user's model: `return arrays`")
        now = _named(returned)
        if extra := now.keys() - self._built.keys():
            raise Altered(f"the loop returned {min(extra)!r}, which build does not make: return the arrays alone")
        for name, target in self.schema.split(out).items():
            if name not in now or now[name].shape != target.shape:
                raise Altered(f"the loop returned no array {name!r} of shape {target.shape}")
            loaded = point[name].astype(self._built[name].dtype)
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is a failure of its user
                np.subtract(now[name], loaded, out=target, dtype=np.float64, casting="same_kind")


def _named(state: object) -> Arrays:
    """Return copies of the arrays of `state` by name. Raises `Altered`."""
    if isinstance(state, list | tuple):
        state = {str(place): value for place, value in enumerate(state)}
    if not isinstance(state, Mapping):
        raise Altered(f"builds a {type(state).__name__}")
    named = {}
    for name, value in state.items():
        try:
            named[str(name)] = np.array(value)
        except ValueError:  # rows of different lengths: a list of arrays in the place of an array
            raise Altered(
                f"{str(name)!r} is a {type(value).__name__} that is no array: return the arrays alone"
            ) from None
    odd = next((name for name, value in named.items() if value.dtype.kind not in "fiub"), None)
    if odd is not None:
        raise Altered(f"array {odd!r} holds {named[odd].dtype}, not numbers of numpy")
    return named
