"""YAML with the line of every key: one document becomes plain values, its `Origin` and what is wrong with it.

Only plain data: no aliases, no tags, no key twice. A word is text unless it is true, false, null or a number,
so `no`, `012`, `12:30` and dates stay what they look like. `reading` is the only caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from etl.config.origin import KeyPath, Origin
from etl.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset(_TAG + kind for kind in ("str", "timestamp", "value", "merge"))
#: `$${` stands for a plain `${`; a `${` that is neither that nor a whole variable is a mistake.
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong, and where."""

    path: KeyPath
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML file as plain values; `problems` lists the keys that could not be followed."""

    values: dict[str, Any]
    origin: Origin
    problems: tuple[Problem, ...]


def load(file: Path, root: Path) -> Document:
    """Read one YAML file, or raise ConfigError when it is not readable as YAML at all."""
    text = _text(file, Origin(file=file, lines={}, root=root))
    walk = _Walk(Origin(file=file, lines={(): 1}, root=root))
    node = _compose(text, walk.origin)
    if node is None:
        return Document(values={}, origin=walk.origin, problems=())
    try:
        values = walk.value(node, ())
    except RecursionError as error:
        raise walk.origin.error((), "sections are nested too deeply") from error
    if not isinstance(values, dict):
        raise walk.origin.error((), "the file must hold keys with values, for example 'workers: 2'")
    return Document(values=values, origin=walk.finished(), problems=tuple(walk.problems))


def _text(file: Path, origin: Origin) -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise origin.error((), f"cannot be read: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _at(origin, raw.count(b"\n", 0, error.start) + 1, "not UTF-8 text; save it as UTF-8") from error


def _compose(text: str, origin: Origin) -> yaml.Node | None:
    try:
        return _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _at(origin, line, _syntax(error, text.splitlines()[line - 1 : line])) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _at(origin, line, "a control character is not allowed here; remove it") from error
    except RecursionError as error:
        raise origin.error((), "sections are nested too deeply") from error


def _at(origin: Origin, line: int, message: str) -> ConfigError:
    return Origin(file=origin.file, lines={(): line}, root=origin.root).error((), message)


def _syntax(error: yaml.MarkedYAMLError, line: list[str]) -> str:
    problem = error.problem or error.context or "it does not follow the rules"
    if isinstance(error, _AliasError):
        return problem
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    hint = '; put a value with ${…} in quotes: "${NAME}"' if line and "${" in line[0] else ""
    return f"not valid YAML: {problem}{hint}"


class _AliasError(ComposerError):
    """An alias was used; expanding them can fill the memory, so there are none."""


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            message = f"aliases such as *{event.anchor} are not supported; write the value out"
            raise _AliasError(None, None, message, event.start_mark)
        return super().compose_node(parent, index)


class _Walk:
    """Turns composed nodes into values, noting lines, variables and problems on the way."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.lines: dict[KeyPath, int] = {(): 1}
        self.written: dict[KeyPath, str] = {}
        self.variables: dict[str, str] = {}
        self.problems: list[Problem] = []

    def finished(self) -> Origin:
        return Origin(
            file=self.origin.file,
            root=self.origin.root,
            lines=self.lines,
            written=self.written,
            variables=self.variables,
        )

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._section(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._item(item, (*path, at)) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and (node.tag in _TEXT_TAGS or node.tag in _PLAIN):
            plain = _PLAIN.get(node.tag, str)(node.value)
            return self._filled(plain, path) if isinstance(plain, str) else plain
        self._refuse(path, f"the tag {node.tag.replace(_TAG, '!!')} is not supported; write plain values")
        return None

    def _section(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        section: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(path, "a key must be one word, not a list or a section")
                continue
            inside = (*path, key.value)
            if key.value in section:
                self._refuse(inside, f"the key is written twice, first on line {self.lines[inside]}")
            self.lines[inside] = key.start_mark.line + 1
            section[key.value] = self.value(value, inside)
        return section

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def _filled(self, text: str, path: KeyPath) -> str:
        """Replace every `${NAME}` by what the environment holds; `$${` stays as a plain `${`."""

        def replacement(match: re.Match[str]) -> str:
            name = match["name"]
            if name is None:
                if match[0] == "${":
                    self._refuse(
                        path, "'${' must be followed by a name and '}'; write $${ for the characters"
                    )
                return "${"
            if name not in os.environ:
                self._refuse(path, f"the environment variable {name} is not set; set it before starting etl")
                return match[0]
            self.variables[name] = os.environ[name]
            self.written[path] = text
            return os.environ[name]

        return _VARIABLE.sub(replacement, text)

    def _refuse(self, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))


def _boolean(text: str) -> bool | str:
    return text.lower() == "true" if text.lower() in {"true", "false"} else text


def _or_text(number: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return number(text)
        except ValueError:
            return text

    return read


#: how a plain word of each kind becomes a value; one that only YAML 1.1 takes for a number stays text.
_PLAIN: dict[str, Callable[[str], Any]] = {
    _TAG + "null": lambda _: None,
    _TAG + "bool": _boolean,
    _TAG + "int": _or_text(lambda text: int(text, 0)),
    _TAG + "float": _or_text(float),
}
