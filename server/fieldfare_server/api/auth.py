"""Authorise callers. A bearer token carries scopes; without a token a caller on this machine may read,
nothing more.

The ledger keeps and checks tokens (256 random bits, stored as a hash, compared in constant time). This file
decides what a caller may do with or without one.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from fieldfare.errors import LedgerError
from fieldfare_server.api.problems import ProblemError
from fieldfare_server.api.settings import LOOPBACK_HOSTS, Settings, host_name, is_loopback
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.states import Scope
from fieldfare_server.ledger.views import TokenView, utc

log = logging.getLogger(__name__)

_LONGEST_SECRET = 200
# How many valid tokens are remembered, and for how long.
_KNOWN, _KNOWN_SECONDS = 1024, 5.0
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Buckets:
    """Token buckets by key. The number of keys is bounded: the least recently used key is forgotten."""

    def __init__(
        self, per_minute: float, burst: int, *, keys: int = 4096, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._keys, self._clock = per_minute / 60.0, float(burst), keys, clock
        self._state: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Use up one token of `key` and return 0; or, without one, the seconds until there is one."""
        now = self._clock()
        tokens, then = self._state.get(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        if tokens < 1.0:
            return (1.0 - tokens) / self._rate
        self._state[key] = (tokens - 1.0, now)
        self._state.move_to_end(key)
        while len(self._state) > self._keys:
            self._state.popitem(last=False)
        return 0.0


@dataclass(frozen=True)
class Known:
    """A valid token: its id, whether its scopes have admin, and whether it is for all populations."""

    id: str
    admin: bool
    all: bool


@dataclass(frozen=True)
class Caller:
    """A caller and the scopes it has."""

    name: str
    scopes: frozenset[Scope]
    token_id: str | None = None
    expires_at: datetime | None = None
    populations: tuple[str, ...] | None = None  # those that its token is for; None: all
    # Its token, which the database asks for where the API has a role of its own.
    secret: str | None = field(default=None, repr=False)

    def require(self, population: str | None) -> None:
        """Raise `ProblemError` 403 unless the caller may see this population; None: all of them."""
        if self.populations is not None and population not in self.populations:
            raise ProblemError(
                403, "forbidden", "the token is for some populations only.", nearest=", ".join(self.populations)
            )

    @property
    def anonymous(self) -> bool:
        """Whether the caller has no token. Such a caller is on this machine."""
        return self.token_id is None


class Authenticator:
    """Turns a request into a `Caller`, or refuses. One per application."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger, self._settings = ledger, settings
        self._failures = Buckets(settings.failed_logins_per_minute, settings.failed_logins_per_minute)
        self._recorded: dict[str, float] = {}
        self._known: dict[bytes, tuple[Known, float]] = {}
        self._lock = threading.Lock()

    def caller(self, request: Request, authorization: str | None) -> Caller:
        """Return the caller. Raises `ProblemError` 401 without a valid token, 429 after too many wrong ones.

        A valid token is never held up by wrong ones: those of another client may come from the same address.
        """
        address = request.client.host if request.client else "unknown"
        if authorization is None:
            if self._settings.anonymous_read and self._is_local(request, address):
                return Caller("anonymous", frozenset({"read"}))
            raise _unauthorised("a token is needed: only a caller on this machine may read without one.")
        token = self._ledger.check_token(authorization) if len(authorization) <= _LONGEST_SECRET else None
        if token is None:
            with self._lock:
                wait = self._failures.take(address)
            if wait > 0:
                later = {"Retry-After": str(int(wait) + 1)}
                raise ProblemError(429, "too-many-failed-logins", "wait before trying again.", headers=later)
            raise _unauthorised("the token is unknown, expired or revoked.")
        self._record_use(token)
        expires_at = None if token.expires_at is None else utc(token.expires_at)
        return Caller(token.name, frozenset(token.scopes), token.id, expires_at, token.populations, authorization)

    def remembered(self, header: str) -> Known | None:
        """Return the valid token of an Authorization header that was looked up within the last seconds, else
        None.

        It decides which limits a request counts against, and never what it may do.
        """
        with self._lock:
            known = self._known.get(hashlib.sha256(header.encode()).digest())
        return known[0] if known is not None and time.monotonic() < known[1] else None

    def look_up(self, header: str) -> Known | None:
        """Return the valid token of an Authorization header, which is then remembered for some seconds; or None."""
        scheme, _, secret = header.partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(secret) <= _LONGEST_SECRET:
            return None
        try:
            token = self._ledger.check_token(secret)
        except LedgerError:  # the route will say so
            return None
        if token is None:
            return None
        known = Known(token.id, "admin" in token.scopes, token.populations is None)
        with self._lock:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[hashlib.sha256(header.encode()).digest()] = (known, time.monotonic() + _KNOWN_SECONDS)
        return known

    def tells(self, request: Request) -> bool:
        """Return whether a caller may be told what is wrong with the ledger, of which the guard has seen the token."""
        if (header := request.headers.get("authorization")) is not None:
            return (known := self.remembered(header)) is not None and known.all
        return self._settings.anonymous_read and self._is_local(request, request.client.host if request.client else "")

    def _is_local(self, request: Request, address: str) -> bool:
        # A proxy on this machine makes every caller look local, so a forwarded request needs a token. The Host check
        # stops a web page that rebinds its own name to 127.0.0.1 from reading through the visitor's browser.
        host = host_name(request.headers.get("host", ""))
        # nginx, as it comes, names nobody whom it forwards; but it asks in HTTP/1.0, as no browser does.
        old = request.scope.get("http_version") == "1.0"
        forwarded = old or any(header in request.headers for header in _FORWARDED)
        return is_loopback(address) and not forwarded and host in LOOPBACK_HOSTS

    def _record_use(self, token: TokenView) -> None:
        """Append an audit row for the token, at most one every `token_audit_seconds`."""
        now = time.monotonic()
        with self._lock:
            if now - self._recorded.get(token.id, float("-inf")) < self._settings.token_audit_seconds:
                return
            self._recorded[token.id] = now
        try:
            self._ledger.record_token_use(token.id, "read", actor=f"token {token.name}")
        except LedgerError as error:
            # A ledger that takes no row, because an old copy was put back or its disk is full, can still be looked at.
            log.warning("the use of token %s is not recorded: %s", token.id, error)


def _unauthorised(detail: str) -> ProblemError:
    return ProblemError(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="fieldfare"'})


_bearer = HTTPBearer(auto_error=False, description="`fieldfare token create` makes one")


def reader(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Caller:
    """Require scope read of the caller (admin includes it)."""
    authenticator: Authenticator = request.app.state.authenticator
    text = credentials.credentials if credentials else None
    if text is None and "authorization" in request.headers:
        # Another scheme is an attempt to log in, not a caller without a token.
        text = ""
    caller = authenticator.caller(request, text)
    if not caller.scopes:
        raise ProblemError(403, "forbidden", "the token has no scope.", nearest="a token with scope read")
    return caller


def charger(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """Require scope charge or admin of the caller, who always has a token."""
    return _writer(caller, "charging a budget", "charge")


def admin(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """Require scope admin of the caller, who always has a token."""
    return _writer(caller, "changing anything", "admin")


def _writer(caller: Caller, doing: str, scope: Scope) -> Caller:
    if caller.anonymous:
        raise _unauthorised(f"{doing} needs a token with scope {scope}, also on this machine.")
    if not caller.scopes & {scope, "admin"}:
        raise ProblemError(403, "forbidden", "the token may only read.", nearest=f"a token with scope {scope}")
    return caller


def overseer(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """Require scope read for all populations, for what shows the whole ledger."""
    caller.require(None)
    return caller


def chief(caller: Annotated[Caller, Depends(admin)]) -> Caller:
    """Require scope admin for all populations."""
    caller.require(None)
    return caller


Reader = Annotated[Caller, Depends(reader)]
Charger = Annotated[Caller, Depends(charger)]
Admin = Annotated[Caller, Depends(admin)]
Overseer = Annotated[Caller, Depends(overseer)]
Chief = Annotated[Caller, Depends(chief)]
