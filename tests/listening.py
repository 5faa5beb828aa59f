"""Those who are told, for tests: a real HTTP server and a real SMTP server that keep what they get."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Call:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.body)
        return facts

    def is_signed(self, secret: bytes) -> bool:
        """Check the signature as the reference tells a producer to."""
        parts = dict(part.split("=", 1) for part in self.headers["x-etl-signature"].split(","))
        expected = hmac.new(secret, f"{parts['t']}.".encode() + self.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(expected, parts["v1"])


@dataclass(slots=True)
class Listener:
    """A server that answers as its path says: `/503` with 503, everything else with 204."""

    port: int = 0
    calls: list[Call] = field(default_factory=list)
    #: answers that are given first, whatever the path says.
    first: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def at(self, path: str) -> list[Call]:
        return [call for call in self.calls if call.path == path]


@contextmanager
def listening() -> Iterator[Listener]:
    """Serve until the context ends."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            listener.calls.append(Call(self.path, headers, body))
            last = self.path.rpartition("/")[2]
            status = listener.first.pop(0) if listener.first else int(last) if last.isdigit() else 204
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{listener.url}/redirected")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """Give a port that nobody listens at just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
