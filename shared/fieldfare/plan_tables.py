"""The tables of a plan whose keys have no kinds: each is checked by itself, what they say together by `plan`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from fieldfare.errors import Conflict, OutOfRange, WrongForm
from fieldfare.hashing import uniforms
from fieldfare.names import LONGEST_NAME, NAME, is_line
from fieldfare.noise.discrete import Rounding
from fieldfare.participation import (
    CALLED,
    Adjacency,
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    FixedOrder,
    MinSeparation,
    Participation,
    Poisson,
    RandomAllocation,
    Single,
    TruncatedPoisson,
)
from fieldfare.registry import NORM, PROBABILITY, ROUNDS, SECONDS, USERS, Table


class PrivacySpec(Table):
    """`[privacy]`: whose budget, and how much of it. Exactly one of `epsilon` and `noise_multiplier`."""

    population: str = Field(
        min_length=1, max_length=LONGEST_NAME, pattern=NAME, description="whose budget the run is charged to"
    )
    epsilon: float | None = Field(
        default=None, ge=1e-100, le=1000, description="of the run: the least noise that keeps it is added"
    )
    noise_multiplier: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="sigma: standard deviation of the noise instead of epsilon, which then follows",
        json_schema_extra={"unit": "clip norms"},
    )
    delta: float = Field(gt=0, lt=1, description="of the run; below 1 / users", json_schema_extra=PROBABILITY)
    adjacency: Adjacency = Field(
        default="zero_out",
        description="how neighbours differ: all updates of a user are zero, the user is there or not (sampling only), "
        "or other data (twice the sensitivity)",
    )
    accounting: Literal["individual", "worst-case"] = Field(
        default="individual",
        description="charge each user what that user took part in, or all users the worst; add_remove: worst-case only",
    )
    noise_source: Literal["aes-256-ctr", "philox-4x32-10"] = Field(
        default="aes-256-ctr", description="generator of the noise; Philox is faster on a GPU and not cryptographic"
    )
    rounding: Rounding = Field(
        default="grid", description="of noised sums; discrete: exact noise on the grid; none: floats"
    )

    @model_validator(mode="before")
    @classmethod
    def _secret_presence_is_charged_by_the_worst_case(cls, value: object) -> object:
        """Add the worst case to `add_remove`: who took part is secret, so no charge can follow from it."""
        if isinstance(value, Mapping) and value.get("adjacency") == "add_remove":
            return {"accounting": "worst-case", **value}
        return value

    @model_validator(mode="after")
    def _individual_needs_a_public_record(self) -> Self:
        if self.adjacency == "add_remove" and self.accounting == "individual":
            raise Conflict(
                "privacy.accounting = 'individual'",
                "under adjacency 'add_remove' who took part is secret, and a user's odometer would tell it.",
                "worst-case",
            )
        return self

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give exactly one of epsilon and noise_multiplier")
        return self


class TuningSpec(Table):
    """`[tuning]`: a share of the users is set apart for trials, and all others for the model that is kept.

    A hash of a user's name, keyed with the population's, decides; no data do. So a user of the share pays for
    trials, and another for the rest. The split saves budget and promises nothing: whoever takes part pays, in
    every run.
    """

    share: float = Field(gt=0, lt=1, description="of the users, for trials; keep it, or some users pay for both")
    users: Literal["others", "share"] = Field(
        default="others", description="who trains: those who are not of the share, or, in a trial, the share"
    )

    def takes(self, population: str, names: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which users, by pseudonym, shape (n,), take part in a run of this plan; the same on every machine."""
        key = int.from_bytes(hashlib.sha256(f"fieldfare.tuning {population}".encode()).digest()[:8], "little")
        tunes: NDArray[np.bool_] = uniforms(names, key) < self.share
        return tunes if self.users == "share" else ~tunes

    def size(self, users: int) -> int:
        """Estimate how many of `users` users take part."""
        tuning = round(self.share * users)
        return tuning if self.users == "share" else users - tuning


MOST_SECONDS: Final = 1e7


def schedule_for(round_timeout: float) -> str:
    """Return what a refusal names for a `run.round_seconds` that is missing, or too small for this `round_timeout`."""
    waits = min(round_timeout, MOST_SECONDS / 4)
    return f"{3 * waits:g}" + (f" with round_timeout = {waits:g}" if waits < round_timeout else "")


class RunSpec(Table):
    """`[run]`: what is trained, for how long, with how many users a round."""

    name: str | None = Field(default=None, min_length=1, max_length=100, description="what people call the run")
    tags: tuple[Annotated[str, Field(min_length=1, max_length=40, pattern=NAME)], ...] = Field(
        default=(), max_length=10, description="words to find runs by"
    )
    task: str = Field(
        default="",
        description="what is trained: a task's name, or package.module:attribute; empty: a Flower app's arrays",
    )
    rounds: int = Field(ge=1, le=1_000_000, description="committed rounds of the run", json_schema_extra=ROUNDS)
    cohort: int = Field(
        ge=1, description="planned users a round: the fixed denominator of every mean", json_schema_extra=USERS
    )
    min_reports: int | None = Field(
        default=None, ge=1, description="fewer reports void the round; default 3/4 cohort", json_schema_extra=USERS
    )
    min_available: int | None = Field(
        default=None, ge=1, description="users to wait for; default cohort; not add_remove", json_schema_extra=USERS
    )
    over_selection: float = Field(default=1.0, ge=1.0, le=10.0, description="users asked per user planned")
    round_timeout: float = Field(
        default=600.0, gt=0, description="how long a round waits for reports", json_schema_extra=SECONDS
    )
    round_seconds: float | None = Field(
        default=None,
        gt=0,
        le=MOST_SECONDS,
        description="add_remove: rounds are released at multiples of this from the start",
        json_schema_extra=SECONDS,
    )
    evaluate_every: int = Field(
        default=1, ge=1, description="rounds between held-out scores; the last always has one", json_schema_extra=ROUNDS
    )
    seed: int = Field(default=0, ge=0, description="of the initial model and the order of local batches; public")
    trust_node_ids: bool = Field(default=False, description="rely on user ids that unauthenticated nodes claim")
    accept_noise: bool | None = Field(default=None, description="run it although its noise is above its signal")
    noise_seed: int | None = Field(default=None, ge=0, description="fixed noise: NOT PRIVATE, never charged")

    @field_validator("name")
    @classmethod
    def _is_a_line(cls, name: str | None) -> str | None:
        if name is not None and not is_line(name):
            raise WrongForm(f"run.name = {name!r}", "a name is one line of printable characters.", "my first run")
        return name

    @field_validator("task")
    @classmethod
    def _is_a_name(cls, task: str) -> str:
        if "?" in task:
            raise WrongForm(f"run.task = {task!r}", "a name has no parameters in it.", "a table [task]")
        return task

    @model_validator(mode="after")
    def _goal_within_cohort(self) -> Self:
        if self.min_reports is not None and self.min_reports > self.cohort:
            above = f"must be at most cohort = {self.cohort}."
            raise OutOfRange(f"run.min_reports = {self.min_reports}", above, str(self.cohort))
        return self


# Keys of `[participation]` that are written where they say something: plans of versions without them keep
# their digests.
_LATER_KEYS: Final = ("bins", "cap", "enrolled", "callable")


class ParticipationSpec(Table):
    """`[participation]`: the promise about how often one user takes part, which the selector enforces."""

    scheme: Literal[
        "single",
        "min-separation",
        "fixed-order",
        "poisson",
        "cyclic-poisson",
        "balls-in-bins",
        "random-allocation",
        "b-min-sep",
        "truncated-poisson",
    ] = Field(
        default="single",
        description="how often a user takes part. single: once; min-separation: again after a pause; fixed-order: at "
        "the same place of every period; poisson: at random; cyclic-poisson: at random within groups; balls-in-bins: "
        "in one secret round of every block, the same in each; random-allocation: in one drawn afresh for each block; "
        "b-min-sep: at random after a pause; truncated-poisson: at random, up to a cap on the cohort",
    )
    separation: int | None = Field(
        default=None,
        ge=1,
        description="min-separation, b-min-sep: fewest rounds from one participation of a user to the next",
        json_schema_extra=ROUNDS,
    )
    max_participations: int | None = Field(
        default=None,
        ge=1,
        description="min-separation, fixed-order: how often a user takes part; as often as it fits if left out",
    )
    period: int | None = Field(
        default=None, ge=1, description="fixed-order: rounds of one pass over the users", json_schema_extra=ROUNDS
    )
    groups: int | None = Field(
        default=None, ge=1, description="cyclic-poisson: groups of users whose turn comes in order"
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="poisson, cyclic-poisson, truncated-poisson, b-min-sep: that a user (of the group; after the "
        "pause) is included in a round",
        json_schema_extra=PROBABILITY,
    )

    bins: int | None = Field(
        default=None,
        ge=1,
        description="balls-in-bins, random-allocation: rounds of a block; each user draws one of them, for the whole "
        "run or for each block",
        json_schema_extra=ROUNDS,
    )
    cap: int | None = Field(
        default=None,
        ge=1,
        description="truncated-poisson: most users of a round; where more are drawn, a secret lot keeps this many",
        json_schema_extra={"unit": "users"},
    )
    enrolled: int | None = Field(
        default=None,
        ge=1,
        le=2**53,
        description="truncated-poisson: a statement of the most users that there ever are, which is public; a round is "
        "refused once there are more",
        json_schema_extra={"unit": "users"},
    )
    callable: bool = Field(
        default=False,
        description="balls-in-bins, random-allocation, b-min-sep, truncated-poisson: a statement that users can be "
        "called at will, whenever their round comes; a simulation needs none",
    )

    # scheme -> (its participation, the fields that it needs, the fields that it may also have)
    _SCHEMES: ClassVar[Mapping[str, tuple[Callable[..., Participation], set[str], set[str]]]] = {
        "single": (Single, set(), set()),
        "min-separation": (MinSeparation, {"separation"}, {"max_participations"}),
        "fixed-order": (FixedOrder, {"period"}, {"max_participations"}),
        "poisson": (Poisson, {"rate"}, set()),
        "cyclic-poisson": (CyclicPoisson, {"groups", "rate"}, set()),
        "balls-in-bins": (BallsInBins, {"bins"}, set()),
        "random-allocation": (RandomAllocation, {"bins"}, set()),
        "b-min-sep": (BMinSep, {"separation", "rate"}, set()),
        "truncated-poisson": (TruncatedPoisson, {"rate", "cap", "enrolled"}, set()),
    }

    @model_serializer(mode="wrap")
    def _dump_without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        table: dict[str, object] = dump(self)
        return {key: value for key, value in table.items() if key not in _LATER_KEYS or value}

    @model_validator(mode="after")
    def _fields_of_scheme(self) -> Self:
        given = {name for name, value in self if name != "scheme" and value is not None and value is not False}
        _, needed, allowed = self._SCHEMES[self.scheme]
        allowed = allowed | ({"callable"} if self.scheme in CALLED else set())
        if missing := needed - given:
            raise ValueError(f"scheme {self.scheme!r} needs {', '.join(sorted(missing))}")
        if extra := given - needed - allowed:
            takes = ", ".join(sorted(needed | allowed)) or "nothing else"
            raise ValueError(f"scheme {self.scheme!r} does not take {', '.join(sorted(extra))}; it takes {takes}")
        return self

    def build(self) -> Participation:
        """Return the participation patterns that this scheme allows."""
        participation, needed, allowed = self._SCHEMES[self.scheme]
        return participation(**{name: getattr(self, name) for name in needed | allowed})


class ClientSpec(Table):
    """`[client]`: local training. `steps` instead of `epochs` caps the number of batches."""

    epochs: int | None = Field(
        default=None, ge=1, le=10_000, description="passes over a user's rows; default 1 without steps"
    )
    steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="instead of epochs: most batches of a user",
        json_schema_extra={"unit": "batches"},
    )
    batch_size: int = Field(default=16, ge=1, description="of a local step", json_schema_extra={"unit": "rows"})
    learning_rate: float = Field(default=0.1, gt=0, description="of local SGD")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of local SGD; starts at 0 with every user")
    weight_decay: float = Field(default=0.0, ge=0, description="of local SGD: L2 penalty on the parameters")
    gradient_clip: float | None = Field(
        default=None, gt=0, description="longest gradient of a local step", json_schema_extra=NORM
    )
    proximal: float = Field(default=0.0, ge=0, description="FedProx mu: pull of a local step to the round's model")
    engine: Literal["auto", "batched", "loop"] = Field(
        default="auto", description="many users at once, or one after another; auto: many where the model allows it"
    )
    workers: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = Field(
        default="auto",
        description="training processes of a node, at most one a core; auto: as many as prove faster than one, "
        "where they can be forked",
    )
    isolation: Literal["auto", "process", "none"] = Field(
        default="auto",
        description="each user in a forked process of its own; auto: a task under add_remove whose Python has to see "
        "users, where the machine can",
    )

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
    """`[availability]`: when simulated users can be reached and how fast they answer. Public; refused on real
    nodes.

    In round t, user u can be asked with probability reachable (1 + daily_swing cos 2 pi (t / rounds_per_day -
    h_u)), cut at 1. h_u is uniform in [0, time_zones] and fixed for the user.

    An asked user answers with probability 1 - dropout, after response_seconds exp(speed_spread N_u), where
    N_u is normal and fixed for the user. With probability `stragglers` the answer takes `straggler_slowdown`
    times as long. An answer after run.round_timeout is lost. The first run.cohort answers count.

    All of it is drawn from (run.seed, user, round): neither the nodes nor any user's data influence it.
    """

    reachable: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="mean over the day: that a user can be asked",
        json_schema_extra=PROBABILITY,
    )
    daily_swing: float = Field(default=0.0, ge=0, le=1, description="relative height of the daily wave in `reachable`")
    rounds_per_day: int = Field(
        default=24, ge=1, le=1_000_000, description="length of the daily wave", json_schema_extra=ROUNDS
    )
    time_zones: float = Field(
        default=0.0, ge=0, le=1, description="over which users' days begin", json_schema_extra={"unit": "days"}
    )
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="that an asked user never answers", json_schema_extra=PROBABILITY
    )
    response_seconds: float = Field(
        default=1.0,
        gt=0,
        description="median time of an answer; simulated, so no process waits for it",
        json_schema_extra=SECONDS,
    )
    speed_spread: float = Field(default=0.0, ge=0, le=5, description="standard deviation of log speed between users")
    stragglers: float = Field(
        default=0.0, ge=0, le=1, description="that an answer is a slow one", json_schema_extra=PROBABILITY
    )
    straggler_slowdown: float = Field(default=10.0, ge=1, le=1e6, description="how many times as long a slow one takes")
