"""dlt, run in the peers' own environment: `bulk_dlt.py WAY CSV POSTGRES_URL DATASET FOLDER`.

Python rows and arrow tables, each as dlt comes (`rows_plain`, `arrow_plain`) and with what its guides name as
fast (`rows`, `arrow`, `adbc`). Imports nothing of ours. `bulk` starts it.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

started = time.perf_counter()

#: the types our pipeline uses, in dlt's words.
HINTS: dict[str, Any] = {
    "id": {"data_type": "bigint"},
    "sku": {"data_type": "text"},
    "name": {"data_type": "text"},
    "price": {"data_type": "double"},
    "qty": {"data_type": "bigint"},
    "day": {"data_type": "date"},
    "active": {"data_type": "bool"},
    "site": {"data_type": "text"},
}
#: rows handed over at once: pages instead of single rows, as dlt's guide asks.
PAGE = 10_000
#: bytes per arrow table; of 1, 8 and 32 MB the fastest.
BLOCK = 8 << 20
#: way -> loader file format; None is dlt's own choice, INSERT statements.
FILES = {"rows_plain": None, "rows": "csv", "arrow_plain": "csv", "arrow": "csv", "adbc": "parquet"}
#: way -> rows per file and processes that normalize. Arrow tables are faster without a pool on few cores.
TUNED = {"rows": (100_000, os.cpu_count() or 1), "arrow": (250_000, 1), "adbc": (250_000, 1)}


def tune(way: str) -> None:
    """Set what dlt's performance guide names: larger buffers, files that rotate, workers, no compression."""
    settings = {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
    if way in TUNED:
        rows_per_file, processes = TUNED[way]
        settings |= {
            "DATA_WRITER__BUFFER_MAX_ITEMS": "50000",
            "DATA_WRITER__FILE_MAX_ITEMS": str(rows_per_file),
            # on by default; gzip alone makes the arrow way four times slower
            "DATA_WRITER__DISABLE_COMPRESSION": "true",
            "NORMALIZE__WORKERS": str(processes),
            "DESTINATION__POSTGRES__CREATE_INDEXES": "false",
        }
    os.environ.update(settings)


def python_rows(path: str) -> Iterator[list[dict[str, Any]]]:
    """Yield pages of dictionaries as csv.DictReader makes them; dlt turns text into the hinted types."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        while page := list(islice(rows, PAGE)):
            yield page


def arrow_tables(path: str) -> Iterator[Any]:
    """Yield arrow tables with the right types, as pyarrow's own reader makes them."""
    import pyarrow
    from pyarrow import csv as arrow_csv

    types = {
        "bigint": pyarrow.int64(),
        "text": pyarrow.string(),
        "double": pyarrow.float64(),
        "date": pyarrow.date32(),
        "bool": pyarrow.bool_(),
    }
    convert = arrow_csv.ConvertOptions(
        column_types={name: types[hint["data_type"]] for name, hint in HINTS.items()}
    )
    read = arrow_csv.ReadOptions(block_size=BLOCK)
    with arrow_csv.open_csv(path, read_options=read, convert_options=convert) as batches:
        for batch in batches:
            yield pyarrow.Table.from_batches([batch])


def main(way: str, path: str, url: str, dataset: str, folder: str) -> None:
    """Load the file one way and print the seconds spent after the imports as JSON."""
    tune(way)
    import dlt

    imported = time.perf_counter()
    read = python_rows if way.startswith("rows") else arrow_tables
    resource = dlt.resource(read(path), name="prices", columns=HINTS, write_disposition="append")
    pipeline = dlt.pipeline(
        "bulk", destination=dlt.destinations.postgres(url), dataset_name=dataset, pipelines_dir=folder
    )
    pipeline.run(resource, loader_file_format=FILES[way]).raise_on_failed_jobs()
    print(json.dumps({"inside": time.perf_counter() - imported, "imports": imported - started}))


if __name__ == "__main__":
    main(*sys.argv[1:])
