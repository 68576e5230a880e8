"""Owns making what models write readable where it goes: Markdown that a platform takes (pure).

Models write GitHub's Markdown; a chat knows less of it. What neither Telegram's converter nor
Discord shows well is replaced in the source, found by a real parser, so that code stays as it is:
tables, links that are none, HTML, footnotes, and by dialect what else is missing there. What has to
be seen is never dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import pyromark

from gateway.markdown.dialects import RULE, Dialect, info_string, is_beyond_parsing, is_safe_link
from gateway.markdown.html import LINE_BREAK, can_be_unfolded, without_tags
from gateway.markdown.prose import Prose, escaped, with_emoji
from gateway.markdown.source import Source
from gateway.markdown.tables import Cell, Table, cell_source

LONGEST_SHOWN_URL: Final = 200
PARTED_MARKS: Final = "`\u200b`\u200b`"
"""Three ticks that do not begin or end a block of code: what is not seen parts them."""
_OPTIONS: Final = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_FOOTNOTES
)
_PLAIN: Final = re.compile(r"[^|<\[`~$:#*_=&\\\t-]*")
_FENCE: Final = re.compile(r"`{3,}|~{3,}")


def adapted(text: str, dialect: Dialect) -> str:
    """The same text in Markdown that the platform takes; half surrogates must be gone."""
    if (_PLAIN.fullmatch(text) and "    " not in text) or is_beyond_parsing(text):
        return text
    return _Rewriter(text, dialect).run()


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
    alignments: tuple[str, ...]
    first_edit: int
    rows: list[list[Cell]] = field(default_factory=list)
    cell_edit: int = 0
    shown: list[str] = field(default_factory=list)
    has_links: bool = False


class _Rewriter:
    """Walks over what the parser found and puts other text in its place."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._source = Source(text.encode("utf-8"))
        self._dialect = dialect
        self._prose = Prose(self._source, dialect)
        self._links: list[_Link] = []
        self._table: _OpenTable | None = None
        self._code: list[str] | None = None
        self._heading: list[int] | None = None
        self._notes: dict[str, int] = {}
        self._html: list[tuple[int, int]] = []

    def run(self) -> str:
        source = self._source
        everything = source.text(0, len(source.data))
        events: Any = pyromark.events_with_range(everything, options=_OPTIONS)
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
        self._prose.end_block()
        self._tags()
        return source.applied(0, len(source.data), source.edits)

    # --- events ---------------------------------------------------------------------------------

    def _begin(self, tag: object, start: int, end: int) -> None:
        name, value = _tag(tag)
        self._touch(start, end)
        match name:
            case "Link" | "Image":
                kind, url = value["link_type"], value["dest_url"]
                self._links.append(_Link(start, kind, url, name == "Image"))
            case "Table":
                self._table = _OpenTable(tuple(value), len(self._source.edits))
            case "TableHead" | "TableRow" if self._table is not None:
                self._table.rows.append([])
            case "TableCell" if self._table is not None:
                self._table.cell_edit, self._table.shown = len(self._source.edits), []
            case "CodeBlock":
                self._code = []
            case "Heading":
                self._heading = []
            case "Strong" if self._source.data[start : start + 1] == b"*":
                self._prose.strong(start, end)
            case "Emphasis":
                self._prose.emphasis(start, end)
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
                self._prose.end_block()
                edits = self._source.edits[self._table.cell_edit :]
                source = self._source.applied(start, end, edits)
                shown = with_emoji("".join(self._table.shown).strip(" "))
                self._table.rows[-1].append(Cell(shown, cell_source(source)))
            case "Table" if self._table is not None:
                self._end_table(self._table, start, end)
                self._table = None
            case "CodeBlock":
                self._end_code("".join(self._code or ()), start, end)
                self._code = None
            case "Heading":
                self._prose.end_block()
                self._end_heading(str(value), start, end)
                self._heading = None
            case "Paragraph" | "Item":
                self._prose.end_block()
            case _:
                pass

    def _bare(self, event: str, start: int, end: int) -> None:
        self._touch(start, end)
        if event == "Rule" and self._dialect.tasks:
            line = self._source.text(start, end)
            self._source.edit(start, end, RULE + line[len(line.rstrip("\n")) :])

    def _inline(self, kind: str, value: Any, start: int, end: int) -> None:
        self._touch(start, end)
        if self._code is not None:
            self._code.append(str(value))
            return
        if self._table is not None:
            is_break = kind == "InlineHtml" and LINE_BREAK.fullmatch(value)
            self._table.shown.append("\n" if is_break else _shown(kind, value))
        match kind:
            case "Text":
                self._prose.text(value, start, end)
            case "Html" | "InlineHtml":
                self._html.append((start, end))
                self._prose.ticks(start, end)
            case "Code" if self._dialect.fences:
                self._inline_code(value, start, end)
            case "TaskListMarker" if self._dialect.tasks:
                self._source.edit(start, end, "☑" if value else "☐")
            case "FootnoteReference":
                self._source.edit(start, end, escaped(f"[{self._number(value)}]", self._dialect))
            case _:
                pass

    def _touch(self, start: int, end: int) -> None:
        """What is inside a link or a heading is its label."""
        if self._links:
            link = self._links[-1]
            link.first = start if link.first is None else link.first
            link.last = end
        if self._heading is not None:
            self._heading += [start, end]

    # --- what is replaced -----------------------------------------------------------------------

    def _number(self, label: str) -> int:
        return self._notes.setdefault(label, len(self._notes) + 1)

    def _note(self, label: str, start: int) -> None:
        at = self._source.data.find(b"]:", start)
        if at != -1:
            self._source.edit(start, at + 2, escaped(f"[{self._number(label)}]", self._dialect))

    def _link(self, link: _Link, end: int) -> None:
        edit = self._source.edit
        if link.kind in ("Autolink", "Email"):
            return
        if link.first is None:  # without a label nothing would be there to see
            edit(link.start, end, self._shown_url(link.url) or "()")
            return
        label = self._source.text(link.first, link.last)
        looks_like_url = label.startswith(("http://", "https://"))
        if link.is_image and self._links:  # a picture in a link: the link is what it is there for
            edit(link.start, link.first, "")
            edit(link.last, end, "")
        elif not is_safe_link(link.url) or (self._dialect.references and looks_like_url):
            same = link.url in ("", label, f"mailto:{label}")
            edit(link.start, link.first, "")
            edit(link.last, end, "" if same else f" ({self._shown_url(link.url)})")
        else:
            if self._table is not None:
                self._table.has_links = True
            if link.is_image and self._dialect.images:
                edit(link.start, link.start + 1, "")
            if self._dialect.references and link.kind != "Inline":
                edit(link.last, end, f"]({link.url})")

    def _shown_url(self, url: str) -> str:
        short = url if len(url) <= LONGEST_SHOWN_URL else url[:LONGEST_SHOWN_URL] + "…"
        return escaped(" ".join(short.split()), self._dialect)

    def _inline_code(self, code: str, start: int, end: int) -> None:
        if b"```" in self._source.data[start:end]:
            parted = code.replace("```", PARTED_MARKS)
            self._source.edit(start, end, f"`` {parted} ``" if "`" in parted else f"`{parted}`")

    def _end_table(self, table: _OpenTable, start: int, end: int) -> None:
        del self._source.edits[table.first_edit :]  # what is inside is in the cells already
        while self._html and self._html[-1][0] >= start:
            self._html.pop()
        made = Table(table.rows, table.alignments, table.has_links)
        lines = self._fenced("", made.columns()) if made.is_narrow() else made.records()
        ending = "\n" * self._source.data[start:end].endswith(b"\n")
        self._source.edit(start, end, self._source.lines(lines, start) + ending)

    def _end_code(self, code: str, start: int, end: int) -> None:
        block = self._source.text(start, end)
        opening = block.partition("\n")[0]
        marks = _FENCE.match(opening)
        language, rest = info_string(opening[marks.end() :].strip()) if marks else ("", "")
        is_plain = marks is not None and marks[0] == "```" and "```" not in code
        if not rest and (not code or is_plain or not self._dialect.fences):
            return
        if marks is None:  # its indentation makes it code, and goes with it
            before = self._source.data[max(0, start - 4) : start]
            start -= 1 if before.endswith(b"\t") else 4 if before == b"    " else 0
        lines = self._fenced(language, code.removesuffix("\n").split("\n"))
        lines = [escaped(rest, self._dialect), *lines] if rest else lines
        ending = "\n" * block.endswith("\n")
        self._source.edit(start, end, self._source.lines(lines, start) + ending)

    def _end_heading(self, level: str, start: int, end: int) -> None:
        if not self._dialect.headings or not self._heading:
            return
        first, last = min(self._heading), max(self._heading)
        ends = last + len(self._source.data[last:end].rstrip())
        if level > "H3":
            mark = "" if b"**" in self._source.data[first:last] else "**"
            self._source.edit(start, first, mark)
            self._source.edit(last, ends, mark)
        elif self._source.data[start : start + 1] != b"#":  # underlined
            self._source.edit(start, first, "# " if level == "H1" else "## ")
            self._source.edit(last, ends, "")

    def _tags(self) -> None:
        tags = [self._source.text(*place) for place in self._html]
        folds = can_be_unfolded(tags)
        for (start, end), tag in zip(self._html, tags, strict=True):
            is_break = bool(self._source.data[start - 1 : start].strip())
            plain = without_tags(tag, is_break=is_break, folds=folds)
            if plain != tag:
                self._source.edit(start, end, plain)

    def _fenced(self, language: str, lines: list[str]) -> list[str]:
        """Code between marks that do not stand in it."""
        runs = [len(run) for line in lines for run in re.findall(r"`{3,}", line)]
        marks = "```"
        if runs and self._dialect.fences:  # no other marks would do
            lines = [line.replace("```", PARTED_MARKS) for line in lines]
        elif runs:
            marks = "`" * (max(runs) + 1)
        return [marks + language, *lines, marks]


def _tag(tag: object) -> tuple[str, Any]:
    if isinstance(tag, dict):
        return next(iter(tag.items()))
    return str(tag), None


def _shown(kind: str, value: Any) -> str:
    return f"[{value}]" if kind == "FootnoteReference" else str(value)
