"""The gradient of the task's loss for many users at once, without mapping and recording the loss every step.

`vmap` and autograd call Python for every operation of the loss: for a small model that takes longer than all
of its matrix products. What they end in is a short list of torch's operations, the same for all batches of
one shape. So the list of a shape that comes again and again is kept and repeated: the same operations, in the
same order, with the same bits. Operations that only the value of the loss needs are left out.

A list holds for a loss that is a function of outputs and targets. `vmap` refuses a loss that draws random
numbers or branches on values; one that reads something else may change at any time. So a list is not used
before it has given the gradient of another batch, bit for bit. From then on the loss is called with one user's
batch of every chunk, and compared with the list of that. After a difference the engine repeats nothing any
more. Isolation stays: an operation that `vmap` has made mixes no users.

Where no Python of a task may see two users, its loss sees none (`SealedLoss`): the lists are made once, of
made-up batches, and users train on torch's operations alone.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.func import vmap
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from fieldfare_client.training.local_model import same_numbers

# Outputs and targets of one user's batch -> the loss of each example.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

OFTEN = 8  # batches of a shape after which its operations are recorded
MOST = 64  # shapes whose operations are kept, at most
# Users of the two batches of each length that a sealed loss is recorded on: in what differs, their number is read.
FEW, MANY = 3, 5
TRIED = (1, 16, 256)  # users of the batches that the operations for any number are compared on
LONGEST = 64  # rows of a batch up to which a sealed loss is recorded
# Classes in which torch takes the softmax of each row number by number, five times as long as of as many columns.
NARROW = range(3, 16)
# Columns of which there are always multiples: what is over for the CPU's vectors would have other bits.
FULL = 64


class LossGradient:
    """The gradients of the users' mean losses at the outputs of their models.

    Args:
        loss: the task's.
    """

    def __init__(self, loss: Loss) -> None:
        def mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return loss(outputs, targets).mean()

        self._mapped, self._one = partial(_differentiate, vmap(mean)), partial(_differentiate, mean)
        self._seen: Counter[Hashable] = Counter()
        # By shape; None where operations cannot be repeated.
        self._recorded: dict[Hashable, _Operations | None] = {}
        self._trusted: dict[Hashable, _Operations | None] = {}
        """Shapes whose operations have given the gradient of a batch other than the recorded one; and those of one
        user's batch alone, which costs a tenth."""
        self._due = True  # whether the next batch is compared
        self._constant = True  # whether every comparison was equal so far

    def begin(self) -> None:
        """Begin a new chunk of users: compare one of its batches."""
        self._due = True

    def _eager(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Map and differentiate the loss, with the bits of what is recorded of it."""
        with _Recorder():
            return self._mapped(outputs, targets)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the gradient of every user's mean loss at `outputs`.

        Args:
            outputs: (users, rows, ...), as many rows of every user.
            targets: (users, rows, ...).

        Returns:
            As `outputs`. The caller must not change it.
        """
        if not self._constant:
            return self._eager(outputs, targets)
        shape = outputs.shape, outputs.dtype, targets.shape, targets.dtype
        if shape not in self._recorded:
            self._seen[shape] += 1
            if self._seen[shape] < OFTEN or len(self._recorded) >= MOST:
                return self._eager(outputs, targets)
            gradient, self._recorded[shape] = _record(self._mapped, outputs, targets)
            return gradient
        operations = self._recorded[shape]
        if operations is None:
            return self._eager(outputs, targets)
        one = self._trusted.get(shape)
        # Not trusted yet, or nothing cheaper to compare with: the loss itself answers, and the list is held against it.
        if shape not in self._trusted or (self._due and one is None):
            gradient = self._eager(outputs, targets)
            self._constant = _same(operations, gradient, outputs, targets)
            if self._constant and shape not in self._trusted:
                _, self._trusted[shape] = _record(self._one, outputs[0], targets[0], turned=False)
            self._due = False
            return gradient
        if self._due and one is not None:
            self._due, self._constant = False, _same(one, self._one(outputs[0], targets[0]), outputs[0], targets[0])
        return operations.repeat(outputs, targets) if self._constant else self._eager(outputs, targets)


class SealedLoss(LossGradient):
    """The gradients of a loss that sees no user: recorded once on made-up batches, and never called again.

    So nothing that its Python keeps can reach a user from another. What is repeated are torch's own
    operations; they draw nothing and change no tensor but their own. How often the loss is called, and on
    what, depends on no user.

    Args:
        loss: the task's.
        rows: of the longest batch, at most `LONGEST`.
    """

    def __init__(self, loss: Loss, rows: int) -> None:
        super().__init__(loss)
        self.rows = rows
        # By rows of a batch: the operations for `FEW` users and for `MANY`.
        self._pairs: dict[int, tuple[_Operations, _Operations]] = {}
        self._lists: dict[tuple[int, int], _Operations] = {}  # by users and rows

    def seal(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Record every length of batch, from made-up outputs and targets of one user's one row, (1, 1, ...).

        Raises ValueError where the gradient is no function of outputs and targets that torch alone computes.
        """
        generator, pairs = torch.Generator().manual_seed(1), dict[int, tuple[_Operations, _Operations]]()

        def make_up(users: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
            values = torch.randn(users, rows, *outputs.shape[2:], generator=generator, dtype=outputs.dtype)
            return values.to(outputs.device), targets.expand(users, rows, *targets.shape[2:]).contiguous()

        for rows in range(1, self.rows + 1):
            few, many = (_record(self._mapped, *make_up(users, rows), alone=True)[1] for users in (FEW, MANY))
            if few is None or many is None:
                raise ValueError("the loss is more than torch's operations on outputs and targets")
            for batch in [make_up(users, rows) for users in TRIED]:
                if not _same(_resized(few, many, len(batch[0])), self._eager(*batch), *batch):
                    raise ValueError("the gradient of the loss is no function of outputs and targets")
            pairs[rows] = few, many
        self._pairs, self._lists = pairs, {}

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not self._pairs:
            self.seal(torch.zeros_like(outputs[:1, :1]), torch.ones_like(targets[:1, :1]))
        users, rows = outputs.shape[:2]
        if (users, rows) not in self._lists:
            self._lists[users, rows] = _resized(*self._pairs[rows], users)
        return self._lists[users, rows].repeat(outputs.contiguous(), targets.contiguous())


@dataclass(frozen=True)
class _Call:
    """One operation: where its tensors come from, and where its result goes."""

    operation: Callable[..., torch.Tensor]
    arguments: tuple[object, ...]
    keywords: dict[str, Any]
    tensors: tuple[tuple[int, int], ...]  # (place among the arguments, place among the values)
    result: int

    def run(self, values: Sequence[torch.Tensor | None]) -> torch.Tensor:
        arguments = list(self.arguments)
        for place, value in self.tensors:
            arguments[place] = values[value]
        return self.operation(*arguments, **self.keywords)


@dataclass(frozen=True)
class _Operations:
    """Operations that lead from outputs and targets, the values 0 and 1, to a gradient."""

    calls: Sequence[_Call]
    values: Sequence[torch.Tensor | None]  # constants in their places; the others are None
    gradient: int

    def repeat(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values = [outputs, targets, *self.values[2:]]
        with torch.no_grad():
            for call in self.calls:
                values[call.result] = call.run(values)
        gradient = values[self.gradient]
        assert gradient is not None
        return gradient

    def folded(self) -> _Operations:
        """Do now what needs neither outputs nor targets."""
        if any(getattr(call.operation, "_schema", _PLAIN).is_mutable for call in self.calls):
            return self  # what one overwrites, another may read by another name
        values, varying, kept = list(self.values), {0, 1}, list[_Call]()
        for call in self.calls:
            if varying.intersection(value for _, value in call.tensors):
                varying.add(call.result)
                kept.append(call)
            else:
                values[call.result] = call.run(values)
        return _Operations(kept, values, self.gradient)


_PLAIN = torch.ops.aten.neg.default._schema


def _by_columns(operation: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return `operation`, a softmax along an axis or its gradient, that lays a `NARROW` last axis first."""

    def turned(*arguments: Any) -> torch.Tensor:
        *tensors, axis, kind = arguments
        shape = tensors[0].shape
        # By the number of classes alone: how many users there are must not decide.
        if shape[-1:].numel() not in NARROW or axis % len(shape) != len(shape) - 1 or tensors[0].is_cuda:
            return operation(*arguments)
        rows = shape[:-1].numel()
        wide = (pad(values.reshape(rows, shape[-1]).t(), (0, -rows % FULL)) for values in tensors)
        return operation(*wide, 0, kind)[:, :rows].t().reshape(shape)

    return turned


_aten = torch.ops.aten
_TURNED: dict[Any, Callable[..., torch.Tensor]] = {
    overload: _by_columns(overload)
    for overload in (
        *(_aten._softmax.default, _aten._softmax_backward_data.default),
        *(_aten._log_softmax.default, _aten._log_softmax_backward_data.default),
    )
}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation below autograd and `vmap`. turned: does those of `_TURNED` in its way."""

    def __init__(self, turned: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.turned = _TURNED if turned else {}


def _note(recorder: _Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    result = recorder.turned.get(func, func)(*args, **(kwargs or {}))
    # They keep every tensor alive, so that no two have one id.
    recorder.calls.append((func, tuple(args), dict(kwargs or {}), result))
    return result


# Not in the class's body: torch would hide it from its compiler, which takes a second to load.
_Recorder.__torch_dispatch__ = _note  # type: ignore[assignment]


def _differentiate(losses_of: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    outputs = outputs.detach().requires_grad_()
    with torch.enable_grad():
        losses = losses_of(outputs, targets)
        # The gradient of their sum, which no operation depends on. The ones have no tie to the losses either.
        ones = torch.ones(losses.shape, dtype=losses.dtype, device=losses.device)
        (gradient,) = torch.autograd.grad(losses, outputs, ones)
    return gradient


def _record(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    alone: bool = False,
    turned: bool = True,
) -> tuple[torch.Tensor, _Operations | None]:
    """Return the result of `function`, and the operations that made it; None where they are not a plain list.

    alone: also None where they are not torch's alone; and those are kept, too, that need no outputs or targets.
    turned: as `_Recorder`'s.
    """
    with _Recorder(turned) as recorder:
        gradient = function(outputs, targets)
    found = None if alone and _remember(recorder) else _operations(recorder, outputs, targets, gradient)
    return gradient, found if alone or found is None else found.folded()


def _remember(recorder: _Recorder) -> bool:
    """Return whether operations are not torch's own, draw numbers, or change what they have not made."""
    made, kept = set[int](), set[int]()
    for operation, arguments, keywords, result in recorder.calls:
        flat, _ = tree_flatten((arguments, keywords))
        tensors = [value for value in flat if isinstance(value, torch.Tensor)]
        if any(type(value) not in (torch.Tensor, torch.nn.Parameter) for value in tensors):
            return True
        kept |= {value.untyped_storage().data_ptr() for value in tensors if id(value) not in made}
        written = operation._schema.is_mutable and any(v.untyped_storage().data_ptr() in kept for v in tensors)
        if written or operation.namespace != "aten" or torch.Tag.nondeterministic_seeded in operation.tags:
            return True
        made |= {id(value) for value in tree_flatten(result)[0]}
    return False


def _operations(
    recorder: _Recorder, outputs: torch.Tensor, targets: torch.Tensor, gradient: torch.Tensor
) -> _Operations | None:
    places, values = {id(outputs): 0, id(targets): 1}, [outputs, targets]
    calls = list[_Call]()
    # What one operation overwrites, another may read by another name: then all of them are repeated.
    every = any(operation._schema.is_mutable for operation, *_ in recorder.calls)
    for operation, arguments, keywords, result in recorder.calls:
        tensors = [place for place, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        others = [value for place, value in enumerate(arguments) if place not in tensors]
        several = isinstance(result, tuple) and all(isinstance(part, torch.Tensor) for part in result)
        if not (isinstance(result, torch.Tensor) or several) or any(map(_holds_tensor, (*others, *keywords.values()))):
            return None
        for place in tensors:
            tensor = arguments[place]
            if id(tensor) not in places:  # the task's own, such as weights of classes
                places[id(tensor)] = len(values)
                values.append(tensor)
        if operation is torch.ops.aten.detach.default:  # without autograd, another name for the same numbers
            places[id(result)] = places[id(arguments[0])]
            continue
        used = tuple((place, places[id(arguments[place])]) for place in tensors)
        empty = tuple(None if place in tensors else value for place, value in enumerate(arguments))
        places[id(result)] = len(values)
        values.append(result)
        done = recorder.turned.get(operation, operation)
        calls.append(_Call(done, empty, keywords, used, whole := places[id(result)]))
        for place, part in enumerate(result if several else ()):
            places[id(part)] = len(values)
            values.append(part)
            calls.append(_Call(operator.getitem, (None, place), {}, ((0, whole),), places[id(part)]))
    wanted = places.get(id(gradient))
    if wanted is None:
        return None
    # From the end: what leads to the value of the loss alone is left out.
    needed, kept = {wanted}, list[_Call]()
    for call in reversed(calls):
        if every or call.result in needed:
            needed.update(value for _, value in call.tensors)
            kept.append(call)
    made = {0, 1, *(call.result for call in calls)}
    constants = [value if place in needed and place not in made else None for place, value in enumerate(values)]
    return _Operations(kept[::-1], constants, wanted)


def _resized(few: _Operations, many: _Operations, users: int) -> _Operations:
    """Return the operations for `users` users. Numbers in which `few` and `many` differ are multiples of theirs."""

    # No number of users divides the other, and rows and classes are equal in both: what differs counts users.
    def read(a: Any, b: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return type(a)(map(read, a, b))
        return a // FEW * users if type(a) is int and a != b else a

    calls = [replace(a, arguments=read(a.arguments, b.arguments)) for a, b in zip(few.calls, many.calls, strict=True)]
    return replace(few, calls=calls).folded()


def _holds_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, (list, tuple)) and any(map(_holds_tensor, value)))


def _same(operations: _Operations, gradient: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor) -> bool:
    """Return whether `operations` give `gradient`, bit for bit but for the kind of NaN."""
    try:
        repeated = operations.repeat(outputs, targets)
    except Exception:  # whatever torch raises, the loss itself has not
        return False
    return same_numbers(repeated, gradient)
