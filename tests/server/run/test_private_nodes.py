"""Nodes with a training loop of their own (`ff.private`) in a run: the server sees what it sees of any node."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.torch import load_file
from torch import nn

from fieldfare.errors import FieldfareError
from fieldfare_client import private
from fieldfare_client.blinder import Blinder
from fieldfare_client.masking import BLINDER, NODE_KEY, NotMasked, make_node_key
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower.local_grid import assume_task_identity
from fieldfare_flower.masked import Masking, digest_of_config
from fieldfare_flower.messages import HEADER
from fieldfare_flower.npy import BadReply
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.masked import rehearse_masks
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import USERS, TinyTask, home, plan

MASKED_TABLE = {"kind": "masked", "least_nodes": 2}

IDS = [f"user-{index:02d}" for index in range(USERS)]
TABLE = TinyTask().users()


def adam(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
    rows = TABLE.rows(torch.tensor([IDS.index(user)]).numpy()).columns
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        (model(rows["x"])[:, 0] - rows["y"]).square().mean().backward()
        optimizer.step()
    if user == IDS[0]:
        raise ValueError("this user always fails")


def nodes(count: int, **node_config: str) -> LocalGrid:
    """Nodes whose patients are trained by Adam, with `node_config` as their own configuration."""
    app = ClientApp()

    def hosted(context: Context) -> list[str]:
        return IDS[int(context.node_config["partition-id"]) :: count]

    app.query("users")(private.users(hosted))
    app.train()(private.train(TinyTask().build_model)(adam))
    return LocalGrid(app, count, {}, dict(node_config))


def test_a_run_of_own_loops_releases_charges_and_ends(tmp_path: Path) -> None:
    state_dir, reports = home(tmp_path), list[RoundReport]()
    with Session.begin(state_dir, plan(), identity_is_stable=True) as session:
        FieldfareStrategy(session, reports.append).start(nodes(3))
    with Ledger.open(state_dir.ledger) as ledger:
        row = ledger.run(session.account.id)
    assert (row.state, row.next_round) == ("done", 6)
    assert row.spent_epsilon == pytest.approx(reports[-1].epsilon)
    model = TinyTask().build_model()
    model.load_state_dict(load_file(state_dir.root / session.account.id / "model.safetensors"), strict=True)


def test_a_masked_run_of_own_loops_releases_the_bytes_of_a_plain_one(tmp_path: Path) -> None:
    released = []
    for number, changes in enumerate([{}, {"aggregation": MASKED_TABLE}]):
        (tmp_path / str(number)).mkdir()
        state = home(tmp_path / str(number))
        with Session.begin(state, plan(**changes), identity_is_stable=True, run_id="run") as session:
            grid = nodes(8)
            rehearse_masks(grid, session.plan, session.schema, state.root)
            FieldfareStrategy(session).start(grid)
        released.append((state.root / "run" / "model.safetensors").read_bytes())
    assert released[0] == released[1]


class Hurrying(LocalGrid):
    """A server that gives one node, 2, no time to train, and the others all they want."""

    def answer(self, message: Message) -> Message:
        if (message.metadata.dst_node_id, message.metadata.message_type) == (2, "train"):
            message.metadata.__dict__["_ttl"] = 1e-4
        reply = super().answer(message)
        if message.metadata.message_type == "train":
            self.errors[message.metadata.dst_node_id].append(reply.error.reason if reply.has_error() else "")
        return reply


def test_a_masked_node_that_was_given_no_time_is_in_no_sum(tmp_path: Path) -> None:
    """Its users would count as zero: what a sum of all such and one other says is that one's update."""
    state = home(tmp_path)
    with Session.begin(state, plan(aggregation=MASKED_TABLE), identity_is_stable=True) as session:
        grid = nodes(4)
        grid.__class__, grid.errors = Hurrying, defaultdict(list)  # type: ignore[attr-defined]
        rehearse_masks(grid, session.plan, session.schema, state.root)
        FieldfareStrategy(session).start(grid)
    in_time = grid.errors  # type: ignore[attr-defined]
    late = in_time.pop(2)
    assert late
    assert all("NotNow" in said for said in late)
    assert {said for told in in_time.values() for said in told} == {""}


def test_a_node_of_own_loops_that_names_a_blinder_sends_nothing_in_clear(tmp_path: Path) -> None:
    app, reply = ClientApp(mods=[private]), list[Message]()  # type: ignore[list-item]
    app.train()(lambda message, context: reply.append(message) or message)  # type: ignore[func-returns-value]
    context = Context(run_id=1, node_id=1, node_config={BLINDER: "ffb1:" + "0" * 64}, state=RecordDict(), run_config={})
    assume_task_identity()
    with pytest.raises(NotMasked):
        app(Message(RecordDict(), 1, "train"), context)
    assert not reply
    state = home(tmp_path)
    with Session.begin(state, plan(), identity_is_stable=True) as session, pytest.raises(FieldfareError):
        FieldfareStrategy(session).start(nodes(3, **{BLINDER: "ffb1:" + "0" * 64}))


@pytest.mark.parametrize("case", ["mod-train", "mod-train.other", "mod-evaluate", "mod-query.other", "loop-train"])
def test_masks_without_a_header_open_no_way_in_clear(tmp_path: Path, case: str) -> None:
    """A message that names the node's own blinder, and is Flower's own: what answers it would not mask."""
    place, _, kind = case.partition("-")
    mods: list[Any] = [private] if place == "mod" else []
    called, file = list[int](), tmp_path / "sign"
    make_node_key(file)
    context = Context(1, 1, {BLINDER: Blinder(tmp_path / "blinder").public_key, NODE_KEY: str(file)}, RecordDict(), {})
    content = RecordDict({"arrays": ArrayRecord({"0": Array(np.zeros(3, np.float32))}), HEADER: ConfigRecord()})
    Masking(str(context.node_config[BLINDER]), -10, 32, "0" * 64, config=digest_of_config({})).write(content)
    del content[HEADER]
    app = ClientApp(mods=mods)
    if mods:

        def answer(message: Message, context: Context) -> Message:
            called.append(1)
            return Message(message.content, reply_to=message)

        for name in (None, "other"):
            named = () if name is None else (name,)
            app.train(*named)(answer)
            app.query(*named)(answer)
        app.evaluate()(answer)
    else:
        app.query("users")(private.users(lambda context: ["one"]))
        build = private.train(lambda: [np.zeros(3, np.float32)])
        app.train()(build(lambda model, user, context, config: called.append(1)))
    assume_task_identity()
    try:
        app(Message(content, 1, kind), context)
        refused = "answered in clear"
    except (FieldfareError, BadReply) as error:
        refused = type(error).__name__
    assert refused in ("BadReply", "NotMasked")
    assert not called


@pytest.mark.parametrize("count", [1, 4])
def test_without_noise_the_model_moves_by_the_mean_of_the_clipped_updates(count: int) -> None:
    a_plan = plan(
        run={"task": "support.federation:TinyTask", "rounds": 1, "cohort": USERS, "min_reports": USERS},
        participation={},
        clipping={"kind": "flat", "norm": 0.05},
    )
    with Session.rehearse(a_plan, noise=False) as session:
        before = session.params.clone()
        FieldfareStrategy(session).start(nodes(count))
        moved = session.params - before
    expected = torch.zeros(4, dtype=torch.float64)
    for user in IDS[1:]:
        model = TinyTask().build_model()
        adam(model, user, None, {})  # type: ignore[arg-type]
        flat = torch.cat([value.detach().flatten() for value in model.parameters()]).double() - before
        expected += flat * min(1.0, 0.05 / float(flat.norm()))
    # The user who fails is one of the denominator: a zero, not an absence.
    torch.testing.assert_close(moved.double(), expected / USERS, rtol=1e-4, atol=1e-7)
