"""Judging: the verdict of a delivery, derived from the disk alone and recorded exactly once per change.

1. Nothing is said while anything of the delivery is open; what says the same as the last verdict is no news.
2. What follows a verdict is spooled first, then the verdict is written: that write is the commit. What is spooled of
   a verdict that was never written is not followed.
Sends nothing itself. Called by the recorder for what was touched, and at the end of `etl run`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from etl.app import App
from etl.errors import Final
from etl.files import names, notes, spool, verdicts, walking
from etl.files.deliveries import Delivery
from etl.files.verdicts import Record

log = logging.getLogger(__name__)

#: by verdict: which hooks follow it.
EVENTS = {"resolved": "on_success", "partial": "on_failure", "failed": "on_failure"}
#: the header of a message whose producer wants to be told.
CALLBACK = "callback"


def judge(app: App, pipeline: str, file_id: str) -> Record | None:
    """Record a delivery's verdict and spool what follows; None while anything is open, or when nothing changed."""
    layout = app.layout
    locations = app.pipeline(pipeline).spec.load.locations
    # looked at under the lock: who saw an older state must not have the last word
    with verdicts.lock(layout, pipeline, file_id):
        delivery = walking.find(layout, pipeline, file_id, locations)
        if delivery is None or delivery.verdict == "working":
            return None
        try:
            last = verdicts.read(layout, pipeline, file_id).last
        except Final as error:
            log.warning("%s", error, extra={"event": "verdict_unreadable"})
            return None
        record = _record(app, delivery, last)
        if last is not None and record.same(last):
            return None
        if _is_told(app, delivery, first=last is None):
            for item in _follow_ups(app, delivery, record):
                spool.put(layout, item)
        verdicts.add(layout, pipeline, file_id, record)
    told = f"; {record.said}" if record.said else ""
    given = names.printable(delivery.note.given)
    log.info("%s: %s is %s%s", pipeline, given, record.verdict, told, extra={"event": "verdict"})
    return record


def is_followed(app: App, delivery: Delivery, *, first: bool) -> bool:
    """Tell whether anything would follow the verdict of a delivery, its first or a later one, if it were given now."""
    note, hooks = delivery.note, getattr(app.pipeline(delivery.note.pipeline).spec, EVENTS[delivery.verdict])
    return _is_told(app, delivery, first=first) and bool(hooks or note.headers.get(CALLBACK))


def _is_told(app: App, delivery: Delivery, *, first: bool) -> bool:
    """Tell whether hooks are for this delivery: those of a time before there were verdicts are followed by none."""
    return not first or delivery.note.arrived >= verdicts.since(app.layout)


def _record(app: App, delivery: Delivery, last: Record | None) -> Record:
    record = Record(
        number=last.number + 1 if last else 1,
        verdict=delivery.verdict,
        generation=delivery.generation,
        rows=delivery.rows,
        units=delivery.units,
        held_back=delivery.held_back,
        loaded=dict(delivery.loaded),
        discarded=len(delivery.discarded),
        at=time.time(),
        said="",
    )
    said = "; ".join(_changes(app, delivery, record, last))
    return Record(**{name: getattr(record, name) for name in record.__slots__} | {"said": said})


def _changes(app: App, delivery: Delivery, record: Record, last: Record | None) -> Iterator[str]:
    """Say what changed since the last verdict, and why a delivery will never be whole."""
    if last is not None:
        yield f"{last.verdict} before"
        if record.generation != last.generation:
            yield f"generation {record.generation} took the place of generation {last.generation}"
        elif record.held_back < last.held_back and record.discarded == last.discarded:
            yield f"{last.held_back - record.held_back:,} held back rows were corrected"
        elif record.held_back > last.held_back:
            yield f"{record.held_back - last.held_back:,} more rows are held back"
        elif more := sum(record.loaded.values()) - sum(last.loaded.values()):
            yield f"{more:+,} units loaded"
    if record.discarded > (last.discarded if last else 0):
        because = notes.read_discarded(app.layout, delivery.note.pipeline, delivery.note.id)
        told = dict.fromkeys(because.get(one, "") for one in delivery.discarded)
        yield f"discarded: {', '.join(filter(None, told))}"


def _follow_ups(app: App, delivery: Delivery, record: Record) -> Iterator[spool.Item]:
    """Give what is to follow a verdict: the hooks of its event, and the callback that its producer asked for."""
    note, event = delivery.note, EVENTS[record.verdict]
    hooks = getattr(app.pipeline(note.pipeline).spec, event)
    wanted = [f"{event}-{number}" for number, _ in enumerate(hooks, 1)]
    if note.headers.get(CALLBACK):
        wanted.append(CALLBACK)
    for what in wanted:
        yield spool.Item(
            what=what,
            pipeline=note.pipeline,
            file_id=note.id,
            number=record.number,
            at=record.at,
            payload={"verdict": record.verdict},
        )
