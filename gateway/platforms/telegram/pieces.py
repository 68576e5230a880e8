"""Owns which messages are the rest of one that was addressed to the bot (pure).

In a group only one picture of an album carries the caption with the mention, and only the first
piece of a long paste begins with it. The others are meant for the bot as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gateway.intake.pastes import is_close, may_be_cut
from gateway.platforms.contract import InboundMessage

_KEPT = 1_000

Place = tuple[str, str | None, str]
"""Chat, topic, sender."""


@dataclass(frozen=True, slots=True)
class _Addressed:
    """The newest message of somebody that was for the bot."""

    message_id: str
    cut_at: float | None
    """Its date, if another piece of it may come."""


class Pieces:
    """Remembers for a while what was addressed to the bot in groups."""

    def __init__(self) -> None:
        self._albums: OrderedDict[tuple[Place, str], None] = OrderedDict()
        self._newest: OrderedDict[Place, _Addressed] = OrderedDict()

    def learn(self, messages: Iterable[InboundMessage]) -> None:
        """Look ahead: the caption may stand on any picture of an album, also on the last one."""
        for message in messages:
            if message.addressed and message.album_id is not None:
                album = (_place(message), message.album_id)
                self._albums[album] = None
                self._albums.move_to_end(album)
        while len(self._albums) > _KEPT:
            self._albums.popitem(last=False)

    def complete(self, message: InboundMessage) -> InboundMessage:
        """The next message, addressed to the bot if it goes on with one that was.

        The same one again (not stored, so Telegram brings it again) is told the same.
        """
        if message.chat_kind == "direct":
            return message
        self.learn((message,))
        place = _place(message)
        newest = self._newest.pop(place, None)
        if not (message.addressed or self._goes_on(message, newest)):
            return message
        cut_at = message.sent_at if _may_be_cut(message) else None
        self._newest[place] = _Addressed(message.message_id, cut_at)
        if len(self._newest) > _KEPT:
            self._newest.popitem(last=False)
        return replace(message, addressed=True)

    def _goes_on(self, message: InboundMessage, newest: _Addressed | None) -> bool:
        if message.album_id is not None:
            return (_place(message), message.album_id) in self._albums
        if newest is None or message.attachments or message.forwarded_from is not None:
            return False
        if message.message_id == newest.message_id:
            return True
        return newest.cut_at is not None and is_close(message.sent_at, newest.cut_at)


def _place(message: InboundMessage) -> Place:
    return (message.chat_id, message.thread_id, message.sender_id)


def _may_be_cut(message: InboundMessage) -> bool:
    if message.attachments or message.forwarded_from is not None:
        return False
    return may_be_cut(message.text, message.text_limit)
