"""Owns the marks inside running text: spoilers, bold beside CJK, names of emoji (pure)."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from typing import Final

Edit = tuple[int, int, str]
"""From, to (bytes of the source), and what is to stand there."""

EMOJI: Final = {
    "+1": "👍", "-1": "👎", "100": "💯", "arrow_right": "➡️", "boom": "💥", "books": "📚",
    "bug": "🐛", "bulb": "💡", "calendar": "📅", "chart_with_upwards_trend": "📈", "clap": "👏",
    "computer": "💻", "construction": "🚧", "exclamation": "❗", "eyes": "👀", "fire": "🔥",
    "gear": "⚙️", "hammer": "🔨", "heart": "❤️", "hourglass": "⌛", "information_source": "ℹ️",
    "key": "🔑", "link": "🔗", "lock": "🔒", "mag": "🔍", "memo": "📝", "no_entry": "⛔",
    "package": "📦", "point_right": "👉", "pray": "🙏", "pushpin": "📌", "question": "❓",
    "recycle": "♻️", "robot": "🤖", "rocket": "🚀", "slightly_smiling_face": "🙂", "smile": "😄",
    "smiley": "😃", "sparkles": "✨", "star": "⭐", "sunglasses": "😎", "tada": "🎉",
    "thinking": "🤔", "thumbsdown": "👎", "thumbsup": "👍", "warning": "⚠️", "wave": "👋",
    "white_check_mark": "✅", "wink": "😉", "wrench": "🔧", "x": "❌", "zap": "⚡",
}  # fmt: skip
"""The names that models write; no client turns a bot's names into pictures."""
_NAMED: Final = re.compile(rb"(?<![\w:]):([a-z0-9_+-]{1,32}):(?![\w:])")
_MARKS: Final = "，。、；：？！“”‘’（）《》〈〉「」『』【】〔〕…—·～"
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>~|#])")
_BARS: Final = re.compile(rb"\|{2,}")
_STAR: Final = re.compile(rb"\*")


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


class Prose:
    """Collects the running text of a document, block by block."""

    def __init__(self, data: bytes, *, spoiler: tuple[str, str] | None, strict_bold: bool) -> None:
        self._data = data
        self._spoiler = spoiler
        self._strict_bold = strict_bold
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._bars: list[tuple[int, int]] = []
        self._stars: list[int] = []
        self._edits: list[Edit] = []
        self._has_bars = b"||" in data
        self._has_stars = strict_bold and b"**" in data and not data.isascii()
        self._has_names = _NAMED.search(data) is not None

    def text(self, text: str, start: int, end: int) -> None:
        """A piece of running text; its block ends with `end_block`."""
        if self._has_names:
            self._starts.append(start)
            self._ends.append(end)
        if self._has_bars and "||" in text:
            self._bars += [m.span() for m in _BARS.finditer(self._data, start, end)]
        if self._has_stars and "*" in text and self._data[start - 1 : start] != b"\\":
            self._stars += [m.start() for m in _STAR.finditer(self._data, start, end)]

    def strong(self, start: int, end: int) -> None:
        """What the parser takes for bold: beside CJK it may well pair the wrong marks."""
        if self._has_stars:
            self._stars += [start, start + 1, end - 2, end - 1]

    def end_block(self) -> None:
        """What opens in a block closes in it, or is no mark."""
        if self._bars:
            self._edits += self._spoilers()
            self._bars = []
        if self._stars:
            self._edits += self._bold()
            self._stars = []

    def forget(self, start: int) -> None:
        """What stands behind ``start`` was replaced as a whole."""
        self._edits = [edit for edit in self._edits if edit[0] < start]
        while self._starts and self._starts[-1] >= start:
            self._starts.pop()
            self._ends.pop()

    def edits(self) -> list[Edit]:
        """All of them, at the end of the document."""
        self.end_block()
        return self._edits + self._names()

    def _names(self) -> list[Edit]:
        found: list[Edit] = []
        for match in _NAMED.finditer(self._data) if self._starts else ():
            emoji = EMOJI.get(match[1].decode("ascii"))
            at = bisect_right(self._starts, match.start()) - 1
            if emoji is not None and at >= 0 and match.start() < self._ends[at]:
                found.append((match.start(), match.end(), emoji))
        return found

    def _spoilers(self) -> list[Edit]:
        """``||so||``, but ``a || b || c`` is a condition, and shown as one."""
        edits: list[Edit] = []
        opened: tuple[int, int] | None = None
        for start, end in self._bars:
            blank_before = not self._data[start - 1 : start].strip()
            blank_behind = not self._data[end : end + 1].strip()
            if end - start > 2:
                edits.append((start, end, "\\|" * (end - start)))
            elif opened is not None and not blank_before and start > opened[1]:
                if self._spoiler is not None:
                    edits.append((*opened, self._spoiler[0]))
                    edits.append((start, end, self._spoiler[1]))
                opened = None
            elif opened is None and not blank_behind:
                opened = (start, end)
            else:
                edits.append((start, end, "\\|\\|"))
        if opened is not None:
            edits.append((*opened, "\\|\\|"))
        return edits

    def _bold(self) -> list[Edit]:
        """``**注意：**内容`` is no bold by the book: the colon has to stand outside."""
        stars = set(self._stars)
        pairs = sorted(at for at in stars if at + 1 in stars and at - 1 not in stars)
        edits: list[Edit] = []
        for opening, closing in zip(pairs[::2], pairs[1::2], strict=False):
            inner = self._data[opening + 2 : closing].decode("utf-8", "replace")
            tail = inner[len(inner.rstrip(_MARKS)) :]
            front = inner[: len(inner) - len(inner.lstrip(_MARKS))]
            if len(front) == len(inner) or inner != inner.strip() or "*" in inner:
                continue
            before, behind = self._beside(opening, closing + 2)
            if front and _is_word(before):
                edits.append((opening, opening + 2 + len(front.encode()), f"{front}**"))
            if tail and _is_word(behind):
                edits.append((closing - len(tail.encode()), closing + 2, f"**{tail}"))
        return edits

    def _beside(self, start: int, end: int) -> tuple[str, str]:
        before = self._data[max(0, start - 4) : start].decode("utf-8", "ignore")
        behind = self._data[end : end + 4].decode("utf-8", "ignore")
        return before[-1:], behind[:1]


def _is_word(char: str) -> bool:
    return bool(char) and unicodedata.category(char)[0] not in "PZC"
