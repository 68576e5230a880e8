"""Owns how a message becomes columns and comes back: the one place that knows the row's format.

Texts are valid Unicode when they are in: a lone surrogate becomes U+FFFD at this border. A
provider's raw blocks are kept identical to the character, lone surrogates included.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agent.messages import Content, Draft, Message, MessageKind, Row, clean_text

ROW_COLUMNS = (
    "id, session_id, seq, created_at, tokens, role, content, content_is_json, wire_content,"
    " wire_is_json, tool_calls, tool_call_id, tool_name, raw_blocks, kind, origin_id"
)
"""What `decode_row` takes, in its order."""

LIST_COLUMNS = (
    "id, seq, created_at, tokens, role, content, content_is_json + 2 * wire_is_json, wire_content,"
    " tool_calls, tool_call_id, tool_name, raw_blocks, kind, origin_id"
)
"""What `decode_list` takes, in its order."""

Columns = tuple[
    str, str | None, int, str | None, int, str | None, str | None, str | None, str | None,
    MessageKind | None, int | None,
]  # fmt: skip
"""From ``role`` to ``origin_id``."""


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_to_ascii_json = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def _from_json(text: str) -> Any:
    """What `dump_json` wrote; there are no blanks to be looked for, unless by a stranger's hand."""
    try:
        return _scan(text, 0)[0]
    except StopIteration:
        return json.loads(text)


def dump_json(value: Any) -> str:
    """Compact JSON that SQLite can hold and that gives back every string unchanged."""
    text = _to_json(value)
    return text if clean(text) is text else _to_ascii_json(value)


def clean(text: str) -> str:
    """The text itself if it can be encoded, else with its lone surrogates replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return clean_text(text)
    return text


def clean_json(value: Any) -> Any:
    """The value with every string in it cleaned; the same object if nothing had to be."""
    return _cleaned_json(value)[0]


def dump_clean_json(value: Any) -> str:
    """The JSON of `clean_json`, without making it twice."""
    return _cleaned_json(value)[1]


def _cleaned_json(value: Any) -> tuple[Any, str]:
    """The value with clean strings, and its JSON."""
    text = _to_json(value)
    cleaned = clean(text)
    return (value, text) if cleaned is text else (_from_json(cleaned), cleaned)


def encode(draft: Draft) -> tuple[Columns, Message, Content]:
    """The columns of a draft, and both its forms as they will be read back.

    Known fields only, texts clean.
    """
    said = draft.message
    content, text, is_json = _encode_content(said["content"])
    wire, wire_text, wire_is_json = _encode_content(draft.wire_content)
    message: Message = {"role": said["role"], "content": content}
    calls_text = call_id = name = blocks_text = None
    if calls := said.get("tool_calls"):
        message["tool_calls"], calls_text = _cleaned_json(calls)
    if (call_id := said.get("tool_call_id")) is not None:
        message["tool_call_id"] = call_id = clean(call_id)
    if (name := said.get("name")) is not None:
        message["name"] = name = clean(name)
    if blocks := said.get("anthropic_content_blocks"):
        blocks_text = dump_json(blocks)
        message["anthropic_content_blocks"] = blocks
    columns = (
        said["role"], text, is_json, wire_text, wire_is_json, calls_text, call_id, name,
        blocks_text, draft.kind, draft.origin_id,
    )  # fmt: skip
    return columns, message, wire


def _encode_content(content: Content) -> tuple[Content, str | None, int]:
    if content is None:
        return None, None, 0
    if isinstance(content, str):
        text = clean(content)
        return text, text, 0
    parts, text = _cleaned_json(content)
    return parts, text, 1


def decode_row(columns: tuple[Any, ...]) -> Row:
    """A `Row` from `ROW_COLUMNS`."""
    (
        row_id, session_id, seq, created_at, tokens, role, content, content_is_json, wire,
        wire_is_json, calls, call_id, name, blocks, kind, origin_id,
    ) = columns  # fmt: skip
    forms = content_is_json + 2 * wire_is_json
    in_list = (
        row_id, seq, created_at, tokens, role, content, forms, wire, calls, call_id, name, blocks,
        kind, origin_id,
    )  # fmt: skip
    return decode_list(session_id, (in_list,))[0]


def decode_list(session_id: str, found: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Rows of one session from `LIST_COLUMNS`.

    Every turn loads its list with this, so it is one loop without a call that can be spared.
    """
    rows: list[Row] = []
    add = rows.append
    for (
        row_id, seq, created_at, tokens, role, content, forms, wire, calls, call_id, name, blocks,
        kind, origin_id,
    ) in found:  # fmt: skip
        if forms:
            content = _from_json(content) if forms & 1 else content
            wire = _from_json(wire) if forms & 2 else wire
        message: Message = {"role": role, "content": content}
        if calls is not None:
            message["tool_calls"] = _from_json(calls)
        if call_id is not None:
            message["tool_call_id"] = call_id
        if name is not None:
            message["name"] = name
        if blocks is not None:
            message["anthropic_content_blocks"] = _from_json(blocks)
        row = _Unfrozen()
        row.id, row.session_id, row.seq = row_id, session_id, seq
        row.message, row.wire_content, row.tokens = message, wire, tokens
        row.created_at, row.kind, row.origin_id = created_at, kind, origin_id
        row.__class__ = Row  # type: ignore[assignment]
        add(row)  # type: ignore[arg-type]
    return rows


class _Unfrozen:
    """`Row` while it is being made: a frozen dataclass takes five times as long to fill.

    The same slots in the same order, so that an object can be given its real class; without an
    ``__init__``, whose call would be half of what is left.
    """

    __slots__ = Row.__slots__

    id: int
    session_id: str
    seq: int
    message: Message
    created_at: float
    wire_content: Content
    kind: MessageKind | None
    origin_id: int | None
    tokens: int


def stored(
    row_id: int,
    session_id: str,
    seq: int,
    message: Message,
    created_at: float,
    wire: Content,
    kind: MessageKind | None,
    origin_id: int | None,
    tokens: int,
) -> Row:
    """The `Row` of what was just stored, made as `decode_list` makes it."""
    row = _Unfrozen()
    row.id, row.session_id, row.seq = row_id, session_id, seq
    row.message, row.wire_content, row.tokens = message, wire, tokens
    row.created_at, row.kind, row.origin_id = created_at, kind, origin_id
    row.__class__ = Row  # type: ignore[assignment]
    return row  # type: ignore[return-value]
