"""Ledgers for tests: one opened for a database, files and attempts to write into it, all of it read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml

from etl.config import reading
from etl.config.reading import Config
from etl.ledger import opening, tables
from etl.ledger.opening import Ledger
from etl.ledger.rows import Attempt, Delivery, File
from etl.model import Place, Stage, Status

DATA_ID = "k3f9"
FILE_ID = "01k3f9a2m1qz7hd4"
EXTRACT = Place(pipeline="books", stage=Stage.EXTRACT)
NAME = f"books~{FILE_ID}.csv"


def config(root: Path, url: str | None = None) -> Config:
    """Give a configuration whose ledger is at a URL, or where it is by default."""
    folder = root / "config"
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "settings.yaml").write_text(yaml.safe_dump({"ledger": url} if url else {"workers": 1}))
    return reading.read(folder)


def writable(root: Path, url: str | None = None, data_id: str = DATA_ID) -> Ledger:
    """Open a ledger for writing."""
    return opening.for_writing(config(root, url), data_id)


def file(status: Status = Status.RESOLVED, name: str = NAME, **facts: Any) -> File:
    """One file at the first place of the road."""
    return File(place=EXTRACT, name=name, status=status, **{"file_id": FILE_ID, "since": 5.0, **facts})


def attempt(number: int = 1, name: str = NAME, **facts: Any) -> Attempt:
    """One attempt at it."""
    return Attempt(place=EXTRACT, name=name, attempt=number, **{"file_id": FILE_ID, **facts})


def delivery(file_id: str = FILE_ID, **facts: Any) -> Delivery:
    """One source file."""
    return Delivery(pipeline="books", file_id=file_id, **{"given": "books.csv", "arrived": 5.0, **facts})


def everything(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """Give all rows of all tables, sorted; which update was read last is left out."""
    with ledger.reading() as asking:
        return {
            name: sorted((tuple(row) for row in asking.execute(sa.select(table))), key=repr)
            for name, table in tables.metadata.tables.items()
            if table is not tables.about
        }
