"""Under a Flower that has moved every private name, the strategy and both dialects run by public API alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

ROUND = """
import builtins, importlib, json, sys
import flwr.app, flwr.serverapp, flwr.serverapp.strategy, flwr.clientapp
# Flower's own task would have an identity: without it nobody can make a message.
from flwr.supercore.task_identity import TaskIdentity
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

PUBLIC = ("flwr.app", "flwr.serverapp", "flwr.clientapp", "flwr.simulation")
real_import = builtins.__import__

def refuse(name):
    if name.startswith("flwr.") and not name.startswith(PUBLIC):
        raise ModuleNotFoundError(f"hidden: {name}", name=name)

def importing(name, globals=None, locals=None, fromlist=(), level=0):
    if str((globals or {}).get("__name__", "")).startswith("fieldfare"):
        refuse(name)
    return real_import(name, globals, locals, fromlist, level)

def import_module(name):
    refuse(name)
    return importlib.import_module(name)

builtins.__import__ = importing
from fieldfare_flower import private
private.import_module = import_module

name, nodes, config = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
import fieldfare as ff
assert private.find("flwr.supercore.run:Run") is None
client, server = (importlib.import_module(f"{name}.{half}_app").app for half in ("client", "server"))
ff.LocalGrid(client, nodes, config).run_app(server)
with ff.Ledger.open(f"sqlite:///{sys.argv[4]}/ledger.sqlite3") as ledger:
    (run,) = ledger.runs().items
    print("ended:", run.state, run.next_round)
"""


@pytest.mark.parametrize(("name", "nodes"), [("quickstart", 50), ("hospitals", 2)])
def test_a_round_needs_no_private_name(name: str, nodes: int, tmp_path: Path) -> None:
    config = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {"num-server-rounds": 1} | ({"local-steps": 1} if name == "hospitals" else {})
    path = os.pathsep.join([str(EXAMPLES / name), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "FIELDFARE_HOME": str(tmp_path), "PYTHONPATH": path}
    command = [sys.executable, "-c", ROUND, name, str(nodes), json.dumps(config), str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=280)
    assert "ended: done 1" in done.stdout, done.stdout + done.stderr
