"""Owns the mapping of our messages to a request of the Messages API: same input, same bytes.

Whatever the list holds, the request is valid (`agent.llm.validator`): this is the last net below
the store's repairs. What a message maps to depends only on what stands before it, so that a list
that grew maps to the same beginning. Two things are none of that: images that one request can not
carry, and the closing turn that stands in where the list ends with an answer.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from agent.llm import images
from agent.llm.answers import is_compaction, only_thinking, plain_blocks, raw_blocks
from agent.llm.clean import clean_json
from agent.messages import Message, ToolSchema, clean_text
from agent.native_block import compaction_block, sendable_block
from agent.ports import ModelRequest
from agent.prompt_caching import apply_anthropic_cache_control

Block = dict[str, Any]
Body = dict[str, Any]

NO_OUTPUT = "(no output)"
EMPTY_MESSAGE = "(empty message)"
OPENING = "(the conversation goes on)"
GO_ON = "(go on)"
ERROR_PREFIX = "[error]"
"""A tool result that begins so is sent as an error."""
INTERRUPTED_PREFIX = "[interrupted"
"""So begins what the store puts in place of a result that a crash swallowed."""
NO_RESULT = f"{INTERRUPTED_PREFIX}, outcome unknown]"

log = logging.getLogger(__name__)

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ERRORS = (ERROR_PREFIX, INTERRUPTED_PREFIX)
_MAX_NAME_CHARS = 128
_MAX_ID_CHARS = 64


def build_body(request: ModelRequest, model: str, *, maker: str = "") -> Body:
    """The request as keyword arguments of the SDK.

    ``maker``: who reads it, for summaries that only their maker reads; "": nobody may.
    """
    turns = map_messages(request.messages, continues_pause=request.continues_pause, maker=maker)
    system = system_blocks(request.system)
    if request.cache_ttl is not None:
        head: list[Any] = [{"role": "system", "content": system}] if system else []
        marked = apply_anthropic_cache_control(
            head + turns, cache_ttl=request.cache_ttl, native_anthropic=True
        )
        system = marked[0]["content"] if system else []
        turns = marked[len(head) :]
    body: Body = {"model": model, "max_tokens": request.max_tokens}
    if system:
        body["system"] = system
    body["messages"] = turns
    if request.tools:
        body["tools"] = map_tools(request.tools)
    return body


def system_blocks(system: str) -> list[Block]:
    """The system prompt; a blank one is left out."""
    text = clean_text(system)
    return [{"type": "text", "text": text}] if text.strip() else []


def map_tools(tools: Iterable[ToolSchema]) -> list[Block]:
    """Sorted by name, each name once."""
    by_name = {tool.name: tool for tool in tools}
    return [
        {
            "name": name,
            "description": clean_text(by_name[name].description),
            "input_schema": clean_json(by_name[name].parameters),
        }
        for name in sorted(by_name)
    ]


def map_messages(
    messages: Sequence[Message], *, continues_pause: bool = False, maker: str = ""
) -> list[Body]:
    """Alternating turns of block lists, from the user to the user.

    Only the provider's own summary may stand before the first turn of the user, and where its
    maker does not get it back, its text opens the list.
    """
    turns = _Turns()
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        match message["role"]:
            case "assistant" if compaction_block(message) is not None:
                block = sendable_block(message, maker) if at == 1 else None
                if block is not None:
                    turns.add("assistant", [block])
                else:
                    turns.add("user", _user_blocks(message))
            case "assistant":
                first_result = at
                while at < len(messages) and messages[at]["role"] == "tool":
                    at += 1
                turns.answer(message, messages[first_result:at])
            case "tool":
                turns.repairs["result without call"] += 1
            case _:
                turns.add("user", _user_blocks(message))
    return turns.finish(continues_pause)


class _Turns:
    """The turns so far, and the ids that are taken."""

    def __init__(self) -> None:
        self._turns: list[Body] = []
        self._ids: set[str] = set()
        self.repairs: Counter[str] = Counter()
        """What was wrong with the list; the store repairs its own, so normally nothing."""

    def add(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"].extend(blocks)
        else:
            self._turns.append({"role": role, "content": blocks})

    def answer(self, message: Message, results: Sequence[Message]) -> None:
        """An assistant message and the tool messages directly behind it."""
        calls = message.get("tool_calls")
        if not calls and "anthropic_content_blocks" not in message:
            self.add("assistant", plain_blocks(message))
            self.repairs["result without call"] += len(results)
            return
        called = [call["id"] for call in calls or ()]
        ids = [self._free_id(call_id) for call_id in called]
        blocks = raw_blocks(message)
        if blocks is None or ids != called:
            blocks = plain_blocks(message)
            uses = [b for b in blocks if b["type"] == "tool_use"]
            for use, wire_id in zip(uses, ids, strict=True):
                use["id"] = wire_id
                use["name"] = _NOT_IN_ID.sub("_", use["name"])[:_MAX_NAME_CHARS] or "unnamed"
        if only_thinking(blocks):
            return
        self.add("assistant", blocks)
        blocks, matched = _result_blocks(called, ids, results)
        self.repairs["call without result"] += len(ids) - matched
        self.repairs["result without call"] += len(results) - matched
        self.repairs["call id"] += ids != called
        self.add("user", blocks)

    def finish(self, continues_pause: bool) -> list[Body]:
        turns = self._turns
        if not turns:
            self.add("user", [_text(EMPTY_MESSAGE)])
        first = turns[0]
        if first["role"] == "assistant" and not is_compaction(first["content"]):
            turns.insert(0, {"role": "user", "content": [_text(OPENING)]})
            self.repairs["first turn"] += 1
        if turns[-1]["role"] == "assistant" and not continues_pause:
            self.add("user", [_text(GO_ON)])
            self.repairs["last turn"] += 1
        if found := +self.repairs:
            log.warning("Request repaired", extra={"repairs": dict(found)})
        images.limit_images([t["content"] for t in turns if t["role"] == "user"])
        return turns

    def _free_id(self, call_id: str) -> str:
        base = _NOT_IN_ID.sub("_", call_id)[:_MAX_ID_CHARS] or "call"
        wire_id, n = base, 1
        while wire_id in self._ids:
            n += 1
            wire_id = f"{base}-{n}"
        self._ids.add(wire_id)
        return wire_id


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _user_blocks(message: Message) -> list[Block]:
    return _content_blocks(message.get("content")) or [_text(EMPTY_MESSAGE)]


def _content_blocks(content: object) -> list[Block]:
    """Text and images, nothing blank, nothing else."""
    if isinstance(content, str):
        text = clean_text(content)
        return [_text(text)] if text.strip() else []
    blocks: list[Block] = []
    for part in content if isinstance(content, list) else ():
        if part.get("type") == "image_url":
            blocks.append(images.image_block(part))
        elif part.get("type") == "text":
            blocks.extend(_content_blocks(str(part.get("text", ""))))
    return blocks


def _result_blocks(
    called: Sequence[str], ids: Sequence[str], results: Sequence[Message]
) -> tuple[list[Block], int]:
    """One result for each call: those that are there in their order, then the missing ones.

    And how many were there.
    """
    waiting: dict[str, deque[str]] = {}
    for call_id, wire_id in zip(called, ids, strict=True):
        waiting.setdefault(call_id, deque()).append(wire_id)
    blocks: list[Block] = []
    for result in results:
        queue = waiting.get(result.get("tool_call_id", ""))
        if queue:
            blocks.append(_result_block(queue.popleft(), result))
    matched = len(blocks)
    if matched == len(ids):
        return blocks, matched
    answered = {b["tool_use_id"] for b in blocks}
    blocks.extend(
        _result_block(wire_id, {"role": "tool", "content": NO_RESULT})
        for wire_id in ids
        if wire_id not in answered
    )
    return blocks, matched


def _result_block(wire_id: str, result: Message) -> Block:
    content = _content_blocks(result.get("content")) or [_text(NO_OUTPUT)]
    block: Block = {"type": "tool_result", "tool_use_id": wire_id, "content": content}
    if content[0]["type"] == "text" and content[0]["text"].startswith(_ERRORS):
        block["is_error"] = True
    return block
