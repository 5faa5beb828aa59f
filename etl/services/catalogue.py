"""The services there are, by name: which module opens each of them.

Imports none of them until it is asked for. Read by `etl service`, `etl up` and `etl reload`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module

from etl.config.reading import Config
from etl.services import plans
from etl.services.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How a service is opened, and what the supervisor has to know of it."""

    #: `module:function`; the function takes a `Config` and gives a context manager of a `Service`.
    factory: str
    #: it may hold jobs in hand, which get `stop_grace` when it is asked to stop.
    holds_jobs: bool = False
    #: whether it is to run under `etl up`.
    wanted: Callable[[Config], bool] = lambda _: True


#: name -> entry, in the order in which they are started; they are stopped in the opposite order, so that nothing
#: new begins while what is in hand is finished.
SERVICES = {
    "workers": Entry(factory="etl.services.horses:open", holds_jobs=True),
    "dropbox": Entry(factory="etl.services.dropbox:open"),
    "recorder": Entry(factory="etl.services.recorder:open"),
    "courier": Entry(factory="etl.services.courier:open"),
    "scheduler": Entry(factory="etl.services.scheduler:open", wanted=plans.are_wanted),
    "dashboard": Entry(
        factory="etl.web.dashboard:open", wanted=lambda config: config.settings.dashboard is not None
    ),
}


def wanted(config: Config) -> dict[str, Entry]:
    """Give the services that are to run together, in the order of their start."""
    return {name: entry for name, entry in SERVICES.items() if entry.wanted(config)}


def opened(name: str, config: Config) -> AbstractContextManager[Service]:
    """Open a service by name for as long as the context lasts."""
    module, _, function = SERVICES[name].factory.partition(":")
    factory: Callable[[Config], AbstractContextManager[Service]] = getattr(import_module(module), function)
    return factory(config)
