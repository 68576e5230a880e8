"""Owns the new list: head, summary, what was lifted, tail; and tool pairs that are whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agent.compaction.plan.boundary import Boundaries, is_note, is_summary, side
from agent.messages import (
    Message,
    orphan_results,
    pairs_are_whole,
    text_of,
    unanswered_calls,
    visible,
    without_thinking,
)

NOTE = (
    "[Note: earlier messages of this conversation have been replaced by a summary. "
    "The originals are kept and can be looked up with the recall tool.]"
)
"""Said once: at the end of the system message if the list has one, else as the opening message
where one is needed so that the list begins with the user."""
OPENING = "[What was said so far, in short:]"
"""The opening message of a list whose system message says the note already."""
NO_RESULT = "[No result: the call was interrupted, its outcome is unknown]"


def kept(message: Message) -> Message:
    """A message that stays: a copy of its own, without thinking bound to the old prefix."""
    stripped = without_thinking(message)
    return cast(Message, dict(stripped))


def assemble(
    messages: Sequence[Message],
    cut: Boundaries,
    summary: str,
    changes: Mapping[int, Message],
) -> list[Message]:
    """The list after a compression.

    The summary takes the role that keeps user and assistant alternating; the newest message of the
    user comes behind it; without a system message the list begins with the user.

    Args:
        messages: The list before.
        cut: Where it was cut.
        summary: Content of the summary message.
        changes: Shorter forms of kept messages, by index.
    """
    result = [_noted(messages[i]) for i in range(cut.system_end)]
    result.extend(kept(changes.get(i, messages[i])) for i in cut.head)
    after = [kept(changes.get(i, messages[i])) for i in cut.after_summary]
    behind_user = bool(after) and side(after[0]) == "user"
    if behind_user and len(result) == cut.system_end:
        result.append(_opening_note(messages))
    role = "assistant" if behind_user else "user"
    result.append(cast(Message, {"role": role, "content": summary, "_kind": "summary"}))
    result.extend(after)
    return result


def _noted(system: Message) -> Message:
    content = system["content"]
    if not isinstance(content, str) or NOTE in content:
        return kept(system)
    return cast(Message, {**system, "content": f"{content}\n\n{NOTE}".strip()})


def _opening_note(messages: Sequence[Message]) -> Message:
    for message in messages:
        if is_note(message) and message["role"] == "user" and text_of(message["content"]).strip():
            return kept(message)
    content = OPENING if messages and messages[0]["role"] == "system" else NOTE
    return cast(Message, {"role": "user", "content": content, "_kind": "note"})


def with_changes(messages: Sequence[Message], changes: Mapping[int, Message]) -> list[Message]:
    """The whole list with some messages in their shorter form: pruning without a summary."""
    return [kept(changes.get(i, message)) for i, message in enumerate(messages)]


def repair_pairs(messages: Sequence[Message]) -> list[Message]:
    """The list with every call answered exactly once and no result without its call.

    A missing result becomes a stub right behind the message that made the call. The same messages
    come back, in the same order, where nothing is broken.
    """
    if pairs_are_whole(messages):  # as good as always
        return list(messages)
    orphans = set(orphan_results(messages))
    whole = [message for i, message in enumerate(messages) if i not in orphans]
    missing = unanswered_calls(whole)
    if not missing:
        return whole
    result: list[Message] = []
    for i, message in enumerate(whole):
        result.append(message)
        for at, call in missing:
            if at == i:
                stub = {
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "name": call["function"]["name"],
                    "content": NO_RESULT,
                    "_kind": "stub",
                }
                result.append(cast(Message, stub))
    return result


def problem_with(before: Sequence[Message], after: Sequence[Message], newest: int | None) -> str:
    """Why a compressed list must not replace the other one; "" if it may.

    Args:
        before: The list as it was.
        after: What would replace it.
        newest: Index in ``before`` of the newest message that a person said.
    """
    if not after:
        return "the result is empty"
    if orphan_results(after) or unanswered_calls(after):
        return "the result breaks a tool call"
    summaries = [i for i, message in enumerate(after) if is_summary(message)]
    if len(summaries) > 1:
        return "the result has more than one summary"
    if newest is not None:
        said = visible(before[newest])
        places = [i for i, message in enumerate(after) if visible(message) == said]
        if not places:
            return "the newest user message is missing"
        if summaries and places[-1] < summaries[0]:
            return "the newest user message would stand before the summary"
    return ""
