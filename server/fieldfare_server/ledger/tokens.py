"""API tokens: 256 random bits, stored as a hash, with scopes, an expiry, and a journal row for each change."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from sqlalchemy import Connection, insert, select, update

from fieldfare.errors import BadInput
from fieldfare_server.ledger import models, views
from fieldfare_server.ledger.database import Database
from fieldfare_server.ledger.journal import Clock, Entry, Journal, clean
from fieldfare_server.ledger.rows import token_view
from fieldfare_server.ledger.states import SCOPES, Scope

_SECRET = re.compile(r"ff_([0-9a-f]{12})_[0-9a-f]{64}")


def create(
    journal: Journal, name: str, scopes: tuple[Scope, ...], actor: str, expires_at: float | None
) -> tuple[str, views.TokenView]:
    """(secret, view) of a new token. The secret is `ff_` + id + `_` + 64 hex digits."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise BadInput(f"scopes {', '.join(scopes) or '(none)'}", "a token has known scopes.", ", ".join(SCOPES))
    if not name.strip() or len(name) > 200:
        raise BadInput(f"token name {name[:80]!r}", "a token has a name of 1 to 200 characters.")
    name, actor = clean(name, 200), clean(actor, 200)
    number = secrets.token_hex(6)
    secret = f"ff_{number}_{secrets.token_hex(32)}"
    ordered = tuple(scope for scope in SCOPES if scope in scopes)

    def work(connection: Connection, entry: Entry) -> views.TokenView:
        if expires_at is not None and not expires_at > entry.now:
            raise BadInput(f"token {name!r}", "it would have expired already.", "a later time")
        values = {
            "id": number,
            "name": name,
            "digest": _digest(secret),
            "scopes": " ".join(ordered),
            "created_at": entry.now,
            "created_by": actor,
            "expires_at": expires_at,
            "revoked_at": None,
        }
        connection.execute(insert(models.tokens).values(values))
        body = {"id": number, "name": name, "scopes": ordered, "expires_at": expires_at, "digest": _digest(secret)}
        entry.append("token.create", actor, body)
        return token_view(values)

    return secret, journal.write(work)


def revoke(journal: Journal, token_id: str, actor: str) -> views.TokenView:
    """Revoke a token; a revoked token stays revoked. Raises `BadInput` if there is none of that id."""

    def work(connection: Connection, entry: Entry) -> views.TokenView:
        where = models.tokens.c.id == clean(token_id, 20)
        row = connection.execute(select(models.tokens).where(where)).mappings().first()
        if row is None:
            raise BadInput(f"token {token_id!r}", "the ledger has none of that id.", "one that is listed")
        if row["revoked_at"] is not None:
            return token_view(row)
        connection.execute(update(models.tokens).where(where).values(revoked_at=entry.now))
        entry.append("token.revoke", actor, {"id": token_id})
        return token_view({**row, "revoked_at": entry.now})

    return journal.write(work)


def record_use(journal: Journal, token_id: str, purpose: str, actor: str) -> None:
    """Record that a token was used, without its secret. A token that was revoked since its check leaves no row."""

    def work(connection: Connection, entry: Entry) -> None:
        c = models.tokens.c
        valid = select(c.id).where(c.id == token_id, c.revoked_at.is_(None))
        if connection.execute(valid).first() is not None:
            entry.append("token.use", actor, {"id": token_id, "what": purpose})

    journal.write(work)


def check(database: Database, clock: Clock, secret: str) -> views.TokenView | None:
    """The token of this secret if it is neither revoked nor expired, else None.

    The row is found by the token's public id and its digest is compared in constant time, so that neither the index
    nor the comparison tells how much of a guess was right.
    """
    digest = _digest(secret)
    shape = _SECRET.fullmatch(secret)
    number = shape.group(1) if shape else ""
    with database.read() as connection:
        row = connection.execute(select(models.tokens).where(models.tokens.c.id == number)).mappings().first()
        newest = select(models.journal.c.at).order_by(models.journal.c.id.desc()).limit(1)
        # A clock that was set back must not make an expired token valid: time is at least that of the newest row.
        now = max(clock(), connection.execute(newest).scalar_one_or_none() or 0.0)
    right = hmac.compare_digest(digest, row["digest"] if row is not None else _digest(""))
    if row is None or not right:
        return None
    over = row["revoked_at"] is not None or (row["expires_at"] is not None and now >= row["expires_at"])
    return None if over else token_view(row)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
