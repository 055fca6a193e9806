"""`fieldfare init`: a plan, a task and data that run at once, to be changed step by step."""

from __future__ import annotations

import csv
import io
import json
import random
from math import exp
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import AlreadyThere, Unwritable
from fieldfare.plan import Plan
from fieldfare.text import decimal
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.command import on_home
from fieldfare_server.cli.output import out
from fieldfare_server.cli.suggest import print_reasons
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning import reference
from fieldfare_server.planning.suggest import Suggested, suggest

POPULATION, EPSILON, DELTA = "example", 24.0, 1e-5
"""The budget of the made-up people: enough for three runs of the plan."""
PEOPLE, MOST_PEOPLE, ROWS = 1000, 40_000, 8  # the most fill the rounds of every plan that is suggested here
CHOSEN: dict[str, object] = {
    "privacy.population": POPULATION,
    "run.task": "csv_task:CsvTask",
    "run.rounds": 40,
    "run.cohort": 160,
    "participation.separation": 5,
    "participation.max_participations": 8,
    # A norm that follows the updates fits data that nobody has looked at; benchmarks/strangers.py compares.
    "clipping.kind": "adaptive-quantile",
    "clipping.norm": 0.3,
    "task.file": "people.csv",
}


@on_home
def init(
    home: StateDirectory,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="where to write; made if there is none")] = Path(),
    users: Annotated[int | None, typer.Option(min=10, max=10**9, help="people in your file, a public number")] = None,
) -> None:
    """Write a commented plan and a task over a CSV file into a directory: they run at once.

    With --users the plan is what `fieldfare suggest` makes of it for so many. Files that are there stay as they
    are. The people of the CSV file are made up; they and their budget get a population in the ledger of the home.
    """
    if users and (directory / "plan.toml").exists():
        raise AlreadyThere(f"--users {users}", f"{directory / 'plan.toml'} is there.", "fieldfare suggest --users task")
    chosen, found = fitted(users) if users else (CHOSEN, None)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in _files(chosen, min(users or PEOPLE, MOST_PEOPLE)).items():
            _write(directory / name, text)
    except OSError as error:
        raise Unwritable(f"{error.filename or directory}", f"cannot be written: {error.strerror}.") from None
    _make_population(home)
    step = "" if directory.resolve() == Path.cwd() else f"cd {directory} && "
    if found:
        print_reasons(found)
    else:
        out.print("Your own file of N people: fieldfare init DIR --users N fits the plan to them.", markup=False)
    out.print(f"Next: {step}fieldfare plan && fieldfare simulate && fieldfare budget", markup=False)
    out.print("Or first a clip norm from its users' updates, charged: fieldfare ask --clip-of plan.toml", markup=False)


def fitted(people: int) -> tuple[dict[str, object], Suggested]:
    """Return `CHOSEN`, with the rate and what `suggest` changes for a file of so many, some of whom are held out."""
    from fieldfare_server.cli.starter.csv_task import CsvParameters  # imports PyTorch

    trained = people - max(1, round(CsvParameters().held_out * people))
    # Noise over the way falls as 1 / users: half of it is kept, half buys a longer way, as far as was measured.
    chosen = {**CHOSEN, "server_optimizer.learning_rate": round(min(2.0, max(1.0, (trained / 1600) ** 0.5)), 2)}
    found = suggest(starter := Plan.from_toml(reference.template(chosen)), users=trained)
    tables = [plan.model_dump(mode="json", exclude_none=True) for plan in (starter, found.best.plan)]
    old, new = ({f"{name}.{key}": v for name, keys in whole.items() for key, v in keys.items()} for whole in tables)
    return {**chosen, **{path: new.get(path) for path in {**old, **new} if new.get(path) != old.get(path)}}, found


def _files(chosen: dict[str, object], people: int) -> dict[str, str]:
    from fieldfare_server.cli.starter.csv_task import CsvParameters  # imports PyTorch

    return {
        "plan.toml": reference.template(chosen, reference.keys_of("task", CsvParameters)),
        reference.SCHEMA_FILE: json.dumps(reference.json_schema(), indent=1) + "\n",
        "csv_task.py": (Path(__file__).parent / "starter" / "csv_task.py").read_text(encoding="utf-8"),
        "people.csv": _people(people),
    }


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        out.print(f"{path}: written", markup=False)
    except FileExistsError:
        out.print(f"{path}: is there, left as it is", markup=False)
    except OSError:
        path.unlink(missing_ok=True)  # half of one would be left as it is
        raise


def _people(people: int) -> str:
    """Return Made-up people whose label depends on three numbers and on the person."""
    generator = random.Random(1)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["person", "age", "visits", "distance", "label"])
    for person in range(people):
        habit = generator.gauss(0, 0.5)
        for _ in range(ROWS):
            age, visits, distance = (generator.gauss(0, 1) for _ in range(3))
            late = generator.random() < 1 / (1 + exp(-(1.5 * age - visits + 0.5 * distance + habit)))
            rows.writerow([f"p{person}", f"{age:.3f}", f"{visits:.3f}", f"{distance:.3f}", int(late)])
    return text.getvalue()


def _make_population(home: StateDirectory) -> None:
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as opened:
        if any(view.name == POPULATION for view in opened.populations()):
            out.print(f"population {POPULATION}: is there, left as it is", markup=False)
            return
        made = opened.create_population(POPULATION, EPSILON, DELTA, simulated=True, actor=actor())
        out.print(f"population {made.name}: epsilon {made.epsilon:g} at delta {decimal(made.delta)}, of made-up people")
