"""Those who are told, for tests: a real HTTP server and a real SMTP server that keep what they get."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
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


@dataclass(slots=True)
class Inbox:
    """What a mail server took: the mails, and to whom each was really sent."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    sent_to: list[list[str]] = field(default_factory=list)
    #: seconds that it takes over each mail.
    slow: float = 0.0
    #: what it answers instead of taking a mail.
    refuses: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        return {"smtp": f"smtp://127.0.0.1:{self.port}", "from": "etl@example.com", "to": ["ops@example.com"]}

    def texts(self) -> list[str]:
        """Give the plain text of each mail."""
        return [body(one, "plain") for one in self.mails]

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.slow:
            await asyncio.sleep(self.slow)
        if self.refuses:
            return self.refuses
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        self.sent_to.append(list(envelope.rcpt_tos))
        return "250 OK"


def body(mail: EmailMessage, kind: str) -> str:
    """Give one of the two forms of a mail."""
    part = mail.get_body((kind,))
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


@contextmanager
def mailing(inbox: Inbox, **options: Any) -> Iterator[Inbox]:
    """Take mails at the inbox's port until the context ends."""
    from aiosmtpd.controller import Controller

    controller = Controller(inbox, hostname="127.0.0.1", port=inbox.port, **options)
    controller.start()
    try:
        yield inbox
    finally:
        controller.stop()


def free_port() -> int:
    """Give a port that nobody listens at just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
