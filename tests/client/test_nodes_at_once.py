"""Nodes of one process that train at the same time give, bit for bit, what they give one after another."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fieldfare import clipping
from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema, pseudonyms
from fieldfare_client import app as client_app
from fieldfare_client import private
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.training import workers
from fieldfare_client.training.schedule import user_keys
from fieldfare_client.training.workers import WorkersLost, WorkerTrainer
from fieldfare_flower import logs
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import DeadlyTask, home, plan
from support.refusals import coded

Handler = Callable[[Message, Context], Message]
SOON = 60.0


def grid(handler: Handler, nodes: int, at_once: int) -> LocalGrid:
    app = ClientApp()
    app.train()(handler)
    return LocalGrid(app, nodes, at_once=at_once)


def instructions(a_grid: LocalGrid, *nodes: int) -> list[Message]:
    return [a_grid.create_message(RecordDict(), "train", node, f"{node}") for node in nodes]


def test_two_nodes_answer_while_each_waits_for_the_other() -> None:
    meeting = threading.Barrier(2)

    def meet(message: Message, context: Context) -> Message:
        meeting.wait(SOON)  # broken, and an error reply, where nodes answer one after another
        return Message(RecordDict(), reply_to=message)

    together = grid(meet, 2, 2)
    replies = list(together.send_and_receive(instructions(together, 2, 3)))
    assert not any(reply.has_error() for reply in replies)


@pytest.mark.parametrize("at_once", [2, 3, 16])
def test_fedavg_gives_the_same_bits_whichever_node_ends_first(at_once: int) -> None:
    def model(at_once: int) -> dict[str, bytes]:
        def train(message: Message, context: Context) -> Message:
            index = int(context.node_config["partition-id"])
            if at_once > 1:
                time.sleep(0.01 * ((7 * index) % 3))
            if index % 4 == 1:
                raise ValueError
            draw = torch.Generator().manual_seed(index)
            (arrays,) = message.content.array_records.values()
            moved = {name: Array(v.numpy() + torch.randn(5, generator=draw).numpy()) for name, v in arrays.items()}
            content = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": index + 1})}
            return Message(RecordDict(content), reply_to=message)

        random.seed(3)  # FedAvg asks its nodes in a random order
        start = ArrayRecord({"w": Array(np.full(5, 0.1, np.float32))})
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=9)
        result = strategy.start(grid(train, 9, at_once), start, num_rounds=2)
        return {name: value.numpy().tobytes() for name, value in result.arrays.items()}

    assert model(at_once) == model(1)


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_node_that_fails_costs_no_other_its_reply_and_order_stays(at_once: int) -> None:
    def fail(message: Message, context: Context) -> Message:
        if context.node_id % 2:
            raise ValueError
        time.sleep(0.02)
        return Message(RecordDict(), reply_to=message)

    a_grid = grid(fail, 6, at_once)
    replies = list(a_grid.send_and_receive(instructions(a_grid, 7, 2, 6, 99, 3, 4)))
    assert [reply.metadata.src_node_id for reply in replies] == [7, 2, 6, 99, 3, 4]
    codes = [reply.error.code if reply.has_error() else 0 for reply in replies]
    assert codes == [2, 0, 0, 5, 2, 0]


def test_a_node_answers_its_messages_one_after_another_in_order() -> None:
    running, seen = threading.Lock(), []

    def once(message: Message, context: Context) -> Message:
        assert running.acquire(blocking=False)
        time.sleep(0.005)
        seen.append(message.metadata.group_id)
        running.release()
        return Message(RecordDict(), reply_to=message)

    a_grid = grid(once, 3, 3)
    sent = [a_grid.create_message(RecordDict(), "train", 2, str(place)) for place in range(6)]
    assert not any(reply.has_error() for reply in a_grid.send_and_receive(sent))
    assert seen == [str(place) for place in range(6)]


def test_few_replies_are_made_before_they_are_taken_and_none_is_lost() -> None:
    made = []

    def note(message: Message, context: Context) -> Message:
        made.append(context.node_id)
        return Message(RecordDict(), reply_to=message)

    a_grid = grid(note, 20, 2)
    ids = list(a_grid.push_messages(instructions(a_grid, *a_grid.get_node_ids())))
    assert a_grid.pull_messages(ids), "a reply is made when it is pulled"
    assert not made
    replies = a_grid.pull_messages(ids)
    first = next(replies)
    assert len(made) <= 5
    replies.close()  # type: ignore[attr-defined]
    rest = [reply.metadata.reply_to_message_id for reply in a_grid.pull_messages(ids)]
    assert [first.metadata.reply_to_message_id, *rest] == ids


def test_an_interrupt_of_a_node_ends_the_pull() -> None:
    def interrupt(message: Message, context: Context) -> Message:
        if context.node_id == 3:
            raise KeyboardInterrupt
        return Message(RecordDict(), reply_to=message)

    a_grid = grid(interrupt, 4, 2)
    replies = iter(a_grid.pull_messages(a_grid.push_messages(instructions(a_grid, 2, 3, 4))))
    assert next(replies).metadata.src_node_id == 2
    with pytest.raises(KeyboardInterrupt):
        next(replies)


def test_lines_of_nodes_show_the_run_and_the_time_of_the_thread_that_asks(caplog: pytest.LogCaptureFixture) -> None:
    def note(message: Message, context: Context) -> Message:
        logging.getLogger("fieldfare.client").warning("%s %s", *logs._context.get())
        return Message(RecordDict(), reply_to=message)

    a_grid = grid(note, 2, 2)
    with logs.about("run 7", 3):
        list(a_grid.send_and_receive(instructions(a_grid, 2, 3)))
    assert [record.getMessage() for record in caplog.records] == ["run 7 3"] * 2


def test_fewer_than_one_at_once_is_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "at_once = 0")):
        grid(lambda message, context: message, 2, 0)


# -- users of several nodes in the same workers ---------------------------------------------------------------------


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # also where there is one core: this is not about speed
    monkeypatch.setenv("FIELDFARE_DEVICE", "cpu")
    client_app.forget_users()
    yield
    client_app.forget_users()


def trained(root: Path, at_once: int, processes: int) -> tuple[torch.Tensor, list[int]]:
    """The model of a run of four nodes, and how many replied in each round."""
    root.mkdir()
    client = {"batch_size": 3, "learning_rate": 0.1, "engine": "loop", "workers": processes}
    a_plan = plan(run__rounds=4, client=client)
    a_grid = LocalGrid(client_app.app, 4, {"task": a_plan.task_reference}, at_once=at_once)
    replied: list[int] = []
    with Session.begin(home(root), a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session, lambda report: replied.append(report.reports)).start(a_grid)
    return session.params, replied


@pytest.mark.slow
@pytest.mark.usefixtures("two_cores")
def test_a_run_gives_the_same_bits_with_nodes_in_parallel(tmp_path: Path) -> None:
    alone, one = trained(tmp_path / "alone", 1, 2), trained(tmp_path / "one", 4, 1)
    together = trained(tmp_path / "together", 4, 2)
    assert torch.equal(together[0], alone[0])
    assert together[1] == alone[1] == one[1]
    torch.testing.assert_close(one[0], alone[0], rtol=1e-4, atol=1e-5)


@pytest.fixture
def make_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], WorkerTrainer]]:
    """Pools of two workers, forked: a new interpreter takes seconds to import torch."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(workers, "multiprocessing", SimpleNamespace(get_context=lambda method: fork))
    pools: list[WorkerTrainer] = []
    held: list[tuple[Path, os.stat_result]] = []

    def make() -> WorkerTrainer:
        pools.append(WorkerTrainer("support.federation:DeadlyTask", SETTINGS, DeadlyTask().users(), workers=2))
        held.extend((path, path.stat()) for path, _ in pools[-1]._sums.free)
        return pools[-1]

    yield make
    for pool in pools:
        for process in pool._processes:
            process.terminate()  # forked, they hold each other's pipes open, and would not end by themselves
        pool.close()
    # Another file may have the number of the descriptor.
    assert not [path for path, then in held if path.exists() and os.path.samestat(then, path.stat())]


CLIENT = ClientSpec(batch_size=3, learning_rate=0.1, engine="loop")
FLAT = clipping.parse({"kind": "flat", "norm": 0.5})
SETTINGS = TrainingSettings(CLIENT, FLAT, 0, False)


def cohorts_of(pool: WorkerTrainer) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Six cohorts, and as the third one the user whose rows end a worker."""
    deadly = np.flatnonzero(pool.table.pseudonyms == DeadlyTask.deadly)
    others = np.setdiff1d(np.arange(len(pool.table)), deadly)
    cohorts = np.array_split(others, 6)
    return [*cohorts[:2], deadly, *cohorts[2:]]


# Made once: threads that build models at the same time draw from one generator, and would start from different ones.
MODEL = DeadlyTask().build_model()
START = Schema.of(MODEL).flatten(dict(MODEL.named_parameters()))


def train(pool: WorkerTrainer, users: np.ndarray) -> torch.Tensor:  # type: ignore[type-arg]
    return pool.train([START], [1.0], users, at_round=0, spec=FLAT).update


def test_cohorts_of_several_threads_give_the_same_bits(make_pool: Callable[[], WorkerTrainer]) -> None:
    pool = make_pool()
    cohorts = [*cohorts_of(pool)[:2], *cohorts_of(pool)[3:]] * 3
    expected = [train(pool, users) for users in cohorts]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda users: train(pool, users), cohorts))
    assert all(torch.equal(one, other) for one, other in zip(expected, together, strict=True))
    assert len({one.numpy().tobytes() for one in expected}) == 6
    assert len(pool._sums.free) <= 8, "two shares a thread, and memory is used again"


def test_a_worker_that_dies_costs_only_the_cohort_that_it_trained(make_pool: Callable[[], WorkerTrainer]) -> None:
    making, pools = threading.Lock(), [make_pool(), make_pool(), make_pool()]  # forked before there are threads
    cohorts, spare = cohorts_of(pools[0]), iter(pools[1:])
    now = pools[0]

    def until_trained(users: np.ndarray) -> torch.Tensor | str:  # type: ignore[type-arg]
        nonlocal now
        while True:
            pool = now
            try:
                return train(pool, users)
            except WorkersLost:
                pass
            except RuntimeError as error:
                return str(error)
            with making:
                now = next(spare) if now is pool else now

    one_by_one = [until_trained(users) for users in cohorts]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(until_trained, cohorts))
    for place, (one, other) in enumerate(zip(one_by_one, together, strict=True)):
        if place == 2:
            assert "died" in str(one)
            assert "died" in str(other)
        else:
            assert isinstance(one, torch.Tensor)
            assert isinstance(other, torch.Tensor)
            assert torch.equal(one, other)
    assert [pool.alive for pool in pools] == [False, False, True], "each of the two deaths ended one pool"


@pytest.mark.parametrize("at_once", [1, 3])
def test_own_loops_have_the_process_and_its_random_generators_to_themselves(at_once: int) -> None:
    app = ClientApp()

    @app.query("users")
    @private.users
    def users(context: Context) -> list[str]:
        return [f"user {context.node_config['partition-id']}"]

    @app.train()
    @private.train(lambda: torch.nn.Linear(2, 1))
    def train(model: torch.nn.Module, user: str, context: Context, config: dict[str, object]) -> None:
        for parameter in model.parameters():
            time.sleep(0.002)
            with torch.no_grad():
                parameter.add_(torch.randn(parameter.shape))

    a_grid = LocalGrid(app, 6, at_once=at_once)
    start = RecordDict({"arrays": ArrayRecord(torch.nn.Linear(2, 1).state_dict()), "config": ConfigRecord()})
    sent = [a_grid.create_message(start, "train", node, "") for node in a_grid.get_node_ids()]
    moved = []
    for reply in a_grid.send_and_receive(sent):
        (after,), (before,) = reply.content.array_records.values(), start.array_records.values()
        moved.append([torch.from_numpy(after[name].numpy() - before[name].numpy()) for name in after])
    for node, changes in enumerate(moved):
        name = pseudonyms([f"user {node}"])
        torch.manual_seed(int(user_keys(name, 1, 0)[0]))  # as one node alone draws them
        for change in changes:
            torch.testing.assert_close(change, torch.randn(change.shape), rtol=1e-4, atol=1e-5)
