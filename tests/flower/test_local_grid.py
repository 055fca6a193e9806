"""An in-process Grid works with the installed Flower, and with one that lacks the private names it uses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fieldfare_client.simulation import LocalGrid
from fieldfare_flower import local_grid


def echo() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 1:
            raise ValueError("a user's data")
        return Message(RecordDict(), reply_to=message)

    return app


def exchange() -> list[Message]:
    grid = LocalGrid(echo(), 2, {})
    messages = [grid.create_message(RecordDict(), "train", node, "") for node in grid.get_node_ids()]
    ids = list(grid.push_messages(messages))
    replies = list(grid.pull_messages(ids))
    assert [reply.metadata.reply_to_message_id for reply in replies] == ids
    return replies


def test_each_node_answers_its_message_and_an_exception_is_an_error_reply() -> None:
    good, bad = exchange()
    assert not good.has_error()
    assert bad.has_error()
    assert bad.error.code == 2


def test_it_works_with_a_flower_without_task_identity_and_runs(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As before pull request 8175: any process may make messages.
    anybody = SimpleNamespace(task_id=1, run_id=1, node_id=1)
    monkeypatch.setattr("flwr.app.message.message.TaskIdentity", anybody)
    remove("flwr.supercore.task_identity", "flwr.supercore.run:Run")
    assert len(exchange()) == 2
    assert local_grid.make_run() is None


def test_messages_that_keep_their_id_elsewhere_are_reported_once(
    remove: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    message: Any = SimpleNamespace(metadata=SimpleNamespace(message_id=""))
    with caplog.at_level(logging.WARNING):
        assert local_grid.assign_message_id(message) != local_grid.assign_message_id(message)
    (warning,) = caplog.records
    assert "until its timeout" in warning.getMessage()
