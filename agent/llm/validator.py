"""Owns the rules that every outgoing request keeps; says which are broken, and where.

W1   the first turn is the user's, or begins with a compaction block, which stands nowhere else
W2   roles alternate
W3   every call is answered exactly once in the next turn, results first in it
W4   every result answers a call of the turn before
W5   call ids are unique and of ``[a-zA-Z0-9_-]``
W6   no blank text, no empty content
W7   the last turn is the user's, except when a pause goes on; no trailing blank in a last answer
W8   at most four cache marks
W9   none on blank text or on thinking
W10  their lifetimes never rise in the order tools, system, messages
W11  thinking is what was issued, behind the prefix it was issued behind (`ThinkingLedger`)
W12  a call's input is an object
W13  images and the body are within the limits
W14  the body is UTF-8 and holds no private key
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent.llm.images import (
    MANY_IMAGES,
    MANY_MAX_SIDE_PIXELS,
    MAX_IMAGES,
    MAX_SIDE_PIXELS,
    pixel_size,
)
from agent.messages import THINKING_TYPES

Body = dict[str, Any]
Block = dict[str, Any]

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_MARKS = 4
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TTL_RANK = {"1h": 1, "5m": 0}


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule."""

    rule: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.path}: {self.text}"


def validate(
    body: Body, *, continues_pause: bool = False, ledger: ThinkingLedger | None = None
) -> list[Violation]:
    """Every broken rule of a request body, in the order of the body; empty: it is valid."""
    turns = list(_turns(body))
    found = [
        *_order(turns, continues_pause),
        *_content(body, turns),
        *_pairs(turns),
        *_marks(body, turns),
        *_images(turns),
        *_encoding(body),
    ]
    if ledger is not None:
        found.extend(ledger.violations(body))
    return found


@dataclass(frozen=True, slots=True)
class _Turn:
    path: str
    role: str
    blocks: list[Block]

    def of(self, kind: str) -> list[Block]:
        return [b for b in self.blocks if b.get("type") == kind]


def _blocks(content: object) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _turns(body: Body) -> Iterator[_Turn]:
    for i, message in enumerate(body["messages"]):
        yield _Turn(f"messages.{i}", message["role"], _blocks(message["content"]))


def _order(turns: Sequence[_Turn], continues_pause: bool) -> Iterator[Violation]:
    if not turns:
        yield Violation("W1", "messages", "no message at all")
        return
    first, last = turns[0], turns[-1]
    compacted = bool(first.blocks) and first.blocks[0].get("type") == "compaction"
    if first.role != "user" and not compacted:
        yield Violation("W1", first.path, f"the first role is {first.role}")
    for turn in turns:
        if any(
            turn is not first or block is not first.blocks[0] for block in turn.of("compaction")
        ):
            yield Violation("W1", turn.path, "a compaction block behind other content")
    for before, turn in itertools.pairwise(turns):
        if before.role == turn.role:
            yield Violation("W2", turn.path, f"{turn.role} follows {before.role}")
    if last.role != "user" and not continues_pause:
        yield Violation("W7", last.path, f"the last role is {last.role}")
        text = str(last.blocks[-1].get("text", "")) if last.blocks else ""
        if text != text.rstrip():
            yield Violation("W7", last.path, "the last answer ends with a blank")


def _content(body: Body, turns: Sequence[_Turn]) -> Iterator[Violation]:
    for i, block in enumerate(_blocks(body.get("system", []))):
        yield from _text(f"system.{i}", block)
    for turn in turns:
        if not turn.blocks:
            yield Violation("W6", turn.path, "empty content")
        for j, block in enumerate(turn.blocks):
            path = f"{turn.path}.content.{j}"
            yield from _text(path, block)
            if block.get("type") == "tool_result":
                if "content" in block and not block["content"]:
                    yield Violation("W6", path, "empty result")
                for nested in _blocks(block.get("content")):
                    yield from _text(path, nested)
            elif block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
                yield Violation("W12", path, "the input is no object")


def _text(path: str, block: Block) -> Iterator[Violation]:
    if block.get("type") == "text" and not str(block.get("text", "")).strip():
        yield Violation("W6", path, "blank text")


def _pairs(turns: Sequence[_Turn]) -> Iterator[Violation]:
    seen: set[str] = set()
    open_calls: list[str] = []
    before = ""
    for turn in turns:
        yield from _answers(turn, open_calls, before)
        open_calls = []
        before = turn.path
        for block in turn.of("tool_use"):
            call_id = str(block.get("id"))
            if call_id in seen or not _ID.fullmatch(call_id):
                yield Violation("W5", turn.path, f"call id {call_id!r}")
            seen.add(call_id)
            open_calls.append(call_id)
    yield from (Violation("W3", before, f"call {call_id} has no result") for call_id in open_calls)


def _answers(turn: _Turn, open_calls: Sequence[str], before: str) -> Iterator[Violation]:
    missing = list(open_calls)
    leading = True
    for block in turn.blocks:
        if block.get("type") != "tool_result":
            leading = False
            continue
        call_id = str(block.get("tool_use_id"))
        if call_id not in open_calls:
            yield Violation("W4", turn.path, f"result for {call_id}, which was not called before")
        elif call_id not in missing:
            yield Violation("W3", turn.path, f"second result for {call_id}")
        else:
            missing.remove(call_id)
            if not leading:
                yield Violation("W3", turn.path, f"result for {call_id} behind other content")
    yield from (Violation("W3", before, f"call {call_id} has no result") for call_id in missing)


def _marked_blocks(body: Body, turns: Sequence[_Turn]) -> Iterator[tuple[str, Block]]:
    """Everything that could carry a mark, in the order in which the provider reads it."""
    yield from ((f"tools.{i}", tool) for i, tool in enumerate(body.get("tools", [])))
    yield from ((f"system.{i}", b) for i, b in enumerate(_blocks(body.get("system", []))))
    for turn in turns:
        for j, block in enumerate(turn.blocks):
            if block.get("type") == "tool_result":
                for nested in _blocks(block.get("content")):
                    yield f"{turn.path}.content.{j}", nested
            yield f"{turn.path}.content.{j}", block


def _marks(body: Body, turns: Sequence[_Turn]) -> Iterator[Violation]:
    marks = 0
    lowest = 1
    for path, block in _marked_blocks(body, turns):
        mark = block.get("cache_control")
        if mark is None:
            continue
        marks += 1
        blank = block.get("type") == "text" and not str(block.get("text", "")).strip()
        if blank or block.get("type") in THINKING_TYPES:
            yield Violation("W9", path, f"a mark on {block.get('type')}")
        rank = _TTL_RANK.get(mark.get("ttl", "5m"), 0)
        if rank > lowest:
            yield Violation("W10", path, "a longer lifetime behind a shorter one")
        lowest = min(lowest, rank)
    if marks > MAX_MARKS:
        yield Violation("W8", "messages", f"{marks} marks")


def _images(turns: Sequence[_Turn]) -> Iterator[Violation]:
    found: list[tuple[str, Block]] = []
    for turn in turns:
        for block in turn.blocks:
            inside = _blocks(block.get("content")) if block.get("type") == "tool_result" else []
            found.extend((turn.path, b) for b in (block, *inside) if b.get("type") == "image")
    if len(found) > MAX_IMAGES:
        yield Violation("W13", "messages", f"{len(found)} images over {MAX_IMAGES}")
    limit = MANY_MAX_SIDE_PIXELS if len(found) > MANY_IMAGES else MAX_SIDE_PIXELS
    for path, block in found:
        source = block.get("source", {})
        if source.get("type") != "base64":
            continue
        size = pixel_size(source.get("data", ""))
        if size is None or max(size[1:]) > limit:
            yield Violation("W13", path, f"image {size} over {limit} pixels")


def _encoding(body: Body) -> Iterator[Violation]:
    for key in body:
        if key.startswith("_"):
            yield Violation("W14", key, "a private key")
    for i, message in enumerate(body["messages"]):
        blocks = _blocks(message["content"])
        nested = [n for b in blocks for n in _blocks(b.get("content"))]
        for holder in (message, *blocks, *nested):
            yield from (
                Violation("W14", f"messages.{i}.{key}", "a private key")
                for key in holder
                if str(key).startswith("_")
            )
    try:
        size = len(json.dumps(body, ensure_ascii=False, allow_nan=False).encode())
    except ValueError as exc:
        yield Violation("W14", "body", f"can not be encoded: {exc.__class__.__name__}")
        return
    if size > MAX_BODY_BYTES:
        yield Violation("W13", "body", f"{size} bytes")


class ThinkingLedger:
    """Remembers behind which prefix each thinking block was issued (W11)."""

    def __init__(self) -> None:
        self._issued: dict[str, set[bytes]] = {}
        self._compacted: dict[str, Any] = {}
        """A compaction block → the prefix that it stands for."""

    def record(self, body: Body, answer: Sequence[Block]) -> None:
        """An answer to this request came."""
        prefix = hashlib.blake2b()
        for unit, _, block in _units(body):
            prefix = self._behind(prefix, unit, block)
        for block in answer:
            if block.get("type") in THINKING_TYPES:
                self._issued.setdefault(_canonical(block), set()).add(prefix.digest())
            elif block.get("type") == "compaction":
                self._compacted[_canonical(block)] = prefix.copy()
            prefix.update(_unit("assistant", block))

    def _behind(self, prefix: Any, unit: bytes, block: Block) -> Any:
        """The prefix behind one more piece; the provider's summary stands for what it replaced."""
        replaced = None
        if block.get("type") == "compaction":
            replaced = self._compacted.get(_canonical(block))
        if replaced is not None:
            return replaced.copy()
        prefix.update(unit)
        return prefix

    def violations(self, body: Body) -> Iterator[Violation]:
        """Thinking blocks of a request that were not issued so."""
        prefix = hashlib.blake2b()
        for unit, path, block in _units(body):
            if block.get("type") in THINKING_TYPES:
                behind = self._issued.get(_canonical(block))
                if behind is None:
                    yield Violation("W11", path, "thinking that was never issued")
                elif prefix.digest() not in behind:
                    yield Violation("W11", path, "thinking behind another prefix")
            prefix = self._behind(prefix, unit, block)


def _units(body: Body) -> Iterator[tuple[bytes, str, Block]]:
    for i, tool in enumerate(body.get("tools", [])):
        yield _unit("tool", tool), f"tools.{i}", tool
    for i, block in enumerate(_blocks(body.get("system", []))):
        yield _unit("system", block), f"system.{i}", block
    for turn in _turns(body):
        for j, block in enumerate(turn.blocks):
            yield _unit(turn.role, block), f"{turn.path}.content.{j}", block


def _unit(section: str, block: Block) -> bytes:
    return f"{section}|{_canonical(block)}\n".encode("utf-8", "surrogatepass")


def _canonical(block: Block) -> str:
    kept = {k: v for k, v in block.items() if k != "cache_control" and v is not None}
    if isinstance(kept.get("content"), list):
        kept["content"] = [
            {k: v for k, v in b.items() if k != "cache_control"} for b in kept["content"]
        ]
    return json.dumps(kept, sort_keys=True, ensure_ascii=False)
