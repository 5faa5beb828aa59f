"""`etl show`: all about one file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import click

from etl.cli import common, delivered, failed, selecting
from etl.config.reading import Config
from etl.errors import Final
from etl.files import acts, headers, layout, names, notes, paused, reasons
from etl.files.archived import Archived
from etl.files.deliveries import Delivery, Piece
from etl.model import Status
from etl.services import history, left
from etl.services.lineage import ARCHIVED, Lineage


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
    told = [
        (one, _facts(config, tree, one, left.of_id(config, one.note.pipeline, one.note.id))) for one in found
    ]
    told = told or list(_archived(config, file))
    if not told:
        raise Final(f"no file matches {file!r}", next="see them with: etl files")
    if json_:
        common.print_json([facts for _, facts in told])
        return
    for one, facts in told:
        _print(one, facts)
    common.print_paused(tree, sorted({one.note.pipeline for one, _ in told}))


def _archived(config: Config, file: str) -> Iterator[tuple[Delivery, dict[str, Any]]]:
    """Give what has left the tree and is meant by FILE."""
    for held in left.find(config, file):
        with left.layout(held) as tree:
            one = left.delivery(config, tree, held)
            yield one, _facts(config, tree, one, held)


def _print_trees(config: Config, file: str, json_: bool) -> None:
    """Print what came of the deliveries that are meant; asked by name, so that a million files cost no more."""
    tree, found = layout.Layout(config.data), []
    for pipeline, file_id in selecting.deliveries(config, tree, file):
        if told := _lineage(config, tree, left.of_id(config, pipeline, file_id), (pipeline, file_id)):
            found.append(told)
    for held in left.find(config, file) if not found else ():
        with left.layout(held) as noted:
            told = _lineage(config, noted, held, (held.pipeline, held.id))
            found += [told] if told else []
    if not found:
        raise Final(f"no file matches {file!r}", next="see them with: etl files")
    if json_:
        common.print_json([one.as_dict() for one in found])
        return
    from etl.cli import tree as trees

    for one in found:
        trees.draw(one)


def _lineage(
    config: Config, tree: layout.Layout, held: Archived | None, whose: tuple[str, str]
) -> Lineage | None:
    from etl.services import lineage

    locations = config.pipelines[whose[0]].spec.load.locations
    found = lineage.of(tree, *whose, locations, lineage.attempts(config, *whose))
    told = acts.of_file(layout.Layout(config.data), *whose)
    return replace(found, archived=left.facts(held), acts=told) if found else None


def _facts(config: Config, tree: layout.Layout, one: Delivery, held: Archived | None) -> dict[str, Any]:
    pieces = [
        {
            "path": f"{piece.place}/{_status(config, piece)}/{piece.name}",
            "attempt": notes.glance(tree, piece.place, piece.name).attempt,
            "reason": reasons.read(tree, piece.place, piece.name, piece.status),
        }
        for piece in one.pieces
    ]
    source = asdict(one.note) | {"headers": headers.shown(one.note.headers)}
    own = layout.Layout(config.data)
    marks = [f"{mark.target}: {mark}" for mark in paused.of_pipeline(own, one.note.pipeline)]
    return {
        "source": source,
        **delivered.summary(one),
        "pieces": pieces,
        "paused": marks,
        "archived": left.facts(held),
        "acts": [asdict(act) for act in acts.of_file(own, one.note.pipeline, one.note.id)],
    }


def _status(config: Config, piece: Piece) -> str:
    """Give the folder a file lies in, or the word for one that has left them."""
    path = layout.Layout(config.data).file(piece.place, piece.status, piece.name)
    return str(piece.status) if os.path.lexists(path) else ARCHIVED


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
        left_it = f"/{ARCHIVED}/" in told["path"]
        if piece.status is Status.RESOLVED and (left_it or not piece.file.is_source):
            resolved += 1
            continue
        click.echo(f"  {told['path']}")
        if told["reason"]:
            common.print_wrapped(str(told["reason"].get("summary", "")), indent=4)
            for trouble in told["reason"].get("where", [])[:10]:
                click.echo(f"      {failed.told(trouble)}")
            common.print_wrapped(f"next: {told['reason'].get('next', '')}", indent=4)
    for told in facts["archived"]:
        click.echo(f"  archived   {told['archive']}\n             {names.printable(told['member'])}")
    if resolved:
        click.echo(f"  and {common.number(resolved, 'more file')} resolved")
    for act in facts["acts"]:
        click.echo(f"  {acts.Act(**act)} ({common.number(len(act['files']), 'file')})")
