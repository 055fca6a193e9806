"""What each array of a Flower app's model is for: public, and fixed before the run (spec/door.md 6.2).

| role | which | what happens to it |
|---|---|---|
| trained | floating | clipped, summed, noised, released |
| frozen | `requires_grad = False` of `model=`, or outside of `trainable=` | keeps its initial value |
| tied | a second name of one tensor | follows its first name |
| buffer | integers, booleans, running statistics, buffers of `model=` | its initial value, or "private": trained |

Roles follow from names, types and the server's own module, never from replies: that no reply changed an array
would be a function of users' data. Nor from equal initial values: a copied layer starts as its original and
is another tensor.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.errors import BadInput, WrongForm
from fieldfare.lazily import torch
from fieldfare.trees import refuse_tree_bytes, refuse_trees

Role = Literal["trained", "frozen", "tied", "buffer"]
Buffers = Literal["initial", "private"]
FLOATS = ("float16", "float32", "float64")
# Last part of the names of BatchNorm's floating buffers.
STATISTICS = ("running_mean", "running_var")
# Released variances are at least this: a negative one makes every output NaN.
SMALLEST_VARIANCE = 1e-5

Model: TypeAlias = "torch.nn.Module | Callable[[], torch.nn.Module]"


@dataclass(frozen=True)
class Roles:
    """The role of each array by name, in the order of the initial arrays."""

    of: Mapping[str, Role]
    first_names: Mapping[str, str]  # for each tied array the name that it follows
    # Buffers that training changes and that keep their initial values all the same.
    changing: tuple[str, ...] = ()

    def named(self, role: Role) -> tuple[str, ...]:
        """Return the names with this role, in order."""
        return tuple(name for name, held in self.of.items() if held == role)

    def moved(self, names: Iterable[str], role: Role) -> Roles:
        """Return the same with `role` for these names."""
        return replace(self, of={**self.of, **dict.fromkeys(names, role)})


def is_statistic(name: str) -> bool:
    """Return whether an array holds a running statistic of BatchNorm's, by its name."""
    return name.rpartition(".")[2] in STATISTICS


def is_variance(name: str) -> bool:
    """Return whether an array holds variances, by its name."""
    return name.rpartition(".")[2] == "running_var"


def assign_roles(
    arrays: Mapping[str, NDArray[np.generic]],
    *,
    model: Model | None = None,
    trainable: Sequence[str] | None = None,
    tied: Sequence[Sequence[str]] | None = None,
    buffers: Buffers = "initial",
) -> Roles:
    """Return the roles of a model's arrays.

    Args:
        arrays: the initial values by name, as they travel.
        model: the module that they belong to, or a callable that makes one: says exactly what is frozen, tied
            and a buffer. Without it, types and names say so.
        trainable: patterns ("head.*") of the names to train; None: all that can be.
        tied: groups of names that are one tensor each, first name first; None: as `model` says. Empty: none.
        buffers: "private": floating buffers are trained, clipped and noised with the rest.

    Raises:
        BadInput: a type that cannot be kept, names that do not fit, nothing to train; without `model` and
            `tied`, trained arrays with the same values, which may be one tensor or several.
    """
    for name, value in arrays.items():
        if value.dtype.kind not in "fiub" or (value.dtype.kind == "f" and value.dtype.name not in FLOATS):
            why = f"values of {value.dtype} are not supported."
            raise BadInput(f"initial_arrays[{name!r}]", why, ", ".join(FLOATS), code="array-type")
    if model is None and trainable is None and all(name.isdecimal() for name in arrays):
        _refuse_nameless_statistics(list(arrays.values()))
    roles = _by_name(arrays) if model is None else _by_module(arrays, model)
    if tied is not None:
        roles = _with_ties(roles, arrays, tied)
    if trainable is not None:
        roles = _only(roles, trainable)
    if tied is None and model is None:
        _ask_about_equal(arrays, set(roles.named("trained")))
    if buffers == "private":
        roles = roles.moved((name for name in roles.named("buffer") if arrays[name].dtype.name in FLOATS), "trained")
    else:
        roles = replace(roles, changing=tuple(filter(is_statistic, roles.named("buffer"))))
    if not any(arrays[name].size for name in roles.named("trained")):
        refuse_tree_bytes("initial_arrays", arrays.values())
        why = "none of them can be trained: they have no gradient."
        raise BadInput("initial_arrays", why, "a floating array that requires_grad", code="arrays-unfit")
    return roles


def _refuse_nameless_statistics(values: Sequence[NDArray[np.generic]]) -> None:
    """Raise `BadInput` where a list has a count behind two equal vectors, as batch norms have in torch."""
    for mean, variance, count in zip(values, values[1:], values[2:], strict=False):
        if mean.shape == variance.shape != () and mean.ndim == 1 and count.shape == () and count.dtype.kind in "iu":
            why = "hold a batch norm's running mean and variance without a name, which noise would make negative."
            near = "ArrayRecord(model.state_dict()); or trainable=, the names of what trains"
            raise BadInput("initial_arrays", why, near, code="arrays-unfit")


def _by_name(arrays: Mapping[str, NDArray[np.generic]]) -> Roles:
    def role(name: str, value: NDArray[np.generic]) -> Role:
        return "buffer" if is_statistic(name) or value.dtype.name not in FLOATS else "trained"

    return Roles({name: role(name, value) for name, value in arrays.items()}, {})


def _by_module(arrays: Mapping[str, NDArray[np.generic]], model: Model) -> Roles:
    refuse_trees("model", model)
    module = model() if callable(model) and not isinstance(model, torch.nn.Module) else model
    refuse_trees("model", module)
    if not isinstance(module, torch.nn.Module):
        why, near = f"gives a {type(module).__name__}.", "a torch.nn.Module, or a callable that makes one"
        raise BadInput("model", why, near, code="model-not-a-module")
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    given = {name: value.shape for name, value in arrays.items()}
    if shapes != given:
        odd = sorted({name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name)})
        why = f"its state_dict() has other names or shapes than initial_arrays in {len(odd)} places."
        near = "the module whose state_dict() initial_arrays was made of"
        raise BadInput(f"model with {odd[0]!r}", why, near, code="model-differs")
    of: dict[str, Role] = dict.fromkeys(arrays, "buffer")
    first_names: dict[str, str] = {}
    firsts: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name not in of:
            continue  # not part of the state
        first = firsts.setdefault(id(parameter), name)
        if first != name:
            of[name], first_names[name] = "tied", first
        else:
            of[name] = "trained" if parameter.requires_grad and arrays[name].dtype.name in FLOATS else "frozen"
    return Roles(of, first_names)


def _ask_about_equal(arrays: Mapping[str, NDArray[np.generic]], trained: set[str]) -> None:
    """Raise `BadInput` where a trained array has the values of another, bit for bit."""
    groups: dict[tuple[str, tuple[int, ...], bytes], list[str]] = {}
    for name, value in arrays.items():
        flat = np.ascontiguousarray(value).reshape(-1)
        # Constants start equal anyway.
        if value.dtype.name in FLOATS and value.size >= 2 and (flat != flat[0]).any():
            groups.setdefault((value.dtype.name, value.shape, flat.tobytes()), []).append(name)
    equal = [group for group in groups.values() if len(group) > 1 and trained.intersection(group)]
    if equal:
        # One tensor of two names needs one noise, and two tensors need two updates: neither may be guessed.
        first, second, *_ = equal[0]
        more = sum(len(group) - 1 for group in equal) - 1
        raise BadInput(
            f"initial_arrays {first!r} and {second!r}" + (f", and {more} more" if more else ""),
            "they start with the same values: is that one tensor, or a layer and its copy?",
            f"model=, the module itself, which knows; tied=[] if copies; tied=[({first!r}, {second!r})] if one",
            code="copied-arrays",
        )


def _with_ties(roles: Roles, arrays: Mapping[str, NDArray[np.generic]], groups: Sequence[Sequence[str]]) -> Roles:
    of = dict(roles.moved(roles.named("tied"), "trained").of)
    first_names: dict[str, str] = {}
    for group in groups:
        if isinstance(group, str) or len(group) < 2:
            near = 'tied = [("first.weight", "second.weight")]'
            raise WrongForm(f"tied = {list(groups)!r}"[:200], "ties no names: each group has two or more.", near)
        first, *others = group
        for name in others:
            same = name in of and first in of and name != first and arrays[name].shape == arrays[first].shape
            if not same or first in first_names or name in first_names or "buffer" in (of[name], of[first]):
                why = "these are not names of one trained tensor."
                raise BadInput(f"tied = {list(group)!r}", why, "tied = []", code="tied-unknown")
            of[name], first_names[name] = "tied", first
    return Roles(of, first_names)


def _only(roles: Roles, trainable: Sequence[str]) -> Roles:
    if isinstance(trainable, str):
        trainable = (trainable,)
    trained = roles.named("trained")
    frozen = set(trained)
    for pattern in trainable:
        found = {name for name in trained if fnmatch.fnmatchcase(name, pattern)}
        if not found:
            why = "no trained array has such a name."
            raise BadInput(f"trainable = {pattern!r}", why, trained[0], code="trainable-unknown")
        frozen -= found
    return roles.moved(frozen, "frozen")
