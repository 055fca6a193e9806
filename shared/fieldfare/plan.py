"""The training plan: one model tree, read from TOML, validated before anything happens.

A plan says everything that decides what a run shows and what it costs. Its digest names it in the ledger.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Field,
    FieldSerializationInfo,
    JsonValue,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from fieldfare import aggregation, clipping
from fieldfare.aggregation import PLAIN, AggregationSpec
from fieldfare.clipping import ClippingSpec
from fieldfare.errors import BadInput, WrongForm
from fieldfare.keywords import SIGNATURE, PlanType
from fieldfare.mechanisms.base import MechanismSpec
from fieldfare.mechanisms.registry import parse as parse_mechanism
from fieldfare.metrics import MetricsSpec, Riders
from fieldfare.names import QUESTION, RESOLUTION, task_reference
from fieldfare.participation import CALLED, hides_presence, users_asked
from fieldfare.plan_tables import (
    AvailabilitySpec,
    ClientSpec,
    ParticipationSpec,
    PrivacySpec,
    RunSpec,
    TuningSpec,
    schedule_for,
)
from fieldfare.refusals import bad_input, renamed, with_bounds, with_lines
from fieldfare.registry import Table

if TYPE_CHECKING:
    from fieldfare.task import Task

# The module whose `parse` reads a `[server_optimizer]` table. It is named, not imported: the core knows no server.
SERVER_OPTIMIZERS = "fieldfare_server.optimizers"

# The key of a run's stored plan with `client.workers`, where that is not 1. No digest covers it: the number
# of processes decides how fast a run is, not what it shows or costs.
WORKERS = "training_workers"
# What `Plan.run_json` adds to the plan.
RUN_KEYS = frozenset({RESOLUTION, WORKERS})
# The reply to a Poisson cohort may be as long as the clip norms of this many planned cohorts.
SAMPLED_COHORTS = 4


class ServerOptimizerSpec(Table):
    """What the core knows of a `[server_optimizer]` table. `fieldfare_server.optimizers` has the kinds."""

    kind: str

    def check(self, plan: Plan) -> None:
        """Raise `BadInput` where the rest of the plan does not fit. By default everything fits."""


def parse_server_optimizer(spec: ServerOptimizerSpec | Mapping[str, object]) -> ServerOptimizerSpec:
    """Return the spec of a mapping such as {"kind": "sgd"}. Raises `BadInput`, also without the server installed."""
    try:
        optimizers = importlib.import_module(SERVER_OPTIMIZERS)
    except ModuleNotFoundError as error:
        why = f"its kinds come with the server, which is not installed (there is no module {error.name!r})."
        near = "pip install 'fieldfare[server]'"
        raise BadInput("server_optimizer", why, near, code="server-not-installed") from error
    parsed: ServerOptimizerSpec = optimizers.parse(spec)
    return parsed


class Plan(Table, metaclass=PlanType):
    """One training, described completely and consistently. See docs/plan-files.md.

    From a file `Plan.from_toml(text)`. In Python the keys of `[privacy]` and `[run]` are keywords, the other
    tables are mappings, and `task` may be an object.

    Example:
        >>> import fieldfare as ff
        >>> plan = ff.Plan(task="digits", epsilon=4, delta=1e-3, rounds=4, cohort=20, mechanism="blt", clip=0.5,
        ...                client={"steps": 4, "learning_rate": 0.1}, population="demo")
        >>> plan.run.cohort, plan.mechanism.kind, plan.samples, plan.report_goal
        (20, 'blt', False, 15)
        >>> ff.Plan.from_toml("[privacy]\\nepsilon = 2000")
        Traceback (most recent call last):
        fieldfare.errors.BadInput: ...

    Args:
        task: a `Task` object or class, a known name, or "package.module:Class". Only this process can load an
            object: to resume or to audit the run elsewhere, use a class in a module.
        epsilon, delta: what the run may spend; or `noise_multiplier` (in clip norms) in place of epsilon.
        rounds: how many models are released.
        cohort: planned users a round, the fixed denominator of every mean.
        population: whose budget is charged.
        mechanism: a kind of noise, or a table such as {"kind": "nu", "nu": 0.01}.
        clip: the L2 norm of one user's update, or a `[clipping]` table.
        parameters: of the task, where it is named: its `[task]` table.
        participation: a scheme, or a table such as {"scheme": "min-separation", "separation": 16}.

    Raises:
        BadInput: names the key, the value and the nearest allowed value.

    `mechanism`, `clipping`, `server_optimizer` and `aggregation` hold the spec of their `kind`, parsed once.
    """

    SHOWN: ClassVar = ("from_toml", "parse", "to_json", "digest")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            task: str | Task | type[Task] = ...,
            rounds: int = ...,
            cohort: int = ...,
            delta: float = ...,
            epsilon: float | None = ...,
            noise_multiplier: float | None = ...,
            population: str = ...,
            mechanism: str | Mapping[str, object] | MechanismSpec = ...,
            clip: float | Mapping[str, object] | ClippingSpec = ...,
            participation: str | Mapping[str, object] | ParticipationSpec = ...,
            server_optimizer: str | Mapping[str, object] | ServerOptimizerSpec = ...,
            parameters: Mapping[str, object] = ...,
            client: Mapping[str, object] | ClientSpec = ...,
            availability: Mapping[str, object] | AvailabilitySpec | None = ...,
            metrics: Mapping[str, object] | MetricsSpec | None = ...,
            aggregation: str | Mapping[str, object] | AggregationSpec = ...,
            tuning: Mapping[str, object] | float | TuningSpec | None = ...,
            **keys_and_tables: object,
        ) -> None: ...

    privacy: PrivacySpec
    run: RunSpec
    task: dict[str, JsonValue] = Field(default={}, description="parameters of the task, which declares and checks them")
    participation: ParticipationSpec = ParticipationSpec()
    mechanism: SerializeAsAny[MechanismSpec]
    clipping: ClippingSpec = Field(default={"kind": "flat", "norm": 1.0}, validate_default=True)
    server_optimizer: ServerOptimizerSpec = Field(default={"kind": "sgd", "learning_rate": 1.0}, validate_default=True)
    client: ClientSpec = ClientSpec()
    availability: AvailabilitySpec | None = None
    metrics: MetricsSpec | None = None
    aggregation: SerializeAsAny[AggregationSpec] = PLAIN
    tuning: TuningSpec | None = None

    # name -> (the spec that was parsed, the table that it was parsed from)
    _written: dict[str, tuple[Table, Mapping[str, object]]] = PrivateAttr(default_factory=dict)
    _task: object = PrivateAttr(default=None)
    # What the digest has for `client.workers`: 1, but for plans that older versions stored with their number.
    _counted_workers: int = PrivateAttr(default=1)

    @field_validator("mechanism", "clipping", "server_optimizer", "aggregation", mode="before")
    @classmethod
    def _by_kind(cls, value: object, info: ValidationInfo) -> Table:
        parse: Mapping[str | None, Any] = {
            "mechanism": parse_mechanism,
            "clipping": clipping.parse,
            "server_optimizer": parse_server_optimizer,
            "aggregation": aggregation.parse,
        }
        spec: Table = parse[info.field_name](value)
        return spec

    @field_validator("task", mode="before")
    @classmethod
    def _is_json(cls, value: object) -> object:
        for key, parameter in value.items() if isinstance(value, Mapping) else ():
            try:
                json.dumps(parameter, allow_nan=False)
            except (TypeError, ValueError):
                takes = "must be text, a finite number, true or false, or a list or table of them."
                raise BadInput(f"task.{key} = {parameter!r}", takes, code="task-parameter") from None
        return value

    # Ledgers hold the digests of plans whose clipping and optimizer tables were stored as their authors wrote
    # them: without defaults, and with 1 where the author wrote 1 for 1.0. Both tables are therefore dumped as
    # written.

    @model_validator(mode="wrap")
    @classmethod
    def _remember_tables(cls, value: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        plan = validate(value)
        if isinstance(value, Mapping):
            for name in ("clipping", "server_optimizer"):
                spec, table = getattr(plan, name), value.get(name, cls.model_fields[name].default)
                plan._written[name] = spec, dict(table) if isinstance(table, Mapping) else spec.model_dump(mode="json")
        return plan

    @field_serializer("clipping", "server_optimizer")
    def _dump_as_written(self, spec: Table, info: FieldSerializationInfo) -> dict[str, object]:
        parsed, table = self._written.get(info.field_name, (None, {}))
        # `model_copy` may have put another spec in the place of the one that was parsed.
        return dict(table) if parsed is spec else spec.model_dump(mode="json")

    @model_validator(mode="after")
    def _participation_fits(self) -> Self:
        spec, rounds = self.participation, self.run.rounds
        apart, most = spec.separation or spec.period, spec.max_participations
        if apart is not None and most is not None and most * apart > rounds + apart - 1:
            raise BadInput(
                f"participation.max_participations = {most}",
                f"{most} rounds that are {apart} apart do not fit into {rounds} rounds.",
                str(-(-rounds // apart)),
                code="participation-does-not-fit",
            )
        return self

    @model_validator(mode="after")
    def _sampling_is_left_alone(self) -> Self:
        """Leave the sampler alone: amplification holds for it as it is, not for one that looks at what it drew."""
        scheme = self.participation.scheme
        if self.samples:
            if self.run.over_selection != 1.0:
                raise BadInput(
                    f"run.over_selection = {self.run.over_selection}",
                    f"scheme {scheme!r} includes every user independently; asking more users would be another scheme.",
                    "1.0",
                    code="no-over-selection",
                )
            if self.run.min_reports is not None:
                raise BadInput(
                    f"run.min_reports = {self.run.min_reports}",
                    f"scheme {scheme!r} may not draw again because few users reported: that would not be the sampler "
                    "whose privacy is accounted.",
                    "leave it out",
                    code="no-redraw",
                )
            if scheme in CALLED and self.privacy.adjacency != "add_remove":
                part = self.participation
                spaced = '{scheme = "single"}' if part.cap else f'{{scheme = "fixed-order", period = {part.bins}}}'
                if part.separation:
                    spaced = f'{{scheme = "min-separation", separation = {part.separation}}}'
                raise BadInput(
                    f"privacy.adjacency = {self.privacy.adjacency!r}",
                    f"scheme {scheme!r} earns its charge by keeping who takes part secret, and under this adjacency "
                    "that is public.",
                    f"add_remove; or participation = {spaced}",
                    code="presence-must-be-secret",
                )
            if (self.participation.bins or 0) > self.run.rounds:
                raise BadInput(
                    f"participation.bins = {self.participation.bins}",
                    f"a block is longer than the run's {self.run.rounds} rounds.",
                    str(self.run.rounds),
                    code="bins-exceed-rounds",
                )
            if scheme in CALLED and self.privacy.rounding == "discrete":
                raise BadInput(
                    "privacy.rounding = 'discrete'",
                    "amplification by sampling, which this plan is charged with, is not known for discrete noise.",
                    "rounding = 'grid'",
                    code="discrete-not-amplified",
                )
        elif self.privacy.adjacency == "add_remove":
            raise BadInput(
                "privacy.adjacency = 'add_remove'",
                f"scheme {scheme!r} acts on how many users there are, which this adjacency protects.",
                "zero_out; or scheme 'poisson' with its rate",
                code="acts-on-counts",
            )
        return self

    @model_validator(mode="after")
    def _presence_decides_nothing(self, info: ValidationInfo) -> Self:
        """Refuse, under `add_remove`, what lets the number of users decide whether a round takes place, or when."""
        run, seconds = self.run, self.run.round_seconds
        if self.privacy.adjacency != "add_remove":
            if seconds is not None:
                raise BadInput(
                    f"run.round_seconds = {seconds:g}",
                    f"only adjacency 'add_remove' hides times; under {self.privacy.adjacency!r} they are public.",
                    "leave it out",
                    code="times-public",
                )
            return self
        # Plans of earlier versions stay readable; the guarantee of their runs says what does not hold.
        if run.min_available is not None and not (info.context or {}).get("stored"):
            raise BadInput(
                f"run.min_available = {run.min_available}",
                "one user more or less would decide whether all others are summed or none, and adjacency 'add_remove' "
                "charges the change of one user.",
                "leave it out",
                code="min-available-shows-presence",
            )
        if seconds is not None and seconds <= 2 * run.round_timeout:
            raise BadInput(
                f"run.round_seconds = {seconds:g}",
                f"a round may wait run.round_timeout = {run.round_timeout:g} s for updates and as long for new nodes. "
                "A round that is late shows that it took long.",
                f"{schedule_for(run.round_timeout)}; or a shorter round_timeout",
                code="schedule-too-fast",
            )
        return self

    @model_validator(mode="after")
    def _optimizer_fits(self) -> Self:
        self.server_optimizer.check(self)
        self.aggregation.check(self.privacy, self.run, self.participation.scheme, self.samples)
        if self.metrics is not None:
            self.metrics.check(self.run.rounds)
        return self

    @model_validator(mode="after")
    def _a_share_pays_for_itself(self) -> Self:
        if self.tuning is not None and self.privacy.accounting == "worst-case":
            raise BadInput(
                f"tuning.share = {self.tuning.share:g}",
                "this plan is charged to all users alike, whoever takes part, so a share of them saves nothing.",
                "leave [tuning] out; or adjacency 'zero_out' with accounting 'individual'",
                code="share-saves-nothing",
            )
        return self

    @property
    def riders(self) -> Riders:
        """What rides beside each user's update in the noised vector."""
        return Riders.of(self.clipping, self.metrics)

    def takes(self, names: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which users, by pseudonym, shape (n,), this plan may ask: all of them without a `[tuning]` table."""
        if self.tuning is None:
            return np.ones(names.shape, np.bool_)
        return self.tuning.takes(self.privacy.population, names)

    def asks(self, users: NDArray[np.uint64] | int) -> NDArray[np.uint64] | int:
        """Return those of `users`, by pseudonym, whom this plan may ask; of a number of users, about how many."""
        if not isinstance(users, int):
            return users[self.takes(users)]
        return users if self.tuning is None else self.tuning.size(users)

    @property
    def most_users(self) -> int:
        """The most users that one reply may be the sum of."""
        if not self.samples:
            return users_asked(self.run.cohort, self.run.over_selection)
        cap = self.participation.cap
        return min(SAMPLED_COHORTS * self.run.cohort, cap) if cap else SAMPLED_COHORTS * self.run.cohort

    def told(self, clipping: ClippingSpec) -> dict[str, object]:
        """Return what nodes are told with the model, as JSON. Public. clipping: the plan's, at the round's norm."""
        return {
            # A node of an older version knows no isolation.
            "client": self.client.model_dump(
                mode="json", exclude={"isolation"} if self.client.isolation == "auto" else None
            ),
            "clipping": clipping.model_dump(mode="json"),
            "seed": self.run.seed,
            # Batched training moves one user's update by round-off when another user is absent. Where it is
            # secret who trains, that would be uncharged, so every user trains alone.
            "isolated": self.presence_is_secret,
            **({} if self.metrics is None else {"metrics": self.metrics.model_dump(mode="json")}),
        }

    @property
    def task_reference(self) -> str:
        """`run.task` with the parameters of `[task]`: what `load_task` takes."""
        return task_reference(self.run.task, self.task)

    @property
    def samples(self) -> bool:
        """Whether users are included independently at random (amplification by sampling may be charged)."""
        return self.participation.scheme in ("poisson", "cyclic-poisson") or self.secret

    @property
    def leak(self) -> float:
        """d of a question whose answer is cut at a threshold (`questions.items`); 0 of any other run."""
        asked = self.task.get("question") if self.run.task == QUESTION else None
        told = asked.get("leak") if isinstance(asked, Mapping) else None
        return float(told) if isinstance(told, int | float) else 0.0

    @property
    def presence_is_secret(self) -> bool:
        """Whether one user's presence is the secret, and with it every count of users."""
        return hides_presence(self.privacy.adjacency)

    @property
    def secret(self) -> bool:
        """Whether the charge rests on secret calls, and on users who can be called at will."""
        return self.participation.scheme in CALLED

    @property
    def draws_its_price(self) -> bool:
        """Whether a Monte Carlo certifies the charge (`accounting.certification`)."""
        if self.participation.scheme == "random-allocation":  # exact for independent noise, and refused for others
            return getattr(self.mechanism, "bands", 1) > 1 and self.mechanism.kind == "banded"
        return self.participation.scheme in ("balls-in-bins", "b-min-sep")

    @property
    def report_goal(self) -> int:
        """Fewest reports that a committed round may have; 0 where voiding would change the sampler."""
        if self.samples:
            return 0
        return self.run.min_reports if self.run.min_reports is not None else max(1, (3 * self.run.cohort) // 4)

    @classmethod
    def parse(cls, table: Mapping[str, object]) -> Plan:
        """Validate a mapping. Raises `BadInput` with all faults: key, value and nearest allowed value of each."""
        if not isinstance(table, Mapping | Plan):
            near = "ff.Plan.from_toml(text)" if isinstance(table, str) else "ff.Plan.parse({...})"
            raise WrongForm("the plan", f"is a {type(table).__name__}, not a mapping.", near)
        return cls._validate(table, stored=False)

    @classmethod
    def _validate(cls, table: Mapping[str, object], stored: bool, follow: int = 3) -> Plan:
        try:
            return cls.model_validate(dict(table), context={"stored": stored})
        except ValidationError as error:
            refusal = bad_input(error, "", cls)
        tried = with_bounds(table, refusal)
        try:
            # Another rule may refuse the bound that was named: then what that rule names is. Two rules may name
            # each other's: so not for ever.
            if follow and tried != table:
                cls._validate(tried, stored, follow - 1)
        except BadInput as other:
            refusal = renamed(refusal, other)
        raise refusal

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Validate a plan file's text. Raises `BadInput` with all faults and their lines."""
        if not isinstance(text, str):
            raise WrongForm("the plan", f"is a {type(text).__name__}, not text.", "ff.Plan.from_toml(path.read_text())")
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise BadInput("plan", f"is not TOML: {error}.", code="not-toml") from None
        try:
            return cls.parse(table)
        except BadInput as refusal:
            raise with_lines(refusal, text) from None

    @classmethod
    def stored(cls, table: Mapping[str, object]) -> Plan:
        """Return the plan that `to_json` wrote, by this version or an older one. Raises `BadInput`.

        Of what `run_json` adds, it has the number of workers.

        Example:
            >>> import json
            >>> stored = ff.Plan.stored(json.loads(plan.run_json(0.0)))
            >>> stored.digest() == plan.digest(), stored.law() == plan.law()
            (True, True)
            >>> ff.Plan.parse({**json.loads(plan.to_json()), "mechanism": {"kind": "nu"}}).mechanism.kind
            'nu'
        """
        workers = table.get(WORKERS)
        table = {key: value for key, value in table.items() if key not in RUN_KEYS}
        client = table.get("client")
        counted = client.get("workers") if isinstance(client, Mapping) else None
        if workers is not None and isinstance(client, Mapping):
            table["client"] = {**client, "workers": workers}
        privacy = table.get("privacy")
        # Plans from before `rounding` existed were run with floats.
        if isinstance(privacy, Mapping) and "rounding" not in privacy:
            table = {**table, "privacy": {**privacy, "rounding": "none"}}
        plan = cls._validate(table, stored=True)
        plan._counted_workers = counted if isinstance(counted, int) else 1
        return plan

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, no spaces, defaults spelled out where a table is not kept as written.

        `stored` reads it. A value that says what versions without its key did is left out, so that their
        plans keep their digests; so is the default `accounting`: the ledger says how each run is charged.
        """
        table = self.model_dump(
            mode="json", exclude={name for name in ("availability", "metrics", "tuning") if getattr(self, name) is None}
        )
        if not self.task:
            del table["task"]
        if self.aggregation == PLAIN:
            del table["aggregation"]
        else:
            for key, said in (("blinder", self.aggregation.party), ("blinder_noise", self.aggregation.noise_ratio)):
                if not said:
                    table["aggregation"].pop(key, None)
        table["client"]["workers"] = self._counted_workers
        if self.client.isolation == "auto":
            del table["client"]["isolation"]
        if self.privacy.rounding == "none":
            del table["privacy"]["rounding"]
        if self.privacy.accounting == "individual" or self.privacy.adjacency == "add_remove":
            del table["privacy"]["accounting"]
        for key in ("name", "tags", "round_seconds", "accept_noise"):
            if not table["run"][key]:
                del table["run"][key]
        return json.dumps(table, sort_keys=True, separators=(",", ":"))

    def run_json(self, resolution: float) -> str:
        """Return `to_json` as a ledger stores it with a run, with `Cost.resolution`, which depends on its
        model's size.

        The plan does not know the model; with this number the charge can be computed again from the ledger
        alone. A number of workers other than 1 is added too, so that a resumed run keeps it.
        """
        added: dict[str, object] = {RESOLUTION: resolution} if resolution else {}
        if self.client.workers != self._counted_workers:
            added[WORKERS] = self.client.workers
        table = {**json.loads(self.to_json()), **added}
        return json.dumps(table, sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON: the plan's name in the ledger."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def law(self) -> str:
        """Return the SHA-256 of what decides the law of a certificate: mechanism, participation and rounds."""
        tables = json.loads(self.to_json())
        decides = {name: tables[name] for name in ("mechanism", "participation")} | {"rounds": self.run.rounds}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


Plan.__signature__ = SIGNATURE
