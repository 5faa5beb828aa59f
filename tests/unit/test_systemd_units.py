"""The unit files for systemd can be read, call what exists, and give services the time they are promised."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from etl.cli.verbs import VERBS
from etl.config.settings import Settings
from etl.services.catalogue import SERVICES
from etl.services.supervisor import STOP_WITHIN

UNITS = sorted((Path(__file__).resolve().parents[2] / "config" / "systemd").glob("*.service"))


def read(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#", delimiters="=")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    return unit


def stops_within(path: Path) -> float:
    """Give the seconds that the longest clean stop of this unit may take."""
    name = path.stem.removeprefix("etl-")
    run = list(SERVICES.values()) if path.stem == "etl" else [SERVICES[name]]
    grace = Settings().stop_grace if any(one.holds_jobs for one in run) else 0.0
    return grace + len(run) * STOP_WITHIN


def test_there_is_a_unit_for_everything_and_for_each_service() -> None:
    assert sorted(path.stem for path in UNITS) == sorted(["etl", *(f"etl-{name}" for name in SERVICES)])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_calls_verbs_and_services_that_exist(path: Path) -> None:
    service = read(path)["Service"]
    for line in (service["ExecStart"], service["ExecReload"]):
        program, *arguments = shlex.split(line)
        if program.endswith("/etl"):
            assert arguments[0] in VERBS
            assert arguments[1:] in ([], [path.stem.removeprefix("etl-")])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_signals_its_main_process_alone_and_waits_long_enough(path: Path) -> None:
    service = read(path)["Service"]
    assert service["KillMode"] == "mixed"
    assert service["Restart"] == "always"
    assert float(service["TimeoutStopSec"]) > stops_within(path)
    assert set(read(path).sections()) == {"Unit", "Service", "Install"}
