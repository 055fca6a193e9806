"""A large ledger, quickly: the ledger writes one run, which is then copied row by row under a new audit chain.

Every copy has the audit rows, rounds, participations and charge that its original has, under another name and key, and
the chain over all of them is whole: `fieldfare verify` finds no fault in it.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, select, text, update

from fieldfare.accounting import PrivacyLoss
from fieldfare.plan import Plan
from fieldfare_server.ledger import Ledger, NewRun, Outcome, RunHandle, chain
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.journal import read_head

POPULATION = "large"
COHORT = 10
SIGMA = 1000.0
LOSS = PrivacyLoss(mu_squared=1 / SIGMA**2)
"""The loss of a run: independent noise, and every user once."""
_RUNS_AT_ONCE = 50


def plan(rounds: int) -> Plan:
    """A run in which every user takes part once."""
    return Plan.parse(
        {
            "privacy": {"population": POPULATION, "noise_multiplier": SIGMA, "delta": 1e-5},
            "run": {"task": "digits", "rounds": rounds, "cohort": COHORT},
            "mechanism": {"kind": "independent"},
        }
    )


def start(ledger: Ledger, name: str, rounds: int) -> RunHandle:
    """A run under way."""
    described = plan(rounds)
    handle = ledger.start_run(
        NewRun(
            described.to_json(),
            described.digest(),
            POPULATION,
            rounds,
            LOSS,
            noise_source="secure-box-muller",
            key_commitment=hashlib.sha256(name.encode()).hexdigest(),
            trust_node_ids=False,
            id=name,
        ),
        holder="benchmark",
    )
    handle.register_users(np.arange(COHORT * rounds, dtype=np.uint64))
    return handle


def commit(handle: RunHandle) -> None:
    """One more round."""
    t = handle.next_round
    cohort = np.arange(COHORT) + COHORT * t
    digest = hashlib.sha256(f"{handle.id}{t}".encode()).hexdigest()
    score = 0.7 - 0.2 * math.exp(-t / 40)
    statistics = {"score": score, "score_name": "accuracy", "noise_std": SIGMA / COHORT, "noise_norm": 0.8}
    handle.commit_round(handle.open_round(cohort), Outcome(cohort, LOSS, statistics, reports=COHORT), digest)


def fill(url: str, runs: int, rounds: int) -> None:
    """A new ledger at `url` with `runs` ended runs of `rounds` rounds each, all charged to `POPULATION`."""
    with Ledger.open(url, create=True) as ledger:
        ledger.create_population(POPULATION, 8.0, 1e-5, actor="benchmark")
        first = start(ledger, "run-0", rounds)
        for _ in range(rounds):
            commit(first)
        first.finish("done")
        with ledger.database.engine.connect() as connection, connection.begin(), _guards_off(connection):
            _copy(connection, runs - 1)


@contextmanager
def _guards_off(connection: Connection) -> Iterator[None]:
    """Drop the triggers that let the log grow only row by row."""
    run = connection.exec_driver_sql
    if connection.dialect.name == "postgresql":
        for table in ("audit", "head"):
            run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        for table in ("audit", "head"):
            run(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        return
    guards = run("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('audit', 'head')").all()
    for name, _ in guards:
        run(f"DROP TRIGGER {name}")
    yield
    for _, sql in guards:
        run(sql)


def _copy(connection: Connection, copies: int) -> None:
    audit = [dict(row) for row in _rows(connection, models.journal, models.journal.c.run == "run-0")]
    audit = [row for row in audit if row["action"] != "users.register"]
    (run,) = _rows(connection, models.runs, models.runs.c.id == "run-0")
    (lease,) = _rows(connection, models.leases)
    rounds = _rows(connection, models.rounds)
    parts = _rows(connection, models.participations)
    end = read_head(connection)
    count, last = end.count, end.hash
    spent = PrivacyLoss.from_json(run["spent"])
    settled = spent

    def audit_rows(names: Sequence[str]) -> Iterator[dict[str, Any]]:
        nonlocal count, last, settled
        for name in names:
            for row in audit:
                count += 1
                body = row["body"]
                if row["action"] == "run.start":
                    body = chain.canonical({**json.loads(body), "key_commitment": _key(name)})
                elif row["action"] == "run.finish":
                    settled = settled + spent
                    body = chain.canonical({**json.loads(body), "settled": settled.to_json()})
                made = {**row, "id": count, "run": name, "body": body, "previous": last}
                made |= {"actor": row["actor"].replace("run-0", name), "event": secrets.token_hex(16)}
                last = made["hash"] = chain.row_hash(made)
                yield made

    for at in range(0, copies, _RUNS_AT_ONCE):
        numbers = range(at + 1, min(copies, at + _RUNS_AT_ONCE) + 1)
        names = [f"run-{i}" for i in numbers]
        seqs = {name: run["seq"] + i for i, name in zip(numbers, names, strict=True)}
        moved = [(i * len(rounds), seqs[name]) for i, name in zip(numbers, names, strict=True)]
        _insert(
            connection,
            models.runs,
            ({**run, "seq": seqs[name], "id": name, "key_commitment": _key(name)} for name in names),
        )
        _insert(connection, models.leases, ({**lease, "run_seq": seq} for seq in seqs.values()))
        _insert(
            connection,
            models.rounds,
            ({**row, "id": row["id"] + by, "run_seq": seq} for by, seq in moved for row in rounds),
        )
        _insert(
            connection,
            models.participations,
            ({**row, "round_id": row["round_id"] + by, "run_seq": seq} for by, seq in moved for row in parts),
        )
        _insert(connection, models.journal, audit_rows(names))
    connection.execute(update(models.head).values(count=count, hash=last))
    connection.execute(update(models.populations).values(settled=settled.to_json()))
    if connection.dialect.name == "postgresql":
        for table, column in (("runs", "seq"), ("rounds", "id")):
            newest = f"(SELECT max({column}) FROM {table})"
            connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {newest})"))


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _rows(connection: Connection, table: Table, *where: Any) -> list[dict[str, Any]]:
    query = select(table).where(*where).order_by(*table.primary_key)
    return [dict(row) for row in connection.execute(query).mappings()]


def _insert(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    """Many rows at once, past SQLAlchemy: COPY on PostgreSQL."""
    names = [column.name for column in table.columns]
    columns = ", ".join(f'"{name}"' for name in names)
    cursor: Any = connection.connection.cursor()
    values = map(itemgetter(*names), rows)
    if connection.dialect.name == "postgresql":
        with cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    else:
        cursor.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({', '.join('?' * len(names))})", values)
    cursor.close()
