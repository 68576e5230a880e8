"""Owns what is brought from the web: its nouns, and the port of what brings it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.errors import ToolError

OPENING = "[from the web: "
CLOSING = "[end of what is from the web]"
"""The fence around a page's words; nobody but us may write such lines."""


class WebRefusal(ToolError):
    """A page is not there, or is not read; the text says why, and what can be done."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """What an address gave."""

    url: str
    """In ASCII; of the last one, where it sent on."""
    media_type: str
    """As the server calls it, in small letters, without parameters; "": it does not say."""
    label: str
    """What the server calls its letters; "": it does not say."""
    data: bytes
    """Unpacked."""
    cut: bool = False
    """There was more than is taken."""


class Web(Protocol):
    """The way to the web."""

    async def get(self, url: str) -> WebPage:
        """Read what is at an address.

        Raises:
            WebRefusal: there is nothing, or nothing that may be had.
            asyncio.CancelledError: the user said stop; the connection is closed.
        """
        ...
