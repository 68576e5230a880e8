"""Owns the marks inside running text: spoilers, bold beside CJK, names of emoji (pure)."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from typing import Final

from gateway.markdown.dialects import Dialect
from gateway.markdown.source import Source

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
_NAMED_TEXT: Final = re.compile(r"(?<![\w:]):([a-z0-9_+-]{1,32}):(?![\w:])")
_FAR: Final = 1 << 62
_MARKS: Final = "，。、；：？！“”‘’（）《》〈〉「」『』【】〔〕…—·～"
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>~|#])")
_BARS: Final = re.compile(rb"\|{2,}")
_TICKS: Final = re.compile(rb"`{3,}")
_PRODUCT: Final = re.compile(rb"\d\*\d")
_STAR: Final = re.compile(rb"\*")


def escaped(text: str, dialect: Dialect) -> str:
    """Text that Markdown shows as it is."""
    made = _SPECIAL.sub(r"\\\1", text)
    # To Telegram's converter this would begin a formula.
    return made if dialect.entities else made.replace("\\[", "&#91;").replace("\\]", "&#93;")


def with_emoji(text: str) -> str:
    """The names of emoji in it as emoji."""
    return (
        _NAMED_TEXT.sub(lambda match: EMOJI.get(match[1], match[0]), text) if ":" in text else text
    )


class Prose:
    """Edits the running text of a document, block by block."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        self._source = source
        self._dialect = dialect
        self._places: list[tuple[int, int]] = []
        self._bars: list[tuple[int, int]] = []
        self._stars: list[int] = []
        data = source.data
        self._has_bars = b"||" in data
        self._has_stars = dialect.strict_bold and b"**" in data and not data.isascii()
        self._has_ticks = dialect.fences and b"```" in data
        self._has_names = _NAMED.search(data) is not None

    def text(self, text: str, start: int, end: int) -> None:
        """A piece of running text; its block ends with `end_block`."""
        data = self._source.data
        if self._has_names:
            self._places.append((start, end))
        if self._has_bars and "||" in text:
            self._bars += [m.span() for m in _BARS.finditer(data, start, end)]
        if self._has_stars and "*" in text and data[start - 1 : start] != b"\\":
            self._stars += [m.start() for m in _STAR.finditer(data, start, end)]
        if self._has_ticks and "```" in text:
            self.ticks(start, end)
        is_entity = data[start : start + 1] == b"&" and data[start:end] != text.encode("utf-8")
        if is_entity and self._dialect.entities:
            self._source.edit(start, end, escaped(text.replace("\xa0", " "), self._dialect))

    def ticks(self, start: int, end: int) -> None:
        """What would be taken for a fence, and is none."""
        if self._has_ticks:
            for match in _TICKS.finditer(self._source.data, start, end):
                self._source.edit(*match.span(), "\\`" * len(match[0]))

    def strong(self, start: int, end: int) -> None:
        """What the parser takes for bold: beside CJK it may well pair the wrong marks."""
        if self._has_stars:
            self._stars += [start, start + 1, end - 2, end - 1]

    def emphasis(self, start: int, end: int) -> None:
        """``2*3*4`` is a product, and shown as one."""
        if self._between_digits(start) and self._between_digits(end - 1):
            self._source.edit(start, start + 1, "\\*")
            self._source.edit(end - 1, end, "\\*")

    def _between_digits(self, at: int) -> bool:
        return _PRODUCT.fullmatch(self._source.data, max(0, at - 1), at + 2) is not None

    def end_block(self) -> None:
        """What opens in a block closes in it, or is no mark."""
        if self._bars:
            self._spoilers()
            self._bars = []
        if self._stars:
            self._bold()
            self._stars = []
        if self._places:
            self._names()
            self._places = []

    def _names(self) -> None:
        """Their letters may be in several pieces, but where one begins is text."""
        places = self._places
        for match in _NAMED.finditer(self._source.data, places[0][0], places[-1][1]):
            emoji = EMOJI.get(match[1].decode("ascii"))
            at = bisect_right(places, (match.start(), _FAR)) - 1
            if emoji is not None and at >= 0 and match.start() < places[at][1]:
                self._source.edit(match.start(), match.end(), emoji)

    def _spoilers(self) -> None:
        """``||so||``, but ``a || b || c`` is a condition, and shown as one."""
        edit, data = self._source.edit, self._source.data
        opened: tuple[int, int] | None = None
        for start, end in self._bars:
            blank_before = not data[start - 1 : start].strip()
            blank_behind = not data[end : end + 1].strip()
            if end - start > 2:
                edit(start, end, "\\|" * (end - start))
            elif opened is not None and not blank_before and start > opened[1]:
                if self._dialect.spoiler is not None:
                    edit(*opened, self._dialect.spoiler[0])
                    edit(start, end, self._dialect.spoiler[1])
                opened = None
            elif opened is None and not blank_behind:
                opened = (start, end)
            else:
                edit(start, end, "\\|\\|")
        if opened is not None:
            edit(*opened, "\\|\\|")

    def _bold(self) -> None:
        """``**注意：**内容`` is no bold by the book: the colon has to stand outside."""
        stars = set(self._stars)
        pairs = sorted(at for at in stars if at + 1 in stars and at - 1 not in stars)
        edit = self._source.edit
        for opening, closing in zip(pairs[::2], pairs[1::2], strict=False):
            inner = self._source.text(opening + 2, closing)
            tail = inner[len(inner.rstrip(_MARKS)) :]
            front = inner[: len(inner) - len(inner.lstrip(_MARKS))]
            if len(front) == len(inner) or inner != inner.strip() or "*" in inner:
                continue
            before, behind = self._beside(opening, closing + 2)
            if front and _is_word(before):
                edit(opening, opening + 2 + len(front.encode()), f"{front}**")
            if tail and _is_word(behind):
                edit(closing - len(tail.encode()), closing + 2, f"**{tail}")

    def _beside(self, start: int, end: int) -> tuple[str, str]:
        before = self._source.data[max(0, start - 4) : start].decode("utf-8", "ignore")
        behind = self._source.data[end : end + 4].decode("utf-8", "ignore")
        return before[-1:], behind[:1]


def _is_word(char: str) -> bool:
    return bool(char) and unicodedata.category(char)[0] not in "PZC"
