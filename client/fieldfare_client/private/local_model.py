"""The model that users of a node train one after another: each finds it as it was built, at the broadcast point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fieldfare.errors import WrongForm
from fieldfare.schema import Arrays, Schema
from fieldfare_client.own_randomness import own_randomness
from fieldfare_client.private.local_arrays import Altered
from fieldfare_client.training.local_model import Buffers

CHUNK = 1 << 20  # elements that are widened to float64 at a time
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)
_SIMPLE = (bool, int, float, str, bytes, type(None))


class _Shape:
    """What of a model must be the same again (modules, parameters, hooks), and what can be put back (flags)."""

    def __init__(self, model: nn.Module) -> None:
        # The objects themselves are kept: an id may be given out again.
        self.modules = dict(model.named_modules())
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        self.kinds = {name: (value.dtype, value.shape) for name, value in self.parameters.items()}
        self.strides = {name: value.stride() for name, value in self.parameters.items()}
        self.grad_flags = {name: value.requires_grad for name, value in self.parameters.items()}
        self.frozen = {n: value._version for n, value in self.parameters.items() if not value.requires_grad}
        self.hooks = _count_hooks(model)
        things: list[nn.Module | nn.Parameter] = [*model.modules(), *model.parameters()]
        self.attributes = [(thing, _simple(thing)) for thing in things]
        self.names = [(thing, set(vars(thing))) for thing, _ in self.attributes]

    def why_unreadable(self, model: nn.Module) -> str:
        """Return why the update cannot be read from `model`; empty where it can."""
        now = dict(model.named_parameters(remove_duplicate=False))
        if now.keys() != self.parameters.keys() or any(now[name] is not self.parameters[name] for name in now):
            return "parameters were added, removed or replaced"
        odd = next((name for name, value in now.items() if (value.dtype, value.shape) != self.kinds[name]), None)
        if odd is not None:
            return f"parameter {odd} has another dtype or shape"
        odd = next((name for name, version in self.frozen.items() if now[name]._version != version), None)
        return "" if odd is None else f"the frozen parameter {odd} was written to"

    def is_same(self, model: nn.Module) -> bool:
        """Return whether the next user can have this model: nothing was added that cannot be put back."""
        now = dict(model.named_modules())
        same = now.keys() == self.modules.keys() and all(now[name] is self.modules[name] for name in now)
        return same and _count_hooks(model) == self.hooks

    def restore(self) -> None:
        """Put flags and attributes back."""
        for name, value in self.parameters.items():
            value.requires_grad_(self.grad_flags[name])
            value.grad = None
            if value.stride() != self.strides[name]:
                data = torch.empty_strided(value.shape, self.strides[name], dtype=value.dtype, device=value.device)
                value.data = data.copy_(value.data)
        for (thing, attributes), (_, names) in zip(self.attributes, self.names, strict=True):
            for added in set(vars(thing)) - names:
                del vars(thing)[added]
            vars(thing).update(attributes)


def _simple(thing: nn.Module | nn.Parameter) -> dict[str, object]:
    return {name: value for name, value in vars(thing).items() if type(value) in _SIMPLE}


def _count_hooks(model: nn.Module) -> int:
    modules = sum(len(getattr(module, hooks, None) or ()) for module in model.modules() for hooks in _HOOKS)
    return modules + sum(len(value._backward_hooks or ()) for value in model.parameters())


class LocalModel:
    """Builds the model once and puts it back for every user; builds it again where a loop left something
    behind.

    What is put back: trained parameters, buffers, gradients, `requires_grad`, the training flags and simple
    attributes of every module. A frozen base is never copied. Not seen: lists, dicts and objects that modules
    hold, and writing to frozen parameters through `.data`; `ff.private.check` notices what they change.

    Args:
        build: makes the model. It is called with the same seeds every time, on every machine.
        rebuild: build for every user.
        built: the first that it built.

    Raises:
        BadInput: `build` gives nothing to train.
    """

    def __init__(self, build: Callable[[], nn.Module], rebuild: bool, built: nn.Module) -> None:
        self._build, self._rebuild = build, rebuild
        self._public: Arrays = {}
        self._take(built)
        self.schema = Schema.of(self._model)
        if self.schema.numel == 0:
            raise WrongForm("ff.private.train(build)", "the model that it builds has no parameter with requires_grad.")

    def _make(self) -> None:
        with own_randomness(0):
            model = self._build()
        if self._public:
            tensors = {name: torch.from_numpy(value) for name, value in self._public.items()}
            model.load_state_dict(tensors, strict=False)
        self._take(model)

    def _take(self, model: nn.Module) -> None:
        self._model, self._shape, self._buffers = model, _Shape(model), Buffers(model)

    def initial(self) -> Arrays:
        """Return the trained parameters as they are now, float32 copies."""
        named = self._shape.parameters
        return {name: named[name].detach().to("cpu", torch.float32, copy=True).numpy() for name in self.schema.names}

    def set_public(self, values: Arrays) -> None:
        """Use `values` for frozen parameters and buffers from now on, by their names in `state_dict()`."""
        known = self._public
        if values.keys() != known.keys() or not all(np.array_equal(values[name], known[name]) for name in known):
            self._public = values
            self._make()

    def load(self, point: Arrays) -> nn.Module:
        """Return the model for the next user: as built, with the trained parameters of `point`, float32, in
        its own dtype.
        """
        if self._rebuild or not self._shape.is_same(self._model) or self._shape.why_unreadable(self._model):
            self._make()
        self._shape.restore()
        self._buffers.restore()
        with torch.no_grad():
            for name in self.schema.names:
                self._shape.parameters[name].copy_(torch.from_numpy(point[name]))
        return self._model

    def read(self, point: Arrays, out: NDArray[np.float32], returned: object) -> None:
        """Write the update, trained less loaded parameters in float64, to `out`, float32 (d,).

        What the loop returned is not looked at.

        Raises `Altered` where the loop left another model; the next user gets one that is built again.
        """
        why = self._shape.why_unreadable(self._model)
        if why:
            raise Altered(why)
        for name, target in self.schema.split(torch.from_numpy(out)).items():
            now = self._shape.parameters[name].detach()
            loaded = torch.from_numpy(point[name]).to(now.dtype).view(-1)
            now, flat = now.cpu().reshape(-1), target.view(-1)
            for start in range(0, flat.numel(), CHUNK):
                part = slice(start, start + CHUNK)
                flat[part] = now[part].double() - loaded[part].double()
