"""No private name of Flower is needed to import this package, and a missing one is reported in words."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fieldfare_flower
from fieldfare_flower import private
from support.refusals import coded

FOLDER = Path(fieldfare_flower.__file__).parent
ROOT = FOLDER.parents[1]
PACKAGES = (FOLDER, ROOT / "server/fieldfare_server", ROOT / "client/fieldfare_client")
PUBLIC = ("flwr", "flwr.app", "flwr.serverapp", "flwr.serverapp.strategy", "flwr.clientapp", "flwr.simulation")


def imported(path: Path, inside: bool) -> Iterator[str]:
    """Modules that a file imports; with `inside` only those that it imports as soon as it is imported itself."""
    tree = ast.parse(path.read_text())
    for node in tree.body if inside else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_only_functions_of_this_package_import_more_of_flower_than_its_public_interface() -> None:
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            flower = {name for name in imported(path, package == FOLDER) if name.split(".")[0] == "flwr"}
            assert flower <= set(PUBLIC), path


HIDE = """
import importlib, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in hidden:
            raise ModuleNotFoundError(name)
hidden = set(sys.argv[2:])
import flwr.app, flwr.serverapp, flwr.clientapp
for name in hidden:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for module in sys.argv[1].split(","):
    importlib.import_module(module)
"""


def test_every_module_can_be_imported_when_all_private_names_have_moved() -> None:
    modules = [f"fieldfare_flower.{path.stem}" for path in FOLDER.glob("[a-z]*.py")]
    modules += ["fieldfare_flower.warm.parent", "fieldfare_flower.warm.__main__", "fieldfare_client.simulation"]
    modules += ["fieldfare_server.doctor.strangers", "fieldfare_server.deployment.nodes", "fieldfare_server.run.app"]
    gone = ["flwr.supercore.inflatable.inflatable_utils", "flwr.supercore.superexec", "flwr.supercore.task_identity"]
    gone += ["flwr.supercore.run", "flwr.supercore.control", "flwr.supercore.error", "flwr.supercore.interceptors"]
    gone += ["flwr.supercore.primitives.asymmetric", "flwr.supernode", "flwr.proto.control_pb2", "flwr.proto.fleet_pb2"]
    command = [sys.executable, "-c", HIDE, ",".join(modules), *gone]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_missing_name_is_none_and_a_needed_one_is_an_error_that_names_it(remove: Callable[..., None]) -> None:
    remove("flwr.clientapp:ClientApp")
    assert private.find("flwr.no_such_module") is None
    assert private.find("flwr.app:NoSuchName") is None
    assert private.find("flwr.app:Message") is not None
    with (
        pytest.raises(private.FlowerDiffers, check=coded("flower-differs", "ClientApp")),
        private.required("this is lost"),
    ):
        from flwr.clientapp import ClientApp  # noqa: F401


def test_flowers_programs_are_found_by_the_names_of_their_commands() -> None:
    for name in ("flower-superexec", "flower-supernode", "flwr-clientapp"):
        assert callable(private.load_program(name))
    with pytest.raises(SystemExit, match="flower-nothing is not installed"):
        private.load_program("flower-nothing")
