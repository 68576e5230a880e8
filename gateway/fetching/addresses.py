"""Owns which addresses are the public internet's, and which are never to be reached (pure)."""

from __future__ import annotations

import ipaddress
from enum import StrEnum

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Reach(StrEnum):
    """Where an address leads."""

    PUBLIC = "public"
    PRIVATE = "private"
    """This machine, or a network that is somebody's own: only where the operator names the host."""
    NEVER = "never"
    """No web server has such an address, or what gives away the secrets of a machine does."""


_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # "this" network; 0.0.0.0 is this machine to a connect
            "169.254.0.0/16",  # link-local, with the metadata of clouds
            "168.63.129.16/32",  # a public address, and yet one cloud's inside
            "100.100.100.200/32",  # the metadata of another, in the space of carriers
            "192.0.0.0/24",  # of protocols; metadata of a third
            "192.0.2.0/24",  # of books, and so are the next two
            "198.51.100.0/24",
            "203.0.113.0/24",
            "192.88.99.0/24",  # relays that are no more
            "224.0.0.0/3",  # many receivers, reserved, everybody
            "::/128",
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
            "100::/64",
            "2001::/23",  # of protocols, tunnels (Teredo) among them
            "2001:db8::/32",
            "2002::/16",  # tunnels: the address within may be any
            "3fff::/20",
            "5f00::/16",
            "fd00:ec2::254/128",  # metadata
            "fd20:ce::254/128",
            "64:ff9b:1::/48",  # translated within a network of somebody's own
        ),
    )
)
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        (
            "10.0.0.0/8",
            "100.64.0.0/10",  # between carriers and their customers
            "127.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "::1/128",
            "fc00::/7",
        ),
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
"""An old form of IPv4 addresses: nobody knows what a system makes of it today."""


def address_of(text: str) -> Address | None:
    """The address in its plain form, maybe with a zone; None: it is none."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def reach_of(address: Address) -> Reach:
    """Where it leads; an IPv4 address within an IPv6 one counts as itself."""
    inner = _inner(address)
    if inner is not None:
        return reach_of(inner)
    if _within(address, _NEVER):
        return Reach.NEVER
    if _within(address, _PRIVATE):
        return Reach.PRIVATE
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return Reach.NEVER
    # What becomes special after these lists were written: newer Pythons know.
    return Reach.PUBLIC if address.is_global else Reach.NEVER


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _within(
    address: Address, networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
) -> bool:
    return any(address.version == net.version and address in net for net in networks)
