"""Owns the assistant message: from the provider's blocks, and back to them as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.llm.clean import clean_json, compact_json, input_object
from agent.messages import THINKING_TYPES, Message, ToolCall, clean_text, text_of

Block = dict[str, Any]

_PLAIN = frozenset({"text", "tool_use"})
_NEVER_ANSWERED = frozenset({"tool_result", "image", "document"})
"""What only a user turn may hold; an assistant's raw blocks with one of these are not replayed."""


def message_of(blocks: Sequence[Block]) -> Message:
    """The assistant message that says what these blocks say.

    The raw blocks are kept beside it where the visible fields alone would not bring them back.
    """
    kept = _with_own_ids([_tidy(clean_json(b)) for b in blocks if not _is_blank_text(b)])
    text = visible_text(kept)
    message: Message = {"role": "assistant", "content": text or None}
    calls = [_call_of(b) for b in kept if b.get("type") == "tool_use"]
    if calls:
        message["tool_calls"] = calls
    if plain_blocks(message) != kept:
        message["anthropic_content_blocks"] = kept
    return message


def _with_own_ids(blocks: list[Block]) -> list[Block]:
    """Each call with an id of its own: two results under one id can not both be kept."""
    used: set[str] = set()
    for n, block in enumerate(blocks):
        if block.get("type") != "tool_use":
            continue
        call_id = wanted = str(block.get("id", ""))
        again = 1
        while call_id in used:
            again += 1
            call_id = f"{wanted}_{again}"
        used.add(call_id)
        if call_id != wanted:
            blocks[n] = {**block, "id": call_id}
    return blocks


def visible_text(blocks: Sequence[Block]) -> str:
    """The text that a person reads: fragments of one text joined, separate texts apart."""
    pieces: list[str] = []
    joins = False
    for block in blocks:
        if block.get("type") != "text":
            joins = False
            continue
        if pieces and not joins:
            pieces.append("\n\n")
        pieces.append(str(block.get("text", "")))
        joins = True
    return "".join(pieces)


def thinking_text(message: Message) -> str:
    """What arrived as thinking; some models put there what they mean the user to read."""
    return "\n\n".join(
        str(b.get("thinking", "")).strip()
        for b in message.get("anthropic_content_blocks") or ()
        if b.get("type") == "thinking" and str(b.get("thinking", "")).strip()
    )


def plain_blocks(message: Message) -> list[Block]:
    """The blocks that the visible fields alone make."""
    text = clean_text(text_of(message.get("content")))
    blocks: list[Block] = [{"type": "text", "text": text}] if text.strip() else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": input_object(function["arguments"]),
            }
        )
    return blocks


def raw_blocks(message: Message) -> list[Block] | None:
    """The raw blocks to replay; None if there are none, or the visible fields say otherwise."""
    raw = message.get("anthropic_content_blocks")
    if not raw or any(b.get("type") in _NEVER_ANSWERED for b in raw):
        return None
    try:
        kept = [_unmarked(clean_json(b)) for b in raw if not _is_blank_text(b)]
    except RecursionError:
        return None
    return kept if _agrees(message, kept) else None


def is_compaction(blocks: Sequence[Block]) -> bool:
    """Does it begin with what stands for everything before it?"""
    return bool(blocks) and blocks[0].get("type") == "compaction"


def only_thinking(blocks: Sequence[Block]) -> bool:
    """Nothing but thinking: nobody said anything."""
    return all(b.get("type") in THINKING_TYPES for b in blocks)


def _agrees(message: Message, raw: Sequence[Block]) -> bool:
    if clean_text(text_of(message.get("content"))) != visible_text(raw):
        return False
    calls = message.get("tool_calls") or ()
    uses = [b for b in raw if b.get("type") == "tool_use"]
    return len(calls) == len(uses) and all(
        call["id"] == use.get("id")
        and call["function"]["name"] == use.get("name")
        and input_object(call["function"]["arguments"]) == use.get("input")
        for call, use in zip(calls, uses, strict=True)
    )


def _call_of(block: Block) -> ToolCall:
    value = block.get("input")
    return {
        "id": str(block.get("id", "")),
        "type": "function",
        "function": {
            "name": str(block.get("name", "")),
            "arguments": compact_json(value if isinstance(value, dict) else {}),
        },
    }


def _is_blank_text(block: Block) -> bool:
    """A text that the provider may send but would refuse to take back."""
    return block.get("type") == "text" and not str(block.get("text", "")).strip()


def _tidy(block: Block) -> Block:
    """Without the empty extras that answers carry and requests need not."""
    if block.get("type") not in _PLAIN or all(v is not None for v in block.values()):
        return block
    return {k: v for k, v in block.items() if v is not None}


def _unmarked(block: Block) -> Block:
    if "cache_control" not in block:
        return block
    return {k: v for k, v in block.items() if k != "cache_control"}
