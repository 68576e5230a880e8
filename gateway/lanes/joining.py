"""Owns which rows are pieces of one message: albums, and texts that a client had to cut (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.jobs.nouns import is_scheduled
from agent.mail import InboxItem, InboxRecord
from agent.messages import is_blank
from gateway.delivery.splitting import utf16_len
from gateway.intake.pastes import is_close, may_be_cut
from gateway.intake.records import MESSAGE

MOST_OF_ALBUM = 10
"""Pictures that an album holds on the platforms that have such a thing."""


def continues(pieces: Sequence[InboxItem], item: InboxItem) -> bool:
    """Is this row one more piece of the message that these rows, in order, are the beginning of?

    ``pieces`` are all of one lane, and the newest that their sender said there.
    """
    last, new = pieces[-1].record, item.record
    if is_scheduled(last) or is_scheduled(new):
        return False
    if last.kind != MESSAGE or new.kind != MESSAGE or _whose(last) != _whose(new):
        return False
    album = _album(last)
    if album is not None or _album(new) is not None:
        return album == _album(new) and len(pieces) < MOST_OF_ALBUM
    return (
        _is_cut(last)
        and not _has_files(new)
        and is_close(new.sent_at, last.sent_at)
        and _quote(new) in (None, _quote(pieces[0].record))
    )


def may_go_on(pieces: Sequence[InboxItem]) -> bool:
    """May another piece be on its way?"""
    last = pieces[-1].record
    if is_scheduled(last):
        return False
    if _album(last) is not None:
        return len(pieces) < MOST_OF_ALBUM
    return _is_cut(last)


def joined_text(pieces: Sequence[InboxItem]) -> str:
    """What was said, in one: a paste as it was before the client cut it; captions one by one."""
    first, *rest = (piece.record for piece in pieces)
    text, last = first.text, first
    for new in rest:
        if _album(new) is not None:
            if not is_blank(new.text):
                text = new.text if is_blank(text) else f"{text}\n\n{new.text}"
        else:
            text = f"{text}{_eaten(last, new)}{new.text}"
        last = new
    return text


def _eaten(last: InboxRecord, new: InboxRecord) -> str:
    """The white space that the client took out where it cut: nothing, if it cut in a word."""
    if last.text[-1:].isspace() or new.text[:1].isspace():
        return ""
    room = (last.payload.get("text_limit") or 0) - utf16_len(last.text)
    return "" if room < utf16_len(new.text[:1]) else "\n"


def _is_cut(record: InboxRecord) -> bool:
    """Could the client have had to go on in another message?"""
    return not _has_files(record) and may_be_cut(record.text, record.payload.get("text_limit"))


def _whose(record: InboxRecord) -> tuple[object, ...]:
    """Where it was said, by whom, and whose words it passes on."""
    place = replace(record.address, reply_to_message_id=None)
    return (place, record.owner, record.payload.get("forwarded_from"))


def _album(record: InboxRecord) -> str | None:
    return record.payload.get("album_id") or None


def _has_files(record: InboxRecord) -> bool:
    return bool(record.payload.get("attachments"))


def _quote(record: InboxRecord) -> str | None:
    return record.payload.get("quoted_text") or None
