"""Owns what belongs to an answer beside its text, as the JSON that is stored (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.mail import Button, OutboxDraft


def extras_of(draft: OutboxDraft) -> dict[str, Any]:
    """Only what is there: most answers have nothing."""
    extras: dict[str, Any] = {}
    if draft.buttons:
        extras["buttons"] = [[button.label, button.command] for button in draft.buttons]
    if draft.files:
        extras["files"] = list(draft.files)
    if draft.interaction is not None:
        extras["interaction"] = draft.interaction
    if draft.edits_message_id is not None:
        extras["edits"] = draft.edits_message_id
    return extras


def with_extras(draft: OutboxDraft, extras: Mapping[str, Any]) -> OutboxDraft:
    """The draft with what was stored of it."""
    return replace(
        draft,
        buttons=tuple(Button(label, command) for label, command in extras.get("buttons", ())),
        files=tuple(extras.get("files", ())),
        interaction=extras.get("interaction"),
        edits_message_id=extras.get("edits"),
    )
