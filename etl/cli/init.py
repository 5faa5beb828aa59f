"""`etl init`: write a commented starter."""

from __future__ import annotations

from pathlib import Path

import click

from etl.config import starter


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def command(folder: Path) -> None:
    """Write a commented starter `config/` and `data/` into FOLDER (default: here).

    Nothing that is there already is overwritten.
    """
    for path in starter.write(folder):
        click.echo(f"wrote {path}")
    click.echo(f"\nNext: look at {folder / 'config'}, then try: etl check")
