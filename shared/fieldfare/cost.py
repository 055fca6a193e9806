"""What a plan will cost and how much noise it adds, computed from the plan alone, before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Final, TypeAlias

import numpy as np

from fieldfare.accounting import (
    PrivacyLoss,
    amplification,
    calibrate,
    certification,
    charge_for,
    discretised,
    sampled_optimum,
    zcdp_epsilon,
)
from fieldfare.accounting.certified import CertifiedCurve
from fieldfare.accounting.filter import gauge, price
from fieldfare.accounting.gaussian import gaussian_mu
from fieldfare.accounting.individual import UNIT, Units, round_off, units_up
from fieldfare.accounting.realised import Growth, RealisedCharge
from fieldfare.accounting.sampled import excess, least_cap
from fieldfare.arrays import Floats
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.mechanisms import Mechanism, build
from fieldfare.participation import (
    MinSeparation,
    Participation,
    Single,
    TruncatedPoisson,
    adjacency_factor,
)
from fieldfare.plan import Plan
from fieldfare.privatise import Privatiser
from fieldfare.text import decimal

PRICED_SHARES = (0.01, 0.1, 0.3)
"""Leaks, in units of delta, at which `Cost.priced` shows a run's price."""

ASSUMPTION = (
    "users are called at will, and who was called stays secret: only releases are seen, not traffic, times or nodes"
)
"""What a charge with secret cohorts rests on."""

CHARGE_FORMAT = 2
"""The present rule for a run's charge. 0: all rows of C were charged, and the resolution of floats was not; 1: an
`epsilon` left no room for odometers, which are rounded up."""

CERTIFIED: Final = "certified charge"
"""The name under which `cost_of` recalls what was certified. It belongs to one run and is shared with no other."""

Draw: TypeAlias = Callable[[], tuple[bytes, int]]
"""A seed of 16 bytes and which certification of this plan it is for, from 1. Every call is another certification; the
seed is written down before it returns."""

_MOST_ATTEMPTS = 6
_NEGLIGIBLE_SHIFT = 1e-4
"""Share of epsilon that the resolution of floats may take without the noise being sought again: the search errs by
more."""
_CAP_SHARE = 1e-3
"""The largest share of delta that a cap on the cohort may take."""
_TRIES = 30
_STARTS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Parts of the noise's whole mu^2 from which the search for room begins."""

_EVALUATED = 64
"""Participations up to which tightly packed patterns are evaluated one by one."""


@dataclass(frozen=True)
class Certificate:
    """A certified curve of real-valued noise, before the resolution of floats, and where its samples were best."""

    curve: CertifiedCurve
    target: float
    noise_multiplier: float

    def to_bytes(self) -> bytes:
        """Canonical JSON, as a run's strategy file holds it."""
        table = {"curve": self.curve.to_json(), "noise_multiplier": self.noise_multiplier, "target": self.target}
        return json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Certificate:
        """The inverse of `to_bytes`. Raises ValueError, TypeError or KeyError for anything else."""
        table = json.loads(stored)
        curve = CertifiedCurve.from_json(table["curve"])
        return cls(curve, float(table["target"]), float(table["noise_multiplier"]))


@dataclass(frozen=True, repr=False)
class Cost:
    """A plan with its calibrated mechanism. `loss` is the whole run's planned charge; no execution is charged more.

    It shows itself as `fieldfare plan` shows it: as text, and as a table in a notebook.
    """

    plan: Plan
    mechanism: Mechanism
    participation: Participation
    noise_multiplier: float
    loss: PrivacyLoss
    resolution: float = 0.0
    """What is charged for the resolution of floats, r of `Privatiser.resolution`: the part of mu^2 beyond the noise,
    from round 0 on. With amplification by sampling r^2 of one sampled event, whose multiplier is then charged as
    1 / (1 / sigma + r).
    """
    strategy: str | None = None
    """SHA-256 of the stored strategy that `mechanism` was built from, where there is one."""
    concentrated: bool = False
    """Whether discrete noise is charged by zCDP alone, as runs of the ledger's first version are."""
    certificate: Certificate | None = None
    """What the charge rests on where a Monte Carlo certified it (`accounting.certification`)."""

    @property
    def sensitivity(self) -> float:
        """The sensitivity of C under the plan's participation and adjacency, for clip norm 1."""
        return adjacency_factor(self.plan.privacy.adjacency) * float(self.mechanism.sensitivity(self.participation))

    @property
    def amplified(self) -> bool:
        """Whether the charge is that of sampled events."""
        sampled = amplification(self.mechanism, self.participation, self.plan.privacy.adjacency).holds
        return sampled or self.certificate is not None

    @property
    def whole(self) -> PrivacyLoss | None:
        """The charge of every round of a certified run: that of the whole run. None for other runs."""
        return None if self.certificate is None else self.loss

    def certified_again(self) -> Cost:
        """This cost with its certificate computed again from the seed; itself without a certificate. Takes its time.

        The strategy matrix, the noise and the seed decide everything; no recorded bound is used.
        """
        if self.certificate is None:
            return self
        old = self.certificate.curve
        curve = certification.certify(
            certification.law_of(self.mechanism, self.participation),
            self.noise_multiplier,
            tuple(epsilon for epsilon, _ in old.points),
            target=self.certificate.target,
            seed=bytes.fromhex(old.seed),
            attempt=old.attempt,
            samples=old.samples,
        )
        return _with_certificate(self, replace(self.certificate, curve=curve), math.sqrt(self.resolution))

    @property
    def epsilon(self) -> float:
        """epsilon of the planned charge at the plan's delta."""
        return self.loss.epsilon(self.plan.privacy.delta)

    def charged(self, loss: PrivacyLoss) -> PrivacyLoss:
        """The charge for `loss`, that of real-valued Gaussian noise: discrete noise costs a little more
        (`discretised`), and floats add their resolution.
        """
        if self.certificate is not None:
            return loss
        if self.amplified:
            r = math.sqrt(self.resolution)
            events = (replace(e, noise_multiplier=1 / (1 / e.noise_multiplier + r)) for e in loss.sampled)
            return PrivacyLoss(loss.mu_squared, tuple(events))
        if self.plan.privacy.rounding != "discrete":
            return loss + PrivacyLoss(self.resolution)
        return loss.as_concentrated() if self.concentrated else discretised.as_gaussian(loss)

    @property
    def leak(self) -> float | None:
        """d of the run's price where its noise decides it: that of discrete noise, 0 for Gaussian noise.

        None where it is chosen when the run is admitted: with amplification by sampling.
        """
        if self.loss.amplified:
            return None
        return discretised.leak(self.loss.mu_squared) if self.plan.privacy.rounding == "discrete" else 0.0

    def priced(self) -> dict[float, float]:
        """{d / delta: epsilon of the run's price at this d, alone in a population with D = d}; {} unless sampled.

        Across runs a sampled run is charged its price (`filter`), which is above its epsilon: by a percent for runs of
        many rounds, by several times for one or a few.
        """
        if not self.loss.amplified:
            return {}
        delta = self.plan.privacy.delta
        return {
            share: gauge(price(self.loss, share * delta).mu_squared, delta, share * delta) for share in PRICED_SHARES
        }

    def realised(self) -> RealisedCharge:
        """A fresh running charge for one execution of the plan, from the users who really take part; see `charged`."""
        setting = (self.mechanism, self.participation, self.noise_multiplier, self.plan.privacy.adjacency)
        return RealisedCharge(*setting, whole=self.whole)

    # -- what single users pay (`individual`) ------------------------------------------------------------------------

    @cached_property
    def _column(self) -> float:
        """The largest squared norm of a column of C."""
        return float(self.mechanism.sensitivity(Single())) ** 2

    def increments(self, growth: Growth) -> Units:
        """What one round costs its users, from what it adds to their norms (`RealisedCharge.growth`), shape (m,).

        Equation (1) of `individual`, never below it: float64's round-off is charged on top, and each is rounded up. The
        resolution of floats is charged with a user's first round: without any, nothing differs between the two worlds.
        """
        bound = round_off(self.mechanism.rounds) * self._column * (1 + 2.0 * growth.earlier)
        factor = adjacency_factor(self.plan.privacy.adjacency) / self.noise_multiplier
        mu_squared = (growth.squared + bound) * factor**2
        if self.plan.privacy.rounding == "discrete":
            mu_squared = mu_squared * discretised.SHARE * (1 + 1e-15)
        return units_up(mu_squared + np.where(growth.earlier == 0, self.resolution, 0.0))

    def most_units(self) -> int:
        """The most that all increments of one user add up to, whatever allowed rounds the user takes part in."""
        count = self.participation.separation_and_count(self.mechanism.rounds)[1]
        return int(units_up(np.asarray(self.loss.mu_squared * (1 + _unit_margin(self.mechanism, count))))) + count

    def tight_units(self) -> tuple[int, ...]:
        """What 1, 2, ..., k rounds cost a user who takes part as early and as often as allowed.

        The feasibility of a run is judged by these (spec/budgets.md 2.3). Beyond some rounds each takes its share of
        the most, which is the cost of all k: a round costs more with every round before it.
        """
        separation, count = self.participation.separation_and_count(self.mechanism.rounds)
        charge = RealisedCharge(
            self.mechanism, MinSeparation(separation), self.noise_multiplier, self.plan.privacy.adjacency, users=1
        )
        user, total, costs = np.zeros(1, dtype=np.int64), 0, list[int]()
        for round in range(0, min(count, _EVALUATED) * separation, separation):
            total += int(self.increments(charge.growth(round, user))[0])
            charge.add(round, user)
            costs.append(total)
        most = self.most_units()
        return (*costs, *(max(total, -(-most * j // count)) for j in range(len(costs) + 1, count + 1)))

    def describe(self) -> list[tuple[str, str]]:
        """(item, value) for people; every figure is one of `to_json` or `priced`."""
        fields, plan = self.to_json(), self.plan
        amplified = " (amplified by sampling)" if fields["amplified_by_sampling"] else ""
        rows = [
            ("mechanism", fields["mechanism"]),
            ("rounds x cohort", f"{plan.run.rounds} x {plan.run.cohort}"),
            ("participation", " ".join(f"{k}={v}" for k, v in fields["participation"].items())),
            ("noise multiplier", f"{self.noise_multiplier:.6g}"),
            ("delta fits", f"fewer than {decimal(0.1 / fields['delta'], 3)} users"),
            ("rounding", fields["rounding"]),
            ("of mu^2, for float64's resolution", f"{self.resolution:.3g}" if self.resolution else "-"),
            (
                "sensitivity",
                f"{self.sensitivity:.6g} ({fields['sensitivity_bound']}: {fields['sensitivity_argument']})",
            ),
            ("epsilon", f"{self.epsilon:.6g} at delta {decimal(fields['delta'])}, {fields['adjacency']}{amplified}"),
        ]
        if amplified:
            rows.append(("epsilon without amplification", f"{fields['epsilon_without_amplification']:.6g}"))
        rows += self._describe_sampler()
        if priced := self.priced():
            shown = ", ".join(f"{epsilon:.6g} at {share:g}" for share, epsilon in priced.items())
            rows.append(("epsilon as priced across runs", f"{shown} of delta given to its leak"))
        if not amplified:
            mu = f"{self.loss.mu:.6g}" if self.loss.gaussian else "-"
            rows += [
                ("zCDP rho, GDP mu", f"{fields['rho_zcdp']:.6g}, {mu}"),
                ("epsilon by zCDP (looser)", f"{fields['epsilon_zcdp']:.6g}"),
            ]
        return [
            *rows,
            (
                "noise in a prefix sum",
                f"max {fields['prefix_noise_max']:.6g}, root mean {fields['prefix_noise_rms']:.6g} (clip 1)",
            ),
            ("buffers of model size", str(fields["buffers"])),
        ]

    def _describe_sampler(self) -> list[tuple[str, str]]:
        """What a charge rests on that secret draws earn."""
        rows = [("assumption", ASSUMPTION)] if self.plan.secret else []
        if self.certificate is not None:
            curve, (removed, added) = self.certificate.curve, self.certificate.curve.samples
            bound = (
                f"Monte Carlo of the dominating pair, {removed + added:,} samples; certified, and "
                f"{decimal(curve.failure, 2)} that it fails is part of delta"
            )
            return [*rows, ("bound used", bound)]
        for event in self.loss.sampled if self.plan.secret else ():
            rows += [("sampler", event.sampler), ("bound used", event.bound)]
        return rows

    def __repr__(self) -> str:
        rows = self.describe()
        width = max(len(name) for name, _ in rows)
        private = [] if self.plan.run.noise_seed is None else ["NOT PRIVATE: run.noise_seed fixes the noise"]
        return "\n".join([*(f"{name:<{width}}  {value}" for name, value in rows), *private])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self.describe()
        )
        private = (
            "" if self.plan.run.noise_seed is None else "<p><b>NOT PRIVATE</b>: run.noise_seed fixes the noise</p>"
        )
        return f"<table><tbody>{rows}</tbody></table>{private}"

    @property
    def prefix_noise(self) -> Floats:
        """Standard deviation of the noise in a coordinate of each prefix sum, shape (rounds,), for clip norm 1."""
        return self.noise_multiplier * self.mechanism.prefix_row_norms(self.plan.run.rounds)

    @property
    def prefix_noise_rms(self) -> float:
        """The root mean square of `prefix_noise`."""
        return float(np.sqrt(np.mean(np.square(self.prefix_noise))))

    def to_json(self) -> dict[str, Any]:
        """What `fieldfare plan --json` prints.

        `max_error` and `mean_error` are the noise in a prefix sum at sigma = sensitivity, which compares mechanisms at
        equal privacy. `prefix_noise_max` and `prefix_noise_rms` are the same at this plan's noise multiplier. All are
        for clip norm 1.
        """
        rounds, delta = self.plan.run.rounds, self.plan.privacy.delta
        exact = self.mechanism.sensitivity(self.participation)
        amplified = self.loss.amplified
        factor = adjacency_factor(self.plan.privacy.adjacency)
        return {
            "mechanism": self.mechanism.kind,
            "rounds": rounds,
            "noise_multiplier": self.noise_multiplier,
            "sensitivity": self.sensitivity,
            "sensitivity_bound": exact.bound,
            "sensitivity_argument": exact.how,
            "rho_zcdp": None if amplified else self.loss.rho,
            "mu_gdp": self.loss.mu if self.loss.gaussian else None,
            "epsilon": self.epsilon,
            "epsilon_zcdp": None if amplified else zcdp_epsilon(self.loss.rho, delta),
            "delta": delta,
            "adjacency": self.plan.privacy.adjacency,
            "rounding": self.plan.privacy.rounding,
            "resolution_mu_squared": self.resolution,
            "amplified_by_sampling": amplified,
            "epsilon_without_amplification": self.loss.without_amplification().epsilon(delta),
            "certificate": None if self.certificate is None else self.certificate.curve.to_json(),
            "max_error": factor * self.mechanism.max_error(rounds, self.participation),
            "mean_error": factor * self.mechanism.mean_error(rounds, self.participation),
            "prefix_noise_max": float(self.prefix_noise.max()),
            "prefix_noise_rms": self.prefix_noise_rms,
            "buffers": self.mechanism.buffers,
            "participation": self.plan.participation.model_dump(exclude_none=True),
            "digest": self.plan.digest(),
        }


def cost_of(
    plan: Plan,
    cache: MutableMapping[str, bytes] | None = None,
    *,
    charge_format: int = CHARGE_FORMAT,
    resolution: float = 0.0,
    draw: Draw | None = None,
    samples: tuple[int, int] | None = None,
) -> Cost:
    """Build the plan's mechanism and calibrate its noise. Raises `BadInput` where the plan cannot be met.

    Args:
        cache: as for `mechanisms.build`.
        charge_format: the rule by which the run was begun. It decides the noise of a plan with an `epsilon`, so a run
            is resumed and verified by its own.
        resolution: mu^2 to charge beyond the noise, for which an `epsilon` leaves room. It depends on the model, which
            a plan does not know: see `with_resolution`.
        draw: where the seed of a certificate comes from (None: `preview`). What `cache` recalls needs none.
        samples: of a certificate, for removing a user and for adding one (None: a run's). Fewer need more noise.
    """
    participation = plan.participation.build()
    if isinstance(participation, TruncatedPoisson):
        _require_cap(plan, participation)
    if plan.certified:
        stored = None if cache is None else cache.get(CERTIFIED)
        if stored is not None:
            bare = _bare(plan, build(plan.mechanism, plan.run.rounds, participation, cache), participation)
            return _with_certificate(bare, Certificate.from_bytes(stored), math.sqrt(resolution))
        bare = _tuned(plan, participation, cache)
        return _certified(bare, lambda sigma: math.sqrt(resolution), draw or preview(), cache, samples)
    mechanism = build(plan.mechanism, plan.run.rounds, participation, cache)
    if charge_format == 0:
        mechanism = mechanism.first_charge()
    if plan.privacy.rounding == "discrete":
        _require_discrete(plan, mechanism, participation)
    # Runs of the ledger's first version charged discrete noise by zCDP, and go on doing so.
    concentrated = charge_format == 0 and plan.privacy.rounding == "discrete"
    return _calibrated(plan, mechanism, participation, resolution, concentrated, charge_format)


def cost_without_amplification(plan: Plan, resolution: float = 0.0) -> Cost:
    """`cost_of` a certified plan as if every user's rounds were known: a bound for its charge, found at once.

    The mechanism is the one that is best without sampling. A run needs less noise, or spends less epsilon.
    """
    participation = plan.participation.build()
    mechanism = build(plan.mechanism, plan.run.rounds, participation)
    return _calibrated(plan, mechanism, participation, resolution, False, CHARGE_FORMAT)


def cost_with_resolution(
    plan: Plan, cache: MutableMapping[str, bytes] | None, clip: float, numel: int, users: int, draw: Draw | None = None
) -> Cost:
    """`cost_of` a new run of `plan`, with the charge for the resolution of floats: see `with_resolution`."""
    participation = plan.participation.build()
    if not plan.certified:
        return with_resolution(cost_of(plan, cache), clip, numel, users)
    # One certificate, for the noise that leaves room for the resolution.
    bare = _tuned(plan, participation, cache)
    norms = bare.mechanism.row_norms()

    def resolution_of(sigma: float) -> float:
        setting = (plan.privacy.rounding, sigma, clip, numel, users, float(norms.max()))
        return Privatiser.of(*setting).resolution(numel, norms) * (1 + 1e-12)

    return _certified(bare, resolution_of, draw or preview(), cache)


def _require_cap(plan: Plan, participation: TruncatedPoisson) -> None:
    """Refuse a cap on the cohort that costs more than a thousandth of delta."""
    rate, cap, enrolled = participation.rate, participation.cap, participation.enrolled
    exceeded, most = plan.run.rounds * excess(rate, cap, enrolled), _CAP_SHARE * plan.privacy.delta
    if exceeded > most:
        raise BadInput(
            f"participation.cap = {cap}",
            f"of {enrolled} users at rate {rate:g} more are drawn in some round with probability up to "
            f"{decimal(exceeded, 2)}, which is part of delta; it may take {decimal(most, 2)}.",
            f"cap = {least_cap(rate, enrolled, plan.run.rounds, most)}",
        )


def preview() -> Draw:
    """Seeds that are the same in every process: for showing what a run will cost, never for a run."""
    count = itertools.count(1)

    def draw() -> tuple[bytes, int]:
        attempt = next(count)
        return hashlib.sha256(f"fieldfare preview {attempt}".encode()).digest()[:16], attempt

    return draw


def _tuned(plan: Plan, participation: Participation, cache: MutableMapping[str, bytes] | None) -> Cost:
    """The plan with its mechanism, whose free choices are made for the certified charge; nothing charged yet."""
    privacy = plan.privacy
    decided = {} if cache is None else cache
    if privacy.epsilon is not None:
        sampled_optimum.choose(plan.mechanism, plan.run.rounds, participation, privacy.epsilon, privacy.delta, decided)
    return _bare(plan, build(plan.mechanism, plan.run.rounds, participation, decided), participation)


def _bare(plan: Plan, mechanism: Mechanism, participation: Participation) -> Cost:
    return Cost(plan, mechanism, participation, math.inf, PrivacyLoss())


def _with_certificate(cost: Cost, certificate: Certificate, r: float) -> Cost:
    """`cost` charged by `certificate`, and for floats whose resolution is r (`Privatiser.resolution`)."""
    loss = PrivacyLoss(certified=(certificate.curve.with_resolution(r),))
    sigma = certificate.noise_multiplier
    return replace(cost, noise_multiplier=sigma, loss=loss, resolution=r * r, certificate=certificate)


def _certified(
    cost: Cost,
    resolution_of: Callable[[float], float],
    draw: Draw,
    cache: MutableMapping[str, bytes] | None,
    samples: tuple[int, int] | None = None,
) -> Cost:
    """`cost` with the noise that its plan needs and a certificate of it, which `cache` gets.

    resolution_of: noise multiplier -> r.

    Raises `BudgetRefused` where no certificate came out within the plan's epsilon.
    """
    privacy, law = cost.plan.privacy, certification.law_of(cost.mechanism, cost.participation)
    samples = samples or certification.samples_of(law)
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
        made = _with_certificate(cost, Certificate(curve, target, sigma), resolution_of(sigma))
        if privacy.epsilon is None or made.epsilon <= privacy.epsilon:
            if cache is not None and made.certificate is not None:
                cache[CERTIFIED] = made.certificate.to_bytes()
            return made
    raise BudgetRefused(
        f"epsilon = {privacy.epsilon}", f"{_MOST_ATTEMPTS} certificates came out above it.", "a noise_multiplier"
    )


def with_resolution(cost: Cost, clip: float, numel: int, users: int) -> Cost:
    """`cost` with the charge for the resolution of floats, for sums of `numel` numbers.

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
        r = Privatiser.of(*setting).resolution(numel, span) * (1 + 1e-12)
        return r * r if sampled.holds else (2 * cost.sensitivity / cost.noise_multiplier + r) * r

    # Without any room the noise is least, and so may its grid be: too fine. More noise then needs less room.
    whole = max([cost.loss.mu_squared, *(event.noise_multiplier**-2 for event in cost.loss.sampled)])
    for start in _STARTS:
        room, best = start * whole, None
        for _ in range(_TRIES):
            try:
                tried = _calibrated(
                    cost.plan, cost.mechanism, cost.participation, room, cost.concentrated, CHARGE_FORMAT
                )
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
    raise BadInput(
        f"privacy.epsilon = {cost.plan.privacy.epsilon} for {numel} parameters",
        f"the resolution of float64 noise alone costs mu^2 = {needed:.3g} of it.",
        "a larger epsilon, or a smaller model",
    )


def _calibrated(
    plan: Plan,
    mechanism: Mechanism,
    participation: Participation,
    resolution: float,
    concentrated: bool,
    charge_format: int,
) -> Cost:
    privacy = plan.privacy
    discrete = privacy.rounding == "discrete"
    amplified = amplification(mechanism, participation, privacy.adjacency).holds
    units = _room_for_units(plan, mechanism, participation) if charge_format >= 2 else 0.0
    extra = PrivacyLoss(resolution + units)
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
            concentrated=concentrated,
        )
        if amplified:
            sigma = _less_resolution(mechanism, sigma, resolution, plan)
        if discrete and not concentrated:
            sigma = _least_discrete(mechanism, participation, plan, sigma, extra)
    loss = charge_for(mechanism, participation, sigma, plan.run.rounds, privacy.adjacency)
    cost = Cost(plan, mechanism, participation, sigma, loss, resolution, concentrated=concentrated)
    return replace(cost, loss=cost.charged(loss))


def _less_resolution(mechanism: Mechanism, charged: float, resolution: float, plan: Plan) -> float:
    """The multiplier of sampled rounds that are charged, with their floats' resolution, as rounds of `charged`."""
    if resolution == 0:
        return charged
    column = float(mechanism.sensitivity(Single()))
    left = 1 / charged - math.sqrt(resolution) / column
    if left <= 0:
        raise BudgetRefused(f"epsilon = {plan.privacy.epsilon}", "the resolution of floats takes all of it.")
    return (1 + 1e-14) / left  # rounding must not make the charge the larger one


def _unit_margin(mechanism: Mechanism, count: int) -> float:
    """How much `count` increments may exceed the planned mu^2, relative to it, before they are rounded to units."""
    # 2^-40: patterns and the planned maximum may be found by other formulas.
    return 1.02 * round_off(mechanism.rounds) * count * count + 2.0**-40


def _room_for_units(plan: Plan, mechanism: Mechanism, participation: Participation) -> float:
    """mu^2 that a run calibrated to an epsilon leaves free, so that a user's increments fit in the same epsilon."""
    if plan.privacy.accounting == "worst-case" or plan.privacy.epsilon is None:
        return 0.0
    count = participation.separation_and_count(mechanism.rounds)[1]
    whole = gaussian_mu(plan.privacy.epsilon, plan.privacy.delta) ** 2
    return whole * _unit_margin(mechanism, count) + (count + 2) * UNIT


def _least_discrete(
    mechanism: Mechanism, participation: Participation, plan: Plan, gaussian: float, extra: PrivacyLoss
) -> float:
    """The least multiplier of discrete noise that costs no more than the plan's epsilon, where `gaussian` is the least
    of Gaussian noise."""
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
        raise BadInput(
            "privacy.rounding = 'discrete'",
            f"needs a strategy matrix of whole numbers, so that its noise stays on the grid; that of kind "
            f"{mechanism.kind!r} as planned has others.",
            "kind 'independent', 'tree' with estimator = 'plain', or 'anti-pgd' with nu = 0; or rounding = 'grid'",
        )
    if amplification(mechanism, participation, plan.privacy.adjacency).holds:
        raise BadInput(
            "privacy.rounding = 'discrete'",
            "amplification by sampling, which this plan is charged with, is not known for discrete noise.",
            "rounding = 'grid'",
        )
