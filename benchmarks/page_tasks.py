"""Ten tasks on the page in a real Chromium, five of a privacy officer and five of an operator, and the steps of each.

    python benchmarks/page_tasks.py [--populations 300] [--out benchmarks/results]

Each task begins at the page's own address, in a fresh browser context, and ends when the page shows its answer; what it
asks of a run is looked up in the ledger. A step is one click, or one field that is filled. What a person reads on the
way is no step.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fieldfare.accounting.foreign import Foreign
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "server" / "api")]
import ledger_data  # noqa: E402

from support.chromium import chromium, new_page, sign_in  # noqa: E402

NEAR = {"near-a": 0.37, "near-b": 0.36, "near-c": 0.35}
"""Populations near their limits, and the mu of what is charged to each."""


class Person:
    """Somebody at the page, whose steps are counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.steps = page, 0

    def click(self, what: Any) -> None:
        self.steps += 1
        what.click()

    def fill(self, what: Any, text: str) -> None:
        self.steps += 1
        what.fill(text)

    def reads(self, where: str, text: str) -> None:
        self.page.locator(where, has_text=text).first.wait_for()

    def goes_to(self, name: str) -> None:
        """From all budgets to one of them, by its name."""
        self.fill(self.page.get_by_label("Find a population"), name)
        self.click(self.page.locator("#budgets").get_by_role("link", name=name))

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)


def nearest(one: Person, ledger: Ledger) -> None:
    rows = one.page.locator("#budgets tbody tr")
    rows.nth(2).wait_for()
    names = [rows.nth(i).locator("a").first.inner_text() for i in range(3)]
    wanted = sorted(NEAR, key=lambda name: -ledger.population(name).committed_epsilon)
    assert names == wanted, names


def more_runs(one: Person, ledger: Ledger) -> None:
    one.goes_to("aircraft")
    one.reads("#fits", "more runs like the last fit.")
    one.reads("#fits", "500 of 500 users have enough left")
    one.reads("#fits", "the budget lasts until")


def this_week(one: Person, ledger: Ledger) -> None:
    one.goes_to("aircraft")
    one.reads("#fits", "of 5 began")
    one.reads("#fits", "It renews on")


def another_epsilon(one: Person, ledger: Ledger) -> None:
    one.goes_to("aircraft")
    one.click(one.button("Compare budgets"))
    one.page.locator("#what-if [data-key=others] tbody tr").nth(4).wait_for()


def who_and_why(one: Person, ledger: Ledger) -> None:
    one.goes_to("aircraft")
    one.reads("#changes", "two studies a week, decision 14")


def how_far(one: Person, ledger: Ledger) -> None:
    one.click(one.page.locator("#runs").get_by_role("link", name="live"))
    one.reads(".banner-state", "Running, round 6 of 16")


def pause(one: Person, ledger: Ledger) -> None:
    one.click(one.page.locator("#runs").get_by_role("link", name="live"))
    one.click(one.button("Pause"))
    one.click(one.button("Pause the run"))
    one.reads(".banner-state", "Paus")
    assert ledger.run("live").request == "pause"


def resume(one: Person, ledger: Ledger) -> None:
    one.click(one.page.locator("#runs").get_by_role("link", name="live"))
    one.click(one.button("Resume"))
    one.click(one.button("Resume the run"))
    one.reads(".banner-state", "Running")
    assert ledger.run("live").request is None


def compare(one: Person, ledger: Ledger) -> None:
    for run in ("live", "earlier"):
        one.click(one.page.get_by_label(f"Compare {run}"))
    one.page.locator("#compare svg[role=img]").first.wait_for()


def whole(one: Person, ledger: Ledger) -> None:
    one.click(one.button("Verify"))
    one.reads("#ledger", "Chain whole")


TASKS: dict[str, list[tuple[str, Callable[[Person, Ledger], None]]]] = {
    "officer": [
        ("which three budgets are nearest to their limits?", nearest),
        ("how many more runs, for whom, until when?", more_runs),
        ("what may still begin this week, and when does it renew?", this_week),
        ("what would other budgets mean: noise, odds, people found?", another_epsilon),
        ("who changed this budget, and why?", who_and_why),
    ],
    "operator": [
        ("how far is the run?", how_far),
        ("pause it", pause),
        ("let it go on", resume),
        ("compare two runs, by score and epsilon", compare),
        ("is the ledger whole?", whole),
    ],
}


def filled(url: str, populations: int) -> Ledger:
    """A ledger with two runs, a window, three populations near their limits and many others."""
    ledger = Ledger.open(url, create=True, lease_seconds=86400.0)  # the run is under way, however slow the machine is
    ledger.create_population("aircraft", 8.0, 1e-5, actor="officer")
    done = ledger_data.start(ledger, "earlier")
    for _ in range(6):
        ledger_data.commit(done)
    done.finish("stopped", "on request")
    live = ledger_data.start(ledger, "live")
    for _ in range(5):
        ledger_data.commit(live)
    ledger.set_window("aircraft", epsilon=5.0, every="week", reason="two studies a week, decision 14", actor="officer")
    for name, mu in NEAR.items():
        ledger.create_population(name, 2.0, 1e-6, actor="officer")
        ledger.reserve_charge(name, "k", Foreign(mu=mu), what="x", why="y", actor="trainer")
    for number in range(populations - len(NEAR) - 1):
        ledger.create_population(f"study-{number:03}", 2.0, 1e-6, actor="officer")
    return ledger


def steps(populations: int) -> list[tuple[str, str, int]]:
    """(who, task, steps) of each task, done."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/ledger.sqlite3"
        with filled(url, populations) as ledger, chromium() as browser:
            secret, _ = ledger.create_token("person", ("read", "admin"), actor="benchmark")
            with serve_in_thread(config(create_app(url, Settings()), port=0)) as address:
                for who, tasks in TASKS.items():
                    for task, do in tasks:
                        with new_page(browser) as page:
                            page.goto(address)
                            page.locator("#budgets a").first.wait_for()
                            if do in (pause, resume):  # signed in once a tab, as a person is
                                sign_in(page, secret)
                                page.get_by_role("dialog").wait_for(state="detached")
                            one = Person(page)
                            do(one, ledger)
                            found.append((who, task, one.steps))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--populations", type=int, default=300)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = steps(arguments.populations)
    rows = "\n".join(f"| {who} | {task} | {number} |" for who, task, number in found)
    text = (
        "# Ten tasks on the page\n\n`python benchmarks/page_tasks.py --out benchmarks/results`\n\n"
        f"{arguments.populations} populations, in Chromium. Each task begins at the page's address and ends when the "
        "page shows its answer;\nwhat it asks of a run is looked up in the ledger. A step is a click, or a field that "
        "is filled; signing in,\nonce a tab, is not counted.\n\n| who | task | steps |\n|---|---|---|\n" + rows + "\n"
    )
    print(text)
    if arguments.out is not None:
        (arguments.out / "page_tasks.md").write_text(text)


if __name__ == "__main__":
    main()
