"""Owns the message that holds a provider's own summary: made, recognised, sent back. Pure.

Such a message has the provider's block as it came, and beside it what a person or another model
can read. The block goes back to whoever made it, in front of everything else; to anybody else goes
the text. Its ``name`` says who made it and what the text was: an engine that changes the text has
said something else, so the block no longer counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from agent.messages import Message, clean_text, text_of

Block = dict[str, Any]

BLOCK_TYPE = "compaction"
_MARK = "compaction"


def maker_of(model: str, base_url: str | None) -> str:
    """Who makes a block: a model at an endpoint. Nobody else is asked to read it."""
    host = urlsplit(base_url).netloc.rpartition("@")[2] if base_url else "api.anthropic.com"
    return f"{model}@{host}"


def compaction_message(block: Block, text: str, maker: str) -> Message:
    """The message for a block. ``text``: what others read in its place."""
    text = clean_text(text)
    return {
        "role": "assistant",
        "content": text,
        "name": f"{_MARK}:{_digest(text)}:{maker}",
        "anthropic_content_blocks": [block],
    }


def compaction_block(message: Message) -> Block | None:
    """The block that a message holds, whoever may read it; None: it holds none."""
    raw = message.get("anthropic_content_blocks")
    if not raw or not message.get("name", "").startswith(f"{_MARK}:"):
        return None
    if len(raw) != 1 or raw[0].get("type") != BLOCK_TYPE or message.get("tool_calls"):
        return None
    return raw[0]


def sendable_block(message: Message, maker: str) -> Block | None:
    """The block as it goes back to its maker; None: it may not, or the text was changed."""
    block = compaction_block(message)
    said = f"{_MARK}:{_digest(clean_text(text_of(message['content'])))}:{maker}"
    if block is None or not maker or message.get("name") != said:
        return None
    sent = {k: v for k, v in block.items() if k != "cache_control"}
    try:
        json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # changed, it would not be taken; and so it can not go out
        return None
    return sent


def is_readable_summary(message: Message) -> bool:
    """Does a message hold a block whose text is what the message shows? Only one is ever sent."""
    block = compaction_block(message)
    return block is not None and bool(readable_text(block))


def readable_text(block: Block) -> str:
    """What of a block can be read; "": nothing, its maker keeps it to itself."""
    content = block.get("content")
    return content.strip() if isinstance(content, str) else ""


def is_failed(block: Block) -> bool:
    """A block that stands for nothing: no summary came about."""
    return not readable_text(block) and not block.get("encrypted_content")


def leading_block(turns: Sequence[dict[str, Any]]) -> Block | None:
    """The block that a request begins with."""
    content = turns[0]["content"] if turns else None
    first = content[0] if isinstance(content, list) and content else None
    return first if isinstance(first, dict) and first.get("type") == BLOCK_TYPE else None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
