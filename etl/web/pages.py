"""rq-dashboard's pages, as far as they are safe: paths that only look, and what changes by POST alone.

It reads Redis through our own classes, so that nothing in there is unpickled or called; what it shows of it can be no
markup. Knows nothing of passwords: `auth` stands before it. Imported with the first request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import flask
from rq_dashboard import web

from etl.queues import browsing
from etl.web.auth import Application, Begin, Environment

_WORD = r"[A-Za-z0-9_.:@-]{1,200}"
_REGISTRY = r"(?:queued|scheduled|deferred|started|finished|failed|canceled)"
_PAGE = rf"{_WORD}/{_REGISTRY}/[1-9]\d{{0,2}}/(?:asc|dsc)/[1-9]\d{{0,5}}"
#: all that may be looked at: names in paths end up in scripts unescaped, so that no others get there.
_LOOKS = re.compile(
    rf"/|/0/(?:view(?:/(?:queues|workers|jobs|jobs/{_PAGE}|job/{_WORD}))?)?"
    rf"|/0/data/(?:queues|workers|jobs/{_PAGE}|job/{_WORD})\.json"
    r"|/favicon\.ico|/static/(?:css|js)/[\w-][\w.-]*"
)
#: all that may be changed: jobs in Redis, which the folders make anew.
_CHANGES = re.compile(
    rf"/job/{_WORD}/(?:delete|requeue)|/requeue/{_WORD}|/queue/{_WORD}/(?:{_REGISTRY}/empty|compact)"
)
#: what begins or ends markup, and what is shown instead.
_MARKUP = str.maketrans({"<": "‹", ">": "›", '"': "”", "'": "’", "`": "‘"})  # noqa: RUF001 - alike is what they are to be


def make(client: browsing.Connection) -> Application:
    """Give the pages over a connection to Redis."""
    web.Job, web.Queue, web.Worker = browsing.Job, browsing.Queue, browsing.Worker
    web.requeue_job = browsing.requeue
    web.from_url = lambda *_, **__: ("", client)
    application = flask.Flask("rq_dashboard")
    application.config["RQ_DASHBOARD_REDIS_URL"] = ("the Redis of rq-etl",)
    application.config["RQ_DASHBOARD_JSON_SERIALIZER"] = True
    web.config.serializer = browsing.JSON
    application.redis_conn = client  # type: ignore[attr-defined]
    application.register_blueprint(web.blueprint)
    application.after_request(_without_markup)
    application.register_error_handler(browsing.NoSuchJob, lambda _: ("there is no such job any more\n", 404))
    application.register_error_handler(browsing.NoAnswer, lambda _: ("Redis does not answer\n", 503))
    return _Allowed(application)


class _Allowed:
    """Lets through what is known to be harmless, and nothing else."""

    def __init__(self, application: flask.Flask) -> None:
        self._application = application

    def __call__(self, environment: Environment, begin: Begin) -> Iterable[bytes]:
        looks = environment["REQUEST_METHOD"] in ("GET", "HEAD")
        allowed = _LOOKS if looks else _CHANGES
        if allowed.fullmatch(environment.get("PATH_INFO", "")):
            return self._application(environment, begin)
        begin("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "28")])
        return [b"there is no such page here.\n"]


def _without_markup(response: flask.Response) -> flask.Response:
    if response.is_json:
        response.set_data(json.dumps(_shown(response.get_json())))
    return response


def _shown(value: Any) -> Any:
    """Give a value in which no text can be markup: the pages put some of it in as it is."""
    if isinstance(value, str):
        return value.translate(_MARKUP)
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {_shown(key): _shown(one) for key, one in value.items()}
    return value
