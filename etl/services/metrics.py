"""Metrics for Prometheus: what lies where, what was done, which services run. Served by the supervisor.

Counts when it is asked, in a thread of its own, and changes nothing; with no ledger, what only the ledger knows is
not given. A port that is taken is told and stops nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from etl.config.reading import Config
from etl.errors import EtlError
from etl.files import away, paused, survey
from etl.files import layout as layouts
from etl.files.layout import Layout
from etl.ledger import opening, queries
from etl.ledger.rows import Total
from etl.model import Place, Stage, Status
from etl.services import records

log = logging.getLogger(__name__)

#: seconds for which an answer in hand is waited for at the end.
_STOP_WITHIN = 2.0
_PLACE = ("pipeline", "stage", "location")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One status folder: how many files lie there, and for how many seconds the oldest of them has."""

    place: Place
    status: Status
    files: int
    oldest: float | None = None


class Collector:
    """Gives every metric as it is at that moment."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._layout = Layout(config.data)

    def collect(self) -> Iterator[Metric]:
        """Give all metrics; what cannot be asked is left out, and told."""
        for part in (self._files, self._places, self._services, self._disk, self._done):
            try:
                yield from list(part())
            except (EtlError, OSError) as error:
                log.warning("some metrics are not given: %s", error, extra={"event": "no_metrics"})

    def _files(self) -> Iterator[Metric]:
        files = GaugeMetricFamily("etl_files", "Files in a status folder.", labels=(*_PLACE, "status"))
        oldest = GaugeMetricFamily(
            "etl_oldest_waiting_seconds", "How long the oldest waiting file has waited.", labels=_PLACE
        )
        for one in self._counted():
            files.add_metric([*_labels(one.place), one.status], one.files)
            if one.status is Status.WORKING:
                oldest.add_metric(_labels(one.place), one.oldest or 0.0)
        return iter((files, oldest))

    def _counted(self) -> Iterable[Counted]:
        if any(one.name == "recorder" for one in records.living(self._config.data)):
            try:
                known = _counted_by_ledger(self._config, self._layout)
            except EtlError as error:  # it is being made, or away: the folders know
                log.debug("%s", error)
            else:
                return [
                    known.get((place, status)) or Counted(place=place, status=status, files=0)
                    for place in self._all_places()
                    for status in Status
                ]
        return self._counted_in_folders()

    def _counted_in_folders(self) -> Iterator[Counted]:
        for place in self._all_places():
            complete = self._config.pipelines[place.pipeline].spec.extract.complete
            for status in Status:
                count = survey.count(self._layout, place, status, survey.done_pattern(place, complete.done))
                yield Counted(place=place, status=status, files=count.files, oldest=survey.age(count.oldest))

    def _all_places(self) -> Iterator[Place]:
        for name, pipeline in self._config.pipelines.items():
            yield from layouts.places(name, pipeline.spec.load.locations)

    def _places(self) -> Iterator[Metric]:
        gone = GaugeMetricFamily("etl_location_away", "1 while a location is away.", labels=_PLACE)
        stopped = GaugeMetricFamily("etl_paused", "1 while an operator paused a place.", labels=_PLACE)
        for place in self._all_places():
            if place.location and place.location != layouts.REQUESTS:
                gone.add_metric(_labels(place), float(away.read(self._layout, place) is not None))
            stopped.add_metric(_labels(place), float(paused.of_place(self._layout, place) is not None))
        return iter((gone, stopped))

    def _services(self) -> Iterator[Metric]:
        labels = ("service", "host")
        up = GaugeMetricFamily("etl_service_up", "How many of a service run on a host.", labels=labels)
        restarts = CounterMetricFamily(
            "etl_service_restarts", "How often a service that runs was started again.", labels=labels
        )
        living = records.living(self._config.data)
        for key in sorted({(one.name, one.host) for one in living}):
            same = [one for one in living if (one.name, one.host) == key]
            up.add_metric(key, len(same))
            restarts.add_metric(key, sum(one.restarts for one in same))
        return iter((up, restarts))

    def _disk(self) -> Iterator[Metric]:
        facts = os.statvfs(self._config.data)
        free = GaugeMetricFamily("etl_disk_free_bytes", "Bytes that are free where the data lies.")
        free.add_metric([], facts.f_bavail * facts.f_frsize)
        yield free

    def _done(self) -> Iterator[Metric]:
        """Give what only the ledger knows."""
        by = (*_PLACE, "outcome")
        ended = CounterMetricFamily("etl_attempts", "Attempts that ended.", labels=by)
        took = SummaryMetricFamily("etl_attempt_seconds", "How long attempts took.", labels=by)
        rows = CounterMetricFamily("etl_rows", "Rows that were read.", labels=_PLACE)
        units = CounterMetricFamily("etl_units", "Units that were loaded.", labels=_PLACE)
        for one in _totals(self._config, self._layout):
            ended.add_metric([*_labels(one.place), one.outcome], one.jobs)
            took.add_metric([*_labels(one.place), one.outcome], one.jobs, one.seconds)
            if one.outcome == "resolved" and one.place.stage is Stage.TRANSFORM:
                rows.add_metric(_labels(one.place), one.rows)
            if one.outcome == "resolved" and one.place.stage is Stage.LOAD:
                units.add_metric(_labels(one.place), one.count)
        return iter(metric for metric in (ended, took, rows, units) if metric.samples)


def _labels(place: Place) -> list[str]:
    return [place.pipeline, str(place.stage), place.location]


# --- the ledger --------------------------------------------------------------------------------------------


def _totals(config: Config, layout: Layout) -> Sequence[Total]:
    """Give what was done in all; nothing where there is no ledger yet."""
    try:
        ledger = opening.for_reading(config, layout.data_id())
    except EtlError as error:
        log.debug("%s", error)
        return ()
    try:
        with ledger.reading() as connection:
            return queries.totals(connection)
    finally:
        ledger.close()


def _counted_by_ledger(config: Config, layout: Layout) -> dict[tuple[Place, Status], Counted]:
    ledger = opening.for_reading(config, layout.data_id())
    try:
        with ledger.reading() as connection:
            return {
                (one.place, one.status): Counted(
                    place=one.place, status=one.status, files=one.files, oldest=survey.age(one.oldest)
                )
                for one in queries.folders(connection)
            }
    finally:
        ledger.close()


# --- the server --------------------------------------------------------------------------------------------


@contextmanager
def served(config: Config) -> Iterator[None]:
    """Serve the metrics at `settings.metrics` for as long as the context lasts; nothing where it is not written."""
    if config.settings.metrics is None:
        yield
        return
    host, _, port = config.settings.metrics.rpartition(":")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(config))
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, OverflowError) as error:
        log.warning(
            "no metrics are served at %s: %s; write another port in `metrics:` and start again",
            *(config.settings.metrics, error),
            extra={"event": "no_metrics"},
        )
        yield
        return
    log.info("metrics at http://%s:%s/metrics", host, port, extra={"event": "metrics"})
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_STOP_WITHIN)
