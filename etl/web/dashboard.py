"""The dashboard: rq-dashboard behind our password, at an address of this machine.

Reads Redis and changes no file. Costs little until somebody looks: what shows the pages is imported and connected with
the first request. A service; `etl status --services` tells where it is.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from waitress.server import create_server
from waitress.wasyncore import close_all, loop

from etl.config.operating import Dashboard as Written
from etl.config.reading import Config
from etl.errors import ConfigError, EtlError, Unavailable
from etl.files.layout import Layout
from etl.queues import connection
from etl.services import whereabouts
from etl.web import auth
from etl.web.auth import Application, Begin, Environment

log = logging.getLogger(__name__)

#: threads that answer; seconds after which a silent browser is dropped; bytes of a request at most.
THREADS, SILENT, LONGEST = 8, 30, 32_768
#: seconds between two looks of the loop at whether it is to end, and that its end is waited for.
_LOOK_EVERY, _STOP_WITHIN = 1.0, 5.0


@contextmanager
def open(config: Config) -> Iterator[Dashboard]:  # noqa: A001
    """Begin to listen, for as long as the context lasts."""
    written = config.settings.dashboard
    if written is None:
        raise ConfigError(
            "the dashboard is `off` in settings.yaml", next="write for example: dashboard: 127.0.0.1:9181"
        )
    with _listening(written) as listener:
        yield Dashboard(config, written, listener)


class Dashboard:
    """A service; see `service.Service`. Answers in threads of its own."""

    name = "dashboard"

    def __init__(self, config: Config, written: Written, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        self._pages = _Pages(config)
        guarded = auth.Guarded(
            application=self._pages,
            password=auth.password(Layout(config.data), written),
            hosts=frozenset(
                name.lower() for name in (*written.hosts, written.at.rpartition(":")[0].strip("[]"))
            ),
        )
        self._server: Any = create_server(
            guarded,
            sockets=[listener],
            threads=THREADS,
            ident="rq-etl",
            channel_timeout=SILENT,
            max_request_header_size=LONGEST,
            max_request_body_size=LONGEST,
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        whereabouts.tell(config.data, self.name, os.getpid(), self.address)
        where = "settings.yaml" if written.password else auth.password_path(Layout(config.data))
        log.info(
            "listens at %s; user %s, its password is in %s",
            *(self.address, auth.USER, where),
            extra={"event": "dashboard"},
        )

    def turn(self) -> float:
        """Do nothing: requests are answered as they come."""
        return 60.0

    def close(self) -> None:
        """Answer nobody any more."""
        self._over.set()
        self._server.pull_trigger()
        self._thread.join(_STOP_WITHIN)
        self._pages.close()

    def _serve(self) -> None:
        # the server's own map: a second server in this process is none of our business
        sockets = self._server._map
        while not self._over.is_set():
            loop(timeout=_LOOK_EVERY, map=sockets, count=1)
        self._server.task_dispatcher.shutdown()
        close_all(sockets)


class _Pages:
    """The pages, made with the first request."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._made: Application | None = None

    def __call__(self, environment: Environment, begin: Begin) -> Iterable[bytes]:
        try:
            with self._lock:
                made = self._made = self._made or self._make()
        except EtlError as error:
            begin("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{error}\n".encode()]
        return made(environment, begin)

    def _make(self) -> Application:
        from etl.web import pages

        settings = self._config.settings
        return pages.make(self._stack.enter_context(connection.connect(settings.redis, self._config.data)))

    def close(self) -> None:
        with self._lock:
            self._stack.close()


@contextmanager
def _listening(written: Written) -> Iterator[socket.socket]:
    """Bind where the operator said; where that port is taken or not for us, to any other."""
    host, _, port = written.at.rpartition(":")
    host = host.strip("[]")
    if not auth.is_loopback(host):
        log.warning(
            "listens at %s, where others can reach it: put a server with TLS before it, or its password can be read",
            host,
            extra={"event": "dashboard_open"},
        )
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        try:
            listener = socket.create_server((host, int(port)), family=family)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            listener = socket.create_server((host, 0), family=family)
            log.warning("port %s is taken; listens at another", port, extra={"event": "dashboard_port"})
    except OSError as error:
        raise Unavailable(
            f"the dashboard cannot listen at {written.at}: {error.strerror or error}",
            next="correct `dashboard:` in settings.yaml, or write: dashboard: off",
        ) from error
    with listener:
        yield listener
