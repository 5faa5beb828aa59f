"""What a model complains about, in our words: one sentence per problem, with the near word suggested.

Never prints a value that came out of a `${NAME}`; such a value is shown the way it was written.
Called by `reading` for every model it fills.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from etl.config.origin import KeyPath, Origin
from etl.config.yaml_lines import Problem

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

_TEXT = "must be text; put the value in quotes"
_LIST = "must be a list, for example [a, b]"
_SECTION = "must be a section with keys, for example {{key: value}}"

#: characters of a wrong value that a message quotes.
_LONGEST_SHOWN = 60
#: pydantic's error types in our words; {shown} is the value as written, the rest comes with the error.
_WORDS = {
    "string_type": _TEXT,
    "path_type": _TEXT,
    "int_type": "{shown} is not a whole number",
    "int_parsing": "{shown} is not a whole number",
    "int_from_float": "{shown} is not a whole number",
    "float_type": "{shown} is not a number",
    "float_parsing": "{shown} is not a number",
    "bool_type": "{shown} is neither true nor false",
    "bool_parsing": "{shown} is neither true nor false",
    "literal_error": "{shown} is not possible here; write {expected}",
    "enum": "{shown} is not possible here; write {expected}",
    "greater_than_equal": "{shown} is too small; write {ge} or more",
    "greater_than": "{shown} is too small; write more than {gt}",
    "less_than_equal": "{shown} is too large; write {le} or less",
    "less_than": "{shown} is too large; write less than {lt}",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "dict_type": _SECTION,
    "mapping_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "too_short": "is empty; write at least {min_length}",
    "string_too_short": "is too short; write at least {min_length} character(s)",
    "string_too_long": "is too long; write at most {max_length} character(s)",
    "string_pattern_mismatch": "{shown} does not match {pattern}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Generic[M]):
    """What was written at one place of a file, and the model that is to hold it."""

    model: type[M]
    written: Mapping[str, Any]
    origin: Origin
    at: KeyPath = ()
    #: keys that may stand here too but belong to another model.
    also: tuple[str, ...] = ()

    def fill(self, earlier: Sequence[Problem] = ()) -> M | list[Problem]:
        """Give the filled model, or every problem by line; `earlier` ones are kept and not said twice."""
        try:
            filled = self.model.model_validate(self.written)
        except ValidationError as error:
            # not chained to anything we raise: its text quotes values, secrets among them
            said = {problem.path for problem in earlier}
            found = [*earlier, *(problem for problem in self._problems(error) if problem.path not in said)]
            return sorted(found, key=lambda problem: self.origin.line(problem.path))
        return list(earlier) or filled

    def _problems(self, error: ValidationError) -> list[Problem]:
        """Say each problem once, in one sentence; a misspelt key is not also reported as missing."""
        found: dict[KeyPath, str] = {}
        suggested: set[KeyPath] = set()
        details = error.errors(include_url=False)
        for detail in sorted(details, key=lambda detail: detail["type"] != "extra_forbidden"):
            path = self._path(detail)
            if detail["type"] == "extra_forbidden":
                known = [*known_keys(self.model, path[:-1]), *(self.also if len(path) == 1 else ())]
                near = near_word(str(path[-1]), known)
                suggested.add((*path[:-1], near))
                found[path] = f"unknown key; {_meant(near, known)}"
            elif detail["type"] != "missing" or path not in suggested:
                # several members of a union complain about one value: the first says enough
                found.setdefault(path, self._sentence(detail, path))
        return [Problem(path=self.at + path, message=message) for path, message in found.items()]

    def _path(self, detail: ErrorDetails) -> KeyPath:
        """Keep of pydantic's location what was really written; it also names types and validators."""
        path: KeyPath = ()
        for part in detail["loc"]:
            if _holds(self._written_at(path), part):
                path = (*path, part)
        return (*path, detail["loc"][-1]) if detail["type"] == "missing" else path

    def _written_at(self, path: KeyPath) -> Any:
        here: Any = self.written
        for part in path:
            here = here[part]
        return here

    def _sentence(self, detail: ErrorDetails, path: KeyPath) -> str:
        value, facts = detail["input"], detail.get("ctx", {})
        if detail["type"] == "missing":
            near = near_word(str(path[-1]), list(value) if isinstance(value, Mapping) else [])
            return f"the key is missing; {f'is {near!r} meant to be it?' if near else 'add it'}"
        if value is None:
            return "has no value; write one, or remove the key"
        if detail["type"] in _WORDS:
            return _WORDS[detail["type"]].format(shown=self._shown(path), **_readable(facts))
        # a validator's own sentence; it may quote the value, which must not show if it came from a variable
        said = str(facts.get("error", detail["msg"]))
        as_written = self.origin.written.get(self.at + path)
        return said if as_written is None else said.replace(repr(value), repr(as_written))

    def _shown(self, path: KeyPath) -> str:
        value = self.origin.written.get(self.at + path, self._written_at(path))
        if isinstance(value, Mapping | list):
            return "a section" if isinstance(value, Mapping) else "a list"
        if isinstance(value, bool):
            return str(value).lower()
        text = repr(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def near_word(word: str, known: Sequence[str]) -> str:
    """Give the known word that `word` was probably meant to be, or nothing."""
    return next(iter(difflib.get_close_matches(word, known, n=1)), "")


def known_keys(annotation: Any, path: KeyPath) -> list[str]:
    """List the keys that the model at `path` below `annotation` has, as an operator writes them."""
    if get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.alias or name: field for name, field in annotation.model_fields.items()}
        if not path:
            return list(fields)
        inside = fields.get(str(path[0]))
        return known_keys(inside.annotation, path[1:]) if inside else []
    # a list of one may be written without its brackets, so a list takes a number off the path or nothing
    outer = get_origin(annotation)
    inside_list = outer in (tuple, list) and isinstance(next(iter(path), None), int)
    below = path[1:] if inside_list or outer in (dict, Mapping) else path
    return [key for argument in get_args(annotation) for key in known_keys(argument, below)]


def _meant(near: str, known: Sequence[str]) -> str:
    return f"did you mean {near!r}?" if near else f"known here: {', '.join(known) or 'none'}"


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, Mapping):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _readable(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{fact:g}" if isinstance(fact, float) else fact for name, fact in facts.items()}
