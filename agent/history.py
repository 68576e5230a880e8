"""Owns the list that a running turn works on: its stored rows and, in step, what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from agent.messages import (
    THINKING_TYPES,
    Draft,
    Entry,
    Keep,
    Message,
    Part,
    Row,
    wire_message,
    without_thinking,
)
from agent.ports import Usage
from agent.sessions import LoadedSession, UsageAnchor

IMAGE_LEFT_OUT = "[image left out: the request was too large]"


class History:
    """A session's rows as the loop knows them; grows with every append, replaced by a split."""

    def __init__(self, loaded: LoadedSession) -> None:
        self._loaded = loaded
        self._sent = [wire_message(row) for row in loaded.rows]

    @property
    def loaded(self) -> LoadedSession:
        return self._loaded

    @property
    def session_id(self) -> str:
        return self._loaded.session.id

    def replace(self, loaded: LoadedSession) -> None:
        """Go on with another list (after a split, a rewrite, or when somebody was first)."""
        same_rows = loaded.rows == self._loaded.rows
        self._loaded = loaded
        if not same_rows:
            self._sent = [wire_message(row) for row in loaded.rows]

    def append(self, rows: Sequence[Row], usage: Usage | None) -> None:
        """These were stored behind the list; ``usage`` as it was given to the store."""
        session = self._loaded.session
        anchor = session.anchor
        if usage is not None and usage.prompt_tokens > 0:  # as the store takes it
            anchor = UsageAnchor(usage.prompt_tokens, usage.output_tokens, rows[0].id)
        self._loaded = LoadedSession(
            replace(session, anchor=anchor, message_count=session.message_count + len(rows)),
            (*self._loaded.rows, *rows),
        )
        self._sent.extend(wire_message(row) for row in rows)

    def to_send(self, *, images_kept: int | None = None) -> Sequence[Message]:
        """The messages of the next request; optionally only with the newest so many images."""
        sent = tuple(self._sent)
        return sent if images_kept is None else without_images(sent, images_kept)

    @property
    def has_images(self) -> bool:
        """Is there any picture in what is sent?"""
        return any(
            part.get("type") == "image_url"
            for message in self._sent
            if isinstance(message["content"], list)
            for part in message["content"]
        )


def without_images(messages: Sequence[Message], keep: int) -> list[Message]:
    """A copy in which only the newest ``keep`` images are left; a note stands for each other."""
    result: list[Message] = []
    for message in reversed(messages):
        content = message["content"]
        if isinstance(content, list) and any(p.get("type") == "image_url" for p in content):
            parts: list[Part] = []
            for part in reversed(content):
                if part.get("type") == "image_url":
                    keep -= 1
                    if keep < 0:
                        parts.append({"type": "text", "text": IMAGE_LEFT_OUT})
                        continue
                parts.append(part)
            message = cast(Message, {**message, "content": parts[::-1]})
        result.append(message)
    return result[::-1]


def has_thinking(row: Row) -> bool:
    """Does this row hold thinking that is bound to what stands before it?"""
    blocks = row.message.get("anthropic_content_blocks") or ()
    return any(b.get("type") in THINKING_TYPES for b in blocks)


def thinking_stripped(rows: Sequence[Row]) -> tuple[Entry, ...] | None:
    """The list without any thinking, as a plan for the store; None if there is none in it."""
    if not any(has_thinking(row) for row in rows):
        return None
    return tuple(
        Draft(without_thinking(row.message), row.wire_content, row.kind, row.root_id)
        if has_thinking(row)
        else Keep(row.id)
        for row in rows
    )
