"""Owns what a memory provider is given, and how its words are found again in a list. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.brought import named, split
from agent.messages import Row, public
from agent.turn_companions import TurnFacts

NAME = "memory"
"""What its words are called in a message."""
ABOUT = "About this memory: "
"""So begins what it says of itself."""


def as_given(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Messages as a provider gets them: as they were said."""
    return [dict(public(row.message)) for row in rows]


def shows_block(rows: Sequence[Row]) -> bool:
    """Does this list show what the provider says of itself?"""
    return any(
        f"\n{ABOUT}" in named(split(row.wire_content)[0], NAME)
        for row in rows
        if row.message["role"] == "user" and row.wire_content is not None
    )


def known_at_start(facts: TurnFacts, hermes_home: str, identity: str) -> dict[str, Any]:
    """The keywords of ``initialize``; what is not known is left out."""
    known = {
        "session_title": facts.title,
        "user_id": facts.user_id,
        "user_name": facts.user_name,
        "chat_id": facts.chat_id,
        "chat_name": facts.chat_name,
        "chat_type": facts.chat_type,
        "thread_id": facts.thread_id,
    }
    return {
        "hermes_home": hermes_home,
        "platform": facts.platform,
        "agent_context": "primary",
        "agent_identity": identity,
        "agent_workspace": identity,
        "gateway_session_key": facts.session_key,
        **{name: value for name, value in known.items() if value},
    }
