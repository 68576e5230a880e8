"""Owns what an answer looks like on a terminal (pure): as it is, but unable to steer it."""

from __future__ import annotations

import re

from agent.mail import PartDraft
from agent.messages import clean_text
from gateway import texts

REPEAT_MARK = f"{texts.POSSIBLE_REPEAT} "
# Whatever could move the cursor, change the title or answer in the user's name; tab and line feed
# stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render(text: str) -> list[PartDraft]:
    """One part: a terminal has no length limit."""
    shown = _CONTROL.sub("", clean_text(text).replace("\r\n", "\n")).strip("\n")
    return [PartDraft({"text": shown if shown.strip() else texts.NOTHING_SAID})]
