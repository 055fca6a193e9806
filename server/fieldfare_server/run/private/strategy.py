"""`PrivateStrategy`: what a Flower app puts in the place of FedAvg to become private.

It looks like any Flower strategy: `start(grid, initial_arrays, ...)` returns a `Result`. Behind it one
`Session` runs, with its ledger, its checkpoints and its round in the order of DESIGN section 3. What `start`
is given is honoured or refused with a reason, before anything is charged.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from fieldfare.errors import (
    BadInput,
    BudgetRefused,
    Conflict,
    Differs,
    FieldfareError,
    LedgerError,
    NoLedger,
    NotAllowed,
    NotFound,
    NotGiven,
    NotNow,
    OutOfRange,
    Unknown,
    Unsupported,
    WrongForm,
)
from fieldfare.participation import Adjacency, hides_presence
from fieldfare.plan import Plan
from fieldfare.population_size import check_population_size
from fieldfare.shown import Shown
from fieldfare.text import decimal
from fieldfare_flower.own_data import is_flowers_simulation
from fieldfare_flower.privacy_words import budget_exhausted, privacy_spent
from fieldfare_flower.run_configuration import run_configuration
from fieldfare_flower.server_errors import outlast_server_errors
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.states import ACTIVE
from fieldfare_server.ledger.views import PopulationView, RoundView, every
from fieldfare_server.run.presence.availability import require_simulated
from fieldfare_server.run.presence.identity import GridNode, Kind, has_key, identity_is_stable, kind_of, list_nodes
from fieldfare_server.run.private.base import NEVER_CALLED, Base, refuse_overrides, refuse_replaced
from fieldfare_server.run.private.plan import KEYWORDS, PREFIX, plan_from, read_run_config, refuse_unknown
from fieldfare_server.run.private.shown_rounds import (
    Evaluate,
    OnRound,
    ShownRounds,
    describe,
    evaluate,
    keep,
    log_lines,
    log_start,
    log_summary,
    past_metrics,
    shown_by_flower,
)
from fieldfare_server.run.round.dialects import CohortDialect, Configure, Dialect, PlainDialect, same_config
from fieldfare_server.run.round.masked import rehearse_masks
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import Buffers, Model, assign_roles
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from fieldfare_server.run.signal import log_signal

# Flower's own logger: inside of a user's ServerApp only its lines are shown.
log = logging.getLogger("flwr")

# Rounds where neither the plan nor `start` says how many, as Flower's own strategies.
FLOWERS_ROUNDS = 3
# Seconds between looks for the first node.
NODE_POLL = 1.0
# `dp.*` keys that are not part of the plan.
STRATEGY_KEYS = ("budget", "dialect", "run", "resume", "buffers")


class There(NamedTuple):
    """Who is there when a run is started."""

    nodes: list[GridNode]
    kind: Kind


class PrivateStrategy(Strategy, metaclass=Shown):
    """A Flower strategy whose released models are differentially private for every user of a population.

    The plan is given by keywords, or by `plan`. A user is a node (dialect "plain", with any ClientApp), or
    one of many on a node (dialect "cohort", with `ff.private`). All keywords: `help(ff.PrivateStrategy.__init__)`.

    Example:
        >>> import fieldfare as ff
        >>> import numpy as np
        >>> from flwr.app import ArrayRecord, Message, RecordDict
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> @app.train()
        ... def train(message, context):
        ...     model = [array + np.float32(0.1) for array in message.content["arrays"].to_numpy_ndarrays()]
        ...     return Message(RecordDict({"arrays": ArrayRecord(model)}), reply_to=message)
        >>> strategy = ff.PrivateStrategy(epsilon=8, delta=1e-3, cohort=10, clip=1.0, mechanism="blt",
        ...                               population="demo", budget=8)
        >>> grid = ff.LocalGrid(app, nodes=20)
        >>> result = strategy.start(grid, ArrayRecord([np.zeros(3, np.float32)]), num_rounds=2)
        >>> result.arrays.to_numpy_ndarrays()[0].shape
        (3,)
        >>> spent = strategy.privacy_spent()
        >>> print(f"epsilon {spent.epsilon:.2f} at delta {spent.delta}, run {strategy.run_id}")
        epsilon 8.00 at delta 0.001, run ...
        >>> strategy.summary()

    Guarantee: everything that `start` returns, logs and stores where others read it is together (epsilon,
    delta)-DP for every user, under the plan's adjacency, with the epsilon that `privacy_spent` shows. What
    `evaluate_fn` computes is its own affair: it must not read users' data.
    """

    SHOWN = ("start", "privacy_spent", "summary", "run_id")

    def __init__(
        self,
        *given: object,
        plan: Plan | str | Path | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        cohort: int | None = None,
        clip: float | Mapping[str, object] | None = None,
        mechanism: str | Mapping[str, object] | None = None,
        population: str | None = None,
        budget: float | None = None,
        rounds: int | None = None,
        participation: str | Mapping[str, object] | None = None,
        adjacency: Adjacency | None = None,
        server_optimizer: str | Mapping[str, object] | None = None,
        base: FedAvg | None = None,
        on_round: OnRound | None = None,
        run_config: Mapping[str, object] | None = None,
        dialect: Literal["plain", "cohort"] = "plain",
        model: Model | None = None,
        trainable: Sequence[str] | None = None,
        tied: Sequence[Sequence[str]] | None = None,
        buffers: Buffers = "initial",
        buffer_weight: float = 1.0,
        reply: Literal["model", "deltas"] = "model",
        clip_on_nodes: bool = False,
        charge_on_nodes: bool = False,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        run: str | None = None,
        resume: str | None = None,
        home: str | Path | None = None,
        fraction_evaluate: float = 0.0,
        accept_delta: bool = False,
        **keys: Any,
    ) -> None:
        """
        Args:
            plan: a `Plan`, a plan file's path, or its text, in place of the keywords that describe a plan. One that
                names no participation asks each user once, as everywhere.
            epsilon, delta: what the run may spend; or `noise_multiplier` (in clip norms) in place of epsilon.
            cohort: planned users a round: the fixed denominator of every mean.
            clip: the L2 norm of one user's update, or a `[clipping]` table.
            mechanism: a kind of noise, or a `[mechanism]` table. Default "blt".
            population: whose budget is charged.
            budget: epsilon of the population's budget, at `delta`; makes the population where there is none yet.
            rounds: how many models are released; None: `start`'s `num_rounds`.
            participation: a scheme or a `[participation]` table; None: in the plain dialect the nodes online at the
                start take turns; in the cohort dialect, where users are known only later, each takes part once.
            server_optimizer: a kind or a table; default SGD of rate 1: applies the mean update as FedAvg does.
            base: a FedAvg of your own: its `configure_train` makes each round's configuration (a schedule of the
                learning rate, keys of its own), and may log and save. Its sampling and aggregation are not used:
                where it has its own, it is refused.
            on_round: called as `on_round(round, arrays, metrics)` after each committed round, with the released
                model and the metrics of `train_metrics_clientapp`.
            run_config: the app's `context.run_config`, whose `dp.*` keys override the plan; None: `start` reads it
                from the grid. Needed where these keys say what the plan lacks.
            dialect: "plain": Flower's own messages; "cohort": Fieldfare's, for `ff.private`.
            model: the module of `initial_arrays`, or what makes one: says what is frozen, tied and a buffer.
            trainable: patterns of the names to train; None: all floating arrays that are not buffers.
            tied: groups of names of one tensor; None: as `model` says. Equal initial values alone are a question.
            buffers: "initial": they keep their initial values; "private": floating ones are clipped and noised.
            buffer_weight: what multiplies private buffers in the vector that is clipped.
            reply: "model": clients reply with new values; "deltas": with changes.
            clip_on_nodes: also send the norm as `clipping_norm`, for mods that clip before anything leaves a node.
            charge_on_nodes: send what the run costs, signed, to nodes whose app has `mods=[ff.budget]`.
            fraction_evaluate: above 0: every user of a round also evaluates the model that the round sends, by
                the app's own `@app.evaluate`; the entries of its MetricRecord that `metrics` lists ride with the
                user's update, charged and noised with it. `cohort` says how many users, whatever the fraction is.
                Same as `metrics={..., "evaluate": True}`.
            accept_delta: run although delta is large for so many users, with a warning.
            arrayrecord_key, configrecord_key: names of the two records of an instruction, as FedAvg's.
            run: the run's id: a run of this id that has not ended is continued, otherwise a new one gets it.
            resume: the id of a run to continue.
            home: the state directory; None: FIELDFARE_HOME, or the account's data directory. For real nodes
                `budget` needs one that is named.
            keys: further keys of the plan's `[privacy]` and `[run]`, such as `min_reports` or `trust_node_ids`.

        Raises:
            BadInput: an unknown keyword, or a value out of range; names the nearest that is allowed.
        """
        if given:
            near = "base=, a FedAvg of your own" if isinstance(given[0], Strategy) else "epsilon=..., or plan="
            raise WrongForm(f"PrivateStrategy({given[0]!r})"[:200], "is made by keywords.", near)
        described = {
            "epsilon": epsilon,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "cohort": cohort,
            "clip": clip,
            "mechanism": mechanism,
            "population": population,
            "rounds": rounds,
            "participation": participation,
            "adjacency": adjacency,
            "server_optimizer": server_optimizer,
        }
        for name, value in keys.items():
            if name not in KEYWORDS:
                raise refuse_unknown(name, value, KEYWORDS)
            described[name] = value
        self._fraction_evaluate, self._evaluation = fraction_evaluate, ConfigRecord()
        self._plan, self._run_config = plan, run_config
        self._keywords = {name: value for name, value in described.items() if value is not None}
        self._own = {"dialect": dialect, "buffers": buffers, "budget": budget, "run": run, "resume": resume}
        deltas = _choice("reply", reply, ("model", "deltas")) == "deltas"
        self._buffer_weight = _positive("buffer_weight", buffer_weight) or 1.0
        self._assign_roles = partial(assign_roles, model=model, trainable=trainable, tied=tied)
        self._charge_on_nodes = charge_on_nodes
        _require_function("on_round", on_round, "round", "arrays", "metrics")
        self._base, self._on_round = None if base is None else Base(base), on_round
        keys_of_records = arrayrecord_key, configrecord_key
        if self._base is not None and keys_of_records == ("arrays", "config"):
            keys_of_records = self._base.keys
        self._plain = partial(PlainDialect, record_keys=keys_of_records, deltas=deltas, clip_on_nodes=clip_on_nodes)
        self._only_plain = deltas or clip_on_nodes or charge_on_nodes
        self._home, self._accept_delta = StateDirectory.of(home), accept_delta
        self._session: Session | None = None
        self._continues = False  # whether `start` found the run that it is to continue
        self._log_summary: Callable[[], None] | None = None
        self._configure(run_config or {})
        if not self._resume:
            # Faults of the plan are found here, where no node is needed. How many rounds may still come from `start`:
            # of so many, no participation is too long.
            self._make_plan(None, None, None, default=2048)

    def __init_subclass__(cls, **keywords: object) -> None:
        """Refuse a subclass with a method that `start` would never call. Raises `BadInput`, with its line."""
        super().__init_subclass__(**keywords)
        refuse_overrides(cls, PrivateStrategy, NEVER_CALLED)

    def _configure(self, run_config: Mapping[str, object]) -> None:
        """Let the `dp.*` keys of `run_config` override what the strategy was made with. Raises `BadInput`."""
        overrides = read_run_config(run_config, STRATEGY_KEYS)
        self._overrides = {key: value for key, value in overrides.items() if key not in STRATEGY_KEYS}
        self._given = {**self._keywords, **self._overrides}
        own = {**self._own, **{key: value for key, value in overrides.items() if key in STRATEGY_KEYS}}
        self.dialect = _choice("dialect", own["dialect"], ("plain", "cohort"))
        self._buffers: Buffers = _choice("buffers", own["buffers"], ("initial", "private"))  # type: ignore[assignment]
        self._budget = _positive("budget", own["budget"])
        self._wanted, self._resume = own["resume"] or own["run"] or "", own["resume"]
        if self.dialect == "cohort" and (self._only_plain or self._buffers == "private"):
            why = "reply, clip_on_nodes, charge_on_nodes and buffers are the plain dialect's."
            raise Conflict("dialect = 'cohort'", why, "'plain'")

    def _read_run_config(self, grid: Grid) -> None:
        """Read the run's own `dp.*` keys, or refuse where they cannot be seen or were given otherwise."""
        shown, given = run_configuration(grid), self._run_config
        if shown is None and given is None:
            why = "this grid does not show the run's configuration, so dp.* keys in it would do nothing."
            raise WrongForm("run_config", why, "run_config=context.run_config")
        keys = {key: value for key, value in (shown or {}).items() if key.startswith(PREFIX) and value != ""}
        told = keys if given is None else given
        odd = next((key for key, value in keys.items() if told.get(key) != value), None)
        if odd is not None:
            why = f"run_config= says {told.get(odd)!r}."
            raise WrongForm(f"run-config {odd} = {keys[odd]!r}", why, "run_config=context.run_config")
        self._configure(told)

    # -- Flower's interface ----------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run to the end, and return the last released model with the metrics that are public.

        Args:
            grid: reaches the nodes.
            initial_arrays: released model 0. It is public: it must not be derived from the users' data.
            num_rounds: must be the plan's, where the plan has one; None: the plan's, or 3.
            timeout: seconds to wait for a round's replies; None: the plan's `round_timeout`.
            train_config, evaluate_config: copied, and sent with `server-round` added; the second with evaluations.
            evaluate_fn: called for round 0 and after each commit, with all arrays. If it raises, `resume` goes on.

        Returns:
            `arrays`: all arrays of the last released model. `train_metrics_clientapp`: for each round epsilon,
            delta, rho (where it exists), noise-std (of one coordinate of the mean update), and cohort and reports
            where counts of users are public. `evaluate_metrics_serverapp`: what `evaluate_fn` returned.

        Raises:
            BadInput: something that cannot be honoured, before any charge; or every node's ClientApp is wrong.
            BudgetRefused: the budget is exhausted (also Flower's `PrivacyBudgetExhausted`); `result` has the model.
            Interrupted: the run can be resumed.
        """
        given = (("train_config", train_config), ("evaluate_config", evaluate_config))
        config, evaluation = (_config_record(name, value) for name, value in given)
        refuse_replaced(type(self).__name__, self, NEVER_CALLED)
        _require_function("evaluate_fn", evaluate_fn, "round", "arrays")
        _positive("timeout", timeout)
        if not isinstance(grid, Grid):
            raise WrongForm(f"grid = {grid!r}", "reaches no nodes.", "the grid of @app.main(), or ff.LocalGrid")
        self._read_run_config(grid)
        model = self._make_model(initial_arrays)
        outlast_server_errors(grid)
        with shown_by_flower():
            there = self._look(grid, timeout)
            plan, model = self._settle(grid, there, model, num_rounds, timeout)
            self._find_population(plan, there)
            log.info("Starting %s strategy:", type(self).__name__)
            if evaluation and not (plan.metrics is not None and plan.metrics.evaluate):
                near = "leave it out; or fraction_evaluate=1.0 and metrics={'show': {'accuracy': [0, 1]}}"
                raise Conflict("evaluate_config", "no node evaluates, so nobody would read it.", near)
            self._evaluation = evaluation
            log_start(plan, initial_arrays, config, evaluation)
            self._log_summary = partial(log_summary, plan, model, self.dialect, there.kind, self._home.root)
            self.summary()
            return self._start(grid, plan, model, config, there, evaluate_fn)

    def summary(self) -> None:
        """Log what the base says of itself and the plan's public shape; once `start` knows them, the model's too."""
        if self._base is not None:
            self._base.summary()
        if self._log_summary is not None:
            self._log_summary()
        else:
            log_lines(describe(self._stored_plan() or self._make_plan(None, None, None)))

    def privacy_spent(self) -> object:
        """Return what this run alone has spent, as Flower's `PrivacySpent`; None before `start`. A run that ended
        early has spent what was planned. `fieldfare budget` adds up all runs, those before it too.
        """
        session = self._session
        if session is None:
            return None
        method, epsilon = session.released.spent.words.accountant, session.epsilon()
        if session.ended:  # who ends a run early may have seen its models
            with Ledger.open(self._home.ledger) as ledger:
                epsilon = ledger.run(session.account.id).held[1]
        return privacy_spent(epsilon, session.plan.privacy.delta, session.next_round, method)

    @property
    def run_id(self) -> str | None:
        """The id of the run that `start` began or continued: what `resume` and `fieldfare verify` take."""
        return None if self._session is None else self._session.account.id

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: a round is opened, charged and released as one, by `start`."""
        raise _only_start()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse: see `configure_train`."""
        raise _only_start()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no instruction at all: metrics ride in the rounds, or would leave un-noised."""
        return ()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, whatever is handed in."""
        return None

    def initialize_parameters(self, *arguments: object, **keywords: object) -> NoReturn:
        """Refused: what Flower's older interface calls first."""
        why = "Flower's older interface (server_fn, ServerAppComponents, start_server) knows no private rounds."
        raise WrongForm("PrivateStrategy", why, "@app.main() of a ServerApp, and strategy.start(grid, initial_arrays)")

    # -- what a run is started with --------------------------------------------------------------------------

    def _make_plan(
        self, rounds: int | None, timeout: float | None, nodes: int | None, default: int = FLOWERS_ROUNDS
    ) -> Plan:
        has_rounds = self._plan is not None or "rounds" in self._given
        wanted = default if rounds is None and not has_rounds else rounds
        fraction = self._fraction_evaluate
        plan = plan_from(
            self._plan, self._keywords, self._overrides, rounds=wanted, timeout=timeout, nodes=nodes, evaluate=fraction
        )
        evaluates = plan.metrics is not None and plan.metrics.evaluate
        if self.dialect == "cohort" and evaluates:
            why = "@app.evaluate answers for a whole node: how much one of its users moves that is not bounded."
            near = "ff.private.metric in the training loop, user by user"
            raise Unsupported("metrics.evaluate in dialect 'cohort'", why, near)
        if evaluates and (plan.aggregation.rings or self._charge_on_nodes):
            why = "the reply to an evaluation leaves a node in clear, and uncharged there."
            near = "metrics of the training reply: evaluate = false"
            raise BadInput("metrics.evaluate", why, near, code="evaluation-in-clear")
        return plan

    def _make_model(self, initial_arrays: ArrayRecord) -> OwnModel:
        # By itself: a local variable of `start` would hold these values, one vector, for the whole run.
        values = OwnModel.read(initial_arrays)
        return OwnModel(values, self._assign_roles(values, buffers=self._buffers), self._buffer_weight)

    def _make_dialect(self, model: OwnModel | None, config: ConfigRecord, there: There, plan: Plan) -> Dialect:
        assert model is not None  # the arrays of `start`
        configure = self._configured_by(self._base, model, config) if self._base else same_config(config)
        if self.dialect == "cohort":
            return CohortDialect(configure)
        return self._plain(
            model,
            configure,
            simulated=there.kind == "simulated",
            evaluate_config=same_config(self._evaluation),
            tells=self._charge_on_nodes or bool(plan.aggregation.rings),
            asks=bool(plan.aggregation.party),
        )

    def _configured_by(self, base: Base, model: OwnModel, config: ConfigRecord) -> Configure:
        return lambda index, point: base.configure(index + 1, model.record(point), config)

    def _look(self, grid: Grid, timeout: float | None) -> There:
        """Return who is there. Waits for the first node, at most as long as for a round."""
        plan = self._stored_plan() or self._make_plan(None, timeout, None, default=2048)
        deadline = time.monotonic() + (timeout or 600.0)
        while not (nodes := list_nodes(grid)) and not plan.presence_is_secret and time.monotonic() < deadline:
            log.info("Waiting for nodes to connect")
            time.sleep(NODE_POLL)
        before = 0
        while is_flowers_simulation(grid) and before < len(nodes):  # it makes its nodes while the ServerApp begins
            before = len(nodes)
            time.sleep(NODE_POLL)
            nodes = list_nodes(grid)
        return There(nodes, kind_of(grid, nodes))

    def _settle(
        self, grid: Grid, there: There, model: OwnModel, num_rounds: int | None, timeout: float | None
    ) -> tuple[Plan, OwnModel]:
        """Return plan and model of this run: of the run to continue, or made now. Raises `BadInput`."""
        plan = self._stored_plan()
        self._continues = plan is not None
        if plan is None:
            plan = self._make_plan(num_rounds, timeout, len(there.nodes) if self.dialect == "plain" else None)
        else:
            if num_rounds not in (None, plan.run.rounds):
                raise Differs(f"num_rounds = {num_rounds}", "the run to continue has another.", str(plan.run.rounds))
            model = self._stored_model(model)
        rehearse_masks(grid, plan, model.schema, self._home.root)
        require_simulated(plan, grid)
        if self.dialect == "plain":
            require_keys(there)
            if there.kind == "simulated" and self._continues:
                why = "identities of Flower's simulation last one run, so who took part already is not known."
                near = "a new run; or LocalGrid, or SuperNodes with keys, whose identities last"
                raise NotAllowed(f"resume of run {self._wanted}", why, near)
        return plan, model

    def _stored_plan(self) -> Plan | None:
        """Return the plan of the run to continue; None for a new run. Raises `BadInput` where keywords differ."""
        if not (wanted := self._wanted):
            return None
        try:
            with Ledger.open(self._home.ledger) as ledger:
                run = ledger.run(wanted)
        except (BadInput, LedgerError):
            if self._resume:
                raise
            return None
        if run.state not in ACTIVE:
            raise NotNow(f"run {wanted}", f"it has ended ({run.state}).", "another name, for a new run")
        plan = Plan.stored(run.plan)
        if plan.run.task:
            raise Differs(f"run {wanted}", f"it trains the task {plan.run.task!r}.", f"fieldfare run --resume {wanted}")
        if self._plan is not None or self._keywords:
            made = self._make_plan(None if "rounds" in self._given else plan.run.rounds, plan.run.round_timeout, None)
            if self._plan is None and "participation" not in self._given:
                own = {"participation": plan.participation.model_dump(exclude_none=True)}
                made = Plan.parse(made.model_dump(mode="json", exclude_none=True) | own)
            if made.model_dump() != plan.model_dump():
                raise Differs(f"run {wanted}", "it was begun with another plan.", "the same keywords, or none")
        return plan

    def _stored_model(self, model: OwnModel) -> OwnModel:
        """Return what the run to continue began with. Raises `BadInput` where `model` is of another layout."""
        stored = OwnModel.load(RunFiles(self._home.root, self._wanted).directory)
        if stored.layout() != model.layout():
            why = f"run {self._wanted} began with other names, types, shapes or roles."
            raise Differs("initial_arrays", why, "the model that it began with")
        return stored

    # -- the run ---------------------------------------------------------------------------------------------

    def _start(
        self, grid: Grid, plan: Plan, model: OwnModel, config: ConfigRecord, there: There, evaluate_fn: Evaluate | None
    ) -> Result:
        result, began = Result(), time.monotonic()
        if evaluate_fn is not None and not self._continues:
            # Before anything is charged: an evaluation that raises costs nothing.
            log.info("Initial global evaluation")
            evaluate(evaluate_fn, 0, model.record(model.initial), result)
        if self._base is not None and not self._continues:
            # The same: what it makes of the first round is kept for that round.
            self._base.configure(1, model.record(model.initial), config)
        try:
            session = self._open_session(plan, model, config, there, grid)
        except BudgetRefused as refusal:
            raise budget_exhausted(refusal, result) from None
        self._session = session
        log_signal(session.cost, model.schema.numel, log)
        # Nodes with a budget of their own leave out whom it no longer allows: they are no other users.
        budgets = self._charge_on_nodes or bool(os.environ.get("FIELDFARE_BUDGET"))
        session.has_all_users = there.kind == "local" and not budgets
        with session:
            for done in self._committed(session) if self._continues else ():
                keep(result, done.index + 1, past_metrics(done, plan), plan)
            if self._continues and session.next_round:
                result.arrays = session.model.record(session.params)
                log.info("Run %s continues after round %d", session.account.id, session.next_round)
                if self._base is not None:
                    log.warning("base: what it kept in memory in these rounds is gone; rounds go on from train_config")
            hooks = ShownRounds(session, result, evaluate_fn, self._on_round)
            engine = FieldfareStrategy(session, hooks.committed, hooks.sent, hooks.received, self._run_config)
            try:
                engine.take_to_end(grid)
            except BudgetRefused as refusal:
                hooks.take_model()
                raise budget_exhausted(refusal, result) from None
            except Exception as error:
                run = session.account.id
                if not session.ended and not isinstance(error, FieldfareError):  # the app's own code raised it
                    goes_on = "" if there.kind == "simulated" else f"resume={run!r} goes on; "
                    error.add_note(f"Run {run} holds budget: {goes_on}`fieldfare abandon {run} --reason ...` ends it.")
                raise
            hooks.take_model()
        for line in ("", f"Strategy execution finished in {time.monotonic() - began:.2f}s", "", "Final results:", ""):
            log.info(line)
        for line in io.StringIO(str(result)):
            log.info("\t%s", line.strip("\n"))
        log.info("")
        return result

    def _open_session(
        self, plan: Plan, model: OwnModel | None, config: ConfigRecord, there: There, grid: Grid
    ) -> Session:
        """Begin or resume the run; a missing population is made where `budget` says so.

        model: None for that of the plan's task.
        """
        found = self._find_population(plan, there)
        if not self._continues and not hides_presence(plan.privacy.adjacency):
            # More nodes may join, which makes delta worse; a sampler's rate is judged by users who are registered.
            online = 0 if self.dialect == "cohort" or plan.samples else len(there.nodes)
            users = max(online, (found and found.users) or 0)
            for warning in check_population_size(plan, users, accepted=self._accept_delta) if users else ():
                log.warning(warning)
        if found is not None and self._budget not in (None, found.epsilon):
            given = found.name, found.epsilon, self._budget
            log.info("Population %s exists: its budget is epsilon %g, which budget=%g does not change", *given)
        simulated = (self._create_population(plan, there) if found is None else found).simulated
        stable = (there.kind == "simulated" and simulated) or plan.run.trust_node_ids or identity_is_stable(grid)
        if there.kind == "simulated" and self.dialect == "plain" and not simulated:
            why = "it is of real users, and these nodes look like Flower's simulation, whose identities last one run."
            near = "a population that is marked as simulated"
            raise NotAllowed(f"population {plan.privacy.population!r}", why, near)
        dialect = self._make_dialect(model, config, there, plan)
        if self._continues:
            return Session.resume(self._home, self._wanted, stable, model=model, dialect=dialect)
        # Nodes of Flower's simulation are named by their rank, which another node has in the next run.
        lasts = there.kind != "simulated" or self.dialect != "plain"
        return Session.begin(
            self._home, plan, stable, run_id=self._wanted or None, model=model, dialect=dialect, users_last=lasts
        )

    def _find_population(self, plan: Plan, there: There) -> PopulationView | None:
        """Return the plan's population; None where it is missing and `budget` says that it shall be made, here."""
        privacy, name = plan.privacy, plan.privacy.population
        try:
            with Ledger.open(self._home.ledger, head_file=self._home.head_file) as ledger:
                found = ledger.find_population(name)
        except NoLedger:
            found = None  # or another first run is making it just now, in a file that is empty yet
        if found is None and self._budget is not None:
            self._home.require_named(name, there.kind != "real")
        if found is not None or self._budget is not None:
            return found
        epsilon = 2 * (privacy.epsilon or 1.0)
        command = f"fieldfare population create {name} --epsilon {epsilon:g} --delta {decimal(privacy.delta)}"
        if privacy.adjacency != "zero_out":
            command += f" --adjacency {privacy.adjacency}"
        raise NotFound(f"population {name!r}", "there is no population of that name.", f"`{command}`, or budget=")

    def _create_population(self, plan: Plan, there: There) -> PopulationView:
        """Make the plan's population. Users of this process and of Flower's simulation are simulated ones."""
        name, delta, adjacency = plan.privacy.population, plan.privacy.delta, plan.privacy.adjacency
        budget = self._budget
        assert budget is not None  # `_find_population` refuses without it
        simulated = there.kind != "real"
        self._home.prepare()
        with Ledger.open(self._home.ledger, create=True, head_file=self._home.head_file) as ledger:
            alone, by = plan.privacy.epsilon or 0.0, "PrivateStrategy"
            its, made = ledger.population_or_new(
                name, budget, delta, first=alone, adjacency=adjacency, simulated=simulated, actor=by
            )
        if made:
            shown = (name, "simulated" if simulated else "real", budget, delta)
            log.info("Population %s is new (%s users): all runs on it share epsilon %g at delta %g", *shown)
        return its

    def _committed(self, session: Session) -> Iterator[RoundView]:
        """Yield the committed rounds of the run so far."""
        with Ledger.open(self._home.ledger) as ledger:
            rounds = every(partial(ledger.rounds, session.account.id))
            yield from (row for row in rounds if row.state == "committed")


def require_keys(there: There) -> None:
    """Refuse nodes without a public key: there is no one to tell apart. Raises `BadInput`."""
    if there.kind == "real" and not all(map(has_key, there.nodes)):  # how many may be secret
        why, near = "some show none, so it is unknown which users they are.", "SuperNodes of Flower 1.40 or newer"
        raise NotGiven("a public key of each node", why, f"{near}, as the grid's get_nodes() shows them; or LocalGrid")


def _config_record(name: str, value: Mapping[str, Any] | None) -> ConfigRecord:
    try:
        return ConfigRecord(dict(value or {}))
    except (TypeError, ValueError) as error:
        near = 'ConfigRecord({"lr": 0.1})'
        raise WrongForm(f"{name} = {value!r}"[:200], f"is not a ConfigRecord: {error}", near) from None


def _only_start() -> BadInput:
    why = "a round is opened, charged and released as one, so another strategy cannot call its halves."
    near = "strategy.start(grid, initial_arrays, ...)"
    return Unsupported("PrivateStrategy.configure_train and aggregate_train", why, near)


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise Unknown(f"{name} = {value!r}", "there is no such choice.", " or ".join(map(repr, allowed)))
    return str(value)


def _require_function(name: str, function: object, *arguments: str) -> None:
    """Refuse, before anything is charged, what cannot be called with `arguments`. Raises `BadInput`."""
    form = f"{name}({', '.join(arguments)})"
    if function is not None and not callable(function):
        raise WrongForm(f"{name} = {function!r}", "is no function.", form)
    try:
        if function is not None:
            inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise WrongForm(name, f"is called otherwise: {error}.", form) from None
    except ValueError:
        return  # a builtin without a signature


def _positive(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < float(value) < float("inf"):
        raise OutOfRange(f"{name} = {value!r}", "must be a positive, finite number.")
    return float(value)
