"""What a reader remembers is what a reader that knows nothing reads; and it costs what is new."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Row, event, select
from test_ledger_migrations import CONVERTED, load

from fieldfare.accounting.foreign import Foreign
from fieldfare.names import QUESTION
from fieldfare.plan import Plan
from fieldfare_server.api.answers import Answers
from fieldfare_server.ledger import Ledger, Outcome, RunHandle
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql import memory, models, rows
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.memory import Account, Memory
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.odometers import INDIVIDUAL
from fieldfare_server.ledger.states import ACTIVE
from support.fill import fill
from support.ledgers import PLAN, commit, demand, digest, edit_behind_the_guards, gaussian, plain_sums, proven, start
from support.postgres import Cluster


def afresh(ledger: Ledger) -> Reader:
    """A reader that remembers nothing."""
    return Reader(ledger.database, time.time, Memory())


def require_plain(ledger: Ledger, name: str) -> None:
    """Compare what `ledger` remembers of a population with every row of it, summed as the filter's theorem says."""
    r, c = models.runs.c, models.charges.c
    with ledger.read() as connection:
        row = rows.population_row(connection, name)
        runs = connection.execute(select(models.runs).where(r.population_id == row.id).order_by(r.seq)).all()
        foreign = connection.execute(select(c.price, c.state).where(c.population_id == row.id)).all()
        taken = ledger._memory.ask(connection, row, read_head(connection), Account.taken)
    charges = [
        budget.RunCharge(
            run.planned,
            run.spent,
            budget.stored_price(run.price),
            run.next_round,
            run.state in ACTIVE,
            run.accounting == INDIVIDUAL,
        )
        for run in runs
    ]
    active = [run for run in runs if run.state in ACTIVE]
    assert taken.sums == plain_sums(charges, [(one.price, one.state) for one in foreign])
    assert taken.runs == len(runs)
    assert [(run.seq, run.id, run.rounds_left) for run in taken.active] == [
        (run.seq, run.id, run.rounds - run.next_round) for run in active
    ]
    last = max(runs, key=lambda run: (QUESTION not in run.plan, run.seq), default=None)
    assert (taken.newest and taken.newest.seq) == (last and last.seq)
    assert taken.history[1] == sum(charge.individual for charge in charges)


class Story:
    """Random things that happen to a ledger, each by its method."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger, self.random = ledger, np.random.default_rng(seed)
        self.runs: list[RunHandle] = []
        self.done = 0
        ledger.create_population("people", 400.0, 1e-6, actor="officer")

    def step(self) -> None:
        things: list[Callable[[], None]] = [self.begin, self.end, self.charge, self.change, *[self.go_on] * 4]
        things[int(self.random.integers(len(things)))]()

    def begin(self) -> None:
        single = self.random.random() < 0.4
        asks = PLAN.replace("{", f'{{"about": "{QUESTION}", ', 1) if self.random.random() < 0.4 else PLAN
        singly = demand(900, 6) if single else None
        run = start(self.ledger, float(self.random.uniform(0.01, 0.1)), 6, demand=singly, plan_json=asks)
        run.register_users(np.arange(self.done, self.done + 3, dtype=np.uint64))
        self.runs.append(run)

    def go_on(self) -> None:
        if not self.runs:
            return self.begin()
        run = self.runs[int(self.random.integers(len(self.runs)))]
        if run.next_round == 6 or self.random.random() < 0.1:
            return self.end(run)
        self.done += 1
        opened = run.open_round([0, 1])
        if self.random.random() < 0.2:
            return run.void_round(opened, "too few")
        single = self.ledger.run(run.id).accounting == INDIVIDUAL
        charges = np.array([self.done, 3]) if single else None
        run.commit_round(
            opened, Outcome([0, 1], gaussian(0.001 * (run.next_round + 1)), charges=charges), digest(str(self.done))
        )
        return None

    def end(self, run: RunHandle | None = None) -> None:
        if self.runs:
            ended = run or self.runs[int(self.random.integers(len(self.runs)))]
            self.runs.remove(ended)
            ended.finish("stopped")

    def charge(self) -> None:
        self.done += 1
        key = f"k{self.done}"
        self.ledger.reserve_charge("people", key, Foreign(mu=0.1 + 0.01 * self.done), what="x", why="y", actor="z")
        end = (self.ledger.commit_charge, self.ledger.release_charge, None)[int(self.random.integers(3))]
        if end is not None:
            end("people", key, actor="z")

    def change(self) -> None:
        self.done += 1
        self.ledger.raise_population("people", epsilon=400.0 + self.done, reason="more", actor="officer")
        if self.runs:
            self.ledger.request(self.runs[-1].id, "pause", "officer")


@pytest.mark.parametrize("followed", [memory._FOLLOWED, 3])
def test_what_is_remembered_is_what_all_rows_say(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, followed: int
) -> None:
    """`followed` = 3: more often than not all rows are read again."""
    monkeypatch.setattr(memory, "_FOLLOWED", followed)
    with Ledger.open(ledger_url, create=True) as ledger, Ledger.open(ledger_url) as watcher:
        story = Story(ledger, followed)
        for _ in range(40):
            story.step()
            # The watcher looks now and then, and finds several new rows or none.
            if story.random.random() < 0.4:
                assert watcher.population("people") == afresh(ledger).population("people")
                require_plain(watcher, "people")
        assert watcher.population("people").runs_total > 3


def test_recomputed_charges_are_read_again(ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, 0.4)
        run.register_users(np.arange(2, dtype=np.uint64))
        commit(run, [0], 0.2)
        run.finish("stopped")
        before = ledger.population("people")
        ledger.keep_odometers("people", {run.id: [np.array([500])]}, actor="officer")
        after = ledger.population("people")
        assert after == afresh(ledger).population("people")
        assert after.spent.mu_squared < before.spent.mu_squared
        require_plain(ledger, "people")


@pytest.mark.parametrize("dump", CONVERTED, ids=lambda path: path.stem)
def test_runs_of_older_versions_are_summed_alike(dump: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.sqlite3'}"
    load(dump, url, tmp_path)
    Ledger.migrate(url)
    with Ledger.open(url) as ledger:
        for name in ledger.population_names():
            ledger.population(name)
            require_plain(ledger, name)
            assert proven(ledger).populations[name].committed() == ledger.population(name).committed


def test_a_journal_that_forked_is_read_afresh(tmp_path: Path) -> None:
    """The database is restored under an open ledger, and other things happen then."""
    path = tmp_path / "ledger.sqlite3"
    with Ledger.open(str(path), create=True) as ledger:
        fill(ledger)
        with sqlite3.connect(path) as link, sqlite3.connect(tmp_path / "backup.sqlite3") as copy:
            link.backup(copy)
        link.close()
        copy.close()
        start(ledger, 0.2)
        start(ledger, 0.3).finish("stopped")
        ledger.population("people")
        remembered = ledger._memory
        wanted = ledger.head().count
    with Ledger.open(str(tmp_path / "backup.sqlite3")) as other:
        start(other, 0.4).register_users(np.arange(900, 903, dtype=np.uint64))
        while other.head().count <= wanted:
            start(other, 0.1).finish("stopped")
        forked = Reader(other.database, time.time, remembered).population("people")
        assert forked == afresh(other).population("people")


def test_an_edited_row_moves_no_answer_and_is_named(ledger_url: str) -> None:
    """What is remembered is what the journal proved; the check of the journal names the row all the same."""
    with Ledger.open(ledger_url, create=True) as ledger:
        fill(ledger)
        before = ledger.population("people")
        assert ledger.proof.advance().ok
        with ledger.database.engine.begin() as connection:
            edit_behind_the_guards(connection, "UPDATE runs SET spent = planned WHERE seq = 1")
        assert ledger.population("people") == before
        checked = ledger.proof.advance()
        assert (checked.ok, checked.table, checked.row) == (False, "runs", ledger.runs(limit=100).items[-1].id)


# -- what it costs --------------------------------------------------------------------------------------------------


@contextmanager
def statements(ledger: Ledger) -> Iterator[list[str]]:
    """The statements that `ledger` executes inside, with SQLite's BEGIN."""
    executed: list[str] = []

    def listen(_: object, __: object, statement: str, *___: object) -> None:
        executed.append(statement)

    event.listen(ledger.database.engine, "before_cursor_execute", listen)
    try:
        yield executed
    finally:
        event.remove(ledger.database.engine, "before_cursor_execute", listen)


def costs(ledger: Ledger, runs: int) -> dict[str, int]:
    """Statements of each view of a ledger with `runs` ended runs and one under way: at first, again, after a commit."""
    ledger.create_population("people", 100.0, 1e-6, actor="officer")
    for _ in range(runs):
        start(ledger, 0.001).finish("stopped")
    live = start(ledger, 0.4, rounds=20)
    live.register_users(np.arange(3, dtype=np.uint64))
    commit(live, [0], 0.1)
    views: dict[str, Callable[[], object]] = {
        "population": lambda: ledger.population("people"),
        "run": lambda: ledger.run(live.id),
        "runs": lambda: ledger.runs(limit=2),
        "series": lambda: ledger.round_series(live.id),
        "journal": lambda: ledger.journal_rows(limit=3),
    }
    found = {}
    for name, view in views.items():
        for when in ("first", "again", "after a commit"):
            if when == "after a commit":
                commit(live, [0], 0.1)
            with statements(ledger) as executed:
                view()
            found[f"{name}, {when}"] = len(executed)
    return found


def test_no_view_makes_more_statements_with_more_runs(tmp_path: Path) -> None:
    with (
        Ledger.open(str(tmp_path / "few"), create=True) as few,
        Ledger.open(str(tmp_path / "many"), create=True) as many,
    ):
        found = costs(few, 2)
        assert found == costs(many, 40)
    assert found["population, again"] == 2, "BEGIN; the population and where the journal ends"
    assert found["population, after a commit"] == 3, "and what is new, each row with its run"
    assert found["journal, again"] == 2, "BEGIN; the page"
    assert max(found.values()) <= 6


@contextmanager
def round_trips(ledger: Ledger, path: Path) -> Iterator[list[str]]:
    """What `ledger` sends to PostgreSQL inside and waits for, as libpq records it in the file `path`."""
    sent: list[str] = []
    with open(path, "w") as file:
        event.listen(ledger.database.engine, "checkout", watch := lambda link, *_: link.pgconn.trace(file.fileno()))
        event.listen(ledger.database.engine, "checkin", leave := lambda link, _: link.pgconn.untrace())
        try:
            yield sent
        finally:
            event.remove(ledger.database.engine, "checkout", watch)
            event.remove(ledger.database.engine, "checkin", leave)
    sent += [line for line in path.read_text().splitlines() if re.search(r"\tF\t\d+\t(Query|Sync)", line)]


@pytest.mark.postgres
@pytest.mark.parametrize("individual", [False, True])
def test_round_trips_to_postgresql(postgres: Cluster, tmp_path: Path, individual: bool) -> None:
    """BEGIN, which is the check of a pooled connection too; the statements; COMMIT. c0dd382 took 15, 9, 5 and 27."""
    with Ledger.open(postgres.new_database(), create=True) as ledger:
        ledger.create_population("people", 100.0, 1e-6, actor="officer")
        answers = Answers(ledger)
        plan = Plan.parse(
            {
                "privacy": {"population": "people", "noise_multiplier": 9.0, "delta": 1e-6},
                "run": {"task": "digits", "rounds": 20, "cohort": 1},
                "mechanism": {"kind": "independent"},
            }
        )
        asked = demand(900, 20) if individual else None
        live = start(ledger, 0.4, rounds=20, demand=asked, plan_json=plan.to_json(), plan_digest=plan.digest())
        live.register_users(np.arange(3, dtype=np.uint64))

        def go_on() -> None:
            opened, charges = live.open_round([0]), np.array([3]) if individual else None
            live.commit_round(opened, Outcome([0], gaussian(0.01), charges=charges), digest(str(live.next_round)))

        def count(work: Callable[[], object]) -> int:
            with round_trips(ledger, tmp_path / "trace") as sent:
                work()
            return len(sent)

        for _ in range(8):  # psycopg prepares a statement when it is asked for the sixth time
            answers.population("people")
            answers.audit(None, 12, None)
            go_on()
        # Other populations' terms; with odometers, what the new rounds cost the users, too.
        assert count(lambda: answers.population("people")) == (7 if individual else 6)
        assert count(lambda: answers.population("people")) == 4
        assert count(lambda: answers.audit(None, 12, None)) == 3
        assert count(go_on) == 24


def test_what_users_have_left_is_worked_out_once_for_all_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million users take a thirtieth of a second."""
    worked_out: list[int] = []
    left = odometers.OdometerStanding.left
    monkeypatch.setattr(
        odometers.OdometerStanding, "left", lambda self, *of: worked_out.append(of[0]) or left(self, *of)
    )
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
        run = start(ledger, 0.4, demand=demand(900))
        run.register_users(np.arange(3, dtype=np.uint64))
        before = ledger.population("people")
        worked_out.clear()
        for t in range(1, 3):
            charges = np.array([100 * t])
            run.commit_round(run.open_round([1]), Outcome([1], gaussian(0.1), charges=charges), digest(str(t)))
            assert ledger.population("people").spent.mu_squared > before.spent.mu_squared
        assert not worked_out
        ledger.raise_population("people", epsilon=9.0, reason="more", actor="officer")
        assert ledger.population("people") == afresh(ledger).population("people")
        run.finish("stopped")
        assert ledger.population("people") == afresh(ledger).population("people")


def test_an_ended_run_is_read_once(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit, the one run that changed is read, however many there are."""
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 100.0, 1e-6, actor="officer")
        for _ in range(20):
            start(ledger, 0.001).finish("stopped")
        live = start(ledger, 0.4, rounds=20)
        ledger.population("people")
        account = ledger._memory._accounts[1]
        read: list[int] = []
        take_in = account._read_runs

        def note(found: Iterable[Row[Any]]) -> None:
            listed = list(found)
            read.extend(row.seq for row in listed)
            take_in(listed)

        monkeypatch.setattr(account, "_read_runs", note)
        commit(live, [], 0.1)
        ledger.population("people")
        assert read == [21]
