"""Owns making what models write readable where it goes: Markdown that a platform takes (pure).

Models write GitHub's Markdown; a chat knows less of it. What neither Telegram's converter nor
Discord shows well is replaced in the source, found by a real parser, so that code stays as it is:
tables, links that are none, HTML, footnotes, and by dialect what else is missing there. What has to
be seen is never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyromark

from gateway.delivery.prose import Prose, escaped
from gateway.delivery.tables import Cell, Table

MAX_NESTING: Final = 20
"""Lists and quotes in each other, on one line: each would become an ever longer line of its own."""
MAX_OPENERS: Final = {"$": 2000, "\\(": 200, "\\[": 200, "```": 2000, "[": 8000}
"""Looking for the end of each takes time that grows with the text; no answer has so many."""
MAX_MARKS: Final = 10_000
"""Characters that may be markup: what a parser takes grows with them, and prose has few."""
LONGEST_SHOWN_URL: Final = 200
LONGEST_LANGUAGE: Final = 24
RULE: Final = "————————"
_OPTIONS: Final = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_FOOTNOTES
)
_SAFE_LINK: Final = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_DEEP: Final = re.compile(
    rf"^(?:[ \t]*(?:>|(?:[-*+]|\d{{1,9}}[.)])(?=[ \t]))){{{MAX_NESTING}}}", re.MULTILINE
)
_PLAIN: Final = re.compile(r"[^|<\[`~$:#*_=&\\\t-]*")
_BREAK: Final = re.compile(r"<br\s*/?>", re.IGNORECASE)
_FOLDED: Final = re.compile(r"</?details(?:\s[^>]{0,200})?>", re.IGNORECASE)
_SUMMARY: Final = re.compile(r"<summary>\s*([^\n]*?)\s*</summary>", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"[\w+\-.#]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a platform does not know by itself."""

    fences: bool = False
    """Its code blocks are those between ``` only, with one word behind the marks."""
    headings: bool = False
    """It has three levels of headings, and no underlined ones."""
    references: bool = False
    """Links have to stand where they are used; a label may not look like an address."""
    images: bool = False
    """A picture has to be a link."""
    entities: bool = False
    """It shows ``&amp;`` as it is written."""
    tasks: bool = False
    """It shows ``[x]`` as it is written, and so a rule of dashes."""
    spoiler: tuple[str, str] | None = None
    """What opens and closes one, where it is not ``||``."""
    strict_bold: bool = False
    """It reads ``**`` by the book, which CJK texts seldom do."""


TELEGRAM: Final = Dialect(spoiler=("<tg-spoiler>", "</tg-spoiler>"), strict_bold=True)
DISCORD: Final = Dialect(
    fences=True, headings=True, references=True, images=True, entities=True, tasks=True
)


def is_beyond_parsing(text: str) -> bool:
    """Would a parser take longer for it than any reader would thank us for?"""
    return (
        sum(text.count(char) for char in "*_[]`|<~$\\&") > MAX_MARKS
        or any(text.count(mark) > most for mark, most in MAX_OPENERS.items())
        or _DEEP.search(text) is not None
    )


def is_safe_link(url: str) -> bool:
    """May a reader be led there by a press? Other addresses are shown as text."""
    return _SAFE_LINK.match(url) is not None


def adapted(text: str, dialect: Dialect) -> str:
    """The same text in Markdown that the platform takes; half surrogates must be gone."""
    if (_PLAIN.fullmatch(text) and "    " not in text) or is_beyond_parsing(text):
        return text
    return _Rewriter(text.encode("utf-8"), dialect).run().decode("utf-8")


@dataclass(slots=True)
class _Link:
    start: int
    kind: str
    url: str
    is_image: bool
    first: int | None = None
    """Where its label begins; None: it has none."""
    last: int = 0


@dataclass(slots=True)
class _OpenTable:
    start: int
    alignments: tuple[str, ...]
    first_edit: int
    rows: list[list[Cell]] = field(default_factory=list)
    cell_start: int = 0
    shown: list[str] = field(default_factory=list)
    has_links: bool = False


class _Rewriter:
    """Walks over what the parser found and collects what is to stand where instead."""

    def __init__(self, data: bytes, dialect: Dialect) -> None:
        self._data = data
        self._dialect = dialect
        self._edits: list[tuple[int, int, str]] = []
        self._links: list[_Link] = []
        self._table: _OpenTable | None = None
        self._code: list[str] | None = None
        self._heading: list[int] | None = None
        self._notes: dict[str, int] = {}
        self._html: list[tuple[int, int]] = []
        self._prose = Prose(data, spoiler=dialect.spoiler, strict_bold=dialect.strict_bold)

    def run(self) -> bytes:
        events: Any = pyromark.events_with_range(self._data.decode("utf-8"), options=_OPTIONS)
        for event, place in events:
            start, end = place["start"], place["end"]
            if isinstance(event, str):
                self._bare(event, start, end)
                continue
            for kind, value in event.items():
                if kind == "Start":
                    self._begin(value, start, end)
                elif kind == "End":
                    self._end(value, start, end)
                else:
                    self._inline(kind, value, start, end)
        self._tags()
        self._edits += self._prose.edits()
        return self._applied(0, len(self._data), self._edits)

    # --- events ---------------------------------------------------------------------------------

    def _begin(self, tag: object, start: int, end: int) -> None:
        name, value = _tag(tag)
        self._touch(start, end)
        match name:
            case "Link" | "Image":
                self._links.append(
                    _Link(start, value["link_type"], value["dest_url"], name == "Image")
                )
            case "Table":
                self._table = _OpenTable(start, tuple(value), len(self._edits))
            case "TableHead" | "TableRow" if self._table is not None:
                self._table.rows.append([])
            case "TableCell" if self._table is not None:
                self._table.cell_start, self._table.shown = start, []
            case "CodeBlock":
                self._code = []
            case "Heading":
                self._heading = []
            case "Strong" if self._data[start : start + 1] == b"*":
                self._prose.strong(start, end)
            case "FootnoteDefinition":
                self._note(value, start)
            case _:
                pass

    def _end(self, tag: object, start: int, end: int) -> None:
        name, value = _tag(tag)
        match name:
            case "Link" | "Image" if self._links:
                self._link(self._links.pop(), end)
            case "TableCell" if self._table is not None and self._table.rows:
                table = self._table
                source = self._applied(table.cell_start, end, self._edits[table.first_edit :])
                shown = "".join(table.shown).strip(" ")
                table.rows[-1].append(Cell(shown, _of_cell(source.decode("utf-8"))))
                self._prose.end_block()
            case "Table" if self._table is not None:
                self._end_table(self._table, start, end)
                self._table = None
            case "CodeBlock":
                self._end_code("".join(self._code or ()), start, end)
                self._code = None
            case "Heading":
                self._end_heading(str(value), start, end)
                self._heading = None
            case "Paragraph" | "Item":
                self._prose.end_block()
            case _:
                pass

    def _bare(self, event: str, start: int, end: int) -> None:
        self._touch(start, end)
        if event == "Rule" and self._dialect.tasks:
            line = self._data[start:end].decode("utf-8")
            self._edit(start, end, RULE + line[len(line.rstrip("\n")) :])

    def _inline(self, kind: str, value: Any, start: int, end: int) -> None:
        self._touch(start, end)
        if self._code is not None:
            self._code.append(str(value))
            return
        if self._table is not None:
            is_break = kind == "InlineHtml" and _BREAK.fullmatch(value)
            self._table.shown.append("\n" if is_break else _shown(kind, value))
        match kind:
            case "Text":
                self._prose.text(value, start, end)
                if self._dialect.entities and self._data[start : start + 1] == b"&":
                    self._entity(value, start, end)
            case "Html" | "InlineHtml":
                self._html.append((start, end))
            case "TaskListMarker" if self._dialect.tasks:
                self._edit(start, end, "☑" if value else "☐")
            case "FootnoteReference":
                self._edit(start, end, f"\\[{self._number(value)}]")
            case _:
                pass

    def _entity(self, value: str, start: int, end: int) -> None:
        if self._data[start:end] != value.encode("utf-8"):
            self._edit(start, end, escaped(value.replace("\xa0", " ")))

    def _touch(self, start: int, end: int) -> None:
        """What is inside a link or a heading is its label."""
        if self._links:
            link = self._links[-1]
            link.first = start if link.first is None else link.first
            link.last = end
        if self._heading is not None:
            self._heading += [start, end]

    # --- what is replaced -----------------------------------------------------------------------

    def _edit(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, end, text))

    def _number(self, label: str) -> int:
        return self._notes.setdefault(label, len(self._notes) + 1)

    def _note(self, label: str, start: int) -> None:
        at = self._data.find(b"]:", start)
        if at != -1:
            self._edit(start, at + 2, f"\\[{self._number(label)}]")

    def _link(self, link: _Link, end: int) -> None:
        if link.kind in ("Autolink", "Email"):
            return
        if link.first is None:  # without a label nothing would be there to see
            self._edit(link.start, end, _shown_url(link.url) or "()")
            return
        label = self._data[link.first : link.last].decode("utf-8")
        if link.is_image and self._links:  # a picture in a link: the link is what it is there for
            self._edit(link.start, link.first, "")
            self._edit(link.last, end, "")
        elif not is_safe_link(link.url) or (
            self._dialect.references and label.startswith(("http://", "https://"))
        ):
            same = link.url in ("", label, f"mailto:{label}")
            self._edit(link.start, link.first, "")
            self._edit(link.last, end, "" if same else f" ({_shown_url(link.url)})")
        else:
            if self._table is not None:
                self._table.has_links = True
            if link.is_image and self._dialect.images:
                self._edit(link.start, link.start + 1, "")
            if self._dialect.references and link.kind != "Inline":
                self._edit(link.last, end, f"]({link.url})")

    def _end_table(self, table: _OpenTable, start: int, end: int) -> None:
        del self._edits[table.first_edit :]
        made = Table(table.rows, table.alignments, table.has_links)
        if made.is_narrow():
            replacement = self._fenced("", made.columns(), start)
        else:
            replacement = self._lines(made.records(), start)
        # What is inside is in the cells already.
        self._html = [place for place in self._html if place[0] < start]
        self._prose.forget(start)
        self._edit(start, end, replacement + "\n" * (self._data[start:end].endswith(b"\n")))

    def _end_code(self, code: str, start: int, end: int) -> None:
        source = self._data[start:end].decode("utf-8")
        opening = source.split("\n", 1)[0]
        marks = opening[: len(opening) - len(opening.lstrip("`~"))] if opening else ""
        is_fence = len(marks) >= 3
        info = opening[len(marks) :].strip() if is_fence else ""
        language, rest = _language(info)
        plain = is_fence and marks == "```" and "```" not in code
        if not rest and (plain or not self._dialect.fences):
            return
        if not code and not rest:
            return
        if not is_fence:  # its indentation makes it code; it goes with it
            lead = self._data[:start]
            start -= 1 if lead.endswith(b"\t") else 4 if lead.endswith(b"    ") else 0
        text = self._fenced(language, code.removesuffix("\n").split("\n"), start)
        if rest:
            text = f"{escaped(rest)}\n{self._lead(start)}{text}"
        self._edit(start, end, text + "\n" * source.endswith("\n"))

    def _end_heading(self, level: str, start: int, end: int) -> None:
        self._prose.end_block()
        places = self._heading
        if not self._dialect.headings or not places:
            return
        first, last = min(places), max(places)
        underlined = self._data[start : start + 1] != b"#"
        if level > "H3":
            mark = "" if b"**" in self._data[first:last] else "**"
            self._edit(start, first, mark)
            self._edit(last, last + len(self._data[last:end].rstrip()), mark)
        elif underlined:
            self._edit(start, first, "# " if level == "H1" else "## ")
            self._edit(last, last + len(self._data[last:end].rstrip()), "")

    def _tags(self) -> None:
        """Line breaks and what can be unfolded; all other HTML is left to be seen.

        ``one<br>two`` is a line break; ``a <br> b`` is talk about one.
        """
        whole = b"".join(self._data[start:end] for start, end in self._html).decode("utf-8").lower()
        folds = all(tag in whole for tag in ("<details", "</details", "<summary", "</summary"))
        for start, end in self._html:
            before = after = self._data[start:end].decode("utf-8")
            if self._data[start - 1 : start].strip():
                after = _BREAK.sub("\n", after)
            if folds:
                after = _SUMMARY.sub(_title, _FOLDED.sub("", after))
                after = after if after.strip() else ""
            if after != before:
                self._edit(start, end, after)

    # --- writing --------------------------------------------------------------------------------

    def _lead(self, start: int) -> str:
        """What the further lines of a block begin with, inside quotes and list items."""
        line = self._data.rfind(b"\n", 0, start) + 1
        return re.sub(r"[^\s>]", " ", self._data[line:start].decode("utf-8"))

    def _lines(self, lines: list[str], start: int) -> str:
        return f"\n{self._lead(start)}".join(lines)

    def _fenced(self, language: str, lines: list[str], start: int) -> str:
        runs = [len(run) for run in re.findall(r"`{3,}", "\n".join(lines))]
        marks = "```"
        if runs and self._dialect.fences:  # no other mark would do; what is not seen parts them
            lines = [line.replace("```", "`\u200b`\u200b`") for line in lines]
        elif runs:
            marks = "`" * (max(runs) + 1)
        return self._lines([marks + language, *lines, marks], start)

    def _applied(self, start: int, end: int, edits: list[tuple[int, int, str]]) -> bytes:
        parts: list[bytes] = []
        at = start
        for first, last, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
            if first < at or last > end:
                continue  # inside of what was replaced as a whole
            parts += [self._data[at:first], text.encode("utf-8")]
            at = last
        return b"".join([*parts, self._data[at:end]])


def _tag(tag: object) -> tuple[str, Any]:
    if isinstance(tag, Mapping):
        return next(iter(tag.items()))
    return str(tag), None


def _shown(kind: str, value: Any) -> str:
    if kind == "FootnoteReference":
        return f"[{value}]"
    return str(value)


def _of_cell(source: str) -> str:
    text = source.strip().removeprefix("|").removesuffix("|")
    return _BREAK.sub("\n", text.replace("\\|", "|")).strip()


def _shown_url(url: str) -> str:
    short = url if len(url) <= LONGEST_SHOWN_URL else url[:LONGEST_SHOWN_URL] + "…"
    return escaped(" ".join(short.split()))


def _language(info: str) -> tuple[str, str]:
    """The word that says how to colour code, and what else stands there."""
    word, _, rest = info.partition(" ")
    if len(word) <= LONGEST_LANGUAGE and (not word or _LANGUAGE.fullmatch(word)):
        return word, rest.strip()
    return "", info


def _title(match: re.Match[str]) -> str:
    return f"**{match[1]}**\n" if match[1] else ""
