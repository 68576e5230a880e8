"""Owns which hosts reach this machine only (pure)."""

from __future__ import annotations

import ipaddress

LOCAL_NAMES = frozenset({"localhost", "localhost."})


def is_loopback(host: str) -> bool:
    """Does this host reach this machine only?"""
    address = address_of(host)
    return host.lower() in LOCAL_NAMES or (address is not None and address.is_loopback)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that it is; None: it is a name, or nothing."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
