"""Owns what is sent if an engine chooses other messages for a request. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agent.compaction.plan.adoption import checked_message
from agent.compaction.plan.assemble import repair_pairs
from agent.errors import EngineError
from agent.messages import Message, public, without_thinking
from agent.model_metadata import estimate_message_tokens


def selected(
    result: object, messages: Sequence[Message], *, room_tokens: int = 0
) -> Sequence[Message]:
    """The messages to send: those given, the same object, unless the result is another valid list.

    A system message becomes a note of the user's (the system prompt is frozen), tool pairs are made
    whole. Thinking is bound to what stands before it, so behind the first message that is another
    one it is left out. A list that ends with the assistant would be answered as a pause: it counts
    only where the request ended so as well.

    Args:
        result: What the engine gave back, as plain JSON.
        messages: What would be sent without it.
        room_tokens: What fits; a larger list counts only if it is not larger than the one given.
            0: nobody knows.
    """
    if not isinstance(result, list) or not result or result == list(messages):
        return messages
    try:
        chosen = [checked_message(item) for item in result]
    except EngineError:
        return messages
    chosen = [_as_note(m) if m["role"] == "system" else m for m in chosen]
    chosen = repair_pairs(chosen)
    if not chosen or (chosen[-1]["role"] == "assistant") > (messages[-1]["role"] == "assistant"):
        return messages
    kept = _same_beginning(chosen, messages)
    sent = [
        *messages[:kept],
        *(without_thinking(public(message)) for message in chosen[kept:]),
    ]
    if sent == list(messages):
        return messages
    if room_tokens > 0 and (size := _tokens(sent)) > room_tokens and size > _tokens(messages):
        return messages
    return tuple(sent)


def _same_beginning(chosen: Sequence[Message], messages: Sequence[Message]) -> int:
    """So many messages at the beginning are as they were."""
    for at, (one, other) in enumerate(zip(chosen, messages, strict=False)):
        if public(one) != public(other):
            return at
    return min(len(chosen), len(messages))


def _as_note(message: Message) -> Message:
    return cast(Message, {"role": "user", "content": message["content"]})


def _tokens(messages: Sequence[Message]) -> int:
    return sum(estimate_message_tokens(message) for message in messages)
