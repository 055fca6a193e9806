"""Alerts at 80 and 100 % of a budget: each once, also over restarts; a receiver that is away delays nothing else."""

from __future__ import annotations

import json
import logging
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput
from fieldfare_server.api.alerts import Alerts, Hook, Mail
from fieldfare_server.api.answers import Answers
from fieldfare_server.ledger import Ledger
from support.ledgers import commit, start
from support.refusals import coded


class Receiver:
    """A web hook that keeps what it is told, and refuses while `broken`."""

    def __init__(self) -> None:
        told: list[dict[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not owner.broken:
                    told.append(body)
                self.send_response(500 if owner.broken else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.told, self.broken = told, False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?secret=s3cret"


class Relay:
    """As much of an SMTP server as a relay on this machine needs."""

    def __init__(self) -> None:
        mails: list[str] = []

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 here\r\n")
                while line := self.rfile.readline():
                    verb = line[:4].upper()
                    if verb == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = []
                        while (one := self.rfile.readline()) != b".\r\n":
                            lines.append(one.decode())
                        mails.append("".join(lines))
                    self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")

        self.mails = mails
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"smtp://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as opened:
        opened.create_population("people", 2.0, 1e-6, actor="officer")
        opened.create_population("others", 9.0, 1e-6, actor="officer")
        yield opened


@pytest.fixture
def hook() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def charge(ledger: Ledger, key: str, mu: float) -> None:
    ledger.reserve_charge("people", key, Foreign(mu=mu), what="x", why="y", actor="t")


def share(ledger: Ledger) -> float:
    return Answers(ledger).population("people").committed_share


def test_each_threshold_is_told_once_also_after_a_restart(ledger: Ledger, hook: Receiver, tmp_path: Path) -> None:
    relay = Relay()
    book = tmp_path / "new" / "alerts.json"

    def look() -> None:
        channels = (Hook(hook.url), Mail(relay.address, ["ann@example.org", "bob@example.org"]))
        Alerts(Answers(ledger), book, channels).look()  # a new one each time, as after a restart

    charge(ledger, "a", 0.2)
    assert share(ledger) < 0.8
    look()
    assert hook.told == []
    charge(ledger, "b", 0.32)
    assert 0.8 <= share(ledger) < 1
    look()
    look()
    (first,) = hook.told
    assert (first["population"], first["percent"], first["epsilon"], first["delta"]) == ("people", 80, 2.0, 1e-6)
    assert first["committed_epsilon"] == pytest.approx(2.0 * share(ledger))
    ledger.reserve_charge(
        "people", "rest", Foreign(mu=ledger.population("people").remaining_mu), what="x", why="y", actor="t"
    )
    look()
    look()
    assert [each["percent"] for each in hook.told] == [80, 100]
    ledger.raise_population("people", epsilon=2.2, reason="more", actor="officer")
    look()
    look()
    assert [(each["percent"], each["epsilon"]) for each in hook.told[2:]] == [(80, 2.2)]
    assert len({each["id"] for each in hook.told}) == 3
    assert len(relay.mails) == 3
    assert "To: ann@example.org, bob@example.org" in relay.mails[0]
    assert "\nDate: " in relay.mails[0], "RFC 5322 requires it"
    assert "The budget of population people is 80 % committed, or more" in " ".join(relay.mails[0].split())
    relay.server.shutdown()
    relay.server.server_close()


def test_a_receiver_that_is_away_is_told_later_and_holds_up_nobody(
    ledger: Ledger, hook: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book, relay = tmp_path / "alerts.json", Relay()
    caplog.set_level(logging.DEBUG)
    charge(ledger, "a", 0.38)
    hook.broken = True
    channels = (Hook(hook.url), Mail(relay.address, ["ann@example.org"]))
    with Alerts(Answers(ledger), book, channels).watching(0.02):
        charge(ledger, "b", 0.01)  # no charge waits for a receiver
        for _ in range(500):
            if len(relay.mails) == 1 and "was not sent by hook (HTTPStatusError)" in caplog.text:
                break
            threading.Event().wait(0.02)
        hook.broken = False
        for _ in range(500):
            if hook.told:
                break
            threading.Event().wait(0.02)
        threading.Event().wait(0.2)
    assert (len(hook.told), len(relay.mails)) == (1, 1)
    assert "s3cret" not in "".join(each.getMessage() for each in caplog.records)
    relay.server.shutdown()
    relay.server.server_close()


def test_what_a_run_holds_is_told_as_held_and_again_once_it_is_spent(
    ledger: Ledger, hook: Receiver, tmp_path: Path
) -> None:
    """It was told as exhausted for good, after which nobody heard of it when it was."""

    def look() -> list[bool]:
        Alerts(Answers(ledger), tmp_path / "alerts.json", (Hook(hook.url),)).look()
        return [each["held"] for each in hook.told]

    run = start(ledger, ledger.population("people").remaining_mu)
    assert look() == [True]
    assert "exhausted: no useful run fits until runs under way end (" in hook.told[0]["text"]
    commit(run, [], ledger.population("people").remaining_mu)
    run.finish("stopped", "enough")
    assert look() == [True], "what it left of its reservation is back"
    charge(ledger, "rest", ledger.population("people").remaining_mu)
    assert look() == [True, False]
    assert hook.told[1]["text"].partition(" (")[0].endswith("is exhausted: no useful run fits")


def test_a_closed_population_with_room_is_told_to_nobody(ledger: Ledger, hook: Receiver, tmp_path: Path) -> None:
    """It was told as exhausted, with all of its limit committed."""
    ledger.close_population("people", reason="over", actor="officer")
    Alerts(Answers(ledger), tmp_path / "alerts.json", (Hook(hook.url),)).look()
    assert hook.told == []


def test_a_file_that_cannot_be_used_sends_nothing(ledger: Ledger, hook: Receiver, tmp_path: Path) -> None:
    """Better none than one at every look."""
    charge(ledger, "a", 0.38)
    (book := tmp_path / "alerts.json").write_text("{")
    Alerts(Answers(ledger), book, (Hook(hook.url),)).look()
    assert hook.told == []


def test_no_fault_of_a_look_is_the_last_look(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A budget beyond 64 bits raised OverflowError, and nobody was told of any budget again."""
    seen = threading.Semaphore(0)

    class Odd:
        def populations(self, cursor: str | None, limit: int) -> None:
            seen.release()
            raise OverflowError

    with Alerts(Odd(), tmp_path / "alerts.json", ()).watching(0.01):  # type: ignore[arg-type]
        assert all(seen.acquire(timeout=20) for _ in range(3))
    assert "the ledger cannot be read (OverflowError)" in caplog.text


@pytest.mark.parametrize("url", ["", "http://example.org/x", "ftp://127.0.0.1", "https://", "http://[::1"])
def test_a_hook_is_https_or_here(url: str) -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "the web hook")):
        Hook(url)


@pytest.mark.parametrize(
    ("relay", "to"),
    [
        ("localhost", "ann@example.org"),
        ("smtp://", "ann@example.org"),
        ("smtp://localhost:x", "ann@example.org"),
        ("smtp://localhost", "ann"),
        ("smtp://localhost", "ann@example.org\nBcc: eve@example.org"),
        ("smtp://localhost", "ann@example.org,eve@example.org"),
    ],
)
def test_a_relay_and_addresses_are_looked_at_before_anything_is_served(relay: str, to: str) -> None:
    with pytest.raises(BadInput):
        Mail(relay, [to])
