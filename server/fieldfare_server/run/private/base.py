"""A strategy of one's own behind `PrivateStrategy`: it configures the rounds, and nothing else of it is used.

What a FedAvg's `configure_train` decides beside the sampling is kept: the schedule of a learning rate, keys
of the ConfigRecord, what it logs or saves. Who is asked, how replies are summed and what leaves is the
private run's. What would be dropped in silence is refused instead, with its line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fieldfare.errors import BadInput
from fieldfare.trees import refuse_trees
from fieldfare_flower.messages import records_of
from fieldfare_server.run.private.plan import FLOWERS, refuse_flowers

log = logging.getLogger("flwr")

_RAW = "it would see what clients reply, without noise"
# What a base may not override: why, and the nearest.
REFUSED: Mapping[str, tuple[str, str]] = {
    "start": ("the rounds are opened, charged and released by PrivateStrategy.start", "on_round=, or evaluate_fn"),
    "aggregate_train": (_RAW, "on_round=, which gets the released model; server_optimizer="),
    "configure_evaluate": ("clients' metrics would leave un-noised", "evaluate_fn, on the server"),
    "aggregate_evaluate": ("clients' metrics would leave un-noised", "evaluate_fn, on the server"),
    "_check_and_log_replies": (_RAW, "on_round="),
}
_CONFIGURED = ("the round is configured by `base=`", "base=, your FedAvg, or train_config")
# What Flower's strategies call in every round, and a private run cannot leave to a subclass.
NEVER_CALLED: Mapping[str, tuple[str, str]] = {
    **{name: why for name, why in REFUSED.items() if name != "start"},
    "configure_train": _CONFIGURED,
    "_construct_messages": _CONFIGURED,
}
# Parameters of Flower's FedOpt and FedAvgM, and what our `server_optimizer` calls them.
_SETTINGS = {
    "eta": "learning_rate",
    "beta_1": "beta1",
    "beta_2": "beta2",
    "tau": "adaptivity",
    "server_learning_rate": "learning_rate",
    "server_momentum": "momentum",
}
# Flower's strategies whose step is one of our `server_optimizer`.
_KINDS = {"FedAdam": "fedadam", "FedYogi": "fedyogi", "FedAdagrad": "fedadagrad", "FedAvgM": "sgd"}


def refuse_overrides(owner: type, kept: type, refused: Mapping[str, tuple[str, str]]) -> None:
    """Raise `BadInput`, with file and line, where `owner` has another method than `kept` of a name in `refused`."""
    for name, (why, nearest) in refused.items():
        method = getattr(owner, name, None)
        if method is not getattr(kept, name, None):
            raise BadInput(f"{owner.__name__}.{name}{_line(method)}", f"{why}.", nearest, code="strategy-method")


def refuse_replaced(what: str, strategy: object, refused: Mapping[str, tuple[str, str]]) -> None:
    """Raise `BadInput`, with file and line, where a method of a name in `refused` was put on the object itself."""
    for name, (why, nearest) in refused.items():
        if name in vars(strategy):
            raise BadInput(f"{what}.{name}{_line(vars(strategy)[name])}", f"{why}.", nearest, code="base-overrides")


def _line(method: object) -> str:
    code = getattr(method, "__code__", None)
    return "" if code is None else f" ({Path(code.co_filename).name}:{code.co_firstlineno})"


class Base:
    """The `base=` of a `PrivateStrategy`.

    Args:
        strategy: a `FedAvg`, or of a subclass that keeps FedAvg's aggregation.

    Raises:
        BadInput: it overrides or sets what a private run replaces; says where, and the nearest that is
            allowed.
    """

    def __init__(self, strategy: object) -> None:
        refuse_trees("base", strategy)
        if not isinstance(strategy, FedAvg):
            what = strategy.__name__ if isinstance(strategy, type) else type(strategy).__name__
            why = "is not a FedAvg object, whose configuration of rounds can be kept."
            raise BadInput(f"base = {what}", why, "FedAvg()", code="base-not-fedavg")
        kind = type(strategy)
        if kind.__module__.startswith("flwr.") and kind.aggregate_train is not FedAvg.aggregate_train:
            why = "its aggregation would be replaced."
            raise BadInput(f"base = {kind.__name__}(...)", why, _nearest(strategy), code="base-aggregates")
        refuse_overrides(kind, FedAvg, REFUSED)
        refuse_replaced("base", strategy, REFUSED)
        plain, value = FedAvg(), vars(strategy)
        unevaluated = strategy.fraction_evaluate == 0.0
        for name in FLOWERS:
            if unevaluated and name in ("fraction_evaluate", "min_evaluate_nodes"):
                continue
            if value.get(name) != getattr(plain, name):
                raise refuse_flowers(name, value.get(name), "base.")
        if not unevaluated:
            log.info("base %s: no node evaluates, for its metrics would leave un-noised", kind.__name__)
        self._strategy = strategy
        self._made: tuple[int, ConfigRecord, ConfigRecord] | None = None  # the number, what `config` was, the record

    @property
    def keys(self) -> tuple[str, str]:
        """The names of an instruction's two records."""
        return self._strategy.arrayrecord_key, self._strategy.configrecord_key

    def summary(self) -> None:
        """Log what the base itself says of its configuration, without FedAvg's sampling."""
        with _without_its_sample():
            self._strategy.summary()

    def configure(self, number: int, arrays: ArrayRecord, config: ConfigRecord) -> ConfigRecord:
        """Return round `number`'s ConfigRecord, from 1: what the base's `configure_train` makes of `config`.

        It is asked once a round, however often the round is tried, and changes `config` in place.

        Args:
            arrays: the released model, all arrays.
            config: the app's `train_config`, the same object in every round, as Flower's `start` hands it on.

        Raises:
            BadInput: it asks nobody, changes the arrays, adds records, or says different things to different
                nodes.
        """
        if self._made is None or self._made[0] != number or self._made[1] is not config:
            whole = dict(arrays)
            grid = _NoNodes(max(1, self._strategy.min_train_nodes, self._strategy.min_available_nodes))
            with _without_its_sample():
                messages = list(self._strategy.configure_train(number, arrays, config, grid))
            self._made = number, config, self._read(number, messages, whole)
        return ConfigRecord(dict(self._made[2]))

    def _read(self, number: int, messages: list[Message], arrays: Mapping[str, Any]) -> ConfigRecord:
        where = f"{type(self._strategy).__name__}.configure_train, round {number}"
        if not messages:
            raise BadInput(where, "it asks no node.", "fewer rounds", code="asks-no-node")
        array_key, config_key = self.keys
        configs: list[ConfigRecord] = []
        for message in messages:
            content, kind = message.content, message.metadata.message_type
            if kind != "train":
                why, near = f"its messages are of type {kind!r}.", "'train', and @app.train() without a name"
                raise BadInput(where, why, near, code="asks-otherwise")
            if set(content) != {array_key, config_key}:
                why, near = f"its messages hold {sorted(content)}.", f"{array_key!r} and {config_key!r} alone"
                raise BadInput(where, why, near, code="asks-with-other-records")
            sent = records_of(content, ArrayRecord)[array_key]
            if list(sent) != list(arrays) or any(sent[name].data != arrays[name].data for name in arrays):
                why = "it changes the arrays, and nodes train the released model."
                raise BadInput(where, why, "other keys of config", code="changes-arrays")
            configs.append(records_of(content, ConfigRecord)[config_key])
            if dict(configs[-1]) != dict(configs[0]):
                why = "nodes get different configurations, and the run decides who is asked."
                raise BadInput(where, why, "one for all", code="nodes-differ")
        return ConfigRecord(dict(configs[0]))


def _nearest(strategy: FedAvg) -> str:
    name, own = type(strategy).__name__, vars(strategy)
    if name not in _KINDS:
        return "base=FedAvg(...), and server_optimizer= where it steps in another way"
    table = {"kind": _KINDS[name], **{ours: own[theirs] for theirs, ours in _SETTINGS.items() if theirs in own}}
    if name == "FedAdagrad":
        del table["beta2"]
    return f"server_optimizer={table}"


class _NoNodes(Grid):
    """The grid that a base sees: as many nodes as it wants to sample from, and none that it could ask."""

    def __init__(self, nodes: int) -> None:
        self._nodes = range(2, 2 + nodes)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def _refuse(self, *arguments: object, **keywords: object) -> NoReturn:
        why = "it talks to nodes itself, and answers would leave un-noised."
        raise BadInput("base.configure_train", why, "config=", code="talks-to-nodes")

    create_message = push_messages = pull_messages = send_and_receive = set_run = _refuse
    run = property(_refuse)


_NoNodes.__abstractmethods__ = frozenset()  # later versions of Flower may ask for more


@contextmanager
def _without_its_sample() -> Iterator[None]:
    """Inside, FedAvg does not log its own sampling of nodes, which is not the run's."""

    def keep(record: logging.LogRecord) -> bool:
        return (record.module, record.funcName) not in (("fedavg", "configure_train"), ("fedavg", "summary"))

    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)
