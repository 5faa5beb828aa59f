"""Where a value was written: the file, the line of every key, and what came from the environment.

Turns a complaint into one line an operator can act on; what a variable held never shows in it.
Made by `yaml_lines`; formats, locations and stages complain through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etl.errors import ConfigError

#: the keys and list positions that lead to a value, from the top of its file.
KeyPath = tuple[str | int, ...]

#: a shorter value is no secret, and masking it would garble the numbers of a message.
_SHORTEST_MASKED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """One configuration file as it was written."""

    file: Path
    lines: Mapping[KeyPath, int] = field(repr=False)
    #: the folder that holds `config/`; files are shown relative to it.
    root: Path | None = None
    #: the text of every value that held a variable, as written.
    written: Mapping[KeyPath, str] = field(default_factory=dict, repr=False)
    #: what each variable held; for masking only.
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def error(self, path: KeyPath, message: str, next: str = "") -> ConfigError:  # noqa: A002
        """Make the error for the value at `path`: one line with file, line, key and message."""
        key = dotted(path)
        where = f"{self.shown_file}:{self.line(path)}" if self.lines else self.shown_file
        summary = ": ".join(part for part in (where, key, self._masked(message)) if part)
        return ConfigError(summary, next=self._masked(next))

    def line(self, path: KeyPath) -> int:
        """Give the line of the nearest key that was really written at or above `path`."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    @property
    def shown_file(self) -> str:
        """Give the file's name as the operator knows it."""
        if self.root is not None and self.file.is_relative_to(self.root):
            return str(self.file.relative_to(self.root))
        return str(self.file)

    def _masked(self, message: str) -> str:
        # longest first: a value may be part of another one
        for name, value in sorted(self.variables.items(), key=lambda item: -len(item[1])):
            if len(value) >= _SHORTEST_MASKED:
                message = message.replace(value, f"${{{name}}}")
        return message


def dotted(path: KeyPath) -> str:
    """Write a path the way people say it: `extract.sources[0].path`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def together(errors: Sequence[ConfigError]) -> ConfigError:
    """Make one error of several, a line each."""
    return errors[0] if len(errors) == 1 else ConfigError("\n".join(str(error) for error in errors))
