"""A stranger's URL is called only where the operator said so, and only at the very address that was looked at."""

from __future__ import annotations

import httpx
import pytest

from etl.errors import Away, Forbidden
from etl.notify import addresses
from etl.notify.post import Poster

PUBLIC = "93.184.216.34"


def leads_to(*found: str) -> addresses.Resolve:
    return lambda host, port: list(found)


@pytest.mark.parametrize(
    ("url", "allow"),
    [
        ("https://hooks.example.com/x", ["hooks.example.com"]),
        ("https://HOOKS.example.com./x", ["hooks.example.com"]),
        ("https://a.b.example.com", ["*.example.com"]),
        ("https://hooks.example.com:8443/", ["hooks.example.com:8443"]),
        ("http://hooks.example.com/", ["http://hooks.example.com"]),
        ("https://anything.example.org/", ["*"]),
    ],
)
def test_a_host_on_the_list_is_called_at_its_public_address(url: str, allow: list[str]) -> None:
    assert addresses.allowed(url, allow, leads_to(PUBLIC)).addresses == (PUBLIC,)


@pytest.mark.parametrize(
    ("url", "allow"),
    [
        ("https://hooks.example.com/", []),
        ("https://example.com/", ["*.example.com"]),
        ("https://evil-example.com/", ["*.example.com"]),
        ("http://hooks.example.com/", ["hooks.example.com"]),
        ("https://hooks.example.com:22/", ["hooks.example.com"]),
        ("https://hooks.example.com.evil.org/", ["hooks.example.com"]),
        ("http://2130706433/", ["http://127.0.0.1"]),
    ],
)
def test_what_is_not_on_the_list_is_refused_with_what_to_add(url: str, allow: list[str]) -> None:
    with pytest.raises(Forbidden, match=r"callbacks\.allow"):
        addresses.allowed(url, allow, leads_to(PUBLIC))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
        *("169.254.169.254", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *(
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "fe80::1",
            "fe80::1%eth0",
        ),
        *("fc00::1", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "nonsense"),
        *("64:ff9b:1::7f00:1", "fec0::1", "4000::1"),
    ],
)
def test_a_name_that_leads_inside_is_refused_also_beside_a_public_address(address: str) -> None:
    with pytest.raises(Forbidden):
        addresses.allowed("https://a.example.com/", ["*.example.com"], leads_to(PUBLIC, address))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
    ],
)
def test_every_spelling_of_this_machine_is_refused_where_all_hosts_are_allowed(host: str) -> None:
    # the system's own resolver reads them as the addresses they are
    with pytest.raises((Forbidden, Away)):
        addresses.allowed(f"http://{host}/", ["http://*"])


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://user@hooks.example.com/",
            "https://hooks.example.com:x@evil.org/",
            "https://@hooks.example.com/",
        ),
        *(
            "ftp://hooks.example.com/",
            "file:///etc/passwd",
            "gopher://hooks.example.com/",
            "//hooks.example.com/",
        ),
        *("https:///x", "https://hooks.example.com:0/", "https://hooks.example.com:99999/", "https://[::1/"),
        *(
            "https://hooks.example.com\\@evil.org/",
            "https://hooks.example.com/\nX: y",
            "https://[fe80::1%25eth0]/",
        ),
        *("https://hooks.ex\u00e4mple.com/", "https://hooks%2eexample.com/", "", "hooks.example.com"),
    ],
)
def test_a_url_that_can_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        addresses.allowed(url, ["*", "http://*", "*:*"], leads_to(PUBLIC))


@pytest.mark.parametrize(
    ("url", "entry", "address"),
    [
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080", "127.0.0.1"),
        ("http://[::1]:8080/x", "http://[::1]:8080", "::1"),
        ("http://localhost:8080/x", "http://localhost:8080", "127.0.0.1"),
        ("http://10.0.0.7:8080/x", "http://10.0.0.7:8080", "10.0.0.7"),
        ("https://etl.internal/x", "etl.internal", "10.0.0.7"),
    ],
)
def test_what_the_operator_named_in_full_is_called_also_inside(url: str, entry: str, address: str) -> None:
    assert addresses.allowed(url, [entry], leads_to(address)).addresses == (address,)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0"])
def test_a_name_that_was_named_in_full_never_leads_to_this_machine_or_the_clouds(address: str) -> None:
    with pytest.raises(Forbidden):
        addresses.allowed("https://hooks.example.com/", ["hooks.example.com"], leads_to(address))


def test_a_name_that_changes_between_look_and_call_is_called_where_it_was_looked_at() -> None:
    answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])
    asked: list[httpx.Request] = []

    def called(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(204)

    target = addresses.allowed("https://a.example.com/t?k=1", ["*.example.com"], lambda *_: next(answers))
    posts = Poster(b"key", httpx.MockTransport(called))
    assert posts.send(target, b"{}", "k").state == "told"
    posts.close()
    (request,) = asked
    assert str(request.url) == f"https://{PUBLIC}/t?k=1"
    assert request.headers["Host"] == "a.example.com"
    assert request.extensions["sni_hostname"] == "a.example.com"
    # the second try looks again, and sees where it leads by now
    with pytest.raises(Forbidden, match=r"leads to 127\.0\.0\.1"):
        addresses.allowed("https://a.example.com/t", ["*.example.com"], lambda *_: next(answers))


def test_a_name_that_cannot_be_looked_up_is_tried_again_later() -> None:
    def fails(host: str, port: int) -> list[str]:
        raise OSError("Temporary failure in name resolution")

    with pytest.raises(Away):
        addresses.allowed("https://a.example.com/", ["*.example.com"], fails)


def test_an_entry_that_is_no_host_is_a_configuration_error() -> None:
    from etl.config.following import Callbacks, Hook

    for entry in ("https://host/path", "user@host", "two words", ""):
        with pytest.raises(ValueError, match="is no host"):
            Callbacks(allow=(entry,))
    for url in ("hooks.example.com", "ftp://x", "https://user:secret@host/"):
        with pytest.raises(ValueError, match="post: write a URL"):
            Hook.model_validate({"post": url})
