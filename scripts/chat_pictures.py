"""Owns docs/pictures: a chat on both platforms, as the loopback servers recorded it.

`python -m scripts.chat_pictures` has the conversation again and draws it; a test compares both with
what is committed.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from scripts.chat_drawing import Canvas, Line, Run, Style, line_width, width, wrapped
from scripts.chat_recording import record

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
RECORDED = FOLDER / "chat.json"
WIDE = 460
BODY = Style()
CODE = Style(size=12, mono=True)
LEADING = 1.42
Message = dict[str, Any]
Block = tuple[str, list[Line]]
"""``text``, ``code`` or ``quote``, and its lines."""


def height(lines: list[Line], least: float = BODY.size) -> float:
    """Of lines below each other."""
    return sum(max([least, *(run.style.size for run in line)]) * LEADING for line in lines)


# --- Telegram: text and entities ----------------------------------------------------------------

_LOOKS: dict[str, dict[str, Any]] = {
    "bold": {"bold": True},
    "italic": {"italic": True},
    "underline": {"underlined": True},
    "code": {"mono": True, "size": 13, "colour": "#0f7a52"},
    "text_link": {"colour": "#2481cc"},
    "spoiler": {"colour": "#9aa7b1"},
}


def telegram_blocks(message: Message, room: float) -> list[Block]:
    """The text by its entities; offsets count UTF-16 units, and so does the text here."""
    units = [message["text"].encode("utf-16-le")[n : n + 2] for n in range(
        0, len(message["text"].encode("utf-16-le")), 2)]  # fmt: skip
    kinds = ["text"] * len(units)
    looks: list[dict[str, Any]] = [{} for _ in units]
    for entity in message.get("entities", ()):
        for at in range(entity["offset"], entity["offset"] + entity["length"]):
            if entity["type"] in ("pre", "blockquote", "expandable_blockquote"):
                kinds[at] = "code" if entity["type"] == "pre" else "quote"
            else:
                looks[at] = {**looks[at], **_LOOKS.get(entity["type"], {})}
    blocks: list[tuple[str, list[Run]]] = []
    for unit, kind, look in zip(units, kinds, looks, strict=True):
        style = CODE if kind == "code" else Style(**{"size": BODY.size, **look})
        if not blocks or blocks[-1][0] != kind:
            blocks.append((kind, []))
        runs = blocks[-1][1]
        char = unit.decode("utf-16-le", "surrogatepass")
        if runs and runs[-1].style == style:
            runs[-1] = Run(runs[-1].text + char, style)
        else:
            runs.append(Run(char, style))
    return [(kind, _lines(kind, runs, room)) for kind, runs in blocks if _has_text(runs)]


def _has_text(runs: list[Run]) -> bool:
    return any(run.text.strip() for run in runs)


def _lines(kind: str, runs: list[Run], room: float) -> list[Line]:
    first, last = runs[0], runs[-1]
    runs = [Run(first.text.lstrip("\n"), first.style), *runs[1:]]
    last = runs[-1]
    runs = [*runs[:-1], Run(last.text.rstrip("\n"), last.style)]
    return wrapped(runs, room - (20 if kind != "text" else 0) if kind != "code" else 10_000)


def draw_telegram(messages: list[Message]) -> str:
    """Bubbles, by entities."""
    canvas = Canvas(WIDE, "#dbe7d3", "A private chat with the bot on Telegram")
    y = 18.0
    for message in messages:
        mine = message["who"] == "ada"
        room = 300.0 if mine else 370.0
        blocks = telegram_blocks(message, room)
        wide = max([90.0, *(line_width(line) + (24 if kind != "text" else 0)
                            for kind, lines in blocks for line in lines)])  # fmt: skip
        wide = min(max(wide, 220.0 if message.get("photo") else 0.0), room + 20)
        high = 16 + (130 if message.get("photo") else 0) + sum(
            height(lines) + (16 if kind != "text" else 4) for kind, lines in blocks
        )  # fmt: skip
        left = WIDE - 18 - wide - 24 if mine else 18.0
        canvas.box(left, y, wide + 24, high, "#eeffde" if mine else "#ffffff", radius=13)
        at = y + 8
        if message.get("photo"):
            _photo(canvas, left + 8, at, wide + 8)
            at += 130
        at = _blocks(canvas, blocks, left + 12, at, wide, "#000000", "#eef1f4", "#3390ec")
        y += high + 8
        y = _buttons(canvas, message, left, y, wide + 24, "#7f9a76", "#ffffff")
    return canvas.svg(y + 8)


def _photo(canvas: Canvas, x: float, y: float, wide: float) -> None:
    """A photo was sent here: paper on a wall."""
    canvas.box(x, y, wide, 124, "#c9b48f", radius=9)
    canvas.box(x + wide / 2 - 62, y + 16, 124, 92, "#fffdf6", radius=2)
    canvas.circle(x + wide / 2, y + 18, 4, "#d2453d")
    for n, size in enumerate((84, 60, 92, 48)):
        canvas.box(x + wide / 2 - 48, y + 36 + n * 16, size, 5, "#8d98a5", radius=2)


def _blocks(
    canvas: Canvas, blocks: list[Block], x: float, y: float, wide: float,
    ink: str, paper: str, mark: str,
) -> float:  # fmt: skip
    """Draw blocks below each other; where the next one begins."""
    for kind, lines in blocks:
        inset, above = (12, 6) if kind != "text" else (0, 0)
        if kind != "text":
            high = height(lines) + 12
            canvas.box(x, y + 2, wide, high, paper, radius=6)
            canvas.box(x, y + 2, 3, high, mark, radius=1.5)
        at = y + 2 + above
        for line in lines:
            size = max([BODY.size, *(run.style.size for run in line)])
            at += size * LEADING
            canvas.text(x + inset, at - size * 0.42, line, ink)
        y = at + (10 if kind != "text" else 2)
    return y


def _buttons(
    canvas: Canvas, message: Message, x: float, y: float, wide: float, fill: str, ink: str
) -> float:
    labels = message.get("buttons") or []
    if not labels:
        return y
    each = (wide - 6 * (len(labels) - 1)) / len(labels)
    for n, label in enumerate(labels):
        left = x + n * (each + 6)
        canvas.box(left, y - 3, each, 30, fill, radius=8)
        canvas.text(left + each / 2, y + 17, (Run(label, Style(bold=True)),), ink, middle=True)
    return y + 36


# --- Discord: its Markdown ----------------------------------------------------------------------

_INLINE = re.compile(
    r"\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`|\|\|(?P<spoiler>[^|]+)\|\||"
    r"\[(?P<label>[^\]]+)\]\([^)]+\)"
)
_DISCORD_LOOKS = {
    "bold": Style(bold=True, colour="#f2f3f5"),
    "code": Style(size=12.5, mono=True, colour="#c9cdd3"),
    "spoiler": Style(colour="#5c6068"),
    "label": Style(colour="#00a8fc"),
}


def discord_blocks(message: Message, room: float) -> list[Block]:
    """As much of its Markdown as the conversation has."""
    blocks: list[Block] = []
    for n, piece in enumerate(
        re.split(r"```(?:\w*\n)?(.*?)\n?```\n?", message["text"], flags=re.DOTALL)
    ):
        if n % 2:
            blocks.append(("code", wrapped([Run(piece, CODE)], 10_000)))
        elif piece.strip():
            lines = [line for text in piece.strip("\n").split("\n") for line in _line(text, room)]
            blocks.append(("text", lines))
    return blocks


def _line(text: str, room: float) -> list[Line]:
    if text.startswith("#"):
        words = text.lstrip("# ")
        return wrapped([Run(words, Style(size=17, bold=True, colour="#f2f3f5"))], room)
    item = re.match(r"( *)- ", text)
    if item:
        text = "\u2003" * (len(item[1]) // 2) + ("◦ " if item[1] else "• ") + text[item.end() :]
    runs: list[Run] = []
    at = 0
    for match in _INLINE.finditer(text):
        runs.append(Run(text[at : match.start()], BODY))
        kind = match.lastgroup or "bold"
        shown = "█" * (len(match[kind]) * 3 // 4) if kind == "spoiler" else match[kind]
        runs.append(Run(shown, _DISCORD_LOOKS[kind]))
        at = match.end()
    return wrapped([*runs, Run(text[at:], BODY)], room)


def draw_discord(messages: list[Message]) -> str:
    """Names and faces, by its Markdown."""
    canvas = Canvas(WIDE, "#313338", "The same bot in a direct channel on Discord")
    y, before = 18.0, ""
    for message in messages:
        name, colour = ("ada", "#e8a33d") if message["who"] == "ada" else ("posthouse", "#5b8def")
        left, room = 70.0, WIDE - 92.0
        if message["who"] != before:
            canvas.circle(38, y + 18, 18, colour)
            canvas.text(38, y + 23.5, (Run(name[0].upper(), Style(size=16, bold=True)),),
                        "#ffffff", middle=True)  # fmt: skip
            canvas.text(left, y + 12, (Run(name, Style(bold=True)),), "#f2f3f5")
            if name != "ada":
                badge = left + width(name, Style(bold=True)) + 6
                canvas.box(badge, y, 32, 15, "#5865f2", radius=4)
                canvas.text(badge + 16, y + 11, (Run("APP", Style(size=9.5, bold=True)),),
                            "#ffffff", middle=True)  # fmt: skip
            y += 17
        before = message["who"]
        blocks = discord_blocks(message, room)
        y = _blocks(canvas, blocks, left, y, room, "#dbdee1", "#2b2d31", "#1e1f22") + 8
        y = _discord_buttons(canvas, message, left, y)
    return canvas.svg(y + 10)


def _discord_buttons(canvas: Canvas, message: Message, x: float, y: float) -> float:
    labels = message.get("buttons") or []
    for n, label in enumerate(labels):
        fill = {"Approve": "#248046", "Deny": "#da373c"}.get(label, "#4e5058")
        canvas.box(x + n * 100, y - 2, 92, 32, fill, radius=4)
        line = (Run(label, Style(bold=True)),)
        canvas.text(x + n * 100 + 46, y + 19, line, "#ffffff", middle=True)
    return y + 46 if labels else y


# --- all of it ----------------------------------------------------------------------------------


def pictures(chats: dict[str, list[Message]]) -> dict[str, str]:
    """The files, by name."""
    return {
        "telegram.svg": draw_telegram(chats["telegram"]),
        "discord.svg": draw_discord(chats["discord"]),
    }


def main() -> None:
    """Have the conversation and draw it."""
    with tempfile.TemporaryDirectory() as folder:
        chats = asyncio.run(record(Path(folder)))
    FOLDER.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps(chats, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for name, svg in pictures(chats).items():
        (FOLDER / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
