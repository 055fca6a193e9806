"""`import fieldfare as ff` is light, typed and complete, and says what to install."""

from __future__ import annotations

import ast
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
        ("private", "flwr", "'fieldfare[client]'"),
    ],
)
def test_a_missing_package_names_the_extra_that_brings_it(name: str, missing: str, install: str) -> None:
    command = [sys.executable, "-c", WITHOUT, name, missing]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"fieldfare.{name} needs '{missing}" in done.stdout
    assert f"pip install {install}" in done.stdout


def test_the_sites_api_page_has_every_public_name() -> None:
    page = (Path(__file__).parents[1] / "docs/api.md").read_text()
    for name, (path, _) in _PUBLIC.items():
        module = path.replace(":", ".")
        assert f"::: {module}" in page, name
