"""Owns the plan of an answer: its messages, and what else belongs to which of them (pure)."""

from __future__ import annotations

from typing import Any

from agent.mail import OutboxDraft, PartDraft
from agent.messages import is_blank
from gateway.platforms.discord.native.pressed import parse_key
from gateway.platforms.discord.out.parcels import MAX_FILES
from gateway.platforms.discord.render import render


def plan(draft: OutboxDraft) -> list[PartDraft]:
    """The parts of an answer, as payloads.

    Beside ``content`` one may have ``document``: a file made of text; ``buttons``: (label,
    command), below the last text; ``edits``: the message that the first part takes the place of;
    ``files``: names of kept ones of ``owner``, in messages of their own, so that no file keeps
    words back;
    ``interaction``: by which it is to be answered; ``aside``: seen by whoever pressed only;
    ``spent_buttons``, of the last part: the message whose buttons are of no use any more.
    """
    only_files = is_blank(draft.text) and draft.files and draft.edits_message_id is None
    parts: list[PartDraft] = [] if only_files else render(draft.text)
    payloads: list[dict[str, Any]] = [dict(part.payload) for part in parts]
    if payloads and draft.buttons:
        payloads[-1]["buttons"] = [[button.label, button.command] for button in draft.buttons]
    if payloads and draft.edits_message_id is not None:
        payloads[0]["edits"] = draft.edits_message_id
    payloads += [
        {
            "content": "",
            "files": list(draft.files[start : start + MAX_FILES]),
            "owner": draft.files_owner,
        }
        for start in range(0, len(draft.files), MAX_FILES)
    ]
    if draft.interaction is not None:
        payloads = [{**payload, "interaction": draft.interaction} for payload in payloads]
        if draft.aside:
            payloads = [{**payload, "aside": True} for payload in payloads]
        key = parse_key(draft.interaction)
        if draft.decides and key is not None and key.pressed_id is not None:
            payloads[-1]["spent_buttons"] = str(key.pressed_id)
    return [PartDraft(payload) for payload in payloads]
