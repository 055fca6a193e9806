"""The gradient of the task's loss for many users at once, without mapping and recording the loss every step.

`vmap` and autograd call Python for every operation of the loss: for a small model that takes longer than all
of its matrix products. They end in a short list of torch's operations, the same for all batches of one shape,
which is kept and repeated with the same bits. Operations that only the value of the loss needs are left out.

A list holds for a loss that is a function of outputs and targets. So it is not used before it has given the
gradient of another batch, bit for bit. Then the loss is called with one user's batch of every chunk, and
compared with the list of that. After a difference the engine repeats nothing any more. Isolation stays: an
operation that `vmap` has made mixes no users; rules of a task's own for it are refused, as is Python that reads
numbers, memory that nobody wrote, or any other's that may be written.

Where a task's Python must not see two users, it sees none: lists are made once, of made-up batches. For a stack of
linear layers a list holds the loss (`SealedLoss`), for any other model the whole gradient of a step (`Recorded`).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias

import torch
from torch._functorch.autograd_function import custom_function_call
from torch.func import vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fieldfare_client.training.local_model import same_numbers
from fieldfare_client.training.recurrent import RULES

# Outputs and targets of one user's batch -> the loss of each example.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_AnyUsers: TypeAlias = "Callable[[int], Operations]"  # by the number of users

OFTEN = 3  # batches of a layout after which its operations are recorded
CALLS = 4096  # operations of a step that is recorded, at most: more would take minutes
MOST = 64  # layouts, and numbers of users of each, whose operations are kept, at most
# Users of the two batches of each length that a sealed loss is recorded on: in what differs, their number is read.
FEW, MANY = 3, 5
TRIED = (1, 16, 256)  # users of the batches that the operations for any number are compared on
LONGEST = 64  # rows of a batch up to which a sealed loss or step is recorded
# Classes in which torch takes the softmax of each row number by number, five times as long as of as many columns.
NARROW = range(3, 16)
PLAIN = torch.Tensor, torch.nn.Parameter  # and no subclass with Python of its own
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
        # By layout of batches, for any number of users; None where operations cannot be repeated.
        self._recorded: dict[Hashable, _AnyUsers | None] = {}
        self._trusted: dict[Hashable, Operations | None] = {}
        """Layouts whose operations have given the gradient of a batch other than the recorded; and those of one user's
        batch alone, which costs a tenth."""
        self._due = True  # whether the next batch is compared
        self._constant = True  # whether every comparison was equal so far

    def begin(self) -> None:
        """Begin a new chunk of users: compare one of its batches."""
        self._due = True

    def _eager(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Map and differentiate the loss, with the bits of what is recorded of it."""
        outputs, targets = _ordinary(outputs), _ordinary(targets)
        with _Recorder():
            return self._mapped(outputs, targets)

    def _record(self, outputs: torch.Tensor, targets: torch.Tensor) -> _AnyUsers | None:
        """Record the operations on `FEW` and on `MANY` users' batches like these; None where they cannot be repeated:
        also where, for a number of `TRIED` users, they do not give the gradient."""
        try:
            batches = [(_some(outputs, users), _some(targets, users)) for users in (FEW, MANY, *TRIED)]
            few, many = (record(self._mapped, *batch) for batch in batches[:2])
        except RuntimeError:  # users who share memory, say; an error of the loss itself, it raises again
            return None
        if few is None or many is None or len(few.values) != len(many.values):
            return None
        found = lru_cache(MOST)(partial(_resized, few, many))
        equal = all(found(len(batch[0])).give([self._eager(*batch)], *batch) for batch in batches[2:])
        return found if equal else None

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the gradient of every user's mean loss at `outputs`, (users, rows, ...), as many rows of each.

        It has the shape of `outputs`, and the caller must not change it. targets: (users, rows, ...).
        """
        if not self._constant:
            return self._eager(outputs, targets)
        users, *rows = outputs.shape
        layout = *rows, outputs.stride(), outputs.dtype, targets.shape[1:], targets.stride(), targets.dtype
        if (found := self._recorded.get(layout)) is None:
            self._seen[layout] += 1
            if self._seen[layout] >= OFTEN and layout not in self._recorded and len(self._recorded) < MOST:
                self._recorded[layout] = self._record(outputs, targets)
            return self._eager(outputs, targets)
        operations, trusted, one = found(users), layout in self._trusted, self._trusted.get(layout)
        if trusted and not self._due:
            return operations.repeat(outputs, targets)[0]
        # Not trusted yet, or nothing cheaper to compare with: the loss itself answers, and the list is held against it.
        if one is None:
            gradient = self._eager(outputs, targets)
            self._constant = operations.give([gradient], outputs, targets)
            if self._constant and not trusted:
                alone = record(self._one, outputs[0], targets[0], turned=False)
                self._trusted[layout] = None if alone is None else alone.folded()
            self._due = False
            return gradient
        first, its = _ordinary(outputs[0]), _ordinary(targets[0])
        self._due, self._constant = False, one.give([self._one(first, its)], first, its)
        return operations.repeat(outputs, targets)[0] if self._constant else self._eager(outputs, targets)


class SealedLoss(LossGradient):
    """The gradients of a loss that sees no user: recorded once on made-up batches, and never called again.

    So nothing that its Python keeps reaches a user, and no user decides how often it is called, and on what.

    Args:
        loss: the task's.
        rows: of the longest batch, at most `LONGEST`.
    """

    def __init__(self, loss: Loss, rows: int) -> None:
        super().__init__(loss)
        self.rows = rows
        self.of_rows: dict[int, _AnyUsers] = {}  # by rows of a batch

    def seal(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Record every length of batch, from made-up outputs and targets of one user's one row, (1, 1, ...).

        Raises ValueError where the gradient is no function of outputs and targets that torch alone computes.
        """
        generator, recorded = torch.Generator().manual_seed(1), dict[int, _AnyUsers]()

        def make_up(users: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
            values = torch.randn(users, rows, *outputs.shape[2:], generator=generator, dtype=outputs.dtype)
            return values.to(outputs.device), targets.expand(users, rows, *targets.shape[2:]).contiguous()

        for rows in range(1, self.rows + 1):
            if (found := self._record(*make_up(max(TRIED), rows))) is None:
                raise ValueError("the gradient is more than torch's operations on outputs and targets")
            recorded[rows] = found
        self.of_rows = recorded

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not self.of_rows:
            self.seal(torch.zeros_like(outputs[:1, :1]), torch.ones_like(targets[:1, :1]))
        users, rows = outputs.shape[:2]
        return self.of_rows[rows](users).repeat(outputs.contiguous(), targets.contiguous())[0]


class Recorded:
    """Gradients by a function that sees no user: torch's operations, which are recorded on made-up users alone.

    So nothing that its Python keeps reaches a user, and no user decides how often it is called, and on what.
    """

    def __init__(self) -> None:
        self.operations: dict[tuple[int, int], Operations] = {}  # by users, and rows of each one's batch
        self._learning = False

    def learn(self, sizes: Sequence[int], longest: int, train: Callable[[int, int], object]) -> None:
        """Record the gradients of `sizes` users, with batches of up to `longest` rows of each.

        Args:
            train: (users, rows) -> trains so many made-up users by steps on so many rows of each, two or more; each
                calls this object. The first is recorded, and the others must agree.

        Raises:
            Exception: ValueError where a gradient is more than torch's operations on what is given, or what the
                function raises.
        """
        self._learning = True
        for users, rows in itertools.product(sizes, range(1, longest + 1)):
            train(users, rows)
        self._learning = False

    def __call__(
        self, function: Callable[..., list[torch.Tensor]], given: Sequence[torch.Tensor], users: int, rows: int
    ) -> list[torch.Tensor]:
        """Return the gradients of `function` at `given`, of `users` users with batches of `rows` rows.

        Raises ValueError as `learn`, and where no batches of so many users and rows were recorded.
        """
        known = self.operations.get((users, rows))
        if self._learning and known is None:
            found = record(function, *given, turned=False)
            if found is not None and len(found.calls) <= CALLS:
                known = self.operations[users, rows] = found.folded()
        elif self._learning and known is not None:
            gradients = function(*given)
            with _as_recorded():
                known = known if known.give(gradients, *given) else None
        if known is None:
            raise ValueError(f"a step on {rows} rows of {users} users is more than recorded operations of torch")
        with _as_recorded():
            gradients = known.repeat(*given)
        # An engine may change what it gets in place. What the next user is given again stays as it is.
        kept = known.kept.union(map(_memory, given))
        return [gradient.clone() if _memory(gradient) in kept else gradient for gradient in gradients]


@contextmanager
def _as_recorded() -> Iterator[None]:
    """Run torch's operations as autograd does: an LSTM keeps what its gradient needs."""
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        yield


@dataclass(frozen=True)
class _Call:
    """One operation: which values it takes, and where its result goes."""

    operation: Callable[..., Any]
    places: tuple[int, ...]
    keywords: dict[str, Any]
    result: int

    @cached_property
    def given(self) -> Callable[[list[Any]], Sequence[Any]]:
        """Takes what the operation is given out of all values."""
        few = slice(self.places[0], self.places[0] + 1) if self.places else slice(0)  # of one place it gives no tuple
        return operator.itemgetter(*self.places) if len(self.places) > 1 else operator.itemgetter(few)


@dataclass(frozen=True)
class Operations:
    """Torch's operations that lead from some tensors, the first values, to gradients."""

    calls: Sequence[_Call]
    values: Sequence[Any]  # tensors and numbers that no operation makes, in their places; the others are None
    given: int
    gradients: Sequence[int]
    whole: bool  # whether one changes what others read by another name: then all are repeated as they were

    def repeat(self, *given: torch.Tensor) -> list[torch.Tensor]:
        """Return the gradients. Quickest where autograd records nothing."""
        values = [*given, *self.values[self.given :]]
        for call, last in zip(self.calls, self._last, strict=True):
            values[call.result] = call.operation(*call.given(values), **call.keywords)
            for place in last:
                values[place] = None
        return [values[place] for place in self.gradients]

    @cached_property
    def kept(self) -> frozenset[int]:
        """The memory of all tensors that no operation makes and none gives."""
        return frozenset(_memory(value) for value in self.values if isinstance(value, torch.Tensor))

    @cached_property
    def _last(self) -> list[list[int]]:
        """The values that nothing needs after each call: their memory is free for the next."""
        needed, last = set(self.gradients), list[list[int]]()
        for call in reversed(self.calls):
            over = {call.result, *call.places} - needed
            needed |= over
            last.append(list(over))
        return last[::-1]

    def give(self, gradients: Sequence[torch.Tensor], *given: torch.Tensor) -> bool:
        """Return whether they give `gradients`, bit for bit but for the kind of NaN."""
        try:
            return all(map(same_numbers, self.repeat(*given), gradients))
        except Exception:  # whatever torch raises, the loss itself has not
            return False

    def folded(self) -> Operations:
        """Do now what needs nothing that is given, all else once; leave out what the loss alone needs."""
        if self.whole:
            return self
        values, varying, calls = list(self.values), set(range(self.given)), list[_Call]()
        place_of, turned = list(range(len(values))), dict[int, int]()  # where each value is found
        done = dict[str, int]()  # of each operation on the same values the first: none changes what it gives
        for call in self.calls:
            call = replace(call, places=tuple(place_of[place] for place in call.places))
            used = [p if p in varying or isinstance(values[p], torch.Tensor) else repr(values[p]) for p in call.places]
            known = done.setdefault(repr((call.operation, used, call.keywords)), call.result)
            if call.operation is _turn and call.places[0] in turned:
                place_of[call.result] = turned[call.places[0]]
            elif known != call.result:
                place_of[call.result] = place_of[known]
            elif varying.intersection(call.places):
                varying.add(call.result)
                calls.append(call)
                if call.operation in (_turn, _unturn):  # each is the other's reverse
                    turned[call.places[0]], turned[call.result] = call.result, call.places[0]
            else:
                values[call.result] = call.operation(*call.given(values), **call.keywords)
        gradients, kept = [place_of[place] for place in self.gradients], list[_Call]()
        needed = set(gradients)
        for call in reversed(calls):
            if call.result in needed:
                needed.update(call.places)
                kept.append(call)
        return replace(self, calls=kept[::-1], values=values, gradients=gradients)


def _some(values: torch.Tensor, users: int) -> torch.Tensor:
    """Return `values`, (users, ...), for another number of users, in memory that is laid out alike."""
    some = values.new_empty_strided((users, *values.shape[1:]), values.stride())
    return some.copy_(values[torch.arange(users, device=values.device) % len(values)])


def _ordinary(values: torch.Tensor) -> torch.Tensor:
    """Return `values` as autograd takes them: of those of inference mode a copy that is laid out alike."""
    if not values.is_inference():
        return values
    with torch.inference_mode(False):
        return values.new_empty_strided(values.shape, values.stride()).copy_(values)


def _turn(values: torch.Tensor) -> torch.Tensor:
    """Return `values`, (..., classes), with the axis of classes first, and the others as one that is filled up."""
    columns = values.reshape(-1, values.shape[-1]).t()
    rows = columns.shape[1]
    return torch.constant_pad_nd(columns, (0, -rows % FULL))


def _unturn(columns: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return the values of `shape` of which `columns` is `_turn`."""
    return columns[:, : math.prod(shape[:-1])].t().reshape(shape)


_aten = torch.ops.aten
# Softmax along an axis and its gradient, which are done in columns along a `NARROW` last one.
_TURNED = {_aten._softmax.default, _aten._softmax_backward_data.default}
_TURNED |= {_aten._log_softmax.default, _aten._log_softmax_backward_data.default}
# Their numbers are whatever was in that memory, such as another user's: zeros instead.
_EMPTY = {_aten.empty.memory_format, _aten.empty_like.default, _aten.empty_strided.default}
_EMPTY |= {_aten.new_empty.default, _aten.new_empty_strided.default, _aten.empty_permuted.default}
# By which Python reads numbers or memory, and no operation tells.
_READS = {"tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__", "__deepcopy__", "__reduce_ex__"}
_READS |= {"data_ptr", "storage", "untyped_storage", "_typed_storage", "storage_offset"}
_ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu.default


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Does every operation below autograd and `vmap`, and notes it. turned: does those of `_TURNED` in columns."""

    def __init__(self, turned: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # They keep every tensor alive, so that no two have one id.
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.turned = turned
        self.where: list[tuple[torch.Tensor, int]] | None = None  # of each tensor, wherever it occurs, its memory then

    def do(self, operation: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        result = operation(*arguments, **keywords)
        self.calls.append((operation, arguments, keywords, result))
        if self.where is not None:
            with torch._C.DisableTorchFunction():
                self.where += [(part, _memory(part)) for part in _tensors([arguments, keywords, result])]
        return result


class _Watch(TorchFunctionMode):
    """Notes what no operation tells: Python that reads numbers, or has all users by a rule for `vmap` or `bare`."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.bare = False, list[torch.Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ruled = func is custom_function_call and not (args[0].generate_vmap_rule or args[0] in RULES)
        self.found |= ruled or getattr(func, "__name__", "") in _READS
        if torch._C._are_functorch_transforms_active():
            wrapped = torch._C._functorch.is_functorch_wrapped_tensor
            self.bare += [part for part in _tensors([args, kwargs]) if not wrapped(part)]
        return func(*args, **(kwargs or {}))


def _note(recorder: _Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    if func in _EMPTY:
        func = partial(_blank, func)
    if not recorder.turned or func not in _TURNED:
        return recorder.do(func, *args, **(kwargs or {}))
    *tensors, axis, kind = args
    shape = list(tensors[0].shape)
    # By the number of classes alone: how many users there are must not decide.
    if shape[-1] not in NARROW or axis % len(shape) != len(shape) - 1 or tensors[0].is_cuda:
        return recorder.do(func, *args)
    columns = recorder.do(func, *(recorder.do(_turn, values) for values in tensors), 0, kind)
    return recorder.do(_unturn, columns, shape)


# Not in the class's body: torch would hide it from its compiler, which takes a second to load.
_Recorder.__torch_dispatch__ = _note  # type: ignore[assignment]


def _differentiate(losses_of: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(False), torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        losses = losses_of(outputs, targets)
        # The gradient of their sum, which no operation depends on. The ones have no tie to the losses either.
        ones = torch.ones(losses.shape, dtype=losses.dtype, device=losses.device)
        (gradient,) = torch.autograd.grad(losses, outputs, ones)
    return gradient


def record(
    function: Callable[..., torch.Tensor | Sequence[torch.Tensor]], *given: torch.Tensor, turned: bool = True
) -> Operations | None:
    """Return the operations of `function`; None where they are no plain list of torch's own.

    They draw no random numbers, and change no tensor but their own.

    Args:
        function: tensors -> one or several gradients.
        given: what it is called with.
        turned: as `_Recorder`'s.
    """
    given = tuple(map(_ordinary, given))
    with _Recorder(turned) as recorder, _Watch() as watch:
        recorder.where = []
        found = function(*given)
    users = set(map(id, given))  # what is made of them, too
    for _, arguments, keywords, result in recorder.calls:
        users.update(map(id, _tensors(result if users.intersection(map(id, _tensors([arguments, keywords]))) else ())))
    # Where a tensor's memory was exchanged later, its numbers are not those that the operation made.
    moved = any(_memory(part) != then for part, then in recorder.where)
    if watch.found or moved or users.intersection(map(id, watch.bare)):
        return None
    return _operations(recorder, given, [found] if isinstance(found, torch.Tensor) else found)


def reads(function: Callable[[], object], own: Iterable[torch.Tensor]) -> bool:
    """Return whether an operation of `function` is given one of `own`, or what shares memory with it."""
    with _Recorder(False) as recorder:
        function()
    memory = set(map(_memory, own))
    return any(_memory(part) in memory for _, *taken, _ in recorder.calls for part in _tensors(taken))


def _operations(
    recorder: _Recorder, given: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], whole: bool = False
) -> Operations | None:
    places: dict[int | None, int] = {id(tensor): place for place, tensor in enumerate(given)}
    values, calls = list[Any]([None] * len(given)), list[_Call]()
    # By memory: the tensors that were seen in it, and `None` where no operation has made it.
    seen = defaultdict[int, set[int | None]](set, {_memory(tensor): {None} for tensor in given})

    def put(value: object, name: object) -> int:
        places[id(name)] = len(values)
        values.append(value)
        return len(values) - 1

    def place(value: object) -> int:
        if isinstance(value, torch.Tensor) and id(value) in places:
            return places[id(value)]
        if isinstance(value, list) and _tensors(value):
            calls.append(_Call(lambda *parts: list(parts), tuple(map(place, value)), {}, made := put(None, value)))
            return made
        if isinstance(value, torch.Tensor):  # the task's own, such as weights of classes
            seen[_memory(value)].add(None)
        return put(value, value)

    for operation, arguments, keywords, result in recorder.calls:
        named = {name: value for name, value in keywords.items() if isinstance(value, torch.Tensor)}
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        taken = [part for value in arguments for part in (value if isinstance(value, list) else [value])]
        others = *taken, *keywords.values()
        odder = [part for part in others if type(part) not in PLAIN]
        hidden = any(isinstance(part, torch.UntypedStorage) or _tensors(part) for part in odder)
        tensors = [part for part in results if part is not None]
        odd = not tensors or any(type(part) not in PLAIN for part in tensors)
        foreign = getattr(operation, "namespace", "aten") != "aten"
        if hidden or odd or foreign or _draws(operation, arguments) or _averages(operation, arguments, keywords):
            return None
        used, names = tuple(map(place, (*arguments, *named.values()))), set[int | None]()
        if (schema := getattr(operation, "_schema", None)) is not None and schema.is_mutable:
            written = [at for at, argument in enumerate(schema.arguments) if argument.is_write]
            changed = [arguments[at] if at < len(arguments) else named.get(schema.arguments[at].name) for at in written]
            if any(type(value) not in PLAIN for value in changed):
                return None
            names = set[int | None]().union(*(seen[_memory(value)] for value in changed if value is not None))
            if None in names:
                return None
            # Nobody else keeps what it changes, or sees a part of it: so a new tensor does as well.
            apart = _apart(operation, arguments) if written == [0] and not keywords else None
            if not whole and (apart is None or {places.get(name) for name in names} != {used[0]}):
                return _operations(recorder, given, gradients, whole=True)
            operation = operation if whole else apart
        if named:
            operation = partial(_named, operation, tuple(named))
            keywords = {name: value for name, value in keywords.items() if name not in named}
        for part in tensors:
            seen[_memory(part)].add(id(part))
        # Another name for the same numbers.
        if operation is _aten.detach.default or (operation is _aten.clone.default and not (keywords or whole)):
            places[id(result)] = used[0]
            continue
        quick = operation if named else _quick(operation, arguments, keywords)
        calls.append(_Call(quick, used, keywords, made := put(None, result)))
        places.update(dict.fromkeys(() if whole else names, made))
        for number, part in enumerate(results if isinstance(result, (tuple, list)) else ()):
            calls.append(_Call(operator.getitem, (made, place(number)), {}, put(None, part)))
    wanted = [places.get(id(gradient)) for gradient in gradients]
    found = [place for place in wanted if place is not None]
    return Operations(calls, values, len(given), found, whole) if len(found) == len(wanted) else None


def _named(operation: Any, names: tuple[str, ...], *arguments: Any, **keywords: Any) -> Any:
    plain, last = arguments[: -len(names)], arguments[-len(names) :]
    return operation(*plain, **dict(zip(names, last, strict=True)), **keywords)


def _draws(operation: Any, arguments: Sequence[Any]) -> bool:
    """Return whether an operation may draw random numbers. Attention draws none where its dropout, a float, is 0."""
    quiet = operation is _ATTENTION and not any(type(value) is float and value for value in arguments)
    return not quiet and torch.Tag.nondeterministic_seeded in getattr(operation, "tags", ())


def _averages(operation: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Return whether an operation is given averages, which it may move without saying so in its schema."""
    names = [argument.name for argument in operation._schema.arguments] if hasattr(operation, "_schema") else []
    named = {**dict(zip(names, arguments, strict=False)), **keywords}
    return any(name.startswith("running_") and value is not None for name, value in named.items())


def _blank(operation: Any, *arguments: Any, **keywords: Any) -> torch.Tensor:
    blank: torch.Tensor = operation(*arguments, **keywords)
    return blank.zero_()


def _memory(values: torch.Tensor) -> int:
    return values.untyped_storage().data_ptr()


def _apart(operation: Any, arguments: Sequence[Any]) -> Any:
    """Return the operation that gives a new tensor where `operation` changes its first argument; None if none does."""
    name = operation._schema.name.removeprefix("aten::")
    packet = getattr(_aten, name[:-1], None) if name.endswith("_") else None
    apart = getattr(packet, operation._overloadname, None)
    # Where several dtypes would give a wider one, what is changed keeps its own.
    return apart if apart is not None and apart(*arguments).dtype == arguments[0].dtype else None


def _quick(operation: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """Return torch's short name for `operation`, half the time to call, if it gives the same bits; else `operation`."""
    name = operation._schema.name.removeprefix("aten::") if hasattr(operation, "_schema") else ""
    quick: Any = getattr(torch._C._VariableFunctions, name, None) or getattr(torch._C.TensorBase, name, None)
    try:
        with torch.no_grad():
            ours, theirs = operation(*arguments, **keywords), quick(*arguments, **keywords)
        return quick if same_numbers(ours, theirs) and ours.stride() == theirs.stride() else operation
    except Exception:  # there is no such name, it takes other arguments, or it gives several results
        return operation


def _resized(few: Operations, many: Operations, users: int) -> Operations:
    """Return the operations for `users` users. Numbers in which `few` and `many` differ are multiples of theirs."""

    # No number of users divides the other, and rows and classes are equal in both: what differs counts users.
    def read(a: Any, b: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return type(a)(map(read, a, b))
        return a // FEW * users if type(a) is int and a != b else a

    return replace(few, values=list(map(read, few.values, many.values))).folded()


def _tensors(value: object) -> list[Any]:
    if isinstance(value, (list, tuple, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return list(itertools.chain.from_iterable(map(_tensors, parts)))
    return [value] if isinstance(value, torch.Tensor) else []
