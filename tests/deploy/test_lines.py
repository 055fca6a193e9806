"""What keeps the product small: lines a room, and one meaning a class name."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lines", ROOT / "deploy/supply/lines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lines_are_counted_by_room(tmp_path: Path) -> None:
    lines = load()
    for package in lines.PACKAGES:
        (tmp_path / package / "room").mkdir(parents=True)
        (tmp_path / package / "own.py").write_text("a\nb\n")
        (tmp_path / package / "room" / "file.py").write_text("a\n")
    counted = lines.count(tmp_path)
    assert counted["fieldfare"] == 2
    assert counted["fieldfare.room"] == 1
    assert sum(counted.values()) == 3 * len(lines.PACKAGES)


def test_a_rise_is_refused_until_the_changelog_explains_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = load()
    table = tmp_path / "lines.toml"
    table.write_text('limit = 1900\n"fieldfare" = 1900\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.0\n\n- Lines: 2 000, of old.\n")
    monkeypatch.setattr(lines, "TABLE", table)
    monkeypatch.setattr(lines, "ROOT", tmp_path)
    monkeypatch.setattr(lines, "count", lambda: {"fieldfare": 1850, "fieldfare.noise": 40})
    assert lines.main([]) == 0
    monkeypatch.setattr(lines, "count", lambda: {"fieldfare": 1850, "fieldfare.noise": 99})
    assert lines.main([]) == lines.main(["--write"]) == 1
    assert "1,949 lines where 1,900 are allowed" in capsys.readouterr().out
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- Lines: 2 000, a new sampler.\n\n## 1.0\n")
    assert lines.main(["--write"]) == 0
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.1\n")
    assert lines.main([]) == 0
    assert '"fieldfare.noise" = 100' in table.read_text()
    assert "limit = 2000" in table.read_text()


def test_no_class_has_the_name_of_another() -> None:
    """A reader who searches for a name finds one class."""
    names: Counter[str] = Counter()
    lines = load()
    for package in (*lines.PACKAGES, lines.ADD_ON):
        for path in (ROOT / package).rglob("*.py"):
            names.update(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
    public = {name: number for name, number in names.items() if not name.startswith("_")}
    assert {name: number for name, number in public.items() if number > 1} == {}
