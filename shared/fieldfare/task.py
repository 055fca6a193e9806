"""What is trained: a model, a loss, users' data and a public score. One final class a task.

The core only knows this class. Tasks live with the client, where users' data are. They are loaded by name, so
that neither core nor server imports them statically.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import os
import pkgutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fieldfare.errors import BadInput
from fieldfare.lazily import torch
from fieldfare.names import split_task_reference
from fieldfare.refusals import bad_input
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.shown import Shown

log = logging.getLogger("fieldfare.task")

GROUP = "fieldfare.tasks"
# How the names of tasks begin that are objects of this process (`hold`), and that no other process can load.
OBJECT = "object:"
_held: WeakValueDictionary[str, Task] = WeakValueDictionary()
# What installs all that tasks need.
CLIENT = "pip install 'fieldfare[client]'"
# The package of the tasks that come with Fieldfare; each of its modules with a table `TASKS` has some.
BUNDLED = "fieldfare_client.tasks"
# What installs, in a checkout, the research tasks, their data and `fieldfare forecast`.
ADD_ON = "pip install ./benchmarks/research"
# The tasks of that add-on: stored plans name them, so a refusal can say where they are.
RESEARCH = ("changelog", "changelog-words", "chess", "cifar10", "fashion", "mnist", "poems", "stackoverflow")


class UnknownTask(BadInput):
    """There is no task of that name here; on another machine there may be one."""


class Users(Protocol):
    """The users that a node hosts. `fieldfare_client.users.UserTable` is the implementation."""

    @property
    def pseudonyms(self) -> NDArray[np.uint64]:
        """One 64-bit name a user (`fieldfare.schema.pseudonym`), shape (users,)."""

    def __len__(self) -> int: ...

    def partition(self, index: int, count: int) -> Users:
        """Return the users of node `index` of `count`: every user on exactly one node, always the same one."""


class Task(metaclass=Shown):
    """A model, users and a score. Final subclasses are cheap to construct and read data only on demand.

    Every task must guarantee that `build_model` does not depend on users' data, and that `evaluate` uses only
    public data, of users that are never trained on (`held_out` says which), because a score is shown without
    noise.

    Example:
        >>> import numpy as np, torch
        >>> import fieldfare as ff
        >>> class Heights(ff.Task):
        ...     name, score_name, held_out = "heights", "error", "twenty made-up people, who are not trained on"
        ...     def build_model(self):
        ...         return torch.nn.Linear(1, 1)
        ...     def prepare(self, columns):
        ...         return columns["age"], columns["height"]
        ...     def loss(self, outputs, targets):
        ...         return (outputs - targets).square().mean(dim=1)
        ...     def users(self):
        ...         age = np.linspace(0, 1, 30, dtype=np.float32)[:, None]
        ...         return ff.UserTable.grouped([f"u{i // 3}" for i in range(30)], {"age": age, "height": 1 + age})
        ...     def evaluate(self, model):
        ...         age = torch.linspace(0, 1, 20)[:, None]
        ...         with torch.no_grad():
        ...             return {"error": float((model(age) - 1 - age).square().mean())}
        >>> task = Heights()
        >>> len(task.users()), sorted(task.evaluate(task.build_model()))
        (10, ['error'])
    """

    SHOWN = ("build_model", "prepare", "loss", "users", "evaluate", "measure")
    name: ClassVar[str]
    score_name: ClassVar[str]
    """The key of `evaluate` by which models are compared, such as "auc"."""
    least_is_best: ClassVar[bool] = False
    """Whether the score is an error or a loss: tuning takes the least."""
    held_out: ClassVar[str]
    """One sentence for reports: on whose data the score is computed, and why it costs no privacy."""
    seed: int = 0
    """Of the initial weights. Public."""
    shows_released: ClassVar[bool] = False
    """Whether a round's statistics hold the released parameters themselves: a few numbers for people to read."""
    measures: ClassVar[tuple[str, ...]] = ("loss", "correct")
    """What `measure` can tell of a user's rows, for `[metrics]` and for questions about a model."""
    Parameters: ClassVar[type[Table]] = Table
    """The model of the plan's `[task]` table; without one a task takes no parameters. They are public, and
    part of the plan's digest. Give each a default and a description."""

    @classmethod
    def configured(cls, parameters: Any) -> Self:
        """Return the task with these `Parameters`. By default each is an argument of that name."""
        return cls(**{name: getattr(parameters, name) for name in type(parameters).model_fields})

    @abstractmethod
    def build_model(self) -> torch.nn.Module:
        """Return the model with its initial weights: the same on every machine (see `seeded`).

        What requires a gradient is trained, in its own dtype, and travels as float32. Frozen parameters and
        buffers never travel: every machine builds its own, so they must not depend on users' data.
        """

    @abstractmethod
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each example of one batch of one user, shape (n,), from outputs (n, ...) and
        targets (n, ...).

        Engines minimise its mean. Examples may mix, because they are one user's. A loss that
        `torch.func.vmap` can map over users trains many at once; others one user after another.
        """

    @abstractmethod
    def users(self) -> Users:
        """Return the users to train on. Only nodes call it."""

    @abstractmethod
    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """Return scores on public held-out data; contains `score_name`. Deterministic, leaves `model`, in eval
        mode, unchanged.
        """

    def measure(self, name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the number `name`, one of `measures`, of each row of one user, shape (n,), or their mean,
        shape ().

        It is taken row by row: metrics of a run call it with one row at a time, mapped over many, where that
        works. outputs, targets: as `loss` has them, of the model in eval mode. By default the loss, and
        whether the class with the largest output (of one output: by its sign) is the target.
        """
        if name == "correct":
            several = outputs.ndim == 2 and outputs.shape[1] > 1
            classes = outputs.argmax(dim=1) if several else outputs.reshape(len(outputs)) > 0
            return (classes == targets).float()
        return self.loss(outputs, targets)

    def prepare(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Turn rows of a user table into (inputs, targets), row by row. By default its columns "x" and "y".

        Training calls it with the rows of one user. Override it to keep data compact at rest (codes, uint8
        pixels) and expand them on the training device.
        """
        return columns["x"], columns["y"]


def stated_schema(task: Task) -> Schema | None:
    """Return the model's schema as the task's own class states it, for prices; None where it states none."""
    # A subclass may build another model, so what it inherits counts for nothing.
    known = vars(type(task)).get("known_schema")
    return known(task) if known else None


def schema_of(task: Task, model: torch.nn.Module) -> Schema:
    """Return the schema of the model that the task built. Raises `BadInput` where its class states another."""
    schema = Schema.of(model)
    if (stated := stated_schema(task) or schema) != schema:
        why = f"known_schema() states {stated.numel:,} parameters, other ones than build_model()'s {schema.numel:,}."
        raise BadInput(f"run.task = {task.name!r}", why, "no known_schema", code="task-schema")
    return schema


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch draw from `seed` on the CPU inside the block. Afterwards its global generator continues where
    it was before.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def complete_state(model: torch.nn.Module, released: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the full state dict of `model` with `released` in the place of its trained parameters.

    `model.load_state_dict(result, strict=True)` works, and so does `safetensors.torch.save`: all names,
    order, shapes and dtypes are those of `model.state_dict()`, and no two tensors share memory. Names of one
    tied tensor all get its release; frozen parameters and buffers are those of `model`, which must be public.
    Changes nothing.

    Args:
        model: the module as `Task.build_model` made it.
        released: every parameter of `model` that requires a gradient, by its (first) name in
            `named_parameters()`, in its shape, of any floating dtype.

    Raises:
        BadInput: a released name that the model does not train, one that is missing, or another shape.
    """
    first_name = {id(value): name for name, value in model.named_parameters() if value.requires_grad}
    if missing := sorted(set(first_name.values()) - set(released)):
        raise BadInput(
            "released parameters", f"{missing[0]!r} is missing, and {len(missing) - 1} more.", code="parameters-missing"
        )
    if unknown := sorted(set(released) - set(first_name.values())):
        near = difflib.get_close_matches(unknown[0], first_name.values(), n=1)
        raise BadInput(
            f"released parameter {unknown[0]!r}",
            "the model does not train it.",
            near[0] if near else "",
            code="parameter-unknown",
        )
    complete: dict[str, torch.Tensor] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        trained = first_name.get(id(value))
        source = value if trained is None else released[trained]
        if source.shape != value.shape:
            shapes = f"{tuple(source.shape)}, not {tuple(value.shape)}"
            raise BadInput(f"released parameter {trained!r}", f"has shape {shapes}.", code="parameter-shape")
        complete[name] = source.detach().to(device="cpu", dtype=value.dtype, copy=True).contiguous()
    return complete


def task_names() -> tuple[str, ...]:
    """Return the names that `load_task` knows, sorted: the bundled ones, and those that installed
    distributions announce.
    """
    return tuple(sorted({*_bundled(), *(point.name for point in _points(entry_points, _places()))}))


def load_task(reference: str) -> Task:
    """Return the task that `reference` names: a bundled name, an announced one, or
    "package.module:attribute".

    The attribute may be a `Task`, a `Task` class, or a callable without arguments that returns a `Task`.
    Importing a module runs its code: give only names of modules you trust. Parameters may follow, as in
    `digits?users=50` (`fieldfare.names.task_reference` writes them). Raises `BadInput` naming the nearest
    known name or parameter, and `UnknownTask` where there is no task of that name.
    """
    try:
        name, parameters = split_task_reference(reference)
    except ValueError:
        raise BadInput(
            f"run.task = {reference!r}",
            "its parameters cannot be read.",
            "digits?users=50",
            code="task-parameters-unreadable",
        ) from None
    return _instance(name, find_task(name), parameters)


def announced(name: str) -> list[EntryPoint]:
    """Return the installed distributions' entry points of that name, Fieldfare's own among them. Imports none
    of them.
    """
    return [point for point in _points(entry_points, _places()) if point.name == name]


def _places() -> tuple[tuple[str, int], ...]:
    """Return the folders of `sys.path` and when each was last changed, as by an installation in a notebook."""
    return tuple((place, os.stat(place).st_mtime_ns) for place in sys.path if os.path.isdir(place))


@cache
def _points(look: Callable[..., Iterable[EntryPoint]], places: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """Return all that `look` finds in `places`, looked for once: it reads a file of every installed distribution."""
    return tuple(look(group=GROUP))


def find_task(name: str) -> object:
    """Return what `load_task` makes the task of: a `Task`, a `Task` class, or a callable. Raises `UnknownTask`."""
    if not name:
        raise BadInput(
            "run.task",
            "is required: this plan names no task. A Flower app that starts the run itself needs none.",
            ", ".join((*task_names(), "package.module:attribute")),
            code="task-required",
        )
    if name.startswith(OBJECT):
        return _object(name)
    if ":" in name:
        return _resolve(name)
    bundled = _bundled().get(name)
    points = announced(name)
    foreign = [point for point in points if not point.value.startswith(f"{BUNDLED}.")]
    if bundled is not None:
        for point in foreign:
            log.warning("task %r is Fieldfare's own; for that of %s say %r", name, _owner(point), point.value)
        return bundled
    if points and importlib.util.find_spec("torch") is None:
        raise UnknownTask(f"run.task = {name!r}", "needs PyTorch, which is not installed.", CLIENT)
    if len({point.value for point in foreign}) > 1:
        owners = ", ".join(_owner(point) for point in foreign)
        raise BadInput(
            f"run.task = {name!r}", f"several packages announce it: {owners}.", foreign[0].value, code="task-ambiguous"
        )
    if foreign:
        return _resolve(foreign[0].value)
    if name in RESEARCH:
        raise UnknownTask(f"run.task = {name!r}", "there is no such task: an add-on has it.", ADD_ON)
    known = task_names()
    near = difflib.get_close_matches(name, known, n=1) or [", ".join((*known, "package.module:attribute"))]
    module = name.removesuffix(".py")
    if module.isidentifier() and importlib.util.find_spec(module) is not None:
        near = [f"{module}:Class, with the name of the task's class"]
    raise UnknownTask(f"run.task = {name!r}", "there is no such task.", near[0])


def parameters_of(name: str) -> type[Table]:
    """Return the model of the `[task]` table of the task `name`. Raises as `load_task`.

    A class with an `__init__` that does not declare `Parameters` takes none: those of its base describe its
    base.
    """
    target = find_task(name)
    if not (isinstance(target, type) and issubclass(target, Task)):
        return Table
    owner = next(each for each in target.__mro__ if not {"Parameters", "__init__"}.isdisjoint(vars(each)))
    return target.Parameters if "Parameters" in vars(owner) else Table


def check_parameters(name: str, parameters: Mapping[str, object]) -> Table:
    """Return the parameters of the task `name`, validated. Raises `BadInput` with every fault, and as `load_task`."""
    model = parameters_of(name)
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise bad_input(error, "task", model) from None


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _bundled() -> dict[str, object]:
    """Return the tasks that come with Fieldfare, by name; none where the client or PyTorch is not installed."""
    if importlib.util.find_spec(BUNDLED.partition(".")[0]) is None or importlib.util.find_spec("torch") is None:
        return {}
    tasks: dict[str, object] = {}
    for module in pkgutil.iter_modules(importlib.import_module(BUNDLED).__path__):
        tasks |= getattr(importlib.import_module(f"{BUNDLED}.{module.name}"), "TASKS", {})
    return tasks


def hold(task: Task) -> str:
    """Return the name under which `load_task` finds this very object, in this process, for as long as
    something keeps it.

    The first object of a class has the same name in every process, so that a script that is started again can
    resume.
    """
    for name, held in _held.items():
        if held is task:
            return name
    stem = name = f"{OBJECT}{type(task).__module__}.{type(task).__qualname__}"
    number = 1
    while name in _held:
        number += 1
        name = f"{stem}-{number}"
    _held[name] = task
    return name


def _object(name: str) -> Task:
    task = _held.get(name)
    if task is None:
        made = name.removeprefix(OBJECT).rpartition(".")[2]
        raise UnknownTask(
            f"run.task = {name!r}",
            "the run's task was an object of a script or notebook, and this process has no such object.",
            f"in that script, make it before: task = {made}(...); plan = ff.Plan(task=task, ...). Or put the class "
            "into a module and plan with its name, 'package.module:Class'",
        )
    return task


def _resolve(reference: str) -> object:
    """Return the attribute of "package.module:attribute". Raises `BadInput` naming the part that is missing."""
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise BadInput(
            f"run.task = {reference!r}",
            "must look like a module and an attribute.",
            "package.module:attribute",
            code="task-reference",
        )
    try:
        target: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        nearest = f"start in the directory that holds {error.name}.py, or install its package"
        raise UnknownTask(f"run.task = {reference!r}", f"module {error.name!r} cannot be found.", nearest) from error
    except SystemExit as error:  # its exit code would be taken for the command's own
        raise task_exits(f"run.task = {reference!r}", f"module {module!r} ends the program", error) from error
    except SyntaxError as error:
        raise BadInput(
            f"run.task = {reference!r}",
            f"it cannot be loaded: {error.msg} in {Path(error.filename or module).name}, line {error.lineno}.",
            "the same with the line put right",
            code="task-unimportable",
        ) from None
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"run.task = {reference!r}", f"{error}.", "package.module:attribute", code="task-unimportable"
        ) from error
    for part in attribute.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            near = difflib.get_close_matches(part, dir(target), n=1)
            nearest = f"{module}:{near[0]}" if near else ""
            raise BadInput(
                f"run.task = {reference!r}", f"there is no {part!r} in it.", nearest, code="task-attribute"
            ) from None
    return target


def task_exits(what: str, why: str, error: SystemExit) -> BadInput:
    """Return the refusal of code that ends the process, whose code would be taken for that of a command."""
    nearest = 'the call behind `if __name__ == "__main__":`, or an exception in its place'
    return BadInput(what, f"{why}, with exit code {error.code!r}.", nearest, code="task-exits")


def _instance(name: str, target: object, given: Mapping[str, object]) -> Task:
    if isinstance(target, type) and issubclass(target, Task):
        parameters = check_parameters(name, given)
        return target.configured(parameters) if type(parameters).model_fields else target()
    if given:
        raise BadInput(
            "task",
            f"{name!r} is not a class of tasks, which alone declares parameters.",
            "no table [task]",
            code="task-takes-no-parameters",
        )
    task = target if isinstance(target, Task) or not callable(target) else target()
    if not isinstance(task, Task):
        raise BadInput(
            f"run.task = {name!r}", f"gives a {type(task).__name__}, not a fieldfare.task.Task.", code="not-a-task"
        )
    return task
