"""The road every job takes: claim the file, do the stage's work, and end it in one of three ways.

A stage returns what it did or raises; turning that into a folder, a note and a reason happens here and
nowhere else. Called by `jobs`.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from etl import disk, process
from etl.app import App
from etl.errors import (
    EtlError,
    Final,
    Interrupted,
    NoRoom,
    NotClaimed,
    NotSettled,
    Retryable,
    TimeUp,
    Unavailable,
)
from etl.files import moves, names, outbox
from etl.files.layout import REQUESTS
from etl.files.moves import Claim
from etl.model import (
    Failed,
    Outcome,
    Place,
    PutOff,
    Reason,
    Resolved,
    Skipped,
    Stage,
    Status,
    Urgency,
    Waiting,
)
from etl.stages import (
    capturing,
    endings,
    extract,
    load,
    pauses,
    pull,
    serial,
    telling,
    transform,
    watching,
)

log = logging.getLogger("etl.stages")

Work = Callable[[App, Claim], Resolved]


def perform(app: App, waiting: Waiting) -> Outcome:
    """Work one waiting file to its end. Never raises for anything the file, its content or a location does."""
    work, begun = _work_of(waiting.place), time.monotonic()
    _check_address(app, waiting)
    paused = pauses.why(app, waiting.place)
    if paused and not pauses.may_probe(app, waiting.place):
        name, outcome = waiting.name, _paused(paused)
    else:
        name, outcome = _perform(app, waiting, work)
    _tell(waiting.place, name, outcome, time.monotonic() - begun)
    return outcome


def _paused(why: str) -> Outcome:
    return Skipped(why=f"paused: {why}")


def _perform(app: App, waiting: Waiting, work: Work) -> tuple[str, Outcome]:
    """Claim and work a file; give the name it has now, and how it ended."""
    try:
        with serial.turn(app, waiting), moves.claim(app.layout, waiting, app.announce) as claim:
            app.holds(claim.place, claim.name)
            # asked again: whoever paused it must be able to tell by the folders that nothing more is begun
            if paused := pauses.by_hand(app.layout, claim.place):
                moves.give_back(claim)
                return claim.name, _paused(paused)
            telling.claimed(app, waiting, claim)
            begun = time.monotonic()
            with watching.shown(app, claim), capturing.output(claim) as captured:
                outcome = _ending(app, claim, work)
                captured.end(outcome, time.monotonic() - begun)
            telling.ended(app, claim, outcome, time.monotonic() - begun)
            return claim.name, outcome
    except NotClaimed as why:
        return waiting.name, Skipped(why=str(why))
    except Final as error:  # it cannot even be claimed: a link, a pipe, a damaged note
        return waiting.name, _refuse(app, waiting, endings.reason(app, waiting.place, error))
    except TimeUp as error:  # while it was claimed: a drop is hashed then
        return waiting.name, _refuse(app, waiting, endings.timeout(app, waiting.place, str(error)))
    except OSError as error:
        if error.errno in disk.NO_ROOM:
            return waiting.name, _disk_refused(error)
        if error.errno == errno.EIO:
            raise Unavailable(
                f"{waiting.place}/{names.printable(waiting.name)}: the disk answered: {error}",
                next="check the disk; the file is where it was and is tried again",
            ) from error
        raise


def _refuse(app: App, waiting: Waiting, reason: Reason) -> Outcome:
    """Move what cannot be claimed to `failed/`, unless another was faster."""
    try:
        moves.refuse(app.layout, waiting, reason)
    except NotClaimed as why:
        return Skipped(why=str(why))
    telling.moved(app, waiting.place, waiting.name)
    return Failed(reason=reason)


def _check_address(app: App, waiting: Waiting) -> None:
    """Make sure a job names a configured place and a plain file name; whoever writes to Redis may name anything."""
    if waiting.place not in app.places(waiting.place.pipeline):
        raise Final(
            f"a job names {names.printable(str(waiting.place))!r}, which is no place of this configuration",
            next="nothing was touched; if a location was taken out of the configuration, this is its last echo",
        )
    app.layout.file(waiting.place, Status.WORKING, waiting.name)


def _work_of(place: Place) -> Work:
    if place.location == REQUESTS:
        return pull.work
    return {Stage.EXTRACT: extract.work, Stage.TRANSFORM: transform.work, Stage.LOAD: load.work}[place.stage]


def _ending(app: App, claim: Claim, work: Work) -> Outcome:
    """Do the work and end it in one of the ways; when the disk does not even take the ending, let go of the file."""
    try:
        return _worked(app, claim, work)
    except OSError as error:
        return _let_go(claim, error)


def _worked(app: App, claim: Claim, work: Work) -> Outcome:
    """Do the work and turn whatever it raises into one of the endings."""
    place = claim.place
    try:
        return work(app, claim)
    except NotSettled as why:
        moves.unsettle(claim)
        return Skipped(why=str(why))
    except NotClaimed as why:
        moves.give_back(claim)
        return Skipped(why=str(why))
    except NoRoom as error:
        moves.give_back(claim)
        return Skipped(why=f"paused: {error}")
    except (Retryable, Unavailable) as error:
        return _try_again(app, claim, error)
    except TimeUp as error:
        if not disk.same_file(claim.path, claim.descriptor):
            return Resolved(count=0, said="it was done when its time was up")
        return _fail(claim, endings.timeout(app, place, str(error)))
    except Interrupted:  # P15: Ctrl-C where the job runs in the foreground; the attempt does not count
        with process.undisturbed():
            moves.give_back(claim)
        raise
    except Final as error:
        return _fail(claim, endings.reason(app, place, error))
    except OSError as error:
        if error.errno in disk.NO_ROOM or _committed(claim):
            raise
        return _try_again(
            app, claim, Retryable(f"the disk or network answered: {error}", next="see the cause")
        )
    except (
        Exception
    ) as error:  # the edge: whatever a handler or library throws ends as a reason, not as a crash
        log.exception("%s/%s failed", place, claim.name, extra={"event": "stage_crashed"})
        return _fail(claim, endings.unexpected(app, place, error))


def _committed(claim: Claim) -> bool:
    """Tell whether what the claim's attempt made counts already and only has to be handed out."""
    return any(outbox.pending(claim.layout, claim.place, claim.name))


def _let_go(claim: Claim, error: OSError) -> Skipped:
    """Leave a file as if it had not been claimed, or where its outbox will find it; nothing is written (P24)."""
    with process.undisturbed():
        try:
            committed = _committed(claim)
        except OSError:  # leave it: recovery finds out, when the disk answers again
            committed = True
        if not committed:
            moves.let_go(claim)
    return _disk_refused(error)


def _disk_refused(error: OSError) -> Skipped:
    """End the job of a disk that is full or broken; the file waits, and the next scan tries again."""
    full = error.errno in disk.NO_ROOM
    what = "there is no room on the disk" if full else "the disk does not answer as it should"
    return Skipped(why=f"{what} ({error}); it is tried again by itself", pressing=True)


def _fail(claim: Claim, reason: Reason) -> Failed:
    with process.undisturbed():
        moves.fail(claim, reason)
    return Failed(reason=reason)


def _try_again(app: App, claim: Claim, error: EtlError) -> Failed | PutOff:
    """Back off, or fail when it was tried often enough."""
    retry = app.options(claim.place).retry
    tries = claim.note.tries
    reason = endings.reason(app, claim.place, error)
    if tries >= retry.times:
        return _fail(claim, replace(reason, summary=f"{reason.summary} (tried {tries + 1} times)"))
    not_before = time.time() + endings.delay(retry, tries)
    when = time.strftime("%H:%M:%S", time.localtime(not_before))
    reason = replace(
        reason, urgency=Urgency.INFO, next=f"nothing: it is tried again at {when}. {reason.next}".strip()
    )
    with process.undisturbed():
        moves.put_off(claim, reason, not_before)
    return PutOff(reason=reason, not_before=not_before)


#: what the count of a stage counts.
_COUNTED = {Stage.EXTRACT: "job", Stage.TRANSFORM: "unit file", Stage.LOAD: "unit"}


def _tell(place: Place, name: str, outcome: Outcome, seconds: float) -> None:
    # a name may hold a newline or worse; a log line stays one line
    file = f"{place}/{names.printable(name)}"
    match outcome:
        case Resolved(count=count, said=said):
            what = "file" if place.location == REQUESTS else _COUNTED[place.stage]
            told = f"{count:,} {what}{'' if count == 1 else 's'}" + (f" ({said})" if said else "")
            log.info("%s: resolved, %s in %.2f s", file, told, seconds, extra={"event": "file_resolved"})
        case Failed(reason=reason):
            log.warning("%s: failed: %s", file, reason.summary, extra={"event": "file_failed"})
        case PutOff(reason=reason):
            log.warning("%s: put off: %s", file, reason.summary, extra={"event": "file_put_off"})
        case Skipped(why=why, pressing=pressing):
            # a job too many is normal, and so is one for a place that is paused
            level = logging.WARNING if pressing else logging.DEBUG
            log.log(level, "%s: skipped: %s", file, why, extra={"event": "file_skipped"})
