"""Owns the list that a running turn works on: its stored rows and, in step, what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.messages import (
    THINKING_TYPES,
    Content,
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

    def measured(self, prompt_tokens: int) -> None:
        """The provider has counted the next prompt, before anything was asked: an anchor."""
        session = self._loaded.session
        anchor = UsageAnchor(prompt_tokens, 0, self._loaded.last_row_id)
        self._loaded = replace(self._loaded, session=replace(session, anchor=anchor))

    def to_send(self) -> Sequence[Message]:
        """The messages of the next request."""
        return tuple(self._sent)

    @property
    def pictures(self) -> list[Part]:
        """The part of every picture in what is sent, in order."""
        return [
            part
            for message in self._sent
            if isinstance(message["content"], list)
            for part in message["content"]
            if part.get("type") == "image_url"
        ]


def images_left_out(rows: Sequence[Row], keep: int) -> tuple[Entry, ...] | None:
    """The list with only the newest ``keep`` images as sent, as a plan for the store.

    What was said keeps them all; a note stands for each in what is sent. None: there are no more.
    """
    entries: list[Entry] = []
    changed = False
    for row in reversed(rows):
        content = wire_message(row)["content"]
        shorter, keep = _without_images(content, keep)
        if shorter is content:
            entries.append(Keep(row.id))
        else:
            changed = True
            entries.append(Draft(row.message, shorter, row.kind, row.root_id))
    return tuple(reversed(entries)) if changed else None


def _without_images(content: Content, keep: int) -> tuple[Content, int]:
    """The content (itself, if nothing goes), and how many may still be kept before it."""
    if not isinstance(content, list) or not any(p.get("type") == "image_url" for p in content):
        return content, keep
    parts: list[Part] = []
    goes = False
    for part in reversed(content):
        if part.get("type") == "image_url":
            keep -= 1
            if keep < 0:
                goes = True
                part = {"type": "text", "text": IMAGE_LEFT_OUT}
        parts.append(part)
    return (parts[::-1] if goes else content), max(0, keep)


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
