"""Owns what is known of one Discord channel while its messages are handed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gateway.platforms.discord.convert import Facts
from gateway.platforms.discord.handing import Progress
from gateway.platforms.discord.reading import id_at
from gateway.platforms.discord.source import Item


@dataclass(slots=True)
class Channel:
    """One channel: ``missed_after`` is the id behind which its history has to be read first."""

    progress: Progress
    waiting: deque[Item] = field(default_factory=deque)
    missed_after: int | None = None
    reading_after: int | None = None
    """How far the history has been handed in that is read just now."""
    working: bool = False

    @property
    def id(self) -> int:
        return self.progress.channel_id

    @property
    def is_quiet(self) -> bool:
        """Nothing of it waits or is under way."""
        return not self.working and not self.waiting and self.missed_after is None

    @property
    def newest(self) -> int:
        """The id of the newest message that is not handed in, as far as that is known."""
        return max(self.missed_after or 0, *(item.id for item in self.waiting), 0)

    def waits_after(self, now: float) -> int | None:
        """The id behind which all stand that wait; also one that claims to come from the future."""
        ids = [item.id - 1 for item in self.waiting if not is_edit(item) and item.id > 0]
        return min(*ids, id_at(now)) if ids else None

    def unfinished_after(self, now: float) -> int:
        """The id behind which all stand that are not handed in, and all that may come; 0: none."""
        pending = (self.waits_after(now), self.missed_after, self.reading_after)
        ids = [after for after in pending if after is not None]
        return min(ids, default=self.progress.seen_to)


def is_edit(item: Item) -> bool:
    """An edit stands in the history only as what it made of its message."""
    return isinstance(item, Facts) and item.is_edit
