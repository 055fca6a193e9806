"""Try a task before a run pays for its mistakes: data, model, users apart, loss, training, score, reply, in
this order.

The first step that fails is the fault (`fieldfare_client.task_faults`).

On a node, a fault of rows counts only where all users that were tried have it; wrong values (NaN, labels out
of range, training that fails) only where these users are at least `NODE_USERS`. One user's rows must not cost
the others their place, and a node that refuses tells the server something of its users. That is a threshold
and no guarantee: where all others fail, the last user's data decide, and a node with one user refuses for
that user's rows.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.plan_tables import ClientSpec
from fieldfare.task import OBJECT, Task, load_task, schema_of
from fieldfare.text import counted
from fieldfare.trees import refuse_trees
from fieldfare_client.forked import Answer, Ended, ask, why_not
from fieldfare_client.independence import FORGETFUL, UP_TO_ROUNDING, Dependent, TrainingRaised, require_independent
from fieldfare_client.questions import measure_all
from fieldfare_client.shared_users import users_of
from fieldfare_client.task_faults import Faulty, Kind, as_fault, explain_error, show_dtype, show_shape
from fieldfare_client.training.local_model import make_ready, one_dtype, why_alone
from fieldfare_client.training.rows import describe_conversion, standard_dtypes
from fieldfare_client.training.trainer import CohortUpdate, Trainer
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import Occasion, TrainReply
from fieldfare_flower.npy import BadReply
from fieldfare_flower.own_data import FailedThere

# Users who are trained.
TRIED = 8
# On a node, faults of fewer users than these are the users' and not the task's.
NODE_USERS = 8
# Spent on looking for wrong rows; the result says how many rows were looked at.
SECONDS = 1.0
# Inputs above this are worth a warning: models are made for values of about 1.
LARGE = 100.0
# Values of a column that are looked at together.
BLOCK = 1 << 16

# Tasks that this process found right, by name: objects, else their classes. A cell that ran again has others.
_RIGHT: WeakValueDictionary[str, object] = WeakValueDictionary()


@dataclass
class TaskReport:
    """What was found right, and what is worth a warning."""

    name: str
    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    numel: int = 0  # trained parameters
    # The middle of the norms of the updates that were tried: a look at these users that nothing charges.
    update_norm: float | None = None
    # The users that were read: while the report is kept, whoever asks for them next need not read them again.
    table: UserTable | None = field(default=None, repr=False)


def check_task(
    name: str, *, client: ClientSpec | None = None, on_node: bool = False, load: Callable[[str], Task] = load_task
) -> TaskReport:
    """Check the task called `name` from its data to a reply.

    Args:
        name: as `load_task` takes it.
        client: the plan's local training; None: its defaults.
        on_node: this is a node: faults of single users do not count, and no score is computed, which servers
            do.
        load: from where the process that goes on to train has the task, which has read its users then.

    Raises:
        Faulty: the first fault.
    """
    began = time.perf_counter()
    with as_fault("task", name, "it cannot be loaded"):
        task, server = load(name), None if on_node else load_task(name)
    report = check(task, name, client=client or ClientSpec(), on_node=on_node, server=server)
    report.seconds = time.perf_counter() - began
    return report


def check(
    task: Task, name: str, *, client: ClientSpec, on_node: bool = False, server: Task | None = None
) -> TaskReport:
    """Check a task that is loaded, as `check_task` does.

    Where this process can be forked, the task's code meets users in a child: one that goes on to train has
    nothing in memory of those who were tried, but what `users()` has kept.
    server: the task as the server has it, which builds and scores models and reads no users; None: `task`.
    """
    looked = _Check(task, name, client, on_node, task if server is None else server)
    looked.named()
    looked.users()
    if on_node and looked.was_right:
        return looked.report
    looked.model()
    looked.users_apart()
    if why_not():
        looked.look()
    else:
        looked.look_in_child()
    if not on_node and client.isolation != "process":  # which leaves untried what memory carries
        _RIGHT[name] = looked.maker
    return looked.report


class _Check:
    """The steps of one check, with what earlier steps found."""

    def __init__(self, task: Task, name: str, client: ClientSpec, on_node: bool, server: Task) -> None:
        self.task, self.name, self.client, self.on_node, self.server = task, name, client, on_node, server
        self.report = TaskReport(name)
        self.maker = task if name.startswith(OBJECT) else type(task)
        self.was_right = _RIGHT.get(name) is self.maker  # to more than a node asks

    def look(self) -> None:
        """Show the task's code some users."""
        with as_fault("data", self.name, "the users cannot be read"):
            self.rows()
            self.loss()
            self.training()
            self.reply()
            if not self.on_node:
                self.score()

    def look_in_child(self) -> None:
        """Do as `look`, in a child of this process."""

        def look() -> Answer:
            try:
                self.look()
            except Faulty as fault:
                raised = "".join(traceback.format_exception(fault.cause)) if fault.cause else ""
                return {"fault": [fault.kind, fault.why, fault.nearest, raised, fault.trace()]}
            return {name: getattr(self.report, name) for name in ("lines", "warnings", "update_norm")}

        try:
            found = ask(look)
        except OSError:  # no room for another process
            return self.look()
        except Ended as ended:
            raise self._fault("training", f"{ended}, without a word.") from None
        if fault := found.pop("fault", None):
            kind, why, nearest, raised, trace = fault
            faulty = Faulty(kind, self.name, why, nearest, FailedThere(f"\n{raised}") if raised else None)
            faulty.told = trace
            raise faulty from faulty.cause
        vars(self.report).update(found)

    def _say(self, text: str) -> None:
        self.report.lines.append(text)

    def _warn(self, text: str) -> None:
        self.report.warnings.append(text)

    def _fault(self, kind: Kind, why: str, nearest: str = "") -> Faulty:
        return Faulty(kind, self.name, why, nearest)

    def named(self) -> None:
        """Check the three words that every task has."""
        words = {"name": "clinic", "score_name": "auc", "held_out": "Patients of 2024."}
        found = {word: getattr(self.task, word, None) for word in words}
        if missing := [word for word in words if not found[word] or not isinstance(found[word], str)]:
            example = "; ".join(f'{word} = "{words[word]}"' for word in missing)
            raise self._fault("task", f"the class has no {' and no '.join(missing)}.", example)

    def users(self) -> None:
        """Read the table."""
        with as_fault("users", self.name, "users() failed"):
            users = users_of(self.name, self.task)
        if not isinstance(users, UserTable):
            kind = type(users).__name__
            why = f"its users() gives a {kind}, not a fieldfare_client.users.UserTable."
            raise self._fault("users", why, "UserTable.grouped(user_of_row, columns)")
        self.table, self.report.table, sizes = users, users, users.sizes
        self.filled: NDArray[np.int64] = np.flatnonzero(sizes)
        if not len(users) and not self.on_node:
            raise self._fault("users", "users() gives no user.")
        if not self.filled.size and not self.on_node:
            raise self._fault("users", f"none of {counted(len(users), 'user')} has a row.")
        columns = ", ".join(f"{name} {column.dtype}" for name, column in users.columns.items())
        empty = len(users) - self.filled.size
        self._say(
            f"{counted(len(users), 'user')} with {counted(int(sizes.sum()), 'row')}"
            + (f", {int(np.median(sizes))} a user in the middle, {int(sizes.max())} at most" if len(users) else "")
            + (f"; {empty} users have no row and always contribute zero" if empty else "")
            + f"; columns {columns}"
        )

    def model(self) -> None:
        """Build the model twice: every machine must build the same one."""
        with as_fault("model", self.name, "build_model() failed"):
            model, again = self.task.build_model(), self.server.build_model()
        refuse_trees(f"task {self.name}'s model", model)
        if not isinstance(model, torch.nn.Module):
            raise self._fault("model", f"build_model() gives a {type(model).__name__}, not a torch.nn.Module.")
        with as_fault("model", self.name, "the model cannot be trained privately"):
            # The trainer knows which models would leave something un-noised behind.
            self.trainer = Trainer(self.task, self.client, lambda updates: None)
            self.schema = schema_of(self.task, model)
        if self.schema.numel == 0:
            raise self._fault("model", "the model has no parameters to train.")
        for key, value in model.state_dict().items():
            if not isinstance(value, torch.Tensor) or value.is_nested or value.layout != torch.strided:
                near = "a dense one; for a constant: register_buffer(name, tensor, persistent=False)"
                raise self._fault("model", f"{key} of its state_dict() is no dense tensor.", near)
        for key, value in model.named_parameters():
            if not bool(torch.isfinite(value).all()):
                raise self._fault("model", f"parameter {key} is not finite from the start.")
        for (key, value), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
            if not torch.equal(value, other):
                why = f"build_model() does not give the same {key} twice; server and nodes would start apart."
                raise self._fault("model", why, "with fieldfare.task.seeded(self.seed): ...")
        frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
        self.initial = self.schema.flatten(dict(model.named_parameters()))
        self.module, self.dtype = model, one_dtype(model)
        self.report.numel = self.schema.numel
        wide = (
            "" if self.dtype in (torch.float32, None) else f", trained in {show_dtype(self.dtype)}, noised in float32"
        )
        self._say(
            f"model of {self.schema.numel:,} trained parameters in {len(self.schema.names)} tensors"
            + (f" and {frozen:,} frozen ones" if frozen else "")
            + wide
        )
        if alone := why_alone(make_ready(again)):
            self._warn(f"users train one after another, not in batches: {alone}")

    def users_apart(self) -> None:
        """Train and measure two users alone and after one another, in children, before anybody trains here."""
        users = self.filled[:: max(1, len(self.filled) // 2)][:2]
        # A node would tell the server of its users. What passed once in this process is not tried again.
        if self.on_node or self.was_right or len(users) < 2 or why_not():
            return

        def train(place: int) -> torch.Tensor:
            user = users[place : place + 1]
            # Before the trainer prepares made-up rows: a task that keeps its first rows' scale would keep theirs here,
            # and a user's in a process that has looked at users before.
            with suppress(Exception):
                self.task.prepare(self.table.rows(user).columns)
            return self._train(user).update

        def measure(place: int) -> NDArray[np.float32]:  # in a child
            return measure_all(self.task, self.module.eval(), self.table.rows(users[place : place + 1]))

        what, names = "training", [str(user) for user in users]
        try:
            # What a file or a network carries on is found in children too; what memory carries, where there are none.
            for apart in (True,) if self.client.isolation == "process" else (False, True):
                require_independent(train, names, UP_TO_ROUNDING, apart)
            what = "measuring"
            require_independent(measure, names, UP_TO_ROUNDING)
        except Dependent as found:
            raise self._fault("training", f"the {what} of user {users[found.place]} {found.why}", FORGETFUL) from None
        except TrainingRaised:
            return  # the next steps say why
        self._say("two users train the same alone and after one another")

    def rows(self) -> None:
        """Prepare some users' rows, and look for numbers that are none in all of them."""
        self.tried = self.filled[: TRIED * max(1, len(self.filled) // TRIED) : max(1, len(self.filled) // TRIED)]
        self._until_one_passes(self._prepare)
        if self.tried.size and not self.on_node and self.inputs.is_floating_point():
            largest = float(torch.nan_to_num(self.inputs, posinf=0.0, neginf=0.0).abs().amax())
            if largest > LARGE:
                self._warn(
                    f"inputs of one user reach {largest:.3g}, and models train best on values of about 1: divide "
                    "by constants that you know without looking at these users"
                )
        self._count_bad_rows()

    def _until_one_passes(self, step: Callable[[int], None]) -> None:
        """Do `step` for the first user that is tried; on a node for the next ones until one passes.

        Raises `Faulty` where none passes.
        """
        # One user's rows must not cost the node's other users their place.
        for user in self.tried.tolist() if self.on_node else self.tried[:1].tolist():
            try:
                step(user)
                return
            except Faulty as fault:
                last = fault
        if self.tried.size:
            raise last

    def _prepare(self, user: int) -> None:
        """Set `inputs` and `targets` to the rows of `user`."""
        with as_fault("data", self.name, "the rows of one user cannot be read"):
            columns = self.table.rows(np.array([user])).columns
        with as_fault("data", self.name, "prepare() failed"):
            try:
                raw = self.task.prepare(columns)
            except KeyError as error:
                known = ", ".join(columns)
                why = f"prepare() looks for a column {error}, and users() gives {known}."
                raise Faulty("data", self.name, why, 'columns "x" and "y", or a prepare() of your own', error) from None
            self._require_rows(raw, len(next(iter(columns.values()))))
            self.inputs, self.targets = standard_dtypes(raw)
        for word, before, after in zip(("inputs", "targets"), raw, (self.inputs, self.targets), strict=True):
            line = describe_conversion(word, before.dtype, after.dtype)
            if line and line not in self.report.lines:
                self._say(line)

    def _require_rows(self, prepared: object, rows: int) -> None:
        if not (
            isinstance(prepared, tuple) and len(prepared) == 2 and all(isinstance(v, torch.Tensor) for v in prepared)
        ):
            raise self._fault("data", "prepare() does not give two tensors, (inputs, targets).")
        for word, values in zip(("inputs", "targets"), prepared, strict=True):
            if values.ndim == 0 or len(values) != rows:
                got = "a scalar" if values.ndim == 0 else f"{len(values)} rows"
                raise self._fault("data", f"prepare() gives {got} of {word} for {rows} rows.", "one entry a row")

    def _count_bad_rows(self) -> None:
        """Count rows with NaN or infinity, by column."""
        deadline, rows = time.perf_counter() + SECONDS, int(self.table.offsets[-1])
        bad, looked = np.zeros(rows, bool), rows
        names = []
        for name, column in self.table.columns.items():
            if column.dtype.kind != "f":
                continue
            width = max(1, int(np.prod(column[np.arange(min(1, rows))].shape[1:])))
            found, step = 0, max(1, BLOCK // width)
            for first in range(0, rows, step):
                values = column[np.arange(first, min(rows, first + step))]
                wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
                bad[first : first + len(values)] |= wrong
                found += int(wrong.sum())
                if time.perf_counter() > deadline:
                    looked = min(looked, first + len(values))
                    break
            if found:
                names.append(f"{found} rows of column {name!r}")
        if not names:
            return
        starts, ends = self.table.offsets[:-1], self.table.offsets[1:]
        total = np.concatenate(([0], np.cumsum(bad)))
        hit = (total[ends] - total[starts]) > 0
        hit = hit[self.table.positions(np.arange(len(self.table)))]
        text = f"{' and '.join(names)} hold NaN or infinity" + (
            f" (of the first {looked} rows)" if looked < rows else ""
        )
        if hit[self.filled].all() and (not self.on_node or self.filled.size >= NODE_USERS):
            why = f"{text}: every user would contribute zero, and the whole budget would buy noise."
            raise self._fault("data", why, "fill or drop these values in users()")
        self._warn(f"{text}; {int(hit.sum())} of {len(self.table)} users contribute zero")

    def _model_of(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.dtype is not None and inputs.is_floating_point():
            inputs = inputs.to(self.dtype)
        outputs: torch.Tensor = self.module(inputs)
        return outputs

    def loss(self) -> None:
        """Run model and loss on the rows of one user, and on each row by itself."""
        self.module.train()
        self._until_one_passes(self._try_loss)

    def _try_loss(self, user: int) -> None:
        self._prepare(user)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            with as_fault("model", self.name, f"the model does not take inputs of {show_shape(self.inputs)}"):
                outputs = self._model_of(self.inputs)
            if not isinstance(outputs, torch.Tensor):
                why = f"the model gives a {type(outputs).__name__}, not a tensor."
                raise self._fault("model", why, "a forward() that returns one of its tensors, such as the logits")
            self._require_labels(outputs)
            shapes = f"outputs of {show_shape(outputs)} and targets of {show_shape(self.targets)}"
            with as_fault("loss", self.name, f"loss() failed on {shapes}"):
                losses = self.task.loss(outputs, self.targets)
            if not isinstance(losses, torch.Tensor):
                raise self._fault("loss", f"loss() gives a {type(losses).__name__}, not a tensor.")
            rows = len(self.targets)
            if losses.ndim == 0:
                self._require_mean(outputs, losses)
            elif tuple(losses.shape) != (rows,):
                why = f"loss() gives shape {tuple(losses.shape)} for {rows} rows."
                raise self._fault("loss", why, 'one number a row: reduction="none", and a mean over the rest')
            else:
                with suppress(Exception):  # one that needs several rows mixes them on purpose
                    alone = self.task.loss(outputs[:1], self.targets[:1]).reshape(())
                    if not torch.allclose(alone, losses[0], rtol=1e-4, atol=1e-6, equal_nan=True):
                        self._warn(f"the loss of a row depends on the other rows of its batch: {shapes}")
            if not bool(torch.isfinite(losses).all()):
                clean = bool(torch.isfinite(self.targets.float()).all() and torch.isfinite(self.inputs.float()).all())
                if clean:
                    raise self._fault("loss", "loss() is not finite on finite rows of one user.")
                self._warn("the loss of one user is not finite, and neither are that user's rows")
        if losses.ndim:
            self._say(f"loss of one number a row, {float(losses.nanmean()):.4g} on average at the start")

    def _require_mean(self, outputs: torch.Tensor, whole: torch.Tensor) -> None:
        """Accept a scalar that is the mean over rows, which is what is minimised; refuse any other."""
        rows = len(self.targets)
        if rows < 2:
            self._warn('loss() gives one number for all rows, not one a row: say reduction="none"')
            return
        single = torch.stack(
            [self.task.loss(outputs[i : i + 1], self.targets[i : i + 1]).reshape(()) for i in range(rows)]
        )
        if torch.allclose(single.mean(), whole, rtol=1e-4, atol=1e-6):
            self._say(f"loss takes the mean over a user's rows by itself, {float(whole):.4g} at the start")
            return
        added = torch.allclose(single.sum(), whole, rtol=1e-4, atol=1e-6)
        why = f"loss() gives one {'sum' if added else 'number that is neither mean nor sum'} for all rows of a batch."
        raise self._fault("loss", why, 'one number a row: reduction="none"')

    def _require_labels(self, outputs: torch.Tensor) -> None:
        """Require integer targets of a classifier: inside of its classes, for all rows."""
        whole = self.targets.dtype in (torch.int64, torch.uint8)
        if not (outputs.ndim >= 2 and outputs.shape[1] > 1 and self.targets.ndim == outputs.ndim - 1):
            return
        if not whole:
            try:
                self.task.loss(outputs, self.targets)
            except Exception as error:
                found = show_dtype(self.targets.dtype)
                why = f"the labels are {found}, and the loss wants whole numbers: {explain_error(error)[0]}"
                near = "labels.astype(np.int64), or .to(torch.int64) in prepare()"
                raise Faulty("data", self.name, why, near, error) from error
            return
        classes, wrong, users, least, most = int(outputs.shape[1]), 0, 0, 0, 0
        deadline = time.perf_counter() + SECONDS
        example = outputs[:1]
        known: dict[int, bool] = {}

        def refused(label: int) -> bool:
            if label not in known:
                target = torch.full_like(self.targets[:1], label)
                try:
                    self.task.loss(example, target)
                    known[label] = False
                except Exception:
                    known[label] = True
            return known[label]

        looked = 0
        for user in self.filled.tolist():
            if time.perf_counter() > deadline:
                break
            try:
                rows = standard_dtypes(self.task.prepare(self.table.rows(np.array([user])).columns))[1]
            except Exception:  # noqa: S112  (this user trains to zero, which the training step counts)
                continue
            looked += 1
            outside = (rows < 0) | (rows >= classes)
            if not bool(outside.any()):
                continue
            labels = [label for label in torch.unique(rows[outside]).tolist() if refused(int(label))]
            count = int(torch.isin(rows, torch.tensor(labels, dtype=rows.dtype)).sum()) if labels else 0
            if count:
                wrong, users = wrong + count, users + 1
                least, most = min(least, *map(int, labels)), max(most, *map(int, labels))
        if not wrong:
            return
        text = (
            f"{counted(wrong, 'row')} of {counted(users, 'user')} have labels out of range ({least} to {most}); "
            f"the model has {classes} outputs, so labels are 0 to {classes - 1}"
        )
        if self.on_node:
            if users == looked and users >= NODE_USERS:
                raise self._fault("data", f"{text}.")
            return
        nearest = "labels - 1" if least == 0 and most == classes else f"{most + 1} outputs, or other labels"
        raise self._fault("data", f"{text}.", nearest)

    def _train(self, users: NDArray[np.int64]) -> CohortUpdate:
        return self.trainer.train([self.initial], [1.0], self.table, users, at_round=0)

    def training(self) -> None:
        """Train some users as a round does, each from the initial model."""
        if not self.tried.size:
            return
        with as_fault("training", self.name, "training failed"):
            # One user at a time: what fails for whom is known, and so is the user without an update.
            results = [self._train(np.array([user])) for user in self.tried]
        failing = [result.failures for result in results if result.failures]
        if len(failing) == len(results) and (not self.on_node or len(results) >= NODE_USERS):
            raise self._training_fault(next(iter(failing[0])))
        if failing:
            kinds = ", ".join(sorted({kind for failures in failing for kind in failures}))
            self._warn(f"{len(failing)} of {len(results)} users that were tried contribute zero: {kinds}")
        moved = torch.stack([result.update.reshape(-1) for result in results]).abs().sum(0).float()
        if self.on_node:
            return
        still = [name for name, value in self.schema.split(moved).items() if not bool(value.any())]
        if len(still) == len(self.schema.names):
            why = f"training {counted(len(results), 'user')} moved no parameter: no gradient reaches the model."
            raise self._fault("training", why, "a loss that depends on the outputs, without detach() or argmax()")
        if still:
            self._warn(f"no gradient reached {', '.join(still)} for the {len(results)} users that were tried")
        norms = sorted(float(result.update.norm()) for result in results)
        self.report.update_norm = norms[len(norms) // 2]
        self._say(
            f"updates of {counted(len(results), 'user')} have norms {norms[0]:.3g} to {norms[-1]:.3g}, "
            f"{norms[len(norms) // 2]:.3g} in the middle (uncharged: of people, fieldfare ask --clip-of PLAN)"
        )

    def _training_fault(self, kind: str) -> Faulty:
        """Train once more without the trainer's guard, for the text."""
        why = f"every user that was tried contributes zero: {kind}."
        if kind.startswith("update"):
            return self._fault("training", why, "a smaller client.learning_rate, or scaled inputs")
        try:
            with torch.enable_grad():
                loss = self.task.loss(self._model_of(self.inputs), self.targets).mean()
                torch.autograd.grad(loss, [p for p in self.module.parameters() if p.requires_grad])
        except Exception as error:
            text, remedy = explain_error(error)
            return Faulty("training", self.name, f"every user that was tried contributes zero: {text}", remedy, error)
        return self._fault("training", why)

    def reply(self) -> None:
        """Write what a node would send, and read it as the server does."""
        occasion = Occasion("check", 0, 0)
        with as_fault("reply", self.name, "the model does not fit a reply"):
            written = TrainReply(occasion, self.schema.arrays(self.initial), 1).write()
            try:
                TrainReply.read(written, self.schema, occasion, sent=1)
            except BadReply as error:
                raise self._fault("reply", f"the server would refuse the node's reply: {error}.") from error
        self._say(f"a node's reply is {4 * self.schema.numel / 1e6:.3g} MB")

    def score(self) -> None:
        """Evaluate the initial model twice."""
        self.module.eval()
        before = {key: value.clone() for key, value in self.module.state_dict().items()}
        scores = []
        for _ in range(2):
            with as_fault("score", self.name, "evaluate() failed"):
                scores.append(self.server.evaluate(self.module))
        for found in scores:
            value = self._score_of(found)
        first, second = (float(found[self.task.score_name]) for found in scores)
        if first != second:
            why = f"evaluate() gives {first:.6g} and then {second:.6g} for the same model."
            raise self._fault("score", why, "a seed, and no dropout: model.eval()")
        after = self.module.state_dict()
        if changed := [key for key in before if not torch.equal(before[key], after[key])]:
            raise self._fault("score", f"evaluate() changes {changed[0]} of the model.", "work on a copy")
        self._say(f"score {self.task.score_name} {value:.4g} at the start, twice the same")

    def _score_of(self, found: object) -> float:
        name = self.task.score_name
        if not isinstance(found, dict):
            why = f"evaluate() gives {'None' if found is None else 'a ' + type(found).__name__}, not a dict."
            raise self._fault("score", why, f'return {{"{name}": score}}')
        if name not in found:
            known = ", ".join(map(str, found)) or "nothing"
            why = f"evaluate() gives {known}, and not score_name = {name!r}."
            raise self._fault("score", why, f'{{"{name}": score}}')
        for key, each in found.items():
            try:
                float(each)
            except (TypeError, ValueError) as error:
                why = f"evaluate()[{key!r}] is a {type(each).__name__}, not a number."
                raise Faulty("score", self.name, why, "float(...)", error) from error
        value = float(found[name])
        if not math.isfinite(value):
            raise self._fault("score", f"evaluate()[{name!r}] is {value}.", "a finite number for the initial model")
        return value
