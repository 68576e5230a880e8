"""Owns where the host's own texts and manifests name rows, and renaming them there. Pure.

What a person, a model or a tool said is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agent.messages import Content, MessageKind

Rename = Callable[[int], int]

HOST_MADE: frozenset[MessageKind] = frozenset({"summary", "micro", "note", "stub"})
_NAMED = re.compile(
    r"(?<=recall ref m)\d{1,18}|(?<=\(m)\d{1,18}(?=\)$)|(?<=~ user m)\d{1,18}$", re.MULTILINE
)
_ROWS = frozenset({"first_row", "last_row"})
_ROW_FIELDS = ("_row", "_row_id")
_ROW_LISTS = frozenset({"quoted", "listed"})


def renamed_text(text: str, rename: Rename) -> str:
    """The text with the rows that it names renamed."""
    return _NAMED.sub(lambda match: str(rename(int(match[0]))), text)


def renamed_content(content: Content, kind: MessageKind | None, rename: Rename) -> Content:
    """A message's content, its references renamed if the host made it; else the same object."""
    if kind not in HOST_MADE or content is None:
        return content
    if isinstance(content, str):
        return renamed_text(content, rename)
    return [
        {**part, "text": renamed_text(part["text"], rename)}
        if isinstance(part.get("text"), str)
        else part
        for part in content
    ]


def renamed_manifest(manifest: dict[str, Any] | None, rename: Rename) -> dict[str, Any] | None:
    """A loss manifest with the rows that it names renamed."""
    return None if manifest is None else {k: _value(k, v, rename) for k, v in manifest.items()}


def renamed_compression(state: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """What compaction remembers with the rows that it names renamed (`CompressionState`)."""
    return {
        name: rename(value) if name.endswith(_ROW_FIELDS) and isinstance(value, int) else value
        for name, value in state.items()
    }


def _value(key: str, value: Any, rename: Rename) -> Any:
    if isinstance(value, dict):
        return {k: _value(k, v, rename) for k, v in value.items()}
    if key in _ROWS and isinstance(value, int):
        return rename(value)
    if key in _ROW_LISTS and isinstance(value, list):
        return [rename(item) if isinstance(item, int) else item for item in value]
    return value
