"""Owns the hosts that the operator names: they may be reached although they are private (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.fetching.addresses import address_of

_DEFAULT_PORTS = (80, 443)
_ENTRY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\s:/\[\]@?#]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class NamedHosts:
    """Hosts that may be reached although they are private: each with its port; None: the web's."""

    entries: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def parsed(cls, texts: Iterable[str]) -> NamedHosts:
        """From entries such as ``wiki.lan``, ``10.0.0.5:8080`` or ``[fd00::1]:3000``.

        Raises:
            ValueError: one is no host.
        """
        return cls(frozenset(map(_entry, texts)))

    def has(self, host: str, port: int) -> bool:
        """Is this host named, with this port?"""
        without = port in _DEFAULT_PORTS and (host, None) in self.entries
        return without or (host, port) in self.entries


def _entry(text: str) -> tuple[str, int | None]:
    found = _ENTRY.fullmatch(text.strip().lower())
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 0 < port < 65536):
        raise ValueError(f"{text!r} is no host such as wiki.lan, 10.0.0.5:8080 or [fd00::1]:3000")
    address = address_of(found["host"].strip("[]"))
    return (str(address) if address is not None else found["host"].rstrip(".")), port
