"""A question put to made-up nodes, lying ones too."""

from __future__ import annotations

from typing import Any

from fieldfare_server.files.home import StateDirectory
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid


def put(state: StateDirectory, question: Asked, grid: LyingGrid, sums: list[Any] | None = None) -> str:
    """The run that asked `question`. sums: gets each sum that replies are added to."""
    with Session.begin(state, question.plan_for_nodes(), identity_is_stable=True) as session:
        empty = session.rounds.sums.empty

        def watched(*arguments: Any) -> Any:
            total = empty(*arguments)
            if sums is not None:
                sums.append(total)
            return total

        session.rounds.sums.empty = watched  # type: ignore[method-assign, union-attr]
        FieldfareStrategy(session).start(grid)
        return session.account.id
