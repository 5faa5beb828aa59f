"""Examples: facts for every kind of notice, by which templates are tried before a night needs them.

Values only. Used by `etl check`, and by tests that look at notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etl.model import Urgency
from etl.notify import digest
from etl.notify.digest import Cause, Digest, Line, Sample

_ABOUT = {
    "owner": "data-ops",
    "contact": "feeds@acme.example",
    "runbook": "https://wiki.example.com/feeds/acme/prices-and-what-to-do-when-they-do-not-come",
}
_ETL = "etl --config /srv/etl/config"
_CAUSES = (
    Cause(
        pipeline="prices",
        place="prices/transform",
        cause="price: … is not a number",
        word="3f9a21c4",
        new=1,
        total=1,
        first="2026-11-18 02:31 UTC",
        last="2026-11-18 02:31 UTC",
        urgency=Urgency.MORNING,
        held=3,
        sample=Sample(
            file="PREISE_20261118~1m7pwft3z9r4j6g9-bad.csv",
            summary="3 of 200,000 rows held back",
            next="correct the rows in PREISE_20261118~1m7pwft3z9r4j6g9-bad.csv, then move it from "
            "prices/transform/failed to prices/transform/working",
            troubles=("line 4, price: … is not a number", "line 77, price: … is not a number"),
        ),
        about=_ABOUT,
        commands=(
            f"{_ETL} failed prices --group",
            f"{_ETL} retry --cause 3f9a21c4 -p prices --dry-run",
        ),
    ),
    Cause(
        pipeline="prices",
        place="prices/load/warehouse",
        location="warehouse",
        cause="permission denied for table prices",
        word="b04c11aa",
        new=4_120,
        total=4_998,
        first="2026-11-18 02:20 UTC",
        last="2026-11-18 02:44 UTC",
        urgency=Urgency.MORNING,
        sample=Sample(
            file="PREISE_20261118~1m7pwft3z9r4j6g9-17.jsonl", summary="warehouse refuses the units"
        ),
        about=_ABOUT,
        commands=(
            f"{_ETL} failed prices --group",
            f"{_ETL} retry --cause b04c11aa -p prices --dry-run",
        ),
    ),
)
DIGEST = Digest(
    kind="digest",
    causes=_CAUSES,
    news=(
        Line(
            pipeline="books",
            kind="missing",
            text="books-*.csv was expected by 06:00 Europe/London and has not come",
            next="ask who sends it",
            urgency=Urgency.MORNING,
        ),
    ),
    recovered=(Line(pipeline="books", kind="load/shop", text="isbn: is missing"),),
    files=4_121,
    whole=4_120,
    held=3,
    of=200_000,
    again=2,
    window="15 min",
)
_STALE = {
    "urgency": Urgency.MORNING,
    "lead": "Nothing is lost, and it can wait until morning. If you do nothing, these 12 files stay where they "
    "lie and what is in them is missing; all other files go on.",
    "most_groups": digest.MOST_CAUSES,
    "groups": (
        {
            "place": "prices/load/warehouse",
            "status": "failed",
            "cause": "permission denied for table prices",
            "count": 11,
            "oldest": "3 days",
            "sample": "PREISE_20261115~1m7pwft3z9r4j6g9-17.jsonl",
            "next": "put right what its reason says, then retry or discard them",
            "about": _ABOUT,
            "commands": _CAUSES[1].commands,
        },
        {
            "place": "books/extract",
            "status": "working",
            "cause": "",
            "count": 1,
            "oldest": "26 h",
            "sample": "books-20261117.csv",
            "next": "see why it is not begun",
            "about": {},
            "commands": (f"{_ETL} status books",),
        },
    ),
}
_COMMON = {
    "site": "prod",
    "made": "2026-11-18 02:45 UTC",
    "most_lines": digest.MOST_LINES,
}


def _titled(title: str, **facts: Any) -> Mapping[str, Any]:
    return {**_COMMON, "title": title, "subject": digest.titled("prod", title), **facts}


def facts() -> dict[str, Mapping[str, Any]]:
    """Give example facts by kind of notice."""
    told = _titled(digest.subject(DIGEST), digest=DIGEST, lead=digest.lead(DIGEST))
    well = Digest(kind="recovered", recovered=DIGEST.recovered, window="15 min")
    return {
        "failure": told,
        "digest": told,
        "recovered": _titled(digest.subject(well), digest=well, lead=digest.lead(well)),
        "stale": _titled("12 stale files, can wait until morning", **_STALE),
        "notice": _titled(
            "no worker serves the queue heavy",
            text="the file waits; nothing is lost\n\nNext: etl worker heavy",
            facts={"id": "1m7pwft3z9r4j6g9"},
        ),
        "test": _titled("a test", lead="This is a test: nothing happened.", pipelines=["books", "prices"]),
    }
