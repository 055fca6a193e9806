"""Alerts: a budget that is low (80 % committed) or exhausted is told to a web hook and by mail, once a limit.

The service looks at its ledger in a thread of its own, which only reads: no charge waits for it or fails with
it. What was sent stands in a file, so a restart sends nothing again; what could not be sent is tried at every
look. A process that dies between the two sends twice: each alert has an `id` by which a receiver knows it
again. A limit that is raised or tightened is another limit, and is told again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import smtplib
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from fieldfare.atomic import alone_at, replace_file
from fieldfare.errors import WrongForm
from fieldfare.text import decimal, up
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.population_schemas import Population
from fieldfare_server.api.settings import is_this_machine
from fieldfare_server.ledger.views import every

# Between two looks.
SECONDS: Final = 30.0
# Seconds that a receiver has.
PATIENCE: Final = 10.0
# What each level (`outlook`) is told as, in percent of the limit.
_SHARES: Final = {"low": 80, "exhausted": 100}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Alert:
    """What is told of a population. No count of users: under `add_remove` those are secret."""

    id: str
    population: str
    percent: int
    committed_epsilon: float
    epsilon: float
    delta: float
    held: bool  # exhausted while runs under way hold some of it, which may return; told again once none does

    @classmethod
    def of(cls, population: Population) -> Alert | None:
        """Return the alert of a population; None where its budget is open."""
        percent = _SHARES.get(population.level)
        if percent is None:
            return None
        held = percent == 100 and population.runs_active > 0
        named = json.dumps([population.name, percent, population.epsilon, population.delta, *["held"] * held])
        return cls(
            hashlib.sha256(named.encode()).hexdigest()[:16],
            population.name,
            percent,
            population.epsilon if population.committed.epsilon is None else population.committed.epsilon,
            population.epsilon,
            population.delta,
            held,
        )

    @property
    def text(self) -> str:
        """One sentence for people."""
        what = "is exhausted: no useful run fits" if self.percent == 100 else f"is {self.percent} % committed, or more"
        what += " until runs under way end" if self.held else ""
        return (
            f"The budget of population {self.population} {what} (epsilon {up(self.committed_epsilon):g} of "
            f"{self.epsilon:.4g} at delta {decimal(self.delta, 3)})."
        )


class Hook:
    """A web hook: one POST of JSON an alert."""

    name = "hook"

    def __init__(self, url: str) -> None:
        """url: https, or http on this machine; it may hold a secret, and is never logged. Raises `BadInput`."""
        try:
            parts = httpx.URL(url)
        except httpx.InvalidURL:
            parts = httpx.URL("")
        host = parts.host
        if not host or (parts.scheme != "https" and not (parts.scheme == "http" and is_this_machine(host))):
            raise WrongForm("the web hook", "it is not an https URL.", "https://..., or http on this machine")
        self._url = url
        for talkative in ("httpx", "httpcore"):  # they log the whole URL
            logging.getLogger(talkative).setLevel(logging.WARNING)

    def send(self, alert: Alert) -> None:
        """POST it; any answer of 200 to 299 takes it."""
        body = asdict(alert) | {"text": alert.text}
        httpx.post(self._url, json=body, timeout=PATIENCE, trust_env=False).raise_for_status()


class Mail:
    """Mail by a relay: SMTP on this machine, with STARTTLS beyond it, or over TLS (smtps)."""

    name = "mail"

    def __init__(self, relay: str, to: Sequence[str]) -> None:
        """relay: smtp://HOST[:PORT] or smtps://HOST[:PORT]. Raises `BadInput`."""
        try:
            parts = urlsplit(relay)
            self._over_tls, self._host, self._port = parts.scheme == "smtps", parts.hostname or "", parts.port or 0
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("smtp", "smtps") or not self._host:
            raise WrongForm(f"mail relay {relay!r}", "cannot be understood.", "smtp://localhost, or smtps://HOST")
        for each in to:
            if "@" not in each or not each.isprintable() or " " in each or "," in each:
                raise WrongForm(f"mail address {each[:80]!r}", "is not one.", "officer@example.org")
        self._to = tuple(to)

    def send(self, alert: Alert) -> None:
        """Hand it to the relay."""
        message = EmailMessage()
        message["Subject"] = f"Fieldfare: the budget of {alert.population} is at {alert.percent} %"
        message["From"], message["To"] = self._to[0], ", ".join(self._to)
        message["Message-ID"], message["Date"] = f"<{alert.id}@fieldfare>", formatdate()
        message.set_content(alert.text)
        context = ssl.create_default_context()
        if self._over_tls:
            with smtplib.SMTP_SSL(self._host, self._port, timeout=PATIENCE, context=context) as relay:
                relay.send_message(message)
            return
        with smtplib.SMTP(self._host, self._port, timeout=PATIENCE) as relay:
            if not is_this_machine(self._host):
                relay.starttls(context=context)
            relay.send_message(message)


class Alerts:
    """Looks at every budget and sends what was not sent yet."""

    def __init__(self, answers: Answers, book: Path, channels: Sequence[Hook | Mail]) -> None:
        """book: the file of what was sent, which is made."""
        self._answers, self._book, self._channels = answers, book, tuple(channels)

    def look(self) -> None:
        """Send what is new. What is not taken, or not noted, is logged by its class and tried at the next look."""
        try:
            self._book.parent.mkdir(parents=True, exist_ok=True)
            with alone_at(self._book):
                self._look(set(json.loads(self._book.read_text())) if self._book.exists() else set())
        except (OSError, ValueError) as error:
            log.warning("no alert is sent: the file of those that were cannot be used (%s)", type(error).__name__)

    def _look(self, sent: set[str]) -> None:
        for alert in filter(None, [Alert.of(each) for each in every(self._answers.populations)]):
            for channel in self._channels:
                name = f"{channel.name} {alert.id}"
                if name in sent:
                    continue
                try:
                    channel.send(alert)
                    sent.add(name)
                    replace_file(self._book, json.dumps(sorted(sent)).encode())
                except (OSError, httpx.HTTPError) as error:
                    log.warning(
                        "alert %s of %s was not sent by %s (%s)",
                        *(alert.id, alert.population, channel.name, type(error).__name__),
                    )

    @contextmanager
    def watching(self, seconds: float = SECONDS) -> Iterator[None]:
        """Look every so many seconds inside the block, in a thread."""
        over = threading.Event()

        def follow() -> None:
            while True:
                try:
                    self.look()
                except Exception as error:  # whatever it is: a thread that ended would be silent for good
                    log.warning("no alert is sent: the ledger cannot be read (%s)", type(error).__name__)
                if over.wait(seconds):
                    return

        thread = threading.Thread(target=follow, name="fieldfare-alerts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)
