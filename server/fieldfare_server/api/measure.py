"""ASGI middleware that counts requests by route template."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fieldfare_server.api.metrics import Metrics

log = logging.getLogger(__name__)


class Measure:
    """Counts every request once, by method, route template and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, record_status)
        finally:
            route = getattr(scope.get("route"), "path", None) or "unmatched"
            seconds = time.perf_counter() - began
            self._metrics.observe(scope["method"], route, status, seconds)
            # Log the route's template: a path or a query is written by the caller and may contain anything.
            log.debug("%s %s: %d in %.1f ms", scope["method"], route, status, 1000 * seconds)
