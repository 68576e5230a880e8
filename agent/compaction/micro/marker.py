"""Owns the marker of micro-compaction: the digest in its frame, and reading it back. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.messages import Draft, Message, Row, clean_text, text_of

MARKER_HEADER = "[Earlier replies and tool results, condensed by the host: for reference only]"
MARKER_END = "[End of condensed replies]"
_ORIGINALS = re.compile(r"Originals: recall ref m(\d{1,18}) to recall ref m(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Digest:
    """What the assistant has answered and done in the exchanges that left the list."""

    body: str
    first_row: int = 0
    """The oldest original behind it; 0: not known."""
    last_row: int = 0
    """The newest one."""

    @property
    def told(self) -> str:
        """As a summary may know it: with where the originals are."""
        if not self.body or not self.first_row:
            return self.body
        return f"{self.body}\n({self._originals})"

    @property
    def _originals(self) -> str:
        return f"Originals: recall ref m{self.first_row} to recall ref m{self.last_row}"

    @property
    def rendered(self) -> str:
        """The content of the marker; `parse_marker` reads it again."""
        named = [self._originals] if self.first_row else []
        parts = [MARKER_HEADER, *named, bare_body(self.body), MARKER_END]
        return clean_text("\n\n".join(parts))

    @staticmethod
    def joined(digests: Sequence[Digest]) -> Digest:
        """Several as one, the older first."""
        named = [d for d in digests if d.first_row]
        return Digest(
            "\n\n".join(d.body for d in digests if d.body),
            min((d.first_row for d in named), default=0),
            max((d.last_row for d in named), default=0),
        )

    def grown(self, body: str, absorbed: Sequence[Row]) -> Digest:
        """The same with another text, which holds these rows as well."""
        ids = [row.root_id for row in absorbed]
        known = [self.first_row] if self.first_row else []
        return Digest(body, min([*known, *ids], default=0), max([self.last_row, *ids]))


def is_marker(row: Row) -> bool:
    """Is this a marker of micro-compaction? The store knows; its text proves nothing."""
    return row.kind == "micro"


def marker_draft(digest: Digest) -> Draft:
    """The message that stands in the list for what was absorbed: one of the assistant's."""
    message: Message = {"role": "assistant", "content": digest.rendered}
    return Draft(message, kind="micro")


def parse_marker(message: Message) -> Digest:
    """The digest of a marker; the text of one that is not ours is all body."""
    text = text_of(message["content"]).strip()
    if not text.startswith(MARKER_HEADER):
        return Digest(text)
    text = text.removeprefix(MARKER_HEADER).strip().removesuffix(MARKER_END).strip()
    line, _, rest = text.partition("\n")
    named = _ORIGINALS.fullmatch(line)
    if named is None:
        return Digest(text)
    return Digest(rest.strip(), int(named[1]), int(named[2]))


def bare_body(body: str) -> str:
    """A body without lines of the frame: a model may have copied them."""
    lines = (line for line in body.splitlines() if not _is_frame(line.strip()))
    return "\n".join(lines).strip()


def _is_frame(line: str) -> bool:
    return line in (MARKER_HEADER, MARKER_END) or _ORIGINALS.fullmatch(line) is not None
