"""From the `config/` folder to one frozen `Config`: found, read, filled from the environment, validated.

A broken pipeline file is put aside with its errors and never stops the others. Never opens a connection.
Called once per command by `app`; formats and locations validate their own options through `options`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from etl.config import yaml_lines
from etl.config.origin import KeyPath, Origin, together
from etl.config.schema import RESERVED, Pipeline, check_name
from etl.config.settings import Settings
from etl.config.strict import NAME
from etl.config.wording import Section, known_keys, near_word
from etl.config.yaml_lines import Document, Problem
from etl.errors import ConfigError

__all__ = ["Config", "KeyPath", "Origin", "PipelineConfig", "find", "options", "read"]

M = TypeVar("M", bound=BaseModel)

SETTINGS = "settings.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """One pipeline as configured, and where every key of it was written."""

    name: str
    spec: Pipeline
    origin: Origin
    #: the folder of handler modules.
    handlers: Path
    #: where its handler was written.
    handler_at: KeyPath = ("transform", "handler")

    def of_type(self, kind: str | None) -> PipelineConfig:
        """Give the pipeline as a message of this type sees it: with the handler that `types:` names for it."""
        handler = self.spec.types.get(kind) if kind else None
        if handler is None:
            return self
        transform = self.spec.transform.model_copy(update={"handler": handler})
        spec = self.spec.model_copy(update={"transform": transform})
        return replace(self, spec=spec, handler_at=("types", str(kind)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything the operator wrote. Relative paths start at `root`, the folder that holds `config/`."""

    folder: Path
    root: Path
    settings: Settings
    pipelines: Mapping[str, PipelineConfig]
    broken: Mapping[str, tuple[ConfigError, ...]] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """Give the data folder as an absolute path."""
        return self.root / self.settings.data

    @property
    def archive(self) -> Path:
        """Give the folder of the archives as an absolute path."""
        chosen = self.settings.archive
        return self.root / chosen if chosen is not None else self.data / "archive"

    def pipeline(self, name: str) -> PipelineConfig:
        """Give a pipeline by name, or raise ConfigError with its own errors or the near name."""
        if name in self.pipelines:
            return self.pipelines[name]
        if name in self.broken:
            raise together(self.broken[name])
        names = sorted({*self.pipelines, *self.broken})
        near = near_word(name, names)
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"
        raise ConfigError(f"there is no pipeline {name!r} in {self.folder / 'pipelines'}; {hint}")

    def of_type(self, kind: str) -> PipelineConfig:
        """Give the one pipeline whose `types:` has this type, or raise ConfigError."""
        found = [one for one in self.pipelines.values() if kind in one.spec.types]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(_doubled(kind, found), next="leave it to one of them, or name the pipeline")
        known = sorted({one for pipeline in self.pipelines.values() for one in pipeline.spec.types})
        near = near_word(kind, known)
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise ConfigError(
            f"no pipeline has the type {kind!r}; {hint}", next="types are listed under `types:`"
        )

    def doubled_types(self) -> list[str]:
        """Say which types more than one pipeline has: a message of them could go anywhere."""
        owners: dict[str, list[PipelineConfig]] = {}
        for pipeline in self.pipelines.values():
            for kind in pipeline.spec.types:
                owners.setdefault(kind, []).append(pipeline)
        return [_doubled(kind, found) for kind, found in owners.items() if len(found) > 1]


def _doubled(kind: str, found: list[PipelineConfig]) -> str:
    where = ", ".join(f"{one.origin.shown_file}:{one.origin.line(('types', kind))}" for one in found)
    return f"more than one pipeline has the type {kind!r}: {where}"


def find(explicit: Path | None = None, start: Path | None = None) -> Path:
    """Find the config folder: as given, by `ETL_CONFIG`, or from here upward; else raise ConfigError."""
    if explicit is not None:
        return _given(explicit, "--config")
    if from_environment := os.environ.get("ETL_CONFIG"):
        return _given(Path(from_environment), "ETL_CONFIG")
    here = Path(os.path.abspath(start or Path.cwd()))  # noqa: PTH100 - a linked folder keeps its own neighbours
    for folder in (here, *here.parents):
        if (folder / "config" / SETTINGS).is_file():
            return folder / "config"
    raise ConfigError(
        f"no config/{SETTINGS} in {here} or any folder above it",
        next="Change to your project's folder, give --config DIR, or write a starter with: etl init",
    )


def _given(folder: Path, told_by: str) -> Path:
    if (folder / SETTINGS).is_file():
        return Path(os.path.abspath(folder))  # noqa: PTH100 - as in find
    if (folder / "config" / SETTINGS).is_file():
        hint = f"Point it at the config folder itself: {folder / 'config'}"
    else:
        hint = "Point it at a folder with that file in it, or write a starter with: etl init"
    raise ConfigError(f"{told_by}: there is no {SETTINGS} in {folder}", next=hint)


def read(folder: Path, overrides: Mapping[str, str] | None = None) -> Config:
    """Read the whole folder; settings that cannot be followed raise ConfigError with one line per problem."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - as in find
    settings = _settings(yaml_lines.load(folder / SETTINGS, folder.parent), overrides or {})
    pipelines: dict[str, PipelineConfig] = {}
    broken: dict[str, tuple[ConfigError, ...]] = {}
    for file in _pipeline_files(folder / "pipelines"):
        try:
            pipelines[file.stem] = _pipeline(file, folder)
        except _BrokenError as refused:
            broken[file.stem] = (*broken.get(file.stem, ()), *refused.errors)
    whole = {name: pipeline for name, pipeline in pipelines.items() if name not in broken}
    return Config(folder=folder, root=folder.parent, settings=settings, pipelines=whole, broken=broken)


def options(model: type[M], written: Mapping[str, Any], origin: Origin, path: KeyPath) -> M:
    """Fill a format's or location's own options model, or raise ConfigError with one line per problem."""
    also = tuple(known_keys(Pipeline, path))
    filled = Section(model=model, written=written, origin=origin, at=path, also=also).fill()
    if isinstance(filled, list):
        raise together([origin.error(problem.path, problem.message) for problem in filled])
    return filled


def _settings(document: Document, overrides: Mapping[str, str]) -> Settings:
    environment = {f"ETL_{key.upper()}": key for key in Settings.model_fields}
    # an empty variable counts as unset: that is what compose files and unit files make of a missing one
    from_environment = {key: os.environ[name] for name, key in environment.items() if os.environ.get(name)}
    told_by = {key: f"ETL_{key.upper()}" for key in from_environment}
    told_by |= dict.fromkeys(overrides, "command line")
    written = {**document.values, **from_environment, **overrides}
    unanswered = [
        problem for problem in document.problems if problem.path[:1] not in {(key,) for key in told_by}
    ]
    filled = Section(model=Settings, written=written, origin=document.origin).fill(unanswered)
    if isinstance(filled, list):
        raise together([_settings_error(problem, told_by, document.origin) for problem in filled])
    return filled


def _settings_error(problem: Problem, told_by: Mapping[str, str], origin: Origin) -> ConfigError:
    key = str(problem.path[0]) if problem.path else ""
    if key in told_by:
        return ConfigError(f"{told_by[key]}: {key}: {problem.message}")
    return origin.error(problem.path, problem.message)


class _BrokenError(Exception):
    """A pipeline file cannot be followed."""

    def __init__(self, *errors: ConfigError) -> None:
        super().__init__(*errors)
        self.errors = errors


def _pipeline_files(folder: Path) -> list[Path]:
    """List what is meant to be a pipeline; hidden files are an editor's."""
    return sorted(file for file in folder.glob("[!.]*") if file.suffix in {".yaml", ".yml"})


def _pipeline(file: Path, folder: Path) -> PipelineConfig:
    _check_file_name(file, folder.parent)
    try:
        document = yaml_lines.load(file, folder.parent)
    except ConfigError as error:
        raise _BrokenError(error) from error
    origin = document.origin
    spec = Section(model=Pipeline, written=document.values, origin=origin).fill(document.problems)
    if isinstance(spec, list):
        raise _BrokenError(*(origin.error(problem.path, problem.message) for problem in spec))
    return PipelineConfig(name=file.stem, spec=spec, origin=origin, handlers=folder / "handlers")


def _check_file_name(file: Path, root: Path) -> None:
    """Accept `<pipeline>.yaml`, or raise with the name the file could have instead."""
    origin = Origin(file=file, lines={}, root=root)
    if file.suffix != ".yaml":
        raise _BrokenError(
            origin.error((), f"rename the file to {file.stem}.yaml: pipeline files end in .yaml")
        )
    try:
        check_name("pipeline", file.stem)
    except ValueError as error:
        instead = re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_")
        if instead in RESERVED or not NAME.fullmatch(instead):
            instead = f"feed_{instead}".rstrip("_")
        message = f"{error}; rename the file, for example to {instead}.yaml"
        raise _BrokenError(origin.error((), message)) from error
