"""An in-memory `Store`: the service's own behaviour is tested against it, the ledger's against the real one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fieldfare.errors import LedgerError
from fieldfare_server.api.problems import ProblemError
from fieldfare_server.api.schemas import (
    AuditRow,
    Histogram,
    Loss,
    Page,
    Point,
    Population,
    Round,
    Run,
    RunDetail,
    Scope,
    Series,
    Verification,
)
from fieldfare_server.api.store import Request, TokenRecord, Totals
from fieldfare_server.evidence.document import Section, Statement
from fieldfare_server.evidence.guarantee import Fact, Guarantee

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
DELTA = 1e-5
GENESIS = "0" * 64


def loss(epsilon: float) -> Loss:
    return Loss(epsilon=epsilon, delta=DELTA, rho=epsilon**2 / 46, mu=epsilon / 4.4)


def offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise ProblemError(400, "bad-cursor", "this cursor is not one of ours.")
    return int(cursor)


class FakeStore:
    """One population `aircraft` (limit 2) and `runs` runs of 64 rounds; `commit` adds a round to the newest."""

    def __init__(self, runs: int = 3, committed: int = 24) -> None:
        self.rows: list[AuditRow] = []
        self.tokens: dict[str, TokenRecord] = {}
        self.used: list[tuple[str, str]] = []
        self.requests: dict[str, str] = {}
        self.down = False
        self.broken = False
        self.progress = {f"run-{i}": 64 for i in range(1, runs)}
        if runs:
            self.progress[f"run-{runs}"] = 0
        self.newest = f"run-{runs}"
        self.add("population.created")
        for _ in range(committed if runs else 0):
            self.commit()

    def add(self, event: str, run: str | None = None, round_: int | None = None) -> None:
        previous = self.rows[-1].hash if self.rows else GENESIS
        number = len(self.rows) + 1
        body = f"{previous}{number}{event}{run}{round_}".encode()
        self.rows.append(
            AuditRow(
                id=number,
                at=START + timedelta(seconds=30 * number),
                actor="coordinator",
                event=event,
                population="aircraft",
                run=run,
                round=round_,
                previous=previous,
                hash=hashlib.sha256(body).hexdigest(),
            )
        )

    def commit(self) -> None:
        self.progress[self.newest] += 1
        self.add("round.committed", self.newest, self.progress[self.newest] - 1)

    def add_token(self, scopes: set[Scope]) -> str:
        secret = f"ff_{len(self.tokens):012d}_secret"
        self.tokens[secret] = TokenRecord(f"{len(self.tokens):012d}", "officer", frozenset(scopes), None)
        return secret

    # -- Store

    def ping(self) -> None:
        if self.down:
            raise LedgerError("ledger", "cannot be reached.")

    def head(self) -> int:
        self.ping()
        return len(self.rows)

    def _epsilon(self, done: int) -> float:
        return round(1.0 * math.sqrt(done / 64), 6)

    def populations(self, cursor: str | None, limit: int) -> Page[Population]:
        self.ping()
        if cursor not in (None, "1"):
            raise ProblemError(400, "bad-cursor", "this cursor is not one of ours.")
        return Page[Population](items=(self.population("aircraft"),) if cursor is None else (), next=None)

    def population(self, name: str) -> Population:
        self.ping()
        if name != "aircraft":
            raise ProblemError(404, "not-found", f"population {name!r}: there is none.", nearest="aircraft")
        done = self.progress.get(self.newest, 0)
        active = 0 < done < 64
        return Population(
            name="aircraft",
            state="open",
            unit="user",
            adjacency="zero_out",
            epsilon=2.0,
            delta=DELTA,
            spent=loss(self._epsilon(done)),
            reserved_epsilon=1 - self._epsilon(done),
            committed=loss(1.0 if active else self._epsilon(done)),
            remaining_epsilon=1.0,
            users=3237,
            runs=len(self.progress),
            active_run=self.newest if active else None,
            rounds_left=64 - done if active else None,
            projected_end=START + timedelta(hours=1) if active else None,
            created_at=START,
        )

    def _run(self, name: str) -> Run:
        done = self.progress[name]
        return Run(
            id=name,
            population="aircraft",
            state="running" if done < 64 else "done",
            request=None if self.requests.get(name) == "resume" else self.requests.get(name),
            task="flights",
            mechanism="nu",
            adjacency="zero_out",
            rounds=64,
            committed_rounds=done,
            planned=loss(1.0),
            spent=loss(self._epsilon(done)),
            score=0.6 + done / 800,
            score_name="AUC",
            started_at=START,
            updated_at=START + timedelta(seconds=30 * done),
            ended_at=None if done < 64 else START + timedelta(seconds=30 * done),
        )

    def runs(self, cursor: str | None, limit: int, population: str | None) -> Page[Run]:
        self.ping()
        start = offset(cursor)
        names = [n for n in reversed(self.progress) if population in (None, "aircraft")]
        every = list(map(self._run, names))
        more = str(start + limit) if start + limit < len(every) else None
        return Page[Run](items=tuple(every[start : start + limit]), next=more)

    def run(self, run_id: str) -> RunDetail:
        self.ping()
        if run_id not in self.progress:
            raise ProblemError(404, "not-found", f"run {run_id!r}: there is none.")
        return RunDetail(
            **self._run(run_id).model_dump(),
            plan={"run": {"task": "flights", "rounds": 64, "cohort": 202}},
            plan_digest="ab" * 32,
            guarantee=Guarantee(
                statement="With all its rounds committed, the run is (1, 1e-05)-DP for one user.",
                facts=(
                    Fact(name="Unit", value="user"),
                    Fact(name="Adjacency", value="zero_out: one user's updates replaced by zero"),
                    Fact(name="Mechanism", value="nu, 64 rounds"),
                    Fact(name="Participation", value="at least 16 rounds apart, at most 4 times"),
                    Fact(name="Clip norm", value="1"),
                    Fact(name="Noise multiplier", value="6.31"),
                ),
                not_covered=("Who was available, and how many reported, is public.",),
            ),
            rejects={"late": 7, "non-finite": 1},
            void_rounds=1,
            cohort=202,
            min_reports=150,
        )

    def rounds(self, run_id: str, cursor: str | None, limit: int) -> Page[Round]:
        done = self.run(run_id).committed_rounds
        start = offset(cursor)
        items = tuple(
            Round(
                index=t,
                attempt=0,
                state="committed",
                opened_at=START + timedelta(seconds=30 * t),
                closed_at=START + timedelta(seconds=30 * t + 20),
                cohort=202,
                reports=200 - t % 7,
                rejects={"late": t % 7},
                epsilon=self._epsilon(t + 1),
                checkpoint="cd" * 32,
                statistics={"score": 0.6 + t / 800, "noise_std": 0.03},
            )
            for t in range(done - 1 - start, max(-1, done - 1 - start - limit), -1)
        )
        return Page[Round](items=items, next=str(start + limit) if start + limit < done else None)

    def series(self, run_id: str, points: int) -> Series:
        run = self.run(run_id)
        rounds = list(self.rounds(run_id, None, 500).items)
        every = list(reversed(rounds))
        step = max(1, -(-len(every) // points))
        kept = [r for i, r in enumerate(every) if i % step == 0 or i == len(every) - 1]
        return Series(
            run=run_id,
            rounds=64,
            committed_rounds=run.committed_rounds,
            planned_epsilon=1.0,
            limit_epsilon=2.0,
            delta=DELTA,
            points=tuple(
                Point(
                    round=r.index,
                    at=r.closed_at or r.opened_at,
                    epsilon=r.epsilon,
                    cohort=r.cohort,
                    reports=r.reports,
                    statistics={k: float(v) for k, v in r.statistics.items()},
                )
                for r in kept
            ),
        )

    def participation(self, run_id: str) -> Histogram:
        self.run(run_id)
        return Histogram(run=run_id, users=(900, 1500, 700, 130, 7), allowed=4, separation=16)

    def audit(self, cursor: str | None, limit: int, run: str | None) -> Page[AuditRow]:
        self.ping()
        start = offset(cursor)
        rows = [r for r in self.rows if run in (None, r.run)]
        rows = rows[::-1]
        more = str(start + limit) if start + limit < len(rows) else None
        return Page[AuditRow](items=tuple(rows[start : start + limit]), next=more)

    def events(self, after: int, limit: int) -> Sequence[AuditRow]:
        self.ping()
        return self.rows[after : after + limit]

    def verify(self, restart: bool = False) -> Verification:
        self.ping()
        head = self.rows[-1].hash if self.rows else None
        message = "row 3 does not follow row 2" if self.broken else None
        return Verification(
            ok=not self.broken, complete=True, rows=len(self.rows), head=head, message=message, at=START
        )

    def totals(self) -> Totals:
        self.ping()
        return Totals({"committed": sum(self.progress.values())}, {"late": 7}, {"running": 1}, failed_self_tests=0)

    def statement(self, run_id: str) -> Statement:
        self.run(run_id)
        section = Section("Formal guarantee", (("Spent", "epsilon = 0.6"),), ("One | line",))
        return Statement(f"Statement of {run_id}", "Private.", True, (section,), {"run": run_id})

    def registry_entry(self, run_id: str) -> dict[str, Any]:
        self.run(run_id)
        return {"tier": 3}

    def request(self, run_id: str, what: Request, actor: str) -> str:
        if self.run(run_id).state == "done":
            raise ProblemError(409, "run-has-ended", f"run {run_id!r} has ended.")
        self.requests[run_id] = what
        self.add(f"run.{what}", run_id)
        return self.run(run_id).state

    def token(self, secret: str) -> TokenRecord | None:
        return self.tokens.get(secret)

    def record_token_use(self, token_id: str, name: str, what: str) -> None:
        self.used.append((token_id, what))

    def close(self) -> None:
        pass
