"""How long the page keeps a person waiting with 500 runs and 50 000 rounds, in a real Chromium.

    python benchmarks/page.py [--runs 500] [--rounds 100] [--repeats 5] [--out benchmarks/results]

First paint and first figures after the address is opened; each interaction from the key or click to the next paint
(the browser's Event Timing, in steps of 8 ms); the longest task of the main thread while commits come in. A page of one
button from the same server takes turns with it in the same browser and shows what the machine itself costs. Wanted:
first paint within 1 s, interactions within 100 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

import large_ledger
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger

sys.path.append(str(Path(__file__).parents[1] / "tests" / "server" / "api"))
from support.chromium import chromium

WATCH = """
window.seen = {tasks: [], events: []};
new PerformanceObserver((l) => l.getEntries().forEach((e) => seen.tasks.push(e.duration)))
  .observe({type: 'longtask', buffered: true});
new PerformanceObserver((l) => l.getEntries().forEach((e) => seen.events.push([e.name, e.duration])))
  .observe({type: 'event', durationThreshold: 16, buffered: true});
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
BARE = "<!doctype html><title>One button</title><button onclick=\"this.textContent += '.'\">Press</button>"
LIMITS = {"first_paint_ms": 1000, "interaction_ms": 100}
WAIT = 60_000


def add_bare(app: FastAPI) -> None:
    @app.get("/bare")
    def bare() -> HTMLResponse:
        # The real page's policy forbids the inline script that keeps this page short.
        return HTMLResponse(BARE, headers={"Content-Security-Policy": "script-src 'unsafe-inline'"})


def opened(browser: Any, url: str) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(WAIT)
    page.add_init_script(WATCH)
    page.goto(url)
    return page


def interaction(page: Any, act: Any, shown: Any) -> float:
    """Milliseconds from the input to the next paint, the longest of its events; at least the 16 that are recorded."""
    page.wait_for_timeout(300)
    page.evaluate("seen.events.length = 0")
    act()
    shown()
    page.wait_for_timeout(300)
    return max([16.0, *(duration for _, duration in page.evaluate("seen.events"))])


def bare(browser: Any, url: str) -> dict[str, float]:
    page = opened(browser, f"{url}/bare")
    button = page.get_by_role("button")
    page.wait_for_function(f"{PAINT} !== null")
    ms = {"first_paint": page.evaluate(PAINT), "press": interaction(page, button.click, lambda: None)}
    page.context.close()
    return ms


def budget(browser: Any, url: str, run: Any) -> dict[str, float]:
    page = opened(browser, f"{url}/")
    page.locator("#runs tbody tr").first.wait_for()
    page.locator("main[aria-busy=false]").wait_for()
    ms = {"first_paint": page.evaluate(PAINT), "all_figures": page.evaluate("performance.now()")}
    ms["load_longest_task"] = max([0.0, *page.evaluate("seen.tasks")])
    rows, older = page.locator("#runs tbody tr"), page.get_by_role("button", name="Older runs")
    first = rows.first.inner_text()

    def turned() -> None:
        page.wait_for_function("(text) => document.querySelector('#runs tbody tr').innerText !== text", arg=first)

    older.scroll_into_view_if_needed()
    ms["turn_page"] = interaction(page, older.click, turned)
    box = rows.nth(3).get_by_role("checkbox")
    ms["compare"] = interaction(page, box.check, lambda: page.locator("#compare svg").first.wait_for())
    link = rows.nth(5).get_by_role("link").first
    name = link.inner_text()
    link.focus()
    there = page.locator("h1", has_text=f"Run {name}")
    ms["open_run"] = interaction(page, lambda: page.keyboard.press("Enter"), there.wait_for)
    page.locator("#participation .bars").wait_for()
    page.locator("#curve svg").focus()
    ms["read_chart"] = interaction(page, lambda: page.keyboard.press("ArrowLeft"), lambda: None)
    ms["theme"] = interaction(page, page.get_by_role("button", name="Theme").click, lambda: None)
    page.evaluate("history.replaceState(null, '', '#'); dispatchEvent(new HashChangeEvent('hashchange'))")
    page.locator(".banner-state", has_text="Running").wait_for()
    page.evaluate("seen.tasks.length = 0")
    for _ in range(3):
        large_ledger.commit(run)
        text = f"round {run.next_round + 1} of"
        page.locator(".banner-state", has_text=text).wait_for()
        page.wait_for_timeout(200)
    ms["update_longest_task"] = max([0.0, *page.evaluate("seen.tasks")])
    page.context.close()
    return ms


def measure(runs: int, rounds: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ffbench-") as folder:
        address = f"sqlite:///{folder}/ledger.sqlite3"
        large_ledger.fill(address, runs, rounds)
        app = create_app(address, Settings(requests_per_minute=10**9, burst=10**9))
        add_bare(app)
        ours: list[dict[str, float]] = []
        theirs: list[dict[str, float]] = []
        with serve_in_thread(config(app, port=0)) as url, Ledger.open(address) as ledger, chromium() as browser:
            run = large_ledger.start(ledger, "live", 1000)
            for _ in range(5):
                large_ledger.commit(run)
            for _ in range(repeats):
                theirs.append(bare(browser, url))
                ours.append(budget(browser, url, run))

    def medians(taken: list[dict[str, float]]) -> dict[str, float]:
        return {name: round(statistics.median(one[name] for one in taken), 1) for name in taken[0]}

    return {"page": medians(ours), "one_button": medians(theirs)}


NAMES = {
    "first_paint": ("first paint", "1000"),
    "all_figures": ("every panel drawn", ""),
    "load_longest_task": ("longest task while loading", ""),
    "turn_page": ("turn a page of runs", "100"),
    "compare": ("choose a run to compare", "100"),
    "open_run": ("open another run", "100"),
    "read_chart": ("read a chart by the keyboard", "100"),
    "theme": ("change the theme", "100"),
    "update_longest_task": ("longest task while three commits come in", "100"),
}


def table(result: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    page, button = result["page"], result["one_button"]
    lines = [f"| {text} | {page[key]} | {wanted} |" for key, (text, wanted) in NAMES.items()]
    return f"""# The page with many runs

`{result["command"]}`

{result["runs"]} runs, {result["rounds"]:,} rounds; Chromium, {result["machine"]}; medians of {result["repeats"]}, in ms

| what | page | wanted |
|---|---|---|
{chr(10).join(lines)}

A page of one button, in turns with it: first paint {button["first_paint"]}, press {button["press"]}. Interactions are
counted from the input to the next paint by the browser itself, in steps of 8 ms and from 16 up; tasks from 50 up.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=100, help="of each run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for page.json and page.md")
    asked = parser.parse_args()
    began = time.perf_counter()
    result = {
        "command": " ".join(["python", "benchmarks/page.py", *sys.argv[1:]]),
        "runs": asked.runs,
        "rounds": asked.runs * asked.rounds,
        "repeats": asked.repeats,
        "limits": LIMITS,
        **measure(asked.runs, asked.rounds, asked.repeats),
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
        "seconds": round(time.perf_counter() - began),
    }
    print(json.dumps(result, indent=2))
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "page.json").write_text(json.dumps(result, indent=2) + "\n")
        (asked.out / "page.md").write_text(table(result))


if __name__ == "__main__":
    main()
