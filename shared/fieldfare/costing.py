"""How the cost of a plan is found: its mechanism is built, and its noise is sought until the charge fits."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from fieldfare.accounting import (
    PrivacyLoss,
    amplification,
    calibrate,
    certification,
    charge_for,
    discretised,
    sampled_optimum,
)
from fieldfare.accounting.executed import Execution
from fieldfare.accounting.gaussian import gaussian_mu
from fieldfare.accounting.individual import UNIT
from fieldfare.accounting.truncated import excess, least_cap
from fieldfare.cost import Certificate, Cost, StoredPrice, unit_margin
from fieldfare.errors import BudgetRefused, Differs, OutOfRange, Refused, Unsupported
from fieldfare.mechanisms import Mechanism, build
from fieldfare.participation import Participation, RandomAllocation, Single, TruncatedPoisson, adjacency_factor
from fieldfare.plan import Plan
from fieldfare.privatise import Privatiser
from fieldfare.text import decimal

Draw: TypeAlias = Callable[[], tuple[bytes, int]]
"""A seed of 16 bytes and which certification of this plan it is for, from 1. Every call is another
certification; the seed is written down before it returns."""

_MOST_ATTEMPTS = 6
# Share of epsilon that the resolution of floats may take without the noise being sought again: the search errs by more.
_NEGLIGIBLE_SHIFT = 1e-4
# The largest share of delta that a cap on the cohort may take.
_CAP_SHARE = 1e-3
_TRIES = 30
# Share of epsilon by which a calibrated plan may stay below it: searches, rounding to units, room for resolution.
_SEARCH_ERROR = 1e-3
# Parts of the noise's whole mu^2 from which the search for room begins.
_STARTS = (0.0, 0.25, 0.5, 0.75, 0.9)


def cost_of(
    plan: Plan,
    cache: MutableMapping[str, bytes] | None = None,
    *,
    resolution: float = 0.0,
    draw: Draw | None = None,
    samples: tuple[int, int] | None = None,
) -> Cost:
    """Build a new run's mechanism and calibrate its noise. Raises `BadInput` where the plan cannot be met.

    Args:
        cache: as for `mechanisms.build`.
        resolution: mu^2 to charge beyond the noise, for which an `epsilon` leaves room. It depends on the
            model, which a plan does not know: see `with_resolution`.
        draw: where the seed of a certificate comes from (None: `preview`).
        samples: of a certificate, for removing a user and for adding one (None: a run's). Fewer need more
            noise.
    """
    participation = plan.participation.build()
    if isinstance(participation, TruncatedPoisson):
        _require_cap(plan, participation)
    if plan.draws_its_price:
        bare = _tuned(plan, participation, cache)
        return _certified(bare, lambda sigma: math.sqrt(resolution), draw or preview(), samples)
    mechanism = build(plan.mechanism, plan.run.rounds, participation, cache)
    if plan.privacy.rounding == "discrete":
        _require_discrete(plan, mechanism, participation)
    return _calibrated(plan, mechanism, participation, resolution)


class Sealed(dict[str, bytes]):
    """What an optimiser decided once; a name that is not there is refused, so nothing is optimised again."""

    def __init__(self, entries: MutableMapping[str, bytes], missing: Refused) -> None:
        super().__init__(entries)
        self._missing = missing

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            raise self._missing
        return self[key]


def cost_as_priced(
    plan: Plan, cache: MutableMapping[str, bytes], price: StoredPrice, *, resolution: float = 0.0
) -> Cost:
    """Build the mechanism of a run that has begun, at the price stored with it. Nothing is searched for.

    The charge is that of `price` to the last bit, whatever machine computes it again.

    Args:
        plan: the run's.
        cache: what optimisers decided when it began.
        price: what the run was priced at.
        resolution: mu^2 that its price has beyond the noise.

    Raises:
        BadInput: the plan, with that noise, costs something else, or more than its epsilon.
    """
    participation = plan.participation.build()
    mechanism = build(plan.mechanism, plan.run.rounds, participation, cache)
    bare = replace(_bare(plan, mechanism, participation), resolution=resolution)
    if price.certificate is not None:
        cost = bare.with_certificate(price.certificate, math.sqrt(resolution))
    else:
        sigma = price.noise_multiplier or plan.privacy.noise_multiplier
        sigma = sigma or implied_noise(price.loss, bare.mechanism, bare.participation, plan, resolution)
        cost = _at_noise(bare, sigma)
        if isinstance(participation, RandomAllocation) and not cost.loss.agrees_with(price.loss):
            # It began when a block that the run cuts short was charged as a whole one, which is more.
            cost = _at_noise(replace(bare, participation=replace(participation, whole=True)), sigma)
    if not cost.loss.agrees_with(price.loss):
        raise Differs(f"the planned loss {price.loss}", f"the plan and its noise give {cost.loss}.")
    _require_target(plan, cost, price)
    return replace(cost, loss=price.loss)


def cost_at_noise(plan: Plan, cache: MutableMapping[str, bytes]) -> Cost:
    """Return the cost of a run of a plan that names its noise multiplier, without a certificate: nothing is
    searched for.

    cache: what optimisers decided for the mechanism.
    """
    assert plan.privacy.noise_multiplier is not None
    participation = plan.participation.build()
    bare = _bare(plan, build(plan.mechanism, plan.run.rounds, participation, cache), participation)
    return _at_noise(bare, plan.privacy.noise_multiplier)


def _require_target(plan: Plan, cost: Cost, price: StoredPrice) -> None:
    """Refuse a price that is not that of the plan's noise or epsilon. A search may end a little below, never above."""
    if plan.privacy.epsilon is None:
        if cost.noise_multiplier != plan.privacy.noise_multiplier:
            raise Differs(
                f"the noise multiplier {cost.noise_multiplier}", f"that of the plan is {plan.privacy.noise_multiplier}."
            )
        return
    ratio = price.loss.epsilon(plan.privacy.delta) / plan.privacy.epsilon
    # Without a stored multiplier the charge alone tells the noise: too small a one claims too much of it.
    least = 1 - _SEARCH_ERROR if price.noise_multiplier is None and price.certificate is None else 0.0
    if not least <= ratio <= 1 + 1e-9:
        raise Differs(
            f"the planned loss {price.loss}",
            f"its epsilon is {ratio:.9g} times that of the plan, {plan.privacy.epsilon:g}.",
        )


def implied_noise(
    planned: PrivacyLoss, mechanism: Mechanism, participation: Participation, plan: Plan, resolution: float
) -> float:
    """Return the noise multiplier at which a run of `plan` is charged `planned`: `Cost.in_full` inverted.

    Up to the last digits. nan where no one multiplier is: of certified charges, and of losses that are no
    run's.

    Args:
        planned: what a ledger stores as the run's whole charge.
        mechanism, participation: those of `plan`, made.
        plan: says adjacency and rounding.
        resolution: `Cost.resolution` of the run; 0 where the noise has none.
    """
    sensitivity = adjacency_factor(plan.privacy.adjacency) * float(mechanism.sensitivity(participation))
    execution = Execution(resolution, plan.privacy.rounding == "discrete")
    return execution.implied_noise(planned, float(mechanism.sensitivity(Single())), sensitivity)


def cost_without_amplification(plan: Plan, resolution: float = 0.0) -> Cost:
    """Return `cost_of` a certified plan as if every user's rounds were known: a bound, found at once.

    The mechanism is the one that is best without sampling. A run needs less noise, or spends less epsilon.
    """
    participation = plan.participation.build()
    mechanism = build(plan.mechanism, plan.run.rounds, participation)
    return _calibrated(plan, mechanism, participation, resolution)


def cost_with_resolution(
    plan: Plan, cache: MutableMapping[str, bytes] | None, clip: float, numel: int, users: int, draw: Draw | None = None
) -> Cost:
    """Return `cost_of` a new run of `plan`, charged for the resolution of floats too: see `with_resolution`.

    Args:
        plan: of a run that has not begun.
        cache: as in `mechanisms.build`.
        clip: the L2 norm by which one user moves the sum.
        numel: numbers that a round releases.
        users: most users that one reply sums.
        draw: of a certificate's seed, where the charge rests on one; None: a preview.
    """
    participation = plan.participation.build()
    if not plan.draws_its_price:
        return with_resolution(cost_of(plan, cache), clip, numel, users)
    # One certificate, for the noise that leaves room for the resolution.
    bare = _tuned(plan, participation, cache)
    norms = bare.mechanism.row_norms()

    def resolution_of(sigma: float) -> float:
        setting = (plan.privacy.rounding, sigma, clip, numel, users, float(norms.max()))
        return Privatiser.of(*setting).resolution(numel, norms) * (1 + 1e-12)

    return _certified(bare, resolution_of, draw or preview())


def _require_cap(plan: Plan, participation: TruncatedPoisson) -> None:
    """Refuse a cap on the cohort that costs more than a thousandth of delta."""
    rate, cap, enrolled = participation.rate, participation.cap, participation.enrolled
    exceeded, most = plan.run.rounds * excess(rate, cap, enrolled), _CAP_SHARE * plan.privacy.delta
    if exceeded > most:
        raise OutOfRange(
            f"participation.cap = {cap}",
            f"of {enrolled} users at rate {rate:g} more are drawn in some round with probability up to "
            f"{decimal(exceeded, 2)}, which is part of delta; it may take {decimal(most, 2)}.",
            f"cap = {least_cap(rate, enrolled, plan.run.rounds, most)}",
        )


def preview() -> Draw:
    """Return seeds that are the same in every process: for showing what a run will cost, never for a run."""
    count = itertools.count(1)

    def draw() -> tuple[bytes, int]:
        attempt = next(count)
        return hashlib.sha256(f"fieldfare preview {attempt}".encode()).digest()[:16], attempt

    return draw


def _tuned(plan: Plan, participation: Participation, cache: MutableMapping[str, bytes] | None) -> Cost:
    """Return the plan with its mechanism, whose free choices are made for the certified charge; nothing charged yet."""
    privacy = plan.privacy
    decided = {} if cache is None else cache
    if privacy.epsilon is not None:
        sampled_optimum.choose(plan.mechanism, plan.run.rounds, participation, privacy.epsilon, privacy.delta, decided)
    return _bare(plan, build(plan.mechanism, plan.run.rounds, participation, decided), participation)


def _bare(plan: Plan, mechanism: Mechanism, participation: Participation) -> Cost:
    return Cost(plan, mechanism, participation, math.inf, PrivacyLoss())


def _certified(
    cost: Cost, resolution_of: Callable[[float], float], draw: Draw, samples: tuple[int, int] | None = None
) -> Cost:
    """Return `cost` with the noise that its plan needs and a certificate of it.

    resolution_of: noise multiplier -> r.

    Raises `BudgetRefused` where no certificate came out within the plan's epsilon.
    """
    privacy, law = cost.plan.privacy, certification.law_of(cost.mechanism, cost.participation)
    samples = certification.samples_of(law, samples)
    for _ in range(_MOST_ATTEMPTS):
        # The seed is written down before anything is drawn from it.
        seed, attempt = draw()
        if privacy.noise_multiplier is not None:
            sigma = privacy.noise_multiplier
            target = certification.estimated_epsilon(law, sigma, privacy.delta)
        else:
            assert privacy.epsilon is not None  # PrivacySpec: exactly one of the two is given
            target = privacy.epsilon
            sigma = certification.least_noise(law, target, privacy.delta, samples=samples, attempt=attempt)
            shift = 8 * resolution_of(sigma)
            if shift > _NEGLIGIBLE_SHIFT * target:
                if shift >= target / 2:
                    raise BudgetRefused(f"epsilon = {target}", "the resolution of floats takes most of it.")
                target -= 1.1 * shift
                sigma = certification.least_noise(law, target, privacy.delta, samples=samples, attempt=attempt)
        epsilons = certification.points_for(law, sigma, target, privacy.delta)
        curve = certification.certify(law, sigma, epsilons, target=target, seed=seed, attempt=attempt, samples=samples)
        made = cost.with_certificate(Certificate(curve, target, sigma), resolution_of(sigma))
        if privacy.epsilon is None or made.epsilon <= privacy.epsilon:
            return made
    raise BudgetRefused(
        f"epsilon = {privacy.epsilon}", f"{_MOST_ATTEMPTS} certificates came out above it.", "a noise_multiplier"
    )


def with_resolution(cost: Cost, clip: float, numel: int, users: int) -> Cost:
    """Return `cost` with the charge for the resolution of floats, for sums of `numel` numbers.

    Args:
        clip: the L2 norm by which one user moves the sum.
        users: most users that one reply sums.

    Raises:
        BadInput: no grid serves such sums, or their resolution alone costs the plan's epsilon.
    """
    norms = cost.mechanism.row_norms()
    sampled = amplification(cost.mechanism, cost.participation, cost.plan.privacy.adjacency)
    # A sampled event spans as many rounds as there are groups; every other run is one event.
    span = np.full(sampled.groups, norms.max()) if sampled.holds else norms

    def needed_by(cost: Cost) -> float:
        setting = (cost.plan.privacy.rounding, cost.noise_multiplier, clip, numel, users, float(norms.max()))
        r = Privatiser.of(*setting, cost.plan.aggregation.rings).resolution(numel, span) * (1 + 1e-12)
        return r * r if sampled.holds else (2 * cost.sensitivity / cost.noise_multiplier + r) * r

    # Without any room the noise is least, and so may its grid be: too fine. More noise then needs less room.
    whole = cost.loss.largest_mu_squared
    for start in _STARTS:
        room, best = start * whole, None
        for _ in range(_TRIES):
            try:
                tried = _calibrated(cost.plan, cost.mechanism, cost.participation, room)
            except BudgetRefused:
                break
            needed = needed_by(tried)
            if needed <= room:
                best = tried
            if best is not None and not needed * (1 + 2.0**-9) < room:
                return best
            # More noise is a little coarser: some more room saves most of the tries.
            room = needed if cost.plan.privacy.epsilon is None else needed * (1 + 2.0**-10)
        if best is not None:
            return best
    needed = needed_by(cost)
    raise OutOfRange(
        f"privacy.epsilon = {cost.plan.privacy.epsilon} for {numel} parameters",
        f"the resolution of float64 noise alone costs mu^2 = {needed:.3g} of it.",
        "a larger epsilon, or a smaller model",
    )


def _calibrated(plan: Plan, mechanism: Mechanism, participation: Participation, resolution: float) -> Cost:
    privacy = plan.privacy
    discrete = privacy.rounding == "discrete"
    amplified = amplification(mechanism, participation, privacy.adjacency).holds
    extra = PrivacyLoss(resolution + _room_for_units(plan, mechanism, participation), leak=plan.leak)
    sigma = privacy.noise_multiplier
    if sigma is None:
        assert privacy.epsilon is not None  # PrivacySpec: exactly one of the two is given
        sigma = calibrate(
            mechanism,
            participation,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            adjacency=privacy.adjacency,
            already=None if amplified else extra,
        )
        if amplified:
            sigma = _less_resolution(mechanism, sigma, resolution, plan)
        if discrete:
            sigma = _least_discrete(mechanism, participation, plan, sigma, extra)
    return _at_noise(replace(_bare(plan, mechanism, participation), resolution=resolution), sigma)


def _at_noise(bare: Cost, sigma: float) -> Cost:
    """Return `bare` charged for the noise multiplier `sigma` and for its resolution."""
    setting = (bare.mechanism, bare.participation, sigma, bare.plan.run.rounds, bare.plan.privacy.adjacency)
    return replace(bare, noise_multiplier=sigma, loss=bare.in_full(charge_for(*setting)))


def _less_resolution(mechanism: Mechanism, charged: float, resolution: float, plan: Plan) -> float:
    """Return the multiplier of sampled rounds that cost, with their resolution, what rounds of `charged` do."""
    if resolution == 0:
        return charged
    column = float(mechanism.sensitivity(Single()))
    left = 1 / charged - math.sqrt(resolution) / column
    if left <= 0:
        raise BudgetRefused(f"epsilon = {plan.privacy.epsilon}", "the resolution of floats takes all of it.")
    return (1 + 1e-14) / left  # rounding must not make the charge the larger one


def _room_for_units(plan: Plan, mechanism: Mechanism, participation: Participation) -> float:
    """Return how much mu^2 a run of a given epsilon leaves free, so that a user's increments stay within that."""
    if plan.privacy.accounting == "worst-case" or plan.privacy.epsilon is None:
        return 0.0
    count = participation.separation_and_count(mechanism.rounds)[1]
    whole = gaussian_mu(plan.privacy.epsilon, plan.privacy.delta) ** 2
    return whole * unit_margin(mechanism, count) + (count + 2) * UNIT


def _least_discrete(
    mechanism: Mechanism, participation: Participation, plan: Plan, gaussian: float, extra: PrivacyLoss
) -> float:
    """Return the least multiplier of discrete noise within the plan's epsilon; `gaussian`: of Gaussian noise."""
    privacy = plan.privacy
    assert privacy.epsilon is not None
    sigma = gaussian * math.sqrt(discretised.SHARE)
    while True:
        loss = discretised.as_gaussian(charge_for(mechanism, participation, sigma, plan.run.rounds, privacy.adjacency))
        if (loss + extra).epsilon(privacy.delta) <= privacy.epsilon:
            return sigma
        sigma *= 1 + 4e-16


def _require_discrete(plan: Plan, mechanism: Mechanism, participation: Participation) -> None:
    if not mechanism.whole:
        raise Unsupported(
            "privacy.rounding = 'discrete'",
            f"needs a strategy matrix of whole numbers, so that its noise stays on the grid; that of kind "
            f"{mechanism.kind!r} as planned has others.",
            "kind 'independent', 'tree' with estimator = 'plain', or 'anti-pgd' with nu = 0; or rounding = 'grid'",
        )
    if amplification(mechanism, participation, plan.privacy.adjacency).holds:
        raise Unsupported(
            "privacy.rounding = 'discrete'",
            "amplification by sampling, which this plan is charged with, is not known for discrete noise.",
            "rounding = 'grid'",
        )


def privatiser_of(plan: Plan, cost: Cost, numel: int) -> Privatiser:
    """Return how the sums of a run, of `numel` numbers, become releases. Raises `BadInput` as `Privatiser.of`."""
    widest = float(cost.mechanism.row_norms().max())
    bound, users = plan.riders.joint_bound, plan.most_users
    setting = (plan.privacy.rounding, cost.noise_multiplier, bound, numel, users, widest)
    return Privatiser.of(*setting, plan.aggregation.rings)
