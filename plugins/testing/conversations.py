"""Owns conversations for suites: short ones, and long ones with tools in them."""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]


def short() -> list[Message]:
    """Three messages: there is nothing to be made shorter."""
    return [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello. What can I do?"},
    ]


def long(turns: int = 40, words: int = 120) -> list[Message]:
    """Many turns; every fourth one calls a tool. The last message is a person's question."""
    messages: list[Message] = [{"role": "system", "content": "Be kind."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn}: {filler(turn, words)}"})
        if turn % 4 == 3:
            call_id = f"call_{turn}"
            arguments = json.dumps({"page": turn})
            function = {"name": "read_page", "arguments": arguments}
            call = {"id": call_id, "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call_id,
                    "name": "read_page",
                    "content": f"Page {turn}: {filler(turn, words * 3)}",
                }
            )
        messages.append({"role": "assistant", "content": f"Answer {turn}: {filler(turn, words)}"})
    messages.append({"role": "user", "content": "And what did we decide in the end?"})
    return messages


def filler(seed: int, words: int) -> str:
    """Text of no meaning, the same for the same seed."""
    names = ("harbour", "ledger", "copper", "window", "signal", "garden", "quarry", "lantern")
    return " ".join(
        f"{names[(seed * 7 + n * 3) % len(names)]}{(seed + n) % 97}" for n in range(words)
    )


def rough_tokens(messages: list[Message]) -> int:
    """About four characters each."""
    return sum(len(json.dumps(message, ensure_ascii=False)) for message in messages) // 4


def orphans(messages: list[Message]) -> list[str]:
    """Ids of results without their call before them, and of calls without a result."""
    open_calls: list[str] = []
    alone: list[str] = []
    for message in messages:
        open_calls += [call["id"] for call in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            if message.get("tool_call_id") in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                alone.append(str(message.get("tool_call_id")))
    return [*alone, *open_calls]
