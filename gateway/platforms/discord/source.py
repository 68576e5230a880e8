"""Owns the port by which missed messages are asked for, and how that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.platforms.discord.convert import Facts
from gateway.platforms.discord.reading import Unreadable

Item = Facts | Unreadable

PAGE_MESSAGES = 100
"""The most that Discord gives at once; fewer mean that there are no more."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 6.0
"""What was missed is asked for within ten seconds of the network's return."""


class ChannelGone(Exception):
    """The channel can not be read any more: deleted, or the bot may not see it."""


class HistoryUnavailable(Exception):
    """Discord does not answer now, and wants to be asked again no sooner than this."""

    def __init__(self, reason: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class OpenThread:
    """A thread that is not archived."""

    home_id: int
    """The channel that it belongs to."""
    newest_id: int = 0
    """Its newest message, as far as Discord tells."""


class Source(Protocol):
    """What the feed has to ask Discord."""

    async def page(self, channel_id: int, after: int) -> Sequence[Item]:
        """The messages that follow directly upon this id, in any order, `PAGE_MESSAGES` at most.

        Raises:
            ChannelGone, HistoryUnavailable
        """
        ...

    async def complete(self, facts: Facts) -> Facts:
        """The same with its place and roles known; unchanged where Discord does not tell.

        Raises:
            HistoryUnavailable
        """
        ...

    def active_threads(self) -> Mapping[int, OpenThread]:
        """By their ids, the threads that are open now."""
        ...


def pause_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    pause: float = _FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)
    return min(_LONGEST_PAUSE_SECONDS, pause)
