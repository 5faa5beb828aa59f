"""Failures: one failed file as its reason tells it, for the memory of the watch and for the sample in a notice.

Values of rows are left out unless the operator wants them; what a pipeline redacts always is. Reads only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from etl.app import App
from etl.files import causes, names, reasons
from etl.files.noticed import Failure
from etl.model import Place, Urgency
from etl.notify.digest import Sample

#: seconds for which a file may lie there before its reason; later it has none.
LATE = 5.0
#: causes of one file that are taken down, and troubles of a sample that are shown.
MOST_CAUSES, MOST_TROUBLES = 50, 3
#: characters of one line.
LONGEST = 400
_ROWS = re.compile(r"([\d,]{1,20}) of ([\d,]{1,20}) rows held back from ")
#: our own words before those about a value.
_WRONG = re.compile(
    r"[\d,]{1,20} of [\d,]{1,20} rows are wrong and (?:none of them was corrected|nothing would be left of it"
    r"|transform\.bad_rows(?: says to fail|\.at_most is [\d.]{1,9}%))(?=; first at line )"
)
_UNITS = re.compile(r"\w+ refused ([\d,]{1,20}) units of ")


def read(app: App, place: Place, name: str, moved: float, now: float) -> Failure | None:
    """Read why a file failed; None while its reason may still come."""
    facts = _facts(app, place, name)
    if not facts and abs(now - moved) < LATE:
        return None
    held, of = _held(place, name, facts)
    at = str(facts.get("at", ""))
    return Failure(
        name=name,
        stamp=f"{facts.get('attempt', 0)}@{at or moved}",
        # one without a reason is asked again whenever its folder changes
        moved=moved if facts else 0.0,
        at=_moment(at, moved),
        urgency=str(facts.get("urgency", Urgency.MORNING)),
        causes={causes.word(place, cause): shown(cause) for cause in _causes(facts)},
        held=held,
        of=of,
    )


def _facts(app: App, place: Place, name: str) -> dict[str, Any]:
    try:
        return reasons.read(app.layout, place, name)
    except OSError:  # it may not be read; that it failed is told all the same
        return {}


def _causes(facts: Mapping[str, Any]) -> list[str]:
    try:
        return sorted(causes.of(facts))[:MOST_CAUSES]
    except (TypeError, KeyError, AttributeError, ValueError):  # a person may have written it
        return [causes.plain(reasons.summary({}))]


def _moment(at: str, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return otherwise


def _held(place: Place, name: str, facts: Mapping[str, Any]) -> tuple[int, int]:
    """Give how many rows a held-back file holds, and of how many; zeros for a file that failed whole."""
    file = names.parse(place.pipeline, name)
    if file is None or not file.is_held_back:
        return 0, 0
    summary = reasons.summary(facts)
    if rows := _ROWS.match(summary):
        return _number(rows[1]), _number(rows[2])
    if units := _UNITS.match(summary):
        return _number(units[1]), 0
    return 0, 0


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def shown(text: object) -> str:
    """Give a text as one line that may be shown."""
    line = names.printable(" ".join(str(text).split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def sample(app: App, place: Place, name: str) -> Sample:
    """Tell one file of a cause by its reason, as far as it is still there."""
    facts, values = _facts(app, place, name), _shows_values(app, place.pipeline)
    # what is no field's own may hold any field
    keep = values and not app.pipeline(place.pipeline).spec.redact
    held, of = _held(place, name, facts)
    said = reasons.summary(facts) if facts else ""
    if of:
        said = f"{held:,} of {of:,} rows held back"
    elif not keep:
        wrong = _WRONG.match(said)
        said = wrong[0] if wrong else causes.plain(said)  # the first is told among the troubles
    told = facts.get("where", [])
    troubles = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    after = str(facts.get("next", ""))
    return Sample(
        file=shown(name),
        summary=shown(said),
        next=shown(after if keep else causes.plain(after)),
        troubles=tuple(_trouble(app, place.pipeline, one, values) for one in troubles[:MOST_TROUBLES]),
    )


def _trouble(app: App, pipeline: str, one: Mapping[str, Any], values: bool) -> str:
    redacted = app.pipeline(pipeline).spec.redact
    hidden = redacted and one.get("field", "") in ("", *redacted)
    cause = str(one.get("cause", ""))
    where = [f"line {one['line']}"] if "line" in one else []
    where += [str(one["field"])] if "field" in one else []
    said = cause if values and not hidden else causes.plain(cause)
    return shown(f"{', '.join(where)}: {said}" if where else said)


def _shows_values(app: App, pipeline: str) -> bool:
    mail = app.config.settings.mail
    return mail is not None and mail.values and pipeline in app.config.pipelines
