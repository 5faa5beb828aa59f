"""The exception tree. A message says what happened, where, and what to do next; the class says how it ends.

    EtlError
    ├── ConfigError          the operator wrote something we cannot follow          exit 2
    ├── Unavailable          something we need does not answer (Redis, a folder)    exit 2
    │   └── NoRoom           the disk has none left: all wait until there is some
    ├── Paused               an operator paused it, and somebody asks for it to be worked
    ├── NotClaimed           a job found nothing to do; never a failure
    │   ├── AlreadyClaimed
    │   ├── KeyTaken
    │   ├── AwaitsOlder
    │   ├── NotSettled
    │   ├── StillAway
    │   └── Vanished
    ├── Final                trying again changes nothing: the file goes to `failed/`
    │   ├── Expired
    │   ├── Forbidden
    │   ├── InvalidFile
    │   ├── Refused
    │   └── UnsafeName
    └── Retryable            trying again may help: the file backs off, with a cap
        └── Away

    TimeUp                   a BaseException, so that no handler's `except Exception` swallows it
    Interrupted              a KeyboardInterrupt that a person caused, not a handler

Imports the nouns and nothing else. Handlers may raise `Retryable` and `Final` themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from etl.model import Trouble


class EtlError(Exception):
    """Anything rq-etl reports: `summary` says what happened and where, `next` what to do about it."""

    def __init__(self, summary: str, *, next: str = "", where: Sequence[Trouble] = ()) -> None:  # noqa: A002
        super().__init__(summary)
        self.summary = summary
        self.next = next
        self.where = tuple(where)
        #: the recipe under which a file failed, where whoever raises or passes it on knows one.
        self.recipe = ""

    def __str__(self) -> str:
        end = "" if self.summary.endswith(("?", "!", ".")) else "."
        return f"{self.summary}{end} {self.next[0].upper()}{self.next[1:]}" if self.next else self.summary


class ConfigError(EtlError):
    """The configuration cannot be followed; the message names file, line and key."""


class Unavailable(EtlError):
    """Something this command needs does not answer."""


class NoRoom(Unavailable):
    """The disk is full, or would be: nothing was begun, and no file is to blame."""


class Paused(EtlError):
    """An operator paused what is to be worked; nothing was begun."""


class NotClaimed(EtlError):
    """The file was not claimed; whoever asked has nothing to do."""


class AlreadyClaimed(NotClaimed):
    """Another worker has this file, or the outbox of this file."""


class KeyTaken(NotClaimed):
    """Another file with the same `key` is being worked; this one is announced after it."""


class AwaitsOlder(NotClaimed):
    """An older delivery of the same name has to pass first; nothing is counted against the file."""


class NotSettled(NotClaimed):
    """The file is no longer what the job was made for; it waits until it stops changing."""


class StillAway(NotClaimed):
    """The file's only location is away; it goes on waiting, and nothing is counted against it."""


class Vanished(NotClaimed):
    """The file is no longer in `working/`."""


class Final(EtlError):
    """Trying again would end the same way."""


class Expired(Final):
    """A message was not begun in the time its producer gave it."""


class Forbidden(Final):
    """A URL may not be called: it is not on the operator's list, or leads where it must not."""


class InvalidFile(Final):
    """The file itself is wrong: unreadable, ragged, incomplete, or not what was configured."""


class Refused(Final):
    """A location answers no, to the whole unit file."""


class UnsafeName(Final):
    """The name would lead out of its folder or is not a regular file's."""


class Retryable(EtlError):
    """Trying again later may end better."""


class Away(Retryable):
    """A location or source cannot be reached."""


class TimeUp(BaseException):
    """The job's time limit has passed."""


class Interrupted(KeyboardInterrupt):
    """Somebody asked the program to stop: Ctrl-C, or a signal that means the same."""
