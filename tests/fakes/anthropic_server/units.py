"""Owns the request as a flat list of units: canonical bytes, token counts, prefix digests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

# Scripts where one character is about one token.
_DENSE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)
IMAGE_TOKENS = 1500
TURN_TOKENS = 4
THINKING_TYPES = ("thinking", "redacted_thinking")


def count_text(text: str) -> int:
    """Tokens of a text: 4 ASCII characters a token, one dense character a token."""
    if text.isascii():
        return (len(text) + 3) // 4
    dense = sum(1 for _ in _DENSE.finditer(text))
    return dense + (len(text) - dense + 3) // 4


def compact(value: object) -> str:
    """JSON without spaces; the order of nested keys is kept, because the prompt keeps it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def blocks_of(content: object) -> list[Json]:
    """Message content as a block list; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _canonical_block(block: Json) -> Json:
    """The block without marks, nulls and spelled-out defaults, its own keys sorted."""
    out: Json = {}
    for key in sorted(block):
        value = block[key]
        if key == "cache_control" or value is None or (key == "is_error" and value is False):
            continue
        out[key] = value
    if block.get("type") == "tool_result":
        nested = [_canonical_block(b) for b in blocks_of(block.get("content"))]
        out.pop("content", None)
        if nested:
            out["content"] = nested
    return out


@dataclass(frozen=True)
class Unit:
    """One cacheable piece of a request: a tool, a system block or a message block."""

    section: str  # "tools" | "system" | "messages"
    role: str
    block: Json
    path: str
    turn_start: bool = False

    def canonical(self) -> bytes:
        """Bytes that are equal exactly when the model would see the same piece."""
        text = compact(_canonical_block(self.block))
        return f"{self.section}|{self.role}|{text}\n".encode("utf-8", "surrogatepass")

    def mark(self) -> Json | None:
        """The cache mark on this unit, also one inside its tool result."""
        own = self.block.get("cache_control")
        if isinstance(own, dict):
            return own
        if self.block.get("type") == "tool_result":
            for nested in blocks_of(self.block.get("content")):
                if isinstance(nested.get("cache_control"), dict):
                    return nested["cache_control"]
        return None

    def tokens(self) -> int:
        """Tokens of this unit by the fake's fixed rule."""
        if self.section == "tools":
            return count_text(compact(_canonical_block(self.block)))
        return _block_tokens(self.block) + (TURN_TOKENS if self.turn_start else 0)


def _block_tokens(block: Json) -> int:
    kind = block.get("type")
    if kind == "text":
        return count_text(str(block.get("text", "")))
    if kind == "thinking":
        return count_text(str(block.get("thinking", "")))
    if kind == "redacted_thinking":
        return count_text(str(block.get("data", "")))
    if kind == "image":
        return IMAGE_TOKENS
    if kind == "compaction":
        return count_text(str(block.get("content") or block.get("encrypted_content") or ""))
    if kind == "tool_use":
        return count_text(str(block.get("name", ""))) + count_text(compact(block.get("input")))
    if kind == "tool_result":
        return sum(_block_tokens(b) for b in blocks_of(block.get("content"))) + 1
    return count_text(compact(_canonical_block(block)))


def count_blocks(blocks: Iterable[Json]) -> int:
    """Tokens of an answer."""
    return sum(_block_tokens(b) for b in blocks)


def units_of(body: Json) -> list[Unit]:
    """Tools, system and messages in the order in which the API renders them."""
    return [*_tool_units(body), *_system_units(body), *_message_units(body)]


def _tool_units(body: Json) -> Iterator[Unit]:
    tools = body.get("tools") or []
    for i, tool in enumerate(tools):
        if isinstance(tool, dict):
            yield Unit("tools", "", tool, f"tools.{i}")


def _system_units(body: Json) -> Iterator[Unit]:
    for i, block in enumerate(blocks_of(body.get("system"))):
        yield Unit("system", "", block, f"system.{i}", turn_start=i == 0)


def _message_units(body: Json) -> Iterator[Unit]:
    previous = ""
    for i, message in enumerate(body.get("messages") or []):
        if not isinstance(message, dict):
            continue
        role = str(message.get("role", ""))
        for j, block in enumerate(blocks_of(message.get("content"))):
            path = f"messages.{i}.content.{j}"
            yield Unit("messages", role, block, path, turn_start=role != previous)
            # Neighbours of one role are one turn, however many messages they came in.
            previous = role


class Chain:
    """A running digest over units; `digest()` names the prefix so far."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, unit: Unit) -> None:
        """Extend the prefix by one unit."""
        self._hash.update(unit.canonical())

    def add_answer(self, block: Json) -> None:
        """Extend the prefix by a block that the model has just produced."""
        self.add(Unit("messages", "assistant", block, ""))

    def digest(self) -> bytes:
        """The name of the prefix so far."""
        return self._hash.digest()

    def copy(self) -> Chain:
        """An independent continuation."""
        other = Chain()
        other._hash = self._hash.copy()
        return other


def digest_of(blocks: Sequence[Json]) -> bytes:
    """The name of an assistant answer on its own."""
    chain = Chain()
    for block in blocks:
        chain.add_answer(block)
    return chain.digest()


def canonical_units(body: Json) -> list[bytes]:
    """A request as comparable pieces, for tests about byte-stable prefixes."""
    return [unit.canonical() for unit in units_of(body)]


def common_prefix(first: Json, second: Json) -> tuple[int, int, int]:
    """(pieces shared from the start, pieces of `first`, pieces of `second`)."""
    a, b = canonical_units(first), canonical_units(second)
    shared = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        shared += 1
    return shared, len(a), len(b)
