"""Notices fit a phone: rendered by a real browser at 390 pixels, nothing is wider than the page."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl.notify import digest, examples
from etl.notify.rendering import Renderer

WIDTH = 390
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: a name without a place to break it, as long as a file system allows.
LONG = "x" * 250
FRAME = """<body><iframe id="phone" style="border: 0; width: {width}px; height: 800px" srcdoc="{page}"></iframe>
<script>
document.getElementById("phone").addEventListener("load", function () {{
  var page = this.contentDocument, wide = 0, small = 0, asked = page.querySelectorAll("[src],link[href]").length;
  page.querySelectorAll("*").forEach(function (one) {{
    wide = Math.max(wide, one.getBoundingClientRect().right);
    if (one.textContent.trim() && parseFloat(page.defaultView.getComputedStyle(one).fontSize) < 13) small += 1;
  }});
  document.title = [page.documentElement.scrollWidth, Math.ceil(wide), small, asked, page.title].join("|");
}});
</script>"""


def measured(page: str, folder: Path) -> tuple[int, int, int, int]:
    """Give how wide a page and its widest element are, how many have too small a font, and what it loads."""
    if CHROMIUM is None:
        assert not os.environ.get("CI"), "CI has a browser: see .ci/run"
        pytest.skip("there is no Chromium")
    file = folder / "frame.html"
    file.write_text(FRAME.format(width=WIDTH, page=html.escape(page, quote=True)))
    argv = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run(
        [*argv, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    title = re.search(r"<title>(\d+)\|(\d+)\|(\d+)\|(\d+)\|", done.stdout)
    assert title, done.stdout[-500:] + done.stderr[-500:]
    return int(title[1]), int(title[2]), int(title[3]), int(title[4])


def long(kind: str) -> Mapping[str, Any]:
    """Give example facts with names that cannot be broken."""
    facts = dict(examples.facts()[kind])
    if kind == "stale":
        facts["groups"] = tuple({**one, "sample": LONG, "cause": LONG} for one in facts["groups"])
        return facts
    causes = tuple(
        replace(one, cause=LONG, sample=digest.Sample(file=LONG, summary=LONG, next=LONG, troubles=(LONG,)))
        for one in examples.DIGEST.causes
    )
    return {**facts, "digest": replace(examples.DIGEST, causes=causes)}


@pytest.mark.parametrize("kind", ["digest", "stale"])
def test_a_notice_fits_a_phone_whatever_files_are_called(tmp_path: Path, kind: str) -> None:
    page = Renderer(tmp_path / "none").render(kind, long(kind)).html
    assert measured(page, tmp_path) == (WIDTH, WIDTH, 0, 0)


def test_what_is_too_wide_or_loads_something_is_seen(tmp_path: Path) -> None:
    page = Renderer(tmp_path / "none").render("digest", long("digest")).html
    page = page.replace("overflow-wrap: anywhere", "").replace("</h1>", '</h1><img alt="" src="data:,">')
    width, widest, _, asked = measured(page, tmp_path)
    assert min(width, widest) > WIDTH and asked == 1
