"""The benchmark for a GPU starts where numpy, torch and pydantic are, and no more: such machines are often lent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BARE = """
import importlib.util, sys

LACKING = ("cryptography", "fastapi", "flwr", "platformdirs", "scipy", "sqlalchemy")
find, stand_ins = importlib.util.find_spec, lambda: [f for f in sys.meta_path if type(f).__name__ == "_Missing"]

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            for finder in stand_ins():
                if found := finder.find_spec(name):
                    return found
            raise ModuleNotFoundError(name)

importlib.util.find_spec = lambda name, package=None: None if name in LACKING else find(name, package)
sys.meta_path.insert(0, Bare())
import gpu
from numpy import arange
print(gpu.Cohorts(gpu.Made("mlp-2k", 4), "cpu", True).train(arange(3), 0).users)
"""


def test_it_trains_without_what_no_training_calls() -> None:
    paths = os.pathsep.join(str(ROOT / name) for name in ("benchmarks", "shared", "client"))
    run = [sys.executable, "-c", BARE]
    done = subprocess.run(run, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120)
    assert done.stdout == "3\n", done.stderr[-2000:]
