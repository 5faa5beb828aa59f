"""Are the archives whole, and is no clean left half done?

Reads manifests, which were read with the tree; of the archives themselves every byte, where asked. Mends nothing: what
an archive lost can only be brought back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etl import disk
from etl.app import App
from etl.errors import EtlError, Final
from etl.files import archived, archives, cleanings, verifying
from etl.services.fsck.finding import Finding, Tally
from etl.services.fsck.tree import Tree


def away(tree: Tree) -> Iterator[Finding]:
    """P21: the folder of the archives is there; without it nothing can be said of what is in them."""
    root = tree.app.config.archive
    if root != tree.app.config.data / "archive" and not root.is_dir():
        yield Finding(
            promise="P21",
            check="archive-away",
            place=tree.pipeline,
            name=str(root),
            what="is not there: nothing is archived, and what is in it is told as lost",
            next="mount its disk, or correct `archive:` in settings.yaml, then look again",
        )


def without_manifest(tree: Tree) -> Iterator[Finding]:
    """P21: every archive has its manifest beside it; without, nobody knows what is in it."""
    root = tree.app.config.archive
    known = {*tree.archives, *(_tar(path) for path, _ in tree.damaged_manifests)}
    for day in archives.days(root):
        for path in archived.tars(root / day, tree.pipeline):
            if path not in known:
                inside = f"tar -xOf {path.name} {archives.INSIDE} > {path.name}{archives.MANIFEST}"
                yield _finding(
                    tree, path, "no-manifest", "has no manifest beside it", f"take it out: {inside}"
                )


def without_archive(tree: Tree) -> Iterator[Finding]:
    """P21: what a manifest lists is in its archive."""
    for path in tree.archives:
        if not path.exists() and not _is_being_made(tree.app, path):
            yield _finding(
                tree,
                path,
                "archive-gone",
                "is not there, and its manifest is: what it held has left the folders",
                "put back a copy of it, or remove the manifest if it was taken away on purpose",
            )


def damaged_manifests(tree: Tree) -> Iterator[Finding]:
    """P21: a manifest can be read."""
    for path, error in tree.damaged_manifests:
        summary, hint = (error.summary, error.next) if isinstance(error, EtlError) else (str(error), "")
        yield _finding(
            tree, path, "manifest-damaged", f"is of no use: {summary}", hint or "see that it may be read"
        )


def changed(tree: Tree, tally: Tally) -> Iterator[Finding]:
    """P3, P21: an archive holds what its manifest says, byte for byte."""
    for path in tree.archives:
        if not path.exists():
            continue
        tally.doing(f"{tree.pipeline}: {path.parent.name}/{path.name}")
        try:
            wrong = verifying.verify(archives.read(path.with_name(path.name + archives.MANIFEST)))
        except Final as error:
            wrong = [error.summary]
        if wrong:
            more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
            yield _finding(
                tree,
                path,
                "archive-damaged",
                f"is not what was archived: {wrong[0]}{more}",
                "put back a copy of it; what is sound in it can still be replayed",
            )


def unfinished(tree: Tree) -> Iterator[Finding]:
    """P21: what a clean began somebody brings to its end."""
    if _is_at_work(tree.app):
        return
    for path in cleanings.waiting(tree.app.layout, tree.pipeline):
        yield Finding(
            promise="P21",
            check="clean-unfinished",
            place=tree.pipeline,
            name=path.name,
            what="is the journal of a clean that was cut short, and nobody is at it",
            next=f"nothing is lost; the next clean carries on from there, or now: etl clean {tree.pipeline}",
        )


def _is_at_work(app: App) -> bool:
    try:
        return disk.is_locked(cleanings.folder(app.layout) / "lock")
    except OSError:
        return False


def _is_being_made(app: App, path: Path) -> bool:
    """Tell whether a clean, alive or cut short, is about to give an archive its name: the manifest comes first."""
    day, pipeline = path.parent.name, path.name.rpartition("-")[0]
    return (cleanings.folder(app.layout) / f"{day}-{pipeline}.json").exists()


def _tar(manifest: Path) -> Path:
    return manifest.with_name(manifest.name.removesuffix(archives.MANIFEST))


def _finding(tree: Tree, path: Path, check: str, what: str, hint: str) -> Finding:
    return Finding(
        promise="P3" if check == "archive-damaged" else "P21",
        check=check,
        place=f"{tree.pipeline}, archived",
        name=f"{path.parent.name}/{path.name}",
        what=what,
        next=hint,
    )
