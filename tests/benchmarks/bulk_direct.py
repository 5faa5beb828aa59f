"""PostgreSQL with nothing in between: `bulk_direct.py copy|rows CSV CONNINFO TABLE`.

`copy` sends the file's bytes as they are, which is the limit; `rows` parses them with csv.reader first.
Imports psycopg and nothing of ours but the columns. `bulk` starts it.
"""

from __future__ import annotations

import csv
import json
import sys
import time

import bulk_file
import psycopg

#: bytes per write.
CHUNK = 1 << 20


def copy_bytes(cursor: psycopg.Cursor, path: str, table: str) -> None:
    """Send the file as it is."""
    with open(path, "rb") as file, cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv, HEADER)") as copy:
        while chunk := file.read(CHUNK):
            copy.write(chunk)


def copy_rows(cursor: psycopg.Cursor, path: str, table: str) -> None:
    """Parse the file and send row by row."""
    with open(path, newline="", encoding="utf-8") as file, cursor.copy(f"COPY {table} FROM STDIN") as copy:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            copy.write_row(row)


def main(way: str, path: str, conninfo: str, table: str) -> None:
    """Make the table, load the file in one transaction and print the seconds it took as JSON."""
    began = time.perf_counter()
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} ({bulk_file.TABLE_SQL})")
        {"copy": copy_bytes, "rows": copy_rows}[way](cursor, path, table)
    print(json.dumps({"inside": time.perf_counter() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
