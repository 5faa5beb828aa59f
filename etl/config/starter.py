"""The first configuration of a new project: commented files to start from, kept in `starter/`.

Writes new files only; what is already there is never touched.
Called by `etl init`.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from etl import disk
from etl.errors import ConfigError


def write(folder: Path) -> list[Path]:
    """Write the starter into `folder` and give its files, or raise ConfigError when one of them is there."""
    texts = {folder / name: text for name, text in _files(resources.files("etl.config") / "starter", "")}
    for file in texts:
        if file.exists() or file.is_symlink():
            raise ConfigError(
                f"{file} is already there; nothing was written",
                next="Name an empty folder, for example: etl init my_project",
            )
    try:
        _create(texts, folder / "data")
    except OSError as error:
        raise ConfigError(
            f"cannot write the starter to {folder}: {error.strerror}: {error.filename}"
        ) from error
    return list(texts)


def _create(texts: dict[Path, str], data: Path) -> None:
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text)
    disk.make_folder(data)


def _files(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    """List a package folder's files with their texts, by name; compiled leftovers are not ours."""
    found: list[tuple[str, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{prefix}{entry.name}"
        if entry.is_file():
            found.append((name, entry.read_text(encoding="utf-8")))
        elif entry.name != "__pycache__":
            found += _files(entry, f"{name}/")
    return found
