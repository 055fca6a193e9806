"""Commands that only read start fast: what they import is listed, in a fresh process. Timings are no test."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from typer.main import get_command

from fieldfare.accounting.individual import Demand
from fieldfare.plan import Plan
from fieldfare_server.cli.application import COMMANDS, GROUPS, assemble, called, overview
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import migrate as schema
from support.ledgers import commit, start

ROOT = Path(__file__).parents[3]
QUESTION = """
[question]
kind = "mean"
measure = "rows"
low = 0
high = 60
[run]
task = "digits"
[privacy]
population = "people"
noise_multiplier = 4
delta = 1e-4
"""
HEAVY = ("torch", "scipy.stats", "scipy.signal", "scipy.optimize", "alembic", "fastapi", "flwr", "matplotlib", "httpx")
NO_HELP = {*HEAVY, "scipy", "uvicorn", "starlette", "prometheus_client", "grpc", "ray", "pandas", "pyarrow", "sklearn"}
PROGRAM = """
import json, os, sys
from fieldfare_server.cli import main
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
sys.stdout.flush()
print("\\n" + json.dumps([sorted(sys.modules), os.environ.get("OMP_NUM_THREADS")]))
"""


def imported(*arguments: str, **environment: str) -> tuple[set[str], str | None]:
    """What `fieldfare ARGUMENTS` has imported when it is done, and the number of threads that it set."""
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=inherited | environment,
        cwd=ROOT,
    )
    modules, threads = json.loads(answer.stdout.splitlines()[-1])
    return set(modules), threads


@pytest.mark.parametrize("told", [{}, {"OMP_NUM_THREADS": "2"}], ids=["untold", "told"])
def test_the_demo_trains_in_one_thread_unless_told_otherwise(told: dict[str, str]) -> None:
    _, threads = imported("demo", "--help", **told)
    assert threads == told.get("OMP_NUM_THREADS", "1")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_import_neither_numbers_nor_a_database(option: str) -> None:
    modules, threads = imported(option)
    assert not modules & {*HEAVY, "numpy", "scipy", "sqlalchemy", "pydantic"}
    assert threads == "1"


@pytest.mark.parametrize("command", ["budget", "runs", "population"])
def test_reading_a_ledger_imports_no_torch_and_no_service(command: str, tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 2.0, 1e-5, actor="test")
    arguments = (command, *(("list",) if command == "population" else ()), "--home", str(tmp_path))
    modules, threads = imported(*arguments)
    assert not modules & set(HEAVY)
    assert "sqlalchemy" in modules
    assert threads == "1"


def test_what_still_fits_of_a_population_with_odometers_needs_no_torch_and_no_service(tmp_path: Path) -> None:
    """How many runs like the last fit is worked out from that run's plan, here as in a service."""
    plan = Plan.parse(
        {
            "privacy": {"population": "people", "noise_multiplier": 4.0, "delta": 1e-5},
            "run": {"task": "digits", "rounds": 4, "cohort": 2},
            "participation": {"scheme": "min-separation", "separation": 2},
            "mechanism": {"kind": "nu"},
        }
    )
    demand = Demand(most=2**40, costs=(2**39, 2**40), rounds=4, cohort=2, separation=2)
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 2.0, 1e-5, actor="test")
        start(ledger, plan_json=plan.to_json(), plan_digest=plan.digest(), demand=demand)
        assert ledger.run(ledger.runs().items[0].id).accounting == "individual"
    modules, _ = imported("budget", "--home", str(tmp_path))
    assert "fieldfare.plan" in modules
    assert not modules & (set(HEAVY) - {"scipy.optimize"})


@pytest.mark.parametrize("plan", ["containers", "gboard-blt"])
def test_a_plan_imports_no_ledger_and_keeps_the_threads_it_is_told(plan: str) -> None:
    modules, threads = imported("plan", f"deploy/plans/{plan}.toml", OMP_NUM_THREADS="2")
    assert not modules & (set(HEAVY) - {"scipy.optimize"} | {"sqlalchemy", "safetensors"})
    assert threads == "2"


def test_a_starter_is_written_and_priced_without_pytorch(tmp_path: Path) -> None:
    """And priced: its task states how large its model is, and nobody builds that before a run."""
    for words in (("init", str(tmp_path), "--home", str(tmp_path / "home")), ("plan", str(tmp_path / "plan.toml"))):
        modules, _ = imported(*words)
        assert not modules & {"torch", "flwr", "fastapi", "pandas", "pyarrow"}, words[0]


def test_a_question_imports_what_it_needs_without_looking_for_garbage(tmp_path: Path) -> None:
    """Noise and models are PyTorch's. To look through what its import makes took a tenth of the time."""
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 2.0, 1e-4, simulated=True, actor="test")
    (tmp_path / "question.toml").write_text(QUESTION)
    program = "import gc, sys; from fieldfare_server.cli import main; sys.argv[0] = 'fieldfare'\n"
    program += "try: main()\nfinally: print([gc.get_stats()[2]['collections'], gc.isenabled(), *sys.modules])"
    command = [sys.executable, "-c", program, "ask", str(tmp_path / "question.toml"), "--home", str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    full, enabled, *modules = ast.literal_eval(answer.stdout.splitlines()[-1])
    assert (full, enabled) == (0, True)
    assert "torch" in modules
    needed = {"torch", "flwr", "scipy.optimize", "httpx"}  # the last: Flower
    assert not ({*HEAVY, "ray", "pandas", "pyarrow", "sklearn"} - needed) & {*modules}


def test_help_on_any_command_imports_nothing_that_works_trains_or_serves() -> None:
    """All commands in one process: what none of them imports, no help does."""
    code = "import sys; from fieldfare_server.cli.application import assemble, COMMANDS, GROUPS\n"
    code += "for name in (*COMMANDS, *GROUPS): assemble(name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert NO_HELP & {*done.stdout.split()} == {"httpx"}  # of `doctor` and `nodes`


ASKED = (
    *("", "v1/me", "healthz", "v1/populations?order=nearness&limit=20", "v1/runs?limit=50", "v1/audit?limit=12"),
    *("v1/audit/verification", "v1/runs/RUN", "v1/populations/people", "v1/populations/people/history"),
    *("v1/populations/people/participation", "v1/runs?limit=50&population=people", "v1/runs/RUN/series?points=300"),
    "v1/runs/RUN/participation",
)
"""What the page asks for overview, population and run."""


def served(home: Path, run: str) -> tuple[int, set[str]]:
    """The largest memory of `fieldfare serve`, in kB, when the page has asked all; and what it has imported."""
    command = [sys.executable, "-c", PROGRAM, "serve", "--port", "0", "--home", str(home)]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = (line.partition("Budget page: ")[2].strip() for line in process.stderr)
        address = next(line for line in said if line)
        for path in ASKED:
            with urllib.request.urlopen(address + path.replace("RUN", run), timeout=60) as answer:
                assert answer.read()
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        process.terminate()
        modules, _ = json.loads(process.stdout.read().splitlines()[-1])
    return int(peak), set(modules)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not tell of memory here")
def test_a_service_shows_all_of_its_page_in_120_mb(tmp_path: Path) -> None:
    """Of a run whose noise is correlated. It took 141: SciPy alone imported NumPy's compiler and its tests' tools."""
    table = {
        "privacy": {"population": "people", "noise_multiplier": 4.0, "delta": 1e-5},
        "run": {"task": "digits", "rounds": 4, "cohort": 2},
        "participation": {"scheme": "min-separation", "separation": 2},
        "mechanism": {"kind": "nu"},
    }
    plan = Plan.parse(table)
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 2.0, 1e-5, actor="test")
        run = start(ledger, 0.4, plan_json=plan.to_json(), plan_digest=plan.digest())
        run.register_users(np.array([5, 6], dtype=np.uint64))
        commit(run, [0, 1], 0.2)
    peaks, modules = zip(*(served(tmp_path, run.id) for _ in range(2)), strict=True)  # the first may compile modules
    unused = {"scipy.linalg", "scipy.fft", "numpy.f2py", "numpy.random", "sqlalchemy.dialects.postgresql"}
    unused |= {"torch", "flwr", "pandas", "scipy.optimize", "scipy.stats", "httpx", "safetensors"}
    assert not modules[-1] & unused
    assert "scipy.special" in modules[-1]
    assert min(peaks) <= 120 * 1024


def test_numpy_lists_all_of_itself_when_scipy_has_copied_what_is_loaded() -> None:
    code = """
import sys
from fieldfare.lazily import scipy
scipy.special.ndtr(0.0)
assert not {"numpy.f2py", "numpy.testing"} & set(sys.modules)
from numpy import *
assert random.default_rng and "testing" in globals() and "f2py" in dir(sys.modules["numpy"])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


ABSENT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Absent())
"""
"""A Python in which PyTorch is not installed."""
WITHOUT_TORCH = {
    "a plan in Python": "import fieldfare as ff; ff.Plan(epsilon=4, delta=1e-5, rounds=8, cohort=2, mechanism='blt')",
    "a price of every kind of noise": """
import fieldfare as ff
from fieldfare.mechanisms.registry import kinds
more = {
    "banded": {"bands": 2}, "banded-inverse": {"bands": 2}, "blt": {"buffers": 2}, "momentum-tree": {"momentum": 0.9},
    "spectral": {"eigenvalues": [0.5, 0.1], "learning_rate": 0.5},
}
for kind in kinds():
    mechanism = {"kind": kind, **more.get(kind, {})}
    ff.price(ff.Plan(epsilon=4, delta=1e-5, rounds=8, cohort=2, population="p", mechanism=mechanism))
""",
    "the service": """
import fieldfare as ff; from fieldfare_server.api import create_app
ff.Ledger.open('ledger.sqlite3', create=True).close(); create_app('sqlite:///ledger.sqlite3')
""",
    "another trainer's charge": "import fieldfare as ff; ff.Ledger; ff.LedgerAccountant",
    "what a node says of its users": "import fieldfare as ff; ff.UserTable.grouped(['a', 'b'], {})",
    "the help of every command": "from fieldfare_server.cli.application import assemble; assemble()",
}


@pytest.mark.parametrize("what", WITHOUT_TORCH)
def test_what_trains_nothing_imports_no_torch(what: str, tmp_path: Path) -> None:
    """Nor needs it: pricing, ledger, service and page work where PyTorch is not installed."""
    command = [sys.executable, "-c", ABSENT + WITHOUT_TORCH[what]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


SMALLER = {
    "psycopg": (["budget", "--ledger", "postgresql://reader@127.0.0.1/ledger"], "fieldfare[postgres]"),
    "pyarrow": (["simulate", "plan.toml", "--export", "rounds.parquet"], "fieldfare[client]"),
}


@pytest.mark.parametrize("module", SMALLER)
def test_what_a_smaller_installation_lacks_is_named(module: str, tmp_path: Path) -> None:
    words, remedy = SMALLER[module]
    absent = f"import importlib.util, sys\nsys.modules[{module!r}] = None\nfound = importlib.util.find_spec\n"
    absent += f"importlib.util.find_spec = lambda name, *more: None if name == {module!r} else found(name, *more)\n"
    run = absent + f"sys.argv = ['fieldfare', *{words!r}]\nfrom fieldfare_server.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert remedy in " ".join(done.stderr.replace("│", " ").split())


def test_a_price_of_a_shipped_plans_task_builds_no_model() -> None:
    """Their models' sizes are stated, and the resolution of the noise needs no more: papers' plans among them."""
    code = """
import sys, fieldfare as ff
for task in ("digits", "flights", "flights-mlp", "regression", "cifar10", "fashion", "stackoverflow"):
    ff.price(ff.Plan(task=task, epsilon=4, delta=1e-5, rounds=8, cohort=2, mechanism="blt"))
assert not {"torch", "scipy.stats", "scipy.signal", "flwr", "sqlalchemy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "use", "said"),
    [
        ("torch", "torch.zeros(3)", ("PyTorch: is not installed", "fieldfare[torch]")),
        ("scipy", "scipy.special.ndtr(0.0)", ("SciPy: is not installed", "fieldfare[accounting]")),
    ],
)
def test_what_is_imported_late_says_so_where_it_is_missing(module: str, use: str, said: tuple[str, str]) -> None:
    code = ABSENT.replace('"torch"', repr(module)) + f"from fieldfare.lazily import {module}; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"NotInstalled: {said[0]}" in done.stderr
    assert f"pip install '{said[1]}'" in done.stderr


def test_the_overview_says_what_each_command_says_of_itself() -> None:
    whole, summaries = get_command(assemble()), get_command(overview())
    for name in (*COMMANDS, *GROUPS):
        told = " ".join((whole.commands[name].help or "").split())  # type: ignore[attr-defined]
        summary = summaries.commands[name].help or ""  # type: ignore[attr-defined]
        assert told.startswith(summary), name
        assert summary.endswith("."), name


def test_the_command_is_the_first_word() -> None:
    assert called(["-v", "budget", "--help"]) == "budget"
    assert called(["--help"]) is None


def test_the_versions_of_a_ledger_are_those_that_alembic_sees() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.LOCATION))
    scripts = ScriptDirectory.from_config(config)
    assert schema.latest() == scripts.get_current_head()
    assert all(schema.known(script.revision) for script in scripts.walk_revisions())
    assert not schema.known("9999")
