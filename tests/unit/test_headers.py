"""Headers of messages: what a producer may write, how it is kept, and what is said about everything else."""

from __future__ import annotations

import pytest

from etl.errors import ConfigError
from etl.files import headers, notes

NOW = 1_800_000_000.0


def test_a_delay_becomes_the_time_before_which_nothing_begins() -> None:
    told = headers.read({"delay": "10s"}, NOW)
    assert "delay" not in told
    assert headers.not_before(told) == NOW + 10


def test_expires_is_a_duration_or_a_time_and_is_kept_as_a_time_with_its_zone() -> None:
    assert headers.read({"expires": "15m"}, NOW)["expires"] == "2027-01-15T08:15:00.000+00:00"
    told = headers.read({"expires": "2027-01-15T10:00:00+01:00"}, NOW)
    assert told["expires"] == "2027-01-15T09:00:00.000+00:00"
    assert headers.expires(told) == NOW + 3600


def test_free_headers_stay_as_they_are() -> None:
    given = {"trace-id": "abc", "tenant": "acme"}
    assert headers.read(given, NOW) == given


def test_what_was_read_once_reads_the_same_again() -> None:
    told = headers.read({"delay": "10s", "expires": "1h", "priority": "low", "x": ""}, NOW)
    assert headers.read(told, NOW) == told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"Type": "order"}, "lower-case"),
        ({"note": "two\nlines"}, "one line"),
        ({"note": "x" * 4097}, "4,096 bytes"),
        ({"note": 7}, "one line"),
        ({"key": " "}, "'key' is empty"),
        ({"priority": "hihg"}, "did you mean 'high'?"),
        ({"delay": "10"}, "for example 30s"),
        ({"delay": "1s", "not_before": "2027-01-15T10:00:00Z"}, "give one of them"),
        ({"not_before": "2027-01-15T10:00:00"}, "no time zone"),
        ({"not_before": "tomorrow"}, "is not a time"),
        ({"expires": "soon"}, "a duration such as 15m, or a time with its zone"),
        ({"expires": "0s"}, "before it is published"),
        ({"expires": "5s", "delay": "10s"}, "before it may begin"),
        ({"callback": "hooks.example.com/x"}, "with its scheme and host"),
        ({"callback": "file:///etc/passwd"}, "with its scheme and host"),
        ({"delay": "999999999d"}, "beyond the calendar"),
        ({f"h{number}": "x" for number in range(65)}, "at most 64 headers"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_what_to_write_instead(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        headers.read(given, NOW)
    assert said.lower() in str(refused.value).lower()


def test_of_a_callback_people_see_the_host_alone() -> None:
    url = "https://user:pass@hooks.example.com/secret?token=t"
    assert headers.shown({"callback": url, "key": "k"}) == {"callback": "hooks.example.com", "key": "k"}
    note = notes.SourceNote(
        id="x", pipeline="p", given="g", sha256="", size=0, mtime=0, arrived=0, headers={"callback": url}
    )
    assert "token" not in repr(note)
