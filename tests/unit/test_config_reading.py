"""What an operator writes is found, read and explained: every mistake by file, line and key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etl.config import reading
from etl.errors import ConfigError

PROJECT = Path(__file__).parents[2]
GOOD = """\
transform:
  read: csv
load:
  locations:
    warehouse: {kind: sql, url: "sqlite:///x.db", table: t}
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ETL_CONFIG", "ETL_DATA", "ETL_REDIS", "ETL_WORKERS", "ETL_SCAN", "NOT_SET"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = tmp_path / "shop" / "config"
    (config / "pipelines").mkdir(parents=True)
    (config / "settings.yaml").touch()
    return config


def write(folder: Path, text: str, name: str = "books.yaml") -> None:
    (folder / "pipelines" / name).write_text(text)


def complaints(folder: Path, text: str, name: str = "books.yaml") -> list[str]:
    """Write one pipeline and give the lines that are said about it."""
    write(folder, text, name)
    return [str(error) for error in reading.read(folder).broken.get(Path(name).stem, ())]


def settings_complaints(folder: Path, text: str) -> list[str]:
    (folder / "settings.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        reading.read(folder)
    return str(caught.value).splitlines()


def test_empty_settings_are_the_defaults(folder: Path) -> None:
    config = reading.read(folder)
    assert (config.settings.workers, config.settings.scan) == (2, 30.0)
    assert config.settings.redis.get_secret_value() == "embedded"
    assert (config.root, config.data) == (folder.parent, folder.parent / "data")
    assert config.pipelines == {}


def test_the_folder_is_found_from_below(folder: Path) -> None:
    deep = folder.parent / "data" / "books"
    deep.mkdir(parents=True)
    assert reading.find(start=deep) == folder


def test_the_folder_that_is_given_wins_over_the_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETL_CONFIG", str(folder))
    assert reading.find(start=tmp_path) == folder
    other = tmp_path / "other"
    other.mkdir()
    (other / "settings.yaml").touch()
    assert reading.find(other, start=tmp_path) == other


def test_no_folder_anywhere_mentions_the_starter(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="etl init"):
        reading.find(start=tmp_path)


def test_pointing_above_the_config_folder_is_corrected(folder: Path) -> None:
    with pytest.raises(ConfigError, match=f"--config: .*itself: {folder}"):
        reading.find(folder.parent)


def test_command_line_beats_environment_beats_yaml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "settings.yaml").write_text("workers: 3\nscan: 5s\ndata: from_yaml\n")
    monkeypatch.setenv("ETL_WORKERS", "4")
    monkeypatch.setenv("ETL_DATA", "/srv/elsewhere")
    monkeypatch.setenv("ETL_SCAN", "")
    config = reading.read(folder, {"workers": "5"})
    assert (config.settings.workers, config.settings.scan, config.data) == (5, 5.0, Path("/srv/elsewhere"))


def test_a_wrong_variable_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETL_WORKERS", "many")
    with pytest.raises(ConfigError, match=r"^ETL_WORKERS: workers: 'many' is not a whole number$"):
        reading.read(folder)


def test_a_variable_answers_for_an_unset_one_in_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "settings.yaml").write_text("redis: ${NOT_SET}\n")
    monkeypatch.setenv("ETL_REDIS", "redis://localhost/1")
    assert reading.read(folder).settings.redis.get_secret_value() == "redis://localhost/1"


def test_every_settings_problem_is_said_at_once_by_line(folder: Path) -> None:
    assert settings_complaints(
        folder, "scan: 0s\nwokers: 3\nredis: localhost:6379\nworkers: 0\ndata: .\n"
    ) == [
        "config/settings.yaml:1: scan: '0s' is too small; write more than 0",
        "config/settings.yaml:2: wokers: unknown key; did you mean 'workers'?",
        "config/settings.yaml:3: redis: write embedded, or a URL that starts with redis://, rediss:// or unix://",
        "config/settings.yaml:4: workers: 0 is too small; write 1 or more",
        "config/settings.yaml:5: data: name a folder of its own, for example data",
    ]


def test_a_broken_pipeline_does_not_hold_the_others(folder: Path) -> None:
    write(folder, GOOD, "good.yaml")
    write(folder, "transform: {", "bad.yaml")
    config = reading.read(folder)
    assert set(config.pipelines) == {"good"}
    assert set(config.broken) == {"bad"}
    assert config.pipeline("good").spec.transform.read.format == "csv"
    assert config.pipeline("good").handlers == folder / "handlers"
    with pytest.raises(ConfigError, match=r"config/pipelines/bad\.yaml:1: not valid YAML"):
        config.pipeline("bad")


def test_an_unknown_pipeline_suggests_the_near_name(folder: Path) -> None:
    write(folder, GOOD)
    with pytest.raises(ConfigError, match=r"no pipeline 'boks' .* did you mean 'books'"):
        reading.read(folder).pipeline("boks")


def test_a_misspelt_key_is_one_line_that_names_the_right_one(folder: Path) -> None:
    assert complaints(folder, GOOD.replace("read:", "reed:")) == [
        "config/pipelines/books.yaml:2: transform.reed: unknown key; did you mean 'read'?"
    ]


def test_a_key_like_no_other_lists_the_known_ones(folder: Path) -> None:
    (line,) = complaints(folder, GOOD + "  retry: {xyz: 1}\n")
    assert line.endswith("load.retry.xyz: unknown key; known here: times, first, most")


def test_a_misspelt_key_inside_an_open_section_is_suggested_as_the_missing_one(folder: Path) -> None:
    (line,) = complaints(folder, GOOD.replace("kind:", "knd:"))
    assert line.endswith("load.locations.warehouse.kind: the key is missing; is 'knd' meant to be it?")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "timeout: 5 parsecs",
            "timeout: '5 parsecs' is not a duration; write a number with ms, s, m, h or d, for example 30s",
        ),
        ("bad_rows: {then: holt}", "bad_rows.then: 'holt' is not possible here; write 'hold' or 'fail'"),
        ("units_per_file: many", "units_per_file: 'many' is not a whole number"),
        ("units_per_file: 0", "units_per_file: 0 is too small; write 1 or more"),
        ("columns: [a]", "columns: must be a section with keys, for example {key: value}"),
        ("retry:", "retry: has no value; write one, or remove the key"),
        ("handler: a.py", "handler: 'a.py' must look like module:function, for config/handlers/module.py"),
        ("queue: [a]", "queue: must be text; put the value in quotes"),
    ],
)
def test_a_wrong_value_is_explained_in_one_sentence(folder: Path, written: str, said: str) -> None:
    text = GOOD.replace("  read: csv\n", f"  read: csv\n  {written}\n")
    assert complaints(folder, text) == [f"config/pipelines/books.yaml:3: transform.{said}"]


def test_what_follows_a_pull_is_a_word_or_a_folder(folder: Path) -> None:
    write(
        folder, GOOD + "extract: {sources: [a, {path: b, after: delete}, {path: c, after: {move: done}}]}\n"
    )
    a, b, c = reading.read(folder).pipeline("books").spec.extract.sources
    assert (a.after, b.after, c.model_dump()["after"]) == ("leave", "delete", {"move": Path("done")})
    assert complaints(folder, GOOD + "extract: {sources: {path: a, after: burn}}\n") == [
        "config/pipelines/books.yaml:6: extract.sources.after: write leave, delete or {move: DIR}"
    ]
    (line,) = complaints(folder, GOOD + "extract: {sources: [{path: a, after: {mov: b}}]}\n")
    assert line.endswith("extract.sources[0].after.mov: unknown key; did you mean 'move'?")


@pytest.mark.parametrize(
    ("name", "instead"),
    [("archive", "feed_archive"), ("working", "feed_working"), ("Bad-Name", "bad_name"), ("2x", "feed_2x")],
)
def test_a_name_that_cannot_be_a_pipelines_says_what_to_rename(folder: Path, name: str, instead: str) -> None:
    (line,) = complaints(folder, GOOD, f"{name}.yaml")
    assert line.startswith(f"config/pipelines/{name}.yaml: ")
    assert line.endswith(f"rename the file, for example to {instead}.yaml")


def test_a_location_cannot_have_a_word_of_the_tree(folder: Path) -> None:
    (line,) = complaints(folder, GOOD.replace("warehouse:", "failed:"))
    assert "books.yaml:5: load.locations.failed: a location cannot be called 'failed'" in line


def test_a_file_that_ends_in_yml_is_not_overlooked(folder: Path) -> None:
    (line,) = complaints(folder, GOOD, "books.yml")
    assert "rename the file to books.yaml" in line


def test_what_an_editor_leaves_is_no_pipeline(folder: Path) -> None:
    write(folder, GOOD, ".books.yaml")
    write(folder, GOOD, "books.yaml~")
    config = reading.read(folder)
    assert (config.pipelines, config.broken) == ({}, {})


def test_the_demo_configuration_is_whole() -> None:
    config = reading.read(PROJECT / "config")
    assert config.broken == {}
    assert {"books", "orders", "sensors"} <= set(config.pipelines)
    for pipeline in config.pipelines.values():
        for source in pipeline.spec.extract.sources:
            assert list(config.root.glob(source.path)), source.path


def test_reading_imports_yaml_and_pydantic_only() -> None:
    heavy = "{'rq', 'redis', 'sqlalchemy', 'psycopg', 'click', 'rich', 'fsspec', 'orjson', 'jsonschema_rs'}"
    program = f"import sys, etl.config.reading; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
