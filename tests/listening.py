"""A real HTTP server for tests: it keeps what was posted to it, and answers as it is told."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Posted:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    def is_signed_with(self, secret: str) -> bool:
        """Check the signature as a receiver does."""
        parts = dict(one.split("=", 1) for one in self.headers["X-Etl-Signature"].split(","))
        wanted = hmac.new(secret.encode(), f"{parts['t']}.".encode() + self.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(wanted, parts["v1"])


@dataclass(slots=True)
class Listener:
    """Where it listens, what it heard, and what it answers: by path, else 200."""

    port: int
    posted: list[Posted] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def at(self, path: str) -> list[Posted]:
        return [one for one in self.posted if one.path == path]


@contextmanager
def listening(port: int = 0) -> Iterator[Listener]:
    """Listen on loopback for as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            listener.posted.append(Posted(self.path, dict(self.headers), body))
            status, headers = listener.answers.get(self.path, (200, {}))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        listener = Listener(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            server.shutdown()
            thread.join()
