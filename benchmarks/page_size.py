"""The page over ledgers of several sizes, in a real Chromium: requests, bytes, first paint, all figures, axe.

    python benchmarks/page_size.py [--populations 1 20 300] [--rounds 0 2000000] [--out benchmarks/results]

Each ledger is opened at the page's own address in a fresh context, three times; medians. Bytes are of bodies, as the
service sends them. Rounds are those of ended runs of 1 000 rounds each, copied (`large_ledger`). `FIELDFARE_AXE` names
an axe.min.js (`npm pack axe-core`); without it axe is not asked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import large_ledger
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.chromium import chromium, new_page

OF_A_RUN = 1000
SEEN = """() => {
  const all = [performance.getEntriesByType('navigation')[0], ...performance.getEntriesByType('resource')];
  return {requests: all.length, kB: all.reduce((sum, one) => sum + one.encodedBodySize, 0) / 1000,
    paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN, figures: performance.now()};
}"""
AXE = "axe.run().then((found) => found.violations.length)"


def opened(browser: Any, address: str) -> dict[str, float]:
    """Open the overview once, and tell what it took."""
    with new_page(browser) as page:
        page.set_default_timeout(240_000)
        page.goto(address)
        page.locator("main[aria-busy=false]").wait_for()
        seen: dict[str, float] = page.evaluate(SEEN)
    return seen


def violations(browser: Any, address: str) -> str:
    """Ask axe, where it is at hand."""
    axe = os.environ.get("FIELDFARE_AXE")
    if not axe:
        return "not asked"
    with new_page(browser, bypass_csp=True) as page:
        page.goto(address)
        page.locator("main[aria-busy=false]").wait_for()
        page.add_script_tag(path=axe)
        return str(page.evaluate(AXE))


def row(browser: Any, populations: int, rounds: int) -> str:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="ffbench-") as folder:
        url = f"sqlite:///{folder}/ledger.sqlite3"
        large_ledger.fill(url, max(1, rounds // OF_A_RUN), OF_A_RUN if rounds else 4)
        with Ledger.open(url) as ledger:
            for number in range(populations - 1):
                ledger.create_population(f"study-{number:03}", 2.0, 1e-6, actor="benchmark")
        with serve_in_thread(config(create_app(url, Settings()), port=0)) as address:
            began = time.perf_counter()
            first = opened(browser, address)
            cold = time.perf_counter() - began
            taken = [first, *(opened(browser, address) for _ in range(3))][1:]
            found = violations(browser, address)
    middle = {name: statistics.median(one[name] for one in taken) for name in first}
    parts = [f"{populations:,}", f"{max(rounds, 4):,}", f"{middle['requests']:.0f}", f"{middle['kB']:.0f}"]
    parts += [f"{middle['paint']:.0f}", f"{middle['figures']:.0f}", f"{1000 * cold:.0f}", found]
    return "| " + " | ".join(parts) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, nargs="*", default=[1, 20, 300])
    parser.add_argument("--rounds", type=int, nargs="*", default=[0, 2_000_000], help="0: four")
    parser.add_argument("--out", type=Path, help="folder for page_size.md")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    sizes = [(populations, asked.rounds[0]) for populations in asked.populations]
    sizes += [(asked.populations[0], rounds) for rounds in asked.rounds[1:]]
    with chromium() as browser:
        rows = [row(browser, *size) for size in sizes]
    text = (
        f"# The page by the size of its ledger\n\n`{' '.join(['python benchmarks/page_size.py', *sys.argv[1:]])}`\n\n"
        f"{time.strftime('%Y-%m-%d')}; Chromium and the service on {os.cpu_count()} cores, load {load:.0f} to "
        f"{os.getloadavg()[0]:.0f}; overview, medians of 3 after a first\nopening (cold); ms from the address to the "
        "first paint and to all figures.\n\n"
        "| populations | rounds | requests | kB | first paint | all figures | cold | axe violations |\n"
        "|---|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    print(text)
    if asked.out is not None:
        (asked.out / "page_size.md").write_text(text)


if __name__ == "__main__":
    main()
