"""Run the service: in the foreground, or in a thread of a process that trains."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from fieldfare.errors import AlreadyThere, BadInput, NotAllowed, NotGiven, Unreadable
from fieldfare_server.api.connections import LimitedProtocol
from fieldfare_server.api.settings import is_this_machine

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
    """Return Uvicorn's settings.

    Args:
        port: 0 takes any free one.
        plaintext_network: serve other machines without TLS, on a network that is closed by other means (a
            compose network behind a TLS proxy).

    Raises:
        BadInput: for an address beyond this machine with neither a certificate nor `plaintext_network`.
    """
    if not is_this_machine(host) and certificate is None and not plaintext_network:
        raise NotAllowed(
            f"serving on {host} without TLS", "tokens would cross the network in the clear.", "127.0.0.1, or TLS"
        )
    if (certificate is None) != (key is None):
        raise NotGiven("TLS", "needs a certificate and its key.", "both")
    if certificate is not None and key is not None:
        _check_certificate(certificate, key)
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=None if key is None else str(key),
        # Log like the rest of the process. Uvicorn's own settings would close the log files that it has open.
        log_config=None,
        log_level=log_level,
        access_log=False,
        ws="none",
        # httptools, uvicorn's default where it is installed, reads a head without end into memory.
        http=LimitedProtocol,
        # The caller is the other end of the connection, never what a header says; see `auth`.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        backlog=2048,
    )


def _check_certificate(certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise Unreadable(f"TLS file {path}", f"cannot be read: {error.strerror}.") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError):
        raise Unreadable(
            f"TLS files {certificate} and {key}",
            "are not a certificate and its key (PEM, without a password).",
            "fieldfare certificates",
        ) from None


class Server(uvicorn.Server):
    """Ends the event streams before it waits for connections to close, so that an open page delays no shutdown."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then shut down like uvicorn."""
        app = self.config.app
        if isinstance(app, FastAPI):
            await app.state.broker.stop()
        await super().shutdown(sockets)


def listen(settings: uvicorn.Config) -> socket.socket:
    """Take the address, before anything is said about it; from now on callers wait. Raises `BadInput` if that fails."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((settings.host, settings.port))
        taken.listen(settings.backlog)  # two that only bind both get it
    except OSError as error:
        taken.close()
        what = f"{settings.host} port {settings.port}"
        if error.errno == errno.EADDRINUSE:
            raise AlreadyThere(what, "another program has it.", "--port 0, any free one") from None
        raise BadInput(
            what, f"cannot be bound: {error.strerror or error}.", "127.0.0.1", code="address-unusable"
        ) from None
    return taken


def serve(settings: uvicorn.Config, taken: socket.socket) -> None:
    """Serve on the address that `listen` took until a signal arrives, which ends it well."""
    with taken, suppress(KeyboardInterrupt):
        Server(settings).run(sockets=[taken])


@contextmanager
def serve_in_thread(settings: uvicorn.Config) -> Iterator[str]:
    """Serve in a thread while the block runs; yields the URL. Raises `BadInput` if the port is taken."""
    taken = listen(settings)
    server = Server(settings)
    thread = threading.Thread(target=server.run, args=([taken],), daemon=True, name="fieldfare-service")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise AlreadyThere(f"port {settings.port}", "the service could not start.", "port 0")
            time.sleep(0.01)
        scheme = "https" if settings.ssl_certfile else "http"
        yield f"{scheme}://{settings.host}:{taken.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        taken.close()
