"""What an operator may write about a pipeline, as frozen models: one for each `pipelines/<name>.yaml`.

Only shapes and defaults live here; reading YAML is `reading`'s. The options of a format or of a location are
kept as written and validated by the room that knows them, through `reading.options`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from etl.config.cleaning import Clean
from etl.config.durations import Duration, Share, Size
from etl.config.expecting import Expectation, one_or_many
from etl.config.following import Hook
from etl.config.noticing import PipelineMail
from etl.config.scheduling import Schedule, Schedules
from etl.config.strict import NAME, Names, Strict

#: words that already mean something in the data tree.
RESERVED = frozenset(
    {"extract", "transform", "load", "clean", "working", "in_process", "resolved", "failed", "archive"}
)


class About(Strict):
    """Who to ask; shown in reasons."""

    owner: str = ""
    contact: str = ""
    runbook: str = ""


class Retry(Strict):
    """How often and how long a retryable failure is tried again."""

    times: int = Field(default=5, ge=0)
    first: Duration = "10s"  # type: ignore[assignment]
    most: Duration = "10m"  # type: ignore[assignment]


class MoveTo(Strict):
    """`after: {move: DIR}`."""

    move: Path


def _kind_of_after(value: Any) -> str | None:
    if isinstance(value, dict | MoveTo):
        return "{move: DIR}"
    return "word" if value in ("leave", "delete") else None


After = Annotated[
    Annotated[Literal["leave", "delete"], Tag("word")] | Annotated[MoveTo, Tag("{move: DIR}")],
    Discriminator(
        _kind_of_after,
        custom_error_type="after",
        custom_error_message="write leave, delete or {move: DIR}",
    ),
]


class Source(Strict):
    """One place files are pulled from."""

    #: may carry a password, so it stays out of `repr`.
    path: str = Field(min_length=1, repr=False)
    #: how often the dropbox pulls it; without, only when asked.
    every: Duration | None = Field(default=None, ge=1)
    after: After = "leave"

    @model_validator(mode="after")
    def _only_local_files_are_moved(self) -> Source:
        if isinstance(self.after, MoveTo) and "://" in self.path and not self.path.startswith("file://"):
            raise ValueError("`after: {move: DIR}` is for local paths; for a URL write leave or delete")
        return self


class StageOptions(Strict):
    """What any stage may say about how its jobs run."""

    queue: str = "default"
    timeout: Duration = Field(default="30m", gt=0)  # type: ignore[assignment]
    retry: Retry = Retry()

    @field_validator("queue")
    @classmethod
    def _queue_is_a_name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a queue name: use lower-case letters, digits and _")
        return value


def _path_or_source(value: Any) -> Any:
    many = [value] if isinstance(value, str | dict) else value
    return (
        [{"path": item} if isinstance(item, str) else item for item in many]
        if isinstance(many, list)
        else many
    )


class Complete(Strict):
    """How a dropped file is known to be complete."""

    settle: Duration = "2s"  # type: ignore[assignment]
    #: the name of the file that says so, made from the dropped file's: `{name}.ok`.
    done: str | None = None

    @field_validator("done")
    @classmethod
    def _done_is_made_from_the_name(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.count("{name}") != 1 or value == "{name}" or "/" in value:
            raise ValueError(
                f"{value!r} must be a file name that holds {{name}} once, for example {{name}}.ok"
            )
        return value


class Extract(StageOptions):
    """Where files come from and which are acceptable."""

    sources: Annotated[tuple[Source, ...], BeforeValidator(_path_or_source)] = ()
    accept: Names = ("*",)
    complete: Complete = Complete()
    #: what happens to a file with the same bytes as the newest delivery of that given name.
    duplicates: Literal["load", "skip", "fail"] = "load"


def _format_or_options(value: Any) -> Any:
    return {"format": value} if isinstance(value, str) else value


class Open(BaseModel):
    """A section whose other keys belong to a format or a location, which validates them itself."""

    model_config = ConfigDict(extra="allow", frozen=True, validate_default=True)

    @property
    def options(self) -> Mapping[str, Any]:
        """Give the keys that are not this model's own, as written."""
        return self.__pydantic_extra__ or {}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        # the options may hold passwords; only the model that validates them knows which
        return [(name, getattr(self, name)) for name in type(self).model_fields]


class Read(Open):
    """How a file is read: its format, and the format's own options."""

    format: str
    #: a file that unpacks to more than this is refused.
    max_unpacked: Size = "20GB"  # type: ignore[assignment]


class BadRows(Strict):
    """What happens to rows that are wrong."""

    then: Literal["hold", "fail"] = "hold"
    at_most: Share = "100%"  # type: ignore[assignment]


class Transform(StageOptions):
    """How bytes become units."""

    read: Annotated[Read, BeforeValidator(_format_or_options)]
    columns: Mapping[str, Names] = Field(default_factory=dict)
    unknown_columns: Literal["keep", "drop", "fail"] = "keep"
    handler: str | None = None
    unit_schema: Mapping[str, Any] = Field(default_factory=dict, alias="schema")
    bad_rows: BadRows = BadRows()
    units_per_file: int = Field(default=10_000, ge=1)

    @field_validator("handler")
    @classmethod
    def _handler_names_module_and_callable(cls, value: str | None) -> str | None:
        check_handler(value)
        return value


class LocationOptions(Open):
    """A place units are written to: its kind, and the kind's own options."""

    kind: str


def _location_name(name: str) -> str:
    check_name("location", name)
    return name


class Load(StageOptions):
    """Where units go."""

    locations: Mapping[Annotated[str, AfterValidator(_location_name)], LocationOptions] = Field(min_length=1)
    #: unit files waiting for load above which transform begins nothing.
    max_waiting: int = Field(default=100_000, ge=1)


class Pipeline(Strict):
    """One `pipelines/<name>.yaml`."""

    about: About = About()
    extract: Extract = Extract()
    transform: Transform
    load: Load
    clean: Clean = Clean()
    #: fields whose values are kept out of reasons.
    redact: Names = ()
    #: who hears of this pipeline, in place of those in settings.yaml.
    mail: PipelineMail | None = None
    #: types of messages that come here, each with its handler; an empty one means the pipeline's own.
    types: Mapping[str, str | None] = Field(default_factory=dict)
    #: files that are missed when they do not come.
    expect: Annotated[tuple[Expectation, ...], BeforeValidator(one_or_many)] = ()
    #: what follows a verdict: resolved, or partial and failed.
    on_success: tuple[Hook, ...] = ()
    on_failure: tuple[Hook, ...] = ()
    #: when its sources are pulled by the clock.
    schedule: Schedules = ()

    @field_validator("schedule")
    @classmethod
    def _a_schedule_has_something_to_pull(
        cls, value: tuple[Schedule, ...], info: ValidationInfo
    ) -> tuple[Schedule, ...]:
        extract = info.data.get("extract")
        if value and extract is not None and not extract.sources:
            raise ValueError("there is nothing to pull by the clock; add extract.sources, or remove it")
        return value

    @field_validator("expect")
    @classmethod
    def _nothing_is_expected_twice(cls, value: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        known: set[str] = set()
        for one in value:
            if one.key in known:
                raise ValueError(f"{one.name!r} by {one.by:%H:%M} is there twice; keep one of them")
            known.add(one.key)
        return value

    @field_validator("types")
    @classmethod
    def _types_name_handlers(cls, value: Mapping[str, str | None]) -> Mapping[str, str | None]:
        for handler in value.values():
            check_handler(handler)
        return value

    @model_validator(mode="before")
    @classmethod
    def _sections_may_be_empty(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ({} if section is None else section) for key, section in value.items()}
        return value


def check_handler(value: str | None) -> None:
    """Accept a handler's name, or raise ValueError saying how one looks."""
    if value is not None and not re.fullmatch(r"[A-Za-z_]\w*:[A-Za-z_]\w*", value):
        raise ValueError(f"{value!r} must look like module:function, for config/handlers/module.py")


def check_name(kind: str, name: str) -> None:
    """Accept a pipeline's or location's name, or raise ValueError saying why it cannot be one."""
    if name in RESERVED:
        raise ValueError(
            f"a {kind} cannot be called {name!r}: the word already means something in the data tree"
        )
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a {kind} name: use lower-case letters, digits and _, a letter first"
        )
