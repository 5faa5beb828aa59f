"""Rendering: facts become the text and the HTML of a notice, by Jinja2 templates in a sandbox.

A template of the same name in `config/templates/` takes the place of ours; one that is broken is told, and ours is
used. What is told is never a template. The only door to jinja2. Called by whoever spools or sends a notice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

log = logging.getLogger(__name__)

#: what there are notices of; each has a `.txt` and a `.html`.
KINDS = ("failure", "digest", "recovered", "stale", "notice", "test")
_ENDS = (".txt", ".html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """One notice in its two forms."""

    text: str
    html: str


class Renderer:
    """Renders with an operator's templates where there are any."""

    def __init__(self, own: Path) -> None:
        self._own = own
        self._told: set[str] = set()

    def render(self, kind: str, facts: Mapping[str, Any]) -> Rendered:
        """Render a notice in both forms."""
        text, html = (self._one(f"{kind}{end}", facts) for end in _ENDS)
        return Rendered(text=text.strip() + "\n", html=html)

    def _one(self, name: str, facts: Mapping[str, Any]) -> str:
        if self._own.is_dir():
            try:
                return _environment(self._own).get_template(name).render(facts)
            except Exception as error:  # the edge: an operator's template may do anything
                if name not in self._told:
                    log.warning(
                        "config/templates: %s: %s; the built-in template is used",
                        *(name, _said(error)),
                        extra={"event": "template_broken"},
                    )
                self._told.add(name)
        return _environment(None).get_template(name).render(facts)

    def problems(self, examples: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """Try an operator's templates with example facts; give the name and what is wrong with each, "" for nothing."""
        if not self._own.is_dir():
            return
        environment, known = _environment(self._own), _environment(None).list_templates()
        for path in sorted(self._own.glob("[!.]*")):
            if path.suffix not in _ENDS:
                continue
            problem = "" if path.name in known else f"is never used; there are: {', '.join(_names(known))}"
            try:
                environment.get_template(path.name)
                if path.stem in examples:
                    environment.get_template(path.name).render(examples[path.stem])
            except Exception as error:  # the edge: as above
                problem = f"{_said(error)}; until it is mended the built-in one is used"
            yield path.name, problem


def _names(known: list[str]) -> list[str]:
    return [name for name in known if not name.startswith(("_", "builtin/"))]


def _said(error: Exception) -> str:
    line = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{line}"


@cache
def _environment(own: Path | None) -> ImmutableSandboxedEnvironment:
    ours = jinja2.PackageLoader("etl.notify", "templates")
    # an operator's template may extend the one whose place it takes: {% extends "builtin/digest.html" %}
    loaders: list[jinja2.BaseLoader] = [ours, jinja2.PrefixLoader({"builtin": ours})]
    if own is not None:
        loaders.insert(0, jinja2.FileSystemLoader(own))
    return ImmutableSandboxedEnvironment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
