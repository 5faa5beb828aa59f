"""What people do with a checkout of rq-etl: `inv TASK`, or `python3 tasks.py TASK`, on bare Python.

Run directly it makes `.venv`, installs the project there and hands over to invoke. Down to the hand-over it
uses the standard library alone and changes nothing but `.venv`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
#: holds what the environment was made for; absent while it is being made.
STAMP = VENV / "installed-for"
OLDEST_PYTHON = (3, 11)
BENCHMARKS = ("bulk", "ledger")


def known_tasks() -> dict[str, str]:
    """Read every task and the first line of its docstring from this file, before anything is installed."""
    functions = [
        node for node in ast.parse(Path(__file__).read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    return {
        function.name: (ast.get_docstring(function) or "").splitlines()[0]
        for function in functions
        if any("'task'" in ast.dump(decorator) for decorator in function.decorator_list)
    }


def hand_over(arguments: list[str]) -> None:
    """Become invoke in `.venv`, made or renewed first; list the tasks if none of them is asked for."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit("rq-etl needs Python 3.11 or newer; this is {}.{}.".format(*sys.version_info))
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    tasks = known_tasks()
    if asked not in tasks:
        print("\n".join(f"  {name:<10} {about}" for name, about in tasks.items()))
        sys.exit(f"There is no task {asked!r}; choose one of these." if asked else 0)
    prepare()
    os.execv(PYTHON, [str(PYTHON), "-m", "invoke", "--search-root", str(ROOT), *arguments])


def prepare() -> None:
    """Make `.venv` and install the project with what its development needs, unless that is done already."""
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        return
    STAMP.unlink(missing_ok=True)
    if not PYTHON.exists():
        print("Making .venv …", flush=True)
        quietly(
            [sys.executable, "-m", "venv", "--clear", str(VENV)],
            "On Debian and Ubuntu the package python3-venv is needed.",
        )
    print("Installing rq-etl and its tools into .venv (a minute or two, only when they change) …", flush=True)
    quietly(
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", f"{ROOT}[dev]"],
        "Is the package index reachable? Remove .venv to start afresh, then run this again.",
    )
    STAMP.write_text(wanted)


def quietly(argv: list[str], advice: str) -> None:
    """Run a command without its noise; if it fails, end with what it said and what to do."""
    done = subprocess.run(
        argv, check=False, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout.strip()}\n\nThis failed: {shlex.join(argv)}\n{advice}")


# invoke is there only after the hand-over, so whoever runs this file leaves here
if __name__ == "__main__":
    hand_over(sys.argv[1:])

from invoke.context import Context  # noqa: E402
from invoke.exceptions import Exit  # noqa: E402
from invoke.tasks import task  # noqa: E402


def run(*argv: str, cwd: Path | None = ROOT) -> int:
    """Run a command of this environment on the terminal as it is, and give its exit code."""
    program = Path(sys.executable).parent / argv[0]
    return subprocess.run([str(program), *argv[1:]], check=False, cwd=cwd).returncode


def must(*codes: int) -> None:
    """End with the first exit code that is not 0."""
    for code in codes:
        if code:
            raise Exit(code=code)


@task
def demo(_: Context) -> None:
    """Run the example pipelines with real workers, and show one failure and its retry."""
    must(run("python", "-m", "etl.cli.demo"))


@task(help={"args": "more for pytest, as one word: --args '-x -k claim'"})
def test(_: Context, args: str = "") -> None:
    """Run the tests: unit, integration and acceptance."""
    must(run("python", "-m", "pytest", "-n", "2", *shlex.split(args)))


@task
def check(_: Context) -> None:
    """Look for faults in style, types and layers; change no file."""
    must(
        run("ruff", "check"),
        run("ruff", "format", "--check"),
        run("mypy"),
        run("lint-imports"),
    )


@task
def fix(_: Context) -> None:
    """Correct what ruff can correct, and format."""
    must(run("ruff", "check", "--fix"), run("ruff", "format"))


@task(help={"name": "which one: bulk or ledger", "rows": "rows in the file, or files in the ledger"})
def bench(_: Context, name: str, rows: int = 1_000_000) -> None:
    """Run a benchmark in .bench/: bulk (side by side with its peers) or ledger."""
    if name not in BENCHMARKS:
        raise Exit(f"There is no benchmark {name!r}; there is: {', '.join(BENCHMARKS)}", code=2)
    must(run("python", f"tests/benchmarks/{name}.py", "--rows", str(rows)))


@task(
    help={
        "minutes": "over how many minutes files come and faults happen",
        "files": "how many files",
        "standing": "instead: so many files come while the dropbox is stopped",
        "outage": "instead: PostgreSQL is stopped for so many seconds in the middle of 200 files",
        "updates": "instead: so many files flow while updates are lost and shuffled and the recorder is killed",
        "mutate": "instead: take one safety away at a time and see which test notices",
    }
)
def chaos(  # noqa: PLR0913, PLR0917 - one option each
    _: Context,
    minutes: float = 10.0,
    files: int = 10_000,
    standing: int = 0,
    outage: float = 0.0,
    updates: int = 0,
    mutate: bool = False,
) -> None:
    """Kill, flush and fail everything while files flow, then count every row; prints a report."""
    given = {
        "--minutes": minutes,
        "--files": files,
        "--standing": standing,
        "--outage": outage,
        "--updates": updates,
    }
    argv = [word for option, value in given.items() for word in (option, str(value))]
    must(run("python", "-m", "tests.chaos.chaos", *argv, *(["--mutate"] if mutate else [])))


@task(iterable=["source"], help={"source": "path or URL instead of the configured ones; may be repeated"})
def extract(_: Context, pipeline: str, source: list[str], again: bool = False) -> None:
    """Ask for an extract, as `etl extract` does."""
    must(run("etl", "extract", pipeline, *source, *(["--again"] if again else []), cwd=None))


@task
def status(_: Context) -> None:
    """Show where every file stands, as `etl status` does."""
    must(run("etl", "status", cwd=None))


@task(help={"port": "port on 127.0.0.1; any other where it is taken"})
def dashboard(_: Context, port: int = 9181) -> None:
    """Show the queues in rq-dashboard behind a password, on this machine only, until Ctrl-C; as `etl up` does."""
    os.environ["ETL_DASHBOARD"] = f"127.0.0.1:{port}"
    must(run("etl", "service", "dashboard", cwd=None))
