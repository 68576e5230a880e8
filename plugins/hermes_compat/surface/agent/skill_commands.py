"""Owns what a person said in a message that a skill was unfolded into (`agent.skill_commands`)."""

from __future__ import annotations

from typing import Any

__all__ = ["extract_user_instruction_from_skill_message"]


def extract_user_instruction_from_skill_message(content: Any) -> str | None:
    """The text itself: nothing is ever unfolded into what a person said here. None: no text."""
    return content if isinstance(content, str) else None
