"""What the wheel says about itself where the build knows the repository's address, and where it does not."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[2]


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metadata(monkeypatch: pytest.MonkeyPatch, repository: str) -> dict[str, object]:
    monkeypatch.setenv("REPOSITORY_URL", repository)
    made: dict[str, object] = {}
    hook().CustomMetadataHook(str(ROOT), {}).update(made)
    return made


def test_with_an_address_every_image_and_link_of_the_readme_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metadata(monkeypatch, "https://code.example/team/fieldfare/")
    text = str(made["readme"]["text"])  # type: ignore[index]
    assert "![Held-out AUC" in text
    assert "](https://code.example/team/fieldfare/raw/main/docs/demo.png)" in text
    assert re.findall(r"\]\((?!https?://|#)[^)]+\)", text) == []
    assert made["urls"]["Issues"] == "https://code.example/team/fieldfare/issues"  # type: ignore[index]


def test_without_an_address_nothing_points_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metadata(monkeypatch, "")
    assert made["readme"] == {"content-type": "text/markdown", "text": (ROOT / "README.md").read_text()}
    assert "urls" not in made
