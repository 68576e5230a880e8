"""Owns text that is shown in a terminal: whatever is in it, it steers nothing (pure)."""

from __future__ import annotations

import re

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """Control characters written out, but for line ends and tabs. In JSON it stays the same."""
    text = text.replace("\r\n", "\n")
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
