"""Render the Helm chart: with `helm` where it is installed, else with Go's templates and sprig, as Helm does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy/helm/fieldfare"
_PROGRAM = Path(__file__).parent / "helm/main.go"
_GOPATH = Path("/usr/share/gocode")
"""Where Debian's golang-github-masterminds-sprig-dev puts its source."""


class ChartError(Exception):
    """The chart refused its values."""


def renderer() -> str:
    """What there is to render with: "helm", "go", or ""."""
    if shutil.which("helm"):
        return "helm"
    return "go" if shutil.which("go") and (_GOPATH / "src/github.com/Masterminds/sprig").is_dir() else ""


def render(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects that the chart makes of `values`, laid over its own. Raises `ChartError`."""
    texts = _by_helm(values) if renderer() == "helm" else _by_go(values)
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def _by_helm(values: Mapping[str, Any]) -> list[str]:
    command = ["helm", "template", "fed", str(CHART), "--values", "-"]
    return [_run(command, yaml.safe_dump(dict(values)))]


def lint(values: Mapping[str, Any]) -> str:
    """What `helm lint` says of the chart with `values`. Raises `ChartError` where it finds a fault."""
    return _run(["helm", "lint", str(CHART), "--strict", "--values", "-"], yaml.safe_dump(dict(values)))


def _by_go(values: Mapping[str, Any]) -> list[str]:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    given = {
        "Values": merged(yaml.safe_load((CHART / "values.yaml").read_text()), values),
        "Chart": {"Name": chart["name"], "AppVersion": chart["appVersion"], "Version": chart["version"]},
        "Release": {"Name": "fed", "Namespace": "default", "Revision": 1},
    }
    return list(json.loads(_run([str(_built()), str(CHART)], json.dumps(given))).values())


_WORK = TemporaryDirectory(prefix="fieldfare-helm-")
"""Removed when the interpreter ends."""


@lru_cache(maxsize=1)
def _built() -> Path:
    work = Path(_WORK.name)
    env = {**os.environ, "GO111MODULE": "off", "GOPATH": str(_GOPATH), "GOCACHE": str(work / "cache"), "GOFLAGS": ""}
    subprocess.run(["go", "build", "-o", str(work / "render"), str(_PROGRAM)], env=env, check=True, timeout=240)
    return work / "render"


def _run(command: list[str], given: str) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def merged(base: Any, over: Any) -> Any:
    """`over` laid over `base`, as Helm lays values over a chart's own."""
    if not (isinstance(base, dict) and isinstance(over, Mapping)):
        return over
    return {**base, **{name: merged(base.get(name), value) for name, value in over.items()}}
