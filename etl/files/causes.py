"""Causes: what failed files have in common once their values are taken out, and the short word for each.

The same text in `etl failed --group`, in the ledger and in notices; its word can be pasted into `etl retry --cause`.
Looks at reasons as they were read; decides nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from etl.files import reasons
from etl.model import Place

#: what differs from file to file: quoted text, what a database says of a key, numbers that stand alone.
_VALUE = re.compile(r"""'[^'\n]*'|"[^"\n]*"|(?<==)\([^()\n]*\)|(?<![\w.-])-?\d[\d.,:]*(?![\w])""")


def of(facts: Mapping[str, Any]) -> set[str]:
    """Give what is wrong with a file, without its lines and values: many files may have that in common."""
    troubles = facts.get("where", [])
    found = {
        f"{trouble['field']}: {plain(str(trouble['cause']))}" for trouble in troubles if "field" in trouble
    }
    # without a field a cause is in somebody else's words, which may differ from row to row: the first will do
    found |= {
        plain(str(trouble["cause"]))
        for trouble in troubles
        if "field" not in trouble and trouble is troubles[0]
    }
    return found or {plain(reasons.summary(facts))}


def plain(text: str) -> str:
    """Give a message without the values in it."""
    return _VALUE.sub("…", text)


def word(place: Place, cause: str) -> str:
    """Give the short word that stands for a cause at a place: eight digits, the same for ever."""
    return hashlib.sha256(f"{place}\n{cause}".encode(errors="surrogateescape")).hexdigest()[:8]
