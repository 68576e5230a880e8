"""Owns text for the search (pure): what of a message is indexed, and in which pieces.

An index word is what ``unicode61`` makes of the text, except that a run of Chinese, Japanese or
Korean characters, which has no blanks, is cut into all its pairs and its last character: words of
two characters are then one index word, and one character is the beginning of some index word.
Full-width and half-width forms are one. Changing any of this is a new `SEGMENTER` version: the
index has to be made anew.
"""

from __future__ import annotations

import re
import unicodedata

from agent.forgetting import TOMBSTONE
from agent.messages import Message, MessageKind, arguments_of, text_of

SEGMENTER = "1"
UNINDEXED_TOOLS = frozenset({"recall"})
"""What they are asked for and what they show was said elsewhere."""
INDEXED_ROLES = ("user", "assistant", "tool")
_TOOL_CHARS = 32_000
_TEXT_CHARS = 100_000

_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
CJK_RUN = re.compile(f"[{_CJK}]+")
WORD = re.compile(r"[^\s\x00-/:-@\[-`{-\xbf\u2000-\u206f\u3000-\u303f\uff00-\uff0f" + _CJK + "]+")
"""What neither blanks, control characters, punctuation nor CJK part."""
_ACCENTED = re.compile("[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]")
_BLANK = " ".encode("utf-32-le")
_ACCENTS = re.compile("[\u0300-\u036f]")


def indexable_text(message: Message, kind: MessageKind | None, origin_id: int | None) -> str | None:
    """What of this message is searched, or None: only what somebody said, and only the original.

    What a call was given counts as said: a command or a file name often stands nowhere else.
    """
    if kind is not None or origin_id is not None or message["role"] not in INDEXED_ROLES:
        return None
    if message.get("name") in UNINDEXED_TOOLS:
        return None
    content = message["content"]
    text = content if isinstance(content, str) else text_of(content)
    if calls := message.get("tool_calls"):
        given = (
            leaf
            for call in calls
            if call["function"]["name"] not in UNINDEXED_TOOLS
            for leaf in _leaves(arguments_of(call))
        )
        text = "\n".join((text, *given)).strip()
    if not text or text.isspace() or text == TOMBSTONE:
        return None
    limit = _TOOL_CHARS if message["role"] == "tool" else _TEXT_CHARS
    return text if len(text) <= limit else text[: limit // 2] + "\n" + text[-limit // 2 :]


def _leaves(tree: object) -> list[str]:
    """The values of a JSON tree as texts, in order: no escapes, no names of fields."""
    found: list[str] = []
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case dict() as fields:
                waiting.extend(reversed(fields.values()))
            case list() as items:
                waiting.extend(reversed(items))
            case None | bool():
                pass
            case value:
                found.append(str(value))
    return found


def segmented(text: str) -> str:
    """The text as it goes into the index."""
    return text if text.isascii() else CJK_RUN.sub(_pairs, unicodedata.normalize("NFKC", text))


def _pairs(match: re.Match[str]) -> str:
    """``abc`` → `` ab bc c ``, as an array of code points: three times as fast as by strings."""
    run = memoryview(match[0].encode("utf-32-le")).cast("I")
    pieces = memoryview(bytearray(_BLANK * 3 * len(run))).cast("I")
    pieces[1::3] = run
    pieces[2:-1:3] = run[1:]
    return str(pieces, "utf-32-le")


def folded(text: str) -> str:
    """The text as it is compared: one case, one width, no accents on Latin letters."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).lower()
    if _ACCENTED.search(text):
        bare = _ACCENTS.sub("", unicodedata.normalize("NFD", text))
        text = unicodedata.normalize("NFC", bare)
    return text
