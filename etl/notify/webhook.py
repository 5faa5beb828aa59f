"""The webhook: a notice as the JSON that Slack and those who speak like it take.

Makes the body only; it is posted, signed, by `post`. Names of files cannot mention people or make links in it.
"""

from __future__ import annotations

#: characters; Slack cuts what is longer.
LONGEST = 3_500


def body(subject: str, text: str) -> dict[str, str]:
    """Give the JSON of a notice: its subject in bold, then its text."""
    told = (
        text
        if len(text) <= LONGEST
        else f"{text[:LONGEST].rstrip()}\n… the rest is in the mail and in `etl failed`"
    )
    return {"text": f"*{_plain(subject)}*\n{_plain(told)}"}


def _plain(text: str) -> str:
    # `<!channel>` would wake everybody
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
