"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from fastapi import FastAPI

from fieldfare import __version__
from fieldfare_server.api import problems
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.auth import Authenticator
from fieldfare_server.api.events import Broker
from fieldfare_server.api.guard import Guard
from fieldfare_server.api.health import Readiness
from fieldfare_server.api.metrics import Measure, Metrics
from fieldfare_server.api.openapi import SERVERS, describe, operation_id
from fieldfare_server.api.places import PlacesCollector
from fieldfare_server.api.routes import events, ledger, page, populations, runs, service
from fieldfare_server.api.settings import Settings
from fieldfare_server.ledger import Ledger


def create_app(
    ledger_url: str,
    settings: Settings | None = None,
    root: Path | None = None,
    head_file: Path | None = None,
    backups: Path | None = None,
) -> FastAPI:
    """Make the service over the ledger at `ledger_url`, which it closes when it shuts down.

    root: the state directory, if it is on this machine. Only the strategies of runs, which are public, and digests of
        checkpoints are read there; without them `verify` recomputes no charge, and the sensitivity of a
        strategy that an optimiser decided is not shown.
    head_file: where this service holds the journal's head, and beside it the segments: a charge of another trainer that
        it takes is in both. A ledger that is behind it is shown, and not written to.
        None for a service that is part of a process which holds one.
    backups: where the ledger's backups go, if that can be seen from here: their age is on /metrics.

    Raises `LedgerError` if there is no ledger, or one of another version.
    """
    settings = settings or Settings()
    # A short patience: while the database is away, a probe must be answered, not held.
    opened = Ledger.open(ledger_url, head_file=head_file, segments=True, to_show=True, patience=2.0)
    answers = Answers(opened, root)
    readiness = Readiness(answers, settings.verify_seconds, __version__)
    # The head is held as the ledger grows, also while nobody asks: a copy put back later is older than it.
    broker = Broker(answers, settings, look=readiness.begin)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await broker.start()
        readiness.begin()
        try:
            yield
        finally:
            await broker.stop()
            await to_thread.run_sync(readiness.stop)
            opened.close()

    app = FastAPI(
        title="Fieldfare",
        summary="User-level privacy budgets of federated training: what was spent, on what, and what is left.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        servers=SERVERS,
        generate_unique_id_function=operation_id,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.state.answers = answers
    app.state.broker = broker
    app.state.authenticator = Authenticator(opened, settings)
    app.state.readiness = readiness
    database = opened.database.path
    places = {"ledger": database and database.parent, "state": root, "backups": backups}
    app.state.metrics = Metrics(answers, settings.metrics_seconds, lambda: broker.clients, readiness.finished)
    seen = {place: path for place, path in places.items() if path is not None}
    app.state.metrics.registry.register(PlacesCollector(seen, backups))
    problems.install(app)
    for module in (service, populations, runs, ledger, events, page):
        app.include_router(module.router)
    app.include_router(populations.proposals)
    app.add_middleware(Measure, metrics=app.state.metrics)
    app.add_middleware(Guard, settings=settings, tokens=app.state.authenticator)
    describe(app)
    return app
