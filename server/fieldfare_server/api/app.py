"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from anyio import to_thread
from fastapi import FastAPI

from fieldfare_server.api import problems
from fieldfare_server.api.auth import Authenticator
from fieldfare_server.api.events import Broker
from fieldfare_server.api.guard import Guard
from fieldfare_server.api.health import Readiness
from fieldfare_server.api.measure import Measure
from fieldfare_server.api.metrics import Metrics
from fieldfare_server.api.openapi import describe
from fieldfare_server.api.routes import events, ledger, page, populations, runs, service
from fieldfare_server.api.settings import Settings
from fieldfare_server.api.store import Store


def version() -> str:
    """The installed version, or 0 for a source tree that was not installed."""
    try:
        return metadata.version("fieldfare")
    except metadata.PackageNotFoundError:
        return "0"


def build(store: Store, settings: Settings) -> FastAPI:
    """The application over any `Store`."""
    broker = Broker(store, settings)
    readiness = Readiness(store, settings.verify_seconds, version())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await broker.start()
        readiness.begin()
        try:
            yield
        finally:
            await broker.stop()
            await to_thread.run_sync(readiness.stop)
            store.close()

    app = FastAPI(
        title="Fieldfare",
        summary="User-level privacy budgets of federated training: what was spent, on what, and what is left.",
        version=version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.state.store = store
    app.state.settings = settings
    app.state.broker = broker
    app.state.authenticator = Authenticator(store, settings)
    app.state.readiness = readiness
    app.state.metrics = Metrics(store, settings.metrics_seconds, lambda: broker.clients, readiness.whole)
    problems.install(app)
    for module in (service, populations, runs, ledger, events, page):
        app.include_router(module.router)
    app.add_middleware(Measure, metrics=app.state.metrics)
    app.add_middleware(Guard, settings=settings)
    describe(app)
    return app
