"""A liar in the place of SuperLink or gate: an HTTPS server that passes requests on, and lies about messages.

It has the certificate of what it replaces. The requests and answers that carry messages and their parts are repeated,
exchanged for earlier ones (of other nodes, of other rounds), replaced by random bytes, or answered with an error.
"""

from __future__ import annotations

import os
import random
import ssl
import threading
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

MESSAGES = ("pull-messages", "push-messages", "pull-object", "push-object", "confirm-message-received")
LIES = ("garbage", "another answer", "an error", "twice", "an earlier request too", "silence")
HOP = ("connection", "content-length", "host", "keep-alive", "transfer-encoding", "date", "server", "content-encoding")


class LyingProxy:
    """Use as a context. `address`: where it listens, for the SuperLink at `superlink`.

    Args:
        certificates: the folder with the SuperLink's `ca.crt`, `server.crt` and `server.key`.
        lies: how many requests it lies about, `share` of those that carry messages; it is honest afterwards.
    """

    def __init__(self, superlink: str, certificates: Path, lies: int, share: float, seed: int) -> None:
        self._left, self._share, self._random = lies, share, random.Random(seed)
        self._lock = threading.Lock()
        self._requests: dict[str, list[tuple[str, dict[str, str], bytes]]] = defaultdict(list)
        self._answers: dict[str, list[bytes]] = defaultdict(list)
        self.told: Counter[str] = Counter()
        trust = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._client = httpx.Client(verify=trust, base_url=f"https://{superlink}", timeout=60.0)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
                status, found, content = proxy.answer(self.command, self.path, headers, body)
                self.send_response(status)
                for name, value in found.items():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer

            def log_message(self, format: str, *arguments: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """What is answered to one request: status, headers, body."""
        kind = path.rpartition("/")[2]
        lie = self._choose(kind)
        if lie == "an error":
            return 503, {}, b""
        if lie == "silence":
            threading.Event().wait(3.0)
            return 504, {}, b""
        if lie == "an earlier request too" and self._requests[kind]:
            self._pass(*self._random.choice(self._requests[kind]))
        if lie == "twice":
            self._pass(method, path, headers, body)
        status, found, content = self._pass(method, path, headers, body)
        with self._lock:
            self._requests[kind] = [*self._requests[kind][-20:], (path, headers, body)]
            earlier = list(self._answers[kind])
            if status == 200 and len(content) > 50:  # not one that says that there is nothing
                self._answers[kind] = [*earlier[-20:], content]
        if lie == "garbage":
            content = os.urandom(max(len(content), 20))
        if lie == "another answer" and earlier:
            content = self._random.choice(earlier)
        return status, found, content

    def _choose(self, kind: str) -> str:
        with self._lock:
            if kind not in MESSAGES or not self._left or self._random.random() > self._share:
                return ""
            self._left -= 1
            lie = self._random.choice(LIES)
            self.told[lie] += 1
            return lie

    def _pass(self, *request: Any) -> tuple[int, Any, bytes]:
        method, path, headers, body = request if len(request) == 4 else ("POST", *request)
        try:
            answer = self._client.request(method, path, headers=headers, content=body)
        except httpx.HTTPError:
            return 502, {}, b""
        return answer.status_code, answer.headers, answer.content
