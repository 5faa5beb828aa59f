"""Posts: one signed POST to one target, and what its answer means.

Follows no redirect, asks no proxy, reads no body, and connects to the addresses it is given and no others. Tries once:
whoever calls it knows when to try again. Called for callbacks and `post` hooks.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus

import httpx

from etl.notify import answer
from etl.notify.addresses import Target
from etl.notify.answer import Answer

#: seconds for each step of a request: connect, send, hear.
TIMEOUT = 10.0
#: answers that say "later" though they begin with 4.
_LATER = frozenset({408, 425, 429})


def signature(secret: bytes, body: bytes, now: float) -> str:
    """Sign a body together with the time, so that an old request cannot be sent again by another."""
    moment = int(now)
    digest = hmac.new(secret, f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


class Poster:
    """Sends posts over one client, which is opened with the first."""

    def __init__(self, secret: bytes, transport: httpx.BaseTransport | None = None) -> None:
        self._secret = secret
        self._transport = transport
        self._opened: httpx.Client | None = None

    def send(self, target: Target, body: bytes, key: str) -> Answer:
        """Post a body under an idempotency key, and give what came of it."""
        headers = {
            "Host": target.authority,
            "Content-Type": "application/json",
            "User-Agent": "rq-etl",
            "Idempotency-Key": key,
            "X-Etl-Signature": signature(self._secret, body, time.time()),
        }
        try:
            return _meaning(self._posted(target, body, headers), target.host)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # the words of the library may hold the URL
            said = f"{target.host} did not answer: {type(error).__name__}"
            return Answer(state=answer.WAITING, said=said, target=target.host)

    def _posted(self, target: Target, body: bytes, headers: Mapping[str, str]) -> int:
        """Post to the first address that can be connected to, and give the status of its answer."""
        sni = {"sni_hostname": target.host} if target.scheme == "https" else {}
        for last, address in reversed(list(enumerate(reversed(target.addresses)))):
            try:
                with self._client().stream(
                    "POST", target.url(address), content=body, headers=dict(headers), extensions=sni
                ) as response:
                    return response.status_code
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if last == 0:
                    raise
        raise httpx.ConnectError("no address")

    def _client(self) -> httpx.Client:
        if self._opened is None:
            # it would log every URL as a whole, and a producer's may carry a secret
            logging.getLogger("httpx").setLevel(logging.WARNING)
            logging.getLogger("httpcore").setLevel(logging.WARNING)
            self._opened = httpx.Client(
                trust_env=False, follow_redirects=False, timeout=TIMEOUT, transport=self._transport
            )
        return self._opened

    def close(self) -> None:
        """Close what was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _meaning(status: int, host: str) -> Answer:
    try:
        said = f"{host} answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = f"{host} answered {status}"
    if 200 <= status < 300:
        return Answer(state=answer.TOLD, said=said, target=host)
    if 300 <= status < 400:
        return Answer(
            state=answer.REFUSED, said=f"{said}; redirects are not followed: name the last URL", target=host
        )
    final = 400 <= status < 500 and status not in _LATER
    return Answer(state=answer.FAILED if final else answer.WAITING, said=said, target=host)
