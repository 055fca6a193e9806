"""`import fieldfare as ff` is light, typed and complete, and says what to install."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fieldfare as ff
from fieldfare import _PUBLIC

STUB = Path(ff.__file__).with_suffix(".pyi")

LOOK = """
import sys, time
began = time.process_time()
import fieldfare as ff
took = time.process_time() - began
dir(ff)
print(took, *sorted(sys.modules))
"""


def test_the_first_screen_of_help_says_what_each_public_name_is_for() -> None:
    shown = pydoc.plain(pydoc.render_doc(ff)).splitlines()[:30]
    rows = {line.split()[0].removeprefix("ff.") for line in shown if line.strip().startswith("ff.")}
    assert rows == set(ff.__all__) - {"__version__"}


@pytest.mark.parametrize("name", sorted(set(ff.__all__) - {"__version__", "errors", "mechanisms"}))
def test_help_of_each_public_name_is_a_screen(name: str) -> None:
    """Modules say what is in them on their first one."""
    thing = getattr(ff, name)
    page = pydoc.plain(pydoc.render_doc(thing))
    if sys.version_info >= (3, 13):  # which gives each parameter of a signature a line
        page = re.sub(r"\((\n \|    +[^\n]*)+\n \|  \)", "(...)", page)
    assert len(page.splitlines()) <= {"PrivateStrategy": 76, "private": 134}.get(name, 66)
    assert "inherited from" not in page
    assert "builtins.BaseException" not in page
    if inspect.isclass(thing):
        assert name == "Task" or f" |  {name}(" in page  # one subclasses a Task
        assert "__abstractmethods__" not in page
        shown = dir(thing)
        assert all(f" |  {one}" in page for one in shown)
        assert not [one for one in shown if not inspect.getdoc(getattr(thing, one))]


def test_help_of_a_ledger_names_what_people_call_of_it() -> None:
    table = (ff.Ledger.__doc__ or "").split("Example:")[0]
    named = re.findall(r"\b[a-z]+(?:_[a-z]+)+\b|\b(?:open|url|close|runs?|rounds|charges|populations?)\b", table)
    assert len(set(named)) == 20
    assert [inspect.getdoc(getattr(ff.Ledger, one)) for one in named]


@pytest.mark.parametrize("name", ["errors", "mechanisms"])
def test_the_first_screen_of_a_modules_help_says_what_is_in_it(name: str) -> None:
    page = pydoc.plain(pydoc.render_doc(getattr(ff, name))).splitlines()[:60]
    assert any("Example:" in line for line in page)
    assert any("BudgetRefused" in line or "MechanismSpec" in line for line in page)


def test_a_class_derived_from_a_public_one_shows_all_that_it_has() -> None:
    class Mine(ff.Task):
        extra = 1

    assert {"extra", "build_model", "seed", "__init__"} <= set(dir(Mine))
    assert {"raise_population", "runs", "SHOWN"} <= set(dir(object.__new__(ff.Ledger)))


def test_importing_it_takes_under_50_ms_and_loads_no_library() -> None:
    times = []
    for _ in range(3):  # processor time, the best of three: other processes share the machine
        done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=60)
        took, *modules = done.stdout.split()
        times.append(float(took))
        loaded = {name.split(".")[0] for name in modules}
        assert not loaded & {
            "torch",
            "numpy",
            "scipy",
            "flwr",
            "pydantic",
            "sqlalchemy",
            "typer",
            "rich",
            "cryptography",
        }
        assert not loaded & {"fieldfare_flower", "fieldfare_server", "fieldfare_client"}
    assert min(times) < 0.05


def test_editors_and_type_checkers_see_the_same_names() -> None:
    typed = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module
            typed |= {alias.asname: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            typed |= {alias.asname: alias.name.rpartition(".")[::2] for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "private":
            # A module that can be called: a type checker is told its class.
            assert ast.unparse(node.annotation) == "_Private"
            assert type(ff.private).__name__ == "Private"
            assert typed.pop("_Private") == (ff.private.__name__, "Private")
            typed["private"] = ("fieldfare_client", "private")
    assert sorted(typed) == sorted(_PUBLIC) == sorted(set(dir(ff)) - {"__version__"})
    for name, (module, attribute) in typed.items():
        path = _PUBLIC[name][0]
        assert path in (f"{module}:{attribute}", f"{module}.{attribute}"), name
    assert (STUB.parent / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(_PUBLIC))
def test_each_name_is_what_its_path_says(name: str) -> None:
    module, _, attribute = _PUBLIC[name][0].partition(":")
    loaded = import_module(module)
    assert getattr(ff, name) is (getattr(loaded, attribute) if attribute else loaded)
    assert (getattr(ff, name).__doc__ or "").strip()


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        ff.simulat  # type: ignore[attr-defined]
    assert not hasattr(ff, "torch")


WITHOUT = """
import sys
for module in sys.argv[2:]:
    sys.modules[module] = None
import fieldfare
try:
    getattr(fieldfare, sys.argv[1])
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "missing", "install"),
    [
        ("PrivateStrategy", "flwr", "'fieldfare[server]'"),
        ("Ledger", "sqlalchemy", "'fieldfare[server]'"),
        ("simulate", "sqlalchemy", "'fieldfare[server,client]'"),
        ("LocalGrid", "flwr", "'fieldfare[client]'"),
        ("private", "flwr", "'fieldfare[node]'"),
    ],
)
def test_a_missing_package_names_the_extra_that_brings_it(name: str, missing: str, install: str) -> None:
    command = [sys.executable, "-c", WITHOUT, name, missing]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"fieldfare.{name} needs '{missing}" in done.stdout
    assert f"pip install {install}" in done.stdout


APP = """
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

import fieldfare as ff

app = ClientApp(mods=[ff.private])
own = ClientApp()
server = ServerApp()


@app.train(mods=[ff.private])
def plain(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)


@own.query("users")
@ff.private.users
def users(context: Context) -> list[str]:
    return ["a", "b"]


@own.train()
@ff.private.train(lambda: torch.nn.Linear(2, 1))
def train(model: torch.nn.Module, user: str, context: Context, config: dict[str, object]) -> None:
    try:
        ff.private.check(train, ["a"])
    except ff.private.LostDevice:
        pass


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": 1.0})


@server.main()
def main(grid: Grid, context: Context) -> None:
    strategy = ff.PrivateStrategy(epsilon=8, delta=1e-5, cohort=2, population="p", run_config=context.run_config)
    result = strategy.start(grid, ArrayRecord(), num_rounds=3, train_config=ConfigRecord(), evaluate_fn=evaluate)
    print(result.arrays)
"""
WRONG = """
import fieldfare as ff

ff.private(1, 2)
ff.private.trian
ff.PrivateStrategy(epsilon="8")
"""


def test_a_users_app_passes_a_strict_type_checker_and_its_slips_do_not(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    for name, text in {"right": APP, "wrong": WRONG}.items():
        (tmp_path / f"{name}.py").write_text(text)
    # The cache is the one that `make check` has filled: without it this takes half a minute.
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "right.py"), str(tmp_path / "wrong.py")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=280)
    errors = [line.partition("wrong.py:")[2] for line in done.stdout.splitlines() if "error:" in line]
    assert "right.py" not in done.stdout, done.stdout
    assert {line.partition(":")[0] for line in errors} == {"4", "5", "6"}, done.stdout + done.stderr


def test_the_module_and_its_type_have_the_same_names() -> None:
    private = import_module("fieldfare_client.private")
    for name in private.__all__:
        assert getattr(type(private), name) is getattr(private, name)


def test_the_sites_api_page_has_every_public_name() -> None:
    page = (Path(__file__).parents[1] / "docs/api.md").read_text()
    for name, (path, _) in _PUBLIC.items():
        module = path.replace(":", ".")
        assert f"::: {module}" in page, name
