"""A file is taken literally: plain YAML, variables filled in, secrets kept out of every message."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr, field_validator

from etl.config import reading
from etl.config.origin import Origin
from etl.errors import ConfigError

GOOD = """\
transform:
  read: csv
load:
  locations:
    warehouse: {kind: sql, url: "sqlite:///x.db", table: t}
"""


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("load:\n\tlocations: 1\n", ":2: a tab cannot indent YAML; use spaces"),
        ("a: &a [x]\nb: *a\n", ":2: aliases such as *a are not supported; write the value out"),
        ("a: 1\nb: {c: ${D}}\n", ":2: not valid YAML: expected ',' or '}', but got '{'; put a value with"),
        ("- a\n", ":1: the file must hold keys with values"),
        ("[" * 5000, ":1: sections are nested too deeply"),
        ("a: 1\nb: \x01\n", ":2: a control character is not allowed here; remove it"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_by_line(folder: Path, text: str, said: str) -> None:
    (line,) = complaints(folder, text)
    assert line.startswith(f"config/pipelines/books.yaml{said}")


def test_text_that_is_not_utf_8_is_refused_by_line(folder: Path) -> None:
    (folder / "settings.yaml").write_bytes("workers: 2\n# Größe\n".encode("cp1252"))
    with pytest.raises(ConfigError, match=r"settings\.yaml:2: not UTF-8 text"):
        reading.read(folder)


def test_a_key_written_twice_is_refused(folder: Path) -> None:
    (line,) = complaints(folder, GOOD + "redact: a\nredact: b\n")
    assert line == "config/pipelines/books.yaml:7: redact: the key is written twice, first on line 6"


def test_tags_are_refused(folder: Path) -> None:
    (line,) = complaints(folder, GOOD + "redact: !!python/object/apply:os.getcwd []\n")
    assert line.startswith(
        "config/pipelines/books.yaml:6: redact: the tag !!python/object/apply:os.getcwd is not"
    )


def test_words_and_numbers_stay_what_they_look_like(folder: Path) -> None:
    write(
        folder,
        GOOD.replace("  read: csv", "  read: csv\n  schema: {enum: [no, 012, 12:30, 2026-11-18, 7, true]}"),
    )
    spec = reading.read(folder).pipeline("books").spec
    assert spec.transform.unit_schema["enum"] == ["no", "012", "12:30", "2026-11-18", 7, True]


def test_a_variable_is_filled_in_and_a_doubled_dollar_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter22")
    write(folder, GOOD.replace("sqlite:///x.db", "pg://me:${PASSWORD}@db/$${PASSWORD}"))
    locations = reading.read(folder).pipeline("books").spec.load.locations
    assert locations["warehouse"].options["url"] == "pg://me:hunter22@db/${PASSWORD}"


def test_an_unset_variable_is_named_with_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    assert complaints(folder, GOOD.replace("sqlite:///x.db", "${NOT_SET}")) == [
        "config/pipelines/books.yaml:5: load.locations.warehouse.url: "
        "the environment variable NOT_SET is not set; set it before starting etl"
    ]


def test_a_half_written_variable_is_refused(folder: Path) -> None:
    (line,) = complaints(folder, GOOD.replace("sqlite:///x.db", "${HOME:-x}"))
    assert "'${' must be followed by a name and '}'" in line


@pytest.mark.parametrize("secret", ["hunter22", "7x"])
def test_what_a_variable_held_shows_in_no_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("CANARY", secret)
    text = "  retry: {times: '${CANARY}', first: '${CANARY}', most: 'a${CANARY}'}\n  queue: '${CANARY}-'\n"
    lines = complaints(folder, GOOD + text)
    assert len(lines) == 4
    assert all(secret not in line and "${CANARY}" in line for line in lines)


def test_secrets_are_in_no_repr(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "hunter22")
    (folder / "settings.yaml").write_text("redis: redis://:${CANARY}@localhost\n")
    write(
        folder,
        GOOD.replace("sqlite:///x.db", "${CANARY}") + "extract: {sources: 'sftp://me:${CANARY}@host/x'}\n",
    )
    config = reading.read(folder)
    assert set(config.pipelines) == {"books"}
    assert "hunter22" not in repr(config)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: SecretStr
    table: str = "t"
    port: int = 1

    @field_validator("table")
    @classmethod
    def _table_is_short(cls, value: str) -> str:
        if len(value) > 5:
            raise ValueError(f"{value!r} is too long a table name")
        return value


def test_options_are_filled_by_their_own_model() -> None:
    origin = Origin(file=Path("books.yaml"), lines={})
    options = reading.options(Options, {"url": "x", "port": "7"}, origin, ("load", "locations", "w"))
    assert (options.url.get_secret_value(), options.port) == ("x", 7)


def test_options_are_explained_like_everything_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "hunter22")
    text = GOOD.replace(
        'url: "sqlite:///x.db", table: t', "ulr: x, table: '${CANARY}', port: '${CANARY}', knd: y"
    )
    write(folder, text)
    pipeline = reading.read(folder).pipeline("books")
    written = pipeline.spec.load.locations["warehouse"].options
    with pytest.raises(ConfigError) as caught:
        reading.options(Options, written, pipeline.origin, ("load", "locations", "warehouse"))
    place = "config/pipelines/books.yaml:5: load.locations.warehouse"
    assert sorted(str(caught.value).splitlines()) == [
        f"{place}.knd: unknown key; did you mean 'kind'?",
        f"{place}.port: '${{CANARY}}' is not a whole number",
        f"{place}.table: '${{CANARY}}' is too long a table name",
        f"{place}.ulr: unknown key; did you mean 'url'?",
    ]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
