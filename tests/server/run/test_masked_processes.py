"""Masked rounds while coordinator, blinder, a node and who carries between them, processes of their own, are killed
between a reply and its round's commit. A schedule follows from its number: `pytest -m slow FILE -k "[7]"`.

Where no reply is lost, what is released has the bytes of a plain run that nobody kills; where the blinder adds noise of
its own, of a plain run whose sums got the very same rows of it in clear.

Flower's own SuperLink is killed there in tests/e2e/test_containers_masked.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Error, Message
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto

from fieldfare.blinder_noise import BlinderNoise
from fieldfare.masking.words import read
from fieldfare.noise import SecureNoise
from fieldfare.nonces import Nonces
from fieldfare.plan import Plan
from fieldfare_client import blinder as blinder_module
from fieldfare_client.blinder import Blinder
from fieldfare_flower.masked import QUERY_MASKS, MasksAsked, digest_of
from fieldfare_server import faults
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.pricing import blinder_noise_of
from fieldfare_server.run.round.masked import rehearse_masks
from fieldfare_server.run.round.running_noise import RunningNoise
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

NODES, ROUNDS, NUMEL, BLINDER_NODE = 6, 4, 4, 77
COORDINATOR = [
    *("round.closing.written", "ledger.round.closing", "ledger.round.closed", "strategy.asked", "strategy.summed"),
    *("strategy.privatised", "checkpoint.half-written", "checkpoint.pending", "ledger.round.committing"),
    *("ledger.round.committed", "checkpoint.promoting", "checkpoint.promoted"),
]
BLINDER = ["asked", "opened", "written", "hidden", "durable", "sent"]
"""Before it looks at a question; before and after it is in the journal's transaction; before its commit; before and
after the answer leaves."""
CARRIER = ["taken", "handed", "answered", "passed"]
"""With the question; once the blinder has it; with the answer; once the coordinator has it. What a SuperLink that is
killed loses is on its way, too."""
NODE = ["asked", "sealed", "sent"]
"""Before it trains; with the masked reply, which is lost then; once that has left."""


class Wire:
    """Messages between two processes: a length, and Flower's own bytes. The parent listens, so a question waits."""

    def __init__(self, path: Path) -> None:
        self.path, self.listener = str(path), socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(8)

    def ask(self, message: Message) -> Message:
        """Return the blinder's reply; where its process ends before it answers, the error of a node that is gone."""
        with contextlib.suppress(OSError, EOFError), socket.socket(socket.AF_UNIX) as end:
            end.settimeout(60)
            end.connect(self.path)
            _send(end, message.metadata.message_type.encode(), recorddict_to_proto(message.content).SerializeToString())
            kind, said = _receive(end), _receive(end)
            if kind == b"error":
                return Message(Error(2, said.decode()), reply_to=message)
            return Message(recorddict_from_proto(Proto.FromString(said)), reply_to=message)
        return Message(Error(3, "gone"), reply_to=message)

    def carry(self, further: Wire, passes: Callable[[str], None]) -> None:
        """Carry questions to who listens at `further`, and the answers back, until killed."""
        while True:
            end, _ = self.listener.accept()
            with contextlib.suppress(OSError, EOFError), end, socket.socket(socket.AF_UNIX) as there:
                question = _receive(end), _receive(end)
                note = passes if question[0].decode() == QUERY_MASKS else str
                note("taken")
                there.connect(further.path)
                _send(there, *question)
                note("handed")
                answer = _receive(there), _receive(there)
                note("answered")
                _send(end, *answer)
                note("passed")

    def train(self, grid: LyingGrid, node: int, passes: Callable[[str], None]) -> None:
        """Answer as `node` of `grid`, until killed."""
        while True:
            end, _ = self.listener.accept()
            with contextlib.suppress(OSError, EOFError), end:
                kind, content = _receive(end).decode(), recorddict_from_proto(Proto.FromString(_receive(end)))
                note = passes if kind == "train" else str
                note("asked")
                reply = LyingGrid.answer(grid, Message(content, node, kind))
                note("sealed")
                if reply.has_error():
                    _send(end, b"error", str(reply.error.reason).encode())
                else:
                    _send(end, b"content", recorddict_to_proto(reply.content).SerializeToString())
                note("sent")

    def serve(self, blinder: Blinder, sent: Path, passes: Callable[[str], None]) -> None:
        """Answer until killed; each answer is noted in `sent`, durably, before it leaves."""
        while True:
            end, _ = self.listener.accept()
            with contextlib.suppress(OSError, EOFError), end:
                kind, content = _receive(end).decode(), recorddict_from_proto(Proto.FromString(_receive(end)))
                if kind == QUERY_MASKS:
                    passes("asked")
                reply = blinder.reply(Message(content, BLINDER_NODE, kind))
                if reply.has_error():
                    _send(end, b"error", str(reply.error.reason).encode())
                    continue
                if kind == QUERY_MASKS:
                    passes("durable")
                    asked = MasksAsked.read(content)
                    masks = asked.read_answer(reply.content, blinder.public_key[-64:])[0]
                    with sent.open("a") as file:
                        print(json.dumps([asked.round, asked.digest(), digest_of(masks)]), file=file, flush=True)
                        os.fsync(file.fileno())
                _send(end, b"content", recorddict_to_proto(reply.content).SerializeToString())
                if kind == QUERY_MASKS:
                    passes("sent")


def _send(end: socket.socket, *parts: bytes) -> None:
    end.sendall(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def _receive(end: socket.socket) -> bytes:
    with end.makefile("rb", buffering=0) as file:
        return _exactly(file, int.from_bytes(_exactly(file, 8), "big"))


def _exactly(file: Any, size: int) -> bytes:
    held = b""
    while len(held) < size:
        held += (part := file.read(size - len(held)))
        if not part:
            raise EOFError
    return held


class Federation(LyingGrid):
    """Real nodes, as far as the coordinator can tell, of which one is behind a wire, as the blinder is."""

    simulated = False

    def __init__(self, blinder: Blinder, keys: Path) -> None:
        super().__init__(NODES)
        self.name_blinder(blinder, keys)
        self.wires: dict[int, Wire] = {}

    def get_node_ids(self) -> list[int]:
        return [*self._contexts, BLINDER_NODE]

    def answer(self, message: Message) -> Message:
        wire = self.wires.get(message.metadata.dst_node_id)
        return super().answer(message) if wire is None else wire.ask(message)


def _fork(life: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            life()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def _nth(point: str, nth: int) -> Callable[[str], None]:
    """Kill this process when it passes `point` for the nth time."""
    left = [nth]

    def passes(name: str) -> None:
        left[0] -= name == point
        if name == point and not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return passes


class World:
    """One run: its state directory, its blinder's directory, and four processes that are killed and started again."""

    def __init__(self, root: Path, origin: Path, noise: float) -> None:
        root.mkdir()
        shutil.copytree(origin, root / "blinder")
        shutil.copytree(origin.parent / "keys", root / "keys")  # beside which nodes keep what they saw of the blinder
        self.root, self.at, self.sent = root, root / "blinder", root / "sent"
        self.state, self.plan = home(root), masked(Blinder(self.at), noise)
        self.grid = Federation(Blinder(self.at), root / "keys")
        self.node = self.grid.get_node_ids()[0]
        self.wire, self.blinders_wire, self.nodes_wire = (Wire(root / name) for name in "wbn")
        self.grid.wires = {BLINDER_NODE: self.wire, self.node: self.nodes_wire}
        self.begun = False

    def coordinate(self, point: str, nth: int) -> int:
        """A life of the coordinator, which dies at `point`; "": at none."""
        begun, self.begun = self.begun, True

        def life() -> None:
            faults.load({faults.VARIABLE: f"{point}:kill:{nth}"} if point else {})
            if begun:
                session = Session.resume(self.state, "run", identity_is_stable=True)
            else:
                session = Session.begin(self.state, self.plan, identity_is_stable=True, run_id="run")
            with session:
                FieldfareStrategy(session).start(self.grid)

        return _fork(life)

    def carry(self, point: str, nth: int) -> int:
        """A life of who carries between them."""
        return _fork(lambda: self.wire.carry(self.blinders_wire, _nth(point, nth)))

    def train(self, point: str, nth: int) -> int:
        """A life of the first node."""
        return _fork(lambda: self.nodes_wire.train(self.grid, self.node, _nth(point, nth)))

    def live(
        self, deaths: dict[str, list[tuple[str, int]]], released: list[tuple[str, float]] | None = None
    ) -> dict[str, int]:
        """Live to the run's end; returns how often who was killed.

        deaths: of the parties, each in its order. released: what is found of it whenever the coordinator is dead.
        """
        start = {"carrier": self.carry, "blinder": self.blind, "node": self.train, "coordinator": self.coordinate}
        deaths = {party: list(deaths.get(party, [])) for party in start}
        killed = dict.fromkeys(start, 0)
        lives = {party: start[party](*(deaths[party].pop(0) if deaths[party] else ("", 0))) for party in start}
        try:
            while True:
                for party, child in list(lives.items()):
                    if (code := ended(child)) is None:
                        continue
                    del lives[party]
                    assert code in (0, -signal.SIGKILL), party
                    if code == 0:
                        return killed
                    killed[party] += 1
                    self.answers()
                    if party == "coordinator":  # which alone writes to the ledger
                        held = self.released()
                        assert released is None or held == released[: len(held)]
                    lives[party] = start[party](*(deaths[party].pop(0) if deaths[party] else ("", 0)))
                time.sleep(0.005)
        finally:
            for child in lives.values():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def once(self) -> None:
        """The run is done; each round was closed, answered about and committed once; and it verifies."""
        self.answers()
        with Ledger.open(self.state.ledger) as ledger:
            assert ledger.run("run").state == "done"
            assert verify(ledger, self.state.root, recompute=recharge).ok
            rows = [row for row in reversed(ledger.journal_rows(limit=1000).items) if row.action.startswith("round.")]
        for action in ("round.close", "round.commit"):
            assert [row.round for row in rows if row.action == action] == list(range(ROUNDS))
        closed = {(row.round, row.body["attempt"]) for row in rows if row.action == "round.close"}
        assert not closed & {(row.round, row.body["attempt"]) for row in rows if row.action == "round.void"}
        with sqlite3.connect(self.at / blinder_module.FILE) as journal:
            assert [round for (round,) in journal.execute("SELECT round FROM answers ORDER BY row")] == [*range(ROUNDS)]

    def blind(self, point: str, nth: int) -> int:
        """A life of the blinder."""

        def life() -> None:
            passes, write, hide = _nth(point, nth), blinder_module._write_down, Blinder._hide_

            def written(*given: Any) -> Any:
                passes("opened")
                row = write(*given)
                passes("written")
                return row

            def hidden(*given: Any) -> Any:
                running = hide(*given)
                passes("hidden")
                return running

            blinder_module._write_down, Blinder._hide_ = written, hidden  # type: ignore[method-assign]
            self.blinders_wire.serve(Blinder(self.at), self.sent, passes)

        return _fork(life)

    def released(self) -> list[tuple[str, float]]:
        """(digest of the released model, epsilon that was charged by then) of each committed round."""
        with Ledger.open(self.state.ledger) as ledger:
            rows = [row.body for row in reversed(ledger.journal_rows(limit=1000).items) if row.action == "round.commit"]
            run = ledger.run("run")
        assert run.next_round == len(rows)
        assert (run.spent_epsilon > 0) == bool(rows)
        return [(row["model"], row["spent"]) for row in rows]

    def answers(self) -> None:
        """Each answer that ever left stands in the journal, charged where it must be; of a round there is one."""
        sent = [tuple(json.loads(line)) for line in self.sent.read_text().splitlines()] if self.sent.exists() else []
        assert len({round for round, *_ in sent}) == len(set(sent))
        with sqlite3.connect(self.at / blinder_module.FILE) as journal:
            written = dict(journal.execute("SELECT round, question FROM answers WHERE run = 'run'"))
            charges = journal.execute("SELECT run FROM charges").fetchall()
            masks = dict(journal.execute("SELECT round, masks FROM nonces"))
        assert {(round, question) for round, question, _ in sent} <= set(written.items())
        if self.plan.aggregation.noise_ratio:
            assert charges == [("run",)] * bool(written)
            assert all(masks[round] == digest for round, _, digest in sent)


def masked(blinder: Blinder, noise: float) -> Plan:
    aggregation = {"kind": "masked", "least_nodes": 2, "blinder": blinder.public_key, "blinder_noise": noise}
    timeout = {"run__round_timeout": 60.0, "run__trust_node_ids": True}
    return plan(aggregation=aggregation, run__rounds=ROUNDS, **timeout)


def ended(child: int) -> int | None:
    """The exit code of a process that is over."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> dict[float, tuple[Path, list[tuple[str, float]], bytes]]:
    """By the blinder's noise: its directory before any run, and what a run releases that nobody kills."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        known_nonces(patch)
        for noise in (0.0, 0.5):
            root = tmp_path_factory.mktemp("unkilled")
            blinder = Blinder(root / "blinder")
            Federation(blinder, root / "keys")
            a_plan = masked(blinder, noise)
            blinder.approve(a_plan.digest(), 2, NUMEL, blinder_noise_of(a_plan, NUMEL))
            world = World(root / "run", root / "blinder", noise)
            world.live({})
            world.once()
            assert model(world.state) == in_clear(root, world.at)
            made[noise] = root / "blinder", world.released(), model(world.state)
    return made


def in_clear(root: Path, blinder: Path) -> bytes:
    """The model of a plain run. The blinder's noise, if it has some, is added to each sum in clear."""
    (root / "plain").mkdir()
    state, noised = home(root / "plain"), adding_in_clear(blinder)

    def life() -> None:
        RunningNoise.privatise = noised  # type: ignore[method-assign]
        usual = {"run__round_timeout": 60.0, "run__trust_node_ids": True}
        with Session.begin(state, plan(run__rounds=ROUNDS, **usual), identity_is_stable=True, run_id="run") as session:
            FieldfareStrategy(session).start(LyingGrid(NODES))

    assert os.waitstatus_to_exitcode(os.waitpid(_fork(life), 0)[1]) == 0
    return model(state)


def adding_in_clear(blinder: Path) -> Callable[[RunningNoise, torch.Tensor], torch.Tensor]:
    """`RunningNoise.privatise` after the noise that the blinder at `blinder` added to the same run's sums."""
    with sqlite3.connect(blinder / blinder_module.FILE) as journal:
        noises = [BlinderNoise(**json.loads(text)) for (text,) in journal.execute("SELECT noise FROM noises")]
    source = SecureNoise(Blinder(blinder)._noise_key)
    nonces = Nonces(bytes([index] * 16) for index in range(ROUNDS))  # as `known_nonces` makes them
    streams = [noise.stream(NUMEL, source, nonces) for noise in noises]
    plainly = RunningNoise.privatise

    def privatise(noise: RunningNoise, total: torch.Tensor) -> torch.Tensor:
        for own, stream in zip(noises, streams, strict=True):
            taken = own.take_from_(np.zeros(NUMEL, np.uint32), stream)
            total -= torch.from_numpy(read(taken, 2.0**own.privatiser.spacing_log2))
        return plainly(noise, total)

    return privatise


def known_nonces(patch: pytest.MonkeyPatch) -> None:
    """The blinder's noise has a nonce a round that no boxes change: else no two runs would be alike."""
    patch.setattr(SecureNoise, "nonce", lambda _, run, index, bits, digest: bytes([index] * 16))


def model(state: StateDirectory) -> bytes:
    return (state.root / "run" / "model.safetensors").read_bytes()


def test_the_blinders_noise_in_clear_gives_a_plain_run_the_bytes_of_a_masked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process plays all parties. Without that noise the bytes differ."""
    known_nonces(monkeypatch)
    models, hidden = [], {"aggregation": {"kind": "masked", "least_nodes": 2, "blinder_noise": 0.5}}
    for kind, changes in {"masked": hidden, "plain": {}, "noised": {}}.items():
        if kind == "noised":
            monkeypatch.setattr(RunningNoise, "privatise", adding_in_clear(tmp_path / "masked/home/.blinder"))
        (tmp_path / kind).mkdir()
        state, grid, a_plan = home(tmp_path / kind), LyingGrid(NODES), plan(run__rounds=ROUNDS, **changes)
        with Session.begin(state, a_plan, identity_is_stable=True, run_id="run") as session:
            assert session.schema is not None
            rehearse_masks(grid, a_plan, session.schema, state.root)
            FieldfareStrategy(session).start(grid)
        models.append(model(state))
    assert models[0] == models[2] != models[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("schedule", range(20))
def test_whoever_is_killed_each_round_has_one_answer_and_the_run_ends_as_if_nobody_was(
    tmp_path: Path,
    schedule: int,
    unkilled: dict[float, tuple[Path, list[tuple[str, float]], bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the three dies once to three times, at a drawn point of a drawn round."""
    known_nonces(monkeypatch)
    generator, noise = np.random.default_rng([35, schedule]), 0.5 * (schedule % 2)
    origin, released, whole = unkilled[noise]
    world = World(tmp_path / "run", origin, noise)

    def draw(points: list[str]) -> list[tuple[str, int]]:
        return [(str(generator.choice(points)), int(generator.integers(1, 3))) for _ in range(generator.integers(1, 4))]

    deaths = {"coordinator": draw(COORDINATOR), "blinder": draw([p for p in BLINDER if noise or p != "hidden"])}
    deaths = {"carrier": draw(CARRIER), **deaths, "node": [("sent", int(generator.integers(1, 5)))]}
    print(f"schedule {schedule}: {deaths}")
    killed = world.live(deaths, released)
    print(f"schedule {schedule}: killed {killed}")
    assert killed["coordinator"]
    assert world.released() == released
    assert model(world.state) == whole
    world.once()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_everybody_dies_at_each_point_in_turn_and_the_bytes_are_those_of_a_plain_run(
    tmp_path: Path,
    noise: float,
    unkilled: dict[float, tuple[Path, list[tuple[str, float]], bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No reply is lost at any of them."""
    known_nonces(monkeypatch)
    origin, released, whole = unkilled[noise]
    world = World(tmp_path / "run", origin, noise)
    points = {"coordinator": COORDINATOR, "blinder": [p for p in BLINDER if noise or p != "hidden"]}
    points |= {"carrier": CARRIER, "node": ["sent"] * 3}
    killed = world.live({party: [(point, 1) for point in each] for party, each in points.items()}, released)
    assert killed == {party: len(each) for party, each in points.items()}
    assert world.released() == released
    assert model(world.state) == whole
    world.once()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("point", NODE[:2])
def test_a_reply_that_dies_with_its_node_is_in_no_sum(
    tmp_path: Path,
    noise: float,
    point: str,
    unkilled: dict[float, tuple[Path, list[tuple[str, float]], bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set is another one; it is closed, answered about and committed once all the same, whoever else dies."""
    known_nonces(monkeypatch)
    world = World(tmp_path / "run", unkilled[noise][0], noise)
    killed = world.live(
        {"node": [(point, 2)], "coordinator": [("strategy.summed", 2)], "blinder": [("durable", 2)], "carrier": []}
    )
    assert (killed["node"], killed["coordinator"], killed["blinder"]) == (1, 1, 1)
    assert len(world.released()) == ROUNDS
    world.once()
