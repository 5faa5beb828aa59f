"""One message or source file by its id: where it is, and how it stands. Shared by `wait` and `status`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from etl.cli import common, delivered
from etl.config.reading import Config
from etl.errors import ConfigError
from etl.files import headers, layout, names, notes, reasons, walking
from etl.files.deliveries import Delivery
from etl.files.notes import SourceNote
from etl.model import Status


def look_up(config: Config, text: str) -> list[SourceNote]:
    """Give the source notes whose id is, or begins with, `text`; whatever cannot be an id has none."""
    if len(text) < 4 or not set(text) <= set(names.ALPHABET):
        return []
    tree, found = layout.Layout(config.data), []
    for pipeline in sorted(config.pipelines):
        if names.is_id(pipeline, text):
            found.append(notes.glance_source(tree, pipeline, text))
        elif len(text) < 16:
            folder = tree.source_note(pipeline, text).parent
            ids = {path.name.partition(".")[0] for path in folder.glob(f"{text}*.json")}
            found += [notes.glance_source(tree, pipeline, one) for one in sorted(ids)]
    return [one for one in found if one is not None]


def find(config: Config, text: str) -> SourceNote:
    """Give the one source file that is meant, or raise ConfigError."""
    found = look_up(config, text)
    if len(found) > 1:
        raise ConfigError(
            f"{text!r} is the start of {len(found)} ids: {', '.join(one.id for one in found[:5])}",
            next="write more of it",
        )
    if not found:
        _say_archived(config, text)
        raise ConfigError(
            f"there is no message or file with the id {text!r}", next="see them with: etl files"
        )
    return found[0]


def _say_archived(config: Config, text: str) -> None:
    """Raise ConfigError with the verb that shows it, if what is meant has left the folders for the archive."""
    from etl.services import left

    if text and set(text) <= set(names.ALPHABET) and (held := left.find(config, text)):
        last = held[-1].files[-1][1] if held[-1].files else None
        raise ConfigError(
            f"{held[-1].id} has ended{f', {last.lineage.verdict},' if last else ''} and is in the archive",
            next=f"see it with: etl show {held[-1].id}",
        )


def delivery(config: Config, source: SourceNote) -> Delivery | None:
    """Give what became of a source file; None where nothing of it lies in any folder."""
    tree, locations = layout.Layout(config.data), config.pipeline(source.pipeline).spec.load.locations
    return walking.find(tree, source.pipeline, source.id, locations)


def settled(config: Config, source: SourceNote) -> Delivery | None:
    """Give a delivery that has ended; None while anything of it waits or is worked."""
    looks = []
    # two looks: between the folders of one, a file that was put back may have been missed
    for _ in range(2):
        looked = delivery(config, source) or Delivery(
            note=source, pieces=(), discarded=_discarded(config, source)
        )
        if looked.verdict == "working" or not (looked.pieces or looked.discarded):
            return None
        looks.append([(piece.place, piece.name, piece.status) for piece in looked.pieces])
    return looked if looks[0] == looks[1] else None


def _discarded(config: Config, source: SourceNote) -> list[str]:
    return list(notes.read_discarded(layout.Layout(config.data), source.pipeline, source.id))


def facts(config: Config, source: SourceNote) -> dict[str, Any]:
    """Give how a message stands; of its callback the host alone."""
    tree, found = layout.Layout(config.data), delivery(config, source)
    told: dict[str, Any] = {"pipeline": source.pipeline, "headers": headers.shown(source.headers)}
    if found is None:
        return told | {"name": source.given, "id": source.id, "verdict": "unknown", "pieces": []}
    pieces = []
    for piece in found.pieces:
        note = notes.glance(tree, piece.place, piece.name)
        waits = note.not_before if piece.status is Status.WORKING else 0.0
        reason = reasons.read(tree, piece.place, piece.name, piece.status)
        pieces.append(
            {
                "path": f"{piece.place}/{piece.status}/{piece.name}",
                "attempt": note.attempt,
                "not_before": waits if waits > time.time() else None,
                "summary": reason.get("summary", ""),
            }
        )
    return told | delivered.summary(found) | {"pieces": pieces}


def print_facts(told: dict[str, Any]) -> None:
    """Print how a message stands, for people."""
    click.echo(f"{names.printable(told['name'])}  ({told['id']})")
    click.echo(f"  pipeline   {told['pipeline']}")
    for name, value in told["headers"].items():
        click.echo(f"  {name:<10} {value}")
    click.echo(f"  verdict    {told['verdict']}" + (f" ({told['said']})" if told.get("said") else ""))
    quiet = 0
    for piece in told["pieces"]:
        if "/resolved/" in piece["path"]:
            quiet += 1
            continue
        click.echo(f"  {piece['path']}")
        if piece["not_before"]:
            when = datetime.fromtimestamp(piece["not_before"]).astimezone().isoformat(" ", "seconds")
            click.echo(f"    not before {when}")
        if piece["summary"]:
            common.print_wrapped(str(piece["summary"]), indent=4)
    if quiet:
        click.echo(f"  {common.number(quiet, 'file')} resolved")
