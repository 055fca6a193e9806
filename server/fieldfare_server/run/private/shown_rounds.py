"""What Flower's users are shown of a private run: lines in Flower's own way, and the metrics of its `Result`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result

from fieldfare.errors import WrongForm
from fieldfare.participation import hides_presence
from fieldfare.plan import Plan
from fieldfare.text import decimal
from fieldfare_server.ledger.views import RoundView
from fieldfare_server.run.presence.identity import Kind
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.ridden import PREFIX, statistics_of
from fieldfare_server.run.round.roles import Role
from fieldfare_server.run.round.strategy import RoundReport
from fieldfare_server.run.session import Session

# Flower's own logger: inside of a user's ServerApp only its lines are shown.
log = logging.getLogger("flwr")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
OnRound = Callable[[int, ArrayRecord, MetricRecord], object]


def log_start(plan: Plan, arrays: ArrayRecord, config: ConfigRecord, evaluation: ConfigRecord) -> None:
    """Log what a run starts with, in the lines of Flower's own strategies."""
    size = sum(len(array.data) for array in arrays.values()) / 1024**2
    log.info("\t├── Number of rounds: %d", plan.run.rounds)
    log.info("\t├── ArrayRecord (%.2f MB)", size)
    for name, record in (("train", config), ("evaluate", evaluation)):
        shown = ", ".join(f"{key!r}: {'<bytes>' if isinstance(v, bytes) else v}" for key, v in record.items())
        log.info("\t├── ConfigRecord (%s): %s", name, f"{{{shown}}}" if record else "(empty!)")


def log_summary(plan: Plan, model: OwnModel, dialect: str, kind: Kind, home: Path) -> None:
    """Log a run's summary: the plan's public shape, the roles of arrays, and what users should know of them.

    Args:
        dialect: "plain" or "cohort".
        kind: what the nodes look like.
        home: the state directory.
    """
    roles = model.roles
    who = {"local": "in this process", "simulated": "of Flower's simulation", "real": "SuperNodes"}[kind]
    who += ", whose users share what the app keeps in memory" if dialect == "plain" and kind != "real" else ""
    others: tuple[tuple[Role, str], ...] = (("frozen", "frozen"), ("tied", "tied"), ("buffer", "buffers"))
    lines = [
        *describe(plan),
        f"Dialect: {dialect}, nodes {who}",
        f"Arrays: {len(roles.named('trained'))} trained ({model.schema.numel} numbers), "
        + ", ".join(f"{len(roles.named(role))} {words}" for role, words in others),
        f"State: {home}",
    ]
    if model.roles.first_names:
        pairs = ", ".join(f"{name} = {first}" for name, first in roles.first_names.items())
        lines.append(f"Tied, so trained once: {pairs}")
    if any(value.dtype == "float64" for value in model.values.values()):
        lines.append("Arrays of float64 are aggregated in float32")
    log_lines(lines)
    if roles.changing:
        log.warning(
            "%d buffers such as %s keep their initial values: training changes them on the nodes, and without "
            "noise they must not leave. Evaluation uses the initial statistics. Nearest: GroupNorm or LayerNorm in "
            "the place of BatchNorm, or buffers='private'.",
            len(roles.changing),
            roles.changing[0],
        )
    log.info("")


def log_lines(lines: list[str]) -> None:
    """Log `lines` as the items of a summary."""
    for line in lines[:-1]:
        log.info("\t├──> %s", line)
    log.info("\t└──> %s", lines[-1])


def describe(plan: Plan) -> list[str]:
    """Return the plan's public shape, in lines."""
    privacy, spec = plan.privacy, plan.participation
    target = f"epsilon {privacy.epsilon:g}" if privacy.epsilon else f"noise multiplier {privacy.noise_multiplier:g}"
    turns = f"each at most once in {spec.separation} rounds" if spec.scheme == "min-separation" else spec.scheme
    metrics = plan.metrics
    evaluated = ", ".join(metrics.names) if metrics is not None and metrics.evaluate else ""
    return [
        f"Privacy: {target} at delta {decimal(privacy.delta)}, {privacy.adjacency}, population {privacy.population}",
        f"Noise: {plan.mechanism.kind}, clipping: {plan.clipping.kind} at {plan.clipping.norm:g}",
        f"Cohort: {plan.run.cohort} users a round, {turns}",
        *([f"Evaluation: by each user of a round, before training: {evaluated}"] if evaluated else []),
    ]


UNTOLD = (
    "its interval holds the middle of its range, where users without it stand: this cannot be told from a metric that "
    "no client tells. Does the reply of the ClientApp have an entry of this name?"
)


class ShownRounds:
    """Fills the `Result` and logs, round after round, in Flower's way."""

    def __init__(
        self, session: Session, result: Result, evaluate_fn: Evaluate | None, on_round: OnRound | None = None
    ) -> None:
        self._session, self._result, self._evaluate, self._on_round = session, result, evaluate_fn, on_round
        self._secret = hides_presence(session.plan.privacy.adjacency)

    def sent(self, messages: int, online: int) -> None:
        """Show that a round is about to be sent."""
        log.info("")
        log.info("[ROUND %s/%s]", self._session.next_round + 1, self._session.plan.run.rounds)
        if not self._secret:
            log.info("configure_train: Sampled %s nodes (out of %s)", messages, online)

    def received(self, results: int, failures: int) -> None:
        """Show that a round's replies are summed."""
        if not self._secret:
            log.info("aggregate_train: Received %s results and %s failures", results, failures)

    def take_model(self) -> None:
        """Put the last committed model into the result. Once, when the rounds are over: it is a copy of the model."""
        if self._session.next_round:
            self._result.arrays = self._session.model.record(self._session.params)

    def committed(self, report: RoundReport) -> None:
        """Show a committed round: only now may its model be seen."""
        session, number = self._session, report.round + 1
        delta, loss = session.plan.privacy.delta, session.released.spent
        counts = report.cohort, report.reports
        metrics = _metrics(report.epsilon, delta, loss.zcdp, report.noise_std, *counts)
        metrics.update(statistics_of(report.metrics, session.plan.metrics))
        keep(self._result, number, metrics, session.plan)
        log.info("\t└──> Aggregated MetricRecord: %s", metrics)
        spent = "Privacy spent: epsilon=%.6f at delta=%g after %d releases"
        log.info(spent, report.epsilon, delta, number)
        if self._on_round is not None:
            self._on_round(number, session.model.record(session.params), MetricRecord(dict(metrics)))
        every, last = session.plan.run.evaluate_every, number == session.plan.run.rounds
        for estimate in report.metrics.values() if last else ():
            if f"{PREFIX}{estimate.name}.untold" in metrics:
                log.warning("metric %s: %s", estimate, UNTOLD)
        if self._evaluate is not None and (last or number % every == 0):
            log.info("Global evaluation")
            evaluate(self._evaluate, number, session.model.record(session.params), self._result)


def evaluate(evaluate_fn: Evaluate, number: int, arrays: ArrayRecord, result: Result) -> None:
    """Put what `evaluate_fn` says of a model into `result`. Raises `BadInput` for what is no MetricRecord."""
    metrics = evaluate_fn(number, arrays)
    if not isinstance(metrics, Mapping | None):
        what, near = f"evaluate_fn: {metrics!r}"[:200], 'MetricRecord({"loss": 0.1}), or None'
        raise WrongForm(what, f"it returned a {type(metrics).__name__}.", near)
    log.info("\t└──> MetricRecord: %s", metrics)
    if metrics is not None:
        result.evaluate_metrics_serverapp[number] = metrics


def _metrics(
    epsilon: float, delta: float, rho: float | None, noise_std: float, cohort: int | None, reports: int | None
) -> MetricRecord:
    """What is shown of one round; counts of users where both are public."""
    metrics = MetricRecord({"epsilon": float(epsilon), "delta": float(delta)})
    if rho is not None:
        metrics["rho"] = float(rho)
    metrics["noise-std"] = float(noise_std)
    if cohort is not None and reports is not None:
        metrics["cohort"], metrics["reports"] = int(cohort), int(reports)
    return metrics


def keep(result: Result, number: int, metrics: MetricRecord, plan: Plan) -> None:
    """Put a round's metrics where Flower has them: those of evaluations also under their own names."""
    result.train_metrics_clientapp[number] = metrics
    if plan.metrics is not None and plan.metrics.evaluate:
        own = {name.removeprefix(PREFIX): value for name, value in metrics.items() if name.startswith(PREFIX)}
        result.evaluate_metrics_clientapp[number] = MetricRecord(own)


def past_metrics(row: RoundView, plan: Plan) -> MetricRecord:
    """Return the metrics of a round that was committed before the run was continued."""
    delta, loss = plan.privacy.delta, row.spent
    epsilon, rho = (0.0, None) if loss is None else (loss.epsilon(delta), loss.zcdp)
    counts = (None, None) if hides_presence(plan.privacy.adjacency) else (row.cohort_size, row.reports)
    metrics = _metrics(epsilon, delta, rho, row.statistics.get("noise_std") or 0.0, *counts)
    metrics.update({name: float(value) for name, value in row.statistics.items() if name.startswith(PREFIX)})
    return metrics


@contextmanager
def shown_by_flower() -> Iterator[None]:
    """Send Fieldfare's own lines to Flower's logger inside the block where nothing else shows them."""
    ours, handler = logging.getLogger("fieldfare"), _Forward()
    if logging.getLogger().handlers or ours.handlers:
        yield
        return
    level = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)


class _Forward(logging.Handler):
    """Hands each line on to Flower's logger, with its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, "%s", record.getMessage(), exc_info=record.exc_info)
