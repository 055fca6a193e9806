"""One mark for page, site and wheel page; badges that say what the package says; a site that fetches nothing."""

from __future__ import annotations

import re
import tomllib

import yaml

import fieldfare
from fieldfare_server.evidence.guarantee import accountant
from support.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_page_site_and_readme_have_one_mark() -> None:
    mark = (ROOT / "server/fieldfare_server/dashboard/static/icon.svg").read_text()
    assert (ROOT / "docs/mark.svg").read_text() == mark
    (drawing,) = re.findall(r"<svg[^>]*>(.*)</svg>", mark, re.DOTALL)
    assert drawing in (ROOT / "docs/badges.svg").read_text()
    assert "](docs/badges.svg)" in (ROOT / "README.md").read_text()


def test_the_sites_colours_are_the_pages() -> None:
    page = (ROOT / "server/fieldfare_server/dashboard/static/style.css").read_text()
    for name, value in re.findall(
        r"--md-(accent-fg-color|default-bg-color): (#\w{6})", (ROOT / "docs/site.css").read_text()
    ):
        assert value in page, name


def test_badges_say_what_the_package_says() -> None:
    shown = re.findall(r">([^<\n]+)</text>", (ROOT / "docs/badges.svg").read_text())
    told = dict(zip(shown[::2], shown[1::2], strict=True))
    versions = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", name)]
    assert told["licence"] == PROJECT["license"]
    assert told["Python"] == f"{versions[0]} to {versions[-1]}"
    needed = [need for group in PROJECT["optional-dependencies"].values() for need in group if need.startswith("flwr>")]
    assert needed
    assert all(need.startswith(f"flwr>={told['Flower'].split()[0]},") for need in needed)


def test_the_version_is_one_fact() -> None:
    """`fieldfare.__version__`, which wheel, API, page, statement and doctor read; other files repeat it."""
    assert "version" in PROJECT["dynamic"]
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    (said,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / hatch["version"]["path"]).read_text(), re.MULTILINE)
    assert said == fieldfare.__version__ == accountant().rpartition(" ")[2]
    chart = yaml.safe_load((ROOT / "deploy/helm/fieldfare/Chart.yaml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    app, research = (
        tomllib.loads((ROOT / where / "pyproject.toml").read_text())["project"]["version"]
        for where in ("server/fieldfare_server/deployment/flower_app", "benchmarks/research")
    )
    assert {chart["version"], chart["appVersion"], citation["version"], app, research} == {said}
    # The newest section of the changelog is this version's, or of what comes after it.
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert said in sections[:2]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1000


def test_the_site_names_every_script_and_style_as_its_own_file() -> None:
    """`offline` would fetch its worker from elsewhere, if the site did not carry it."""
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)
    assert "offline" in site["plugins"]
    assert any("iframe-worker" in name for name in site["extra"]["polyfills"])
    for name in (*site["extra"]["polyfills"], *site["extra_css"], site["theme"]["logo"], site["theme"]["favicon"]):
        assert (ROOT / "docs" / name).is_file()
    assert site["theme"]["font"] == "false"
