"""What is delivered can be traced: locks with hashes, licences, advisories, images, the wheel's bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SUPPLY = ROOT / "deploy/supply"


def script(name: str) -> ModuleType:
    """A script of deploy/supply as a module."""
    sys.path.insert(0, str(SUPPLY))
    try:
        spec = importlib.util.spec_from_file_location(name, SUPPLY / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(SUPPLY))


lock, licences, audit, pin_images = (script(name) for name in ("lock", "licences", "audit", "pin_images"))
CONSTRAINTS: dict[str, str] = licences.names(ROOT / "constraints.txt")
IMAGE, DEV, RELEASE = (licences.names(ROOT / f"locks/{name}.lock") for name in ("image", "dev", "release"))


def test_locks_and_constraints_agree() -> None:
    for pins in (IMAGE, DEV):
        assert pins.items() <= CONSTRAINTS.items()
    # Nothing is pinned that nothing installs, but for what is exempt.
    assert CONSTRAINTS.keys() - IMAGE.keys() - DEV.keys() == {"torch"}
    assert not [name for name in IMAGE | DEV | RELEASE if lock.EXEMPT.fullmatch(name)]


@pytest.mark.parametrize("name", ["image", "dev", "release"])
def test_every_package_of_a_lock_has_hashes(name: str) -> None:
    text = (ROOT / f"locks/{name}.lock").read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.M)[1:]
    assert len(entries) == len(licences.names(ROOT / f"locks/{name}.lock")) > 50
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+(#.*\n?)*", entry), entry[:80]


def wanted(lines: list[str]) -> dict[str, Requirement]:
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): one for one in found if one.marker is None or one.marker.evaluate()}


@pytest.mark.parametrize(("pins", "lines"), [(IMAGE, lock.image_requirements()), (DEV, None)])
def test_a_lock_has_what_the_project_asks_for(pins: dict[str, str], lines: list[str] | None) -> None:
    """A requirement that is new, or a range that moved, wants `make lock`."""
    if lines is None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = [line for group in project["optional-dependencies"].values() for line in group]
        lines = [line for line in [*project["dependencies"], *extras] if not line.startswith("fieldfare[")]
    for name, requirement in wanted(lines).items():
        if name in ("torch", "onnx", "onnxscript"):  # exempt; and an extra that the tests do not install
            continue
        assert name in pins, f"{name}: make lock"
        assert requirement.specifier.contains(pins[name]), f"{name}: make lock"


def test_the_image_installs_only_what_the_lock_names() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    installs = [line for line in re.split(r"\n|&&", text) if "pip install" in line]
    free = [line for line in installs if "--require-hashes --no-deps" not in line]
    assert len(installs) - len(free) == 2
    exempt, project = free
    assert exempt.strip().endswith("--constraint constraints.txt torch")
    assert "--no-deps --no-build-isolation" in project, "the project itself, built by what the lock names"
    # What builds does not ship.
    (removed,) = re.findall(r"AS slim\n.*?uninstall --yes (.*?) *&&", text, re.S)
    assert set(removed.split()) == {"hatchling", "trove-classifiers", "pluggy", *lock.BUILD, "pip"}
    assert "FROM bill" not in text
    assert "COPY --from=bill /out /usr/share/doc/fieldfare" in text


def test_workflows_install_from_the_lock_and_name_actions_by_commit() -> None:
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        text = path.read_text()
        for action in re.findall(r"uses: (\S+)", text):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action), f"{path.name}: {action}"
        for command in re.findall(r"pip install (.*)", text):
            assert command.startswith("--require-hashes --no-deps --requirement locks/"), f"{path.name}: {command}"
        # The matrix tries other versions than the lock's, which is what it is for.
        jobs = {name: job for name, job in yaml.safe_load(text)["jobs"].items() if name != "matrix"}
        for job in jobs.values():
            for step in job["steps"]:
                if re.search(r"\bmake \w|\.ci/run", step.get("run", "")):
                    assert step["env"]["LOCKED"] == "1" or "LOCKED=1" in step["run"], f"{path.name}: {step['run']}"


# -- licences ---------------------------------------------------------------------------------------------------------


def test_every_dependency_has_a_licence_that_we_know() -> None:
    shipped = (set(IMAGE) | {"torch"}) - licences.BUILD_ONLY
    assert licences.check(sorted(shipped | set(DEV))) == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("MIT AND (GPL-2.0-only OR Apache-2.0)", True),
        ("Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND BSL-1.0", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("(MIT", False),
        ("MIT MIT", False),
        ("MIT OR", False),
        ("", False),
        ("AGPL-3.0-or-later", False),
        ("do what you like", False),
    ],
)
def test_expressions_of_licences(expression: str, allowed: bool) -> None:
    assert licences.is_allowed(expression) is allowed


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("License-Expression: GPL-3.0-only", "GPL-3.0-only is not allowed"),
        ("License: Proprietary", "states no licence that is known"),
        ("Classifier: License :: OSI Approved :: GNU Affero General Public License v3", "no licence that is known"),
        ("Summary: nothing", "no licence that is known"),
        ("License: Apache 2.0", ""),
        ("Classifier: License :: OSI Approved :: MIT License", ""),
    ],
)
def test_an_unknown_or_forbidden_licence_fails(
    about: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made_up-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: made-up\nVersion: 1.0\n{about}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = licences.check(["made-up"])
    assert len(found) == bool(words)
    assert words in " ".join(found)
    assert "not installed" in licences.check(["there-is-none-of-this"])[0]


# -- known vulnerabilities --------------------------------------------------------------------------------------------

ADVISORY = """
id: PYSEC-2020-1
aliases: [CVE-2020-1]
affected:
- package: {ecosystem: PyPI, name: made-up}
  ranges:
  - type: GIT
    events: [{introduced: "0"}]
  - type: ECOSYSTEM
    events: [{introduced: "0"}, {fixed: 1.4.2}, {introduced: "2.0"}, {fixed: "2.1"}]
  versions: [0.9-odd]
- package: {ecosystem: PyPI, name: made-up}
  ranges:
  - type: ECOSYSTEM
    events: [{introduced: "5"}, {last_affected: "5.1"}]
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "clone/vulns/made-up"
    folder.mkdir(parents=True)
    (folder / "PYSEC-2020-1.yaml").write_text(ADVISORY)
    (folder / "PYSEC-2020-2.yaml").write_text(ADVISORY.replace("-1\n", "-2\n") + "withdrawn: 2020-01-01\n")
    return tmp_path / "clone"


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("1.4.1", True),
        ("1.4.2", False),
        ("1.10", False),
        ("2.0", True),
        ("2.0.9", True),
        ("2.1", False),
        ("5", True),
        ("5.1", True),
        ("5.1.1", False),
    ],
)
def test_an_advisory_is_found_and_one_for_another_version_is_not(version: str, found: bool, database: Path) -> None:
    hits = audit.find(database, {"made-up": version, "other": "1"})
    assert hits == ([("made-up", version, "PYSEC-2020-1", "CVE-2020-1")] if found else [])


def run_audit(*arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, str(SUPPLY / "audit.py"), *(str(word) for word in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_the_audit_fails_on_what_it_finds_and_says_where_it_is_skipped(database: Path, tmp_path: Path) -> None:
    pins = tmp_path / "made.lock"
    pins.write_text("made-up==1.0 \\\n    --hash=sha256:00\n")
    code, said = run_audit(database, pins)
    assert (code, "made-up 1.0: PYSEC-2020-1 (CVE-2020-1): KNOWN VULNERABILITY" in said) == (2, True)
    pins.write_text("made-up==1.5\n")
    code, said = run_audit(database, pins)
    assert (code, "2 packages, 0 open advisories" in said) == (0, True), (
        "PyTorch, which no lock names, is looked up too"
    )
    assert run_audit("")[0] == 0
    assert "The audit is skipped: no advisory database was named" in run_audit("")[1]
    assert run_audit(tmp_path)[0] == 2


# -- images -----------------------------------------------------------------------------------------------------------

OTHERS = {
    "FIELDFARE_GRAFANA_IMAGE",
    "FIELDFARE_NGINX_IMAGE",
    "FIELDFARE_POSTGRES_IMAGE",
    "FIELDFARE_PROMETHEUS_IMAGE",
    "FIELDFARE_PYTHON_IMAGE",
}


def test_no_image_is_a_moving_tag() -> None:
    """Every image of others is named by a version, and by a variable that `make pin-images` gives a digest."""
    text = (ROOT / "docker-compose.yml").read_text()
    found = pin_images.images(text)
    assert found.keys() == OTHERS
    assert not [reference for reference in found.values() if reference.endswith(":latest")]
    for service in yaml.safe_load(text)["services"].values():
        image = service["image"]
        assert image.startswith("${FIELDFARE_"), image
        assert "@" not in image
    # The other places that name them name the same.
    for name in ("deploy/Dockerfile", "deploy/node-image/Dockerfile"):
        assert f"ARG PYTHON_IMAGE={found['FIELDFARE_PYTHON_IMAGE']}\n" in (ROOT / name).read_text()
    values = yaml.safe_load((ROOT / "deploy/helm/fieldfare/values.yaml").read_text())
    assert values["ledger"]["image"] == found["FIELDFARE_POSTGRES_IMAGE"]
    assert values["gate"]["image"] == found["FIELDFARE_NGINX_IMAGE"]


ENGINE = """#!/bin/sh
case "$*" in
  *postgres*) echo '{"mediaType": "list", "digest": "ANSWER"}' ;;
  *) echo '{"digest": "sha256:1111111111111111111111111111111111111111111111111111111111111111"}' ;;
esac
"""


@pytest.mark.parametrize(
    ("answer", "good"), [("sha256:" + "ab" * 32, True), ("sha256:abc", False), ("16", False), ("", False)]
)
def test_images_are_pinned_by_what_the_registry_answers(
    answer: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, target = tmp_path / "engine", tmp_path / "images.env"
    engine.write_text(ENGINE.replace("ANSWER", answer))
    engine.chmod(0o755)
    monkeypatch.setattr(pin_images, "TARGET", target)
    monkeypatch.setattr(pin_images, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pin_images", str(engine)])
    if not good:
        with pytest.raises(SystemExit, match="2"):
            pin_images.main()
        assert not target.exists(), "all of them, or none"
        return
    pin_images.main()
    lines = target.read_text().splitlines()[1:]
    assert {line.partition("=")[0] for line in lines} == OTHERS
    assert f"FIELDFARE_POSTGRES_IMAGE=docker.io/library/postgres:16@{answer}" in lines


# -- the wheel --------------------------------------------------------------------------------------------------------

SOURCES = ("shared", "server", "client", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "hatch_build.py")


def build(folder: Path, disturb: Callable[[Path], None]) -> Path:
    """The wheel of a copy of the tree, after `disturb` changed what a checkout may change."""
    for name in SOURCES:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    disturb(folder)
    env: dict[str, Any] = {**os.environ, "SOURCE_DATE_EPOCH": "1735689600", "REPOSITORY_URL": "https://code.example/f"}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "out")]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, timeout=120)
    (wheel,) = (folder / "out").glob("*.whl")
    return wheel


def leave(folder: Path) -> None:
    """As it is."""


def disturb(folder: Path) -> None:
    """Another time of checkout, another umask, another order of creation, and what a test run leaves behind."""
    for path in folder.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o700)  # git keeps the bit for execution, and no other
    cache = folder / "shared/fieldfare/__pycache__"
    cache.mkdir()
    (cache / "plan.cpython-311.pyc").write_bytes(b"left behind")


def test_the_wheel_is_the_same_bytes_whoever_builds_it(tmp_path: Path) -> None:
    first, second = build(tmp_path / "a", leave), build(tmp_path / "elsewhere/b", disturb)
    assert first.name == second.name
    with zipfile.ZipFile(first) as wheel:
        names = wheel.namelist()
        assert any(name.endswith("licenses/NOTICE") for name in names)
        assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "benchmarks"))]
        assert {entry.date_time[:3] for entry in wheel.infolist()} == {(2025, 1, 1)}
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
