"""What the page says of masked runs under a blinder's own noise, in a real Chromium: the figure that plan, ledger,
statement and certificate have, and none where the blinder was this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fieldfare as ff
from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare.text import up
from fieldfare_client.blinder import Blinder
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from server.run import test_distant_blinder
from support.chromium import chromium, headline, new_page
from support.federation import home, plan


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


def shown(browser: Any, state: StateDirectory, run_id: str, picture: Path) -> dict[str, str]:
    """The lines of the run's guarantee on its page; the first, under "", is its statement."""
    with (
        serve_in_thread(config(create_app(state.ledger, Settings(), state.root), port=0)) as url,
        new_page(browser) as page,
    ):
        page.goto(f"{url}/#run={run_id}")
        headline(page, "Done")
        guarantee = page.locator("#guarantee")
        guarantee.get_by_text("The server sees", exact=True).wait_for()
        names, values = guarantee.locator("dt").all_inner_texts(), guarantee.locator("dd").all_inner_texts()
        guarantee.screenshot(path=picture)
        return {"": guarantee.inner_text(), **dict(zip(names, values, strict=True))}


def told(state: StateDirectory, run_id: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """What ledger, statement and certificate say of a run."""
    with Ledger.open(state.ledger) as ledger, ledger.snapshot() as snapshot:
        made = json.loads(certificate(snapshot, run_id, state))
        return snapshot.run(run_id), privacy_statement(snapshot, run_id, state.root).data, made


def test_epsilon_against_the_server_is_one_figure_wherever_it_is_read(browser: Any, tmp_path: Path) -> None:
    state, blinder = home(tmp_path), Blinder(tmp_path / "blinder")
    a_plan = test_distant_blinder.masked(blinder, 0.5, run__noise_seed=None)
    with test_distant_blinder.begin(state, a_plan, blinder) as session:
        priced = dict(session.cost.describe())["epsilon against the server"]
        FieldfareStrategy(session).start(test_distant_blinder.Federation(tmp_path, blinder))
    run, statement, made = told(state, "run")
    epsilon = run.against_server.epsilon(run.delta)
    assert statement["epsilon_server"] == epsilon
    assert priced.startswith(f"{epsilon:.6g}, ")
    assert epsilon <= made["epsilon"]["server"] <= epsilon * (1 + 1e-6)
    read = shown(browser, state, "run", tmp_path / "party.png")
    assert read["Against the server"].startswith(f"({up(epsilon):g}, ")
    assert f"Against the server alone this whole run is ({up(epsilon):g}, " in read[""]
    assert f"({up(run.held[1]):g}, " in read[""]  # against everybody else


def test_a_rehearsal_has_no_epsilon_against_the_server_anywhere(browser: Any, tmp_path: Path) -> None:
    """The blinder runs in this process, and so hides nothing from it."""
    table = {"kind": "masked", "least_nodes": 2, "blinder_noise": 0.5}
    a_plan: Plan = plan(aggregation=table, run__noise_seed=None, run__rounds=4)
    assert dict(cost_of(a_plan).describe())["epsilon against the server"].startswith("none")
    (ran,) = ff.simulate(a_plan, budget=(50.0, 1e-5), ledger=tmp_path / "home", nodes=3, progress=False)
    state = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}")
    run, statement, made = told(state, ran.id)
    assert run.against_server is None
    assert "epsilon_server" not in statement
    assert "server" not in made["epsilon"]
    read = shown(browser, state, ran.id, tmp_path / "rehearsal.png")
    assert "Against the server" not in read
    assert "gainst the server alone" not in read[""]
