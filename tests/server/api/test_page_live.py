"""The page beside a real training: a session in this process, `fieldfare serve` in another, a real Chromium."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_pausing import PATIENCE

from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.chromium import chromium, headline, new_page, sign_in
from support.federation import LyingGrid, home, plan
from support.waiting import until


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Service:
    """`fieldfare serve` as a process, which can be killed."""

    def __init__(self, root: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-c", "from fieldfare_server.cli import main; main()", "serve"]
        self._command += ["--home", str(root), "--port", str(self.port)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

        def answers() -> bool:
            try:
                return httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200
            except httpx.TransportError:
                return False

        until(answers)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(20)
            self._process = None


class Training:
    """A real session in a thread; each round after it is reported waits for `go`."""

    def __init__(self, where: Any) -> None:
        self.told: list[RoundReport] = []
        self.failures: list[BaseException] = []
        self._gate = threading.Semaphore(0)
        self._where = where
        self._thread = threading.Thread(target=self._train, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def go(self) -> None:
        self._gate.release()

    def end(self) -> None:
        self._gate.release(100)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert not self.failures

    def _train(self) -> None:
        try:
            with Session.begin(self._where, plan(), True, run_id="live") as session:
                FieldfareStrategy(session, self._on_round).start(LyingGrid(3))
        except BaseException as error:
            self.failures.append(error)

    def _on_round(self, report: RoundReport) -> None:
        self.told.append(report)
        assert self._gate.acquire(timeout=PATIENCE)


def test_a_training_is_seen_lost_found_again_and_stopped(browser: Any, tmp_path: Path) -> None:
    where = home(tmp_path)
    with Ledger.open(where.ledger) as ledger:
        secret, _ = ledger.create_token("officer", ("read", "admin"), actor="test")
    service, training = Service(where.root), Training(where)
    with new_page(browser) as page:
        page.set_default_timeout(1e3 * PATIENCE)
        try:
            service.start()
            page.goto(service.url)
            headline(page, "No run yet")
            page.locator("#connection", has_text="Live").wait_for()
            page.evaluate("window.neverReloaded = true")

            training.start()
            headline(page, "Running, round 2 of 6")
            page.locator("#ledger", has_text="round.commit").wait_for()
            training.go()
            headline(page, "Running, round 3 of 6")

            service.kill()
            page.locator("#connection", has_text="Reconnecting").wait_for()
            page.locator("#notice", has_text="Connection lost").wait_for()
            training.go()  # the ledger is not the service's: training goes on without it
            until(lambda: len(training.told) == 3)
            headline(page, "Running, round 3 of 6")
            service.start()
            headline(page, "Running, round 4 of 6")
            page.locator("#connection", has_text="Live").wait_for()
            page.locator("#notice").wait_for(state="hidden")

            assert page.get_by_role("button", name="Stop…").count() == 0
            kept: list[str | None] = []

            def asked(route: Any) -> None:
                kept.append(page.evaluate("sessionStorage.getItem('fieldfare.token')"))
                route.continue_()

            page.route("**/v1/me", asked)
            sign_in(page, "ff_wrong")
            page.get_by_role("alert").filter(has_text="unknown, expired or revoked").wait_for()
            assert set(kept) == {None}  # no load went with a token that may be wrong
            page.unroute("**/v1/me")
            page.get_by_label("Token").fill(secret)
            page.keyboard.press("Enter")
            page.get_by_role("button", name="Stop…").click()
            page.get_by_role("button", name="Stop the run").click()
            headline(page, "stops at the next round boundary")
            training.go()
            headline(page, "Stopped after 3 of 6 rounds")
            page.locator("#budgets", has_text="no run active").wait_for()
            assert page.evaluate("window.neverReloaded") is True
            training.end()
        finally:
            service.kill()
    with Ledger.open(where.ledger) as ledger:
        run = ledger.run("live")
        assert (run.state, run.next_round, run.message) == ("stopped", 3, "stopped on request")
        uses = [row for row in ledger.journal_rows(limit=1000).items if row.action == "token.use"]
        assert [row.actor for row in uses] == ["token officer"]
