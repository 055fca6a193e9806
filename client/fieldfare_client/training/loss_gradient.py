"""The gradient of the task's loss for many users at once, without mapping and recording the loss at every
step.

`vmap` and autograd call Python for every operation of the loss: for a small model that takes longer than all
of its matrix products. What they end in is a short list of torch's operations, the same for all batches of
one shape. So the list of a shape that comes again and again is kept and repeated: the same operations, in the
same order, with the same bits. Operations that only the value of the loss needs are left out.

A list holds for a loss that is a function of outputs and targets. `vmap` refuses a loss that draws random
numbers or branches on values; one that reads something else may change at any time. So a list is not used
before it has given the gradient of another batch, bit for bit, and one batch of every chunk of users is
compared again. After a difference the engine repeats nothing any more. Isolation stays: an operation that
`vmap` has made mixes no users.

Where no Python of a task may see two users, its loss sees none (`SealedLoss`): the lists are made once, of
made-up batches, and users train on torch's operations alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Outputs and targets of one user's batch -> the loss of each example."""

OFTEN = 8
"""Batches of a shape after which its operations are recorded."""
MOST = 64
"""Shapes whose operations are kept, at most."""
PIECES = (256, 64, 16, 4, 1)
"""Users of a batch whose operations are recorded for a sealed loss: every number of users is made of them."""
LONGEST = 64
"""Rows of a batch up to which they are."""


class LossGradient:
    """The gradients of the users' mean losses at the outputs of their models.

    Args:
        loss: the task's.
    """

    def __init__(self, loss: Loss) -> None:
        self._losses = vmap(lambda outputs, targets: loss(outputs, targets).mean())
        self._seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, _Operations | None] = {}
        """By shape; None where operations cannot be repeated."""
        self._trusted: set[Hashable] = set()
        """Shapes whose operations have given the gradient of a batch other than the recorded one."""
        self._due = True
        """Whether the next batch is compared."""
        self._constant = True
        """Whether every comparison was equal so far."""

    def begin(self) -> None:
        """Begin a new chunk of users: compare one of its batches."""
        self._due = True

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
            gradient, self._recorded[shape] = _record(self._eager, outputs, targets)
            return gradient
        operations = self._recorded[shape]
        if operations is None:
            return self._eager(outputs, targets)
        if not self._due and shape in self._trusted:
            return operations.repeat(outputs, targets)
        gradient = self._eager(outputs, targets)
        self._constant = _same(operations, gradient, outputs, targets)
        self._trusted.add(shape)
        self._due = False
        return gradient

    def _eager(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = outputs.detach().requires_grad_()
        with torch.enable_grad():
            losses = self._losses(outputs, targets)
            # The gradient of their sum, which no operation depends on. The ones have no tie to the losses
            # either.
            ones = torch.ones(losses.shape, dtype=losses.dtype, device=losses.device)
            (gradient,) = torch.autograd.grad(losses, outputs, ones)
        return gradient


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
        self._lists: dict[tuple[int, int], _Operations] = {}

    def seal(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Record every length of batch, from made-up outputs and targets of one user's one row, (1, 1, ...).

        Raises ValueError where the gradient is no function of outputs and targets that torch alone computes.
        """
        generator, lists = torch.Generator().manual_seed(1), dict[tuple[int, int], _Operations]()
        for users, rows in itertools.product(PIECES, range(1, self.rows + 1)):
            labels = targets.expand(users, rows, *targets.shape[2:]).contiguous()
            first, *others = torch.randn(3, users, rows, *outputs.shape[2:], generator=generator, dtype=outputs.dtype)
            _, found = _record(self._eager, first, labels, alone=True)
            if found is None or not all(_same(found, self._eager(other, labels), other, labels) for other in others):
                raise ValueError("the loss is more than torch's operations on outputs and targets")
            lists[users, rows] = found
        self._lists = lists

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not self._lists:
            self.seal(torch.zeros_like(outputs[:1, :1]), torch.ones_like(targets[:1, :1]))
        parts, first = list[torch.Tensor](), 0
        for users in PIECES:
            while first + users <= len(outputs):
                piece = slice(first, first := first + users)
                found = self._lists[users, outputs.shape[1]]
                parts.append(found.repeat(outputs[piece].contiguous(), targets[piece].contiguous()))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True)
class _Call:
    """One operation: where its tensors come from, and where its result goes."""

    operation: Callable[..., torch.Tensor]
    arguments: tuple[object, ...]
    keywords: dict[str, Any]
    tensors: tuple[tuple[int, int], ...]
    """(place among the arguments, place among the values)."""
    result: int


@dataclass(frozen=True)
class _Operations:
    """Operations that lead from outputs and targets, the values 0 and 1, to a gradient."""

    calls: Sequence[_Call]
    values: Sequence[torch.Tensor | None]
    """Constants in their places; the others are None."""
    gradient: int

    def repeat(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values = [outputs, targets, *self.values[2:]]
        with torch.no_grad():
            for call in self.calls:
                arguments = list(call.arguments)
                for place, value in call.tensors:
                    arguments[place] = values[value]
                values[call.result] = call.operation(*arguments, **call.keywords)
        gradient = values[self.gradient]
        assert gradient is not None
        return gradient


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation below autograd and `vmap`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []


def _note(recorder: _Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    result = func(*args, **(kwargs or {}))
    # They keep every tensor alive, so that no two have one id.
    recorder.calls.append((func, tuple(args), dict(kwargs or {}), result))
    return result


# Not in the class's body: torch would hide it from its compiler, and load all of that for it, which takes a
# second.
_Recorder.__torch_dispatch__ = _note  # type: ignore[assignment]


def _record(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    alone: bool = False,
) -> tuple[torch.Tensor, _Operations | None]:
    """Return the result of `function`, and the operations that made it; None where they are not a plain list, or,
    `alone`, not torch's alone.
    """
    with _Recorder() as recorder:
        gradient = function(outputs, targets)
    return gradient, None if alone and _remember(recorder) else _operations(recorder, outputs, targets, gradient)


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
    calls, varying = list[_Call](), {0, 1}
    # What one operation overwrites, another may read by another name: then all of them are repeated.
    every = any(operation._schema.is_mutable for operation, *_ in recorder.calls)
    for operation, arguments, keywords, result in recorder.calls:
        tensors = [place for place, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        others = [value for place, value in enumerate(arguments) if place not in tensors]
        if not isinstance(result, torch.Tensor) or any(map(_holds_tensor, (*others, *keywords.values()))):
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
        # An operation on constants alone is done; its result is one.
        if every or varying.intersection(value for _, value in used):
            varying.add(places[id(result)])
            calls.append(_Call(operation, empty, keywords, used, places[id(result)]))
    wanted = places.get(id(gradient))
    if wanted is None:
        return None
    needed, kept = {wanted}, list[_Call]()
    for call in reversed(calls):
        if every or call.result in needed:
            needed.update(value for _, value in call.tensors)
            kept.append(call)
    constants = [value if place in needed and place not in varying else None for place, value in enumerate(values)]
    return _Operations(kept[::-1], constants, wanted)


def _holds_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, (list, tuple)) and any(map(_holds_tensor, value)))


def _same(operations: _Operations, gradient: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor) -> bool:
    """Return whether `operations` give `gradient`, bit for bit but for the kind of NaN."""
    try:
        repeated = operations.repeat(outputs, targets)
    except Exception:  # whatever torch raises, the loss itself has not
        return False
    equal = repeated.shape == gradient.shape and repeated.dtype == gradient.dtype
    return equal and bool(torch.all((repeated == gradient) | ((repeated != repeated) & (gradient != gradient))))
