"""The starter can be followed as it is, and never harms what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.config import reading, starter
from etl.errors import ConfigError


def test_the_starter_reads_without_a_complaint(tmp_path: Path) -> None:
    written = starter.write(tmp_path / "new")
    assert [str(file.relative_to(tmp_path / "new")) for file in written] == [
        "config/handlers/example.py",
        "config/pipelines/example.yaml",
        "config/settings.yaml",
    ]
    config = reading.read(reading.find(start=tmp_path / "new"))
    assert (config.broken, set(config.pipelines)) == ({}, {"example"})
    assert config.data.is_dir()
    spec = config.pipeline("example").spec
    assert spec.transform.read.format == "csv"
    assert spec.load.locations["warehouse"].options["url"] == "sqlite:///data/example.db"


def test_what_the_starter_shows_as_default_is_the_default(tmp_path: Path) -> None:
    starter.write(tmp_path)
    settings = tmp_path / "config" / "settings.yaml"
    as_written = reading.read(settings.parent).settings
    shown = [line.removeprefix("# ") for line in settings.read_text().splitlines() if line.startswith("# ")]
    keys = [line for line in shown if line.split(":")[0] in type(as_written).model_fields]
    settings.write_text("\n".join(keys))
    assert len(keys) == len(type(as_written).model_fields)
    assert reading.read(settings.parent).settings == as_written


@pytest.mark.parametrize("there", ["config/settings.yaml", "config/handlers/example.py"])
def test_the_starter_never_overwrites(tmp_path: Path, there: str) -> None:
    mine = tmp_path / there
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=f"{there} is already there"):
        starter.write(tmp_path)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [mine]
    assert mine.read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file, not a folder")
    with pytest.raises(ConfigError, match="cannot write the starter"):
        starter.write(tmp_path)
