"""An in-process Grid behaves as a network does, with the installed Flower and with one that lacks private names."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fieldfare.errors import BadInput
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower import local_grid
from support.refusals import coded

Handler = Callable[[Message, Context], Message]


def answering(handler: Handler) -> ClientApp:
    """A ClientApp with one train function."""
    app = ClientApp()
    app.train()(handler)
    return app


def echo(message: Message, context: Context) -> Message:
    if context.node_config["partition-id"] == 1:
        raise ValueError("a user's data")
    return Message(RecordDict(), reply_to=message)


def ask(handler: Handler, nodes: int = 2, content: RecordDict | None = None) -> list[Message]:
    """One train message to each node, all with the same records; the replies in the nodes' order."""
    grid = LocalGrid(answering(handler), nodes)
    shared = content if content is not None else RecordDict()
    messages = [grid.create_message(shared, "train", node, "7") for node in grid.get_node_ids()]
    ids = list(grid.push_messages(messages))
    replies = list(grid.pull_messages(ids))
    assert [reply.metadata.reply_to_message_id for reply in replies] == ids
    return replies


def test_each_node_answers_its_message_and_an_exception_is_an_error_reply_in_flowers_words() -> None:
    good, bad = ask(echo)
    assert not good.has_error()
    assert (bad.error.code, bad.error.reason) == (2, "<class 'ValueError'>:<'a user's data'>")


def test_each_message_has_its_own_records() -> None:
    sizes = []

    def empty(message: Message, context: Context) -> Message:
        arrays, config = message.content["arrays"], message.content["config"]
        assert isinstance(arrays, ArrayRecord)
        assert isinstance(config, ConfigRecord)
        sizes.append((len(arrays), list(config["layers"])))  # type: ignore[arg-type]
        arrays.clear()
        config["layers"].append(3)  # type: ignore[union-attr, arg-type]
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    sent = RecordDict({"arrays": ArrayRecord([np.zeros(2)]), "config": ConfigRecord({"layers": [1, 2]})})
    ask(empty, 3, sent)
    assert sizes == [(1, [1, 2])] * 3
    assert (len(sent["arrays"]), sent["config"]["layers"]) == (1, [1, 2])  # type: ignore[call-overload]


def test_a_reply_shares_no_records_with_what_its_node_keeps() -> None:
    def keep(message: Message, context: Context) -> Message:
        if "kept" not in context.state:
            context.state["kept"] = ArrayRecord([np.ones(2)])
        return Message(RecordDict({"arrays": context.state["kept"]}), reply_to=message)

    grid = LocalGrid(answering(keep), 1)
    for _ in range(2):
        (reply,) = grid.send_and_receive([grid.create_message(RecordDict(), "train", 2, "")])
        (arrays,) = reply.content.array_records.values()
        assert len(arrays) == 1
        arrays.clear()


def test_a_forged_reply_answers_the_message_that_it_was_made_for() -> None:
    def forge(message: Message, context: Context) -> Message:
        forged = Metadata(9, "mine", 3, 1, "of another", "their round", 0.0, 1.0, "query")
        return Message(RecordDict(), metadata=forged)  # type: ignore[call-overload, no-any-return]

    for node, reply in enumerate(ask(forge), start=2):
        known = reply.metadata
        assert (known.src_node_id, known.dst_node_id, known.group_id, known.message_type) == (node, 1, "7", "train")


def test_a_node_that_returns_no_message_and_a_node_that_is_not_there_are_error_replies() -> None:
    (nothing,) = ask(lambda message, context: None, 1)  # type: ignore[arg-type, return-value]
    assert nothing.error.code == 2
    assert "NoneType" in nothing.error.reason
    grid = LocalGrid(answering(echo), 1)
    (absent,) = grid.send_and_receive([grid.create_message(RecordDict(), "train", 99, "")])
    assert absent.error.code == 5


def test_a_grid_needs_a_node_and_gives_every_node_its_own_configuration() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "nodes")):
        LocalGrid(answering(echo), 0)
    seen = []

    def look(message: Message, context: Context) -> Message:
        seen.append((dict(context.node_config), context.run_config.pop("lr")))
        return Message(RecordDict(), reply_to=message)

    grid = LocalGrid(answering(look), 2, {"lr": 0.5}, {"clinic": "north"})
    grid.send_and_receive([grid.create_message(RecordDict(), "train", node, "") for node in grid.get_node_ids()])
    assert seen == [({"clinic": "north", "partition-id": i, "num-partitions": 2}, 0.5) for i in range(2)]


def add_one(message: Message, context: Context) -> Message:
    """Adds (partition + 1) to every weight; has 1, 3, 4 examples."""
    (arrays,) = message.content.array_records.values()
    index = int(context.node_config["partition-id"])
    moved = {name: Array(value.numpy() + np.float32(index + 1)) for name, value in arrays.items()}
    metrics = MetricRecord({"num-examples": (1, 3, 4)[index], "train_loss": index + 0.5})
    return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)


def test_an_unmodified_app_of_flower_gives_fedavgs_model_and_metrics() -> None:
    results = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
        start = ArrayRecord({"b": Array(np.array([0.5, -0.5], np.float32))})
        rounds = int(context.run_config["rounds"])
        result = strategy.start(grid, start, num_rounds=rounds, evaluate_fn=lambda r, _: MetricRecord({"round": r}))
        results.append(result)

    LocalGrid(answering(add_one), 3, {"rounds": 2}).run_app(server)
    (result,) = results
    # spec/door.md 6.6, FedAvg with examples 1, 3, 4: b is 2.875 1.875 after one round, 5.25 4.25 after two.
    np.testing.assert_allclose(result.arrays["b"].numpy(), [5.25, 4.25], rtol=1e-6)
    assert result.train_metrics_clientapp[1]["train_loss"] == pytest.approx(1.875)
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2]


def test_it_works_with_a_flower_without_task_identity_and_runs(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As before pull request 8175: any process may make messages.
    anybody = SimpleNamespace(task_id=1, run_id=1, node_id=1)
    monkeypatch.setattr("flwr.app.message.message.TaskIdentity", anybody)
    remove("flwr.supercore.task_identity", "flwr.supercore.run:Run")
    assert len(ask(echo)) == 2
    assert LocalGrid(answering(echo), 1).run.run_id == 1


def test_it_is_refused_only_where_no_message_can_be_made(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strict:
        @property
        def run_id(self) -> int:
            raise RuntimeError("TaskIdentity.run_id is not set.")

    monkeypatch.setattr("flwr.app.message.message.TaskIdentity", Strict())
    remove("flwr.supercore.task_identity")
    with pytest.raises(BadInput, check=coded("unsupported", "LocalGrid")):
        LocalGrid(answering(echo), 1)


def test_error_codes_are_those_of_the_installed_flower() -> None:
    codes = pytest.importorskip("flwr.common.constant").ErrorCode
    assert codes.CLIENT_APP_RAISED_EXCEPTION == local_grid.CLIENT_APP_RAISED
    assert codes.NODE_UNAVAILABLE == local_grid.NODE_UNAVAILABLE


def test_messages_without_metadata_as_an_argument_get_their_id_in_flowers_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Later(Message):
        def __init__(self, *arguments: object, metadata: object = None, **keywords: object) -> None:
            if metadata is not None:
                raise TypeError("unexpected keyword argument 'metadata'")
            super().__init__(*arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(local_grid, "Message", Later)
    good, bad = ask(echo)
    assert not good.has_error()
    assert bad.error.code == 2


def test_messages_that_keep_their_id_elsewhere_are_reported_once(
    remove: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = SimpleNamespace(metadata=SimpleNamespace(message_id=""))

    def make(content: RecordDict, *arguments: object, metadata: object = None, **keywords: object) -> object:
        if metadata is not None:
            raise TypeError
        return elsewhere

    grid = LocalGrid(answering(echo), 1)
    message = grid.create_message(RecordDict(), "train", 2, "")
    monkeypatch.setattr(local_grid, "Message", make)
    with caplog.at_level(logging.WARNING):
        local_grid.deliver(message)
        local_grid.deliver(message)
    (warning,) = caplog.records
    assert "until its timeout" in warning.getMessage()


LATER = """
from abc import abstractmethod
from flwr.serverapp import Grid
class Later(Grid):
    @abstractmethod
    def stream_messages(self): ...
import flwr.serverapp
flwr.serverapp.Grid = Later
from flwr.clientapp import ClientApp
from fieldfare_client.simulation import LocalGrid
grid = LocalGrid(ClientApp(), 1)
try:
    grid.stream_messages()
except NotImplementedError as error:
    print(error)
"""


def test_a_later_abstract_method_does_not_keep_the_grid_from_being_made() -> None:
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=False, timeout=60)
    assert "LocalGrid has no stream_messages" in done.stdout, done.stderr
