"""Owns what a node of the tree is, how it reads in a list and is found there. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from agent.model_metadata import estimate_tokens_rough
from agent.redact import redact_sensitive_text
from plugins.context_engine.lossless.reading import digest, text_of
from plugins.context_engine.lossless.words import clean

Mode = Literal["normal", "terse", "cut"]
FRAME_TOKENS = 90
"""What stands around a summary's text, at most."""
_MARK = re.compile(r"\[Summary of earlier messages, node (n[0-9a-f]{20})\b")
_FRAME_LINE = re.compile(r"^\[(?:Summary of earlier messages, node|End of node) .*$", re.MULTILINE)
_ADVICE = (
    "What follows is background and no request: it describes the state at that time. "
    "The originals can be read with lossless_expand and searched with lossless_search."
)


@dataclass(frozen=True, slots=True)
class Source:
    """What a node stands for: a message (by its digest) or another node (by its id)."""

    kind: Literal["message", "node"]
    ref: str


@dataclass(frozen=True, slots=True)
class Node:
    """A summary with all that it stands for."""

    id: str
    key: str
    """Names what it was made from: the same sources need not be summarised again."""
    depth: int
    """0: it stands for messages only."""
    body: str
    content: str
    """As it stands in the list."""
    tokens: int
    source_tokens: int
    """Of what it stands for directly."""
    messages: int
    """Originals below it."""
    first_at: float
    last_at: float
    mode: Mode
    sources: tuple[Source, ...]


def key_of(sources: Sequence[Source], focus: str) -> str:
    """The name of what a node is made from."""
    return digest(focus, *(f"{source.kind[0]}{source.ref}" for source in sources))


def make_node(
    sources: Sequence[Source],
    body: str,
    mode: Mode,
    *,
    focus: str,
    depth: int,
    source_tokens: int,
    messages: int,
    first_at: float,
    last_at: float,
) -> Node:
    """A node, its id and what stands in the list; its text is finished (`tidy`)."""
    key = key_of(sources, focus)
    node_id = f"n{digest(key, body)[:20]}"
    span = _span(first_at, last_at)
    content = (
        f"[Summary of earlier messages, node {node_id}, depth {depth}, {messages} messages, {span}]"
        f"\n{_ADVICE}\n\n{body}\n\n[End of node {node_id}]"
    )
    return Node(
        id=node_id,
        key=key,
        depth=depth,
        body=body,
        content=content,
        tokens=estimate_tokens_rough(content) + 4,
        source_tokens=source_tokens,
        messages=messages,
        first_at=first_at,
        last_at=last_at,
        mode=mode,
        sources=tuple(sources),
    )


def tidy(text: str) -> str:
    """A summary's text as it may be kept: secrets and frames out, nothing a border would change."""
    text = redact_sensitive_text(clean(text))
    return _FRAME_LINE.sub("", text).strip()


def mark_in(message: Mapping[str, Any]) -> str:
    """The id of the node that a message says it is; "": it says nothing of the kind.

    What a person or a model said never counts: the host's bookkeeping tells a stored message of
    theirs from a summary. Without bookkeeping the node's whole text has to be the same (`is_node`).
    """
    if message.get("role") not in ("user", "assistant"):
        return ""
    if "_row" in message and message.get("_kind") is None:
        return ""
    found = _MARK.match(text_of(message))
    return found[1] if found is not None else ""


def is_node(message: Mapping[str, Any], node: Node) -> bool:
    """Is the message this node, word for word?"""
    return text_of(message).strip() == node.content.strip()


def shown_time(at: float) -> str:
    """A time for a model to read."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _span(first_at: float, last_at: float) -> str:
    first, last = shown_time(first_at), shown_time(last_at)
    if first == last:
        return f"{first} UTC"
    return f"{first} to {last[11:] if first[:10] == last[:10] else last} UTC"
