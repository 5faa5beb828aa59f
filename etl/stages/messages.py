"""Messages on their road: one that came too late or that nobody knows is refused, and its type finds its handler.

Looks at headers and configuration only. Called by extract and transform, for every file; most have no headers.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from etl.app import App
from etl.config.reading import PipelineConfig
from etl.config.wording import near_word
from etl.errors import Expired, InvalidFile
from etl.files import headers, names
from etl.files.moves import Claim


def check(app: App, claim: Claim) -> None:
    """Let a claimed message through, or raise `Expired`, or `InvalidFile` when its pipeline has not its type."""
    told = app.headers(claim.place.pipeline, claim.name)
    if not told or not claim.file.is_source:
        return
    until = headers.expires(told)
    # what was passed on once was begun in time; a person may have it worked again
    if until and until <= time.time() and not claim.note.recipe:
        published = datetime.fromtimestamp(names.milliseconds(claim.file.id) / 1000, UTC)
        raise Expired(
            f"expired at {told['expires']}; published {published.isoformat(timespec='milliseconds')}",
            next="nothing can be done with it: have its producer publish it again, or discard it",
        )
    _check_type(app, claim.place.pipeline, told.get("type"))


def _check_type(app: App, pipeline: str, kind: str | None) -> None:
    types = app.pipeline(pipeline).spec.types
    if kind is None or not types or kind in types:
        return
    near = near_word(kind, list(types))
    hint = f"did you mean {near!r}?" if near else f"it has: {', '.join(types)}"
    raise InvalidFile(
        f"the pipeline {pipeline} has no type {kind!r}; {hint}",
        next=f"add it to `types:` in pipelines/{pipeline}.yaml and move the file back, or publish it anew",
    )


def pipeline(app: App, claim: Claim) -> PipelineConfig:
    """Give the pipeline with the handler that the message's type chooses."""
    name = claim.place.pipeline
    return app.pipeline(name).of_type(app.headers(name, claim.name).get("type"))
