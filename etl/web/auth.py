"""Who gets in: every request is checked here before anything behind it sees it.

1. It was meant for us: the Host is one of our names, so that no foreign name can be pointed at us. 2. The password is
right. 3. What changes something comes from our own pages, with a token of ours. Shows nothing itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from etl import disk
from etl.config.operating import SHORTEST, Dashboard
from etl.errors import ConfigError
from etl.files.layout import Layout
from etl.points import Point

#: what WSGI hands over: the environment, a way to begin the answer, the answer itself.
Environment = dict[str, Any]
Begin = Callable[..., Any]
Application = Callable[[Environment, Begin], Iterable[bytes]]

USER = "etl"
_COOKIE = "etl_token"
_LOOKS = frozenset({"GET", "HEAD"})
#: bytes of a body that a page of ours may send.
_LONGEST_BODY = 10_000
#: what a browser may do with our pages; rq-dashboard needs scripts and templates in the page itself.
_HEADERS = (
    ("Content-Security-Policy", "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
     "style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
     "form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)  # fmt: skip


def password_path(layout: Layout) -> Path:
    """Where the password lies that is made when the operator gives none."""
    return layout.own / "web.password"


def password(layout: Layout, written: Dashboard) -> str:
    """Give the password: the operator's, else one that is made once, readable for us alone."""
    if written.password is not None:
        return written.password.get_secret_value()
    disk.make_folder(layout.own)
    path = password_path(layout)
    if not path.exists():
        with disk.wait_for_lock(layout.own / "web.password.lock"):
            if not path.exists():
                disk.write_private(path, secrets.token_urlsafe(18).encode() + b"\n", Point.DASHBOARD)
    told = path.read_text().strip()
    if len(told) < SHORTEST:
        raise ConfigError(
            f"{path} holds no password of {SHORTEST} characters", next="remove it, and one is made"
        )
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A WSGI application behind the checks."""

    application: Application
    password: str = field(repr=False)
    #: names under which it may be asked for, besides addresses and names of this machine's loopback.
    hosts: frozenset[str] = frozenset()

    def __call__(self, environment: Environment, begin: Begin) -> Iterable[bytes]:
        """Answer one request, or refuse it."""
        if not self._is_meant(environment.get("HTTP_HOST", "")):
            return _refuse(
                begin, "421 Misdirected Request", "this name is not one of ours; see `dashboard.hosts`"
            )
        if not self._is_known(environment.get("HTTP_AUTHORIZATION", "")):
            realm = ("WWW-Authenticate", 'Basic realm="rq-etl", charset="UTF-8"')
            return _refuse(begin, "401 Unauthorized", "user etl; see `etl status --services`", realm)
        if environment["REQUEST_METHOD"] not in _LOOKS and (why := self._is_foreign(environment)):
            return _refuse(begin, "403 Forbidden", why)
        return self.application(environment, self._with_headers(begin))

    def _is_meant(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return name in self.hosts or is_loopback(name)

    def _is_known(self, header: str) -> bool:
        kind, _, encoded = header.partition(" ")
        try:
            told = base64.b64decode(encoded.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        # both are compared in full, so that the time it takes tells nothing
        right = hmac.compare_digest(told, f"{USER}:{self.password}".encode())
        return right and kind.lower() == "basic"

    def _is_foreign(self, environment: Mapping[str, Any]) -> str:
        """Say why something that changes is not taken; "" when it comes from a page of ours."""
        if (
            environment["REQUEST_METHOD"] != "POST"
            or int(environment.get("CONTENT_LENGTH") or 0) > _LONGEST_BODY
        ):
            return "only a short POST changes anything here"
        told = environment.get("HTTP_ORIGIN") or environment.get("HTTP_REFERER", "")
        if (
            _host(told) != environment.get("HTTP_HOST", "")
            or environment.get("HTTP_SEC_FETCH_SITE", "same-origin") != "same-origin"
        ):
            return "it does not come from a page of this dashboard"
        if not hmac.compare_digest(_cookie(environment).encode(), self._token.encode()):
            return "its token is not ours; load the page again"
        return ""

    @property
    def _token(self) -> str:
        return hmac.new(self.password.encode(), b"etl dashboard token", hashlib.sha256).hexdigest()

    def _with_headers(self, begin: Begin) -> Begin:
        cookie = f"{_COOKIE}={self._token}; Path=/; HttpOnly; SameSite=Strict"

        def guarded(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            ours = {name for name, _ in _HEADERS}
            kept = [one for one in headers if one[0].title() not in ours]
            return begin(status, [*kept, *_HEADERS, ("Set-Cookie", cookie)], *rest)

        return guarded


def is_loopback(name: str) -> bool:
    """Tell whether a name or address means this machine and nobody else can reach it."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _cookie(environment: Mapping[str, Any]) -> str:
    try:
        found = SimpleCookie(environment.get("HTTP_COOKIE", "")).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _refuse(begin: Begin, status: str, why: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    body = f"{status}: {why}\n".encode()
    begin(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))),
                   *headers, *_HEADERS])  # fmt: skip
    return [body]
