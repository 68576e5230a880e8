"""Which addresses are public: a private one is found out, whatever it is wrapped in."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fetching.addresses import Reach, address_of, reach_of

PRIVATE = (
    "10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 127.0.0.1 127.255.1.1 100.64.0.1 ::1 fc00::1"
)
NEVER = (
    "0.0.0.0 0.1.2.3 169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 192.0.2.1 224.0.0.1 "
    "239.1.1.1 240.0.0.1 255.255.255.255 :: fe80::1 fec0::1 ff02::1 2001::1 2001:db8::1 "
    "2002:7f00:1:: 64:ff9b:1::1 fd00:ec2::254 100::1 4000::1 fe80::1%eth0"
)
PUBLIC = (
    "1.1.1.1 8.8.8.8 93.184.216.34 172.15.0.1 172.32.0.1 100.128.0.1 2606:4700::1111 2a00:1450::1"
)


@pytest.mark.parametrize("text", PRIVATE.split())
def test_a_private_address_is_private(text: str) -> None:
    assert _reach(text) is Reach.PRIVATE


@pytest.mark.parametrize("text", NEVER.split())
def test_what_is_no_address_of_a_web_server_is_never_reached(text: str) -> None:
    assert _reach(text) is Reach.NEVER


@pytest.mark.parametrize("text", PUBLIC.split())
def test_the_rest_is_public(text: str) -> None:
    assert _reach(text) is Reach.PUBLIC


@given(st.ip_addresses())
def test_nothing_is_public_that_python_does_not_call_so(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if reach_of(address) is Reach.PUBLIC and not _translated(address):
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "64:ff9b::{}", "::{}"]))
def test_an_address_in_another_counts_as_itself(
    address: ipaddress.IPv4Address, wrapped: str
) -> None:
    outer = ipaddress.ip_address(wrapped.format(address))
    if int(outer) > 1:
        assert reach_of(outer) is reach_of(address)


SPECIAL = [
    *(ipaddress.ip_network(n) for n in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16")),
    *(ipaddress.ip_network(n) for n in ("172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")),
    *(ipaddress.ip_network(n) for n in ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")),
    *(ipaddress.ip_network(n) for n in ("fc00::/7", "fe80::/10", "ff00::/8", "2002::/16")),
]


@given(st.data())
def test_no_address_of_a_special_network_is_public(data: st.DataObject) -> None:
    network = data.draw(st.sampled_from(SPECIAL))
    number = data.draw(st.integers(0, network.num_addresses - 1))
    assert reach_of(network[number]) is not Reach.PUBLIC


def test_other_forms_are_no_addresses() -> None:
    for text in ("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "", "1.2.3.4.5"):
        assert address_of(text) is None


def _reach(text: str) -> Reach:
    address = address_of(text)
    assert address is not None
    return reach_of(address)


def _translated(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.version == 6 and (
        address.ipv4_mapped is not None
        or address in ipaddress.ip_network("64:ff9b::/96")
        or address in ipaddress.ip_network("::/96")
    )
