"""How telling somebody ended: the value that posts and mails give back.

Holds values only. Made by its siblings, recorded by the courier.
"""

from __future__ import annotations

from dataclasses import dataclass

#: the words for it, as they stand in verdict notes and the ledger; `waiting` is tried again, the others are the end.
TOLD, REFUSED, FAILED, WAITING = "told", "refused", "failed", "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one try."""

    state: str
    #: what happened and, where somebody can do something about it, what to do.
    said: str = ""
    #: a host, a pipeline or people; never a whole URL, which may carry a secret.
    target: str = ""
