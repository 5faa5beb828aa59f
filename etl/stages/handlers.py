"""The user's own code: loading a handler's module, calling it, and the recipe its output depends on.

A handler is read from `config/handlers/<module>.py` and run from the very bytes that were fingerprinted, so
that a recipe never lies. Called by transform.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from etl import process
from etl.config.reading import PipelineConfig
from etl.config.schema import Transform
from etl.errors import ConfigError, Final, Interrupted, Retryable, TimeUp
from etl.files import names

#: keys of `transform:` that decide how a job runs, not what comes out of it.
_NOT_IN_RECIPE = {"timeout", "queue", "retry"}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """What a handler that asks for it is told about the file a row comes from."""

    pipeline: str
    #: the name as it was given.
    name: str
    id: str
    generation: int
    #: of a message; see `files.headers`. A callback may carry a token, so they stay out of `repr`.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


Handler = Callable[[dict[str, Any], File], Any]


def fingerprint(pipeline: PipelineConfig, sha256: str) -> str:
    """Give the recipe of a file: its bytes, the `transform:` section, and the handler's module file."""
    spec = pipeline.spec.transform
    section = json.dumps(spec.model_dump(mode="json", exclude=_NOT_IN_RECIPE), sort_keys=True, default=str)
    digest = hashlib.sha256(f"{sha256}\n{section}\n".encode())
    if spec.handler:
        digest.update(_module_file(pipeline, spec).read_bytes())
    return digest.hexdigest()[:32]


def load(pipeline: PipelineConfig) -> Handler | None:
    """Load the pipeline's handler, or raise `ConfigError` naming the key and what is wrong with it."""
    spec = pipeline.spec.transform
    if not spec.handler:
        return None
    path = _module_file(pipeline, spec)
    module = _module(path, pipeline)
    function = getattr(module, spec.handler.partition(":")[2], None)
    if not callable(function):
        raise _wrong(pipeline, f"{path.name} has no function {spec.handler.partition(':')[2]!r}")
    return _with_file(function, pipeline)


def units(handler: Handler, row: dict[str, Any], file: File) -> Iterator[dict[str, Any]]:
    """Give the units a handler makes of one row; anything it raises but our own is the row's trouble."""
    owner = os.getpid()
    try:
        made = handler(row, file)
    finally:
        # a copy of us that the handler forked must not go on and write this file a second time
        process.end_if_forked(owner)
    if made is None:
        return
    for unit in made if isinstance(made, list | tuple) else (made,):
        if not isinstance(unit, dict):
            raise HandlerTrouble(
                f"the handler returned {type(unit).__name__}, not a unit (dict), a list of units or None"
            )
        yield unit


class HandlerTrouble(Exception):
    """The handler returned something that is not a unit."""


def _module_file(pipeline: PipelineConfig, spec: Transform) -> Path:
    module = (spec.handler or "").partition(":")[0]
    path = pipeline.handlers / f"{module}.py"
    if not path.is_file():
        raise _wrong(pipeline, f"there is no {path.name} in {pipeline.handlers}")
    return path


_modules: dict[str, ModuleType] = {}
#: the files they were run from.
_files: set[str] = set()


def _module(path: Path, pipeline: PipelineConfig) -> ModuleType:
    """Run a handler's module from its bytes, once per content; a changed file is loaded anew."""
    code = path.read_bytes()
    key = hashlib.sha256(str(path).encode() + b"\0" + code).hexdigest()
    if key not in _modules:
        _forget_neighbours(path.parent)
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        # by a name nobody else has: dataclasses and pickles look their module up
        module = ModuleType(f"etl_handler_{path.stem}_{key[:12]}")
        module.__file__ = str(path)
        _files.add(str(path))
        sys.modules[module.__name__] = module
        owner = os.getpid()
        try:
            exec(compile(code, str(path), "exec"), module.__dict__)  # noqa: S102 - the operator's own code
        except (TimeUp, Interrupted):
            del sys.modules[module.__name__]
            raise
        except BaseException as error:  # the edge: whatever an import of user code raises
            del sys.modules[module.__name__]
            raise _wrong(
                pipeline, f"{path.name} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        finally:
            process.end_if_forked(owner)
        _modules[key] = module
    return _modules[key]


def _forget_neighbours(folder: Path) -> None:
    """Have modules that handlers share read again too, once one handler changed."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).parent == folder:
            del sys.modules[name]


def _with_file(function: Callable[..., Any], pipeline: PipelineConfig) -> Handler:
    """Accept `handler(row)` and `handler(row, file)` alike."""
    try:
        parameters = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty or p.name == "file"
        ]
    except (TypeError, ValueError):
        parameters = []
    if len(parameters) == 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return function
    if len(parameters) == 1:
        return lambda row, _file: function(row)
    raise _wrong(
        pipeline,
        f"the handler takes {len(parameters)} arguments; write it as handler(row) or handler(row, file)",
    )


def _wrong(pipeline: PipelineConfig, message: str) -> ConfigError:
    return pipeline.origin.error(pipeline.handler_at, message)


def trouble(error: BaseException) -> str:
    """Say in one line what a handler's exception means for its row."""
    if isinstance(error, HandlerTrouble):
        return str(error)
    return f"{type(error).__name__}: {names.printable(str(error))[:200]}{_at(error)}"


def _at(error: BaseException) -> str:
    """Say where in a handler an exception was raised; "" when no handler had a part in it."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename in _files]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


#: what a handler raises to decide about the whole file instead of its row.
DECIDES = (Retryable, Final)
