"""Addresses: whether a URL that a stranger wrote may be called, and to which very address the connection goes.

1. Its host is on the operator's list. 2. It is looked up once, and all it leads to must be addresses of the public
Internet, unless the operator named it in full. 3. Who connects takes those addresses: a name cannot change meanwhile.
Connects to nothing. Called before every callback.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from etl.errors import Away, Forbidden

PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: gives the addresses of a host and port, or raises OSError.
Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a request goes: the host that it is meant for, and the addresses that may be connected to."""

    scheme: str
    host: str
    port: int
    #: path and query as they were written; may carry a secret.
    path: str
    #: "" for the host itself, where nobody has to be kept out.
    addresses: tuple[str, ...] = ("",)

    @property
    def authority(self) -> str:
        """Give host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def url(self, address: str) -> str:
        """Give the URL with an address in place of the host."""
        literal = address or self.host
        literal = f"[{literal}]" if ":" in literal else literal
        return f"{self.scheme}://{literal}:{self.port}{self.path}"


def trusted(url: str) -> Target:
    """Read a URL that the operator wrote, or raise `Forbidden`: it is called wherever it leads."""
    parts, host, port = _parts(url)
    return Target(scheme=parts.scheme, host=host, port=port, path=_path(parts))


def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a host, in the order in which they are to be tried."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def allowed(url: str, allow: Iterable[str], ask: Resolve = resolve) -> Target:
    """Give where a stranger's URL leads, or raise `Forbidden`; `Away` when its name cannot be looked up now."""
    parts, host, port = _parts(url)
    entry = next((one for one in allow if _matches(one, parts.scheme, host, port)), None)
    if entry is None:
        wanted = Target(scheme=parts.scheme, host=host, port=port, path="").authority
        wanted = f"http://{wanted}" if parts.scheme == "http" else wanted
        raise Forbidden(
            f"{host} may not be called",
            next=f"if it may, add {wanted!r} to callbacks.allow in settings.yaml",
        )
    try:
        addresses = tuple(ask(host, port))
    except OSError as error:
        raise Away(f"{host} cannot be looked up: {error.strerror or error}") from error
    if not addresses:
        raise Away(f"{host} has no address")
    for address in addresses:
        _require(entry, host, address)
    return Target(scheme=parts.scheme, host=host, port=port, path=_path(parts), addresses=addresses)


def _parts(url: str) -> tuple[SplitResult, str, int]:
    """Take a URL apart, or raise `Forbidden` for one that two readers could understand in two ways."""
    if not url.isascii() or not url.isprintable() or "\\" in url or " " in url:
        raise Forbidden("the URL has characters that no URL has", next="write it in ASCII, with %-escapes")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise Forbidden("the URL cannot be read", next="write it as https://host/path") from error
    if parts.scheme not in PORTS or not host or port == 0:
        raise Forbidden("the URL is not one of http or https with a host", next="write https://host/path")
    if "@" in parts.netloc:
        raise Forbidden(f"the URL has a user in front of {host}", next="put a token into its path instead")
    if "%" in host:
        raise Forbidden(f"{host} is escaped or has a zone", next="write the plain host")
    return parts, host, port or PORTS[parts.scheme]


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _matches(entry: str, scheme: str, host: str, port: int) -> bool:
    """Tell whether an entry of the list means this host: https and its own port where it says nothing else."""
    try:
        parts = urlsplit(entry if "://" in entry else f"https://{entry}")
        pattern, wanted = (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return False
    return parts.scheme == scheme and wanted == port and fnmatch.fnmatchcase(host, pattern)


def _require(entry: str, host: str, address: str) -> None:
    """Accept one address that a host leads to, or raise `Forbidden`."""
    try:
        real = _real(ipaddress.ip_address(address))
    except ValueError as error:
        raise Forbidden(f"{host} leads to {address!r}, which is no address") from error
    # of what is reserved, or was once a site's own, Python says that it is global
    inside = real.is_multicast or real.is_reserved or getattr(real, "is_site_local", False)
    if real.is_global and not inside:
        return
    exact = not set("*?") & set(entry)
    if exact and (_is_address(host) or host == "localhost"):
        return
    # a name that is named in full may be of our own network; but never of this machine or the cloud's
    own = real.is_private and not (real.is_loopback or real.is_link_local or real.is_unspecified)
    if not (exact and own and not real.is_reserved):
        raise Forbidden(
            f"{host} leads to {address}, which is no address of the public Internet",
            next="if it may be called, name it in full in callbacks.allow: an address, or a name of your network",
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _real(address: Address) -> Address:
    """Give the IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    if inner is None and (address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1)):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address
