"""The command line as an operator meets it: every verb, its exit code, and one clear line for what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from etl.config.schema import Retry
from etl.stages import endings
from tests.road import Road, count, rows

PRODUCTS = "SKU,Name,Price\nA-1,Blue mug,7.50\nA-2,Tea pot,24.00\n"


def etl(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real command in a folder; nothing it prints may be a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "etl", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def told(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def facts(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    return json.loads(told(done, code))


def project(root: Path, handlers: Mapping[str, str] | None = None, **transform: Any) -> Road:
    lite = {"kind": "sql", "url": "sqlite:///books.db", "table": "books", "create": True}
    spec = {"transform": {"read": "csv", **transform}, "load": {"locations": {"lite": lite}}}
    return Road(root, spec, handlers=dict(handlers or {}))


def loaded(road: Road) -> int:
    return count(f"sqlite:///{road.root / 'books.db'}", "books")


# --- the first five minutes --------------------------------------------------------------------------------


def test_a_starter_can_be_written_checked_and_run_by_following_what_is_printed(tmp_path: Path) -> None:
    told(etl(tmp_path, "init", "shop"))
    shop = tmp_path / "shop"
    assert "fix" not in told(etl(shop, "check"))
    (shop / "products.csv").write_text(PRODUCTS)
    assert "resolved" in told(etl(shop, "run", "example", "products.csv"))
    stored = rows(f"sqlite:///{shop / 'data/example.db'}", "products", "sku, name, price")
    assert [(sku, name, float(price)) for sku, name, price in stored] == [
        ("A-1", "Blue mug", 7.5),
        ("A-2", "Tea pot", 24.0),
    ]
    # a second time nothing of the operator's is overwritten
    (shop / "config/settings.yaml").write_text("workers: 1\n")
    again = etl(tmp_path, "init", "shop")
    assert again.returncode == 2
    assert "nothing was written" in again.stderr
    assert (shop / "config/settings.yaml").read_text() == "workers: 1\n"


def test_commands_find_their_configuration_from_a_folder_below_and_by_option_or_variable(
    tmp_path: Path,
) -> None:
    told(etl(tmp_path, "init", "shop"))
    below = tmp_path / "shop/data/deep"
    below.mkdir(parents=True)
    told(etl(below, "status"))
    config = str(tmp_path / "shop/config")
    told(etl(tmp_path, "--config", config, "status"))
    told(etl(tmp_path, "status", ETL_CONFIG=config))
    missing = etl(tmp_path, "status")
    assert missing.returncode == 2
    assert "etl init" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["statsu"], "did you mean 'status'?"),
        (["run"], "Missing argument"),
        (["run", "exampel"], "did you mean 'example'?"),
        (["status", "--colour"], "No such option"),
        (["retry"], "--pipeline"),
        (["discard", "x"], "--because"),
        (["discard", "--because", "x"], "--pipeline"),
        (["retry", "--pipeline", "example", "--stage", "clean"], "extract"),
        (["extract", "example"], "has no extract.sources"),
        (["worker", "nosuchqueue"], "no pipeline names the queue 'nosuchqueue'"),
        (["--config", "/nowhere", "status"], "/nowhere"),
    ],
)
def test_wrong_usage_is_told_in_words_and_ends_with_2(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], says: str
) -> None:
    shop = tmp_path_factory.getbasetemp() / "usage"
    if not shop.exists():
        told(etl(shop.parent, "init", "usage"))
    done = etl(shop, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr


def test_every_verb_has_a_help_text_and_they_are_grouped(tmp_path: Path) -> None:
    text = told(etl(tmp_path, "--help"))
    assert [text.index(f"{group}:") for group in ("Daily", "Set-up", "Advanced")] == sorted(
        text.index(f"{group}:") for group in ("Daily", "Set-up", "Advanced")
    )
    for verb in ("init", "check", "run", "extract", "status", "files", "failed", "show", "retry", "discard"):
        assert f"Usage: etl {verb}" in told(etl(tmp_path, verb, "--help"))


# --- counts and verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [[], ["--inline"]])
def test_a_file_with_only_a_header_is_resolved_with_0(tmp_path: Path, inline: list[str]) -> None:
    road = project(tmp_path)
    (tmp_path / "empty.csv").write_text("isbn,title\n")
    (one,) = facts(etl(tmp_path, "run", "books", "empty.csv", "--json", *inline))["files"]
    assert (one["verdict"], one["rows"], one["units"], one["held_back"]) == ("resolved", 0, 0, 0)
    assert len(road.files("transform", "resolved")) == 1
    assert road.files("load", "resolved") == []


def test_a_missing_column_fails_the_file_with_one_reason_and_publishes_nothing(tmp_path: Path) -> None:
    road = project(tmp_path, schema={"required": ["isbn", "title"]})
    (tmp_path / "books.csv").write_text("isbn,name\n1,Emma\n2,Persuasion\n")
    told(etl(tmp_path, "run", "--inline", "books", "books.csv"), 1)
    reason = road.reason(road.one("transform", "failed"))
    assert "missing column 'title'" in reason["summary"]
    assert reason["where"] == [{"field": "title", "cause": "missing column"}]
    assert list(reason) == [
        *("summary", "impact", "urgency", "next", "where", "cause", "attempt", "at", "recipe")
    ]
    assert not list(road.folder("load").rglob("*.jsonl"))
    assert loaded(road) == 0


def test_the_verdict_of_a_run_is_about_what_it_worked_not_about_older_failures(tmp_path: Path) -> None:
    road = project(tmp_path, schema={"required": ["isbn", "title"]})
    road.drop("wrong.csv", "isbn\n1\n")
    assert "wrong.csv" in told(etl(tmp_path, "run", "--inline", "books"), 1)
    assert told(etl(tmp_path, "run", "--inline", "books")) == "nothing waits in books\n"
    road.drop("right.csv", "isbn,title\n1,Emma\n")
    second = told(etl(tmp_path, "run", "--inline", "books"))
    assert "right.csv" in second
    assert "wrong.csv" not in second
    (tmp_path / "more.csv").write_text("isbn,title\n2,Persuasion\n")
    told(etl(tmp_path, "run", "--inline", "books", "more.csv"))


def test_a_folder_stands_for_the_files_in_it_and_a_missing_file_copies_nothing_in(tmp_path: Path) -> None:
    road = project(tmp_path)
    for name in ("in/a.csv", "in/deep/b.csv", "in/.hidden.csv", "in/c.csv.part"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("isbn\n1\n")
    refused = etl(tmp_path, "run", "--inline", "books", "in", "nowhere.csv")
    assert refused.returncode != 0
    assert "there is no file 'nowhere.csv'" in refused.stderr
    assert road.files("extract", "working") == []
    found = facts(etl(tmp_path, "run", "--inline", "books", "in", "--json"))["files"]
    assert sorted(one["name"] for one in found) == ["a.csv", "b.csv"]


# --- looking, retrying, discarding -------------------------------------------------------------------------


def test_what_failed_can_be_listed_shown_retried_and_discarded(tmp_path: Path) -> None:
    road = project(tmp_path, schema={"required": ["isbn"], "properties": {"isbn": {"type": "integer"}}})
    for name, text in (
        ("good.csv", "isbn\n1\n2\n"),
        ("mixed.csv", "isbn\n3\nx\n"),
        ("wrong.csv", "title\nEmma\n"),
    ):
        (tmp_path / name).write_text(text)
    told(etl(tmp_path, "run", "--inline", "books", "good.csv", "mixed.csv", "wrong.csv"), 1)

    listed = {one["name"]: one for one in facts(etl(tmp_path, "files", "--json"))}
    assert {name: one["verdict"] for name, one in listed.items()} == {
        "good.csv": "resolved",
        "mixed.csv": "partial",
        "wrong.csv": "failed",
    }
    assert listed["mixed.csv"]["held_back"] == 1
    assert facts(etl(tmp_path, "files", "books", "--today", "--json")) == list(listed.values())
    assert all(name in told(etl(tmp_path, "files")) for name in listed)

    places = {one["place"]: one for one in facts(etl(tmp_path, "status", "books", "--json"))["places"]}
    assert places["books/transform"]["failed"] == 2
    assert places["books/transform"]["resolved"] == 2
    assert "books/transform" in told(etl(tmp_path, "status"))

    failed = facts(etl(tmp_path, "failed", "--json"))
    assert sorted(one["place"] for one in failed) == ["books/transform", "books/transform"]
    text = told(etl(tmp_path, "failed", "books"))
    assert "line 3, isbn" in text
    assert "missing column 'isbn'" in text
    assert "isbn: missing column" in told(etl(tmp_path, "failed", "--group"))

    shown = facts(etl(tmp_path, "show", "mixed.csv", "--json"))
    assert [one["source"]["given"] for one in shown] == ["mixed.csv"]
    for wanted in (listed["mixed.csv"]["id"], listed["mixed.csv"]["id"][:14]):
        assert "line 3, isbn" in told(etl(tmp_path, "show", wanted))
    assert etl(tmp_path, "show", "nothing.csv").returncode == 1

    before = road.tree()
    assert "would move" in told(etl(tmp_path, "retry", "wrong.csv", "--dry-run"))
    assert "would discard" in told(etl(tmp_path, "discard", "wrong.csv", "--because", "old", "--dry-run"))
    assert road.tree() == before

    moved = facts(etl(tmp_path, "retry", "--cause", "missing column", "--json"))
    assert [one["place"] for one in moved] == ["books/transform"]
    assert [path.name.partition("~")[0] for path in road.files("transform", "working")] == ["wrong"]
    told(etl(tmp_path, "run", "--inline", "books"), 1)
    told(etl(tmp_path, "retry", str(road.files("transform", "failed")[-1])))
    told(etl(tmp_path, "run", "--inline", "books"), 1)

    gone = facts(etl(tmp_path, "discard", "wrong.csv", "--because", "the sender withdrew it", "--json"))
    target = Path(gone[0]["to"])
    assert target.is_relative_to(road.data / "archive" / "discarded")
    assert target.read_text() == "title\nEmma\n"
    why = json.loads(target.with_name(f"{target.name}.reason.json").read_text())
    assert why["discarded"] == "the sender withdrew it"
    assert "missing column" in why["summary"]
    assert len(road.files("transform", "failed")) == 1
    assert etl(tmp_path, "discard", "wrong.csv", "--because", "again").returncode == 1
    told(etl(tmp_path, "retry", "--location", "lite"))

    # the held-back row put right and moved back: all is well
    bad = road.one("transform", "failed")
    bad.write_text(bad.read_text().replace("x", "4"))
    told(etl(tmp_path, "retry", "--pipeline", "books", "--stage", "transform", "--stagger", "1ms"))
    told(etl(tmp_path, "run", "books"))
    assert loaded(road) == 4
    assert told(etl(tmp_path, "failed")) == "nothing failed\n"


def test_status_of_a_fresh_project_tells_that_nothing_runs_and_changes_nothing(tmp_path: Path) -> None:
    told(etl(tmp_path, "init", "."))
    before = sorted(tmp_path.rglob("*"))
    assert "no workers" in told(etl(tmp_path, "status"))
    for verb in ("files", "failed"):
        told(etl(tmp_path, verb))
        assert facts(etl(tmp_path, verb, "--json")) == []
    assert sorted(tmp_path.rglob("*")) == before


def test_output_cut_off_by_its_reader_is_no_error(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.drop("a.csv", "isbn\n1\n")
    road.work()
    command = [sys.executable, "-m", "etl", "files", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.stderr == ""


# --- configuration that cannot be followed -----------------------------------------------------------------

LOAD = "load: {locations: {lite: {kind: sql, url: 'sqlite:///x.db', table: t, create: true}}}\n"
WRONG = {
    "misspelt": (
        f"transform: {{read: csv, unit_per_file: 1}}\n{LOAD}",
        "config/pipelines/misspelt.yaml:1: transform.unit_per_file: unknown key; did you mean 'units_per_file'?",
    ),
    "no_handler": (
        f"transform: {{read: csv, handler: 'nowhere:to_unit'}}\n{LOAD}",
        "config/pipelines/no_handler.yaml:1: transform.handler: there is no nowhere.py",
    ),
    "no_function": (
        f"transform: {{read: csv, handler: 'example:nothing'}}\n{LOAD}",
        "config/pipelines/no_function.yaml:1: transform.handler: example.py has no function 'nothing'",
    ),
    "bad_duration": (
        f"transform: {{read: csv, timeout: 5 bananas}}\n{LOAD}",
        "config/pipelines/bad_duration.yaml:1: transform.timeout: '5 bananas' is not a duration",
    ),
    "unset": (
        "transform: {read: csv}\n" + LOAD.replace("'sqlite:///x.db'", "'${NOT_SET_ANYWHERE}'"),
        "config/pipelines/unset.yaml:2: load.locations.lite.url: the environment variable NOT_SET_ANYWHERE",
    ),
    "archive": (
        f"transform: {{read: csv}}\n{LOAD}",
        "config/pipelines/archive.yaml: a pipeline cannot be called 'archive'",
    ),
    "bad_format": (
        f"transform: {{read: cvs}}\n{LOAD}",
        "config/pipelines/bad_format.yaml:1: transform.read.format: unknown format 'cvs'; did you mean 'csv'?",
    ),
    "bad_kind": (
        "transform: {read: csv}\n" + LOAD.replace("kind: sql", "kind: sqll"),
        "config/pipelines/bad_kind.yaml:2: load.locations.lite.kind: there is no kind of location called 'sqll'",
    ),
    "bad_option": (
        f"transform: {{read: {{format: csv, delimeter: ';'}}}}\n{LOAD}",
        "config/pipelines/bad_option.yaml:1: transform.read.delimeter: unknown key; did you mean 'delimiter'?",
    ),
    "bad_schema": (
        f"transform: {{read: csv, schema: {{properties: {{a: {{type: text}}}}}}}}\n{LOAD}",
        "config/pipelines/bad_schema.yaml:1: transform.schema",
    ),
    "bad_yaml": ("transform: {read: csv\nload:\n", "config/pipelines/bad_yaml.yaml:2: not valid YAML"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which one pipeline is right and all others are wrong."""
    root = tmp_path_factory.mktemp("broken")
    told(etl(root, "init", "."))
    for name, (text, _) in WRONG.items():
        (root / f"config/pipelines/{name}.yaml").write_text(text)
    (root / "products.csv").write_text(PRODUCTS)
    return root


def test_check_names_every_mistake_in_a_line_of_its_own(broken: Path) -> None:
    lines = told(etl(broken, "check"), 2).splitlines()
    for name, (_, says) in WRONG.items():
        assert len([line for line in lines if line.startswith("fix") and says in line]) == 1, name
    assert len([line for line in lines if line.startswith("fix")]) == len(WRONG)
    problems = [one for one in facts(etl(broken, "check", "--json"), 2) if not one["ok"]]
    assert len(problems) == len(WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_a_pipeline_that_cannot_be_followed_is_not_run(broken: Path, name: str) -> None:
    done = etl(broken, "run", "--inline", name, "products.csv")
    assert done.returncode == 2, done.stdout
    assert [line for line in done.stderr.splitlines() if WRONG[name][1] in line]
    assert not list(broken.glob(f"data/{name}/extract/*/products*"))


def test_the_other_pipelines_run_and_the_broken_ones_are_told(broken: Path) -> None:
    done = etl(broken, "run", "--inline", "example", "products.csv")
    assert "resolved" in told(done)
    assert "etl: held: config/pipelines/misspelt.yaml:1" in done.stderr
    assert "misspelt" in told(etl(broken, "status"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("worker: 3\n", "settings.yaml:1: worker: unknown key; did you mean 'workers'?"),
        ("workers: many\n", "settings.yaml:1: workers"),
        ("scan: soon\n", "settings.yaml:1: scan: 'soon' is not a duration"),
        ("redis: http://x\n", "settings.yaml:1: redis"),
        ("redis: ${NOT_SET_ANYWHERE}\n", "NOT_SET_ANYWHERE is not set"),
        ("data: [\n", "settings.yaml"),
    ],
)
def test_settings_that_cannot_be_followed_end_every_verb_with_2(
    tmp_path: Path, settings: str, says: str
) -> None:
    told(etl(tmp_path, "init", "."))
    (tmp_path / "config/settings.yaml").write_text(settings)
    for verb in (["check"], ["status"]):
        done = etl(tmp_path, *verb)
        assert done.returncode == 2
        assert says in done.stdout + done.stderr
        assert len((done.stdout + done.stderr).strip().splitlines()) == 1


def test_a_redis_that_does_not_answer_is_told_and_inline_needs_none(tmp_path: Path) -> None:
    told(etl(tmp_path, "init", "."))
    (tmp_path / "config/settings.yaml").write_text("redis: redis://:hunter2@127.0.0.1:1/0\n")
    (tmp_path / "products.csv").write_text(PRODUCTS)
    for verb in (["run", "example", "products.csv"], ["check"], ["worker", "--burst"]):
        done = etl(tmp_path, *verb)
        assert done.returncode == 2, done.stdout
        assert "Redis at 127.0.0.1:1 does not answer" in done.stdout + done.stderr
        assert "hunter2" not in done.stdout + done.stderr
    assert "does not answer" in told(etl(tmp_path, "status"))
    told(etl(tmp_path, "run", "--inline", "example", "products.csv"))


# --- what a handler may raise ------------------------------------------------------------------------------


def test_a_retryable_error_backs_off_doubling_and_never_above_the_most() -> None:
    retry = Retry.model_validate({"times": 9, "first": "10s", "most": "1m"})
    assert [endings.delay(retry, tries) for tries in range(5)] == [10, 20, 40, 60, 60]
    assert endings.delay(retry, 10_000) == 60


RETRYABLE = {"transform": {"retry": {"times": 1, "first": "100ms", "most": "200ms"}}}


@pytest.mark.parametrize("inline", [[], ["--inline"]])
def test_a_handler_that_asks_for_another_try_gets_it_until_the_cap(tmp_path: Path, inline: list[str]) -> None:
    code = "import etl\ndef to_unit(row):\n    raise etl.Retryable('the rates are not there yet')\n"
    road = project(tmp_path, {"rates": code}, handler="rates:to_unit", **RETRYABLE["transform"])
    (tmp_path / "books.csv").write_text("isbn\n1\n")
    told(etl(tmp_path, "run", "books", "books.csv", *inline), 1)
    failed = road.one("transform", "failed")
    reason = road.reason(failed)
    assert reason["summary"] == "the rates are not there yet (tried 2 times)"
    assert reason["attempt"] == 2
    # mended and moved back, it starts anew
    road.handle("def to_unit(row):\n    return row\n", "rates")
    road.move_back(failed)
    told(etl(tmp_path, "run", "books", *inline))
    assert loaded(road) == 1


def test_a_retryable_error_that_passes_leaves_no_trace(tmp_path: Path) -> None:
    code = (
        "import etl, pathlib\nMARK = pathlib.Path(__file__).with_name('tried')\n"
        "def to_unit(row):\n    if not MARK.exists():\n        MARK.touch()\n"
        "        raise etl.Retryable('not yet')\n    return row\n"
    )
    road = project(tmp_path, {"rates": code}, handler="rates:to_unit", **RETRYABLE["transform"])
    (tmp_path / "books.csv").write_text("isbn\n1\n")
    told(etl(tmp_path, "run", "--inline", "books", "books.csv"))
    assert loaded(road) == 1
    assert road.broken_promises() == []
    assert not list(road.data.rglob("*.reason.json"))


def test_final_fails_the_file_and_any_other_exception_holds_back_its_row(tmp_path: Path) -> None:
    code = (
        "import etl\ndef to_unit(row):\n    if row['isbn'] == 'stop':\n"
        "        raise etl.Final('this file is of last year', next='ask for the new one')\n"
        "    return {'isbn': int(row['isbn'])}\n"
    )
    road = project(tmp_path, {"strict": code}, handler="strict:to_unit")
    (tmp_path / "last_year.csv").write_text("isbn\n1\nstop\n")
    (tmp_path / "mixed.csv").write_text("isbn\n1\ntwo\n3\n")
    told(etl(tmp_path, "run", "--inline", "books", "last_year.csv", "mixed.csv"), 1)
    whole, bad = sorted(road.files("transform", "failed"))
    assert (whole.name.partition("~")[0], bad.name.partition("~")[0]) == ("last_year", "mixed")
    assert road.reason(whole)["summary"] == "this file is of last year"
    assert road.reason(whole)["next"] == "ask for the new one"
    (where,) = road.reason(bad)["where"]
    assert where["line"] == 3
    assert where["cause"].startswith("ValueError: invalid literal for int()")
    assert bad.read_text() == "isbn\ntwo\n"
    assert loaded(road) == 2


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("def to_unit(row):\n    return 'text'\n", "the handler returned str"),
        ("def to_unit(row):\n    return [row, 7]\n", "the handler returned int"),
        ("def to_unit(row):\n    return {'isbn': object()}\n", "object"),
        ("def to_unit(row):\n    return row['nothing']\n", "KeyError"),
        (
            "import sys\ndef to_unit(row):\n    sys.setrecursionlimit(200)\n    return to_unit(row)\n",
            "Recursion",
        ),
    ],
)
def test_what_a_handler_returns_or_raises_wrongly_is_told_with_its_line(
    tmp_path: Path, code: str, cause: str
) -> None:
    road = project(tmp_path, {"odd": code}, handler="odd:to_unit")
    (tmp_path / "books.csv").write_text("isbn\n1\n")
    told(etl(tmp_path, "run", "--inline", "books", "books.csv"), 1)
    reason = road.reason(road.one("transform", "failed"))
    assert cause in reason["where"][0]["cause"], reason
    assert reason["where"][0]["line"] == 2
    assert loaded(road) == 0


@pytest.mark.parametrize(
    "leaving",
    ["raise SystemExit(3)", "import sys; sys.exit()", "raise KeyboardInterrupt", "raise GeneratorExit"],
)
def test_a_handler_that_tries_to_leave_fails_its_file_or_row_and_stops_no_other(
    tmp_path: Path, leaving: str
) -> None:
    code = f"def to_unit(row):\n    if row['isbn'] == '666':\n        {leaving}\n    return row\n"
    road = project(tmp_path, {"odd": code}, handler="odd:to_unit")
    (tmp_path / "bad.csv").write_text("isbn\n666\n")
    (tmp_path / "good.csv").write_text("isbn\n1\n")
    told(etl(tmp_path, "run", "books", "bad.csv", "good.csv"), 1)
    assert loaded(road) == 1
    reason = road.reason(road.one("transform", "failed"))
    assert reason["summary"].startswith("1 of 1 rows are wrong")
    assert reason["attempt"] == 1
    assert road.files("transform", "in_process") == []


# --- what is begun is begun wholly, and said ----------------------------------------------------------------


def test_a_file_that_cannot_be_read_leaves_all_others_of_the_run_where_they_are(tmp_path: Path) -> None:
    road = project(tmp_path)
    (tmp_path / "a.csv").write_text("isbn\n1\n")
    os.mkfifo(tmp_path / "pipe.csv")
    done = etl(tmp_path, "run", "--inline", "books", "a.csv", "pipe.csv")
    assert "is not a regular file" in done.stderr
    assert done.returncode == 1
    assert road.files("extract", "working") == []


def test_a_folder_with_a_link_in_it_is_refused_and_so_is_an_empty_one(tmp_path: Path) -> None:
    road = project(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    done = etl(tmp_path, "run", "--inline", "books", "in")
    assert (done.returncode, "there is no file to take" in done.stderr) == (1, True)
    (folder / "link.csv").symlink_to("/etc/hostname")
    done = etl(tmp_path, "run", "--inline", "books", "in")
    assert (done.returncode, "is a link, pipe or device" in done.stderr) == (1, True)
    assert road.tree() == []


def test_a_request_that_is_written_while_redis_is_away_is_said_to_be_and_is_followed_later(
    tmp_path: Path,
) -> None:
    road = project(tmp_path)
    (tmp_path / "a.csv").write_text("isbn\n1\n")
    done = etl(tmp_path, "extract", "books", "a.csv", ETL_REDIS="redis://127.0.0.1:1")
    assert "asked: request" in told(done)
    assert "nothing is lost" in done.stderr
    told(etl(tmp_path, "run", "--inline", "books"))
    assert loaded(road) == 1


def test_a_damaged_source_note_ends_no_view(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.drop("a.csv", "isbn\n1\n")
    told(etl(tmp_path, "run", "--inline", "books"))
    for note in road.layout.source_note("books", "x").parent.glob("*.json"):
        note.write_text("not JSON")
    assert "a.csv" in told(etl(tmp_path, "files"))


def test_a_pipeline_that_cannot_be_followed_is_told_once_by_the_command_that_is_about_it(
    tmp_path: Path,
) -> None:
    road = project(tmp_path)
    road.spec["transform"]["reed"] = "csv"
    config = tmp_path / "config" / "pipelines" / "books.yaml"
    config.write_text(json.dumps(road.spec))
    done = etl(tmp_path, "run", "books")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_workers_leave_the_files_of_a_pipeline_they_cannot_follow_waiting(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.drop("a.csv", "isbn\n1\n")
    road.spec["load"]["locations"]["lite"]["tabel"] = "books"
    road.write()
    done = etl(tmp_path, "worker", "--burst")
    assert "books is held, its files wait" in done.stderr
    assert len(road.files("extract", "working")) == 1


def test_a_file_that_takes_too_long_to_claim_fails_with_that_reason(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.spec["extract"] = {"timeout": "1s"}
    road.write()
    with road.drop("big.csv", "").open("wb") as handle:
        handle.truncate(1 << 35)
    assert told(etl(tmp_path, "run", "--inline", "books"), 1)
    assert "extract.timeout allows" in road.reason(road.one("extract", "failed"))["summary"]


def test_a_file_that_a_person_renamed_is_accepted_by_its_new_name(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.spec["extract"] = {"accept": ["*.csv"]}
    road.write()
    road.drop("a.txt", "isbn\n1\n")
    told(etl(tmp_path, "run", "--inline", "books"), 1)
    failed = road.one("extract", "failed")
    failed.rename(road.folder("extract", "working") / failed.name.replace(".txt", ".csv"))
    told(etl(tmp_path, "run", "--inline", "books"))
    assert loaded(road) == 1


def test_a_handler_may_use_dataclasses_and_take_the_file_by_default(tmp_path: Path) -> None:
    code = """
from __future__ import annotations
from dataclasses import asdict, dataclass

@dataclass
class Book:
    isbn: str
    file: str

def to_unit(row, file=None):
    return asdict(Book(row["isbn"], file.name))
"""
    road = project(tmp_path, {"handler": code}, handler="handler:to_unit")
    road.drop("a.csv", "isbn\n1\n")
    told(etl(tmp_path, "run", "--inline", "books"))
    assert rows(f"sqlite:///{tmp_path / 'books.db'}", "books", "file") == [("a.csv",)]
