"""API tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, update

from fieldfare.errors import BadInput
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.events.populations import Registered
from fieldfare_server.ledger.events.tokens import TokenCreated
from fieldfare_server.ledger.rules import fold
from fieldfare_server.ledger.sql import models, tokens
from fieldfare_server.ledger.sql.journal import Entry
from support.refusals import coded


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(ledger_url: str, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, create=True, clock=clock) as opened:
        yield opened


def test_a_token_opens_what_its_scopes_say_until_it_is_revoked(ledger: Ledger) -> None:
    secret, view = ledger.create_token("page", ("admin", "read"), actor="officer")
    assert ledger.check_token(secret) == view
    assert view.scopes == ("read", "admin")
    other, _ = ledger.create_token("other", ("read",), actor="officer")
    assert other != secret
    revoked = ledger.revoke_token(view.id, actor="officer")
    assert revoked.revoked_at == 1000.0
    assert ledger.revoke_token(view.id, actor="officer") == revoked
    assert ledger.check_token(secret) is None
    assert ledger.check_token(other) is not None
    assert verify(ledger).ok


def test_a_token_expires(ledger: Ledger, clock: Clock) -> None:
    secret, _ = ledger.create_token("page", ("read",), actor="officer", expires_at=1010.0)
    clock.now = 1009.9
    assert ledger.check_token(secret) is not None
    clock.now = 1010.0
    assert ledger.check_token(secret) is None


def test_a_clock_that_goes_back_brings_no_expired_token_back(ledger: Ledger, ledger_url: str, clock: Clock) -> None:
    """R10. In the same process, in another one, and after rows that were written by the clock that went back."""
    seen, view = ledger.create_token("seen", ("read",), actor="officer", expires_at=1010.0)
    unseen, _ = ledger.create_token("unseen", ("read",), actor="officer", expires_at=1010.0)
    clock.now = 1011.0
    assert ledger.check_token(seen) is None
    clock.now = 1001.0
    assert ledger.check_token(seen) is None
    assert ledger.check_token(unseen) is None, "this process has seen a later time"
    for _ in range(3):
        ledger.create_token("later", ("read",), actor="officer")
    with Ledger.open(ledger_url, clock=clock) as again:
        assert again.check_token(seen) is None
        assert again.check_token(unseen) is None, "a journal row has a later time"
    (shown,) = (token for token in ledger.tokens() if token.id == view.id)
    assert shown.revoked_at == 1011.0
    assert [row.actor for row in ledger.journal_rows().items if row.action == "token.revoke"] == ["expiry"] * 2
    assert verify(ledger).ok


def test_no_number_of_rows_by_a_slow_clock_brings_an_expired_token_back(
    ledger: Ledger, ledger_url: str, clock: Clock
) -> None:
    """Only the newest 256 rows were asked for the time: 256 rows later the token was valid in a new process."""
    secret, _ = ledger.create_token("unseen", ("read",), actor="officer", expires_at=1010.0)
    clock.now = 1e6
    ledger.create_token("ahead", ("read",), actor="officer")
    clock.now = 1001.0

    def many(connection: Connection, entry: Entry) -> None:
        for _ in range(300):
            entry.append(Registered(0, 0, "0" * 64), "test", population="people")

    ledger.create_population("people", 1.0, 1e-6, actor="officer")
    ledger._journal.write(many)
    with Ledger.open(ledger_url, clock=clock) as again:
        assert again.check_token(secret) is None
        # A clock that was far ahead once spoils no token that is made afterwards.
        later, _ = again.create_token("later", ("read",), actor="officer", expires_at=1010.0)
        assert again.check_token(later) is not None
        clock.now = 1011.0
        assert again.check_token(later) is None
        assert verify(again).ok


def test_a_revoked_token_is_not_created_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second row that creates it, well-formed and chained, revived it with all its scopes."""
    secret, view = ledger.create_token("chief", ("admin",), actor="officer")
    created = next(row for row in ledger.journal_rows().items if row.action == "token.create")
    ledger.revoke_token(view.id, actor="officer")

    def again(connection: Connection, entry: Entry) -> None:
        connection.execute(update(models.tokens).values(revoked_at=None))
        # A forger asks no rule.
        monkeypatch.setitem(fold.RULES, TokenCreated, lambda *_: iter(()))
        entry.append(TokenCreated.of(created.body), "officer")
        monkeypatch.undo()

    ledger._journal.write(again)
    assert ledger.check_token(secret) is None
    assert "created twice" in str(verify(ledger).fault)


def test_the_secret_is_not_kept_and_its_changes_are_audited(ledger: Ledger) -> None:
    secret, view = ledger.create_token("page", ("read",), actor="officer")
    ledger.revoke_token(view.id, actor="chief")
    log = ledger.journal_rows().items
    assert [(row.action, row.actor) for row in log] == [("token.revoke", "chief"), ("token.create", "officer")]
    assert secret.rpartition("_")[2] not in str([*log, *ledger.tokens()])
    assert len(secret.rpartition("_")[2]) == 64


@pytest.mark.parametrize("change", ["", "x", "\0", "\ud800", "ff_", "ff__", "ff_000000000000_" + "0" * 64])
def test_no_other_text_is_a_token(ledger: Ledger, change: str) -> None:
    ledger.create_token("page", ("read",), actor="officer")
    assert ledger.check_token(change) is None


def test_every_character_counts(ledger: Ledger) -> None:
    secret, _ = ledger.create_token("page", ("read",), actor="officer")
    for place in range(len(secret)):
        wrong = secret[:place] + ("0" if secret[place] != "0" else "1") + secret[place + 1 :]
        assert ledger.check_token(wrong) is None
    assert ledger.check_token(secret + "0") is None
    assert ledger.check_token(secret[:-1]) is None


def test_what_is_no_token_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BadInput, check=coded("unknown", "scopes")):
        ledger.create_token("page", (), actor="officer")
    with pytest.raises(BadInput, check=coded("unknown", "scopes")):
        ledger.create_token("page", ("root",), actor="officer")  # type: ignore[arg-type]
    with pytest.raises(BadInput, check=coded("wrong-form", "token name")):
        ledger.create_token(" ", ("read",), actor="officer")
    for end in (999.0, math.nan):
        with pytest.raises(BadInput, check=coded("out-of-range", "token")):
            ledger.create_token("page", ("read",), actor="officer", expires_at=end)
    for end in (tokens.LATEST + 1, 1e300, math.inf):
        with pytest.raises(BadInput, check=coded("out-of-range", "token", "9999")):
            ledger.create_token("page", ("read",), actor="officer", expires_at=end)
    with pytest.raises(BadInput, check=coded("not-found", "token")):
        ledger.revoke_token("\0nothing", actor="officer")
