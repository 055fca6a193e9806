"""API tokens: 256 random bits, stored as a hash, with scopes, an expiry, and a journal row for each change."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Callable

from sqlalchemy import Connection, RowMapping, func, select, text

from fieldfare.errors import Conflict, LedgerError, NotFound, NotGiven, OutOfRange, Unknown, WrongForm
from fieldfare_server.ledger import views
from fieldfare_server.ledger.events.base import Unfit
from fieldfare_server.ledger.events.tokens import TokenCreated, TokenRevoked, TokenUsed
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.sql.journal import Clock, Entry, Journal, clean
from fieldfare_server.ledger.sql.proof import compare, expected
from fieldfare_server.ledger.sql.rows import population_row, token_view
from fieldfare_server.ledger.state.state import State
from fieldfare_server.ledger.states import SCOPES, Scope
from fieldfare_server.ledger.views import LATEST

log = logging.getLogger(__name__)
_SECRET = re.compile(r"ff_([0-9a-f]{12})_[0-9a-f]{64}")


class Tokens:
    """What a ledger writes about tokens."""

    _journal: Journal

    def create_token(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        *,
        actor: str,
        expires_at: float | None = None,
        populations: tuple[str, ...] | None = None,
    ) -> tuple[str, views.TokenView]:
        """Make an API token: (its secret, shown only now: `ff_` + id + `_` + 64 hex digits; its view).

        populations: those that it is for; None: all. Raises `BadInput` on an unknown scope or population.
        """
        if not scopes or not set(scopes) <= set(SCOPES):
            raise Unknown(f"scopes {', '.join(scopes) or '(none)'}", "a token has known scopes.", ", ".join(SCOPES))
        if not name.strip() or len(name) > 200:
            raise WrongForm(f"token name {name[:80]!r}", "a token has a name of 1 to 200 characters.")
        name, actor = clean(name, 200), clean(actor, 200)
        number = secrets.token_hex(6)
        secret = f"ff_{number}_{secrets.token_hex(32)}"
        ordered = tuple(scope for scope in SCOPES if scope in scopes)

        def work(connection: Connection, entry: Entry) -> views.TokenView:
            if expires_at is not None and not expires_at > entry.now:
                raise OutOfRange(f"token {name!r}", "it would have expired already.", "a later time")
            if expires_at is not None and expires_at > LATEST:
                raise OutOfRange(
                    f"token {name!r}", "it would expire after the year 9999.", "no expiry, or an earlier one"
                )
            limited = None
            if populations is not None:
                limited = tuple(sorted({population_row(connection, each).name for each in populations}))
            if limited == ():
                raise NotGiven(f"token {name!r}", "it would be for no population at all.", "a population's name")
            entry.append(TokenCreated(number, name, ordered, expires_at, limited, _digest(secret)), actor)
            return token_view(entry.state.tokens[number]._asdict())

        return secret, self._journal.write(work)

    def revoke_token(self, token: str, *, actor: str) -> views.TokenView:
        """Revoke the token with this id, or the one valid token with this name; a revoked token stays revoked.

        Raises `BadInput` if there is none, or if several valid ones have the name.
        """

        def work(connection: Connection, entry: Entry) -> views.TokenView:
            row = _find(connection, clean(token, 200))
            if row["revoked_at"] is not None:
                return token_view(row)
            entry.append(TokenRevoked(row["id"]), actor)
            return token_view({**row, "revoked_at": entry.now})

        return self._journal.write(work)

    def record_token_use(self, token_id: str, purpose: str, *, actor: str) -> None:
        """Record that a token was used, without its secret. A token that was revoked since its check leaves no row."""

        def work(connection: Connection, entry: Entry) -> None:
            c = models.tokens.c
            valid = select(c.id).where(c.id == token_id, c.revoked_at.is_(None))
            if connection.execute(valid).first() is not None:
                entry.append(TokenUsed(token_id, purpose), actor)

        self._journal.write(work)


def _find(connection: Connection, token: str) -> RowMapping:
    c = models.tokens.c
    row = connection.execute(select(models.tokens).where(c.id == token)).mappings().first()
    if row is not None:
        return row
    named = connection.execute(select(models.tokens).where(c.name == token).order_by(c.created_at)).mappings().all()
    valid = [each for each in named if each["revoked_at"] is None]
    if len(valid) > 1:
        ids = ", ".join(each["id"] for each in valid)
        raise Conflict(f"token {token!r}", f"{len(valid)} valid tokens have this name.", f"one of the ids {ids}")
    if not named:
        raise NotFound(f"token {token!r}", "the ledger has none of that id or name.", "one that is listed")
    return (valid or named)[-1]


class TokenCheck:
    """Checks secrets against `tokens`, and each row against the journal. Thread-safe.

    A clock that goes back makes no expired token valid again. Time is at least that of every journal row
    since the token was made, and the latest that this process has seen; and a token that is presented after
    its time is revoked then, for good. (Since it was made: a clock that was far ahead once spoils no token
    that is made afterwards.)
    """

    def __init__(self, database: Database, clock: Clock, revoke: Callable[[str], object]) -> None:
        """revoke: revokes the token of this id, durably."""
        self._database, self._clock, self._revoke = database, clock, revoke
        self._latest = 0.0
        # Token -> (the newest journal row about any token, the token's row that was found to say the same).
        self._proven: dict[str, tuple[int, RowMapping]] = {}
        # Token -> (a journal row, the latest time of the rows up to it since the token was made).
        self._marks: dict[str, tuple[int, float]] = {}

    def __call__(self, secret: str) -> views.TokenView | None:
        """The token of this secret if it is neither revoked nor expired, and the journal says the same; else None."""
        digest = _digest(secret)
        shape = _SECRET.fullmatch(secret)
        number = shape.group(1) if shape else ""
        newest = select(func.max(models.journal.c.id)).where(text(models.CREDENTIAL_ROWS)).scalar_subquery()
        # Found by its public id and compared in constant time: neither index nor comparison tells how much of
        # a guess was right.
        query = select(models.tokens, newest.label("newest")).where(models.tokens.c.id == number)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
            right = hmac.compare_digest(digest, row["digest"] if row is not None else _digest(""))
            if row is None or not right or not self._is_proven(connection, row):
                return None
            self._latest = max(self._latest, self._clock())
            now = max(self._latest, self._latest_row(connection, number))
        if row["revoked_at"] is not None:
            return None
        if row["expires_at"] is not None and now >= row["expires_at"]:
            try:
                self._revoke(number)
            except LedgerError as error:
                log.warning("the expired token %s could not be revoked: %s", number, error)
            return None
        return token_view(row)

    def _latest_row(self, connection: Connection, number: str) -> float:
        """The latest time of the journal's rows since the token was made. Each row is read once."""
        seen, latest = self._marks[number]
        c = models.journal.c
        last, newest = connection.execute(select(func.max(c.id), func.max(c.at)).where(c.id > seen)).one()
        if last is not None:
            latest = max(latest, newest)
            self._marks[number] = (last, latest)
        return latest

    def _is_proven(self, connection: Connection, row: RowMapping) -> bool:
        number, newest = row["id"], row["newest"] or 0
        if self._proven.get(number) == (newest, row):
            return True
        c = models.journal.c
        about = (
            select(models.journal).where(text(models.CREDENTIAL_ROWS), c.body.contains(f'"{number}"')).order_by(c.id)
        )
        state = State(thorough=False)
        try:
            for entry in connection.execute(about).mappings():
                if json.loads(entry["body"])["id"] == number:
                    apply(state, dict(entry))
                    self._marks.setdefault(number, (entry["id"], entry["at"]))
            compare("tokens", number, dict(row), expected("tokens", number, state.tokens))
        except (Unfit, LookupError, TypeError, ValueError) as error:
            log.error("token %s is refused: the journal does not prove it (%s)", number, error)
            return False
        self._proven[number] = (newest, row)
        return True


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
