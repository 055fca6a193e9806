"""The task of a run that asks a question: what it trains is the answer.

Each user has one row, the user's contribution c (`fieldfare.questions`), and the model is one vector w that
begins at zero, with the loss -<w, c>. One step of SGD at rate 1 makes w = c, so a user's update is the user's
contribution, and the released model is the noised mean of all of them. Clipping, noise, journal, odometers
and certificate are those of any run of one round.

A user's contribution depends on that user's rows alone. A measure of a model is computed for one user at a
time; its buffers are put back before the next. A user for whom it raises has no value, and counts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray
from pydantic import Field, JsonValue, field_validator

from fieldfare.arrays import Floats
from fieldfare.errors import BadInput, Differs, NotFound, Unsupported, WrongForm
from fieldfare.names import QUESTION, task_reference
from fieldfare.plan_tables import ClientSpec
from fieldfare.questions import Question, Values, parse
from fieldfare.questions.items import Item, Items, words_of
from fieldfare.refusals import validated
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare.task import Task, complete_state, load_task
from fieldfare_client.forked import has_own_python, why_not
from fieldfare_client.independence import FORGETFUL, UP_TO_ROUNDING, Dependent, TrainingRaised, require_independent
from fieldfare_client.own_randomness import own_randomness
from fieldfare_client.shared_users import users_of
from fieldfare_client.training.engines import Chunk, Engine
from fieldfare_client.training.local_model import Buffers
from fieldfare_client.training.rows import standard_dtypes
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import Column, Rows, UserTable
from fieldfare_flower.messages import Occasion, TrainReply, read_question, read_question_model, write_names

log = logging.getLogger("fieldfare.client")
# One user's place -> its numbers, (rows, width), and the errors of its measure.
_Measure: TypeAlias = Callable[[NDArray[np.int64]], tuple[Floats, Counter[str]]]

# Released models, or the files that hold them, by their runs.
_models: dict[str, Path | dict[str, torch.Tensor]] = {}


def provide(run: str, file: Path) -> None:
    """Let questions of this process evaluate the released model of `run`, a safetensors file of its state dict."""
    _models[run] = file


def asked_reference(own: str, content: RecordDict) -> str:
    """Return what this node answers an instruction by: its own task `own`, or the question put to its users.

    The question is data: bounds, bins, and the name of a measure that the node's own task has. Which task
    that is, the node alone says. Raises `BadInput` for another task's question, and for none that is
    well-formed.
    """
    asked = read_question(content)
    if asked is None or own.startswith(QUESTION):
        return own
    parameters = _checked(asked)
    name = own.partition("?")[0]
    if parameters.of.partition("?")[0] != name:
        raise Differs(f"a question of task {parameters.of!r}", "this node has another.", name)
    for run in parse(parameters.question).runs:
        arrays = read_question_model(content, run)
        _models[run] = {each: torch.from_numpy(array) for each, array in arrays.items()}
    return task_reference(QUESTION, {**parameters.model_dump(mode="json", exclude_unset=True), "of": own})


def asked_schema(content: RecordDict) -> Schema | None:
    """Return the schema of the answer to the question that a message asks; None where it asks none."""
    asked = read_question(content)
    if asked is None:
        return None
    return parse(_checked(asked).question).answer_schema


def _checked(asked: Mapping[str, object]) -> QuestionParameters:
    return validated(QuestionParameters, asked, "task")


class QuestionParameters(Table):
    """What is asked of whom."""

    of: str = Field(min_length=1, description="the task whose users are asked, with its parameters, on one line")
    question: dict[str, JsonValue] = Field(description="the [question] table")
    client: ClientSpec = Field(default=ClientSpec(), description="the local training of measure update-norm")

    @field_validator("question")
    @classmethod
    def _is_one(cls, table: dict[str, JsonValue]) -> dict[str, JsonValue]:
        dumped: dict[str, JsonValue] = parse(table).model_dump(mode="json")
        return dumped


class Contributions(Engine):
    """What one step on a `QuestionTask` makes of each user, without the step: the row that is the contribution."""

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        torch.mul(chunk.inputs, self.client.learning_rate, out=out)


class QuestionTask(Task):
    """Asks the users of another task.

    Args:
        of: that task, as `load_task` takes it.
        question: what.
        client: the local training whose updates measure "update-norm" is about.
    """

    Parameters: ClassVar[type[Table]] = QuestionParameters
    name: ClassVar[str] = "question"
    score_name: ClassVar[str] = "answer"
    held_out: ClassVar[str] = "The noised answer, which was charged before it was shown."
    shows_released: ClassVar[bool] = True
    known_updates: ClassVar[type[Engine]] = Contributions  # what the trainer takes in place of steps

    def __init__(self, of: str, question: Mapping[str, object] | Question, client: ClientSpec | None = None) -> None:
        self.of, self.question, self.client = of, parse(question), client or ClientSpec()
        # Users for whom the measure raised, by kind of error. It stays here.
        self.failures: Counter[str] = Counter()
        self.says_failures = True  # in the log, which is the node's operator's
        self._table: UserTable | None = None
        self._of_task: tuple[Task, UserTable] | None = None  # of a question about what the task measures
        self._sets: list[list[Item]] = []  # of a question of unknown values

    def build_model(self) -> torch.nn.Module:
        model = torch.nn.Linear(self.question.width, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return -outputs[:, 0]

    def users(self) -> UserTable:
        if self._table is None:
            task = load_task(self.of)
            table = users_of(self.of, task)
            if not isinstance(table, UserTable):
                raise WrongForm(f"question of {self.of!r}", "its users() is not a fieldfare_client.users.UserTable.")
            count = len(table)
            vectors: Column
            if isinstance(self.question, Items):
                self._sets = self._sets_of(table)
                vectors = np.broadcast_to(np.float32(0), (count, self.question.width))  # `told` answers
            elif self.question.is_of_task:
                self._of_task = task, table
                vectors = _Measured(self._asked(task, table), self.question, count)
            else:
                vectors = self.question.contributions(self._values(table)).astype(np.float32)
            # A user without a row contributes zero, as one whose contribution is zero.
            columns = {"x": vectors, "y": np.zeros(count, np.float32)}
            self._table = UserTable(table.pseudonyms, np.arange(count + 1), columns)
        return self._table

    def _sets_of(self, table: UserTable) -> list[list[Item]]:
        """Each user's values that count, by the user's place in the table."""
        assert isinstance(self.question, Items)
        told: list[list[float | str]] = [[] for _ in range(len(table))]
        if self.question.words:
            letters, rows, owner = _column(self.question.measure, table, words=True)
            found: Sequence[float | str] = words_of(letters[rows])
        else:
            values = self._values(table)
            found, owner = values.numbers[:, 0].tolist(), values.owner
        for user, value in zip(owner.tolist(), found, strict=True):
            told[user].append(value)
        return [self.question.of_user(each) for each in told]

    def told(self, occasion: Occasion, places: NDArray[np.int64]) -> RecordDict | None:
        """The reply for the users at these places of the table; None for a question that the trainer answers."""
        if not isinstance(self.question, Items):
            return None
        self.users()
        names, counts = self.question.counts(self._sets[place] for place in places.tolist())
        numbers = np.zeros(self.question.width, np.float32)
        numbers[: len(names)] = counts * self.question.box
        (name,), (shape,) = self.question.answer_schema.names, self.question.answer_schema.shapes
        content = TrainReply(occasion, {name: numbers.reshape(shape)}, len(places)).write()
        content.update(write_names(names))
        return content

    def _values(self, table: UserTable) -> Values:
        """Return the numbers of all users' rows that the question is about."""
        if self.question.measure == "rows":
            return Values(table.sizes.astype(np.float64)[:, None], np.arange(len(table)), len(table))
        column, rows, owner = _column(self.question.measure, table)
        return Values(column[rows].astype(np.float64)[:, None], owner, len(table))

    def _of_each(self, task: Task, table: UserTable) -> tuple[int, _Measure]:
        """Return a width, and what gives one user's numbers, (rows, width), from its own rows by model or training."""
        question, runs = self.question, self.question.runs
        if question.measure != question.update_norm:
            measures = [_OfModel(question.measure, task, _released(task, run)) for run in runs]

            def told(user: NDArray[np.int64]) -> tuple[Floats, Counter[str]]:
                # Rows anew for each model: `prepare` may change them in place.
                return np.concatenate([measure(table.rows(user)) for measure in measures], axis=1), Counter()

            return sum(measure.width for measure in measures), told
        trainer = Trainer(task, self.client, lambda updates: None)
        model = _released(task, runs[0]) if runs else task.build_model()
        start = trainer.schema.flatten(dict(model.named_parameters())).detach()

        def norm(user: NDArray[np.int64]) -> tuple[Floats, Counter[str]]:
            trained = trainer.train([start], [1.0], table, user, at_round=0)
            return np.array([[float(trained.update.norm())]]), trained.failures

        return 1, norm

    def _asked(self, task: Task, table: UserTable) -> Callable[[NDArray[np.int64]], Values]:
        """Return what measures users, by index, one at a time. One without rows, or whose measure fails, has none."""
        width, measure = self._of_each(task, table)

        def of(users: NDArray[np.int64]) -> Values:
            numbers, owner, failures = [np.zeros((0, width))], [np.zeros(0, np.int64)], Counter[str]()
            filled = np.flatnonzero(table.sizes_of(users))
            for place in filled:
                try:
                    found, failed = measure(users[[place]])
                except Exception as error:
                    found, failed = numbers[0], Counter([type(error).__name__])
                failures += failed
                if not failed:
                    numbers.append(found)
                    owner.append(np.full(len(found), place))
            self.failures += failures
            if failures and self.says_failures:  # the server learns nothing of it
                kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(failures.items()))
                log.warning("%d of %d users have no value: %s", failures.total(), len(users), kinds)
            return Values(np.concatenate(numbers), np.concatenate(owner), len(users))

        return of

    def failures_on_made_up(self) -> Counter[str]:
        """Return the errors that the measure raises on one made-up row; none where the task cannot prepare that row.

        Raises `Unsupported` for a model that the measure is not made for, and `BadInput` where what Python of the
        task's own tells of one made-up user changes after another.
        """
        self.users()
        if self._of_task is None:  # values of a column, which no code of the task computes
            return Counter()
        task, table = self._of_task
        shapes = {name: column[np.zeros(0, np.int64)] for name, column in table.columns.items()}
        columns = {name: np.ones((2, *none.shape[1:]), none.dtype) for name, none in shapes.items()}
        for column in columns.values():
            column[1] = 0
        made_up = UserTable(np.arange(2, dtype=np.uint64), np.arange(3), columns)
        _, measure = self._of_each(task, made_up)
        if has_own_python(task) and not why_not():  # first: made-up rows may leave something here, too
            self._require_forgetful(task, made_up, measure)
        try:
            task.prepare({name: torch.from_numpy(column[:1]) for name, column in columns.items()})
        except Exception:  # it may know real rows alone
            return Counter()
        try:
            return measure(np.zeros(1, np.int64))[1]
        except Unsupported:  # it names what would do, and no user's row was read
            raise
        except Exception as error:
            return Counter([type(error).__name__])

    def _require_forgetful(self, task: Task, made_up: UserTable, measure: _Measure) -> None:
        """Measure two made-up users alone and after one another, in children. Raises `BadInput` where that differs."""
        model = _released(task, self.question.runs[0]) if self.question.runs else task.build_model().eval()

        def told(place: int) -> NDArray[np.float32]:
            own, rows = measure(user := np.array([place]))[0], made_up.rows(user)
            return np.append(np.nan_to_num(own, posinf=0.0, neginf=0.0), measure_all(task, model, rows))

        try:
            require_independent(told, ("1", "2"), UP_TO_ROUNDING)
        except Dependent as found:
            what, why = f"question.measure = {self.question.measure!r}", f"of a made-up user it {found.why}"
            raise BadInput(what, why, FORGETFUL, code="measure-carries") from None
        except TrainingRaised:
            return  # what raises is counted where the measure is tried here

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """Return nothing: the answer is read from the released model, with its noise (`Question.read`)."""
        return {}


class _Measured:
    """A column of contributions, one row a user, each made when it is first read: who is not asked costs nothing."""

    def __init__(self, of: Callable[[NDArray[np.int64]], Values], question: Question, users: int) -> None:
        self._of, self._question, self._known = of, question, np.zeros(users, np.bool_)
        self._vectors = np.zeros((users, question.width), np.float32)
        self.dtype: np.dtype[np.generic] = self._vectors.dtype

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.generic]:
        if len(new := np.unique(rows[~self._known[rows]])):
            self._vectors[new] = self._question.contributions(self._of(new))
            self._known[new] = True
        return self._vectors[rows]


def _column(name: str, table: UserTable, *, words: bool = False) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
    """Return a column of one number a row, or of `words`, its row numbers in the order of the users, and whose each is.

    The column is not read yet. Raises `BadInput` where there is no such column, and names those that can be asked for.
    """
    none, fits = np.zeros(0, np.int64), list[str]()
    for each, column in table.columns.items():
        if (column.dtype == np.uint8 if words else column.dtype.kind != "c") and column[none].ndim == 1 + words:
            fits.append(each)
    what, near = f"question.measure = {name!r}", ", ".join(fits if words else ("rows", *fits))
    if name not in table.columns:
        raise NotFound(what, "is not a column of the users' table.", near)
    if name not in fits and words:
        raise WrongForm(what, "is no column of words.", near or "what fieldfare.questions.items.letters_of makes")
    if name not in fits:
        raise WrongForm(what, "is a column of several numbers a row.", near)
    column = table.columns[name]
    users = np.arange(len(table))
    sizes, starts = table.sizes, table.offsets[table.positions(users)]
    places = np.arange(int(sizes.sum())) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return column, places, np.repeat(users, sizes)


def _released(task: Task, run: str) -> torch.nn.Module:
    from safetensors.torch import load_file

    if run not in _models:
        raise NotFound(f"the model of run {run!r}", "is not here.", "a run of the same state directory")
    model = task.build_model()
    held = _models[run]
    state = load_file(held) if isinstance(held, Path) else held
    trained = {name: state[name] for name, value in model.named_parameters() if value.requires_grad and name in state}
    model.load_state_dict(complete_state(model, trained))
    return model.eval()


class _OfModel:
    """From the rows of one user to the numbers that a measure of a released model gives each of them.

    Args:
        measure: loss, correct, or the probability of the second class, beside which the row's label stands.
    """

    def __init__(self, measure: str, task: Task, model: torch.nn.Module) -> None:
        self._measure, self._task, self._model = measure, task, model
        self._buffers = Buffers(model)
        self.width = 2 if measure == "probability" else 1

    def __call__(self, rows: Rows) -> Floats:
        """Return the shape (rows, width). What the model keeps of a user is put back before the next."""
        self._buffers.restore()
        with own_randomness(int(rows.users[0])), torch.no_grad():
            inputs, targets = standard_dtypes(self._task.prepare(rows.columns))
            outputs = self._model(inputs)
            if self._measure == "probability":
                found = torch.stack([_second(outputs), targets.to(outputs.dtype)], dim=1)
            else:
                found = self._task.measure(self._measure, outputs, targets)
        if found.ndim == 0:  # a loss that takes the mean by itself: each row has it
            found = found.expand(len(targets))
        numbers: Floats = found.double().reshape(len(targets), self.width).numpy()
        return numbers


def measure_all(task: Task, model: torch.nn.Module, rows: Rows) -> NDArray[np.float32]:
    """Return the mean of each of the task's measures over one user's rows, shape (k,); 0 for what it does not have."""
    found = np.zeros(len(task.measures), np.float32)
    for at, name in enumerate(task.measures):
        with suppress(Exception):
            found[at] = np.nan_to_num(_OfModel(name, task, model)(rows), posinf=0.0, neginf=0.0).mean()
    return found


def _second(outputs: torch.Tensor) -> torch.Tensor:
    """Return the probability of the second of two classes: a logit's, or the second of two."""
    if outputs.ndim == 2 and outputs.shape[1] == 2:
        return outputs.softmax(dim=1)[:, 1]
    if outputs.numel() != len(outputs):
        raise Unsupported("question.kind = 'auc'", "the model gives more than two classes.", "measure = 'correct'")
    return outputs.reshape(len(outputs)).sigmoid()
