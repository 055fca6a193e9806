"""Models of trees, which are refused by that word wherever a model is given."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fieldfare.errors import BadInput

_MODULES = ("xgboost", "lightgbm", "catboost", "sklearn.tree", "sklearn.ensemble", "flwr.serverapp.strategy.fedxgb")
_WHY = "trees have no vector of numbers that could be clipped and bear noise."
_NEAREST = "a linear model, or a network"


def refuse_trees(what: str, model: object) -> None:
    """Raise `BadInput` where `model` is a tree, a forest or a boosted ensemble, or makes one: its class, or a
    strategy.

    Args:
        what: was given `model`, in words.
        model: an object or a class; known by the module of its class, or of a class that it derives from.
    """
    kind = model if isinstance(model, type) else type(model)
    if any(each.__module__.startswith(_MODULES) for each in kind.__mro__):
        raise BadInput(f"{what} = {kind.__name__}", _WHY, _NEAREST, code="trees")


def refuse_tree_bytes(what: str, arrays: Iterable[np.ndarray]) -> None:
    """Raise `BadInput` where a model is vectors of bytes alone, as Flower's XGBoost apps send boosted trees."""
    values = list(arrays)
    if values and all(value.dtype == np.uint8 and value.ndim == 1 for value in values):
        raise BadInput(what, f"only bytes, as the trees of XGBoost travel: {_WHY}", _NEAREST, code="trees")
