"""A model's parameters as one flat vector, and users' pseudonyms."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import BadInput, WrongForm
from fieldfare.lazily import torch

Arrays = dict[str, NDArray[Any]]
# Of PyTorch or of numpy.
Flat = TypeVar("Flat", "torch.Tensor", NDArray[np.generic])


def pseudonym(user_id: str) -> int:
    """Return the 64-bit name under which a user is known to the server: stable, the same on every node."""
    digest = hashlib.blake2b(user_id.encode(errors="surrogatepass"), digest_size=8, person=b"fieldfare.user").digest()
    return int.from_bytes(digest, "little")


def texts(user_ids: Iterable[object]) -> list[str]:
    """Return each id as text. The text "nan" or "None" is somebody's name.

    Raises `BadInput` where an id is missing: "", None, NaN, NaT or pandas' NA. The rows of all who have none
    would be one user's. So it does where one is bytes, a tensor or a float: 1.0 is another text than 1.
    """
    user_ids = list(user_ids)
    if (place := next((i for i, each in enumerate(user_ids) if _is_missing(each)), None)) is not None:
        raise BadInput(
            f"user id at place {place}",
            "it is missing: the rows of all who have none would be one user's.",
            "drop these rows, or give each user an id",
            code="user-id-missing",
        )
    if (number := next((each for each in user_ids if isinstance(each, float | np.floating)), None)) is not None:
        raise BadInput(
            f"user id {number}",
            "it is a float, as pandas makes of whole numbers where one is missing: read as a whole number it would be "
            "another user, with another budget.",
            "whole numbers or text; the text '1.0' is the user that the float 1.0 has been until now",
            code="user-id-forms",
        )
    odd = next((each for each in user_ids if isinstance(each, bytes) or type(each).__module__ == "torch"), None)
    if odd is not None:
        raise BadInput(
            f"user ids of type {type(odd).__name__}",
            "str() of one is another user than the text or number in it, with another budget.",
            "id.decode() of bytes, .tolist() of a tensor; its str() is the user that it has been until now",
            code="user-id-forms",
        )
    return [str(each) for each in user_ids]


def _is_missing(user_id: object) -> bool:
    if isinstance(user_id, str):
        return not user_id
    try:
        return user_id is None or bool(user_id != user_id)
    except TypeError:  # pandas' NA does not say whether it does
        return True


def pseudonyms(user_ids: Iterable[object]) -> NDArray[np.uint64]:
    """Return `pseudonym` of each one's text, shape (len(user_ids),).

    Raises `BadInput` where one would not be one person: as `texts`; and where two spellings of one text, by
    Unicode normal form, spaces at its ends or ".0" behind a whole number, would give one person two budgets.
    """
    user_ids = texts(user_ids)
    seen: set[str] | None = None
    for each in user_ids:
        alike = each.strip() if each.isascii() else unicodedata.normalize("NFC", each.strip())
        if alike.endswith(".0") and alike[:-2].removeprefix("-").isdecimal():
            alike = alike[:-2]
        if alike != each:
            seen = set(user_ids) if seen is None else seen
            if alike in seen:
                raise BadInput(
                    "users",
                    "two ids are one text but for spaces at its ends, its Unicode normal form or a '.0': one person "
                    "would have two budgets.",
                    "unicodedata.normalize('NFC', id.strip()) of each, and whole numbers without '.0'",
                    code="user-id-forms",
                )
            seen.add(alike)
    return np.fromiter((pseudonym(user_id) for user_id in user_ids), np.uint64, len(user_ids))


@dataclass(frozen=True)
class Schema:
    """Names and shapes of a model's trained parameters, in order. The flat float32 vector concatenates them."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: torch.nn.Module) -> Schema:
        """Return the parameters of `model` that require a gradient: a tied one once, by its first name.

        Frozen parameters and buffers are no part of it. They never travel, so they need no noise. Raises
        `WrongForm` for complex parameters, which clipping and noise do not cover, and for those without a
        shape.
        """
        trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        for name, value in trained:
            if torch.nn.parameter.is_lazy(value):
                found = f"model parameter {name!r}"
                raise WrongForm(
                    found, "has no shape yet: its module is lazy.", "one batch through the model as it is built"
                )
            if not value.is_floating_point():
                raise WrongForm(f"model parameter {name!r}", f"is {value.dtype}, not real floating-point numbers.")
        named = [(name, tuple(value.shape)) for name, value in trained]
        return cls(tuple(name for name, _ in named), tuple(shape for _, shape in named))

    @classmethod
    def of_layers(cls, *widths: int) -> Schema:
        """Return the schema of a `torch.nn.Sequential` of linear layers from each of `widths` to the next,
        activations between.
        """
        return cls.with_biases({2 * n: (to, start) for n, (start, to) in enumerate(itertools.pairwise(widths))})

    @classmethod
    def with_biases(cls, weights: Mapping[int, tuple[int, ...]]) -> Schema:
        """Return the schema of a `torch.nn.Sequential` whose layers at these places have such a weight and a bias."""
        shapes = {f"{n}.{name}": own for n, w in weights.items() for name, own in (("weight", w), ("bias", w[:1]))}
        return cls(tuple(shapes), tuple(shapes.values()))

    # Every round asks for these many times.
    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def numel(self) -> int:
        return sum(self.sizes)

    def slices(self) -> tuple[slice, ...]:
        """Return the place of each parameter in the flat vector."""
        return self._slices

    @cached_property
    def _slices(self) -> tuple[slice, ...]:
        ends = itertools.accumulate(self.sizes, initial=0)
        return tuple(slice(first, last) for first, last in itertools.pairwise(ends))

    def split(self, flat: Flat) -> dict[str, Flat]:
        """Return views into `flat` (numel,), by name."""
        pairs = zip(self.names, self.shapes, self.slices(), strict=True)
        return {name: flat[place].reshape(shape) for name, shape, place in pairs}

    def flatten(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return a new flat float32 vector (numel,)."""
        return torch.cat([tensors[name].detach().reshape(-1).to(torch.float32) for name in self.names])

    def arrays(self, flat: torch.Tensor) -> Arrays:
        """Do as `split`, with numpy float32 arrays on the host."""
        return self.split(flat.detach().to(torch.float32).cpu().numpy())

    def stacked(self, queries: int) -> Schema:
        """Return the schema of a reply to several queries: all parameters of the first, then all of the second, ..."""
        if queries == 1:
            return self
        names = tuple(f"{query}.{name}" for query in range(queries) for name in self.names)
        return Schema(names, self.shapes * queries)

    def digest(self) -> str:
        """Return the SHA-256 of names and shapes, on which server and node must agree."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps([self.names, self.shapes]).encode()).hexdigest()
