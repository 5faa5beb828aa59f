"""The calendar: tells once of each expected file that is missing, late, empty, small, doubled or has another header.

1. A finding is put among the news first, then into the record: killed in between, the same line is put again.
2. One calendar tells of a pipeline at a time. 3. What lies before an expectation was first looked at is not told.
Sends nothing, needs no recorder and no Redis. Given its turns by the courier.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date

from etl.app import App
from etl.config.expecting import Expectation
from etl.config.reading import PipelineConfig
from etl.errors import EtlError
from etl.files import expected, names, news
from etl.files.expected import Record
from etl.files.news import News
from etl.model import Urgency
from etl.services import came, expectations
from etl.services.came import Notes
from etl.services.expectations import Finding

log = logging.getLogger(__name__)

#: seconds between two looks, and at most where a look takes long.
EVERY, LONGEST = 10.0, 60.0
#: seconds after the start in which nothing is called missing that was due before: it may be on its way in.
GRACE = 60.0
#: seconds after its hour for which a file that did not come is still told as missing.
STALE = 3 * 86_400.0
#: nanoseconds of which a restart may look through the notes once more.
_AGAIN_NS = 3_600_000_000_000

#: findings whose one word says too little at the head of a mail.
_KINDS = {"small": "unusually small", "header": "changed header"}
_NEXT = {
    "missing": "ask {who}; see: etl files {pipeline} --today",
    "late": "nothing, if it is whole; see: etl files {pipeline} --today",
    "empty": "ask {who} for the whole file",
    "small": "ask {who} whether that is all of it",
    "duplicate": "ask {who} whether another file was meant; see: etl show {about}",
    "header": "compare it with `transform:` of {pipeline}; see: etl show {about}",
}


class Calendar:
    """What the courier has a turn of now and then."""

    def __init__(self, app: App, clock: Callable[[], float]) -> None:
        self._app = app
        self._clock = clock
        self._begun = clock()
        self._due = 0.0
        self._notes: dict[str, Notes] = {}

    def turn(self) -> None:
        """Look at what is expected, if it is time to; whatever is in the way is told and tried again."""
        now = self._clock()
        if now < self._due <= now + LONGEST:
            return
        self._due, begun = now + EVERY, time.monotonic()
        for name, pipeline in self._app.config.pipelines.items():
            if pipeline.spec.expect:
                try:
                    self._look(pipeline, now)
                except (EtlError, OSError) as error:
                    # what was not told is found anew
                    self._notes.pop(name, None)
                    log.warning("%s: %s", name, error, extra={"event": "calendar_failed"})
                except (
                    Exception
                ):  # the edge: it keeps no other pipeline, and nothing that is to be sent, waiting
                    self._notes.pop(name, None)
                    log.exception(
                        "%s: what is expected is not looked at", name, extra={"event": "calendar_failed"}
                    )
        # where much comes, never more than a tenth of the time
        self._due = max(self._due, min(now + LONGEST, now + 10 * (time.monotonic() - begun)))

    def _look(self, pipeline: PipelineConfig, now: float) -> None:
        lock = expected.lock(self._app.layout, pipeline.name)
        if lock is None:
            return
        with lock:
            known = {
                one.key: expected.read(self._app.layout, pipeline.name, one.key)
                for one in pipeline.spec.expect
            }
            # first: one that is taken in between has its note by then
            waits = {one.key: self._waits(pipeline, one, known[one.key], now) for one in pipeline.spec.expect}
            seen = self._notes.setdefault(pipeline.name, Notes(self._app.layout, pipeline.name))
            looked = [record.looked for record in known.values() if record is not None]
            new = seen.new(min(looked, default=None), now, history=len(looked) < len(known))
            for one in pipeline.spec.expect:
                record = known[one.key] or Record(name=one.name, by=str(one.by), since=now)
                after, found = expectations.brought_up(self._app.layout, pipeline.name, one, record, new)
                after, missing = self._missing(one, after, waits[one.key], now)
                self._tell(pipeline, one, [*found, *missing], now)
                after = replace(after, looked=max(after.looked, seen.looked))
                if known[one.key] is None or _differs(after, record):
                    expected.write(self._app.layout, pipeline.name, one.key, after)

    def _open(self, one: Expectation, record: Record | None, now: float) -> list[date]:
        """Give the days whose hour has passed, on which nothing came, and of which nothing was told."""
        if record is None:
            return []
        return [
            day
            for day in one.due_between(max(record.since, now - STALE), now)
            if day.isoformat() not in (*record.came, *record.missing)
            if one.due(day) > self._begun or now - self._begun >= GRACE
        ]

    def _waits(
        self, pipeline: PipelineConfig, one: Expectation, record: Record | None, now: float
    ) -> set[date]:
        """Give the days for which a file lies there that nobody has taken yet; asked only where that matters."""
        if not self._open(one, record, now):
            return set()
        return {one.day_of(at) for at in came.waiting(self._app.layout, pipeline, one)}

    def _missing(
        self, one: Expectation, record: Record, waits: set[date], now: float
    ) -> tuple[Record, list[Finding]]:
        """Find the days whose hour has passed and for which nothing came or waits."""
        days = [day for day in self._open(one, record, now) if day not in waits]
        for day in days:
            record = record.without(day.isoformat())
        return record, [expectations.missed(one, day) for day in days]

    def _tell(self, pipeline: PipelineConfig, one: Expectation, found: Iterable[Finding], now: float) -> None:
        about = pipeline.spec.about
        for finding in found:
            who = about.contact or about.owner or "the sender"
            to_do = _NEXT[finding.kind].format(who=who, pipeline=pipeline.name, about=finding.about)
            line = News(
                pipeline=pipeline.name,
                key=f"expected/{one.name}/{finding.about}/{finding.kind}",
                kind=_KINDS.get(finding.kind, finding.kind),
                text=finding.text,
                next=names.printable(to_do),
                urgency=Urgency.INFO if finding.kind == "late" else Urgency.MORNING,
                at=now,
            )
            news.put(self._app.layout, line)
            log.warning("%s: %s", pipeline.name, finding.text, extra={"event": f"expected_{finding.kind}"})


def _differs(after: Record, before: Record) -> bool:
    """Tell whether a record is worth writing: for a later look alone it is not."""
    return replace(after, looked=before.looked) != before or after.looked - before.looked > _AGAIN_NS
