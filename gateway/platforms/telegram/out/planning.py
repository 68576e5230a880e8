"""Owns the plan of an answer: its messages, and what belongs to which of them (pure)."""

from __future__ import annotations

from typing import Any, Final

from agent.mail import OutboxDraft, PartDraft
from agent.messages import is_blank
from gateway.delivery.splitting import TELEGRAM_LIMIT, utf16_len
from gateway.platforms.telegram import render as rendering
from gateway.platforms.telegram.native.buttons import usable

CAPTION_LIMIT: Final = 1024
"""UTF-16 units of the words below a file."""
MARK: Final = rendering.REPEAT_MARK.strip()


def plan(draft: OutboxDraft) -> list[PartDraft]:
    """The parts of an answer, as payloads.

    Beside ``text`` and ``entities`` one may have ``document``: a file made of text, or ``file``:
    the name of a kept one of ``owner``, whose caption the text is then; ``buttons``: (label,
    command), below the last words; ``edits``: the message that the first part takes the place of;
    ``pressed``: the message with the button that this answers, ``spent_buttons`` the same one, if
    its buttons are of no use any more.
    """
    only_files = is_blank(draft.text) and draft.files and draft.edits_message_id is None
    payloads: list[dict[str, Any]] = []
    if not only_files:
        payloads = [dict(part.payload) for part in rendering.render(draft.text)]
    files: list[dict[str, Any]] = [
        {"text": "", "entities": [], "file": name, "owner": draft.files_owner}
        for name in draft.files
    ]
    if len(files) == 1 and len(payloads) == 1 and _fits_below(draft, payloads[0]):
        payloads = [{**files.pop(), **payloads[0]}]
    buttons = usable(draft.buttons)
    if buttons and (payloads or files):
        (payloads or files)[-1]["buttons"] = buttons
    payloads += files
    if draft.edits_message_id is not None:
        payloads[0]["edits"] = draft.edits_message_id
    if draft.interaction is not None:
        payloads[0]["pressed"] = draft.interaction
        if draft.decides:
            payloads[0]["spent_buttons"] = draft.interaction
    return [PartDraft(payload) for payload in payloads]


def _fits_below(draft: OutboxDraft, payload: dict[str, Any]) -> bool:
    # A message that is there already stays what it is.
    return draft.edits_message_id is None and utf16_len(payload["text"]) <= CAPTION_LIMIT


def marked_as_repeat(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The payload with a visible mark in front; None if there is no room for it."""
    carries_file = "file" in payload or "document" in payload
    if not payload["text"]:
        return {**payload, "text": MARK}
    marked = rendering.mark_repeat(payload)
    limit = CAPTION_LIMIT if carries_file else TELEGRAM_LIMIT
    return marked if marked is not None and utf16_len(marked["text"]) <= limit else None
