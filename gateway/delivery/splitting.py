"""Owns cutting a long text into messages: by UTF-16 units, at good places, fences whole (pure).

Platforms count UTF-16 units, so every length here is one. `split_text` changes nothing: its chunks
joined are the text. `split_markdown` is for display: it closes and reopens code fences and drops
the blank lines at its cuts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

TELEGRAM_LIMIT = 4096
DISCORD_LIMIT = 2000
MIN_LIMIT = 16
MIN_MARKDOWN_LIMIT = 128
"""Below this a fence would have no room for its code."""

_LOOK_AHEAD = 512
"""To see where a link ends that a cut would go through."""

_PROTECTED = re.compile(
    # Each is bounded, so that no text makes the search quadratic.
    r"(?P<tick>`{1,3})(?:(?!(?P=tick))[^\n]){1,200}(?P=tick)"  # inline code
    r"|\[[^\[\]\n]{0,200}\]\([^()\s]{0,1000}\)"  # link
    r"|\*\*[^*\n]{1,200}\*\*|__[^_\n]{1,200}__|~~[^~\n]{1,200}~~|\|\|[^|\n]{1,200}\|\|"
    r"|https?://\S{1,1000}"
)
_FENCE = re.compile(
    r"(?P<lead>(?:[ \t]|>|(?:[-*+]|\d{1,9}[.)])[ \t])*)(?P<fence>`{3,}|~{3,})(?P<info>.*)"
)
_SENTENCE_END = re.compile(r"[.!?…]['\")\]]*[ \t]+|[。！？]")


def utf16_len(text: str) -> int:
    """Length in UTF-16 units; half surrogates count one each."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


# --- plain text ---------------------------------------------------------------------------------


def split_text(text: str, limit: int) -> list[str]:
    """Cut into chunks of at most ``limit`` units; joined, they are the text. ``[]`` for ``""``.

    Cut at a paragraph, line, sentence or word if one ends in the later half of a chunk, else
    between two characters as people see them.
    """
    _check(limit, MIN_LIMIT)
    chunks: list[str] = []
    start = 0
    while start < len(text):
        end = _cut(text, start, limit)
        chunks.append(text[start:end])
        start = end
    return chunks


def _check(limit: int, least: int) -> None:
    if limit < least:
        raise ValueError(f"a limit of {limit} is too small to split by")


def _cut(text: str, start: int, limit: int) -> int:
    """Index behind the best chunk that begins at ``start``; always beyond ``start``."""
    window = text[start : start + limit + _LOOK_AHEAD]
    length = _prefix_within(window[: limit + 1], limit)
    if start + length >= len(text):
        return len(text)
    return start + _best_break(window, length)


def _prefix_within(text: str, limit: int) -> int:
    """How many characters fit into ``limit`` units."""
    if utf16_len(text) <= limit:
        return len(text)
    if text.isascii():
        return limit
    low, high = limit // 2, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if utf16_len(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _best_break(window: str, length: int) -> int:
    """Where to cut the first ``length`` characters of ``window``, which has more than those."""
    least = length // 2
    protected = [(m.start(), m.end()) for m in _PROTECTED.finditer(window)]

    def free(index: int) -> bool:
        if _FENCE.match(window, index):
            return (
                False  # in the middle of a line it is none, at the start of a message it would be
            )
        return not any(start < index < end for start, end in protected)

    for mark in ("\n\n", "\n"):
        at = window.rfind(mark, least, length)
        if at != -1:
            return at + len(mark)
    ends = [m.end() for m in _SENTENCE_END.finditer(window, least, length) if free(m.end())]
    if ends:
        return ends[-1]
    for at in range(length, least, -1):
        if window[at - 1].isspace() and free(at):
            return at
    return _character_break(window, length)


def _character_break(window: str, length: int) -> int:
    """The nearest border between two visible characters at or before ``length``.

    A "character" longer than 64 code points is noise, and cut like any text.
    """
    for at in range(length, max(0, length - 64), -1):
        if not _joined(window, at) and not _FENCE.match(window, at):
            return at
    return length


def _joined(text: str, at: int) -> bool:
    """Do the code points around ``at`` belong to one visible character?"""
    before, after = text[at - 1], text[at] if at < len(text) else ""
    if not after or (before.isascii() and after.isascii()):
        return before == "\r" and after == "\n"
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True  # two halves that somebody decoded apart
    if before == "\u200d" or after == "\u200d":
        return True
    if unicodedata.combining(after) or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True  # skin tones, the letters inside a flag
    if _is_flag_half(before) and _is_flag_half(after):
        run = 0
        while run < at and _is_flag_half(text[at - 1 - run]):
            run += 1
        return run % 2 == 1
    return False


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


# --- Markdown -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code fence: how its lines are indented, its marks, what stands behind them."""

    lead: str
    marks: str
    info: str

    @property
    def closing(self) -> str:
        return self.lead + self.marks

    @property
    def reopening(self) -> str:
        return f"{self.lead}{self.marks}{self.language}"

    @property
    def language(self) -> str:
        word = self.info.strip().split(maxsplit=1)[0] if self.info.strip() else ""
        longer = word.startswith(self.marks[0])  # the fence would have one mark more
        return word if len(word) <= 24 and not longer else ""

    def closed_by(self, line: str) -> bool:
        text = line.strip(" \t>\n")
        return len(text) >= len(self.marks) and not text.strip(self.marks[0])


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph with the blank lines behind it, or a fence with its code."""

    text: str
    """Exactly as it stood there."""
    fence: _Fence | None = None
    code: tuple[str, ...] = ()
    """The lines inside the fence, without their ends."""
    opening: str = ""
    closed: bool = True


def split_markdown(text: str, limit: int) -> list[str]:
    """Cut Markdown into messages of at most ``limit`` units; none is blank.

    Every fence is closed in the message where it opens and reopened, with its language, in the
    next; a fence that the text left open is closed. Code loses nothing and its lines stay whole as
    long as they fit. ``[]`` for a blank text.
    """
    _check(limit, MIN_MARKDOWN_LIMIT)
    messages: list[str] = []
    current = ""
    for block in _blocks(text):
        whole = _whole(block)
        if _fits(current + whole, limit):
            current += whole
            continue
        # A block that fits by itself moves on whole, unless that wastes most of a message.
        if current.strip() and (
            _fits(whole, limit) and (block.fence or utf16_len(current) >= limit // 2)
        ):
            messages.append(current)
            current = whole
            continue
        *full, current = _spread(current, block, limit)
        messages.extend(full)
    messages.append(current)
    trimmed = (_trim(message) for message in messages)
    return [message for message in trimmed if message.strip()]


def _fits(text: str, limit: int) -> bool:
    # What a trim takes away at the end does not count.
    return len(text) <= limit * 2 and utf16_len(text.rstrip()) <= limit


def _trim(message: str) -> str:
    """Without the blank lines around it, the indentation of its first line kept."""
    lines = message.rstrip().split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines)


def _whole(block: _Block) -> str:
    """The block as it goes out if it needs no cut."""
    if block.fence is None or block.closed:
        return block.text
    return block.text.rstrip("\n") + "\n" + block.fence.closing + "\n"


def _blocks(text: str) -> Iterator[_Block]:
    lines = _lines(text)
    at = 0
    while at < len(lines):
        fence = _opening(lines[at])
        start = at
        at += 1
        if fence is not None:
            while at < len(lines) and not fence.closed_by(lines[at]):
                at += 1
            code = tuple(line.rstrip("\n") for line in lines[start + 1 : at])
            closed = at < len(lines)
            at = min(at + 1, len(lines))
            whole = "".join(lines[start:at])
            yield _Block(whole, fence, code, lines[start].rstrip("\n"), closed)
            continue
        while at < len(lines) and lines[at - 1].strip() and _opening(lines[at]) is None:
            at += 1
        while at < len(lines) and not lines[at].strip():
            at += 1
        yield _Block("".join(lines[start:at]))


def _lines(text: str) -> list[str]:
    """Lines as Markdown has them: other separators are characters like any other."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _opening(line: str) -> _Fence | None:
    match = _FENCE.match(line.rstrip("\n"))
    if match is None:
        return None
    marks, info = match["fence"], match["info"]
    if marks[0] == "`" and "`" in info:
        return None  # inline code that happens to stand at the start of a line
    # A reopened fence stands inside the same list item, so the item's mark becomes an indentation.
    lead = re.sub(r"[^\s>]", " ", match["lead"])
    return _Fence(lead, marks, info)


def _spread(current: str, block: _Block, limit: int) -> list[str]:
    """Cut one block that does not fit behind ``current``; the last message is still open."""
    if block.fence is None:
        room = limit - utf16_len(current)
        if room < limit // 4:
            return [current, *split_text(block.text, limit)]
        end = _cut(block.text, 0, max(room, MIN_LIMIT))
        first = current + block.text[:end]
        if not _fits(first, limit):
            return [current, *split_text(block.text, limit)]
        return [first, *(split_text(block.text[end:], limit) or [""])]
    return _spread_fence(current, block, block.fence, limit)


def _spread_fence(current: str, block: _Block, fence: _Fence, limit: int) -> list[str]:
    fence, opening, notes = _bounded(fence, block.opening, limit)
    messages = [current]
    for note in notes:  # what was too long to stand behind the marks
        if not _fits(messages[-1] + note, limit):
            messages.append("")
        messages[-1] += note
    closing = "\n" + fence.closing
    if not _fits(f"{messages[-1]}{opening}\n{'x' * (limit // 4)}{closing}", limit):
        messages.append("")
    before = messages[-1]
    messages[-1] += opening
    used = utf16_len(messages[-1])
    empty = True
    for n, line in enumerate(block.code):
        head = fence.reopening if n else opening
        for piece in _code_pieces(line, head, closing, limit):
            size = 1 + utf16_len(piece)
            if used + size + utf16_len(closing) > limit and (before or not empty):
                if empty:  # no code stands here yet, so the fence itself moves on
                    messages[-1:] = [before, opening]
                else:
                    messages[-1] += closing
                    messages.append(fence.reopening)
                used = utf16_len(messages[-1])
            messages[-1] += "\n" + piece
            used += size
            before, empty = "", False
    messages[-1] += closing + "\n"
    return messages


def _bounded(fence: _Fence, opening: str, limit: int) -> tuple[_Fence, str, list[str]]:
    """The fence, its opening line, and text to put before it, such that code still has room."""
    overhead = 2 * utf16_len(fence.reopening) + 2
    if overhead > limit // 2:  # absurdly long marks or indentation: same fence, shorter marks
        marks = fence.marks[:3] if len(fence.marks) > limit // 8 else fence.marks
        lead = fence.lead[: limit // 8]
        fence = _Fence(lead, marks, fence.info)
        opening = f"{lead}{marks}{fence.info}"
    if utf16_len(opening) <= limit // 2:
        return fence, opening, []
    notes = split_text(fence.info.strip() + "\n", limit)
    return fence, fence.reopening, notes


def _code_pieces(line: str, head: str, closing: str, limit: int) -> list[str]:
    room = limit - utf16_len(head) - utf16_len(closing) - 1
    if utf16_len(line) <= room:
        return [line]
    return split_text(line, max(room, MIN_LIMIT))
