"""A question to two real SuperNodes while the command that asks, or a node, is killed: one charge, one answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from e2e.test_questions_on_supernodes import QUESTION, SHARED, environment_of, home_of_people
from fieldfare_server.cli.application import application
from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import environment
from fieldfare_server.evidence.looks import look
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.federation import USERS, TinyTask
from support.flower import supernode

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.timeout(600)]

GATE = "GATE_OF_NODES"
TASK = "e2e.test_questions_killed:Gated"
ASKED = 'kind = "mean"\nmeasure = "update-norm"\nlow = 0\nhigh = 10'
MAIN = "from fieldfare_server.cli import main; main()"


class Gated(TinyTask):
    """A node says that it was asked, and does not answer until its gate is open."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if folder := os.environ.get(GATE):
            self.wait(Path(folder), os.environ["NODE"])
        return super().loss(outputs, targets)

    @staticmethod
    def wait(folder: Path, node: str) -> None:
        """Wait in any process but the node's first, which says who its users are and tries the task."""
        first = folder / f"first-{node}"
        if not first.exists():
            first.write_text(str(os.getpid()))
        if first.read_text() != str(os.getpid()):
            (folder / f"asked-{node}").touch()
            while not (folder / "open").exists():
                time.sleep(0.05)


def wait(until: Callable[[], Any], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def family(pid: int) -> list[int]:
    """A process and all below it, the youngest last."""
    found = [pid]
    with suppress(OSError):
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [each for child in listed.read_text().split() for each in family(int(child))]
    return found


@dataclass
class Asking:
    """A federation whose nodes wait, and a command that asks its users."""

    home: StateDirectory
    work: Path
    stack: ExitStack
    address: str
    nodes: list[subprocess.Popen[bytes]]
    command: subprocess.Popen[bytes]

    def start(self, index: int, name: str) -> None:
        (work := self.work / name).mkdir()
        gate = {GATE: str(self.work), "NODE": name}
        self.nodes.append(self.stack.enter_context(supernode(work, self.address, index, TASK, **SHARED, **gate)))

    def lose(self, node: int) -> None:
        """As a machine that loses its current."""
        for process in family(self.nodes[node].pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    @property
    def run(self) -> str:
        with Ledger.open(self.home.ledger) as ledger:
            (run,) = ledger.runs().items
        return run.id

    def charged(self) -> bool:
        with Ledger.open(self.home.ledger) as ledger:
            return ledger.population("people").spent.mu_squared > 0

    def ended(self) -> bool:
        with Ledger.open(self.home.ledger) as ledger:
            return ledger.run(self.run).ended_at is not None

    def let_answer(self) -> None:
        (self.work / "open").touch()

    def say(self, *command: str) -> str:
        said = CliRunner().invoke(application, [*command, "--home", str(self.home.root)])
        assert said.exit_code == 0, said.output
        return said.stdout

    def require_one_charge(self) -> dict[str, Any]:
        """One answer was charged, and it is what is shown however often one asks again: the answer."""
        run = self.run
        shown = [json.loads(self.say("ask", "--resume", run, "--json")) for _ in range(2)]
        assert shown[0] == shown[1]
        with Ledger.open(self.home.ledger) as ledger:
            assert ledger.population("people").spent.mu_squared == pytest.approx(4.0, rel=1e-3)
            assert [event.action for event in ledger.events()].count("round.commit") == 1
            assert [each.value for each in look(ledger, run).answer] == [a["value"] for a in shown[0]["answer"]]
            assert verify(ledger, self.home.root, recompute=recharge, held=[ledger.head()]).ok
        found: dict[str, Any] = shown[0]
        return found


@contextmanager
def asking(root: Path, fewest: int = 4, **env: str) -> Iterator[Asking]:
    """fewest: with fewer answers nothing is shown or charged; env: further variables of ServerApps."""
    home, work, file = home_of_people(root, 80.0), root / "work", root / "question.toml"
    text = QUESTION.format(question=ASKED, task=TASK, users=USERS)
    file.write_text(text.replace("min_reports = 4", f"min_reports = {fewest}"))
    with ExitStack() as stack:
        env = {**environment_of(home), **env}
        address = stack.enter_context(superlink(work, "--disable-runtime-dependency-installation", env=env))
        line = [sys.executable, "-c", MAIN, "ask", str(file), "--superlink", address, "--insecure", "--json"]
        line += ["--home", str(home.root), "--ledger", home.ledger]
        with (work / "out").open("wb") as out, (work / "err").open("wb") as err:
            asker = environment(work / "asker", SHARED)
            command = subprocess.Popen(line, env=asker, stdout=out, stderr=err, start_new_session=True)
        found = Asking(home, work, stack, address, [], command)
        stack.callback(command.wait)
        stack.callback(command.kill)
        for index in range(2):
            found.start(index, f"node-{index}")
        wait(lambda: all((work / f"asked-node-{index}").exists() for index in range(2)))
        assert not found.charged()
        yield found


@pytest.mark.parametrize("charged", [False, True], ids=["before", "after"])
def test_the_command_is_killed_and_the_answer_is_there_uncharged(charged: bool, tmp_path: Path) -> None:
    """Before and after the charge: the federation goes on without it, and `--resume` shows the answer."""
    with asking(tmp_path) as found:
        run = found.run
        if charged:
            os.killpg(found.command.pid, signal.SIGSTOP)
            found.let_answer()
            wait(found.charged)
        os.killpg(found.command.pid, signal.SIGKILL)
        assert found.command.wait(20) == -signal.SIGKILL
        assert found.charged() == charged
        found.let_answer()
        wait(found.ended)
        assert found.require_one_charge()["users"] == USERS
        assert (found.work / "out").read_bytes() == b""
        assert run in (found.work / "err").read_text(), "it has said what to resume"


@pytest.mark.parametrize("fewest", [4, USERS], ids=["enough", "too few"])
def test_a_node_is_lost_before_the_charge(fewest: int, tmp_path: Path) -> None:
    """The other node's answers are enough; or they are not, and one answer is charged once the node is back."""
    with asking(tmp_path, fewest) as found:
        found.lose(0)
        found.let_answer()
        if fewest == USERS:
            found.start(0, "again")
        assert found.command.wait(400) == 0, (found.work / "err").read_text()
        shown = found.require_one_charge()
        assert json.loads((found.work / "out").read_text()) == shown
        assert fewest <= shown["users"] <= USERS
        assert (shown["users"] == USERS) == (fewest == USERS)


def test_a_node_and_the_coordinator_are_lost_after_the_charge(tmp_path: Path) -> None:
    with asking(tmp_path, FIELDFARE_FAULT="ledger.round.committed:kill") as found:
        found.let_answer()
        wait(found.charged)
        found.lose(0)
        with Ledger.open(found.home.ledger) as ledger:
            before = [(each.name, each.value) for each in look(ledger, found.run).answer]
        found.say("run", "--resume", found.run, "--superlink", found.address, "--insecure")
        assert found.command.wait(100) == 0, (found.work / "err").read_text()
        shown = found.require_one_charge()
        assert shown["users"] == USERS
        assert json.loads((found.work / "out").read_text()) == shown
        assert [(each["name"], each["value"]) for each in shown["answer"]] == before
