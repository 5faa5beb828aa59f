"""Deliveries that have left the tree: shown as their notes in the archive have them.

The notes are put into a folder that is gone after the look, laid out as the data folder is; so whatever looks at a
delivery looks at these the same way. Changes nothing of the data. Called by `etl show` and `etl trace`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etl.config.reading import Config
from etl.errors import Final
from etl.files import archived, deliveries, notes, walking
from etl.files.archived import Archived
from etl.files.deliveries import Delivery
from etl.files.layout import Layout


def find(config: Config, wanted: str) -> list[Archived]:
    """Find deliveries in the archives by an id, the start of one, a full name or a given name."""
    return [one for name in sorted(config.pipelines) for one in archived.find(config.archive, name, wanted)]


def of_id(config: Config, pipeline: str, file_id: str) -> Archived | None:
    """Give what archives hold of one delivery; None also where they cannot be read, which fsck tells."""
    try:
        return archived.of_id(config.archive, pipeline, file_id)
    except (Final, OSError):
        return None


@contextmanager
def layout(one: Archived) -> Iterator[Layout]:
    """Give a data folder that holds nothing but the notes and logs of an archived delivery, for one look."""
    with tempfile.TemporaryDirectory(prefix="etl-notes-") as folder:
        for path, data in archived.read_notes(one, one.notes):
            target = Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        yield Layout(Path(folder))


def delivery(config: Config, tree: Layout, one: Archived) -> Delivery:
    """Put an archived delivery together from its notes; from names alone where none were archived with it."""
    locations = config.pipelines[one.pipeline].spec.load.locations
    found = walking.find(tree, one.pipeline, one.id, locations)
    if found is not None:
        return found
    source = notes.glance_source(tree, one.pipeline, one.id)
    return deliveries.of_pieces(source or deliveries.unnoted(one.pipeline, one.id, one.given), (), ())


def facts(one: Archived | None) -> list[dict[str, Any]]:
    """Tell which archives hold files of a delivery, and under which names."""
    return [
        {
            "archive": str(manifest.path),
            "member": member.path,
            "size": member.size,
            "sha256": member.sha256,
        }
        for manifest, member in (one.files if one else ())
    ]
