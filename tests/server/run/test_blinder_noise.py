"""The blinder's own noise: its law, one row for a question for ever, what it costs, and who says so."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from typer.testing import CliRunner

from fieldfare.accounting.filter import gauge
from fieldfare.blinder_noise import SPARE, BlinderNoise, terms_of
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.masking.boxes import read_key, write_key
from fieldfare.masking.receipts import Receipt, Receipts
from fieldfare.masking.words import RINGS, sum_masks
from fieldfare.mechanisms import build
from fieldfare.names import QUESTION
from fieldfare.plan import Plan
from fieldfare_client.blinder import Blinder
from fieldfare_client.masking import NODE_KEY, make_node_key, mask_reply
from fieldfare_flower.masked import MasksAsked, MasksRefused
from fieldfare_flower.messages import Occasion
from fieldfare_server.cli.application import assemble
from fieldfare_server.run.pricing import blinder_noise_of
from support.federation import plan
from support.masks import INSTRUCTION, masking_of_plan
from support.refusals import coded

NODES, NUMEL, ROUNDS = 3, 20_000, 8


KEY = write_key(bytes(32))
"""Of a blinder that is a party of its own."""


def hidden(ratio: float = 0.5, blinder: str = "", **changes: Any) -> Plan:
    aggregation = {"kind": "masked", "least_nodes": 2, "blinder_noise": ratio, "blinder": blinder}
    return plan(aggregation=aggregation, run__rounds=ROUNDS, run__noise_seed=None, **changes)


class World:
    """A blinder, nodes that it admitted, and plans that it approved."""

    def __init__(self, root: Path, *plans: Plan, numel: int = NUMEL) -> None:
        self.root, self.numel, self.blinder = root, numel, Blinder(root / "blinder")
        self.files = [root / f"{node}.key" for node in range(NODES)]
        self.blinder.admit({make_node_key(file): file.name for file in self.files})
        for each in plans:
            self.blinder.approve(each.digest(), 2, numel, blinder_noise_of(each, numel))
        self.questions: dict[tuple[str, int], MasksAsked] = {}

    def question(self, a_plan: Plan, round: int, run: str = "run") -> MasksAsked:
        """The honest one of this round, the same each time."""
        if (run, round) not in self.questions:
            masking, cost = masking_of_plan(a_plan, self.blinder.public_key, self.numel)
            asked = MasksAsked(run, round, 0, self.numel, 32, masking.plan, INSTRUCTION)
            at, seals = Occasion(run, round, 0), []
            for node, file in enumerate(self.files):
                context = Context(1, node, {NODE_KEY: str(file)}, RecordDict(), {})
                reply = mask_reply(masking, context, cost, at, np.zeros(self.numel, np.float32), 1, ())
                seals.append(asked.read_reply(reply, node, 1)[2])
            self.questions[run, round] = replace(asked, nodes=tuple(range(NODES)), seals=tuple(seals))
        return self.questions[run, round]

    def noise(
        self, a_plan: Plan, round: int, run: str = "run", blinder: Blinder | None = None
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Receipt]:
        """The cells that it took from the masks of a round, and its receipt."""
        asked, blinder = self.question(a_plan, round, run), blinder or self.blinder
        answer, receipt, _ = asked.read_answer(blinder.answer(asked.write()), read_key(blinder.public_key)[1])
        taken = sum_masks(blinder._open(asked), self.numel, 32) - answer
        return taken.view(RINGS[32][1]).astype(np.int64), receipt


@pytest.mark.parametrize("mechanism", [{"kind": "independent"}, {"kind": "nu", "nu": 0.1}, {"kind": "tree"}])
def test_it_is_the_plans_mechanism_at_its_own_multiplier(tmp_path: Path, mechanism: dict[str, Any]) -> None:
    a_plan = hidden(mechanism=mechanism)
    world, noise = World(tmp_path, a_plan), blinder_noise_of(a_plan, NUMEL)
    assert noise is not None
    assert noise.privatiser.grid is not None
    assert noise.multiplier == pytest.approx(0.5 * 2.0, rel=2 * SPARE)
    rows = [world.noise(a_plan, round) for round in range(ROUNDS)]
    b = build(a_plan.mechanism, ROUNDS, a_plan.participation.build()).noising_matrix(ROUNDS)
    expected = (noise.privatiser.std / noise.privatiser.grid.spacing) ** 2 * (b @ b.T)
    found = np.stack([cells for cells, _ in rows]).astype(float)
    found = found @ found.T / NUMEL
    spread = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs(found - expected).max() < 0.05 * spread.max()
    assert np.abs(np.diag(found) / np.diag(expected) - 1).max() < 0.05
    # The clip norm, and what the grid adds to it: not less.
    assert noise.privatiser.std >= noise.multiplier
    assert {receipt.noise for _, receipt in rows} == {noise.multiplier}


@pytest.mark.parametrize("mechanism", [{"kind": "nu", "nu": 0.1}, {"kind": "tree"}, {"kind": "blt"}])
def test_the_same_question_has_the_same_noise_after_any_crash(tmp_path: Path, mechanism: dict[str, Any]) -> None:
    a_plan = hidden(mechanism=mechanism)
    world = World(tmp_path, a_plan)
    first = [world.noise(a_plan, round) for round in range(4)]
    for blinder in (world.blinder, Blinder(tmp_path / "blinder")):
        for round in (3, 0, 2, 2):
            cells, receipt = world.noise(a_plan, round, blinder=blinder)
            assert (cells == first[round][0]).all()
            assert receipt == first[round][1]
    # One process answered the rounds so far, another one goes on: as one stream.
    cells, _ = world.noise(a_plan, 4, blinder=Blinder(tmp_path / "blinder"))
    again, _ = world.noise(a_plan, 4)
    assert (cells == again).all()


def test_no_two_sums_share_a_row(tmp_path: Path) -> None:
    """Another run, another blinder, and an old copy of this one: the copy's receipts tell on it."""
    a_plan = hidden()
    world = World(tmp_path, a_plan)
    shutil.copytree(tmp_path / "blinder", tmp_path / "old")
    seen = [
        world.noise(a_plan, 0),
        world.noise(a_plan, 0, "another"),
        world.noise(a_plan, 0, blinder=Blinder(tmp_path / "old")),
    ]
    for number, (one, _) in enumerate(seen):
        for two, _ in seen[:number]:
            assert abs(np.corrcoef(one, two)[0, 1]) < 0.05
    receipts = Receipts([seen[0][1].text])
    assert (seen[0][1].row, seen[0][1].hash) == (seen[2][1].row, seen[2][1].hash)
    with pytest.raises(BadInput, check=coded("blinder-went-back")):
        receipts.add(seen[2][1])


def test_a_machine_that_makes_other_noise_does_not_answer(tmp_path: Path) -> None:
    """Two answers whose noise differs in its last bits would tell what one does not."""
    a_plan = hidden()
    world = World(tmp_path, a_plan)
    world.noise(a_plan, 0)
    with sqlite3.connect(world.blinder._journal) as journal:
        journal.execute("UPDATE nonces SET masks = ?", ("ab" * 32,))
    with pytest.raises(MasksRefused, check=coded("masks-noise")):
        world.noise(a_plan, 0)
    with sqlite3.connect(world.blinder._journal) as journal:
        journal.execute("DELETE FROM nonces")
    with pytest.raises(MasksRefused, check=coded("masks-noise")):
        world.noise(a_plan, 0)


def test_rounds_go_up_one_by_one_and_a_run_has_one_plan(tmp_path: Path) -> None:
    a_plan, other, bare = hidden(), hidden(0.25), hidden(0.0)
    world = World(tmp_path, a_plan, other, bare, numel=6)
    for round in (1, 5):
        with pytest.raises(MasksRefused, check=coded("masks-order", f"the blinder's masks of round {round + 1} of")):
            world.noise(a_plan, round)
    world.noise(a_plan, 0)
    shown = CliRunner().invoke(assemble("blinder"), ["blinder", "status", "--at", str(tmp_path / "blinder")])
    assert "answer 1: round 1 of" in shown.output  # people count from 1, here as on the run's page
    for another in (other, bare):
        world.questions.clear()
        with pytest.raises(MasksRefused, check=coded("masks-plan")):
            world.noise(another, 1)
    world.questions.clear()
    for round in range(1, ROUNDS):
        world.noise(a_plan, round)
    before = world.blinder.rows("answers")
    with pytest.raises(Exception, match="rounds"):
        world.noise(a_plan, ROUNDS)
    assert world.blinder.rows("answers") == before


def test_a_whole_run_is_charged_with_its_first_answer(tmp_path: Path) -> None:
    a_plan = hidden()
    noise = blinder_noise_of(a_plan, 6)
    assert noise is not None
    world = World(tmp_path, a_plan, numel=6)
    delta = a_plan.privacy.delta
    world.blinder.limit(gauge(1.5 * noise.mu_squared, delta, 0.0), delta)
    assert world.blinder.hello("one", a_plan.digest()).noise == terms_of(noise.multiplier, noise.privatiser)
    assert world.blinder.rows("charges") == []
    for round in range(ROUNDS):
        world.noise(a_plan, round, "one")
        assert world.blinder.rows("charges") == [("one", a_plan.digest(), noise.mu_squared)]
    # There is no room for a second run: it may not begin, and is not answered.
    assert world.blinder.hello("two", a_plan.digest()).noise is None
    assert world.blinder.hello("one", a_plan.digest()).noise == terms_of(noise.multiplier, noise.privatiser)
    with pytest.raises(MasksRefused, check=coded("masks-budget")):
        world.noise(a_plan, 0, "two")
    assert len(world.blinder.rows("answers")) == ROUNDS
    world.blinder.limit(gauge(2.5 * noise.mu_squared, delta, 0.0), delta)
    world.noise(a_plan, 0, "two")


def test_a_budget_covers_no_sums_that_the_server_reads(tmp_path: Path) -> None:
    bare = hidden(0.0)
    one, two = World(tmp_path, hidden(), numel=6).blinder, Blinder(tmp_path / "two")
    one.limit(8.0, 1e-6)
    with pytest.raises(BadInput, check=coded("not-allowed")):
        one.approve(bare.digest(), 2, 6)
    two.approve(bare.digest(), 2, 6)
    with pytest.raises(BadInput, check=coded("not-allowed")):
        two.limit(8.0, 1e-6)
    with pytest.raises(BadInput, check=coded("out-of-range")):
        one.limit(0.0, 1e-6)


def test_what_the_server_learns_is_what_the_plan_would_cost_under_the_blinders_noise() -> None:
    for adjacency in ("zero_out", "replace_one"):
        cost = cost_of(hidden(0.4, KEY, privacy__adjacency=adjacency))
        same = plan(privacy__noise_multiplier=0.4 * 2.0, run__rounds=ROUNDS, privacy__adjacency=adjacency)
        assert cost.against_server is not None
        assert cost.against_server.mu_squared == pytest.approx(cost_of(same).loss.mu_squared, rel=1e-12)
        assert cost.loss.mu_squared == cost_of(hidden(0.0, privacy__adjacency=adjacency)).loss.mu_squared
        assert cost.prefix_noise_rms == pytest.approx(math.hypot(1, 0.4) * cost_of(hidden(0.0)).prefix_noise_rms)
        assert cost.to_json()["epsilon_server"] > cost.epsilon
    assert cost_of(hidden(0.0)).against_server is None


def test_a_blinder_that_is_no_party_hides_nothing_from_the_server() -> None:
    alone = cost_of(hidden(0.4))
    assert alone.against_server is None
    assert "epsilon_server" not in alone.to_json()
    assert dict(alone.describe())["epsilon against the server"].startswith("none")
    for ratio in (0.3, 0.4, 0.7):
        cost = cost_of(hidden(ratio, KEY))
        said = dict(cost.describe())["epsilon against the server"]
        assert cost.against_server is not None
        assert float(said.partition(",")[0]) >= cost.against_server.epsilon(cost.plan.privacy.delta) * (1 - 1e-12)


def test_the_resolution_of_floats_is_charged_to_the_server_too() -> None:
    noise, bare = blinder_noise_of(hidden(0.5), 10**6), cost_of(hidden(0.5, KEY))
    assert noise is not None
    assert bare.against_server is not None
    assert noise.mu_squared > bare.against_server.mu_squared


def test_thirteen_per_cent_more_noise_buys_twice_epsilon() -> None:
    """At epsilon 1 and delta 1e-6, as docs/masked-sums.md says."""
    cost = cost_of(hidden(0.531, KEY, privacy__noise_multiplier=None, privacy__epsilon=1.0, privacy__delta=1e-6))
    assert cost.against_server is not None
    assert cost.against_server.epsilon(1e-6) <= 2.0
    assert 1.13 < cost.plan.aggregation.widening < 1.14


def test_it_survives_its_file() -> None:
    noise = blinder_noise_of(hidden(mechanism={"kind": "blt"}), 6)
    assert noise is not None
    assert noise.entries
    assert BlinderNoise(**json.loads(json.dumps(vars(noise)))) == noise
    # A blinder's file that an earlier version wrote has these, and no others.
    written = {"bits", "entries", "mechanism", "mu_squared", "multiplier", "participation", "rounds", "spacing", "std"}
    assert vars(noise).keys() == written


@pytest.mark.parametrize(
    "changes",
    [{"privacy__rounding": "discrete", "mechanism": {"kind": "independent"}}, {"run__task": QUESTION}],
)
def test_plans_for_which_it_is_not_known_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput, check=coded("blinder-noise")):
        hidden(**changes)


def test_plans_without_it_keep_their_digest() -> None:
    assert (
        hidden(0.0).digest()
        == plan(aggregation={"kind": "masked", "least_nodes": 2}, run__rounds=ROUNDS, run__noise_seed=None).digest()
    )
    assert hidden(0.5).digest() != hidden(0.25).digest() != hidden(0.0).digest()
