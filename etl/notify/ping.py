"""Pings: one GET to a URL of the operator's that says "still here", within a time limit.

Follows no redirect, asks no proxy, reads no body; never raises, and never names more than the host: the rest of the
URL is a secret. Called by the heartbeat.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

#: seconds for each step of a ping.
TIMEOUT = 10.0


def ping(url: SecretStr) -> str:
    """Get a URL; give "" when it was heard, else what is wrong."""
    host = urlsplit(url.get_secret_value()).hostname or "the host"
    try:
        with (
            httpx.Client(trust_env=False, follow_redirects=False, timeout=TIMEOUT) as client,
            client.stream("GET", url.get_secret_value(), headers={"User-Agent": "rq-etl"}) as response,
        ):
            status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        # the words of the library may hold the URL
        return f"{host} did not answer: {type(error).__name__}"
    if 200 <= status < 300:
        return ""
    known = {one.value: one.phrase for one in HTTPStatus}
    return f"{host} answered {status} {known.get(status, '')}".rstrip()
