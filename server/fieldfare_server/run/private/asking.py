"""A question to the nodes of a Flower app of one's own: a run of one round, charged before its answer is
read.

In the plain dialect a user is a node: its untouched `@app.query` replies a MetricRecord, of which the entries
that the question names are read, cut to public bounds, and summed with noise. In the cohort dialect a node
answers for each of its users by `@ff.private.measure`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fieldfare.plan import Plan
from fieldfare.questions import Question, parse
from fieldfare.schema import Schema
from fieldfare_flower.messages import as_float, records_of
from fieldfare_flower.npy import BadReply
from fieldfare_flower.server_errors import outlast_server_errors
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.run.presence.availability import require_simulated
from fieldfare_server.run.presence.identity import KeyRoster
from fieldfare_server.run.presence.roster import Roster
from fieldfare_server.run.private.shown_rounds import shown_by_flower
from fieldfare_server.run.private.strategy import PrivateStrategy, There, require_keys
from fieldfare_server.run.round.aggregation import Contribution, Reader
from fieldfare_server.run.round.dialects import CohortDialect, Dialect, PublicRound, Register, addressed
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.strategy import FieldfareStrategy

QUERY = "query"


class QueryDialect:
    """Flower's own queries: one user a node, and an `@app.query` that stays as it is.

    Args:
        action: of `@app.query(action)`; empty: the one without.
        content: what the query carries, public; None: nothing.
        simulated: nodes of Flower's simulation, whose identities last one run.
    """

    name, tells = "plain", False

    def __init__(self, question: Question, action: str, content: RecordDict | None, *, simulated: bool) -> None:
        self._question, self._simulated = question, simulated
        self._kind, self._content = f"{QUERY}.{action}" if action else QUERY, content or RecordDict()

    def roster(self, schema: Schema, run_id: str, register_users: Register) -> Roster:
        return KeyRoster(schema, run_id, register_users, simulated=self._simulated)

    def write(
        self, round: PublicRound, schema: Schema, by_node: Mapping[int, NDArray[np.uint64]]
    ) -> tuple[list[Message], Reader | None]:
        messages = [addressed(round, RecordDict(dict(self._content)), node, self._kind) for node in by_node]
        return messages, functools.partial(read_answer, self._question)


def read_answer(question: Question, content: RecordDict, sent: int) -> Contribution:
    """Return what one user contributes, from the reply of any `@app.query`. Raises `BadReply` without a MetricRecord.

    An entry that is missing, told twice, or of another form than asked for is no value, which nobody counts.
    """
    records = list(records_of(content, MetricRecord).values())
    if not records:
        raise BadReply("schema", "no MetricRecord")
    told: dict[str, list[float]] = {}
    for name in question.named:
        found = [record[name] for record in records if name in record]
        if len(found) == 1:
            numbers = found[0] if isinstance(found[0], list) else [found[0]]
            told[name] = [as_float(each) for each in numbers]
    own = question.contributions(question.of_one(told))[0]
    return Contribution(1, (), lambda position: iter([own.copy()]), clipped_by_node=False)


class Asking(PrivateStrategy):
    """Asks the nodes of a grid one question. Who they are, and whose budget it is, is as for any
    `PrivateStrategy`.

    Args:
        plan_of: from how many users are asked to the plan.
        query, content: as `QueryDialect`'s.
        dialect, budget, accept_delta: as `PrivateStrategy`'s.
    """

    def __init__(
        self,
        plan_of: Callable[[int], Plan],
        home: StateDirectory,
        *,
        budget: float | None,
        dialect: str,
        accept_delta: bool,
        query: str = "",
        content: RecordDict | None = None,
    ) -> None:
        self._plan_of, self._query = plan_of, (query, content)
        super().__init__(budget=budget, dialect=dialect, home=home.root, accept_delta=accept_delta)  # type: ignore[arg-type]
        self._home = home

    def _make_plan(self, rounds: int | None, timeout: float | None, nodes: int | None, default: int = 1) -> Plan:
        return self._plan_of(nodes or 1)

    def _make_dialect(self, model: OwnModel | None, config: ConfigRecord, there: There, plan: Plan) -> Dialect:
        if self.dialect == "cohort":
            return CohortDialect(None, plan.task)
        question = parse(plan.task["question"])  # type: ignore[arg-type]
        return QueryDialect(question, *self._query, simulated=there.kind == "simulated")

    def ask(self, grid: Grid) -> str:
        """Ask, and return the run whose answer is in the ledger. Raises as `PrivateStrategy.start`."""
        outlast_server_errors(grid)
        with shown_by_flower():
            there = self._look(grid, None)
            plan = self._make_plan(None, None, len(there.nodes))
            require_simulated(plan, grid)
            if self.dialect == "plain":
                require_keys(there)
            with self._open_session(plan, None, ConfigRecord(), there, grid) as session:
                FieldfareStrategy(session).start(grid)
                return session.account.id
