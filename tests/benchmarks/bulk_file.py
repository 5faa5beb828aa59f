"""The file every contender loads: a believable price list, the same bytes for the same seed.

Knows its columns once, for everybody: as SQL, as JSON Schema, and by name. Never opens a connection.
`bulk` makes the file; the contenders read the column tables.
"""

from __future__ import annotations

import csv
import random
from datetime import date, timedelta
from pathlib import Path

#: the same file on every machine and in every run.
SEED = 20_240_501
TABLE_SQL = (
    "id bigint, sku text, name text, price double precision, qty bigint, day date, active boolean, site text"
)
SCHEMA = {
    "id": {"type": "integer"},
    "sku": {"type": "string"},
    "name": {"type": "string"},
    "price": {"type": "number"},
    "qty": {"type": "integer"},
    "day": {"type": "string", "format": "date"},
    "active": {"type": "boolean"},
    "site": {"type": "string"},
}
COLUMNS = tuple(SCHEMA)

_MATERIALS = ("oak", "steel", "cotton", "glass", "leather", "bamboo", "marble", "copper", "linen", "walnut")
_KINDS = (
    "desk lamp",
    "shelf",
    "chair",
    "water bottle",
    "notebook",
    "backpack",
    "mirror",
    "clock",
    "vase",
    "stool",
)
#: a comma and a quote now and then, as real names have them.
_SIZES = ("small", "large", "40 cm", "1,5 m", '27"', "set of 2", "")
_SITES = ("Hamburg", "Rotterdam", "Antwerp", "Gdansk", "Trieste", "Marseille", "Valencia")


def _row(number: int, chance: random.Random) -> tuple[object, ...]:
    pick = chance.random
    name = f"{_MATERIALS[int(pick() * 10)]} {_KINDS[int(pick() * 10)]} {_SIZES[int(pick() * 7)]}".strip()
    day = date(2024, 1, 1) + timedelta(days=int(pick() * 700))
    active = "true" if pick() < 0.8 else "false"
    site = _SITES[int(pick() * 7)]
    price, quantity = f"{0.5 + pick() * 990:.2f}", int(pick() * 5000)
    return (
        number,
        f"SKU-{number * 7919 % 100_000_000:08d}-{site[:2].upper()}",
        name,
        price,
        quantity,
        day,
        active,
        site,
    )


def write(path: Path, rows: int) -> None:
    """Write `rows` rows with a header to `path`, about 80 bytes each."""
    chance = random.Random(SEED)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_row(number, chance) for number in range(1, rows + 1))
