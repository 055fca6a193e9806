"""Masked sums in containers: a server side, three organisations with budgets of their own, and a blinder with its own
key, network and user, which adds noise of its own.

One run hears the lies of its coordinator on the way (lying/sitecustomize.py); one has updates that are known, which
nobody finds at the server; one sends code that no node knows; one is the hospitals example, a Flower app; in the last
ones coordinator, blinder and SuperLink are killed between the closing of each round and its commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_containers import CONNECT

from fieldfare.masking.receipts import Receipt
from support.apart import Sides
from support.container_runs import check_ledger
from support.containers import ROOT, Federation, require_engine, wait_for
from support.planted import PLANTED, found_in, found_in_memory

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

CLINICS = ("clinic-a", "clinic-b", "clinic-c")
SERVER = ("ledger", "superlink", "gate", "coordinator", "supervisor", "api", "backup")
LYING = Path(__file__).parent / "lying"
OVERLAY = f"""
services:
  {{service}}:
    environment: {{{{ PYTHONPATH: /lying }}}}
    volumes: ["{LYING}:/lying:ro"]
"""
BARE = """
[aggregation]
kind = "masked"
least_nodes = 2
blinder = "{blinder}"
"""
AGGREGATION = BARE + "blinder_noise = 0.528\n"
DIGITS = (
    """
[privacy]
population = "{name}"
epsilon = 4.0
delta = 1e-5
[run]
task = "digits"
rounds = 4
cohort = 24
min_reports = 8
min_available = 99
round_timeout = 180
accept_noise = true
[participation]
scheme = "min-separation"
separation = 3
max_participations = 2
[mechanism]
kind = "blt"
[client]
epochs = 1
batch_size = 8
learning_rate = 0.3
"""
    + AGGREGATION
)
HOSPITALS = """
[privacy]
population = "hospitals"
epsilon = 4.0
delta = 1e-4
[run]
rounds = 6
cohort = 100
min_reports = 60
min_available = 455
round_timeout = 180
[clipping]
kind = "flat"
norm = 0.2
[participation]
scheme = "min-separation"
separation = 4
[mechanism]
kind = "blt"
"""
"""The keywords of its server_app.py as a plan, which the blinder can approve."""
BUDGET = """
epsilon = 24.0
delta = 2e-4
[populations.patients]
head = "{head}"
epsilon = 12.0
delta = 1e-5
[populations.hospitals]
head = "{head}"
epsilon = 8.0
delta = 1e-4
"""
OURS = """
import shutil
from importlib import resources
shutil.copytree(resources.files("fieldfare_server").joinpath("deployment/flower_app"), "/tmp/app")
"""
BUILD = "cd /tmp/app && FLWR_HOME=/tmp/flwr flwr build >/dev/null && sha256sum *.fab"
HAND_IN = """
cp -r /app /tmp/app
python -c '
from pathlib import Path
from fieldfare_server.deployment.submit import write_connection
write_connection(Path("/tmp/flwr"), "superlink:8000", Path("/secrets/ca.crt"))'
FLWR_HOME=/tmp/flwr exec flwr run /tmp/app federation --stream --run-config 'plan="/state/hospitals.toml"'
"""
BEGIN = "cat >/state/budget.toml && python -m fieldfare_client.budget init --file /state/budget.toml"


class Masked:
    """A federation that is set up as docs/masked-sums.md and docs/node-budget.md say."""

    def __init__(self, stack: ExitStack, directory: Path, project: str = "masked", hides: bool = True) -> None:
        """hides: the blinder has noise of its own, and a budget for it, as nodes have; else runs may have a seed."""
        began = time.monotonic()
        overlay = OVERLAY.format(service="coordinator")
        self.sides = Sides(stack, directory, f"fieldfare-e2e-{project}", "digits", "fieldfare:local", overlay)
        self.server = self.sides.server
        self.blinder = self.sides.add("blinder", "blinder.yml", OVERLAY.format(service="blinder"))
        self.clinics = {name: self.sides.add(name, "node.yml", OVERLAY.format(service="executor")) for name in CLINICS}
        self.sides.up()
        # Again and again: podman-compose does not wait until its directory is its own.
        self.key = wait_for(lambda: self.blinder.compose("--profile", "init", "run", "--rm", "init").split()[-1])
        make = "fieldfare population create {} --epsilon 12 --delta {}; "
        populations = make.format("patients", "1e-5") + make.format(
            "hospitals", "1e-4" if hides else "1e-4 --simulated"
        )
        # Code that may start: our own app, built where it is read.
        code = self.server.administer(f"{populations} python -c '{OURS}'; {BUILD}").splitlines()[-1]
        head = self.server.exec("coordinator", "fieldfare", "head", "show").strip()
        admit = "fieldfare blinder budget --epsilon 60 --delta 1e-4; " if hides else ""
        for index, (name, clinic) in enumerate(self.clinics.items()):
            clinic.compose("up", "--detach")
            signs = clinic.exec("executor", "fieldfare", "node-key", "/state/node.sign").strip()
            admit += f"fieldfare blinder admit {name} {signs}; "
            clinic.exec("executor", "sh", "-c", BEGIN, stdin=BUDGET.format(head=head).encode())
            pinned = f'blinder="{self.key}" node-key="/state/node.sign"'
            clinic.tell(
                FIELDFARE_NODE_CONFIG=f"partition-id={index} num-partitions={len(CLINICS)} {pinned}",
                FIELDFARE_BUDGET="/state/budget.toml" if hides else "",
                FIELDFARE_CODE="/state/code",
            )
        self.allow(code)
        self.blinder.run_in("init", f"set -e; {admit}", profile="init", stdin="")
        self.blinder.compose("up", "--detach")
        for clinic in self.clinics.values():
            clinic.compose("up", "--detach", "--force-recreate")
            # Without them the executor would train, and neither charge nor check code.
            assert "/state/code" in clinic.exec("executor", "sh", "-c", "echo $FIELDFARE_BUDGET $FIELDFARE_CODE")
        self.sides.let_in([*CLINICS, "blinder"])
        self.seconds = time.monotonic() - began

    def ask_blinder(self, *words: str, stdin: str = "") -> str:
        """What `fieldfare blinder ...` says in a container of its own; a plan comes by its standard input."""
        script = 'cat >/tmp/plan.toml; exec fieldfare blinder "$@"'
        return self.blinder.run_in("init", script, *words, profile="init", stdin=stdin)

    def status(self, run: str) -> tuple[list[list[Any]], int]:
        """(row, run, round and nodes of each answer, and when; how often it charged itself) of a run."""
        said = self.ask_blinder("status", "--json")
        told = json.loads(said[said.index("{") :])  # podman-compose prints what `init` depends on before it
        return [row for row in told["answers"] if row[1] == run], [row[0] for row in told["charges"]].count(run)

    def allow(self, code: str) -> None:
        """Let only this code start at each organisation: lines of `sha256sum`."""
        for clinic in self.clinics.values():
            clinic.exec("executor", "sh", "-c", "cat >/state/code", stdin=code.encode())


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Masked]:
    require_engine()
    with ExitStack() as stack:
        made = Masked(stack, tmp_path_factory.mktemp("masked"))
        print(f"set up in {made.seconds:.0f} s")
        yield made


def require_certified(server: Federation, run: str, directory: Path) -> str:
    """What the strangers' checker says of a run's certificate, which it accepts."""
    file = directory / f"{run}.json"
    file.write_text(server.exec("coordinator", "fieldfare", "certificate", run))
    checker = [sys.executable, str(ROOT / "docs/check_certificate.py"), str(file)]
    done = subprocess.run(checker, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reached_by(masked: Masked, federation: Federation, service: str) -> list[str]:
    """Which services of the server answer a connection from another container, by name or by any address."""
    server, ports = masked.server, {"ledger": 5432, "superlink": 8000, "coordinator": 8000, "supervisor": 8000}
    places = {tuple(masked.sides.gate.rsplit(":", 1)): "gate"}
    for name, port in ports.items():
        networks = server.engine("inspect", "--format", "{{json .NetworkSettings.Networks}}", server.container(name))
        for address in (name, *(network["IPAddress"] for network in json.loads(networks).values())):
            places[address, str(port)] = name
    asked = json.dumps([[address, int(port)] for address, port in places])
    reached = json.loads(federation.exec(service, "python", "-c", CONNECT, asked))
    return sorted({places[address, str(port)] for address, port in reached})


def require_two_promises(masked: Masked, run: str, directory: Path) -> None:
    """The statement has the promise against the server, the strangers' checker agrees, and the ledger is whole."""
    told = masked.server.get(f"/v1/runs/{run}")
    found = re.search(r"Against the server alone this whole run is \((\S+), ", told["guarantee"]["statement"])
    assert found
    assert 0 <= float(found[1]) - told["against_server"]["epsilon"] < 0.01  # rounded up
    facts = {fact["name"]: fact["value"] for fact in told["guarantee"]["facts"]}
    assert facts["Against the server"].startswith(f"({found[1]}, ")
    assert "no single update, unless it and the blinder" in facts["The server sees"]
    print(told["guarantee"]["statement"], require_certified(masked.server, run, directory), sep="\n")
    check_ledger(masked.server)


def spent_on(server: Federation, population: str) -> float:
    return float(server.get(f"/v1/populations/{population}")["spent"]["epsilon"])


def require_charged(masked: Masked, population: str, before: float, most: float) -> None:
    """The ledger charged a run of at most epsilon `most` after `before`; the nodes' own files say no less than it."""
    spent = spent_on(masked.server, population)
    show = ("python", "-m", "fieldfare_client.budget", "show", "--file", "/state/budget.toml")
    shown = [clinic.exec("executor", *show) for clinic in masked.clinics.values()]
    print("epsilon spent, before and after:", before, spent, *shown, sep="\n")
    # Not every run asks the users who have spent most.
    assert max(before, 1e-9) <= spent <= (before + most) * (1 + 1e-9)
    charged = [re.findall(f"{population}: .* at most epsilon (.*) of", each)[0] for each in shown]
    assert max(map(float, charged)) >= spent * (1 - 1e-5)


def hospitals(masked: Masked, directory: Path, text: str) -> tuple[str, str]:
    """Run the hospitals example by a plan, to its end; (the run, what `flwr run` said)."""
    server, app = masked.server, directory / "hospitals"
    shutil.copytree(ROOT / "examples/hospitals", app, ignore=shutil.ignore_patterns("__pycache__"))
    server.exec("coordinator", "sh", "-c", "cat >/state/hospitals.toml", stdin=text.encode())
    for path in (directory, app, *app.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    mount = f"{app}:/app:ro"
    ours = masked.clinics[CLINICS[0]].exec("executor", "cat", "/state/code")
    masked.allow(ours + "\n" + server.administer(f"cp -r /app /tmp/app; {BUILD}", mount=mount))
    masked.ask_blinder("approve", "/tmp/plan.toml", "--words", "31", stdin=text)
    said = server.administer(HAND_IN, mount=mount, check=False)
    runs: list[dict[str, Any]] = server.get("/v1/runs?limit=100")["items"]
    (run,) = [each["id"] for each in runs if each["population"] == "hospitals"] or pytest.fail(said)
    server.wait_done(run)
    return str(run), said


ALONE = """
import sys
sys.path.append("/app")
import fieldfare as ff
from hospitals.client_app import app as client
from hospitals.server_app import app as server
config = {"num-server-rounds": 6, "local-steps": 3, "lr": 0.05, "plan": "/tmp/plan.toml"}
ff.LocalGrid(client, nodes=3, run_config=config).run_app(server)
"""
PLAIN = f"""
cat >/tmp/plan.toml
export FIELDFARE_HOME=/tmp/plain FIELDFARE_LEDGER_FILE=
fieldfare population create hospitals --epsilon 12 --delta 1e-4 --simulated >&2
python -c '{ALONE}' >&2
sha256sum /tmp/plain/*/model.safetensors
"""


def test_the_hospitals_models_masked_and_plain_have_the_same_bytes(tmp_path: Path) -> None:
    """Both runs have one key, so equal noise. Nodes with budgets refuse noise that can be computed: none has one."""
    require_engine()
    text = HOSPITALS.replace("[clipping]", "noise_seed = 7\n[clipping]")
    with ExitStack() as stack:
        bare = Masked(stack, tmp_path, "bare", hides=False)
        plain = bare.server.administer(PLAIN, stdin=text, mount=f"{ROOT}/examples/hospitals:/app:ro").split()[-2]
        run, said = hospitals(bare, tmp_path, text + BARE.format(blinder=bare.key))
        masked = bare.server.exec("coordinator", "sha256sum", f"/state/runs/{run}/model.safetensors").split()[0]
        print(said, plain, masked)
        assert plain == masked
        answers, charges = bare.status(run)
        assert [row[1:4] for row in answers] == [[run, n, len(CLINICS)] for n in range(6)]
        assert charges == 0
        check_ledger(bare.server)


LIES = {
    "a second set": "<class 'MasksRefused'> masks-answered",
    "an old round": "<class 'MasksRefused'> masks-answered",
    "a round too early": "<class 'MasksRefused'> masks-order",
    "invented nodes": "<class 'MasksRefused'> masks-node",
    "swapped boxes": "<class 'MasksRefused'> masks-box",
    "another plan": "<class 'MasksRefused'> masks-plan",
    "another population": "<class 'NodeBudgetRefused'> not-agreed",
    "its name on another": "<class 'NodeBudgetRefused'> another-population",
    "another plan at a node": "<class 'NodeBudgetRefused'> not-planned",
    "another plan's price": "<class 'NodeBudgetRefused'> not-priced",
    "an older log": "<class 'NodeBudgetRefused'> older-log",
    "a user too soon": "<class 'NodeBudgetRefused'> too-soon",
    "no charge": "<class 'NodeBudgetRefused'> no-terms",
    "an older head": "<class 'HeadRefused'> went-back",
    "two heads": "<class 'HeadRefused'> forked",
}
"""What blinder and node answer to each lie of the coordinator."""


def test_a_masked_run_with_the_blinders_noise_hears_lies_and_refuses_each_by_name(
    masked: Masked, tmp_path: Path
) -> None:
    server, text = masked.server, DIGITS.format(name="patients", blinder=masked.key)
    # Own user, own network, and nothing of the server's but the gate's published port.
    assert masked.blinder.exec("blinder", "id", "-u").strip() == "49998"
    inspect = ("inspect", "--format", "{{json .NetworkSettings.Networks}}", masked.blinder.container("blinder"))
    assert list(json.loads(server.engine(*inspect))) == [f"{masked.blinder.project}_outside"]
    assert reached_by(masked, masked.blinder, "blinder") == ["gate"]
    print(masked.ask_blinder("approve", "/tmp/plan.toml", stdin=text))
    before = spent_on(server, "patients")
    server.exec("coordinator", "touch", "/state/lies")
    run = server.submit(text)
    server.wait_done(run)
    server.exec("coordinator", "rm", "/state/lies")
    told = [json.loads(line) for line in server.exec("coordinator", "cat", "/state/told").splitlines()]
    assert {lie: " ".join(answer.split()[:3]) for lie, answer in told} == LIES
    assert len(told) == len(LIES)

    answers, charges = masked.status(run)
    assert [row[1:4] for row in answers] == [[run, n, len(CLINICS)] for n in range(4)]
    assert charges == 1
    require_two_promises(masked, run, tmp_path)
    require_charged(masked, "patients", before, 4.0)


def volume(federation: Federation, name: str) -> Path:
    """Where this machine keeps a volume: its project's name and its own."""
    return Path(federation.engine("volume", "inspect", "--format", "{{.Mountpoint}}", name).strip())


def found_at(server: Federation) -> dict[str, int]:
    """How often the planted update stands in each volume, log and memory of the server's side; what has none is out."""
    found = dict[str, int]()
    for name in server.engine("volume", "ls", "--quiet").split():
        if name.startswith(f"{server.project}_"):
            files = [path for path in volume(server, name).rglob("*") if path.is_file()]
            found[name] = sum(found_in(path.read_bytes()) for path in files)
    for service in SERVER:
        found[f"log of {service}"] = found_in(server.logs(service).encode())
        parent = psutil.Process(server.main_process(service))
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                found[f"memory of {service}: {process.name()} {process.pid}"] = found_in_memory(process.pid)
    print(len(found), "places")
    return {place: times for place, times in found.items() if times}


def test_a_planted_update_is_nowhere_at_the_server(masked: Masked) -> None:
    server, before = masked.server, spent_on(masked.server, "patients")
    for clinic in masked.clinics.values():
        clinic.exec("executor", "sh", "-c", f"echo {PLANTED} >/state/plant")
    run = server.submit(DIGITS.format(name="patients", blinder=masked.key))
    server.wait_open(run, 1)
    during = found_at(server)
    server.wait_done(run)
    assert (during, found_at(server)) == ({}, {})
    for clinic in masked.clinics.values():
        planted = clinic.exec("executor", "cat", "/state/planted").splitlines()
        assert len(planted) >= 4
        assert {line.split()[0] for line in planted} == {"<u4"}
        clinic.exec("executor", "rm", "/state/plant")
    # What is there is found.
    there = f"open('/state/there', 'wb').write(int.to_bytes({PLANTED}, 4, 'little') * 9)"
    server.exec("coordinator", "python", "-c", there)
    assert list(found_at(server)) == [f"{server.project}_coordinator"]
    server.exec("coordinator", "rm", "/state/there")
    require_charged(masked, "patients", before, 4.0)


def test_code_that_no_node_allows_starts_nowhere_and_costs_nothing(masked: Masked) -> None:
    server, clinic = masked.server, masked.clinics[CLINICS[0]]
    allowed = clinic.exec("executor", "cat", "/state/code")
    spent = spent_on(server, "patients")
    masked.allow("0" * 64)
    try:
        text = DIGITS.format(name="patients", blinder=masked.key)
        said = server.ask_for(text, "--root-certificates", "/secrets/ca.crt", check=False)
    finally:
        masked.allow(allowed)
    assert "nodes start only code that their operators allow" in " ".join(said.split()), said
    assert spent_on(server, "patients") == spent
    assert "code with SHA-256" in clinic.logs("executor")


def test_the_hospitals_example_runs_masked_with_its_nodes_budgets(masked: Masked, tmp_path: Path) -> None:
    server, text = masked.server, HOSPITALS + AGGREGATION.format(blinder=masked.key)
    run, said = hospitals(masked, tmp_path, text)
    assert "held-out accuracy" in server.logs("coordinator") + said
    require_two_promises(masked, run, tmp_path)
    require_charged(masked, "hospitals", 0.0, 4.0)
    assert server.get("/v1/populations/hospitals")["users"] == 455


BEGINS = "strategy.sent"
POINTS = (
    *("ledger.round.closed", "strategy.asked", "blinder.opened", "blinder.written", "blinder.durable"),
    *("strategy.summed", "strategy.privatised", "checkpoint.pending", "ledger.round.committing"),
    "ledger.round.committed",
)
"""Where a process can be held (lying/sitecustomize.py): as a round begins, and between its closing and its commit."""
SCHEDULES = int(os.environ.get("CONTAINERS_SCHEDULES", "4"))
"""Each is a round of a run of four."""


def kills_of(schedule: int) -> list[tuple[str, str]]:
    """One or two kills of a round: (where it stands, who dies)."""
    generator = random.Random(f"killed {schedule}")
    points = sorted(generator.sample(range(len(POINTS)), generator.choice((1, 1, 2))))
    return [(POINTS[each], generator.choice(("coordinator", "blinder", "superlink"))) for each in points]


class Held:
    """Lets coordinator and blinder wait at a point, by files in their volumes."""

    def __init__(self, masked: Masked) -> None:
        sides = {"coordinator": masked.server, "blinder": masked.blinder}
        self._places = [volume(side, f"{side.project}_{name}") for name, side in sides.items()]

    def at(self, point: str) -> None:
        """Whoever comes to `point` next waits there; empty: nobody."""
        for place in self._places:
            (place / "hold").write_text(point)

    def wait(self, server: Federation, run: str) -> None:
        """Until somebody waits, in a run that has not ended."""

        def waits() -> bool:
            return any((place / "held").exists() for place in self._places)

        wait_for(lambda: waits() or server.get(f"/v1/runs/{run}")["ended_at"])
        assert waits(), server.get(f"/v1/runs/{run}")

    def go_on(self) -> None:
        for place in self._places:
            (place / "held").unlink(missing_ok=True)


def test_whoever_is_killed_between_close_and_commit_each_round_has_one_answer(masked: Masked) -> None:
    """`CONTAINERS_SCHEDULES=20` kills in twenty rounds, of five runs. The SuperLink is Flower's own."""
    server, dead, rounds, held = masked.server, Counter[str](), 4, Held(masked)
    parties = {"coordinator": server, "superlink": server, "blinder": masked.blinder}
    text = DIGITS.format(name="patients", blinder=masked.key).replace("epsilon = 4.0", "epsilon = 1.0")
    masked.ask_blinder("approve", "/tmp/plan.toml", stdin=text)
    for first in range(0, SCHEDULES, rounds):
        before, began = spent_on(server, "patients"), time.monotonic()
        held.at(BEGINS)
        run = server.submit(text)
        for schedule in range(first, first + rounds):
            held.wait(server, run)
            kills = kills_of(schedule)
            print(f"schedule {schedule}: {kills}", flush=True)
            for point, party in kills:
                held.at(point)
                held.go_on()
                held.wait(server, run)
                parties[party].strike(party)
                dead[party] += 1
            held.at(BEGINS if schedule < first + rounds - 1 else "")
            held.go_on()
        server.wait_done(run)
        query = "SELECT action, round, body FROM audit WHERE run = '{}' AND action LIKE 'round.%' ORDER BY id"
        rows = [(action, index, json.loads(body)) for action, index, body in server.sql(query.format(run))]
        closed, void, committed = (
            [(index, body) for action, index, body in rows if action == f"round.{step}"]
            for step in ("close", "void", "commit")
        )
        # S2, S6: of each round one set is closed, that one is opened, once, and it is committed.
        assert [index for index, _ in closed] == [index for index, _ in committed] == list(range(rounds))
        attempts = [(index, body["attempt"]) for index, body in closed]
        assert not set(attempts) & {(index, body["attempt"]) for index, body in void}
        answers, charges = masked.status(run)
        receipts = [Receipt.parse(body["receipt"]) for _, body in committed]
        assert [row[:4] for row in answers] == [[each.row, run, n, each.nodes] for n, each in enumerate(receipts)]
        assert charges == 1
        check_ledger(server)
        require_charged(masked, "patients", before, 1.0)
        print(f"run {run}: {len(void)} void attempts, {time.monotonic() - began:.0f} s; killed so far: {dict(dead)}")
