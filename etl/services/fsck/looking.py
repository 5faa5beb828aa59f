"""The list of what is checked, and the second look: what is still so a moment later is told, the rest has passed.

So it may run beside workers. Looks only; opens no connection but those of the locations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from etl.app import App
from etl.config.reading import Config
from etl.files.layout import Layout
from etl.queues.queue import Announcer
from etl.services.fsck import archiving, explaining, folders, lineage, loads, queue, work
from etl.services.fsck.capturing import capture
from etl.services.fsck.finding import Finding, Scope, Tally
from etl.services.fsck.tree import Tree

#: asked of the folders themselves, before anything is read.
FOLDERS: tuple[Callable[[App, str], Iterator[Finding]], ...] = (
    folders.missing,
    folders.on_another_file_system,
    folders.not_writable,
    folders.of_no_location,
)
#: asked of one look at a pipeline. Where two tell the same thing, the first has the better words.
CHECKS: tuple[Callable[[Tree], Iterator[Finding]], ...] = (
    work.twins,
    work.orphans,
    work.unfinished,
    work.left_behind,
    explaining.unexplained,
    explaining.damaged_reasons,
    explaining.stray_reasons,
    explaining.damaged_notes,
    explaining.damaged_sources,
    explaining.missing_sources,
    lineage.passed_on,
    lineage.unit_files,
    lineage.held_back,
    lineage.unworked,
    loads.refused,
    loads.held_back,
    lineage.lost,
    lineage.discards,
    archiving.away,
    archiving.unfinished,
    archiving.without_manifest,
    archiving.without_archive,
    archiving.damaged_manifests,
)


def open_app(config: Config, announcer: Announcer) -> App:
    """Put the parts together without making a folder: what is missing is to be found."""
    layout = Layout(config.data)
    own = layout.own / "id"
    data_id = own.read_text().strip() if own.exists() else ""
    return App(config, layout, data_id, announcer)


def walk(
    app: App, client: Any = None, scope: Scope | None = None, tally: Tally | None = None
) -> Iterator[Finding]:
    """Give every broken promise; with a `client` for Redis, the queue's as well."""
    scope, tally = scope or Scope(), tally or Tally()
    wanted = list(scope.pipelines or sorted(app.config.pipelines))
    first = list(_look(app, client, wanted, scope, tally))
    if not first or not scope.pause:
        yield from first
        return
    tally.doing("looking again")
    time.sleep(scope.pause)
    seen = {finding.about for finding in first}
    tally.start_over()
    for finding in _look(app, client, wanted, scope, tally):
        if finding.about in seen:
            yield finding


def _look(app: App, client: Any, wanted: list[str], scope: Scope, tally: Tally) -> Iterator[Finding]:
    """Look at everything once, and tell each thing once."""
    told = set()
    for finding in _everything(app, client, wanted, scope, tally):
        if finding.about not in told:
            told.add(finding.about)
            yield finding


def _everything(app: App, client: Any, wanted: list[str], scope: Scope, tally: Tally) -> Iterator[Finding]:
    yield from folders.identity(app)
    yield from folders.of_no_pipeline(app)
    for pipeline in wanted:
        for of_folders in FOLDERS:
            yield from of_folders(app, pipeline)
        tree = capture(app, pipeline, tally)
        if not tree.unreadable:  # else everything in there would be told as lost
            yield from _of_tree(tree, client, scope, tally)
    if client is not None:
        yield from queue.stranded(app, client)


def _of_tree(tree: Tree, client: Any, scope: Scope, tally: Tally) -> Iterator[Finding]:
    for check in CHECKS:
        yield from check(tree)
    yield from loads.at_locations(tree, tally)
    if client is not None:
        yield from queue.unannounced(tree, client)
    if scope.deep:
        tally.doing(f"{tree.pipeline}: hashing")
        yield from lineage.changed(tree)
        yield from archiving.changed(tree, tally)
