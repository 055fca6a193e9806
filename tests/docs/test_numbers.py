"""Figures of README and pages are what this tree computes."""

from __future__ import annotations

import json
import math
import re

import pytest
from typer.testing import CliRunner

from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.words import loss_in_words
from support.pages import ROOT

PLANS = ROOT / "deploy/plans"
README = (ROOT / "README.md").read_text()
AMPLIFICATION = (ROOT / "docs/amplification.md").read_text()
MECHANISMS = (ROOT / "docs/mechanisms.md").read_text()
NU = 'kind = "nu"                    # fieldfare mechanisms lists all\nnu = "auto"\n'
ROWS = {
    "`nu`, no sampling": ("flights", NU),
    "`blt`, no sampling": ("flights", 'kind = "blt"\n'),
    "`independent`, no sampling": ("flights", 'kind = "independent"\n'),
    "`independent`, Poisson (DP-SGD)": ("flights-poisson", NU),
}
"""Rows of the table by epsilon that are exact, so that this tree computes them at once."""


def noise(name: str, mechanism: str, epsilon: str) -> float:
    """Root-mean-square noise in a prefix sum, as `fieldfare plan` prints it."""
    text = (PLANS / f"{name}.toml").read_text()
    assert text.count("epsilon = 1.0") == 1
    text = text.replace("epsilon = 1.0", f"epsilon = {epsilon}")
    cost = cost_of(Plan.from_toml(text.replace(NU, mechanism))).to_json()
    return float(cost["prefix_noise_rms"])


def row(page: str, start: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("start", ROWS)
def test_the_comparison_by_epsilon(start: str) -> None:
    header = row(AMPLIFICATION, "epsilon")
    for epsilon, shown in zip(header[1:], row(AMPLIFICATION, start)[1:], strict=True):
        assert float(shown) == pytest.approx(noise(*ROWS[start], epsilon), abs=0.0051), (start, epsilon)


def test_the_readme_has_the_two_commands() -> None:
    assert re.search(r"^make demo ", README, re.MULTILINE)
    assert re.search(r"^make test ", README, re.MULTILINE)


@pytest.mark.parametrize(("name", "shown"), [("flights-allocated", 11.41), ("flights-capped", 12.40)])
def test_secret_samplers_of_independent_noise(name: str, shown: float) -> None:
    assert f" {shown:.2f}" in AMPLIFICATION
    assert noise(name, "", "1.0") == pytest.approx(shown, abs=0.0051)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "shown"), [("0.5", 20.45), ("2.0", 7.10), ("4.0", 5.01), ("8.0", 3.66)])
def test_random_allocation_at_other_epsilons(epsilon: str, shown: float) -> None:
    assert row(AMPLIFICATION, "`independent`, random allocation")[1:] == ["20.45", "11.41", "7.10", "5.01", "3.66"]
    assert noise("flights-allocated", "", epsilon) == pytest.approx(shown, abs=0.0051)


@pytest.mark.slow
def test_the_figures_of_the_page_on_mechanisms() -> None:
    """All errors of its table but that of `dense`, which takes minutes; and the comparison in its text."""
    page = (ROOT / "docs/mechanisms.md").read_text()
    printed = CliRunner().invoke(assemble("mechanisms"), ["mechanisms", "--json"])
    for entry in json.loads(printed.stdout):
        if entry["mean_error"] is not None:
            (line,) = (line for line in page.splitlines() if line.startswith(f"| `{entry['kind']}` |"))
            assert float(line.strip("|").split("|")[-1]) == pytest.approx(entry["mean_error"], abs=0.0051), line
    text = " ".join(page.split())
    assert (
        "12.40 for `flights-poisson.toml` and 12.47 for `flights-cyclic.toml`, against 18.34 for `blt` and 17.11"
        in text
    )
    assert noise("flights", 'kind = "dense"\n', "1.0") == pytest.approx(17.11, abs=0.005)


@pytest.mark.parametrize(
    ("start", "name", "more"),
    [
        ("`tree`, sigma 7, all nodes (as published)", "gboard-tree", 'nodes = "all"\n'),
        ("`tree`, sigma 7", "gboard-tree", ""),
        ("`blt`, sigma 6.356", "gboard-blt", ""),
    ],
)
def test_the_gboard_rows(start: str, name: str, more: str) -> None:
    cost = cost_of(Plan.from_toml((PLANS / f"{name}.toml").read_text() + more)).to_json()
    noise_shown, rho, epsilon = (float(cell) for cell in row(MECHANISMS, start)[1:4])
    assert noise_shown == pytest.approx(cost["prefix_noise_rms"], abs=0.0005)
    assert rho == pytest.approx(cost["rho_zcdp"], abs=0.0005)
    assert epsilon == pytest.approx(cost["epsilon"], abs=0.0051)


def test_gboards_epsilons_in_the_readme_are_those_of_the_table() -> None:
    better, published = (row(MECHANISMS, start)[3] for start in ("`blt`, sigma 6.356", "`tree`, sigma 7"))
    assert f"**Epsilon {better} instead of {published}** for Gboard's published plan" in README


def test_what_an_epsilon_means() -> None:
    """Its factors and attackers are those of the statement; what five runs of 8 leave of 24 is the accountant's."""
    page = (ROOT / "docs/epsilon.md").read_text()
    for epsilon in (0.5, 1, 2, 4, 8, 24):
        words = loss_in_words(epsilon, 1e-5, gaussian_mu(epsilon, 1e-5))
        (factor, found) = re.findall(r"a factor of ([\d,.]+\d)\..* identifies at most ([\d.]+) %", words)[0]
        assert row(page, f"{epsilon:g}")[1:] == [factor, found]
    mu = gaussian_mu(8, 1e-5)
    used = [gaussian_epsilon(mu * math.sqrt(runs), 1e-5) for runs in range(1, 7)]
    assert (f"cost {used[1]:.2f} of the 24" in page, f"brings it to {used[4]:.2f}" in page) == (True, True)
    assert used[4] < 24 < used[5]
