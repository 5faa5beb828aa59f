"""Unit files made by hand, and a location loaded in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from etl.config.origin import Origin
from etl.config.schema import LocationOptions
from etl.locations.location import Location, open_location
from etl.model import Block, UnitFile, UnitKey

FILE = "01k3f9a2m1qz7hd4"
LATER_FILE = "01k3f9b000qz7hd4"

Unit = Mapping[str, Any]


def unit_file(
    units: Sequence[Unit],
    *,
    file: str = FILE,
    generation: int = 1,
    part: str = "0001",
    schema: Mapping[str, Any] | None = None,
    lines: Sequence[int] | None = None,
) -> UnitFile:
    """A unit file as the load stage hands it over: blocks of one shape, lines counted from 2."""
    lines = lines or range(2, len(units) + 2)
    blocks: list[Block] = []
    for line, unit in zip(lines, units, strict=True):
        fields = tuple(unit)
        if not blocks or blocks[-1].fields != fields:
            blocks.append(Block(fields=fields, rows=[]))
        blocks[-1].rows.append([line, *unit.values()])  # type: ignore[attr-defined]
    shown = "" if generation == 1 else f".{generation}"
    return UnitFile(
        key=UnitKey(data="d1", pipeline="books", file=file, generation=generation, part=part),
        name=f"books~{file}{shown}-{part}.jsonl",
        recipe=f"recipe {generation}",
        sha256=hashlib.sha256(json.dumps(list(units)).encode()).hexdigest(),
        blocks=lambda: iter(blocks),
        schema=schema or {},
    )


def opened(root: Path, name: str = "here", **written: Any) -> Location:
    """A location as it would be written in a pipeline file."""
    origin = Origin(file=root / "config/pipelines/books.yaml", lines={}, root=root)
    return open_location(name, LocationOptions(**written), origin, root)


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Ask a database from outside."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(statement))]


def run(url: str, *statements: str) -> None:
    """Change a database from outside."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def start_load(
    root: Path, units: Sequence[Unit], crash_at: str = "", **written: Any
) -> subprocess.Popen[str]:
    """Load units in another process, which prints how many it wrote, or kills itself at `crash_at`."""
    order = json.dumps({"root": str(root), "units": list(units), "written": written})
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.location_helpers", order],
        env=os.environ | {"ETL_CRASH_AT": crash_at},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    location = opened(Path(asked["root"]), **asked["written"])
    print(location.load(unit_file(asked["units"])).count)
    location.close()
