"""`fieldfare init`: a plan, a task and data that run at once, to be changed step by step."""

from __future__ import annotations

import csv
import io
import json
import random
from math import ceil, exp
from pathlib import Path
from shlex import quote
from typing import Annotated

import click
import typer

from fieldfare.atomic import write_out
from fieldfare.errors import AlreadyThere, BadInput, NotFound, TooFew
from fieldfare.plan import Plan
from fieldfare.population_size import largest_delta
from fieldfare.schema import pseudonyms
from fieldfare.text import decimal
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.command import on_home
from fieldfare_server.cli.output import out
from fieldfare_server.cli.starter.csv_task import CsvParameters, CsvTask, held_out
from fieldfare_server.cli.suggest import print_reasons
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning import reference
from fieldfare_server.planning.suggest import Suggested, suggest

POPULATION, EPSILON, DELTA = "example", 24.0, 1e-5
"""The budget of the made-up people, with a smaller delta for more of them: enough for three runs of the plan."""
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
    user: Annotated[str, typer.Option(help="the column of your people.csv that says whose row it is")] = "",
    target: Annotated[str, typer.Option(help="its column to predict, of 0 and 1")] = "",
) -> None:
    """Write a commented plan and a task over a CSV file into a directory: they run at once.

    Files that are there stay as they are. For the people of a people.csv that is there, or for --users of them, the
    plan is what `fieldfare suggest` makes of it: their number is no secret under it. Else the file's people are made
    up. They and their budget get a population in the ledger of the home.
    """
    plan, file = directory / "plan.toml", directory / str(CHOSEN["task.file"])
    found, there = None, file.exists()
    made_up = not (there or users)  # as many as you have are yours, though made-up rows hold their place
    columns = {key: name for key, name in (("user", user), ("target", target)) if name}
    chosen = CHOSEN | {f"task.{key}": name for key, name in columns.items()}
    if (users or columns) and plan.exists():
        raise AlreadyThere("the plan", f"{plan} is there.", "its table [task], then fieldfare suggest --users task")
    if columns and not there:
        raise NotFound(str(file), "is not there, whose columns --user and --target name.", "a CSV file of that name")
    if users:
        chosen, found = fitted(_trained(users), chosen)
    elif there and not plan.exists():
        try:
            chosen, found = fitted(count_trained(file, **columns), chosen)
        except BadInput as error:
            if columns and isinstance(error, NotFound):  # a column
                raise
            out.print(f"Not fitted to its people, which fieldfare suggest --users task will do: {error}", markup=False)
    directory.mkdir(parents=True, exist_ok=True)
    _make_population(home, made_up, found.best.plan.privacy.delta if found else DELTA, begins=not plan.exists())
    task = reference.section_of_task(CsvParameters).keys
    for name, text in _files(chosen, task, min(users or PEOPLE, MOST_PEOPLE)).items():
        _write(directory / name, text)
    said = click.get_current_context().params  # a URL may hold a password, which nobody wants repeated
    named = {"HOME": quote(str(home.root)) if said["home"] else "", "LEDGER": "URL" if said["ledger"] else ""}
    step = "".join(f"export FIELDFARE_{name}={value} && " for name, value in named.items() if value)
    step += "" if directory.resolve() == Path.cwd() else f"cd {quote(str(directory))} && "
    if found:
        print_reasons(found)
        out.print("The plan tells how many people it is for; under zero_out that is no secret.", markup=False)
    if users and not there:
        out.print("people.csv is made up: put yours in its place before a run, which spends its people's budget.")
    elif made_up:
        own = "Your own file as people.csv before this, or --users N"
        out.print(f"{own}, fits plan and budget to its people; later fieldfare suggest --users task fits the plan.")
    out.print(f"Next: {step}fieldfare plan && fieldfare simulate && fieldfare budget", markup=False)
    out.print("Or first a clip norm from its users' updates, charged: fieldfare ask --clip-of plan.toml", markup=False)


def fitted(trained: int, chosen: dict[str, object] = CHOSEN) -> tuple[dict[str, object], Suggested]:
    """Return `chosen` with delta and what `suggest` changes for so many people, those whom the task trains on."""
    delta = min(DELTA, largest_delta(ceil(trained / (1 - CsvParameters().held_out))))
    start = chosen | {"privacy.delta": delta}
    starter = Plan.from_toml(reference.template(start))
    found = suggest(starter, users=trained)
    tables = [plan.model_dump(mode="json", exclude_none=True) for plan in (starter, found.best.plan)]
    old, new = ({f"{name}.{key}": v for name, keys in whole.items() for key, v in keys.items()} for whole in tables)
    return {**start, **{path: new.get(path) for path in {**old, **new} if new.get(path) != old.get(path)}}, found


def count_trained(file: Path, **columns: str) -> int:
    """Return how many people of `file` the starter's task trains on. columns: its user and target, if they differ.

    Raises `BadInput` for a file that it cannot read. What stands in columns that the model reads is not looked at.
    """
    parameters = CsvParameters(file=str(file.absolute()), **columns)
    people = {row[parameters.user] for _, row in CsvTask(**parameters.model_dump()).rows()}
    trained = int((~held_out(pseudonyms(people), parameters.held_out)).sum())
    if trained < 8:  # of ten
        raise TooFew(file.name, f"leaves too few people to train ({trained}).", "8")
    return trained


def _trained(users: int) -> int:
    """Return how many of so many made-up people the starter's task trains on, of very many about how many."""
    share = CsvParameters().held_out
    if users > MOST_PEOPLE:
        return round(users * (1 - share))
    return int((~held_out(pseudonyms(f"p{person}" for person in range(users)), share)).sum())


def _files(chosen: dict[str, object], task: tuple[reference.Key, ...], people: int) -> dict[str, str]:
    return {
        "plan.toml": reference.template(chosen, task),
        reference.SCHEMA_FILE: json.dumps(reference.json_schema(), indent=1) + "\n",
        "csv_task.py": (Path(__file__).parent / "starter" / "csv_task.py").read_text(encoding="utf-8"),
        "people.csv": _people(people),
    }


def _write(path: Path, text: str) -> None:
    if not (there := path.exists()):
        write_out(path, text)  # whole: half of one would be left as it is
    out.print(f"{path}: {'is there, left as it is' if there else 'written'}", markup=False)


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


def _make_population(home: StateDirectory, made_up: bool, delta: float, begins: bool) -> None:
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as opened:
        if opened.find_population(POPULATION) is None:
            home.require_named(POPULATION, made_up)
        its, made = opened.population_or_new(
            POPULATION, EPSILON, delta, adjacency="zero_out", simulated=made_up, actor=actor()
        )
        if begins and its.simulated and not made_up:
            what = f"population {POPULATION!r} for your people"
            raise AlreadyThere(what, "it is of made-up people in this home.", "FIELDFARE_HOME, or --home, of their own")
        if not made:
            out.print(f"population {POPULATION}: is there, left as it is", markup=False)
            return
        whose = "of made-up people" if made_up else "to try: agree on one for your people"
        out.print(f"population {its.name}: epsilon {its.epsilon:g} at delta {decimal(its.delta)}, {whose}")
