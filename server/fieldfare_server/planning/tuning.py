"""Tuning: trials on a share of the users, compared, and the winner handed to a plan for all others.

A trial is an ordinary run of an ordinary plan on the users of the population's tuning share; the question
that compares trials on users' own rows is an ordinary `choose`. Nothing here is released without the charge
of such a run.

*Price.* Where the final run with a trial's settings costs a user mu^2, that trial costs a user of the share
mu^2 / k, or mu^2 / (k + 1) with a question, which costs as much as the dearest of k trials. Prices add
(`fieldfare.accounting.filter`), and no user is in both parts: nobody pays more than the dearest mu^2 for all of
it. Charging everybody for k trials and a final run leaves mu^2 / (k + 1) to each.

*Sealed* trials (`Tuning.sealed`) are no runs: nobody ever sees one but the best, which is the final model, and
all users are charged for the search before it begins (`fieldfare.accounting.sealed`).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, JsonValue

from fieldfare.accounting.filter import RUN_SHARE, default_leak
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.gaussian import gaussian_epsilon
from fieldfare.accounting.sealed import largest_mu
from fieldfare.cost import Cost
from fieldfare.errors import Conflict, OutOfRange, Unknown, Unsupported, WrongForm
from fieldfare.participation import adjacency_factor
from fieldfare.plan import Plan
from fieldfare.plan_tables import RunSpec
from fieldfare.questions.choice import Choose
from fieldfare.text import decimal, up
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.questions import OF_POPULATION, Asked
from fieldfare_server.run.pricing import price_with_model
from fieldfare_server.run.signal import require_signal

# Trials are compared by the task's own score, on the public data that its author declares.
HELD_OUT = "held-out"
_RANGES: Mapping[str, tuple[float, float]] = {"correct": (0.0, 1.0)}
_PAYER = "it says whose budget pays, and how much."
_LEFT_ALONE = {"privacy": _PAYER, "tuning": _PAYER, "run.task": "tasks have other users, and other scores."}
MOST_TRIALS = 64
SEALED = "sealed, the best trial being the final model"
SHARE = 0.1


@dataclass(frozen=True)
class Tuning:
    """What is tried, on whom, and how trials are compared. Use `of`."""

    plan: Plan  # as it was given, with a `[tuning]` share
    settings: tuple[Mapping[str, JsonValue], ...]  # of each trial: keys of the plan, and their values
    # The measure that compares trials on users' own rows, and its bounds; None: the task's public score does.
    asks: tuple[str, float, float] | None = None
    finals: tuple[Plan, ...] = field(init=False)  # the plan for the others, with each trial's settings

    def __post_init__(self) -> None:
        object.__setattr__(self, "finals", tuple(_changed(self.plan, values) for values in self.settings))

    @classmethod
    def of(
        cls,
        plan: Plan,
        over: Mapping[str, Sequence[JsonValue]],
        *,
        share: float | None = None,
        score: str = HELD_OUT,
        sealed: bool = False,
    ) -> Tuning:
        """Return every combination of the values `over`, such as {"server_optimizer.learning_rate": [0.1, 0.3]}.

        Args:
            share: of the users; None: the plan's, or a tenth.
            score: "held-out", "correct", or a measure with its public bounds, such as "loss=0,4".
            sealed: whether trials are to be sealed.

        Raises:
            BadInput: no or too many trials, or two that are one plan, a key that no plan has or that trials may
                not change, values that are no list, an unknown score, or sealed trials on a share or by another
                score than the public one.
        """
        if sealed and (share is not None or plan.tuning is not None or score != HELD_OUT):
            why = "they train all users, and only a public score may choose among them."
            raise Conflict("sealed trials", why, "no share, no [tuning] table, and score = 'held-out'")
        if not sealed and (plan.tuning is None or share is not None):
            tuning = {"share": SHARE if share is None else share}
            plan = Plan.parse({**plan.model_dump(mode="json", exclude_none=True), "tuning": tuning})
        if not sealed and (plan.tuning is None or plan.tuning.users != "others"):
            raise Conflict("tuning.users = 'share'", "the plan that is tuned trains the others.", "users = 'others'")
        if not isinstance(over, Mapping):
            near = "{'server_optimizer.learning_rate': [0.3, 1.0]}"
            raise WrongForm(f"over = {over!r}"[:200], "names each key with its values.", near)
        for key, values in over.items():
            table, dot, _ = str(key).partition(".")
            if why := _LEFT_ALONE.get(key, _LEFT_ALONE.get(table, "")) if dot else "a key is TABLE.KEY.":
                raise Unknown(f"over {key}", why, "server_optimizer.learning_rate")
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise WrongForm(f"over {key} = {values!r}", "what is tried is a list of values.", f"[{values!r}, ...]")
        if not 2 <= (trials := math.prod(map(len, over.values()))) <= MOST_TRIALS:
            why = "there is nothing to choose from, or too much."
            raise OutOfRange(f"{trials} trials", why, f"2 to {MOST_TRIALS} of them")
        settings = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
        made = cls(plan, tuple(settings), _measure(score))
        tried = [final.model_copy(update={"run": made._run(final)}) for final in made.finals]
        for index, trial in enumerate(tried):
            if trial in tried[:index]:
                near = "each once" if made.finals[index] in made.finals[:index] else "cohorts that a share tells apart"
                raise Conflict(f"over {settings[index]}", "is tried twice, and paid twice.", near)
        return made

    @property
    def parts(self) -> int:
        """Into how many equal parts the budget of a user of the share is cut."""
        return len(self.settings) + (self.asks is not None)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What the final run costs with each trial's settings: with a fixed noise multiplier they may differ."""
        return tuple(map(price_with_model, self.finals))

    @property
    def dearest(self) -> float:
        """The most that a user pays for all of it, as mu^2."""
        return max(cost.loss.mu_squared for cost in self.costs)

    def trial(self, index: int) -> Plan:
        """Return the plan of one trial: on the share, with a cohort as small, and noise for its part of the budget."""
        final = self.finals[index]
        assert final.tuning is not None
        tuning = final.tuning.model_copy(update={"users": "share"})
        return _noised(final, self.costs[index], self.parts, run=self._run(final), tuning=tuning)[0]

    def _run(self, final: Plan) -> RunSpec:
        """Return the `[run]` of a trial: of a share of the users a cohort as small, so that two may become one."""
        share, run = 1.0 if final.tuning is None else final.tuning.share, final.run
        scaled = {
            name: max(1, math.floor(share * value))
            for name in ("cohort", "min_reports", "min_available")
            if (value := getattr(run, name)) is not None
        }
        return run.model_copy(update=scaled)

    def sealed(self) -> tuple[list[tuple[Plan, Cost]], Foreign]:
        """Return a sealed trial of each setting, with its cost, and the loss of the best of as many trials.

        All users take part, and the whole search costs each of them what the dearest setting's run would.

        Raises `BadInput` where trials cannot stay sealed, or the theorem of their price does not hold.
        """
        for plan, whole in zip(self.finals, self.costs, strict=True):
            _require_sealable(plan, whole)
        mu = _sealed_mu(math.sqrt(self.dearest), len(self.finals), self.plan.privacy.delta)
        trials = []
        for plan, whole in zip(self.finals, self.costs, strict=True):
            # Other processes would share memory by files, which stay where this one is killed.
            alone = plan.client.model_copy(update={"workers": 1})
            trials.append(_noised(plan, whole, max(1.0, whole.loss.mu / mu) ** 2, client=alone))
        said = {"trials": len(trials), "adjacency": self.plan.privacy.adjacency}
        return trials, Foreign.of({"mu": max(cost.loss.mu for _, cost in trials), **said})

    def question(self, runs: Sequence[str], users: int) -> Asked | None:
        """Return what compares the released models of `runs` on the share, of `users` users; None: public scores do."""
        if self.asks is None:
            return None
        measure, low, high = self.asks
        plan, tuning = self.plan, self.plan.tuning
        assert tuning is not None
        mu, privacy = math.sqrt(self.dearest / self.parts), plan.privacy
        sigma = adjacency_factor(privacy.adjacency) / mu * _ROUNDING
        return Asked.of(
            {
                "question": {"kind": "choose", "measure": measure, "models": runs, "low": low, "high": high},
                "run": {"task": plan.run.task, "name": "trials compared", "cohort": users},
                "task": plan.task,
                "privacy": {**privacy.model_dump(include=OF_POPULATION), "noise_multiplier": sigma},
                "tuning": {"share": tuning.share, "users": "share"},
            }
        )

    def admit(self, ledger: Reader, names: NDArray[np.uint64], begun: frozenset[int] = frozenset()) -> None:
        """Raise `BadInput` or `BudgetRefused` unless all that is left of it may run, one after another.

        Args:
            names: pseudonyms of all users, shape (n,).
            begun: trials that have ended, or hold their reservation.
        """
        population = ledger.population(self.plan.privacy.population)
        if population.accounting != "individual":
            why = "it charges all users alike, whoever takes part, so a share of them saves nothing."
            raise Unsupported(f"population {population.name!r}", why, "one of adjacency 'zero_out', with odometers")
        first: list[tuple[Plan, Cost]] = []
        plans = [self.trial(index) for index in range(len(self.settings)) if index not in begun]
        asked = self.question([f"trial-{index}" for index in range(len(self.settings))], self.size(names))
        for plan in plans if asked is None else [*plans, asked.plan_for_nodes()]:
            cost = price_with_model(plan)
            admit(plan, cost, ledger, names, first=first)
            first.append((plan, cost))
        # A trial that goes on holds its reservation of whoever may still come, and the others are among them:
        # they were admitted before it began.
        for final, cost in () if begun else zip(self.finals, self.costs, strict=True):
            admit(final, cost, ledger, names)
        for _, cost in () if begun else first[: len(plans)]:
            require_signal(cost)

    def size(self, names: NDArray[np.uint64]) -> int:
        """Return how many of these users, by pseudonym, tune; 1 of none, and admission then says that it lacks them."""
        return max(1, int((~self.plan.takes(names)).sum()))

    def offer(self) -> Ways:
        """Return what the ways of tuning would cost and leave, side by side. Charges nothing.

        Raises `BadInput` as `sealed`, where trials are to be.
        """
        parts, most, delta, tuning = self.parts, self.dearest, self.plan.privacy.delta, self.plan.tuning
        if tuning is None:
            self.sealed()
        share = SHARE if tuning is None else tuning.share

        def epsilon(mu_squared: float) -> float:
            return gaussian_epsilon(math.sqrt(mu_squared), delta)

        tried = sum(cost.loss.mu_squared for cost in self.costs) + (most if self.asks else 0.0)
        alike, before = math.sqrt(parts + 1), epsilon(tried / (parts + 1))
        mu, alone = _sealed_mu(math.sqrt(most), len(self.settings), delta), math.sqrt(parts) / share
        more, whole, shared = math.sqrt(most) / mu, epsilon(most), epsilon(tried / parts)
        ways = (
            TuningWay(f"on a share of {share:g}", 1 / (1 - share), alone, epsilon(most / parts), shared, 0.0),
            TuningWay("all users charged", alike, alike, epsilon(most / (parts + 1)), before, before),
            TuningWay(SEALED, more, more, epsilon(mu * mu), whole, whole),
        )
        measure = "public held-out score" if self.asks is None else f"charged question: {self.asks[0]}"
        return Ways(whole, delta, len(self.settings), measure, ways)


# What trials have more of noise, so that their prices, each rounded up, add up to no more than the final run's.
_ROUNDING = 1.0 + 1e-4


def _noised(plan: Plan, whole: Cost, parts: float, **tables: BaseModel) -> tuple[Plan, Cost]:
    """Return `plan` with other `tables`, noised to cost at most mu^2 of `whole` / `parts`; and its cost."""
    most, sigma = whole.loss.mu_squared / parts, whole.noise_multiplier * math.sqrt(parts) * _ROUNDING
    left = (1 - 1e-6) * gaussian_epsilon(math.sqrt(most), plan.privacy.delta)
    # What floats' resolution costs does not fall with the noise: a large model's trial leaves room for it, by epsilon.
    for epsilon, multiplier in ((None, sigma), (float(f"{left:.9g}"), None)):
        privacy = plan.privacy.model_copy(update={"epsilon": epsilon, "noise_multiplier": multiplier})
        changed = plan.model_copy(update={"privacy": privacy, **tables})
        made = Plan.parse(changed.model_dump(mode="json", exclude_none=True))
        cost = price_with_model(made)
        if cost.loss.mu_squared <= most:
            break
    return made, cost


def _sealed_mu(mu: float, trials: int, delta: float) -> float:
    """Return the mu of each of so many sealed trials whose best costs `mu`."""
    return largest_mu(mu, trials, RUN_SHARE * default_leak("zero_out", delta))


def _require_sealable(plan: Plan, cost: Cost) -> None:
    """Raise `BadInput` where a loser could be seen or made again, or a trial costs other than mu says."""
    if plan.presence_is_secret:
        why = "who is there is secret, and the time that trials take would tell."
        raise Unsupported("sealed trials under adjacency 'add_remove'", why, "adjacency = 'zero_out'")
    if plan.aggregation.rings:
        why = "nodes see the model of every round, and so the losers."
        raise Unsupported(
            "sealed trials with masked sums", why, "aggregation.kind = 'plain', all users in this process"
        )
    if plan.run.noise_seed is not None:
        raise Unsupported("sealed trials with run.noise_seed", "whoever knows it can make the losers again.", "no seed")
    if cost.loss.gdp is None or cost.leak:
        why = "what the best of them costs is proven for losses that mu describes."
        raise Unsupported("sealed trials of this noise or sampler", why, "rounding = 'grid', and no sampler")


@dataclass(frozen=True)
class TuningWay:
    """One way of tuning, at the same epsilon for every user."""

    name: str
    noise: float  # of the final model's mean, in units of one run of the whole budget on all users
    trial_noise: float
    dearest_trial: float  # epsilon of one trial alone, with the settings that cost most
    tuning_users_pay: float  # epsilon of all trials together, for a user of the share
    others_pay: float  # the same for all others, before the final run


@dataclass(frozen=True)
class Ways:
    """The ways of tuning side by side. Every user pays at most `epsilon` at `delta` for all of it."""

    epsilon: float
    delta: float
    trials: int
    compared_by: str
    ways: tuple[TuningWay, ...]

    def __str__(self) -> str:
        rows = [
            f"  {way.name}: noise of the final model {way.noise:.3g} times that of one run on all users, of a trial "
            f"{way.trial_noise:.3g} times; the dearest trial alone epsilon {up(way.dearest_trial):g}, all of them cost "
            f"a user of the share {up(way.tuning_users_pay):g}, another {up(way.others_pay):g}"
            for way in self.ways
        ]
        head = (
            f"{self.trials} trials and a final run, at most epsilon {up(self.epsilon):g} at delta {decimal(self.delta)}"
            f" for each user in all; compared by: {self.compared_by}. Trials have more noise, and favour smaller steps"
        )
        return "\n".join([head, *rows])


@dataclass(frozen=True)
class Tried:
    """One trial, ended."""

    values: Mapping[str, JsonValue]
    run: str
    epsilon: float  # what it spent, alone
    score: float | None
    low: float | None = None
    # Of a charged score: the interval that holds it without noise with probability 95 %.
    high: float | None = None


@dataclass(frozen=True)
class Tuned:
    """Trials that have ended, the best first, and the plan for the others."""

    plan: Plan
    trials: tuple[Tried, ...]
    score_name: str
    # On whose data trials were compared, and why that costs nothing, or by which run it was charged.
    declared: str
    ledger: str  # where they were charged: a state directory
    model: str | None = None  # of the best of sealed trials: its file
    kept: object = None  # what keeps a temporary ledger

    def __str__(self) -> str:
        def words(tried: Tried) -> str:
            values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in tried.values.items())
            band = f" ({tried.low:.6g} to {tried.high:.6g})" if tried.low is not None and tried.high is not None else ""
            score = "none" if tried.score is None else f"{tried.score:.6g}"
            return f"  {values}: {self.score_name} {score}{band}, run {tried.run}, epsilon {up(tried.epsilon):g}"

        return "\n".join([*map(words, self.trials), f"Compared on: {self.declared}"])


def behind(score: float | None, least_is_best: bool) -> float:
    """Return what trials are sorted by: a score that is missing, or no number, is the worst."""
    return math.inf if score is None or math.isnan(score) else score if least_is_best else -score


def _changed(plan: Plan, values: Mapping[str, JsonValue]) -> Plan:
    tables = plan.model_dump(mode="json", exclude_none=True)
    for path, value in values.items():
        table, _, key = path.partition(".")
        tables[table] = {**tables.get(table, {}), key: value}
    return Plan.parse(tables)


def _measure(score: str) -> tuple[str, float, float] | None:
    if score == HELD_OUT:
        return None
    name, _, bounds = score.partition("=")
    try:
        low, high = map(float, bounds.split(",")) if bounds else _RANGES[name]
        Choose(measure=name, models=("a", "b"), low=low, high=high)
    except (KeyError, ValueError):
        near = f"{HELD_OUT}, correct, or loss=0,4"
        raise Unknown(f"score = {score!r}", "is not a score, or has no public bounds.", near) from None
    return name, low, high
