"""Running the service: in the foreground, or beside a training in the same process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from fieldfare.errors import BadInput
from fieldfare_flower import logs
from fieldfare_server.api.settings import is_loopback

PORT = 8844


def config(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = PORT,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    plaintext_network: bool = False,
    log_level: str = "warning",
) -> uvicorn.Config:
    """Uvicorn's settings. port 0: any free one.

    plaintext_network: allow an address beyond this machine without TLS, for a network that is closed by other means
    (a compose network behind a TLS proxy). Raises `BadInput` on such an address without it or a certificate.
    """
    if not is_loopback(host) and host != "localhost" and certificate is None and not plaintext_network:
        raise BadInput(
            f"serving on {host} without TLS", "tokens would cross the network in the clear.", "127.0.0.1, or TLS"
        )
    if (certificate is None) != (key is None):
        raise BadInput("TLS", "needs a certificate and its key.", "both")
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=None if key is None else str(key),
        # None: uvicorn's lines go where all others of the process go.
        log_config=None if logs.as_json() else uvicorn.config.LOGGING_CONFIG,
        log_level=log_level,
        access_log=False,
        ws="none",
        # Who calls is the connection's other end, never what a header says; see `auth`.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        backlog=2048,
    )


class Server(uvicorn.Server):
    """Ends the event streams before it waits for connections to close: an open page must not hold a shutdown up."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams, then what uvicorn does."""
        app = self.config.app
        if isinstance(app, FastAPI):
            await app.state.broker.stop()
        await super().shutdown(sockets)


def serve(settings: uvicorn.Config) -> None:
    """Serve until a signal ends it."""
    Server(settings).run()


@contextmanager
def serve_in_thread(settings: uvicorn.Config) -> Iterator[str]:
    """Serve in a thread for as long as the block runs; gives the URL. Raises `BadInput` if the port is taken."""
    server = Server(settings)
    thread = threading.Thread(target=_quietly, args=(server,), daemon=True, name="fieldfare-service")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise BadInput(f"port {settings.port}", "the service could not start; it may be taken.", "port 0")
            time.sleep(0.01)
        scheme = "https" if settings.ssl_certfile else "http"
        yield f"{scheme}://{settings.host}:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def _quietly(server: uvicorn.Server) -> None:
    try:
        server.run()
    except SystemExit:
        # Uvicorn's way to say that it could not bind; `serve_in_thread` sees that the thread has ended and says why.
        return
