"""The pictures of the page in the documentation, made again by a real Chromium.

    python benchmarks/page_pictures.py [--only page-many ...]

All but `page-aircraft` show a ledger of made-up runs, which began week by week until now. `page-aircraft` is that of
the tutorial for officers: one run of `deploy/plans/flights.toml` on real flights, half a minute of processor. Look at
what it made before it is kept.
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


def tutorial(home: Path) -> str:
    """The ledger of the officer's tutorial after its first run."""
    env = os.environ | {"FIELDFARE_HOME": str(home)}
    budget = ["--epsilon", "1.2", "--delta", "1e-5", "--unit", "aircraft", "--simulated"]
    program = [sys.executable, "-c", "from fieldfare_server.cli import main; main()"]
    for words in (["population", "create", "aircraft", *budget], ["simulate", str(ROOT / "deploy/plans/flights.toml")]):
        subprocess.run([*program, *words], env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return f"sqlite:///{home}/ledger.sqlite3"


def pictures(url: str, only: list[str], browser: Any) -> None:
    with serve_in_thread(config(create_app(url, Settings()), port=0)) as address:
        for name in only:
            view, scheme, size, do = VIEWS.get(name, ("#population=aircraft", "light", LARGE, nothing))
            with new_page(browser, viewport=size, color_scheme=scheme) as page:
                page.goto(f"{address}/{view}")
                page.locator("main[aria-busy=false]").wait_for()
                do(page)
                page.wait_for_timeout(400)
                shown = page.locator(PARTS[name]) if name in PARTS else page
                shown.screenshot(path=str(ROOT / f"docs/{name}.png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*VIEWS, "page-aircraft"], help="pictures")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        url = f"sqlite:///{folder}/ledger.sqlite3"
        with made_up(url):
            pictures(url, [name for name in only if name in VIEWS], browser)
        if "page-aircraft" in only:
            pictures(tutorial(Path(folder) / "home"), ["page-aircraft"], browser)


if __name__ == "__main__":
    main()
