"""The parse modes: MarkdownV2, HTML and the first Markdown, to plain text and entities.

The grammars are approximations: they give the platform's error texts for the mistakes bots
really make (an unescaped character, an entity cut by a split, an unclosed tag), no more.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.fakes.telegram_server.entities import Entity, byte_offset, utf16_len, utf16_slice
from tests.fakes.telegram_server.wire import ApiError, bad_request

_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
# How MarkdownV2 names an entity it cannot close.
_KIND_NAMES = {
    "bold": "Bold",
    "italic": "Italic",
    "underline": "Underline",
    "strikethrough": "Strikethrough",
    "spoiler": "Spoiler",
    "code": "Code",
    "pre": "Pre",
    "text_link": "TextUrl",
    "custom_emoji": "CustomEmoji",
    "blockquote": "BlockQuote",
}


def unparsable(reason: str) -> ApiError:
    """The error for markup the platform refuses."""
    return bad_request(f"can't parse entities: {reason}")


def parse(text: str, parse_mode: str | None) -> tuple[str, list[Entity]]:
    """Apply a parse mode: the plain text and its entities."""
    mode = (parse_mode or "none").lower()
    if mode == "none":
        return text, []
    if mode == "markdownv2":
        return _MarkdownV2(text).parse()
    if mode == "markdown":
        return _LegacyMarkdown(text).parse()
    if mode == "html":
        return _Html(text).parse()
    raise bad_request("unsupported parse_mode")


@dataclass
class _Open:
    """An entity that has begun and has no end yet."""

    kind: str
    offset: int
    source_index: int
    extra: dict[str, Any] = field(default_factory=dict)
    tag: str = ""


class _Writer:
    """The output side that all three grammars share."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.index = 0
        self.out: list[str] = []
        self.length = 0
        self.open: list[_Open] = []
        self.entities: list[Entity] = []

    def emit(self, text: str) -> None:
        self.out.append(text)
        self.length += utf16_len(text)

    def begin(self, kind: str, *, tag: str = "", **extra: Any) -> None:
        self.open.append(_Open(kind, self.length, self.index, extra, tag))

    def end(self, opened: _Open, kind: str | None = None, **extra: Any) -> None:
        if self.length > opened.offset:
            self.entities.append(
                {
                    "type": kind or opened.kind,
                    "offset": opened.offset,
                    "length": self.length - opened.offset,
                    **opened.extra,
                    **extra,
                }
            )

    def looking_at(self, text: str) -> bool:
        return self.source.startswith(text, self.index)

    def at_byte(self, index: int | None = None) -> int:
        return byte_offset(self.source, self.index if index is None else index)

    def result(self) -> tuple[str, list[Entity]]:
        self.entities.sort(key=lambda entity: (entity["offset"], -entity["length"]))
        return "".join(self.out), self.entities

    def text_since(self, opened: _Open) -> str:
        return utf16_slice("".join(self.out), opened.offset, self.length - opened.offset)


class _MarkdownV2(_Writer):
    """MarkdownV2: every reserved character outside an entity is an error."""

    _MARKS = (("__", "underline"), ("_", "italic"), ("*", "bold"), ("~", "strikethrough"))
    _CLOSERS: ClassVar = {
        "bold": "*",
        "italic": "_",
        "underline": "__",
        "strikethrough": "~",
        "spoiler": "||",
        "code": "`",
        "pre": "```",
        "text_link": "]",
        "custom_emoji": "]",
    }

    def parse(self) -> tuple[str, list[Entity]]:
        while self.index < len(self.source):
            self._step()
        self._leave_quote()
        if self.open:
            raise self._unclosed(self.open[-1])
        return self.result()

    def _unclosed(self, opened: _Open) -> ApiError:
        name = "PreCode" if "language" in opened.extra else _KIND_NAMES[opened.kind]
        where = self.at_byte(opened.source_index)
        return unparsable(f"Can't find end of {name} entity at byte offset {where}")

    def _reserved(self, char: str) -> ApiError:
        return unparsable(
            f"Character '{char}' is reserved and must be escaped with the preceding '\\'"
        )

    def _step(self) -> None:
        char = self.source[self.index]
        following = self.source[self.index + 1 : self.index + 2]
        if char == "\\" and following and 0 < ord(following) <= 126:
            self.emit(following)
            self.index += 2
            return
        if self._quote_mark():
            return
        top = self.open[-1].kind if self.open else ""
        if char not in ("`" if top in {"code", "pre"} else _RESERVED):
            self._plain(char)
        elif self._closes(top):
            self._close(self.open.pop())
        else:
            self._open_entity(char)

    def _plain(self, char: str) -> None:
        if char == "\n" and self._in_quote() and not self.source.startswith(">", self.index + 1):
            self._leave_quote()
        self.emit(char)
        self.index += 1

    # --- quotes: a line mark opens or continues one, the first line without it ends it

    def _at_line_start(self) -> bool:
        return self.index == 0 or self.source[self.index - 1] == "\n"

    def _in_quote(self) -> bool:
        return any(item.kind == "blockquote" for item in self.open)

    def _quote_mark(self) -> bool:
        if self.open and self.open[-1].kind in {"code", "pre"}:
            return False
        if self._at_line_start() and self.looking_at("**>"):
            self._leave_quote()
            self.begin("blockquote")
            self.index += 3
            return True
        if self._at_line_start() and self.looking_at(">"):
            if not self._in_quote():
                self.begin("blockquote")
            self.index += 1
            return True
        if self._in_quote() and self.looking_at("||") and self.open[-1].kind == "blockquote":
            return self._fold_mark()
        return False

    def _fold_mark(self) -> bool:
        # "||" at the end of a quote folds it; anywhere else it opens a spoiler.
        if self.source[self.index + 2 : self.index + 3] not in {"", "\n"}:
            return False
        self.end(self.open.pop(), "expandable_blockquote")
        self.index += 2
        return True

    def _leave_quote(self) -> None:
        if not self._in_quote():
            return
        if self.open[-1].kind != "blockquote":
            raise self._unclosed(self.open[-1])
        self.end(self.open.pop())

    # --- inline entities

    def _closes(self, top: str) -> bool:
        if top == "italic":
            return self.looking_at("_") and not self.looking_at("__")
        return top in self._CLOSERS and self.looking_at(self._CLOSERS[top])

    def _open_entity(self, char: str) -> None:
        if char == "`":
            self._open_code()
            return
        if self.looking_at("||"):
            self.begin("spoiler")
            self.index += 2
            return
        if char == "[" or self.looking_at("!["):
            self.begin("text_link" if char == "[" else "custom_emoji")
            self.index += 1 if char == "[" else 2
            return
        for mark, kind in self._MARKS:
            if self.looking_at(mark):
                self.begin(kind)
                self.index += len(mark)
                return
        raise self._reserved(char)

    def _open_code(self) -> None:
        if not self.looking_at("```"):
            self.begin("code")
            self.index += 1
            return
        language = re.compile(r"[^\s`]+(?=\s)").match(self.source, self.index + 3)
        self.begin("pre", **({"language": language.group()} if language else {}))
        self.index = language.end() if language else self.index + 3
        if self.looking_at("\r\n"):
            self.index += 2
        elif self.looking_at("\n"):
            self.index += 1

    def _close(self, opened: _Open) -> None:
        self.index += len(self._CLOSERS[opened.kind])
        if opened.kind == "text_link":
            url = self._address() if self.looking_at("(") else self.text_since(opened)
            self._end_link(opened, url)
        elif opened.kind == "custom_emoji":
            if not self.looking_at("("):
                raise unparsable("Custom emoji entity must contain a tg://emoji URL")
            self.end(opened, custom_emoji_id=self._address().rpartition("=")[2])
        else:
            self.end(opened)

    def _end_link(self, opened: _Open, url: str) -> None:
        mention = re.fullmatch(r"tg://user\?id=(\d+)", url)
        if mention:
            user = {"id": int(mention.group(1)), "is_bot": False, "first_name": "User"}
            self.end(opened, "text_mention", user=user)
        elif "." in url or "://" in url:
            # What is no address is shown as plain text, without an error.
            self.end(opened, url=url)

    def _address(self) -> str:
        self.index += 1
        began, url = self.index, []
        while self.index < len(self.source) and not self.looking_at(")"):
            if self.looking_at("\\") and self.index + 1 < len(self.source):
                self.index += 1
            url.append(self.source[self.index])
            self.index += 1
        if not self.looking_at(")"):
            raise unparsable(f"Can't find end of a URL at byte offset {self.at_byte(began)}")
        self.index += 1
        return "".join(url)


class _LegacyMarkdown(_Writer):
    """The first Markdown mode: no nesting, and one unclosed mark refuses the message."""

    _KINDS: ClassVar = {"_": "italic", "*": "bold", "`": "code", "[": "text_link"}

    def parse(self) -> tuple[str, list[Entity]]:
        while self.index < len(self.source):
            self._step()
        return self.result()

    def _step(self) -> None:
        char = self.source[self.index]
        following = self.source[self.index + 1 : self.index + 2]
        if char == "\\" and following and following in "_*`[":
            self.emit(following)
            self.index += 2
        elif char in self._KINDS:
            self._entity(char)
        else:
            self.emit(char)
            self.index += 1

    def _entity(self, char: str) -> None:
        closer = "```" if self.looking_at("```") else {"[": "]"}.get(char, char)
        opener = closer if closer == "```" else char
        stop = self.source.find(closer, self.index + len(opener))
        if stop < 0:
            raise unparsable(
                f"Can't find end of the entity starting at byte offset {self.at_byte()}"
            )
        self.begin("pre" if closer == "```" else self._KINDS[char])
        self.emit(self.source[self.index + len(opener) : stop])
        self.index = stop + len(closer)
        self._finish(self.open.pop())

    def _finish(self, opened: _Open) -> None:
        if opened.kind != "text_link":
            self.end(opened)
            return
        address = re.compile(r"\(([^)]*)\)").match(self.source, self.index)
        if address:
            self.index = address.end()
            self.end(opened, url=address.group(1))


class _Html(_Writer):
    """The HTML mode: a fixed set of tags, properly nested."""

    _KINDS: ClassVar = {
        "b": "bold",
        "strong": "bold",
        "i": "italic",
        "em": "italic",
        "u": "underline",
        "ins": "underline",
        "s": "strikethrough",
        "strike": "strikethrough",
        "del": "strikethrough",
        "tg-spoiler": "spoiler",
        "span": "spoiler",
        "code": "code",
        "pre": "pre",
        "a": "text_link",
        "blockquote": "blockquote",
        "tg-emoji": "custom_emoji",
    }
    _REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
    _ATTRIBUTE = re.compile(r"([\w-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")

    def parse(self) -> tuple[str, list[Entity]]:
        while self.index < len(self.source):
            self._step()
        if self.open:
            raise unparsable(
                f'Can\'t find end tag corresponding to start tag "{self.open[-1].tag}"'
            )
        return self.result()

    def _step(self) -> None:
        if self.looking_at("</"):
            self._end_tag()
        elif self.looking_at("<"):
            self._start_tag()
        elif reference := self._REFERENCE.match(self.source, self.index):
            self.emit(html.unescape(reference.group()))
            self.index = reference.end()
        else:
            self.emit(self.source[self.index])
            self.index += 1

    def _tag_end(self, which: str) -> int:
        stop = self.source.find(">", self.index)
        if stop < 0:
            raise unparsable(f"Unclosed {which} tag at byte offset {self.at_byte()}")
        return stop

    def _start_tag(self) -> None:
        name_match = re.compile(r"<([^\s>/]*)").match(self.source, self.index)
        name = (name_match.group(1) if name_match else "").lower()
        if name not in self._KINDS:
            raise unparsable(f'Unsupported start tag "{name}" at byte offset {self.at_byte()}')
        stop = self._tag_end("start")
        attributes = {
            key: html.unescape(double or single or bare)
            for key, double, single, bare in self._ATTRIBUTE.findall(
                self.source[self.index + 1 + len(name) : stop]
            )
        }
        self._check_attributes(name, attributes)
        self.begin(self._KINDS[name], tag=name, attributes=attributes)
        self.index = stop + 1

    def _check_attributes(self, name: str, attributes: dict[str, str]) -> None:
        if name == "span" and attributes.get("class") != "tg-spoiler":
            raise unparsable(
                f'Tag "span" must have class "tg-spoiler" at byte offset {self.at_byte()}'
            )

    def _end_tag(self) -> None:
        stop = self._tag_end("end")
        name = self.source[self.index + 2 : stop].strip().lower()
        if not self.open:
            raise unparsable(f"Unexpected end tag at byte offset {self.at_byte()}")
        opened = self.open[-1]
        if name != opened.tag:
            raise unparsable(
                f"Unmatched end tag at byte offset {self.at_byte()}, "
                f'expected "</{opened.tag}>", found "</{name}>"'
            )
        self.index = stop + 1
        self._finish(self.open.pop())

    def _finish(self, opened: _Open) -> None:
        attributes = opened.extra.pop("attributes")
        if opened.tag == "a":
            self._finish_link(opened, attributes)
        elif opened.tag == "blockquote" and "expandable" in attributes:
            self.end(opened, "expandable_blockquote")
        elif opened.tag == "tg-emoji":
            self.end(opened, custom_emoji_id=attributes.get("emoji-id", ""))
        elif opened.tag == "code" and self.open and self.open[-1].tag == "pre":
            # <pre><code class="language-x"> is one block with a language.
            language = attributes.get("class", "").removeprefix("language-")
            if language:
                self.open[-1].extra["language"] = language
        else:
            self.end(opened)

    def _finish_link(self, opened: _Open, attributes: dict[str, str]) -> None:
        url = attributes.get("href") or self.text_since(opened)
        if "." in url or "://" in url:
            self.end(opened, url=url)

    def end(self, opened: _Open, kind: str | None = None, **extra: Any) -> None:
        opened.extra.pop("attributes", None)
        super().end(opened, kind, **extra)
