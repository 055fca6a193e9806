"""Which rounds, cohort, clip norm, mechanism and sampler give a plan the least noise at the same epsilon and delta.

Every way keeps the plan's population, epsilon, delta and adjacency, and is measured by `signal.noise_share`.
A way is priced as `fieldfare plan` prices it (`run.pricing.price`). The exception are samplers that a Monte
Carlo certifies: they are ranked by an estimate (`certification.least_noise`), and the one that is suggested
is priced before that. Nothing is suggested that has more noise than the plan as it is. Nothing is charged or
run, and no data are touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfare.accounting import certification, sampled_optimum
from fieldfare.errors import Conflict, Refused, TooLarge
from fieldfare.mechanisms import build
from fieldfare.participation import BMinSep, MinSeparation, Single
from fieldfare.plan import Plan
from fieldfare.population_size import judge_rate
from fieldfare_server.planning.feasibility import fitted_to, require_feasible, shorter_plan, spread
from fieldfare_server.planning.what_if import changed
from fieldfare_server.run.pricing import price
from fieldfare_server.run.signal import clipped_length, noise_share

MOST_ROUNDS = 2048  # of a plan to compare: a grid of longer ones takes minutes
WORK = 4.0  # times the plan's own visits that a suggestion may ask for
ROUNDS = (0.5, 1.0, 2.0)
COHORTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BANDS = (2, 4, 8, 16)
MOST_BANDS = 64
DENSE = 256  # most rounds for which a dense strategy is sought: a second
# Share of the noise that a shape's mechanism may have above the least, for buffers of model size that it saves.
NEAR = 0.03
# Share of the noise that a change must save: less is within what searches and estimates err by.
LEAST_GAIN = 0.01

Table = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to run the plan."""

    plan: Plan
    share: float  # `signal.noise_share`
    prefix_noise: float  # root-mean-square noise in a prefix sum, clip norm 1
    noise_multiplier: float
    buffers: int  # vectors of the model's size that its noise keeps
    # Whether a run is charged by its own certificate, so that this is an estimate within about a percent.
    estimated: bool = False

    @property
    def visits(self) -> int:
        """Users trained over all rounds."""
        return self.plan.run.rounds * self.plan.run.cohort

    @property
    def mechanism(self) -> str:
        """Its kind, with its bands."""
        bands = getattr(self.plan.mechanism, "bands", None)
        return f"{self.plan.mechanism.kind}, {bands} bands" if bands else self.plan.mechanism.kind

    @property
    def asked(self) -> str:
        """The scheme of participation with its numbers."""
        table = self.plan.participation.model_dump(exclude_none=True)
        numbers = (f"{key} {value:.4g}" for key, value in table.items() if not isinstance(value, bool | str))
        return ", ".join([table["scheme"], *numbers])

    def to_json(self) -> dict[str, object]:
        """Return the fields for `--json`."""
        run = self.plan.run
        table: Table = {"rounds": run.rounds, "cohort": run.cohort, "clip_norm": self.plan.clipping.norm}
        table |= {"mechanism": self.mechanism, "participation": self.asked, "noise_multiplier": self.noise_multiplier}
        return table | {"prefix_noise": self.prefix_noise, "noise_share": self.share, "estimated": self.estimated}


@dataclass(frozen=True)
class Suggested:
    """The plan as it is, the best way to run it, and the best for each number of rounds and users a round."""

    planned: Way
    best: Way  # `planned` itself where nothing priced is better
    ways: tuple[Way, ...]
    assumed: tuple[str, ...]
    fitted: float | None = None
    """Where the users cannot fill the plan's rounds, so that `planned` asks them more often, or fewer: its noise share
    over that of the plan with enough users."""

    @property
    def because(self) -> list[str]:
        """What changed and what it brings, a line each."""
        old, new = self.planned.plan, self.best.plan
        cut = ["These users cannot fill the plan's rounds; the plan below is fitted to them."] if self.fitted else []
        if self.fitted:
            cut.append(f"With so few, privacy costs more: noise weighs {self.fitted:.3g} times as much as with enough.")
        if new is old:
            return [*cut, f"Keep the plan: none of {len(self.ways)} shapes has less noise by {LEAST_GAIN:.0%}."]
        lines = [
            *cut,
            f"Noise against what users can teach: {self.planned.share:.4g} -> {self.best.share:.4g} of a coordinate, "
            f"{self.planned.share / self.best.share:.3g} times less, at the same epsilon and delta.",
        ]
        if self.best.mechanism != self.planned.mechanism:
            lines.append(f"mechanism: {self.planned.mechanism} -> {self.best.mechanism}")
        if self.best.asked != self.planned.asked:
            lines.append(f"participation: {self.planned.asked} -> {self.best.asked}")
        if self.best.visits != self.planned.visits or new.run.rounds != old.run.rounds:
            lines.append(
                f"rounds x cohort: {old.run.rounds} x {old.run.cohort} -> {new.run.rounds} x {new.run.cohort}, "
                f"{self.best.visits / self.planned.visits:.3g} times the training: more users share one round's noise"
            )
        if new.clipping.norm != old.clipping.norm:
            lines.append(
                f"clip norm: {old.clipping.norm:.4g} -> {new.clipping.norm:.4g}, a typical update; noise grows with it"
            )
        return lines


def suggest(
    plan: Plan,
    *,
    users: int | None = None,
    update_norm: float | None = None,
    work: float = WORK,
    fewest_rounds: int | None = None,
    certified: bool = False,
) -> Suggested:
    """Price a grid of ways to run `plan`, and pick the one with the least noise.

    Args:
        users: a public number of users whom the plan may ask; None: as many as the plan's own promise needs.
        update_norm: of a typical update, public or charged; None: the clip norm stays as it is.
        work: times the plan's visits that are affordable.
        fewest_rounds: that training needs; None: the plan's.
        certified: also, in the plan's own shape, samplers that a Monte Carlo certifies: a minute.

    Raises:
        BadInput: the plan names no epsilon, has too many rounds, or cannot be met or filled by these users.
    """
    if plan.privacy.epsilon is None:
        raise Conflict("privacy.noise_multiplier", "fixes the noise, so there is nothing to compare.", "epsilon")
    if plan.run.rounds > MOST_ROUNDS:
        words, _ = shorter_plan(plan, MOST_ROUNDS) or (f"a plan of at most {MOST_ROUNDS} rounds", plan)
        raise TooLarge(f"run.rounds = {plan.run.rounds}", "a grid of so many takes too long.", words)
    fitted = plan if users is None else fitted_to(plan, users)
    if users is not None:
        require_feasible(fitted, users)
    needed = fewest_rounds or plan.run.rounds
    planned, ways = _priced(fitted, update_norm), list[Way]()
    cut = None if fitted is plan else planned.share / _priced(plan, update_norm).share
    plan, there = fitted, users or _needed_users(fitted)
    for table in _tables(plan, there, update_norm, work, certified):
        try:
            if not judge_rate(tried := Plan.parse(table), there):  # else they are too few for its cohort
                ways.append(_estimated(tried, update_norm))
        except Refused:
            continue  # a way that this plan cannot take: more bands than rounds, or an epsilon out of its reach
    ways, best = _best_of_each_shape(ways), planned
    for way in (way for way in ways if way.plan.run.rounds >= needed):
        if way.share > (1 - LEAST_GAIN) * planned.share:
            break
        # Priced as `plan` prices it, before it is shown: an estimate may have been too low.
        found = _priced(way.plan, update_norm) if way.estimated else way
        if found.share <= (1 - LEAST_GAIN) * planned.share:
            best = found
            break
    return Suggested(planned, best, tuple(ways), tuple(_assumed(plan, users, update_norm, work, needed)), cut)


def _best_of_each_shape(ways: list[Way]) -> list[Way]:
    """Return each shape's way with the fewest buffers of those whose noise is near its least, the least noise first."""
    shapes: dict[tuple[int, int], list[Way]] = {}
    for way in ways:
        shapes.setdefault((way.plan.run.rounds, way.plan.run.cohort), []).append(way)
    chosen = []
    for same in shapes.values():
        least = min(way.share for way in same)
        chosen.append(min((way for way in same if way.share <= (1 + NEAR) * least), key=lambda way: way.buffers))
    return sorted(chosen, key=lambda way: way.share)


def _assumed(plan: Plan, users: int | None, norm: float | None, work: float, needed: int) -> Iterator[str]:
    yield (
        f"{users} users" if users else f"as many users as the plan's own promise needs ({_needed_users(plan)})"
    ) + ", all of whom come when they are asked"
    yield (
        f"updates have norm {norm:g} where they are not clipped, of public data or charged for"
        if norm
        else "updates are longer than the clip norm, which stays (fieldfare ask --clip-of asks, charged)"
    )
    yield f"training needs {needed} rounds (--fewest-rounds)"
    yield f"{work:g} times the plan's visits are affordable (--work)"
    yield "the server's learning rate goes as far over the whole run as the plan's does"


def _priced(plan: Plan, norm: float | None) -> Way:
    cost = price(plan)
    return Way(plan, noise_share(cost, norm), cost.prefix_noise_rms, cost.noise_multiplier, cost.mechanism.buffers)


def _estimated(plan: Plan, norm: float | None) -> Way:
    """Return `_priced`, without drawing a certificate."""
    if not plan.draws_its_price:
        return _priced(plan, norm)
    privacy, asked, rounds, cache = plan.privacy, plan.participation.build(), plan.run.rounds, dict[str, bytes]()
    assert privacy.epsilon is not None  # `suggest`
    sampled_optimum.choose(plan.mechanism, rounds, asked, privacy.epsilon, privacy.delta, cache)
    mechanism = build(plan.mechanism, rounds, asked, cache)
    law = certification.law_of(mechanism, asked)
    sigma = certification.least_noise(law, privacy.epsilon, privacy.delta)
    noise = sigma * math.sqrt(float(np.mean(np.square(mechanism.prefix_row_norms()))))
    share = noise * plan.riders.joint_bound / (rounds * plan.run.cohort * clipped_length(plan, norm))
    return Way(plan, share, noise, sigma, mechanism.buffers, estimated=True)


def _tables(plan: Plan, users: int, norm: float | None, work: float, certified: bool) -> Iterator[Table]:
    """Yield plans of the grid: every shape with every mechanism that goes with it."""
    whole, clip = plan.model_dump(mode="json", exclude_none=True), plan.clipping.norm
    if norm is not None and clipped_length(plan, clip) > clipped_length(plan, norm):
        clip = norm  # a longer one adds noise and no signal
    for rounds in sorted({max(1, round(plan.run.rounds * factor)) for factor in ROUNDS}):
        for cohort in sorted({max(1, round(plan.run.cohort * factor)) for factor in COHORTS}):
            if rounds * cohort > work * plan.run.rounds * plan.run.cohort or rounds > MOST_ROUNDS:
                continue
            asked = {"rounds": rounds, "cohort": cohort} | ({} if clip == plan.clipping.norm else {"clip": clip})
            shape = changed(whole, asked)
            _keep_distance(shape, plan, norm)
            for mechanism, participation in _ways(plan, shape, users, certified):
                yield {**shape, "mechanism": mechanism, "participation": participation}


def _keep_distance(shape: Table, plan: Plan, norm: float | None) -> None:
    """Set the learning rate so that the whole run moves the model as far as the plan's, where it has a rate."""
    if "learning_rate" in shape["server_optimizer"]:
        clipping = plan.clipping.model_copy(update={"norm": shape["clipping"]["norm"]})
        length = clipped_length(plan.model_copy(update={"clipping": clipping}), norm)
        further = shape["run"]["rounds"] * length / (plan.run.rounds * clipped_length(plan, norm))
        rate = shape["server_optimizer"]["learning_rate"] / further
        shape["server_optimizer"]["learning_rate"] = float(f"{rate:.4g}")


def _ways(plan: Plan, shape: Table, users: int, certified: bool) -> Iterator[tuple[Table, Table]]:
    """Yield (mechanism, participation) of one shape, under the plan's adjacency."""
    rounds, cohort, own = shape["run"]["rounds"], shape["run"]["cohort"], plan.mechanism.model_dump(mode="json")
    same = (rounds, cohort) == (plan.run.rounds, plan.run.cohort)
    if plan.samples:
        yield from _sampled(plan, shape, users, certified and same)
        return
    asked: Table | None = shape["participation"] if same else None
    if isinstance(plan.participation.build(), MinSeparation | Single) and plan.availability is None:
        asked = spread(rounds, cohort, users) or asked
    if asked is None:
        return
    apart = asked.get("separation") or asked.get("period") or rounds
    kinds: list[Table] = [own, {"kind": "independent"}, {"kind": "nu"}, {"kind": "blt"}]
    kinds += [
        {"kind": "banded", "bands": bands} for bands in sorted({*BANDS, apart}) if bands <= min(apart, rounds, 64)
    ]
    kinds += [{"kind": "dense"}] if rounds <= DENSE else []
    yield from ((kind, asked) for kind in kinds)


def _needed_users(plan: Plan) -> int:
    """Return the fewest users who can fill the plan's rounds as it promises; about as many as it draws from."""
    spec = plan.participation
    if plan.samples:
        block = (spec.groups or 1) / spec.rate if spec.rate is not None else float(spec.bins or plan.run.rounds)
        return round(plan.run.cohort * (BMinSep(spec.separation, spec.rate or 1).period if spec.separation else block))
    apart, most = plan.participation.build().separation_and_count(plan.run.rounds)
    return plan.run.cohort * max(min(apart, plan.run.rounds), -(-plan.run.rounds // most))


def _sampled(plan: Plan, shape: Table, users: int, certified: bool) -> Iterator[tuple[Table, Table]]:
    """Yield secret samplers that bring the cohort of `users` users; `certified`: also at a certificate's price."""
    rounds, cohort = shape["run"]["rounds"], shape["run"]["cohort"]
    block = max(1, min(rounds, round(users / cohort)))
    stated = {"callable": True} if plan.participation.callable else {}
    if certified or not plan.draws_its_price:
        yield shape["mechanism"], shape["participation"]
    yield {"kind": "independent"}, {"scheme": "poisson", "rate": min(1.0, cohort / users)}
    drawn = {"scheme": "random-allocation", "bins": block, **stated}
    yield {"kind": "independent"}, drawn
    widths = {bands for bands in BANDS if bands <= block}
    if certified and 1 < block < min(rounds, MOST_BANDS):
        widths.add(block)
        yield {"kind": "banded", "bands": block + 1}, drawn  # the widest whose charge is proven (`chained`)
    for bands in sorted(widths):
        banded: Table = {"kind": "banded", "bands": bands}
        yield banded, {"scheme": "cyclic-poisson", "groups": bands, "rate": bands / block}
        if certified:
            yield banded, drawn
            if bands < block:  # else it is balls in bins
                apart = {"scheme": "b-min-sep", "separation": bands, "rate": 1 / (block - bands + 1), **stated}
                yield banded, apart
    if certified:
        for kind in ("nu", "blt"):
            yield {"kind": kind}, {"scheme": "balls-in-bins", "bins": block, **stated}
