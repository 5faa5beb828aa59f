"""Names and ids: how a file carries who it is in its own name, so that a plain `mv` keeps everything.

`books.csv.gz` becomes `books~01k3f9a2m1qz7hd4.csv.gz`; its unit files are `books~<id>-1.jsonl`, what is held
back from it is `books~<id>-bad.csv`. Pure text: nothing here looks at a disk.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

#: Crockford's base 32, lower case: sorts as its numbers do and has no look-alikes.
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
#: bytes of a source file's whole name; leaves room for `-bad`, `.reason.json` and attempt numbers below 255.
LONGEST = 180
_RANDOM_BITS = 25
_COMPRESSION = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip"})
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}$")
_NAME = re.compile(
    rf"(?P<stem>.*)~(?P<id>[{ALPHABET}]{{16}})"
    r"(?:(?:\.(?P<generation>[1-9]\d{0,5}))?(?P<part>(?:-bad|-\d{1,9})+))?"
    r"(?P<suffix>(?:\.[A-Za-z0-9]{1,10}){0,2})",
    re.DOTALL,
)
#: names that are never work: hidden, half-written, or ours.
_NEVER_WORK = re.compile(r"\..*|.*(\.tmp|\.part|\.filepart|\.writing|~|\.reason\.json)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """A name that carries an id: `<stem>~<id>[.<generation>][-<part>]<suffix>`."""

    stem: str
    id: str
    suffix: str = ""
    generation: int = 1
    #: "" for a source file, "3" for a unit file, "bad" for held-back rows, "bad-1", "3-bad", …
    part: str = ""

    def __str__(self) -> str:
        generation = f".{self.generation}" if self.part and self.generation > 1 else ""
        part = f"-{self.part}" if self.part else ""
        return f"{self.stem}~{self.id}{generation}{part}{self.suffix}"

    @property
    def given(self) -> str:
        """The name as it was given, as far as the name alone can tell: the id removed."""
        return self.stem + self.suffix

    @property
    def is_source(self) -> bool:
        """Only source files have generations; everything else descends from one."""
        return not self.part

    @property
    def is_held_back(self) -> bool:
        """Tell a `-bad` file, which is read as it was written."""
        return self.part.endswith("bad")

    @property
    def plain_suffix(self) -> str:
        """The suffix without compression: held-back rows are to be edited."""
        first, *rest = [part for part in self.suffix.split(".") if part] or ["txt"]
        return f".{first}" if rest or first.lower() not in ("gz", "zip") else ".csv"

    def child(self, ordinal: int, generation: int) -> FileName:
        """Name the unit file number `ordinal` of this file."""
        return self._descendant(str(ordinal), ".jsonl", generation)

    def held_back(self, suffix: str, generation: int) -> FileName:
        """Name the file of what is held back from this one."""
        return self._descendant("bad", suffix, generation)

    def _descendant(self, part: str, suffix: str, generation: int) -> FileName:
        whole = f"{self.part}-{part}" if self.part else part
        return replace(self, part=whole, suffix=suffix, generation=generation)


def parse(pipeline: str, name: str) -> FileName | None:
    """Read a name that carries an id of this pipeline; None for a name that has none yet."""
    match = _NAME.fullmatch(name)
    if match is None or not is_id(pipeline, match["id"]):
        return None
    return FileName(
        stem=match["stem"],
        id=match["id"],
        suffix=match["suffix"],
        generation=int(match["generation"] or 1),
        part=(match["part"] or "").removeprefix("-"),
    )


def means(pipeline: str, name: str, wanted: str) -> bool:
    """Tell whether a file is meant by a path, a given name, a full name, an id or the start of one."""
    last = wanted.rstrip("/").rpartition("/")[2]
    file = parse(pipeline, name)
    if last == name:
        return True
    return file is not None and (file.given == last or (len(last) >= 4 and file.id.startswith(last)))


def christen(given: str, file_id: str) -> FileName:
    """Put an id into a given name, made printable and cut so that everything derived from it fits."""
    stem, suffix = split(printable(given))
    room = LONGEST - len(f"~{file_id}{suffix}".encode())
    return FileName(stem=_cut(stem, room), id=file_id, suffix=suffix)


def split(given: str) -> tuple[str, str]:
    """Split a given name before its format and compression suffixes."""
    stem, suffix = given, ""
    while (match := _SUFFIX.search(stem)) and match.start() > 0:
        stem, suffix = stem[: match.start()], match[0] + suffix
        if match[0].lower() not in _COMPRESSION or suffix != match[0]:
            break
    return stem, suffix


def printable(text: str) -> str:
    """Escape what cannot be shown on one line: control characters and bytes that are not UTF-8."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    try:
        return "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogateescape"))
    except UnicodeEncodeError:  # half a pair, which no file system gave us
        return f"%{ord(char):04X}"


def _cut(text: str, room: int) -> str:
    return text.encode()[:room].decode(errors="ignore")


def fits(name: str) -> bool:
    """Tell whether a file system can hold this name: at most 255 bytes, and text that can be one."""
    try:
        return len(name.encode(errors="surrogateescape")) <= 255
    except UnicodeEncodeError:
        return False


def never_work(name: str) -> bool:
    """Tell names that are left alone wherever they lie: hidden, half-written, editors' copies, reasons."""
    return _NEVER_WORK.fullmatch(name) is not None


def done_name(pattern: str, given: str) -> str:
    """Name the done-file of a dropped file: `{name}.ok` makes `books.csv.ok`."""
    return pattern.replace("{name}", given)


def of_done(pattern: str | None, name: str) -> str | None:
    """Give the name of the file that a done-file speaks of; None for a name that is no done-file's."""
    before, _, after = (pattern or "").partition("{name}")
    if not before + after or len(name) <= len(before + after):
        return None
    if not name.startswith(before) or not name.endswith(after):
        return None
    return name[len(before) : len(name) - len(after)]


# --- ids ---------------------------------------------------------------------------------------------------


def new_id(pipeline: str, milliseconds: int) -> str:
    """Make an id: 45 bits of time, 25 random, 10 check bits over the pipeline and the rest."""
    return _id(pipeline, milliseconds, secrets.randbelow(1 << _RANDOM_BITS))


def derived_id(pipeline: str, milliseconds: int, key: str) -> str:
    """Make the id that a `key` always gives: what is brought in twice under it is there once."""
    digest = hashlib.sha256(f"{pipeline}/{key}".encode()).digest()
    return _id(pipeline, milliseconds, int.from_bytes(digest[:4]) & (1 << _RANDOM_BITS) - 1)


def new_ids(pipeline: str, milliseconds: int, count: int) -> Iterator[str]:
    """Make `count` ids that sort in the order in which they are given out."""
    per_millisecond = 1 << 20
    for start in range(0, count, per_millisecond):
        size = min(per_millisecond, count - start)
        step = (1 << _RANDOM_BITS) // size
        for index in range(size):
            yield _id(
                pipeline, milliseconds + start // per_millisecond, index * step + secrets.randbelow(step)
            )


def is_id(pipeline: str, text: str) -> bool:
    """Recognise an id by its form and check bits; `REPORT~1.CSV` and another pipeline's ids are none."""
    return len(text) == 16 and text[14:] == _check(pipeline, text[:14])


def milliseconds(file_id: str) -> int:
    """Read the time of arrival out of an id."""
    value = 0
    for char in file_id[:9]:
        value = value << 5 | ALPHABET.index(char)
    return value


def _id(pipeline: str, milliseconds: int, random: int) -> str:
    body = _base32(milliseconds & (1 << 45) - 1, 9) + _base32(random, 5)
    return body + _check(pipeline, body)


def _check(pipeline: str, body: str) -> str:
    digest = hashlib.sha256(f"{pipeline}/{body}".encode()).digest()
    return _base32(int.from_bytes(digest[:2]) & 1023, 2)


def _base32(value: int, width: int) -> str:
    return "".join(ALPHABET[value >> 5 * place & 31] for place in reversed(range(width)))
