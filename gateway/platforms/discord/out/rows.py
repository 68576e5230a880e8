"""Owns how buttons stand below a message, and what pressing one says (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.messages import clean_text

MAX_ROWS, ROW_BUTTONS = 5, 5
LABEL_CHARS, CUSTOM_ID_CHARS = 80, 100
_GREEN, _RED, _GREY = 3, 4, 2
_STYLES = {"/approve": _GREEN, "/deny": _RED}


def rows_of(buttons: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Buttons (label, command) as Discord's rows; pressing one says its command."""
    labels = {str(command): str(label) for label, command in buttons}
    made = [
        {
            "type": 2,
            "style": _style(command),
            "label": (clean_text(label).strip() or command)[:LABEL_CHARS],
            "custom_id": command,
        }
        for command, label in labels.items()
        if 0 < len(command) <= CUSTOM_ID_CHARS
    ][: MAX_ROWS * ROW_BUTTONS]
    return [
        {"type": 1, "components": made[start : start + ROW_BUTTONS]}
        for start in range(0, len(made), ROW_BUTTONS)
    ]


def _style(command: str) -> int:
    """Only what decides has a colour: ``/approve 3f9akx show`` does not."""
    words = command.split(" ")
    return _STYLES.get(words[0], _GREY) if len(words) == 2 else _GREY
