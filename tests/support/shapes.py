"""Projects of `flwr run` around the rebuilt Flower examples of tests/examples/flower_shapes."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SHAPES = Path(__file__).parents[1] / "examples" / "flower_shapes"
PROJECT = """
[project]
name = "{title}"
version = "1.0.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "someone"

[tool.flwr.app.components]
serverapp = "{name}.server_app:app"
clientapp = "{name}.client_app:app"

[tool.flwr.app.config]
"""


def copy_shape(name: str, work: Path, config: str) -> Path:
    """Copy the example `name` into the project `work`/app, with the run's `config` in TOML; returns its package."""
    package = shutil.copytree(SHAPES / name, work / "app" / name, ignore=shutil.ignore_patterns("__pycache__"))
    text = PROJECT.format(name=name, title=name.replace("_", "-")) + config
    (package.parent / "pyproject.toml").write_text(text)
    importlib.invalidate_caches()
    return package


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Examples that are copied into `tmp_path` can be imported, and are unknown again afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    yield
    for module in [module for module in sys.modules if (SHAPES / module.split(".")[0]).is_dir()]:
        del sys.modules[module]
