"""What a plan will cost and how much noise it adds, computed from the plan alone, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from fieldfare.accounting import Amplification, PrivacyLoss, amplification, certification, discretised, zcdp_epsilon
from fieldfare.accounting.certified import WITHOUT_SAMPLES, Certified
from fieldfare.accounting.executed import Execution
from fieldfare.accounting.filter import gauge, leak_of_noise, price
from fieldfare.accounting.individual import Units, round_off, units_up
from fieldfare.accounting.realised import Growth, RealisedCharge
from fieldfare.accounting.sampling_free import SecondOpinion
from fieldfare.arrays import Floats
from fieldfare.mechanisms import Mechanism
from fieldfare.participation import MinSeparation, Participation, Single, adjacency_factor
from fieldfare.plan import Plan
from fieldfare.text import decimal, down, up

PRICED_SHARES = (0.01, 0.1, 0.3)  # leaks, in units of delta, at which `Cost.priced` shows a run's price

ASSUMPTION = (
    "users are called at will, and who was called stays secret: only releases are seen, not traffic, times or nodes"
)
"""What a charge with secret cohorts rests on."""

# Participations up to which tightly packed patterns are evaluated one by one.
_EVALUATED = 64


@dataclass(frozen=True)
class Certificate:
    """A certified curve of real-valued noise, before the resolution of floats, and where its samples were best."""

    curve: Certified
    target: float
    noise_multiplier: float

    def to_json(self) -> dict[str, object]:
        """Return finite JSON; floats in full precision."""
        return {"curve": self.curve.to_json(), "noise_multiplier": self.noise_multiplier, "target": self.target}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Certificate:
        """Return the inverse of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        curve = Certified.from_json(table["curve"])
        return cls(curve, float(table["target"]), float(table["noise_multiplier"]))


@dataclass(frozen=True)
class Ring:
    """The words of a masked sum: their width, what one is worth, and the share that the grid adds to the noise."""

    bits: int
    spacing: float
    cost: float


@dataclass(frozen=True)
class StoredPrice:
    """What a run was priced at when it began. Whoever charges it later reads this, and searches nothing.

    A search or a Monte Carlo ends elsewhere on another processor: a price computed twice is two prices.
    """

    loss: PrivacyLoss
    """The whole run's planned charge."""
    noise_multiplier: float | None
    """None for runs from before it was stored: it follows from `loss` (`implied_noise`)."""
    certificate: Certificate | None = None

    def to_json(self) -> dict[str, object]:
        """Return finite JSON; floats in full precision."""
        certificate = None if self.certificate is None else self.certificate.to_json()
        return {"certificate": certificate, "loss": self.loss.to_json(), "noise_multiplier": self.noise_multiplier}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> StoredPrice:
        """Return the inverse of `to_json`. Raises as `Certificate.from_json`, and `BadInput` for another loss."""
        certificate = None if table["certificate"] is None else Certificate.from_json(table["certificate"])
        return cls(PrivacyLoss.from_json(table["loss"]), float(table["noise_multiplier"]), certificate)


@dataclass(frozen=True, repr=False)
class Cost:
    """A plan with its calibrated mechanism. `loss` is the whole run's planned charge: none costs more.

    It shows itself as `fieldfare plan` shows it: as text, and as a table in a notebook.
    """

    plan: Plan
    mechanism: Mechanism
    participation: Participation
    noise_multiplier: float
    loss: PrivacyLoss
    resolution: float = 0.0
    """What is charged for the resolution of floats, r of `Privatiser.resolution`: the part of mu^2 beyond the
    noise, from round 0 on. With amplification by sampling r^2 of one sampled event, whose multiplier is then
    charged as 1 / (1 / sigma + r).
    """
    strategy: str | None = None
    """SHA-256 of the stored strategy that `mechanism` was built from, where there is one."""
    certificate: Certificate | None = None
    """What the charge rests on where a Monte Carlo certified it (`accounting.certification`)."""
    ring: Ring | None = None
    """The words of a masked sum, where the model is known that decides them."""

    @property
    def sensitivity(self) -> float:
        """The sensitivity of C under the plan's participation and adjacency, for clip norm 1."""
        return adjacency_factor(self.plan.privacy.adjacency) * float(self.mechanism.sensitivity(self.participation))

    @property
    def sampling(self) -> Amplification:
        """Whether the charge is that of sampled events, and why."""
        return amplification(self.mechanism, self.participation, self.plan.privacy.adjacency)

    @property
    def single(self) -> bool:
        """Whether what the run costs single users can be computed: Gaussian noise, and public participation."""
        return replace(self.loss, leak=0.0).gdp is not None

    @property
    def whole(self) -> PrivacyLoss | None:
        """The charge of every round of a certified run: that of the whole run. None for other runs."""
        return None if self.certificate is None else self.loss

    def with_certificate(self, certificate: Certificate, r: float) -> Cost:
        """Return this cost charged by `certificate`, and for floats whose resolution is r (`Privatiser.resolution`)."""
        loss = PrivacyLoss(certified=(certificate.curve.with_resolution(r),))
        sigma = certificate.noise_multiplier
        return replace(self, noise_multiplier=sigma, loss=loss, resolution=r * r, certificate=certificate)

    def certified_again(self) -> Cost:
        """Return this cost with its certificate computed again from the seed, which takes long; without one, itself.

        The strategy matrix, the noise and the seed decide everything; no recorded bound is used. Raises
        `BadInput` where the result is below what a test without samples reaches (`sampling_free`).
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
        self.second_opinion.require(curve)
        return self.with_certificate(replace(self.certificate, curve=curve), math.sqrt(self.resolution))

    @property
    def second_opinion(self) -> SecondOpinion:
        """Limits of what a certificate may say, without samples. Raises `BadInput` for a plan that has none."""
        return SecondOpinion(certification.law_of(self.mechanism, self.participation).at(self.noise_multiplier))

    @property
    def epsilon(self) -> float:
        """epsilon of the planned charge at the plan's delta."""
        return self.loss.epsilon(self.plan.privacy.delta)

    @property
    def against_server(self) -> PrivacyLoss | None:
        """The whole run's loss to the server alone, which the blinder's noise decides; None where it reads sums."""
        return self.plan.aggregation.against_server(self.loss, self.resolution)

    @property
    def stored_price(self) -> StoredPrice:
        """What is stored with a run of this cost."""
        return StoredPrice(self.loss, self.noise_multiplier, self.certificate)

    def in_full(self, loss: PrivacyLoss) -> PrivacyLoss:
        """Return the charge for `loss`, that of real-valued Gaussian noise: discrete noise costs a little
        more (`discretised`), and floats add their resolution.
        """
        discrete, leaks = self.plan.privacy.rounding == "discrete", PrivacyLoss(leak=self.plan.leak)
        return Execution(self.resolution, discrete, self.sampling.holds).in_full(loss) + leaks

    def charged(self, loss: PrivacyLoss, before: PrivacyLoss | None = None) -> PrivacyLoss:
        """Return `in_full`, to the last bit a part of what was planned, and no less than `before`, spent so far.

        Another processor adds up to other last digits. The run's rounds are then still events of the planned
        noise, its charge does not shrink, and its last round costs no more than what it reserved.
        """
        return self.in_full(loss).within(PrivacyLoss() if before is None else before, self.loss)

    @property
    def leak(self) -> float | None:
        """d of the run's price where its noise decides it: that of discrete noise, 0 for Gaussian noise.

        None where it is chosen when the run is admitted: with amplification by sampling.
        """
        return leak_of_noise(self.loss, self.plan.privacy.rounding == "discrete")

    def priced(self) -> dict[float, float]:
        """Return {d / delta: epsilon of its price at d, alone in a population with D = d}; {} unless sampled.

        Across runs a sampled run is charged its price (`filter`), which is above its epsilon: by a percent
        for runs of many rounds, by several times for one or a few.
        """
        delta = self.plan.privacy.delta
        if not self.loss.words.price:
            return {}
        return {
            share: gauge(price(self.loss, share * delta).mu_squared, delta, share * delta) for share in PRICED_SHARES
        }

    def realised(self) -> RealisedCharge:
        """Return a fresh running charge for one execution, from the users who take part; see `charged`."""
        setting = (self.mechanism, self.participation, self.noise_multiplier, self.plan.privacy.adjacency)
        return RealisedCharge(*setting, whole=self.whole)

    # -- what single users pay (`individual`) ----------------------------------------------------------------

    @cached_property
    def _column(self) -> float:
        """The largest squared norm of a column of C."""
        return float(self.mechanism.sensitivity(Single())) ** 2

    def increments(self, growth: Growth) -> Units:
        """Return what one round costs its users, from what it adds to their norms (`RealisedCharge.growth`),
        shape (m,).

        Equation (1) of `individual`, never below it: float64's round-off is charged on top, and each is
        rounded up. The resolution of floats is charged with a user's first round: without any, nothing
        differs between the two worlds.
        """
        # growth.earlier products of columns, each at most the largest squared norm, were added in float64.
        bound = round_off(self.mechanism.rounds) * self._column * (1 + 2.0 * growth.earlier)
        factor = adjacency_factor(self.plan.privacy.adjacency) / self.noise_multiplier
        mu_squared = (growth.squared + bound) * factor**2
        if self.plan.privacy.rounding == "discrete":
            mu_squared = mu_squared * discretised.SHARE * (1 + 1e-15)
        return units_up(mu_squared + np.where(growth.earlier == 0, self.resolution, 0.0))

    def most_units(self) -> int:
        """Return the most that all increments of one user add up to, whatever allowed rounds the user takes part in."""
        count = self.participation.separation_and_count(self.mechanism.rounds)[1]
        return int(units_up(np.asarray(self.loss.mu_squared * (1 + unit_margin(self.mechanism, count))))) + count

    def tight_units(self) -> tuple[int, ...]:
        """Return what 1, 2, ..., k rounds cost a user who takes part as early and as often as allowed.

        The feasibility of a run is judged by these (spec/budgets.md 2.3). Beyond some rounds each takes its
        share of the most, which is the cost of all k: a round costs more with every round before it.
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
        # Convex in j, so a straight line from 0 to the cost of all k never lies below a pattern's own cost.
        most = self.most_units()
        return (*costs, *(max(total, -(-most * j // count)) for j in range(len(costs) + 1, count + 1)))

    def describe(self) -> list[tuple[str, str]]:
        """Return (item, value) for people; every figure is one of `to_json` or `priced`."""
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
            (
                "epsilon",
                f"{up(self.epsilon, 6):.6g} at delta {decimal(fields['delta'])}, {fields['adjacency']}{amplified}",
            ),
        ]
        if amplified:
            rows.append(("epsilon without amplification", f"{up(fields['epsilon_without_amplification'], 6):.6g}"))
        rows += self._describe_sampler(fields["epsilon_without_samples"])
        if priced := self.priced():
            shown = ", ".join(f"{up(epsilon, 6):.6g} at {share:g}" for share, epsilon in priced.items())
            rows.append(("epsilon as priced across runs", f"{shown} of delta given to its leak"))
        if self.loss.leak:
            rows.append(("mu, and leak", f"{up(self.loss.mu, 6):.6g}, {decimal(self.loss.leak, 6)}"))
        elif not amplified:
            mu = "-" if self.loss.gdp is None else f"{up(self.loss.gdp, 6):.6g}"
            rows += [
                ("zCDP rho, GDP mu", f"{up(fields['rho_zcdp'], 6):.6g}, {mu}"),
                ("epsilon by zCDP (looser)", f"{up(fields['epsilon_zcdp'], 6):.6g}"),
            ]
        return [
            *rows,
            (
                "noise in a prefix sum",
                f"max {fields['prefix_noise_max']:.6g}, root mean {fields['prefix_noise_rms']:.6g} (clip 1)",
            ),
            *(
                []
                if self.plan.metrics is None
                else [(f"metrics ({', '.join(self.plan.metrics.names)})", f"noise + {100 * self.metrics_noise:.3g} %")]
            ),
            ("buffers of model size", str(fields["buffers"])),
            *self._describe_ring(),
            *self._describe_server(),
        ]

    def _describe_ring(self) -> list[tuple[str, str]]:
        if self.ring is None:
            return []
        k, g = self.ring.bits, self.ring.spacing
        return [("masked words", f"k = {k} bits, g = 2^{math.frexp(g)[1] - 1}; noise + {100 * self.ring.cost:.3g} %")]

    def _describe_server(self) -> list[tuple[str, str]]:
        if (loss := self.plan.aggregation.under_blinder(self.loss, self.resolution)) is None:
            return []
        alone = "" if self.plan.aggregation.party else "none, for the plan names no blinder; with one "
        more = 100 * (self.plan.aggregation.widening - 1)
        by = f"{alone}{up(loss.epsilon(self.plan.privacy.delta), 6):.6g}, by the blinder's own noise"
        return [("epsilon against the server", f"{by}: noise + {more:.3g} %")]

    def _describe_sampler(self, limits: tuple[float, float] | None) -> list[tuple[str, str]]:
        """What a charge rests on that secret draws earn. limits: of a certified one, by `second_opinion`."""
        rows = [("assumption", ASSUMPTION)] if self.plan.secret else []
        if self.certificate is not None and limits is not None:
            curve, (removed, added) = self.certificate.curve, self.certificate.curve.samples
            bound = (
                f"Monte Carlo of the dominating pair, {removed + added:,} samples; certified, and "
                f"{decimal(curve.failure, 2)} that it fails is part of delta"
                if curve.failure
                else WITHOUT_SAMPLES
            )
            between = "without a sample, of real-valued noise: epsilon is at least {:.6g} and at most {:.6g}"
            return [
                *rows,
                ("bound used", bound),
                ("second opinion", between.format(down(limits[0], 6), up(limits[1], 6))),
            ]
        words = self.loss.words
        for sampler, bound in zip(words.samplers, words.bounds, strict=True) if self.plan.secret else ():
            rows += [("sampler", sampler), ("bound used", bound)]
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
        multiplier = self.noise_multiplier * self.plan.aggregation.widening
        return multiplier * self.mechanism.prefix_row_norms(self.plan.run.rounds)

    @property
    def prefix_noise_rms(self) -> float:
        """The root mean square of `prefix_noise`."""
        return float(np.sqrt(np.mean(np.square(self.prefix_noise))))

    @property
    def metrics_noise(self) -> float:
        """The share by which metrics widen the noise on the model: sqrt(1 + sum w^2) - 1 with flat clipping."""
        return self.plan.riders.joint_bound / self.plan.clipping.joint_bound - 1.0

    def to_json(self) -> dict[str, Any]:
        """Return what `fieldfare plan --json` prints.

        `max_error` and `mean_error` are the noise in a prefix sum at sigma = sensitivity, which compares
        mechanisms at equal privacy. `prefix_noise_max` and `prefix_noise_rms` are the same at this plan's
        noise multiplier. All are for clip norm 1.
        """
        rounds, delta = self.plan.run.rounds, self.plan.privacy.delta
        exact = self.mechanism.sensitivity(self.participation)
        rho = self.loss.zcdp
        factor = adjacency_factor(self.plan.privacy.adjacency)
        return {
            "mechanism": self.mechanism.kind,
            "rounds": rounds,
            "noise_multiplier": self.noise_multiplier,
            "sensitivity": self.sensitivity,
            "sensitivity_bound": exact.bound,
            "sensitivity_argument": exact.how,
            "rho_zcdp": rho,
            "mu_gdp": self.loss.gdp,
            "epsilon": self.epsilon,
            "epsilon_zcdp": None if rho is None else zcdp_epsilon(rho, delta),
            "delta": delta,
            "adjacency": self.plan.privacy.adjacency,
            "rounding": self.plan.privacy.rounding,
            "resolution_mu_squared": self.resolution,
            "amplified_by_sampling": bool(self.loss.words.price),
            "epsilon_without_amplification": self.loss.without_amplification().epsilon(delta),
            "certificate": None if self.certificate is None else self.certificate.curve.to_json(),
            "epsilon_without_samples": None if self.certificate is None else self.second_opinion.epsilons(delta),
            "max_error": factor * self.mechanism.max_error(rounds, self.participation),
            "mean_error": factor * self.mechanism.mean_error(rounds, self.participation),
            "prefix_noise_max": float(self.prefix_noise.max()),
            "prefix_noise_rms": self.prefix_noise_rms,
            **({} if self.plan.metrics is None else {"metrics_noise": self.metrics_noise}),
            "buffers": self.mechanism.buffers,
            **({} if self.ring is None else {"masked_words": asdict(self.ring)}),
            **({} if self.against_server is None else {"epsilon_server": self.against_server.epsilon(delta)}),
            "participation": self.plan.participation.model_dump(exclude_none=True),
            "digest": self.plan.digest(),
        }


def unit_margin(mechanism: Mechanism, count: int) -> float:
    """Return by what share `count` increments may exceed the planned mu^2 before they are rounded to units."""
    # 2^-40: patterns and the planned maximum may be found by other formulas.
    return 1.02 * round_off(mechanism.rounds) * count * count + 2.0**-40
