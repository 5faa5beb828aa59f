"""`tasks.py` runs on bare Python, lists what it can do, and is an ordinary invoke file."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("demo", "test", "check", "fix", "bench", "chaos", "extract", "status", "dashboard")


def bare_python(*arguments: str, script: Path = ROOT / "tasks.py") -> subprocess.CompletedProcess[str]:
    """Run `tasks.py` with an interpreter that sees no installed package at all."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(script), *arguments], capture_output=True, text=True
    )


def invoke(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_bare_python_lists_every_task_and_what_it_does() -> None:
    listing = bare_python()
    assert listing.returncode == 0, listing.stderr
    lines = {line.split()[0]: line.split()[1:] for line in listing.stdout.splitlines()}
    assert set(TASKS) == set(lines)
    assert all(lines.values())


def test_an_unknown_task_is_answered_with_the_list_before_anything_is_installed(tmp_path: Path) -> None:
    script = tmp_path / "tasks.py"
    script.write_bytes((ROOT / "tasks.py").read_bytes())
    answer = bare_python("dmeo", script=script)
    assert answer.returncode == 1
    assert "'dmeo'" in answer.stderr
    assert "demo" in answer.stdout
    assert not (tmp_path / ".venv").exists()


def test_a_failed_installation_says_what_pip_said_and_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "tasks.py"
    script.write_bytes((ROOT / "tasks.py").read_bytes())
    (tmp_path / "pyproject.toml").write_text("this is no toml")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    answer = bare_python("test", script=script)
    assert answer.returncode == 1
    assert "This failed:" in answer.stderr
    assert "Remove .venv" in answer.stderr
    assert not (tmp_path / ".venv" / "installed-for").exists()


def test_invoke_knows_the_same_tasks() -> None:
    listing = invoke("--list")
    assert listing.returncode == 0, listing.stderr
    assert all(f"  {name} " in listing.stdout for name in TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_help(name: str) -> None:
    told = invoke("--help", name)
    assert told.returncode == 0, told.stderr
    assert "Docstring:" in told.stdout


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    refused = invoke("bench", "bluk")
    assert refused.returncode == 2
    assert "bulk" in refused.stderr


def test_pre_commit_runs_what_check_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert all(tool in hooks for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports"))
    assert "repo: local" in hooks and "https://" not in hooks


def test_every_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert [requirement for requirement in requirements if ">=" not in requirement] == []
