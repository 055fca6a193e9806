"""What the wheel says about itself where the build knows the repository's address, and where it does not."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib import metadata as metadata_of
from pathlib import Path
from types import ModuleType

import pytest
from packaging.specifiers import SpecifierSet

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[2]


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_pinned_package_takes_the_oldest_python_that_is_promised() -> None:
    """Debian 12 has Python 3.11.2: a pin that wants 3.11.5 stops `make install` there with a conflict."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = re.fullmatch(r">=(\d+\.\d+)", project["requires-python"])
    assert oldest is not None
    lines = (ROOT / "constraints.txt").read_text().split()
    pins = {normal(name): version for name, _, version in (line.partition("==") for line in lines)}
    judged, refusing = 0, []
    for found in metadata_of.distributions():
        # What is installed here may be newer or older than the pin; then the pin is judged elsewhere.
        if pins.get(normal(found.name)) == found.version:
            judged += 1
            if not SpecifierSet(found.metadata["Requires-Python"] or "").contains(f"{oldest[1]}.2"):
                refusing.append(f"{found.name} {found.version}: {found.metadata['Requires-Python']}")
    assert refusing == []
    assert judged > 50


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata(monkeypatch: pytest.MonkeyPatch, repository: str) -> dict[str, object]:
    monkeypatch.setenv("REPOSITORY_URL", repository)
    made: dict[str, object] = {}
    hook().CustomMetadataHook(str(ROOT), {}).update(made)
    return made


def test_with_an_address_every_image_and_link_of_the_readme_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metadata(monkeypatch, "https://code.example/team/fieldfare/")
    text = str(made["readme"]["text"])  # type: ignore[index]
    assert "](https://code.example/team/fieldfare/raw/main/docs/score.svg)" in text
    assert re.findall(r"\]\((?!https?://|#)[^)]+\)", text) == []
    assert made["urls"]["Issues"] == "https://code.example/team/fieldfare/issues"  # type: ignore[index]


def test_without_an_address_nothing_points_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metadata(monkeypatch, "")
    assert made["readme"] == {"content-type": "text/markdown", "text": (ROOT / "README.md").read_text()}
    assert "urls" not in made
