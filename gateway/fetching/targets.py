"""Owns what an address of the web means, and which are asked for at all (pure)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from agent.tools.web import WebRefusal
from gateway.fetching.addresses import Reach, address_of, reach_of
from gateway.fetching.named import NamedHosts

MAX_URL_CHARS = 4000
WEB_PORTS = {"http": (80, 8080), "https": (443, 8443)}
_NONSENSE = (ValueError, TypeError, IndexError)
"""What yarl raises for it; the latter two where parts are missing."""
_UNFIT = re.compile(r"[\x00-\x20\x7f\\]")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """One address of the web, as it is asked for."""

    url: URL
    """Without a fragment."""
    host: str
    """In letters of domain names, or an address in its plain form."""
    port: int
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
    """If the host is one; None: it is a name."""
    named: bool
    """By the operator: it may be private."""


def target_of(text: str, named: NamedHosts) -> Target:
    """What is asked for.

    Raises:
        WebRefusal: it is no address of the web, or not one that is asked for. What it says holds
            nothing of the address: there may be a password in it.
    """
    text = text.strip()
    if not text.isprintable() or _UNFIT.search(text) or len(text) > MAX_URL_CHARS:
        raise WebRefusal("that is no web address: give one such as https://example.org/page")
    try:
        url = URL(text).with_fragment(None)
        host, port = (url.raw_host or "").rstrip(".").lower(), url.port
    except _NONSENSE as exc:
        raise WebRefusal(
            "that is no web address: give one such as https://example.org/page"
        ) from exc
    if url.scheme not in WEB_PORTS:
        raise WebRefusal("only addresses that begin with https:// or http:// can be read")
    if not host or port is None:
        raise WebRefusal("that web address has no host: give one such as https://example.org/page")
    if url.raw_user is not None or url.raw_password is not None or "@" in url.raw_authority:
        raise WebRefusal("addresses with a name or password in them are not read: leave it out")
    address = address_of(host) if "%" not in host else None
    if address is None and not _is_name(host):
        raise WebRefusal(
            "the host of that address is neither a name nor an address in its usual form"
        )
    if address is not None:
        host = str(address)
    is_named = named.has(host, port)
    if port not in WEB_PORTS[url.scheme] and not is_named:
        raise WebRefusal(
            f"port {port} is not read with {url.scheme}: only "
            f"{' and '.join(map(str, WEB_PORTS[url.scheme]))}, or what the operator names in "
            "agent.tools.fetch_url_hosts"
        )
    return Target(url, host, port, address, is_named)


def _is_name(host: str) -> bool:
    """A domain name in ASCII; not one that ends in a number: systems take that for an address."""
    return (
        host.isascii()
        and re.fullmatch(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", host) is not None
        and len(host) <= 253
        and _NUMBER.match(host.rpartition(".")[2]) is None
    )


def next_target(target: Target, location: str, named: NamedHosts) -> Target:
    """Where an answer sends us on to.

    Raises:
        WebRefusal: as `target_of`; or it would go on without encryption.
    """
    try:
        joined = str(target.url.join(URL(location)))
    except _NONSENSE as exc:
        raise WebRefusal("that page has moved to what is no web address") from exc
    found = target_of(joined, named)
    if target.url.scheme == "https" and found.url.scheme == "http":
        raise WebRefusal("that page sends on from https to http, unencrypted; that is not followed")
    return found


def check_reach(target: Target, addresses: Iterable[str]) -> None:
    """All addresses that a host has, before one of them is used.

    Raises:
        WebRefusal: one of them is not to be reached.
    """
    for text in addresses:
        address = address_of(text)
        reach = Reach.NEVER if address is None else reach_of(address)
        if reach is Reach.PRIVATE and not target.named:
            raise WebRefusal(
                f"{target.host} is on a private network or on this machine, and nothing there is "
                "read; the operator can name it in agent.tools.fetch_url_hosts"
            )
        if reach is Reach.NEVER:
            raise WebRefusal(f"{target.host} has an address that is never read")
