"""Owns what an answer looks like on a terminal (pure): as it is, but unable to steer it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.attachments import NAME
from agent.mail import PartDraft
from agent.messages import clean_text
from gateway import texts

REPEAT_MARK = f"{texts.POSSIBLE_REPEAT} "
# Whatever could move the cursor, change the title or answer in the user's name; tab and line feed
# stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render(text: str, files: Sequence[str] = ()) -> list[PartDraft]:
    """One part: a terminal has no length limit. ``files``: kept ones, of which it says where."""
    shown = _CONTROL.sub("", clean_text(text).replace("\r\n", "\n")).strip("\n")
    lie = texts.files_lie_here([name for name in files if NAME.fullmatch(name)])
    whole = "\n\n".join(said for said in (shown, lie) if said.strip())
    return [PartDraft({"text": whole or texts.NOTHING_SAID})]
