"""The processes of docker-compose.yml without containers: those that benchmarks/round_time.py starts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def benchmark(name: str) -> Any:
    """A program of benchmarks/, as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def round_time() -> Any:
    """`benchmark("round_time")`."""
    return benchmark("round_time")
