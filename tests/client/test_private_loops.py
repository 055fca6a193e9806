"""`ff.private`: each user's update is a function of that user alone, whatever their training loop does."""

from __future__ import annotations

import contextlib
import logging
import random
import sqlite3
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fieldfare import clipping
from fieldfare.errors import BadInput, WrongForm
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema, pseudonym, pseudonyms
from fieldfare.task import seeded
from fieldfare_client import independence, private
from fieldfare_client.independence import Dependent, require_independent
from fieldfare_client.own_randomness import own_randomness
from fieldfare_client.private import mod as private_mod
from fieldfare_client.private import progress
from fieldfare_client.private.node import AppNode
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.training.schedule import user_keys
from fieldfare_flower.messages import BadReply, Occasion, TrainInstruction, TrainReply, read_users, write_users_query
from support.refusals import Coded, coded

OCCASION = Occasion("run-1", 4, 0)
IDS = ["anna", "ben", "cleo", "dan"]


def net() -> nn.Module:
    with seeded(1):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2))


def rows(user: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(pseudonym(user) % 2**32)
    count = 4 + len(user)
    x = generator.normal(size=(count, 3)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(generator.integers(0, 2, count))


def adam(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> str:
    """A loop like anyone's: Adam, a shuffled loader, augmentation, several epochs."""
    optimizer = torch.optim.Adam(model.parameters(), lr=config.get("lr", 0.05))
    dataset = torch.utils.data.TensorDataset(*rows(user))
    for _ in range(2):
        for x, y in torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True):
            noise = torch.randn_like(x) + float(np.random.normal()) + random.random()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x + 0.1 * noise), y).backward()
            optimizer.step()
    return f"what {user} said"


def make(
    loop: Any = adam, ids: Any = IDS, build: Callable[[], nn.Module] = net, mods: Any = None, **options: Any
) -> LocalGrid:
    """One node whose app has users and a loop, all in this process: what is put back between users, and can be seen."""
    app = ClientApp(mods=mods)
    app.query("users")(private.users(lambda context: ids(context) if callable(ids) else ids))
    app.train()(private.train(build, **{"isolation": "none", **options})(loop))
    return LocalGrid(app, 1, {})


def point(build: Callable[[], nn.Module] = net) -> tuple[Schema, dict[str, np.ndarray[Any, Any]]]:
    model = build()
    schema = Schema.of(model)
    return schema, schema.arrays(schema.flatten(dict(model.named_parameters())))


def instruct(
    grid: LocalGrid,
    users: list[str],
    build: Callable[[], nn.Module] = net,
    norm: float = 0.5,
    config: dict[str, Any] | None = None,
    kind: str = "flat",
    points: int = 1,
    weights: tuple[float, ...] = (1.0,),
    queries: int = 1,
    batches: int = 3,
    ttl: float | None = None,
) -> Message:
    _, arrays = point(build)
    spec = clipping.parse({"kind": kind, "norm": norm})
    settings = {"client": ClientSpec().model_dump(mode="json"), "clipping": spec.model_dump(mode="json"), "seed": 7}
    models = tuple({name: value + index for name, value in arrays.items()} for index in range(points))
    instruction = TrainInstruction(OCCASION, models, weights, pseudonyms(users), settings, queries, batches)
    content = instruction.write()
    if config is not None:
        content["config"] = ConfigRecord(config)
    (reply,) = grid.send_and_receive([Message(content, 2, "train", ttl=ttl)])
    return reply


def summed(grid: LocalGrid, users: list[str], build: Callable[[], nn.Module] = net, **options: Any) -> torch.Tensor:
    reply = instruct(grid, users, build, **options)
    assert not reply.has_error(), reply.error
    schema = point(build)[0]
    read = TrainReply.read(reply.content, schema, OCCASION, len(users))
    assert read.users == len(users)
    return schema.flatten({name: torch.from_numpy(value.copy()) for name, value in read.update.items()})


def reason(reply: Message) -> str:
    assert reply.has_error()
    return str(reply.error.reason)


def ask(grid: LocalGrid) -> Message:
    (reply,) = grid.send_and_receive([Message(write_users_query("run-1"), 2, "query.users")])
    return reply


# -- one user at a time ---------------------------------------------------------------------------------------------


def test_a_node_sums_its_users_clipped_updates_each_as_if_alone() -> None:
    grid = make()
    alone = {user: summed(make(), [user]) for user in IDS}
    assert all(0 < float(update.norm()) <= 0.5 for update in alone.values())
    # Any subset in any order, on a node that has trained others before: each user's part is the same, bit for bit.
    for users in (["dan"], ["ben"], ["anna", "ben"], ["ben", "anna"]):
        expected = sum((alone[user].double() for user in users), torch.zeros_like(alone["dan"]).double())
        assert torch.equal(summed(grid, users), expected.float())
    torch.testing.assert_close(summed(grid, IDS), sum(alone.values(), torch.zeros_like(alone["dan"])))


def test_a_loop_that_hangs_ends_with_its_round(caplog: pytest.LogCaptureFixture) -> None:
    """What its user and those after it send is zero: the reply comes too late, and the node is free for the next."""

    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        if user == "ben":
            time.sleep(60)
        adam(model, user, context, config)

    grid, began = make(loop, isolation="process"), time.monotonic()
    alone = summed(grid, ["anna"])
    with caplog.at_level("WARNING", "fieldfare.client"):
        assert torch.equal(summed(grid, ["anna", "ben", "cleo"], ttl=4.0), alone)
    assert "outlasted its round" in caplog.text
    assert time.monotonic() - began < 50
    assert torch.equal(summed(grid, ["anna"]), alone)


def test_an_update_is_what_the_loop_does_to_the_model() -> None:
    """Against the same loop run by hand, with the same seeds."""
    schema, arrays = point()
    model = net()
    key = int(user_keys(pseudonyms(["cleo"]), 7, 3)[0])
    before = schema.flatten(dict(model.named_parameters()))
    with own_randomness(key):
        adam(model, "cleo", Context(0, 0, {}, RecordDict(), {}), {"lr": 0.05})
    update = schema.flatten(dict(model.named_parameters())) - before
    assert torch.equal(summed(make(), ["cleo"], norm=100.0), update)
    assert torch.equal(summed(make(), ["cleo"], norm=100.0, config={"lr": 0.05}), update)
    assert not torch.allclose(summed(make(), ["cleo"], norm=100.0, config={"lr": 0.01}), update, rtol=0.1)
    assert not torch.equal(summed(make(), ["cleo"], norm=100.0, batches=4), update)
    assert arrays.keys() == set(schema.names)


def test_neither_context_nor_config_nor_settings_of_torch_reach_the_next_user() -> None:
    seen: list[tuple[Any, ...]] = []

    def meddle(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        layer = model[0]  # type: ignore[index]
        seen.append(
            (
                dict(config),
                dict(context.state),
                dict(context.node_config),
                torch.is_grad_enabled(),
                torch.get_default_dtype(),
                model.training,
                layer.weight.requires_grad,
                layer.weight.grad,
                vars(layer).get("counter"),
                vars(layer).get("cache"),
                float(model[1].running_mean.sum()),  # type: ignore[index]
            )
        )
        adam(model, user, context, config)
        config["lr"] = 9.0
        context.state["of"] = MetricRecord({"mean": 1.0})
        context.node_config["user"] = user
        context.run_config["user"] = user
        random.seed(5)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        model.eval()
        layer.weight.requires_grad_(False)
        layer.counter, layer.cache = 5, torch.ones(3)

    grid = make(meddle)
    first = summed(grid, IDS, config={"lr": 0.05})
    assert len(seen) == 4
    assert seen == [seen[0]] * 4
    assert seen[0][0] == {"lr": 0.05, "server-round": 5}
    assert torch.equal(summed(grid, IDS, config={"lr": 0.05}), first)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32


def test_the_callers_generators_continue_where_they_were() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.random(), float(torch.rand(()))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    summed(make(), ["anna", "ben"])
    assert (random.random(), np.random.random(), float(torch.rand(()))) == expected


def test_updates_do_not_depend_on_the_callers_generators() -> None:
    updates = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        updates.append(summed(make(), ["anna"]))
    assert torch.equal(*updates)


def replace(model: Any) -> None:
    model[0].weight = nn.Parameter(torch.zeros(4, 3))


def widen(model: Any) -> None:
    model.double()


def reshape(model: Any) -> None:
    model[0].weight.data = torch.zeros(4, 5)


def wrap(model: Any) -> None:
    model[0] = nn.Sequential(model[0])


@pytest.mark.parametrize("alter", [replace, widen, reshape, wrap])
def test_a_user_who_alters_the_model_contributes_zero_and_the_next_gets_a_new_one(
    alter: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    def loop(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        adam(model, user, context, config)
        if user == "anna":
            alter(model)

    grid = make(loop)
    assert torch.equal(summed(grid, ["anna", "ben"]), summed(make(), ["ben"]))
    assert "1 of 2 users contribute zero: 1 Altered" in caplog.text
    assert "anna" not in caplog.text


def test_hooks_and_modules_left_behind_are_not_passed_on() -> None:
    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        if user == "anna":
            model[0].register_forward_hook(lambda module, inputs, output: output * 3)
            model.append(nn.Identity())
            model[3].weight.register_hook(lambda gradient: gradient * 0)
        adam(model, user, context, config)

    both = summed(make(loop), ["anna", "ben"])
    assert torch.equal(both, (summed(make(loop), ["anna"]).double() + summed(make(), ["ben"]).double()).float())


def test_moving_the_model_is_no_alteration() -> None:
    """`model.to(device)` and another memory layout change no parameter; the next user has the built layout again."""
    layouts = []

    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        layouts.append(model[0].weight.stride())
        model.to("cpu", memory_format=torch.channels_last)
        adam(model, user, context, config)
        model[0].weight.data = model[0].weight.data.t().contiguous().t()

    assert torch.equal(summed(make(loop), ["anna", "ben"]), summed(make(), ["anna", "ben"]))
    assert layouts == [(3, 1), (3, 1)]


def test_rebuild_builds_for_every_user() -> None:
    built = []

    def build() -> nn.Module:
        built.append(torch.rand(()))
        return net()

    plain = summed(make(build=build), ["anna", "ben"])
    assert len(built) == 1
    assert torch.equal(summed(make(build=build, rebuild=True), ["anna", "ben"]), plain)
    assert len(built) == 4  # once for the schema
    assert len({float(value) for value in built}) == 1


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["raise", "nan", "inf"])
def test_a_failing_user_contributes_zero_and_costs_no_one_else(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        adam(model, user, context, config)
        if user == "ben" and fault == "raise":
            raise KeyError(f"the data of {user}")
        if user == "ben":
            model[0].weight.data[0, 0] = float(fault)

    got = summed(make(loop), ["anna", "ben", "cleo"])
    assert torch.equal(got, summed(make(), ["anna", "cleo"]))
    what = "KeyError at test_private_loops.py:" if fault == "raise" else "update that is not finite"
    assert f"1 of 3 users contribute zero: 1 {what}" in caplog.text
    assert "ben" not in caplog.text


def test_a_huge_update_is_clipped_and_a_zero_update_is_a_report() -> None:
    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        if user == "anna":
            model[0].weight.data += 1e30

    update = summed(make(loop), ["anna", "ben"], norm=0.25)
    assert float(update.double().norm()) == pytest.approx(0.25, rel=1e-4)
    assert float(update.double().norm()) <= 0.25
    assert not summed(make(loop), ["ben"]).any()


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_nodes_task(end: type[BaseException]) -> None:
    def loop(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        raise end

    state = torch.get_rng_state()
    with pytest.raises(end):
        instruct(make(loop), ["anna"])
    assert torch.equal(torch.get_rng_state(), state)


def test_writing_to_frozen_parameters_fails_the_user() -> None:
    def build() -> nn.Module:
        model = net()
        model[0].requires_grad_(False)  # type: ignore[index,operator]
        return model

    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        adam(model, user, context, config)
        if user == "anna":
            with torch.no_grad():
                model[0].weight.add_(1)

    assert point(build)[0].names == ("1.weight", "1.bias", "3.weight", "3.bias")
    assert torch.equal(
        summed(make(loop, build=build), ["anna", "ben"], build), summed(make(build=build), ["ben"], build)
    )


def test_a_lost_gpu_is_an_error_reply_and_no_sum_of_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    def synchronize() -> None:
        raise RuntimeError("CUDA error")

    assert not summed(make(loop), ["anna"]).any()
    monkeypatch.setattr("fieldfare_client.private.node.uses_cuda", lambda: True)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    assert not summed(make(loop), ["anna"]).any()
    monkeypatch.setattr("torch.cuda.synchronize", synchronize)
    assert "LostDevice" in reason(instruct(make(loop), ["anna", "ben"]))


# -- what nodes are asked -------------------------------------------------------------------------------------------


def test_a_node_names_its_users_and_its_model() -> None:
    names = read_users(ask(make()).content, point()[0], 10)
    assert names.tolist() == pseudonyms(IDS).tolist()
    with pytest.raises(BadReply, match="another model"):
        read_users(ask(make()).content, Schema.of(nn.Linear(3, 2)), 10)


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["a", "secret", "secret", "secret"], "2 of 4 ids occur before"),
        (["a", 5], "1 of 2 ids are not strings"),
        ("a5", "one string is no list"),  # its letters were users
    ],
)
def test_lists_of_users_that_are_refused_quote_no_id(ids: list[Any], says: str) -> None:
    grid = make(ids=ids)
    for reply in (ask(grid), instruct(grid, ["a"])):
        assert says in reason(reply)
        assert "secret" not in reason(reply)


@pytest.mark.parametrize("part", ["ids", "build"])
@pytest.mark.parametrize("raising", [KeyError("anna"), WrongForm("patient anna", "is no row.")])
def test_of_what_an_apps_own_code_raises_a_real_node_tells_the_class_alone(
    part: str, raising: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its text left the node in clear, a masked one's too; it may quote a user. Where all is one's own, it is shown."""

    def fails(*_: object) -> Any:
        raise raising

    grid = make(**{part: fails})
    for reply in (ask(grid), instruct(grid, ["anna"])):
        assert "anna" in reason(reply)
    monkeypatch.setattr("fieldfare_flower.own_data.tally_here", lambda: None)
    for reply in (ask(grid), instruct(grid, ["anna"])):
        assert reason(reply) == f"<class '{type(raising).__name__}'>"
    assert "fails" in caplog.text  # the node's operator has the traceback
    assert "names a user twice" in reason(instruct(make(), ["anna", "anna"]))  # Fieldfare's own words


def test_users_that_are_not_hosted_or_asked_twice_are_an_error() -> None:
    assert "1 of 2 asked users are not hosted" in reason(instruct(make(), ["anna", "eve"]))
    assert "names a user twice" in reason(instruct(make(), ["anna", "anna"]))


def test_users_may_depend_on_the_node() -> None:
    app = ClientApp()
    app.query("users")(private.users(lambda context: [f"p{context.node_config['partition-id']}"]))
    app.train()(private.train(net)(adam))
    grid = LocalGrid(app, 3, {})
    queries = [Message(write_users_query("r"), node, "query.users") for node in (2, 3, 4)]
    names = [read_users(reply.content, point()[0], 1).tolist() for reply in grid.send_and_receive(queries)]
    assert names == [[pseudonym(f"p{index}")] for index in range(3)]


def test_points_and_queries_are_combined_before_clipping() -> None:
    schema = point()[0]
    from_first = summed(make(), ["anna"], norm=100.0)
    reply = instruct(make(), ["anna"], norm=100.0, points=2, weights=(1.0, 0.0, -1.0, 2.0), queries=2)
    read = TrainReply.read(reply.content, schema.stacked(2), OCCASION, 1)
    flat = schema.stacked(2).flatten({name: torch.from_numpy(value.copy()) for name, value in read.update.items()})
    assert torch.equal(flat[: schema.numel], from_first)
    only_second = instruct(make(), ["anna"], norm=100.0, points=2, weights=(0.0, 1.0))
    second = TrainReply.read(only_second.content, schema, OCCASION, 1).update
    expected = 2 * schema.flatten({n: torch.from_numpy(v.copy()) for n, v in second.items()}) - from_first
    torch.testing.assert_close(flat[schema.numel :], expected, rtol=1e-5, atol=1e-6)


def test_a_clipping_that_counts_is_counted() -> None:
    reply = instruct(make(), IDS, kind="adaptive-quantile", norm=1e-3)
    assert TrainReply.read(reply.content, point()[0], OCCASION, 4, 1).counts == (4.0,)
    reply = instruct(make(), IDS, kind="adaptive-quantile", norm=1e3)
    assert TrainReply.read(reply.content, point()[0], OCCASION, 4, 1).counts == (0.0,)
    assert "no one norm" in reason(instruct(make(), IDS, kind="adaptive-quantile", queries=2, weights=(1.0, 1.0)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_trains_in_its_own_dtype_and_travels_as_float32(dtype: torch.dtype) -> None:
    def build() -> nn.Module:
        with seeded(2):
            return nn.Linear(3, 2).to(dtype)

    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        assert model.weight.dtype == dtype
        if user == "anna":
            x, y = rows(user)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            nn.functional.cross_entropy(model(x.to(dtype)).float(), y).backward()
            optimizer.step()

    # The point is what float32 noise made of it: between two numbers of half precision. Doing nothing changes nothing.
    assert not summed(make(loop, build=build), ["ben"], build).any()
    assert summed(make(loop, build=build), ["anna"], build).any()


# -- plain instructions ---------------------------------------------------------------------------------------------


def plain(grid: LocalGrid, config: dict[str, Any], state: dict[str, torch.Tensor] | None = None) -> Message:
    content = RecordDict({"arrays": ArrayRecord(net().state_dict() if state is None else state)})
    content["config"] = ConfigRecord({"server-round": 3, **config})
    (reply,) = grid.send_and_receive([Message(content, 2, "train")])
    return reply


def moved(reply: Message) -> dict[str, torch.Tensor]:
    assert not reply.has_error(), reply.error
    after = reply.content.array_records["arrays"].to_torch_state_dict()
    before = net().state_dict()
    assert list(after) == list(before)
    return {name: after[name] - before[name] for name in after}


def test_a_node_of_one_user_answers_flowers_own_messages() -> None:
    grid = make(ids=["anna"])
    reply = plain(grid, {})
    changes = moved(reply)
    assert dict(reply.content.metric_records["metrics"]) == {"num-examples": 1}
    trained = dict(net().named_parameters())
    assert all(bool(change.any()) == (name in trained) for name, change in changes.items())
    length = torch.cat([change.flatten() for change in changes.values()]).norm()
    assert float(length) > 0.1
    clipped = moved(plain(grid, {"clipping_norm": 0.1}))
    for name, change in clipped.items():
        if name in trained:
            torch.testing.assert_close(change, changes[name] * (0.1 / length), rtol=1e-3, atol=1e-6)
    assert all(torch.equal(moved(plain(grid, {}))[name], change) for name, change in changes.items())


def test_what_the_server_sends_of_frozen_parameters_and_buffers_is_used() -> None:
    means = []

    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        means.append(float(model[1].running_mean.mean()))
        adam(model, user, context, config)

    grid = make(loop, ids=["anna"])
    for value in (0.0, 4.0, 4.0):
        state = net().state_dict()
        state["1.running_mean"] = torch.full((4,), value)
        assert not plain(grid, {}, state).has_error()
    assert means == [0.0, 4.0, 4.0]


def test_a_failing_user_of_one_reports_no_change() -> None:
    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        adam(model, user, context, config)
        raise ValueError(user)

    assert not any(change.any() for change in moved(plain(make(loop, ids=["anna"]), {})).values())


def test_a_node_of_several_users_says_which_dialect_it_needs() -> None:
    assert "WrongDialect" in reason(plain(make(), {}))
    assert "cohort" in reason(plain(make(), {}))


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({}, "lacks 6 arrays that the model trains: '0.bias'"),
        ({**net().state_dict(), "0.bias": torch.zeros(5)}, "(5,)"),
    ],
)
def test_arrays_of_another_model_are_refused(state: dict[str, torch.Tensor], says: str) -> None:
    assert says in reason(plain(make(ids=["anna"]), {}, state))


# -- decorators -----------------------------------------------------------------------------------------------------


def module_with(app: ClientApp) -> dict[str, Any]:
    return {"app": app, "__name__": "some_client_app"}


def compiled(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(text, names)
    function: Callable[..., Any] = names["f"]
    return function


@pytest.mark.parametrize("mods", [[], [private, private]])
def test_the_wrong_order_of_decorators_is_explained(mods: list[Any]) -> None:
    app = ClientApp(mods=mods)
    raw = compiled("def f(model, user, context, config): pass", module_with(app))
    with pytest.raises(TypeError, match=r"@ff.private.train must stand below @app.train\(\)"):
        private.train(net)(app.train()(raw))
    listing = compiled("def f(context): return []", module_with(app))
    with pytest.raises(TypeError, match=r'must stand below @app.query\("users"\)'):
        private.users(app.query("users")(listing))


def test_misused_decorators_are_explained() -> None:
    with pytest.raises(TypeError, match=r"write @ff\.private\.train"):
        private.train(adam)(Message(RecordDict(), 2, "train"), None)  # type: ignore[call-arg,arg-type]
    with pytest.raises(TypeError, match=r"callable as train\(model, user, context, config\)"):
        private.train(net)(lambda model, user: None)  # type: ignore[arg-type,misc]
    with pytest.raises(TypeError, match=r"callable as users\(context\)"):
        private.users(lambda: [])  # type: ignore[arg-type,misc]
    with pytest.raises(TypeError, match="not a callable"):
        private.train("net")  # type: ignore[arg-type]


def test_a_handler_keeps_its_name_and_what_is_missing_is_named() -> None:
    alone = types.ModuleType("alone")
    names = vars(alone)
    handler = private.train(net)(compiled("def f(model, user, context, config):\n    'Doc.'", names))
    assert (handler.__name__, handler.__doc__) == ("f", "Doc.")
    app = ClientApp()
    app.train()(handler)
    assert "@ff.private.users" in reason(instruct(LocalGrid(app, 1, {}), ["anna"]))
    other = vars(types.ModuleType("other"))
    app.query("users")(private.users(compiled("def f(context): return ['a']", other)))
    assert "@ff.private.train(build)" in reason(ask(LocalGrid(app, 1, {})))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: 5, coded("wrong-form", "ff.private.train(build)")),
        (lambda: nn.Tanh(), coded("wrong-form", "ff.private.train(build)")),
    ],
)
def test_what_builds_no_model_is_refused(build: Any, says: Coded) -> None:
    with pytest.raises(BadInput, check=says):
        _ = AppNode(lambda *_: None, build, False, None).model


# -- check ----------------------------------------------------------------------------------------------------------


def test_check_passes_a_loop_that_keeps_nothing() -> None:
    private.check(private.train(net)(adam), IDS, config={"lr": 0.1})


class Leaks:
    """What code of HF, Lightning and scikit-learn keeps between users. Each takes one more step than `adam` would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: dict[str, Any] = {}
        self.steps, self.best = 0, float("inf")
        self.generator = torch.Generator().manual_seed(1)
        self.scheduler: Any = None

    def step(self, model: Any, user: str, rate: float = 0.1, x: torch.Tensor | None = None) -> float:
        own, y = rows(user)
        loss = nn.functional.cross_entropy(model(own if x is None else x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for value in model.parameters():
                if value.grad is not None:
                    value -= rate * value.grad
        return float(loss)

    def optimizer(self, model: Any, user: str) -> None:
        optimizer = self.kept.setdefault("adam", torch.optim.Adam(model.parameters(), 0.1))
        x, y = rows(user)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def private_generator(self, model: Any, user: str) -> None:
        x, _ = rows(user)
        self.step(model, user, x=x + torch.randn(x.shape, generator=self.generator))

    def fitted_scaler(self, model: Any, user: str) -> None:
        x, _ = rows(user)
        self.step(model, user, x=x - self.kept.setdefault("mean", x.mean(0)))

    def vocabulary(self, model: Any, user: str) -> None:
        words: dict[str, int] = self.kept.setdefault("words", {})
        places = [words.setdefault(letter, len(words)) for letter in user]
        self.step(model, user, rate=0.1 + sum(places))

    def cached_loader(self, model: Any, user: str) -> None:
        x, _ = self.kept.setdefault("loader", rows(user))
        self.step(model, user, x=x)

    def average_callback(self, model: Any, user: str) -> None:
        self.step(model, user)
        for name, value in model.named_parameters():
            self.kept[name] = value.detach().clone().lerp(self.kept.get(name, value.detach()), 0.9)
            value.data.copy_(self.kept[name])

    def global_step(self, model: Any, user: str) -> None:
        self.steps += 1
        self.step(model, user, rate=min(1.0, self.steps / 100))

    def scheduler_outside(self, model: Any, user: str) -> None:
        if self.scheduler is None:
            dummy = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(dummy, 0.5)
        self.step(model, user, rate=self.scheduler.get_last_lr()[0])
        self.scheduler.optimizer.step()
        self.scheduler.step()

    def file_on_disk(self, model: Any, user: str) -> None:
        file = self.folder / "statistics.txt"
        if not file.exists():
            file.write_text(str(float(rows(user)[0].mean())))
        self.step(model, user, x=rows(user)[0] - float(file.read_text()))

    def database(self, model: Any, user: str) -> None:
        with contextlib.closing(sqlite3.connect(self.folder / "cache.sqlite3")) as cache:
            cache.execute("create table if not exists means (mean real)")
            if not cache.execute("select * from means").fetchall():
                cache.execute("insert into means values (?)", (float(rows(user)[0].mean()),))
                cache.commit()
            [(mean,)] = cache.execute("select * from means").fetchall()
        self.step(model, user, x=rows(user)[0] - mean)

    def partial_fit(self, model: Any, user: str) -> None:
        from sklearn.preprocessing import StandardScaler

        scaler = self.kept.setdefault("scaler", StandardScaler())
        x, _ = rows(user)
        scaled = scaler.partial_fit(x.numpy()).transform(x.numpy())
        self.step(model, user, x=torch.from_numpy(np.asarray(scaled, np.float32)))

    def early_stopping(self, model: Any, user: str) -> None:
        for _ in range(3):
            loss = self.step(model, user)
            if loss > self.best:
                break
            self.best = loss

    def statistics_of_a_module(self, model: Any, user: str) -> None:
        seen = model.__dict__.setdefault("seen", self.kept)
        seen["count"] = seen.get("count", 0) + 1
        self.step(model, user, rate=0.1 / seen["count"])

    def frozen_written_through_data(self, model: Any, user: str) -> None:
        model[0].weight.data.mul_(1.01)
        self.step(model, user)

    def clock(self, model: Any, user: str) -> None:
        self.step(model, user, rate=time.time_ns() % 1000003 / 1e7)


LEAKS = [name for name in vars(Leaks) if name not in ("step",) and not name.startswith("_")]


def frozen() -> nn.Module:
    model = net()
    model[0].requires_grad_(False)  # type: ignore[index,operator]
    return model


@pytest.mark.parametrize("leak", LEAKS)
def test_check_finds_what_is_kept_between_users(leak: str, tmp_path: Path) -> None:
    assert len(LEAKS) >= 12
    kept = getattr(Leaks(tmp_path), leak)

    def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        kept(model, user)

    handler = private.train(frozen if leak == "frozen_written_through_data" else net)(loop)
    for _ in range(2):  # in processes of its own, so once more is the same
        with pytest.raises(BadInput, check=coded("users-dependent", "the training of user")):
            private.check(handler, IDS)
        for kept_there in tmp_path.iterdir():
            kept_there.unlink()


def test_check_says_what_it_needs_and_shows_what_a_loop_raises() -> None:
    def broken(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        raise ZeroDivisionError(f"of {user}")

    def leaves(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        raise SystemExit(3)

    with pytest.raises(BadInput, check=coded("training-raises", "the training of user 'anna'", "ZeroDivisionError")):
        private.check(private.train(net)(broken), IDS)
    with pytest.raises(BadInput, check=coded("training-raises", "the training of user 'anna'")):
        private.check(private.train(net)(leaves), IDS)
    with pytest.raises(BadInput, check=coded("too-few", "ff.private.check")):
        private.check(private.train(net)(adam), ["anna"])
    with pytest.raises(BadInput, check=coded("wrong-form", "ff.private.check")):
        private.check(adam, IDS)
    # Where somebody has trained, a cache may be full for both sides of every comparison.
    app = ClientApp()
    app.query("users")(private.users(lambda context: IDS))
    used = app.train()(private.train(net, isolation="none")(adam))
    summed(LocalGrid(app, 1, {}), IDS)
    with pytest.raises(BadInput, check=coded("unsupported", "ff.private.check")):
        private.check(used, IDS)


# -- progress -------------------------------------------------------------------------------------------------------


def test_progress_is_shown_on_the_node_at_most_every_10_s_and_tenth(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "fieldfare.client"):
        fast, slow = progress.Progress(1000), progress.Progress(3)
        for _ in range(1000):
            now[0] += 0.0625
            fast.count()
        assert [record.getMessage() for record in caplog.records] == [
            f"trained {done} of 1000 users in {done / 16:.1f} s" for done in (160, 320, 480, 640, 800, 960, 1000)
        ]
        caplog.clear()
        for _ in range(3):
            now[0] += 60
            slow.count()
        assert len(caplog.records) == 3


# -- as a mod -------------------------------------------------------------------------------------------------------


def foreign(change: Callable[[dict[str, torch.Tensor]], Any], mods: Any, keep: bool = False) -> LocalGrid:
    """An app that knows nothing of us; unless `keep`, it empties the record that it gets, as many apps do."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        state = message.content.array_records["arrays"].to_torch_state_dict(keep_input=keep)
        result = change(state)
        arrays = ArrayRecord({} if result is None else result)
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 9})})
        return Message(content, reply_to=message)

    @app.query("users")
    def users(message: Message, context: Context) -> Message:
        return Message(RecordDict({"m": MetricRecord({"asked": 1})}), reply_to=message)

    return LocalGrid(app, 1, {})


def send(grid: LocalGrid, state: dict[str, torch.Tensor], config: dict[str, Any], kind: str = "train") -> Message:
    content = RecordDict({"arrays": ArrayRecord(state), "config": ConfigRecord(config)})
    (reply,) = grid.send_and_receive([Message(content, 2, kind)])
    return reply


def test_as_a_mod_it_clips_what_leaves_as_flowers_own_does() -> None:
    """Changes of 3, 3, 3, 3 at norm 1 become .5 each."""
    from flwr.clientapp.mod import fixedclipping_mod

    def add(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value + 3 for name, value in state.items()}

    state = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[0.0], [7.0]])}
    for mod in (private, fixedclipping_mod):
        reply = send(foreign(add, [mod], keep=mod is not private), state, {"clipping_norm": 1.0})
        after = reply.content.array_records["arrays"].to_torch_state_dict()
        for name, value in state.items():
            torch.testing.assert_close(after[name] - value, torch.full_like(value, 0.5), rtol=1e-6, atol=1e-6)
    assert dict(reply.content.metric_records["metrics"]) == {"num-examples": 9}
    # An array of one number, as an intercept is.
    reply = send(foreign(add, [private]), {"a": torch.tensor(1.0)}, {"clipping_norm": 2.0})
    assert reply.content.array_records["arrays"].to_torch_state_dict()["a"] == 3.0
    # Integers cannot be shortened: they leave as they came. What is short enough is untouched.
    reply = send(foreign(add, [private]), {**state, "n": torch.tensor(5)}, {"clipping_norm": 100.0})
    after = reply.content.array_records["arrays"].to_torch_state_dict()
    assert after["n"] == 5
    assert torch.equal(after["a"], state["a"] + 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_as_a_mod_it_lets_nothing_out_that_cannot_be_clipped(value: float) -> None:
    state = {"a": torch.zeros(2, dtype=torch.float64)}
    reply = send(foreign(lambda s: {"a": s["a"] + value}, [private]), state, {"clipping_norm": 1.0})
    after = reply.content.array_records["arrays"].to_torch_state_dict()["a"]
    assert float(after.norm()) <= 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: {**s, "more": s["a"]}, "arrays that the instruction has not"),
        (lambda s: {"a": torch.zeros(3)}, "shape (3,)"),
    ],
)
def test_as_a_mod_it_refuses_replies_that_are_no_update(change: Any, says: str) -> None:
    assert says in reason(send(foreign(change, [private]), {"a": torch.zeros(2)}, {"clipping_norm": 1.0}))


def test_as_a_mod_it_passes_everything_else_through(caplog: pytest.LogCaptureFixture) -> None:
    def fail(state: dict[str, torch.Tensor]) -> None:
        raise ValueError("broken")

    private_mod._warn_of_no_norm.cache_clear()  # another test of this process may have met it
    grid = foreign(lambda s: {"a": s["a"] + 3}, [private])
    assert send(grid, {}, {}, "query.users").content.metric_records["m"]["asked"] == 1
    assert "broken" in reason(send(foreign(fail, [private]), {"a": torch.zeros(2)}, {"clipping_norm": 1.0}))
    unclipped = send(grid, {"a": torch.zeros(2)}, {})
    assert unclipped.content.array_records["arrays"].to_torch_state_dict()["a"].tolist() == [3.0, 3.0]
    assert "nothing is clipped here" in caplog.text
    # The cohort dialect is clipped by the decorator, user by user, and its messages are not the mod's.
    assert torch.equal(summed(make(mods=[private]), IDS), summed(make(), IDS))
    for norm in (0.0, -1.0, float("nan"), "1", True):
        assert "not a clip norm" in reason(send(grid, {"a": torch.zeros(2)}, {"clipping_norm": norm}))


def test_arrays_keep_their_dtypes_through_the_mod() -> None:
    state = {"h": torch.zeros(2, dtype=torch.float16), "d": torch.zeros(2, dtype=torch.float64)}
    reply = send(foreign(lambda s: {n: v + 3 for n, v in s.items()}, [private]), state, {"clipping_norm": 1.0})
    after = reply.content.array_records["arrays"]
    assert {name: array.dtype for name, array in after.items()} == {"h": "float16", "d": "float64"}
    assert isinstance(after["h"], Array)


def test_a_file_of_a_moment_ago_is_an_earlier_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of milliseconds that goes on from the file of the one before passed, now and then."""
    monkeypatch.setattr(independence, "GRAIN", 500_000_000)

    def train(place: int) -> np.ndarray:
        best = tmp_path / "best"
        if best.exists():
            best.read_bytes()
        best.write_bytes(b"the same for all")
        return np.zeros(1, np.float32)

    with pytest.raises(Dependent, match="which an earlier training wrote"):
        require_independent(train, ["ann", "bob"])
