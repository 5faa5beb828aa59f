"""Every link in the documents leads somewhere, and what they tell to type is there to be typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etl.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "etl" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.M)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(document: Path) -> set[str]:
    """Give the anchors of a document's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCED.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_inside_the_project_lead_somewhere(document: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCED.sub("", document.read_text())):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_only_verbs_that_exist_are_typed(document: Path) -> None:
    typed = re.findall(r"^(?:\$ )?etl ([a-z]+)", "\n".join(_FENCED.findall(document.read_text())), re.M)
    assert [verb for verb in typed if verb not in VERBS] == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [relative(one) for one in DOCUMENTS[1:] if f"({relative(one)}" not in text] == []


@pytest.mark.parametrize("task", ["demo", "test"])
def test_the_readme_has_the_two_commands_on_lines_of_their_own(task: str) -> None:
    fenced = _FENCED.findall((ROOT / "README.md").read_text())
    assert any(f"python3 tasks.py {task}" in block.splitlines() for block in fenced)


def test_the_how_to_lists_every_recipe() -> None:
    text = _FENCED.sub("", (ROOT / "docs" / "how-to.md").read_text())
    recipes = re.findall(r"^## +(.+)$", text, re.M)
    assert sorted(recipes) == sorted(re.findall(r"^- \[([^\]]+)\]\(#", text, re.M))
