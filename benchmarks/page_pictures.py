"""The pictures of the page in the documentation, made again by a real Chromium.

    python benchmarks/page_pictures.py [--only page-many ...]

Most show a ledger of made-up runs, which began week by week until now. Those of the tutorials do what these say, with
their data: `page-aircraft` one run of `deploy/plans/flights.toml` on real flights, half a minute of processor;
`page-writers` ten rounds of `examples/quickstart`; `page-federation` a SuperLink and two SuperNodes of Flower's on
their usual ports, some minutes. Look at what it made before it is kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fieldfare.accounting.foreign import Foreign
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/server/api")]
import ledger_data  # noqa: E402

from support.chromium import chromium, new_page  # noqa: E402

WEEK = 7 * 86400.0
STUDIES = [("pilot", 4.0, 0.0), ("second", 3.2, 0.021), ("third", 2.5, 0.034), ("fourth", 2.0, 0.04)]
"""Ended runs on `aircraft`: name, noise multiplier, and how much better than the first they did."""
SMALL = {"width": 390, "height": 844}
LARGE = {"width": 1280, "height": 900}


def priced(page: Any) -> None:
    """A What if at an epsilon that lies between two runs."""
    page.get_by_role("form", name="What if").get_by_label("ε", exact=True).fill("3")
    page.get_by_role("button", name="Price it").click()
    page.locator("#what-if .fits-answer").wait_for()


def nothing(page: Any) -> None:
    """As it opens."""


VIEWS: dict[str, tuple[str, str, dict[str, int], Callable[[Any], None]]] = {
    "page-many": ("", "light", LARGE, nothing),
    "page-phone": ("", "light", SMALL, nothing),
    "page-light": ("#run=live", "light", LARGE, nothing),
    "page-dark": ("#run=live", "dark", LARGE, nothing),
    "page-population-light": ("#population=aircraft", "light", LARGE, priced),
    "page-population-dark": ("#population=aircraft", "dark", LARGE, priced),
    "page-population-phone": ("#population=aircraft", "light", SMALL, nothing),
    "page-scores": ("#population=aircraft", "light", LARGE, nothing),
}
"""Picture -> address, colours, size, and what is done first."""
PARTS = {"page-scores": "section[aria-labelledby=scores-h]"}
"""Pictures of one part of the page."""


class Weeks:
    """A clock that is set: runs of the made-up ledger begin a week apart."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


def made_up(url: str) -> Ledger:
    """A ledger of made-up runs, the newest of which is under way."""
    clock = Weeks(time.time() - (len(STUDIES) + 1) * WEEK)
    ledger = Ledger.open(url, create=True, clock=clock, lease_seconds=86400.0)
    ledger.create_population("aircraft", 12.0, 1e-5, actor="officer")
    for number, name in enumerate(("clinics", "meters")):
        for place, city in enumerate(("aachen", "bergen", "cadiz", "delft", "evora", "fulda", "ghent", "hanko")):
            ledger.create_population(f"{city}-{name}", 4.0, 1e-6, actor="officer")
            mu = 0.1 + 0.75 * ((7 * place + 3 * number) % 16) / 16
            charge = {"what": "forecast", "why": "each month", "actor": "trainer"}
            ledger.reserve_charge(f"{city}-{name}", "k", Foreign(mu=mu), **charge)
    for name, sigma, better in STUDIES:
        ledger_data.whole(ledger, name, sigma=sigma, better=better)
        clock.now += WEEK
    ledger.raise_population("aircraft", epsilon=16.0, reason="one more study, decision 14", actor="officer")
    clock.now = time.time() - 600
    live = ledger_data.start(ledger, "live")
    for _ in range(9):
        clock.now += 60
        ledger_data.commit(live)
    return ledger


FIELDFARE = (sys.executable, "-c", "from fieldfare_server.cli import main; main()")
QUICKSTART = """
import fieldfare as ff
from quickstart.client_app import app as client_app
from quickstart.server_app import app as server_app
ff.LocalGrid(client_app, 100, {'num-server-rounds': 10, 'local-epochs': 5, 'lr': 0.1}).run_app(server_app)
"""
SUPERLINK = "127.0.0.1:8000"


def environment(home: Path) -> dict[str, str]:
    """The environment of a tutorial's commands: a home of its own, and Flower calls nobody."""
    quiet = dict.fromkeys(("FLWR_DISABLE_UPDATE_CHECK", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"), "1")
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    own = {"FIELDFARE_HOME": str(home), "FLWR_HOME": str(home / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "PATH": beside}
    return os.environ | quiet | own


def does(env: dict[str, str], *words: str, where: Path = ROOT) -> None:
    """Do one command of a tutorial."""
    subprocess.run(words, env=env, cwd=where, check=True, stdout=subprocess.DEVNULL)


def officer(env: dict[str, str]) -> None:
    """The officer's tutorial: its first run."""
    budget = ("--epsilon", "1.2", "--delta", "1e-5", "--unit", "aircraft", "--simulated")
    does(env, *FIELDFARE, "population", "create", "aircraft", *budget)
    does(env, *FIELDFARE, "simulate", str(ROOT / "deploy/plans/flights.toml"))


def flower(env: dict[str, str]) -> None:
    """The Flower user's tutorial, in one process."""
    does(env, sys.executable, "-c", QUICKSTART, where=ROOT / "examples/quickstart")


def operator(env: dict[str, str]) -> None:
    """The operator's tutorial: three programs of Flower's, a population, a run."""
    node = ("flower-supernode", "--insecure", "--superlink", SUPERLINK)
    budget = ("--epsilon", "16", "--delta", "1e-5", "--simulated")
    config = [f'partition-id={i} num-partitions=2 task="digits"' for i in range(2)]
    started = [("flower-superlink", "--insecure")]
    started += [(*node, "--port", str(9094 + i), "--node-config", one) for i, one in enumerate(config)]
    running = []
    try:
        for words in started:
            running.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        does(env, *FIELDFARE, "population", "create", "containers", *budget)
        does(env, *FIELDFARE, "run", "deploy/plans/trusting.toml", "--superlink", SUPERLINK, "--insecure")
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(60)


TUTORIALS: dict[str, tuple[Callable[[dict[str, str]], None], str]] = {
    "page-aircraft": (officer, "#population=aircraft"),
    "page-writers": (flower, "#population=writers"),
    "page-federation": (operator, "#run="),
}
"""Picture -> what the tutorial does, and the address of what it shows then: `#run=` is its one run's."""


def pictures(url: str, only: dict[str, str], browser: Any) -> None:
    """Take each picture at its address of the page over the ledger at `url`."""
    with serve_in_thread(config(create_app(url, Settings()), port=0)) as address:
        for name, view in only.items():
            _, scheme, size, do = VIEWS.get(name, ("", "light", LARGE, nothing))
            with new_page(browser, viewport=size, color_scheme=scheme) as page:
                page.goto(f"{address}/{view}")
                page.locator("main[aria-busy=false]").wait_for()
                do(page)
                page.wait_for_timeout(400)
                shown = page.locator(PARTS[name]) if name in PARTS else page
                shown.screenshot(path=str(ROOT / f"docs/{name}.png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*VIEWS, *TUTORIALS], help="pictures")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        if drawn := {name: VIEWS[name][0] for name in only if name in VIEWS}:
            with made_up(url := f"sqlite:///{folder}/ledger.sqlite3"):
                pictures(url, drawn, browser)
        for name in only:
            if name not in TUTORIALS:
                continue
            do, view = TUTORIALS[name]
            home = Path(folder) / name
            do(environment(home))
            url = f"sqlite:///{home}/ledger.sqlite3"
            if view == "#run=":
                with Ledger.open(url) as ledger:
                    view += ledger.runs(limit=1).items[0].id
            pictures(url, {name: view}, browser)


if __name__ == "__main__":
    main()
