"""What is shown of a population: what it may spend and has spent, charges by others, history, and what-ifs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from fieldfare.accounting.foreign import Foreign
from fieldfare.names import LONGEST_NAME, NAME
from fieldfare.population_size import population_size_warnings
from fieldfare_server.api.outlook import MOST_RUNS, Outlook
from fieldfare_server.api.schemas import LOSS, PLANNED, LossAnswer
from fieldfare_server.evidence.words import budget_in_words, identified, odds_factor
from fieldfare_server.ledger import views
from fieldfare_server.ledger.views import Time, View, like
from fieldfare_server.planning.bound import Bound, Expected

if TYPE_CHECKING:
    from fieldfare_server.planning.what_if import WhatIfCost as Price


class Population(views.PopulationBudget, Outlook):
    """The users that share one budget, and the state of that budget."""

    model_config = like(
        name="aircraft",
        state="open",
        unit="user",
        adjacency="zero_out",
        epsilon=2.0,
        delta=1e-5,
        spent=LOSS,
        reserved_epsilon=0.39,
        committed=PLANNED,
        remaining_epsilon=1.68,
        remaining_users=None,
        remaining_epsilon_of_all=1.68,
        leak=0.0,
        overdrawn=False,
        users=3237,
        warnings=[],
        runs=1,
        active_run="7f3a90c1d2e4",
        rounds_left=40,
        projected_end="2026-01-01T12:40:00Z",
        level="open",
        last_run="7f3a90c1d2e4",
        last_run_fits=True,
        in_words="Whatever is known already, ...",
        created_at="2026-01-01T12:00:00Z",
    )

    together: views.Together | None = Field(
        default=None,
        description="the guarantee of a user who is also in all other populations of the ledger with which its users "
        "cannot be compared, because presence is secret; null: there is none, or the token may not see them",
    )
    spent: LossAnswer = Field(description="a gauge of what committed rounds used of the limit; not a guarantee")
    committed: LossAnswer = Field(description="the same with what the runs under way have reserved")
    warnings: tuple[str, ...] = Field(default=(), description="a delta that is not far below 1 / users")
    runs: int = Field(description="runs so far")
    active_run: str | None = Field(default=None, description="of those under way the one that was started last")
    rounds_left: int | None = Field(default=None, description="rounds the running plan may still commit")
    projected_end: Time | None = Field(
        default=None, description="when those rounds end at the recent pace; null while the run stands still"
    )
    last_run: str | None = Field(default=None, description="the last run that trained, else the last question")
    in_words: str = Field(
        default="", description="what the guarantee (bound_epsilon, bound_delta) lets anybody conclude about one user"
    )

    @property
    def more_runs(self) -> str:
        """`runs_left` for people: a count that is no more than it seems."""
        if self.runs_left is None:
            return "no run yet"
        if self.runs_left >= MOST_RUNS:
            return f"{MOST_RUNS} or more"
        return (
            f"at least {self.runs_left}" if self.accounting == "individual" and self.runs_left else str(self.runs_left)
        )

    @classmethod
    def of(cls, view: views.PopulationView, outlook: Outlook, together: views.Together | None) -> Self:
        """Return a population of the ledger. `projected_end`, which depends on the time, is not set."""
        own = {
            "together": together,
            "spent": LossAnswer.gauge(view.spent, view.spent_epsilon, view.delta),
            "committed": LossAnswer.gauge(view.committed, view.committed_epsilon, view.delta),
            "warnings": tuple(population_size_warnings(view.delta, view.users)),
            "runs": view.runs_total,
            "active_run": view.active_run.id if view.active_run else None,
            "rounds_left": view.rounds_left if view.runs_active else None,
            "last_run": view.newest_run.id if view.newest_run else None,
            "in_words": budget_in_words(view.bound_epsilon, view.bound_delta, view.leak),
        }
        return cls.model_validate(vars(view) | own | vars(outlook), from_attributes=True)


class NewCharge(BaseModel):
    """What another trainer asks of a population's budget, for all of its users: which of them took part is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(min_length=1, max_length=100, description="idempotency key: repeating a request changes nothing")
    loss: Foreign | None = Field(default=None, description="needed to reserve; refused otherwise")
    action: Literal["reserve", "commit", "release"] = Field(default="reserve", description="what to do with it")
    what: str = Field(default="", max_length=200, description="what is trained; needed to reserve")
    why: str = Field(default="", max_length=2000, description="needed to reserve")


class Charge(views.ChargeTerms):
    """A charge of another trainer."""

    model_config = like(
        population="aircraft",
        key="ranker-7",
        state="reserved",
        who="trainer",
        what="ranker",
        why="weekly training",
        loss={"mu": 0.3},
        mu=0.3,
        leak=0.0,
        reserved_at="2026-01-01T12:00:00Z",
        closed_at=None,
    )

    mu: float = Field(description="what it takes from the budget, as mu of Gaussian DP")
    leak: float = Field(description="and of the part of delta that is set aside")

    @classmethod
    def of(cls, view: views.ChargeView) -> Self:
        """Return a charge of the ledger."""
        return cls.model_validate(vars(view) | {"mu": view.price.mu, "leak": view.price.leak})


class PopulationHistogram(View):
    """Users by number of rounds of all runs: `users[i]` users took part `i` times. Empty where presence is secret."""

    model_config = like(population="aircraft", users=[900, 1500, 700], counted=True)

    population: str = Field(description="the population")
    users: tuple[int, ...] = Field(description="users[0]: known users who took part in no round")
    counted: bool = Field(description="false: there are too many rounds to count here, and users is empty")


class WhatIf(View):
    """A run's plan with some values changed: what would it cost?"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str | None = Field(default=None, max_length=LONGEST_NAME, pattern=NAME, description="default: the newest run")
    rounds: int | None = Field(default=None, ge=1, le=20_000)
    cohort: int | None = Field(default=None, ge=1, le=10_000_000)
    mechanism: str | None = Field(default=None, max_length=40, pattern=NAME, description="a kind, with its defaults")
    clip: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False, description="the clip norm")
    epsilon: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)


class WhatIfAnswer(View):
    """What the changed plan costs. Priced from the plan alone: no data are touched and nothing is reserved."""

    model_config = like(
        run="7f3a90c1d2e4",
        mechanism="blt",
        rounds=128,
        cohort=404,
        clip=0.5,
        epsilon=1.0,
        delta=1e-5,
        noise_multiplier=6.1,
        noise_std=0.0076,
        prefix_noise=0.031,
        odds=2.7183,
        identified=0.0251,
        fits=True,
        margin=1.4,
        users=3243,
        users_who_can_pay=3100,
        expected=None,
        bound="as charged",
        why=None,
        nearest=None,
    )

    run: str = Field(description="whose plan was changed")
    mechanism: str = Field(description="of the changed plan")
    rounds: int = Field(description="of the changed plan")
    cohort: int = Field(description="users a round")
    clip: float = Field(description="the clip norm")
    epsilon: float = Field(description="what it costs, taken alone")
    delta: float = Field(description="the plan's")
    epsilon_server: float | None = Field(
        default=None, description="what all its rounds show the server alone; null: it reads what it sums"
    )
    noise_multiplier: float = Field(description="std of the noise over the clip norm")
    noise_std: float = Field(description="of a coordinate of one round's mean update")
    prefix_noise: float = Field(description="RMS over rounds of the noise in the sum of all mean updates so far")
    odds: float | None = Field(
        default=None, description="times which, plus delta, one user's data make at most of any probability; null: none"
    )
    identified: float = Field(
        default=1.0,
        description="the most users, as a share, whom an attacker identifies in them who wrongly accuses 1 of 100",
    )
    fits: bool = Field(description="whether the population would admit it now, and its users can fill its rounds")
    margin: float | None = Field(
        default=None, description="how many such runs what is left would pay for; null: any number, or it does not fit"
    )
    users: int | None = Field(default=None, description="for how many users it fits; null: for all alike")
    users_who_can_pay: int | None = Field(
        default=None, description="of these, who can pay all that it may cost one user"
    )
    expected: Expected | None = Field(
        default=None,
        description="the score that it may be expected to reach; null: no two ended runs of the same plan have its "
        "epsilon between theirs",
    )
    bound: Bound = Field(
        default="as charged",
        description="what the figures are: a run's own, or, where a Monte Carlo certifies the charge, more than a "
        "run's: a certificate drawn from fewer samples, or the charge without amplification where a certificate takes "
        "too long for a request. "
        "Then a run may fit where `fits` is false",
    )
    why: str | None = Field(default=None, description="why it does not fit, or what was not judged of a plan that fits")
    nearest: str | None = Field(default=None, description="the nearest run that would")

    @classmethod
    def of(cls, run: str, price: Price, expected: Expected | None) -> Self:
        """What the plan of `run` costs with its changes, and what score may be expected of it."""
        plan = price.cost.plan
        own = {"run": run, "mechanism": plan.mechanism.kind, "rounds": plan.run.rounds, "cohort": plan.run.cohort}
        own |= {"clip": plan.clipping.norm, "delta": plan.privacy.delta, "epsilon": price.cost.epsilon}
        own |= {name: getattr(price, name) for name in ("noise_std", "prefix_noise", "fits", "bound")}
        shown = price.cost.against_server
        own |= {"epsilon_server": shown and shown.epsilon(plan.privacy.delta)}
        own |= {"noise_multiplier": price.cost.noise_multiplier, "odds": odds_factor(price.cost.epsilon)}
        own |= {"identified": identified(price.cost.epsilon, plan.privacy.delta, price.cost.loss.gdp)}
        if price.admission is not None:
            own |= {"users": price.admission.users, "users_who_can_pay": price.admission.whole}
            own |= {"margin": price.admission.margin if math.isfinite(price.admission.margin) else None}
        own |= {"why": price.refusal or None, "nearest": price.nearest or None, "expected": expected}
        return cls.model_validate(own, from_attributes=True)
