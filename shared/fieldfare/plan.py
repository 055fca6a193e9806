"""The training plan: one model tree, read from TOML, validated before anything happens.

A plan says everything that decides what a run releases and what it costs. Its digest names it in the ledger.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import MechanismSpec
from fieldfare.mechanisms.registry import parse as parse_mechanism
from fieldfare.participation import Adjacency, CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from fieldfare.privatise import Rounding
from fieldfare.registry import Table, bad_input


class PrivacySpec(Table):
    """`[privacy]`: whose budget, and how much of it. Exactly one of `epsilon` and `noise_multiplier`."""

    population: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    epsilon: float | None = Field(default=None, gt=0, le=1000)
    noise_multiplier: float | None = Field(default=None, gt=0, le=1e6)
    delta: float = Field(gt=0, lt=1)
    adjacency: Adjacency = "zero_out"
    noise_source: Literal["aes-256-ctr", "philox-4x32-10"] = "aes-256-ctr"
    rounding: Rounding = Field(
        default="grid", description="of released sums; discrete: exact noise on the grid, charged by zCDP; none: floats"
    )

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give exactly one of epsilon and noise_multiplier")
        return self


class RunSpec(Table):
    """`[run]`: what is trained, for how long, with how many users a round."""

    task: str = Field(min_length=1)
    rounds: int = Field(ge=1, le=1_000_000)
    cohort: int = Field(ge=1, description="planned users a round: the fixed denominator of every mean")
    min_reports: int | None = Field(default=None, ge=1, description="fewer reports void the round; default 3/4 cohort")
    min_available: int | None = Field(default=None, ge=1, description="users that must be there; default cohort")
    over_selection: float = Field(default=1.0, ge=1.0, le=10.0, description="users asked per user planned")
    round_timeout: float = Field(default=600.0, gt=0, description="seconds to wait for reports")
    evaluate_every: int = Field(default=1, ge=1, description="rounds between held-out scores; the last always has one")
    seed: int = Field(default=0, ge=0, description="of the initial model and the order of local batches; public")
    trust_node_ids: bool = Field(default=False, description="rely on user ids that unauthenticated nodes claim")
    noise_seed: int | None = Field(default=None, ge=0, description="fixed noise: NOT PRIVATE, never charged")

    @model_validator(mode="after")
    def _goal_within_cohort(self) -> Self:
        if self.min_reports is not None and self.min_reports > self.cohort:
            raise ValueError(f"min_reports = {self.min_reports} is above cohort = {self.cohort}")
        return self


class ParticipationSpec(Table):
    """`[participation]`: the promise about how often one user takes part, which the selector enforces."""

    scheme: Literal["single", "min-separation", "fixed-order", "poisson", "cyclic-poisson"] = "single"
    separation: int | None = Field(default=None, ge=1)
    max_participations: int | None = Field(default=None, ge=1)
    period: int | None = Field(default=None, ge=1)
    groups: int | None = Field(default=None, ge=1)
    rate: float | None = Field(default=None, gt=0, le=1)

    _NEEDS: ClassVar = {
        "single": (set(), set()),
        "min-separation": ({"separation"}, {"max_participations"}),
        "fixed-order": ({"period"}, {"max_participations"}),
        "poisson": ({"rate"}, set()),
        "cyclic-poisson": ({"groups", "rate"}, set()),
    }

    @model_validator(mode="after")
    def _fields_of_scheme(self) -> Self:
        given = {name for name, value in self if name != "scheme" and value is not None}
        needed, allowed = self._NEEDS[self.scheme]
        if missing := needed - given:
            raise ValueError(f"scheme {self.scheme!r} needs {', '.join(sorted(missing))}")
        if extra := given - needed - allowed:
            takes = ", ".join(sorted(needed | allowed)) or "nothing else"
            raise ValueError(f"scheme {self.scheme!r} does not take {', '.join(sorted(extra))}; it takes {takes}")
        return self

    def build(self) -> Participation:
        """The participation patterns that this scheme allows."""
        if self.scheme == "min-separation" and self.separation:
            return MinSeparation(self.separation, self.max_participations)
        if self.scheme == "fixed-order" and self.period:
            return FixedOrder(self.period, self.max_participations)
        if self.scheme == "poisson" and self.rate:
            return Poisson(self.rate)
        if self.scheme == "cyclic-poisson" and self.groups and self.rate:
            return CyclicPoisson(self.groups, self.rate)
        return Single()


class ClientSpec(Table):
    """`[client]`: local training. `steps` instead of `epochs` caps the number of batches."""

    epochs: int | None = Field(default=None, ge=1, le=10_000)
    steps: int | None = Field(default=None, ge=1, le=1_000_000)
    batch_size: int = Field(default=16, ge=1)
    learning_rate: float = Field(default=0.1, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    gradient_clip: float | None = Field(default=None, gt=0, description="L2 norm of each local step's gradient")
    proximal: float = Field(default=0.0, ge=0, description="FedProx mu")
    engine: Literal["auto", "batched", "loop"] = "auto"
    workers: int = Field(default=1, ge=1, le=256, description="training processes of a node, at most one a core")

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self

    @property
    def local_epochs(self) -> int | None:
        """Passes over a user's data; None where `steps` counts batches instead."""
        return None if self.steps is not None else (self.epochs or 1)


class AvailabilitySpec(Table):
    """`[availability]`: how simulated users come, go and dawdle. Public, and never used on a real federation.

    User u can be asked in round t with probability reachable (1 + daily_swing cos 2 pi (t / rounds_per_day - h_u)), at
    most 1, where h_u is uniform in [0, time_zones] and stays the user's. One who is asked answers with probability
    1 - dropout, after response_seconds exp(speed_spread N_u) (N_u normal, the user's own), `straggler_slowdown` times
    that with probability `stragglers`; later than run.round_timeout is never. The first run.cohort answers count.
    Everything is drawn from (run.seed, user, round): neither the nodes nor any user's data have a say in it.
    """

    reachable: float = Field(default=1.0, gt=0, le=1, description="mean probability that a user can be asked")
    daily_swing: float = Field(default=0.0, ge=0, le=1)
    rounds_per_day: int = Field(default=24, ge=1, le=1_000_000)
    time_zones: float = Field(default=0.0, ge=0, le=1, description="share of a day over which users' days begin")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="probability that one who was asked never answers")
    response_seconds: float = Field(default=1.0, gt=0, description="median, simulated: nobody waits for it")
    speed_spread: float = Field(default=0.0, ge=0, le=5, description="standard deviation of log speed between users")
    stragglers: float = Field(default=0.0, ge=0, le=1)
    straggler_slowdown: float = Field(default=10.0, ge=1, le=1e6)


class Plan(Table):
    """One training, described completely. See README, "A plan file"."""

    privacy: PrivacySpec
    run: RunSpec
    participation: ParticipationSpec = ParticipationSpec()
    mechanism: SerializeAsAny[MechanismSpec]
    clipping: dict[str, Any] = Field(default_factory=lambda: {"kind": "flat", "norm": 1.0})
    server_optimizer: dict[str, Any] = Field(default_factory=lambda: {"kind": "sgd", "learning_rate": 1.0})
    client: ClientSpec = ClientSpec()
    availability: AvailabilitySpec | None = None

    @field_validator("mechanism", mode="before")
    @classmethod
    def _by_kind(cls, value: object) -> MechanismSpec:
        if not isinstance(value, Mapping | MechanismSpec):
            raise BadInput(f"mechanism = {value!r}", "must be a table with a kind.")
        return parse_mechanism(value)

    @model_validator(mode="after")
    def _participation_fits(self) -> Self:
        spec, rounds = self.participation, self.run.rounds
        apart, most = spec.separation or spec.period, spec.max_participations
        if apart is not None and most is not None and most * apart > rounds + apart - 1:
            raise BadInput(
                f"participation.max_participations = {most}",
                f"{most} rounds that are {apart} apart do not fit into {rounds} rounds.",
                str(-(-rounds // apart)),
            )
        return self

    @model_validator(mode="after")
    def _sampling_is_left_alone(self) -> Self:
        """Amplification by sampling holds for the sampler as it is, not for one that looks at what it drew."""
        scheme = self.participation.scheme
        if self.samples:
            if self.run.over_selection != 1.0:
                raise BadInput(
                    f"run.over_selection = {self.run.over_selection}",
                    f"scheme {scheme!r} includes every user independently; asking more users would be another scheme.",
                    "1.0",
                )
            if self.run.min_reports is not None:
                raise BadInput(
                    f"run.min_reports = {self.run.min_reports}",
                    f"scheme {scheme!r} may not draw again because few users reported: that would not be the sampler "
                    "whose privacy is accounted.",
                    "leave it out",
                )
        elif self.privacy.adjacency == "add_remove":
            raise BadInput(
                "privacy.adjacency = 'add_remove'",
                f"scheme {scheme!r} acts on how many users there are, which this adjacency protects.",
                "zero_out, or participation.scheme = 'poisson'",
            )
        return self

    @property
    def samples(self) -> bool:
        """Whether users are included independently at random (amplification by sampling may be charged)."""
        return self.participation.scheme in ("poisson", "cyclic-poisson")

    @property
    def report_goal(self) -> int:
        """Fewest reports that a released round may have; 0 where voiding would change the sampler."""
        if self.samples:
            return 0
        return self.run.min_reports if self.run.min_reports is not None else max(1, (3 * self.run.cohort) // 4)

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Plan:
        """Validate a mapping. Raises `BadInput` naming key, value and nearest allowed value."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise bad_input(error, "", cls) from None

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Validate a plan file's text. Raises `BadInput`."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput("plan", f"is not TOML: {error}.") from None
        return cls.parse(table)

    @classmethod
    def stored(cls, table: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` wrote, by this version or an older one. Raises `BadInput`."""
        privacy = table.get("privacy")
        if isinstance(privacy, Mapping) and "rounding" not in privacy:
            table = {**table, "privacy": {**privacy, "rounding": "none"}}
        return cls.parse(table)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, defaults spelled out. To be read by `stored`.

        What older versions did not know is left out where it says what they did, so that their plans keep their digest.
        """
        table = self.model_dump(mode="json", exclude={"availability"} if self.availability is None else set())
        if self.privacy.rounding == "none":
            del table["privacy"]["rounding"]
        return json.dumps(table, sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the plan's name in the ledger."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()
