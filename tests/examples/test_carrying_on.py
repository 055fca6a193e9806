"""The diffs of docs/carrying-on.md apply to this tree, and their tests pass on a copy of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIFFS = sorted((ROOT / "docs/diffs").glob("*.diff"))
COPIED = ("shared", "server", "client", "tests", "docs")
ALSO = {
    "mechanism": ["tests/core/mechanisms/test_every_kind.py", "-k", "twice or no_kind"],
    "event": ["tests/server/ledger/test_reference_fold.py", "-k", "notes or the_page_and_the_reference or test_a_note"],
    "sampler": ["tests/core/accounting/test_a_sixth_sampler.py"],
    "question": [
        "tests/server/api/test_add_remove.py",
        "-k",
        "rows or length or everybody or (forgotten and gaussian-sqlite)",
    ],
}
"""Tests of the tree that must take the addition in, beside those that the diff brings."""


@pytest.mark.parametrize("diff", DIFFS, ids=lambda path: path.stem)
def test_a_worked_example_applies_and_its_tests_pass(diff: Path, tmp_path: Path) -> None:
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "corpus"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    subprocess.run(["git", "apply", str(diff)], cwd=tmp_path, check=True)
    own = re.findall(r"^\+\+\+ b/(tests/\S*/test_\w+\.py)$", diff.read_text(), re.MULTILINE)
    brought = [test for test in own if not (ROOT / test).exists()]
    assert brought
    paths = [str(tmp_path / folder) for folder in ("shared", "server", "client", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-m", "not postgres"]
    done = subprocess.run(
        [*command, *brought, *ALSO.get(diff.stem, [])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_page_shows_every_diff() -> None:
    page = (ROOT / "docs/carrying-on.md").read_text()
    assert set(re.findall(r"docs/diffs/([\w-]+)\.diff\"", page)) == {diff.stem for diff in DIFFS}
