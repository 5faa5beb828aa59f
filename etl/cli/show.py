"""`etl show`: all about one file."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from etl.cli import common, delivered, failed, selecting
from etl.config.reading import Config
from etl.errors import Final
from etl.files import acts, headers, layout, names, notes, paused, reasons
from etl.files.deliveries import Delivery
from etl.model import Status
from etl.services import history


@click.command("show")
@click.argument("file")
@click.option("--tree", "as_tree", is_flag=True, help="Draw what came of it, from the source to the rows.")
@click.option("--log", "as_log", is_flag=True, help="Print what was logged and printed while it was worked.")
@click.option("--follow", is_flag=True, help="With --log: go on while it is worked; by itself on a terminal.")
@common.as_json
def command(file: str, as_tree: bool, as_log: bool, follow: bool, json_: bool) -> None:
    """Everything about FILE: a path, a given name, an id or the start of one."""
    if (as_tree and as_log) or (follow and (not as_log or json_)):
        raise click.UsageError(
            "--tree and --log exclude each other; --follow goes with --log, without --json"
        )
    config = common.configuration()
    if as_log:
        from etl.cli import attempt_log

        attempt_log.show(config, file, follow=follow, json_=json_)
        return
    if as_tree:
        _print_trees(config, file, json_)
        return
    tree = layout.Layout(config.data)
    found = history.find(config, file, common.tell)
    if not found:
        raise Final(f"no file matches {file!r}", next="see them with: etl files")
    facts = [_facts(tree, one) for one in found]
    if json_:
        common.print_json(facts)
        return
    for one, told in zip(found, facts, strict=True):
        _print(one, told)
    common.print_paused(tree, sorted({one.note.pipeline for one in found}))


def _print_trees(config: Config, file: str, json_: bool) -> None:
    """Print what came of the deliveries that are meant; asked by name, so that a million files cost no more."""
    from etl.services import lineage

    tree, found = layout.Layout(config.data), []
    for pipeline, file_id in selecting.deliveries(config, tree, file):
        locations = config.pipelines[pipeline].spec.load.locations
        known = lineage.attempts(config, pipeline, file_id)
        if (told := lineage.of(tree, pipeline, file_id, locations, known)) is not None:
            found.append(told)
    if not found:
        raise Final(f"no file matches {file!r}", next="see them with: etl files")
    if json_:
        common.print_json([one.as_dict() for one in found])
        return
    from etl.cli import tree as trees

    for one in found:
        trees.draw(one)


def _facts(tree: layout.Layout, one: Delivery) -> dict[str, Any]:
    pieces = [
        {
            "path": f"{piece.place}/{piece.status}/{piece.name}",
            "attempt": notes.glance(tree, piece.place, piece.name).attempt,
            "reason": reasons.read(tree, piece.place, piece.name, piece.status),
        }
        for piece in one.pieces
    ]
    source = asdict(one.note) | {"headers": headers.shown(one.note.headers)}
    marks = [f"{mark.target}: {mark}" for mark in paused.of_pipeline(tree, one.note.pipeline)]
    return {
        "source": source,
        **delivered.summary(one),
        "pieces": pieces,
        "paused": marks,
        "acts": [asdict(act) for act in acts.of_file(tree, one.note.pipeline, one.note.id)],
    }


def _print(one: Delivery, facts: dict[str, Any]) -> None:
    note = one.note
    click.echo(f"{names.printable(note.given)}  ({note.id})")
    arrived = datetime.fromtimestamp(note.arrived).isoformat(" ", "seconds")
    click.echo(f"  pipeline   {note.pipeline}\n  arrived    {arrived}")
    click.echo(f"  origin     {names.printable(note.origin) or 'dropped'}")
    click.echo(f"  bytes      {note.size:,}  sha256 {note.sha256[:16]}…")
    click.echo(
        f"  rows       {one.rows:,} -> {one.units:,} units, loaded {delivered.loaded(one)}, held back {one.held_back:,}"
    )
    click.echo(f"  verdict    {one.verdict}" + (f" ({one.said})" if one.said else ""))
    resolved = 0
    for piece, told in zip(one.pieces, facts["pieces"], strict=True):
        if piece.status is Status.RESOLVED and not piece.file.is_source:
            resolved += 1
            continue
        click.echo(f"  {told['path']}")
        if told["reason"]:
            common.print_wrapped(str(told["reason"].get("summary", "")), indent=4)
            for trouble in told["reason"].get("where", [])[:10]:
                click.echo(f"      {failed.told(trouble)}")
            common.print_wrapped(f"next: {told['reason'].get('next', '')}", indent=4)
    if resolved:
        click.echo(f"  and {common.number(resolved, 'more file')} resolved")
    for act in facts["acts"]:
        click.echo(f"  {acts.Act(**act)} ({common.number(len(act['files']), 'file')})")
