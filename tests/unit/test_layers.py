"""The house keeps its shape: imports go downward, files stay small, everything says what it is for."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "etl").rglob("*.py"))
#: lines; a longer file has two subjects.
LONGEST_FILE = 350


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_go_downward_only() -> None:
    linter = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_there_are_modules_to_look_at() -> None:
    assert MODULES


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE, f"{relative(path)} is too long: split it by subject"
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{relative(path)} has no docstring"


def test_every_exception_says_when_it_is_raised() -> None:
    tree = ast.parse((ROOT / "etl" / "errors.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert classes
    assert [node.name for node in classes if not ast.get_docstring(node)] == []


def test_every_service_but_the_dropbox_is_kept_from_watchdog() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [watchdog] = [one for one in contracts if one["name"].startswith("watchdog")]
    modules = {path.stem for path in (ROOT / "etl" / "services").iterdir() if not path.stem.startswith("_")}
    assert {f"etl.services.{name}" for name in modules - {"dropbox"}} <= set(watchdog["source_modules"])
