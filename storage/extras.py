"""Owns what belongs to an answer beside its text, as the JSON that is stored (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.mail import Address, Button, OutboxDraft
from storage.places import Today, address_of_today

LEFT = ""
"""The platform of a preview that stays what it is: no answer ever goes there."""


def extras_of(draft: OutboxDraft) -> dict[str, Any]:
    """Only what is there: most answers have nothing."""
    extras: dict[str, Any] = {}
    if draft.buttons:
        extras["buttons"] = [[button.label, button.command] for button in draft.buttons]
    if draft.files:
        extras["files"] = list(draft.files)
        if draft.files_owner is not None:
            extras["files_owner"] = draft.files_owner
    if draft.interaction is not None:
        extras["interaction"] = draft.interaction
    if draft.edits_message_id is not None:
        extras["edits"] = draft.edits_message_id
    if draft.decides:
        extras["decides"] = True
    if draft.aside:
        extras["aside"] = True
    if draft.asks:
        extras["asks"] = True
    return extras


def with_extras(draft: OutboxDraft, extras: Mapping[str, Any]) -> OutboxDraft:
    """The draft with what was stored of it."""
    return replace(
        draft,
        buttons=tuple(Button(label, command) for label, command in extras.get("buttons", ())),
        files=tuple(extras.get("files", ())),
        files_owner=extras.get("files_owner"),
        interaction=extras.get("interaction"),
        edits_message_id=extras.get("edits"),
        decides=extras.get("decides") is True,
        aside=extras.get("aside") is True,
        asks=extras.get("asks") is True,
    )


def in_place_of(
    message_id: str, place: Address, drafts: Sequence[OutboxDraft], today: Today
) -> list[OutboxDraft]:
    """These answers, the first that goes to this place in the place of this message."""
    found = list(drafts)
    for n, draft in enumerate(found):
        address = address_of_today(draft.address, today)
        if replace(address, reply_to_message_id=None) == place:
            found[n] = replace(draft, edits_message_id=message_id)
            break
    return found
