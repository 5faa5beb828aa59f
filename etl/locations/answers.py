"""What a database's error means: it is away, it asks for another try, a unit is wrong, or it says no to all.

Only reads errors; never talks to a database and never repeats a statement, its parameters or a password.
Called by the sql location wherever the database answers with an exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from etl import errors

#: what writing units can raise because of a unit: the driver's errors, and values Python could not convert.
UNIT_ERRORS = (SQLAlchemyError, ValueError, TypeError, OverflowError)
#: characters of a database's message that are kept.
LONGEST_CAUSE = 300


class Answer(Enum):
    """The four things an error can mean."""

    AWAY = auto()
    LATER = auto()
    UNIT = auto()
    NO = auto()


class CopyError(SQLAlchemyError):
    """The driver's error from a COPY, which SQLAlchemy does not see and so does not wrap."""

    def __init__(self, orig: Exception) -> None:
        super().__init__(str(orig))
        self.orig = orig


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why some unit of a slice was refused, and which, where the database tells."""

    cause: str
    field: str | None = None
    #: index in the slice.
    at: int | None = None


#: SQLSTATE codes and classes, the longer one first. Codes are PostgreSQL's, classes the standard's.
_BY_SQLSTATE = {
    "25006": Answer.AWAY,  # a read-only standby answers after a failover
    # somebody has to put the database right and nobody has to touch the file: disk full, too many connections
    "53100": Answer.AWAY,
    "53300": Answer.AWAY,
    "57P01": Answer.AWAY,
    "57P02": Answer.AWAY,
    "57P03": Answer.AWAY,
    "08": Answer.AWAY,
    "28": Answer.AWAY,
    "40": Answer.LATER,  # serialization failure, deadlock
    "53": Answer.LATER,  # out of memory
    "55P03": Answer.LATER,  # lock timeout
    "57": Answer.LATER,  # statement cancelled
    "58": Answer.LATER,
    "22": Answer.UNIT,
    "23": Answer.UNIT,
    "44": Answer.UNIT,  # WITH CHECK OPTION of a view
    "P0001": Answer.UNIT,  # RAISE in a trigger
}
#: beginnings of SQLite's error names.
_BY_SQLITE_NAME = {
    "SQLITE_BUSY": Answer.LATER,
    "SQLITE_LOCKED": Answer.LATER,
    "SQLITE_FULL": Answer.AWAY,
    "SQLITE_NOMEM": Answer.LATER,
    "SQLITE_SCHEMA": Answer.LATER,
    "SQLITE_CANTOPEN": Answer.AWAY,
    "SQLITE_IOERR": Answer.AWAY,
    "SQLITE_CONSTRAINT": Answer.UNIT,
    "SQLITE_MISMATCH": Answer.UNIT,
    "SQLITE_TOOBIG": Answer.UNIT,
}
#: where a driver gives no code: the classes every Python database driver has.
_BY_CLASS = {
    "IntegrityError": Answer.UNIT,
    "DataError": Answer.UNIT,
    "OperationalError": Answer.LATER,
    "InternalError": Answer.LATER,
    "InterfaceError": Answer.AWAY,
    "ProgrammingError": Answer.NO,
}


def answer(error: Exception) -> Answer:
    """Say what `error` means."""
    original = getattr(error, "orig", None) or error
    if getattr(error, "connection_invalidated", False):
        return Answer.AWAY
    if code := getattr(original, "sqlstate", None):
        return _BY_SQLSTATE.get(code) or _BY_SQLSTATE.get(code[:2], Answer.NO)
    if name := getattr(original, "sqlite_errorname", None):
        return next((found for start, found in _BY_SQLITE_NAME.items() if name.startswith(start)), Answer.NO)
    return _without_code(original)


def _without_code(original: Exception) -> Answer:
    """Judge an error that never reached the database: it was raised by the driver or by a conversion."""
    driver = type(original).__module__.partition(".")[0]
    kind = type(original).__name__
    if driver == "psycopg":
        return (
            Answer.AWAY
            if kind in ("OperationalError", "InterfaceError", "ConnectionTimeout")
            else Answer.UNIT
        )
    if driver == "sqlite3":
        return Answer.UNIT if kind in ("ProgrammingError", "InterfaceError", "DataError") else Answer.NO
    if isinstance(original, ValueError | TypeError | OverflowError):
        return Answer.UNIT
    return _BY_CLASS.get(kind, Answer.NO)


_COPY_LINE = re.compile(r"COPY .*?, line (\d+)(?:, column ([^:\n]+))?")
_SQLITE_COLUMN = re.compile(r"(?:NOT NULL|UNIQUE) constraint failed: (?:[^,]*\.)?([^.,]+)$")


def refusal(error: Exception, secret: str = "") -> Refusal | None:
    """Give what is known of a refused unit, or None when the error is not about units."""
    if answer(error) is not Answer.UNIT:
        return None
    original = getattr(error, "orig", None) or error
    cause = message(error, secret)
    details: Any = getattr(original, "diag", None)
    if details is None:
        column = _SQLITE_COLUMN.search(cause)
        return Refusal(cause=cause, field=column[1] if column else None)
    place = _COPY_LINE.search(details.context or "")
    return Refusal(
        cause=cause,
        field=details.column_name or (place[2] if place else None),
        at=int(place[1]) - 1 if place else None,
    )


def message(error: Exception, secret: str = "") -> str:
    """Give the first line of what the database said, without the statement and without `secret`."""
    original = getattr(error, "orig", None) or error
    details: Any = getattr(original, "diag", None)
    text = (details and details.message_primary) or str(original) or type(original).__name__
    text = text.strip().splitlines()[0]
    if secret:
        text = text.replace(secret, "***")
    return text if len(text) <= LONGEST_CAUSE else text[: LONGEST_CAUSE - 1] + "…"


def whole(error: Exception, where: str, secret: str = "") -> errors.EtlError:
    """Turn an error that concerns the whole unit file into ours: away, try again, or no."""
    said = message(error, secret)
    match answer(error):
        case Answer.AWAY:
            return errors.Away(
                f"{where} cannot be reached: {said}",
                next="Check that the database is up and that `url` is right; nothing was written",
            )
        case Answer.LATER:
            return errors.Retryable(f"{where} asks to be tried again: {said}", next="It will be tried again")
        case Answer.UNIT | Answer.NO:
            return errors.Refused(
                f"{where} refuses: {said}",
                next="Look at the table, its columns and rights, or ask `etl check`, and move the file back",
            )
