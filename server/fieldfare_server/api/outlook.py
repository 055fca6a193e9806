"""How near a population is to its limit, and what still fits: how many runs like the last one, for whom,
until when.

Counted so that no run is promised that would be refused: as if each run took all that it may from every user,
and of the leak what the last one took.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal

from pydantic import Field

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, leak_of_run, reserve
from fieldfare.accounting.individual import Demand
from fieldfare.errors import BudgetRefused
from fieldfare.participation import hides_presence
from fieldfare_server.ledger import views, watch
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.state import budget
from fieldfare_server.ledger.state.admission import Admission, Position, admit
from fieldfare_server.ledger.state.windows import Every, Window
from fieldfare_server.ledger.views import Time, View, like, utc

Level = Literal["open", "low", "exhausted"]

# A budget is low once this share is committed, and exhausted where the largest run that fits has less than
# this share of epsilon.
LOW, EXHAUSTED = 0.8, 0.01
# A run whose last round ended this many rounds' times ago has no projected end.
STANDS_STILL = 5.0
# More runs than these are not counted.
MOST_RUNS: Final = 1000


class WindowAnswer(View):
    """What may begin in one calendar window, beside the budget: runs that start, and charges that are reserved."""

    model_config = like(
        epsilon=1.0,
        every="week",
        begun_epsilon=0.61,
        remaining_epsilon=0.72,
        renews_at="2026-01-05T00:00:00Z",
        runs_left=1,
    )

    epsilon: float = Field(description="what may begin in one window, at the population's delta")
    every: Every = Field(description="its length, in UTC; weeks begin on Mondays")
    begun_epsilon: float = Field(description="what began in the window of now: a gauge")
    remaining_epsilon: float = Field(description="epsilon, taken alone, of the largest run that may still begin in it")
    renews_at: Time = Field(description="when the next one begins")
    runs_left: int | None = Field(description="runs like the last one that may still begin in it; null: no run yet")


class Outlook(View):
    """How it goes on with a population."""

    committed_share: float = Field(default=0.0, description="committed epsilon over the limit: how near it is")
    level: Level = Field(default="open", description="low: 80 % is committed; exhausted: no useful run fits any more")
    last_run_fits: bool | None = Field(default=None, description="whether one more run like the last one would fit")
    runs_left: int | None = Field(
        default=None,
        description=f"how many runs like the last one still fit, one after the other, at least: as if each took all "
        f"that it may from every user; {MOST_RUNS} stands for that many or more; null: no run yet",
    )
    runs_left_users: int | None = Field(
        default=None,
        description="how many of the users seen so far have enough left for all of one more such run; null: no run "
        "yet, or the number of users is secret",
    )
    lasts_until: Time | None = Field(
        default=None,
        description="when the first such run would start that no longer fits, at the mean pace of the runs so far; "
        "null: fewer than two runs, or no end in sight",
    )
    window: WindowAnswer | None = Field(
        default=None, description="what may begin in the calendar window of now; null: there are no windows"
    )


def outlook(
    snapshot: Reader, view: views.PopulationView, demand_of: Callable[[Reader, views.RunInBrief], Demand]
) -> Outlook:
    """Return how it goes on with `view`. demand_of: what a run's plan asks of single users."""
    share = view.committed_epsilon / view.epsilon
    level: Level = "low" if share >= LOW else "open"
    # Nothing fits a closed population, whatever it has left.
    if view.overdrawn or (view.state == "open" and view.remaining_epsilon < EXHAUSTED * view.epsilon):
        level = "exhausted"
    run, position = view.newest_run, snapshot.position(view.name)[0]
    window = position.window
    told = partial(Outlook, committed_share=share, level=level)
    if run is None:
        return told(window=_paced(window, None))
    hidden = hides_presence(view.adjacency)
    none = partial(told, last_run_fits=False, runs_left=0, runs_left_users=None if hidden else 0)
    if view.state != "open":
        return none(window=_paced(window, 0))
    # The noise of the same plan leaks the same again. A sampled run may take less of D than the last one took.
    leak = run.leak if leak_of_run(run.planned, 1.0) is None else None
    demand = demand_of(snapshot, run) if run.accounting == "individual" else None
    price = budget.quote(run.planned, position.alike, position.terms, leak)
    # What the budget holds for good, and what of it may begin in the window of now.
    lasting = replace(position, window=None)
    found = _admitted(lasting, run.planned, price, demand)
    if found is None:
        return none(lasts_until=_until(snapshot, view, 0), window=_paced(window, 0))
    each = reserve(run.planned, run.leak)

    def runs_from(start: Position) -> int:
        def too_many(runs: int) -> bool:
            after = _admitted(start.after(each, demand, runs - 1), run.planned, each, demand)
            return after is None or after.waits

        return max(1, bisect_left(range(1, MOST_RUNS + 1), True, key=too_many))

    runs = runs_from(lasting)
    now = None if window is None else _admitted(position, run.planned, price, demand)
    soon = 0 if now is None else runs_from(position)
    users = (view.users or 0) if found.whole is None else found.whole
    return told(
        last_run_fits=window is None or now is not None,
        runs_left=runs,
        runs_left_users=None if hidden else users,
        lasts_until=_until(snapshot, view, runs),
        window=_paced(window, soon),
    )


def _paced(window: Window | None, runs: int | None) -> WindowAnswer | None:
    if window is None:
        return None
    return WindowAnswer(
        epsilon=window.terms.epsilon,
        every=window.every,
        begun_epsilon=window.gauge,
        remaining_epsilon=window.left,
        renews_at=utc(window.renews),
        runs_left=runs,
    )


def _admitted(position: Position, planned: PrivacyLoss, price: Price, demand: Demand | None) -> Admission | None:
    try:
        return admit(position, planned, price, demand)
    except BudgetRefused:
        return None


def _until(snapshot: Reader, view: views.PopulationView, runs: int) -> datetime | None:
    runs_so_far = snapshot.priced_runs(view.name)
    starts = [run.started_at for run in runs_so_far if not run.asks] or [run.started_at for run in runs_so_far]
    if len(starts) < 2 or runs >= MOST_RUNS:
        return None
    return utc(starts[-1] + (runs + 1) * (starts[-1] - starts[0]) / (len(starts) - 1))


def projected_end(snapshot: Reader, run: views.RunInBrief) -> datetime | None:
    """Estimate when the run under way ends at its recent pace; None for a run that stands still."""
    now = time.time()
    activity = watch.activity(snapshot, run.seq, now)
    if not activity.seconds_per_round or activity.last_closed_at is None or activity.state != "running":
        return None
    if now - activity.last_closed_at > STANDS_STILL * max(activity.seconds_per_round, 1.0):
        return None
    return utc(activity.last_closed_at) + timedelta(seconds=activity.seconds_per_round * run.rounds_left)
