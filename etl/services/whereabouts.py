"""Whereabouts: at which address a service of this host is reached, for `etl status --services`.

A line beside the records, believed only while a service of that name and process lives. Written by the service.
"""

from __future__ import annotations

import json
from pathlib import Path

from etl import disk
from etl.points import Point
from etl.services import records
from etl.services.records import Record


def tell(data: Path, name: str, pid: int, address: str) -> None:
    """Write where a service of this host is reached."""
    disk.make_folder(data / ".etl")
    text = json.dumps({"pid": pid, "address": address})
    disk.write(_path(data, name, records.host()), text.encode() + b"\n", Point.DASHBOARD, durable=False)


def of(data: Path, record: Record) -> str:
    """Give where a living service is reached; "" where that is not known."""
    try:
        told = json.loads(_path(data, record.name, record.host).read_bytes())
        return str(told["address"]) if told["pid"] == record.pid else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _path(data: Path, name: str, host: str) -> Path:
    return data / ".etl" / f"{name}.{host}.address"
