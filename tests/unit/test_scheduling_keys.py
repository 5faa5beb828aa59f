"""What an operator writes about schedules, the dashboard and the heartbeat is understood or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from etl.config import reading
from etl.config.scheduling import Schedule
from etl.errors import ConfigError
from etl.services import plans


def read(root: Path, schedule: Any = None, sources: bool = True, **settings: Any) -> reading.Config:
    folder = root / "config"
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "settings.yaml").write_text(yaml.safe_dump({"workers": 1, **settings}))
    spec: dict[str, Any] = {
        "extract": {"sources": ["in/*"]} if sources else {},
        "transform": {"read": "csv"},
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
    }
    if schedule is not None:
        spec["schedule"] = schedule
    (folder / "pipelines" / "books.yaml").write_text(yaml.safe_dump(spec))
    return reading.read(folder)


def test_a_bare_line_is_in_utc_and_a_zone_is_named(tmp_path: Path) -> None:
    config = read(tmp_path, "0 2  * * *")
    assert config.pipelines["books"].spec.schedule == (Schedule(cron="0 2 * * *", zone="UTC"),)
    lines = ["0 2 * * *", {"cron": "0 9 * * sat", "zone": "Europe/London"}]
    found = [(plan.name, plan.text) for plan in plans.of(read(tmp_path, lines))]
    assert found == [
        ("books", "0 2 * * * UTC"),
        ("books-2", "0 9 * * sat Europe/London"),
        ("clean", "30 2 * * * UTC"),
    ]


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("0 25 * * *", "'25' is no hour (0-23"),
        ("0 2 * *", "'0 2 * *' is not a cron line"),
        ({"cron": "0 2 * * *", "zone": "Europe/Londn"}, "is no time zone; did you mean 'Europe/London'?"),
        ({"cron": "0 2 * * *", "zone": "../../etc/passwd"}, "is no time zone"),
        ({"cron": "0 2 * * *", "zone": "Europe"}, "is no time zone"),
        ({"cron": "0 2 * * *", "zone": ""}, "is no time zone"),
        ({"zone": "UTC"}, "schedule: cron: the key is missing"),
        ({"cron": "0 2 * * *", "tz": "UTC"}, "unknown key"),
    ],
)
def test_a_schedule_that_cannot_be_followed_holds_its_pipeline_and_says_why(
    tmp_path: Path, schedule: Any, said: str
) -> None:
    config = read(tmp_path, schedule)
    (error,) = config.broken["books"]
    assert "config/pipelines/books.yaml:" in str(error) and said.replace(": cron", ".cron") in str(error)


def test_a_pipeline_without_sources_has_nothing_to_pull_by_the_clock(tmp_path: Path) -> None:
    (error,) = read(tmp_path, "0 2 * * *", sources=False).broken["books"]
    assert "schedule: there is nothing to pull by the clock; add extract.sources" in str(error)


@pytest.mark.parametrize("off", [False, "off"])
def test_the_nightly_clean_and_the_dashboard_are_on_and_can_be_switched_off(tmp_path: Path, off: Any) -> None:
    settings = read(tmp_path).settings
    assert settings.clean == Schedule(cron="30 2 * * *") and settings.dashboard is not None
    settings = read(tmp_path, clean=off, dashboard=off).settings
    assert settings.clean is None and settings.dashboard is None


def test_the_environment_switches_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in (
        ("CLEAN", "0 5 * * *"),
        ("DASHBOARD", "127.0.0.1:9000"),
        ("HEARTBEAT", "https://hc.example/s3cr"),
    ):
        monkeypatch.setenv(f"ETL_{key}", value)
    settings = read(tmp_path).settings
    assert settings.clean is not None and settings.clean.cron == "0 5 * * *"
    assert settings.dashboard is not None and settings.dashboard.at == "127.0.0.1:9000"
    assert settings.heartbeat is not None and "s3cr" not in repr(settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dashboard": "9181"}, "dashboard: '9181' is not host:port"),
        ({"dashboard": "127.0.0.1:99999"}, "is not host:port"),
        ({"dashboard": {"password": "short"}}, "too short"),
        ({"heartbeat": "hc.example/x"}, "write a URL that starts with https:// or http://"),
        ({"heartbeat": "https://user@hc.example/"}, "without a user in it"),
        ({"heartbeat": {"url": "https://hc.example", "every": "5"}}, "has no unit"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path: Path, settings: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, **settings)
    assert said in str(refused.value)
