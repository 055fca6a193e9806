"""The guard before every route: known host, bounded size, time and rate, slots, and the security headers.

It is plain ASGI, so that a streamed answer (events) is neither buffered nor slowed. Starlette checks hosts
and nothing else of this; a rate limiter and a body limit from elsewhere would answer without problem details
or security headers.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fieldfare_server.api import connections
from fieldfare_server.api.auth import Authenticator, Buckets, Known
from fieldfare_server.api.problems import problem
from fieldfare_server.api.settings import Settings, host_name

log = logging.getLogger(__name__)

# Of the 40 threads in which routes ask the ledger: most for requests without an admin token, and most of those for
# requests without any token. So a stop waits for no reader, and no valid token for those who have none.
ORDINARY, ANONYMOUS = 24, 12
# Tokens that are looked up at the same time, in threads of their own.
CHECKS = 4

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives `body` once and then passes on the messages of the connection (its end)."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class Guard:
    """ASGI middleware. It checks host, target length, rate and declared size, then the size and time that arrive."""

    def __init__(self, app: ASGIApp, settings: Settings, tokens: Authenticator) -> None:
        self._app, self._settings, self._tokens = app, settings, tokens
        self._checks = CapacityLimiter(CHECKS)
        self._ordinary, self._anonymous = asyncio.Semaphore(ORDINARY), asyncio.Semaphore(ANONYMOUS)
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._buckets = Buckets(settings.requests_per_minute, settings.burst)
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
        if settings.hsts:
            headers["Strict-Transport-Security"] = "max-age=31536000"
        # As ASGI has them, encoded once: every answer has all of them that its route did not set.
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # The service has no WebSocket. Lifespan messages come from the server itself.
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started = refused = False
        slots = AsyncExitStack()

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in self._headers if one[0] not in given)]
                if refused:
                    # Neither the rest of this request is waited for nor what follows it.
                    message["headers"].append((b"connection", b"close"))
                # The answer is made. A stream of events, which lasts, holds no thread.
                await slots.aclose()
            await send(message)

        try:
            async with slots:
                body: bytes | None = b""
                known = None
                refusal = self._refuse(scope)
                if refusal is None:
                    known = await self._caller(scope)
                    refusal = self._slow_down(scope, known)
                if refusal is None:
                    # What has arrived is read without waiting, however long its token was looked up.
                    async with asyncio.timeout_at(_began(scope) + connections.REQUEST_SECONDS):
                        body = await self._body(scope, receive)
                    refusal = self._too_large(scope) if body is None else None
                if refusal is not None:
                    refused = True
                    await refusal(scope, receive, send_with_headers)
                    return
                if known is None:
                    await slots.enter_async_context(self._anonymous)
                if known is None or not known.admin:
                    await slots.enter_async_context(self._ordinary)
                await self._app(scope, _replayed(body, receive) if body else receive, send_with_headers)
        except TimeoutError:
            if started:
                raise
            refused = True
            await problem(408, "request-timeout", instance=scope["path"])(scope, receive, send_with_headers)
        except Exception:
            # Starlette's outermost handler would answer without the security headers.
            log.exception("unhandled error on %s %s", scope["method"], scope["path"])
            if started:
                raise
            answer = problem(500, "internal-error", "see the service's log.", instance=scope["path"])
            await answer(scope, receive, send_with_headers)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body, read before the route runs because the limit is small; None if it is too large."""
        body = b""
        headers = Headers(scope=scope)
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:  # it has no body
            return body
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return body
            body += bytes(message.get("body", b""))
            if len(body) > self._settings.max_body_bytes:
                return None
            if not message.get("more_body", False):
                return body

    def _refuse(self, scope: Scope) -> ASGIApp | None:
        path = scope["path"]
        headers = Headers(scope=scope)
        names = headers.getlist("host")
        if len(names) != 1 or host_name(names[0]) not in self._hosts:
            why, near = "this service does not answer to that name.", ", ".join(self._settings.hosts)
            return problem(421, "unknown-host", why, instance=path, nearest=near)
        if len(path) + len(scope["query_string"]) > self._settings.max_target_bytes:
            return problem(414, "target-too-long", f"at most {self._settings.max_target_bytes} bytes.")
        declared = headers.get("content-length", "0")
        if not declared.isascii() or not declared.isdigit():
            return problem(400, "bad-content-length", instance=path)
        if int(declared) > self._settings.max_body_bytes:
            return self._too_large(scope)
        return None

    async def _caller(self, scope: Scope) -> Known | None:
        """Return the valid token of a request, which then holds its connection's slot in its own name."""
        header = Headers(scope=scope).get("authorization")
        if header is None:
            return None
        known = self._tokens.remembered(header)
        if known is None:
            known = await to_thread.run_sync(self._tokens.look_up, header, limiter=self._checks)
        connection = scope.get("state", {}).get(connections.CONNECTION)
        if known is not None and connection is not None:
            connection.prove(known.id)
        return known

    def _slow_down(self, scope: Scope, known: Known | None) -> ASGIApp | None:
        """Return the answer to one request too many. A valid token has its own limit, which no neighbour uses up."""
        client = scope.get("client")
        wait = self._buckets.take(f"token {known.id}" if known else client[0] if client else "unknown")
        if wait <= 0:
            return None
        return problem(
            429,
            "too-many-requests",
            f"at most {self._settings.requests_per_minute} requests a minute.",
            instance=scope["path"],
            headers={"Retry-After": str(int(wait) + 1)},
        )

    def _too_large(self, scope: Scope) -> ASGIApp:
        return problem(
            413,
            "content-too-large",
            f"a request body may have at most {self._settings.max_body_bytes} bytes.",
            instance=scope["path"],
        )


def _began(scope: Scope) -> float:
    """Return when the request's first byte came, by the loop's clock."""
    connection = scope.get("state", {}).get(connections.CONNECTION)
    return asyncio.get_running_loop().time() if connection is None else float(connection.began)
