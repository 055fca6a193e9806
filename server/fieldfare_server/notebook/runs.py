"""Runs as a notebook sees them: tables, plots, models, statements. Everything shown is public or was charged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, overload

from fieldfare.errors import Differs, NotFound
from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare.text import up
from fieldfare_server.api.in_process import InProcessClient
from fieldfare_server.api.schemas import RunDetail
from fieldfare_server.cli.export import COLUMNS, closed_attempts, metric_columns
from fieldfare_server.cli.plot import draw_traces
from fieldfare_server.cli.progress import Trace
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.document import Statement
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure


def make_frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> object:
    """Return `rows` as a pandas DataFrame. Raises `ModuleNotFoundError` where pandas is not installed."""
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            ".frame() needs 'pandas', which is not installed: pip install pandas", name=error.name
        ) from error
    return pandas.DataFrame(list(rows), columns=list(columns))


def make_plot(traces: Sequence[Trace], title: str) -> Figure:
    """Return held-out score and epsilon against rounds. Raises `ModuleNotFoundError` where matplotlib is not
    installed.
    """
    try:
        return draw_traces(traces, title)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            ".plot() needs 'matplotlib', which is not installed: pip install 'fieldfare[server]'", name=error.name
        ) from error


def make_table(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    """Return `rows` as an HTML table; a missing value is a dash."""

    def cell(name: str, value: object) -> str:
        if isinstance(value, float):
            return f"{up(value) if name == 'epsilon' else value:.4g}"
        return "—" if value is None else escape(str(value))

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell(name, row[name])}</td>' for name in columns)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


SUMMARY = ("label", "run", "rounds", "noise_multiplier", "epsilon", "delta", "score_name", "score", "seconds")


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """One run, ended: what it released and what it spent."""

    plan: Plan
    trace: Trace
    """The reports of its rounds, as far as this process ran them."""
    home: StateDirectory
    """Its ledger and its files."""
    _kept: object = None
    """A temporary directory lives as long as this."""

    @property
    def id(self) -> str:
        """Its name in the ledger."""
        return self.trace.run

    @cached_property
    def view(self) -> RunDetail:
        """The run as page, API and `--json` show it."""
        with InProcessClient(Ledger.open(self.home.ledger), self.home.root) as service:
            return service.run(self.id)

    @property
    def epsilon(self) -> float:
        """What it spent, at the plan's delta; where it ended early, what was planned. May be infinity."""
        with Ledger.open(self.home.ledger) as ledger:
            return ledger.run(self.id).held[1]

    @property
    def score(self) -> float | None:
        """The last held-out score."""
        return self.view.score

    def summary(self) -> dict[str, object]:
        """Return one row of `Runs.frame`."""
        of_trace = {"label": self.trace.label, "run": self.id, "seconds": round(self.trace.seconds, 3)}
        spent = {"rounds": self.view.committed_rounds, "epsilon": self.epsilon, "delta": self.view.spent.delta}
        row = {**vars(self.view), **spent, **of_trace}
        return {name: row[name] for name in SUMMARY}

    def frame(self) -> object:
        """Return a pandas DataFrame with one row an attempt at a round: the columns of `fieldfare simulate
        --export`.

        Then, for each metric of the plan, `metric.NAME` and the ends of its interval, `.low` and `.high`.
        Raises `ModuleNotFoundError` where pandas is not installed.
        """
        columns = (*COLUMNS, *metric_columns(self.plan.model_dump()))
        with Ledger.open(self.home.ledger) as ledger:
            return make_frame([row for _, row in closed_attempts(ledger, self.id, None, columns)], columns)

    def plot(self) -> Figure:
        """Return held-out score and epsilon against rounds, as a matplotlib figure: a notebook shows it,
        `savefig` writes it.

        Raises `ModuleNotFoundError` where matplotlib is not installed.
        """
        return make_plot([self.trace], self.plan.run.task)

    def model(self) -> torch.nn.Module:
        """Return the task's model with the last released parameters.

        Raises `BadInput` where the run released no model, or where its task is not in this process.
        """
        from safetensors.torch import load_file

        path = self.home.root / self.id / "model.safetensors"
        if not path.exists():
            raise NotFound(f"model of run {self.id}", f"there is no {path.name} in its directory.")
        module = load_task(self.plan.task_reference).build_model()
        missing = module.load_state_dict(load_file(path), strict=False)
        trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        if missing.unexpected_keys or trained & set(missing.missing_keys):
            raise Differs(f"model of run {self.id}", "does not fit the task's model: the task has changed since.")
        return module

    def statement(self) -> Statement:
        """Return the privacy statement: `.to_markdown()`, `.to_html()`, `.to_json()`; a notebook shows it."""
        with Ledger.open(self.home.ledger) as ledger, ledger.snapshot() as snapshot:
            return privacy_statement(snapshot, self.id, self.home.root)

    def certificate(self) -> bytes:
        """Return what a stranger checks with `docs/check_certificate.py`: canonical JSON that names no user.

        Raises `BadInput` where the run's noise was seeded.
        """
        with Ledger.open(self.home.ledger) as ledger, ledger.snapshot() as snapshot:
            return certificate(snapshot, self.id, self.home)

    def __repr__(self) -> str:
        score = "" if self.score is None else f", {self.view.score_name} {self.score:.4g}"
        return f"Run({self.trace.label}: epsilon {up(self.epsilon):g}{score}, {self.id})"


class Runs(Sequence[SimulatedRun]):
    """The runs of one `simulate`, in the order of its plans."""

    def __init__(self, runs: Sequence[SimulatedRun]) -> None:
        self._runs = tuple(runs)

    @overload
    def __getitem__(self, index: int) -> SimulatedRun: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> SimulatedRun | Runs:
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[SimulatedRun]:
        return iter(self._runs)

    def frame(self) -> object:
        """Return a pandas DataFrame with one row a run. Raises `ModuleNotFoundError` where pandas is not installed."""
        return make_frame([run.summary() for run in self], SUMMARY)

    def plot(self) -> Figure:
        """Return held-out score and epsilon against rounds, all runs in one figure; see `SimulatedRun.plot`."""
        tasks = sorted({run.plan.run.task for run in self})
        return make_plot([run.trace for run in self], ", ".join(tasks))

    def __repr__(self) -> str:
        return "\n".join(["Runs(", *(f"  {run!r}" for run in self), ")"])

    def _repr_html_(self) -> str:
        return make_table(SUMMARY, [run.summary() for run in self])
