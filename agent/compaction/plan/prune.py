"""Owns pruning: an old tool result becomes one informative line, long arguments get short. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from agent.compaction.plan.clip import clip_to_tokens, recall_reference
from agent.messages import (
    Message,
    ToolCall,
    arguments_of,
    text_of,
    without_thinking,
)
from agent.model_metadata import estimate_message_tokens, estimate_tokens_rough
from agent.redact import redact_sensitive_text

PRUNE_MIN_CHARS = 200
"""A tool result up to this length stays as it is."""
MIN_RESULT_CHARS = 8000
"""Shorter results stay: what breaks the prompt cache has to be worth it."""
MIN_RECLAIM_TOKENS = 4096
"""Less than this is not stored: the whole prompt behind the change is paid for anew."""
ARGUMENTS_MIN_CHARS = 500
LEAF_MIN_CHARS = 200
STAND_IN = "[Tool result pruned"
"""How every stand-in begins; one is never pruned again."""
PLACEHOLDER = f"{STAND_IN} to save context]"
"""Where nothing is known about the result."""
_MAIN_ARGUMENTS = ("command", "cmd", "path", "file", "file_path", "url", "query", "pattern", "name")
_EXIT_CODE = re.compile(
    r"\bexit(?:[ _]?(?:code|status))?\"?\s*[:=]?\s*(-?\d{1,5})\b", re.IGNORECASE
)
_STATUS_REGION_CHARS = 400


def is_stand_in(message: Message) -> bool:
    """Is this tool message a stand-in already?"""
    content = message["content"]
    return message["role"] == "tool" and isinstance(content, str) and content.startswith(STAND_IN)


def _call_of(messages: Sequence[Message], index: int) -> ToolCall | None:
    """The call that a result answers: in the message that opens its group."""
    call_id = messages[index].get("tool_call_id", "")
    at = index - 1
    while at >= 0 and messages[at]["role"] == "tool":
        at -= 1
    calls = messages[at].get("tool_calls") if at >= 0 else None
    return next((call for call in calls or () if call["id"] == call_id), None)


def calls_by_id(messages: Iterable[Message]) -> dict[str, ToolCall]:
    """Every tool call of a list by its id; of two with one id the later one."""
    return {call["id"]: call for m in messages for call in m.get("tool_calls") or ()}


def main_argument(call: ToolCall) -> str:
    """The argument that says what a call was about, short and without secrets."""
    arguments = arguments_of(call)
    for key in _MAIN_ARGUMENTS:
        if isinstance(arguments.get(key), str) and arguments[key].strip():
            return _short(arguments[key], 80)
    pairs = [f"{key}={_short(str(value), 40)}" for key, value in list(arguments.items())[:2]]
    return ", ".join(pairs)


def _short(text: str, limit_chars: int) -> str:
    start = text[: limit_chars * 8]
    if len(start) < len(text):
        start = start.rpartition(" ")[0] or start  # a cut key would not be recognised any more
    line = " ".join(redact_sensitive_text(start).split())
    return line if len(line) <= limit_chars else line[: limit_chars - 1] + "…"


def _status(text: str) -> str:
    """How a result ended, as far as its text says so."""
    edges = f"{text[:_STATUS_REGION_CHARS]}\n{text[-_STATUS_REGION_CHARS:]}"
    if match := _EXIT_CODE.search(edges):
        return f"exit {match[1]}"
    first = text.lstrip()[:60]
    if first.lower().startswith(("error", "failed", "traceback", "fehler", "错误", "エラー")):
        return _short(first.splitlines()[0] if first else "", 60)
    return ""


def stand_in(message: Message, call: ToolCall | None, *, same_as: Message | None = None) -> Message:
    """The one-line message that stands for a tool result; keeps its id and its row."""
    text = text_of(message["content"])
    content = message["content"]
    pictures = [p for p in content if p.get("type") != "text"] if isinstance(content, list) else []
    parts: list[str] = []
    if call is not None:
        argument = main_argument(call)
        parts.append(f"{call['function']['name']}({argument})")
    if status := _status(text):
        parts.append(status)
    if text:
        parts.append(f"{len(text)} characters, {text.count(chr(10)) + 1} lines")
    if pictures:
        parts.append(f"{len(pictures)} images")
    if same_as is not None:
        parts.append("the same as a later result")
    if reference := recall_reference(message):
        parts.append(reference)
    line = f"{STAND_IN}: {'; '.join(parts)}]" if parts else PLACEHOLDER
    return cast(Message, {**message, "content": line, "_kind": "stub"})


def _shorten_leaves(value: Any, limit_chars: int) -> Any:
    if isinstance(value, str):
        if len(value) <= limit_chars:
            return value
        return f"{value[: limit_chars // 2]}… [{len(value)} characters in all]"
    if isinstance(value, list):
        return [_shorten_leaves(item, limit_chars) for item in value]
    if isinstance(value, dict):
        return {key: _shorten_leaves(item, limit_chars) for key, item in value.items()}
    return value


def shorten_arguments(message: Message) -> Message:
    """The message with long strings in its calls' arguments shortened; the same object if none is.

    Arguments stay JSON with the same keys and types. What is no JSON object is left alone.
    """
    calls: list[ToolCall] = []
    changed = False
    for call in message.get("tool_calls") or ():
        text = call["function"]["arguments"] or ""
        shorter = text
        if len(text) > ARGUMENTS_MIN_CHARS and (arguments := arguments_of(call)):
            shorter = json.dumps(_shorten_leaves(arguments, LEAF_MIN_CHARS), ensure_ascii=False)
        if len(shorter) < len(text):
            function = {**call["function"], "arguments": shorter}
            calls.append(cast(ToolCall, {**call, "function": function}))
            changed = True
        else:
            calls.append(call)
    if not changed:
        return message
    pruned = cast(Message, {**without_thinking(message), "tool_calls": calls})
    pruned.pop("anthropic_content_blocks", None)  # they say the long arguments
    return pruned


def _prunable(message: Message) -> bool:
    if message["role"] != "tool" or is_stand_in(message):
        return False
    content = message["content"]
    if isinstance(content, list):
        plain = all(p.get("type") == "text" for p in content)
        return not plain or len(text_of(content)) > PRUNE_MIN_CHARS
    return len(content or "") > PRUNE_MIN_CHARS


def prune_messages(messages: Sequence[Message], indexes: Iterable[int]) -> dict[int, Message]:
    """What becomes of the messages at these places: index → shorter message, for changed ones.

    Nothing else is touched, no message disappears, and doing it twice changes nothing more. A
    result that is repeated later, anywhere in the list, is called so.
    """
    chosen = [i for i in indexes if messages[i]["role"] == "assistant" or _prunable(messages[i])]
    later = _newest_of_equal(messages, [i for i in chosen if messages[i]["role"] == "tool"])
    changes: dict[int, Message] = {}
    for i in chosen:
        message = messages[i]
        if message["role"] == "assistant":
            shorter = shorten_arguments(message)
        else:
            newest = later.get(i)
            same_as = newest if newest is not message else None
            shorter = stand_in(message, _call_of(messages, i), same_as=same_as)
        if shorter is not message and estimate_message_tokens(shorter) < estimate_message_tokens(
            message
        ):
            changes[i] = shorter
    return changes


def _newest_of_equal(messages: Sequence[Message], indexes: Sequence[int]) -> dict[int, Message]:
    """For these results the newest one that says the same, perhaps itself."""
    texts = {i: text for i in indexes if isinstance(text := messages[i]["content"], str)}
    if not texts:
        return {}
    wanted, lengths = set(texts.values()), set(map(len, texts.values()))
    newest: dict[str, Message] = {}
    for message in reversed(messages):
        if message["role"] != "tool":
            continue
        content = message["content"]
        if isinstance(content, str) and len(content) in lengths and content in wanted:
            newest.setdefault(content, message)
            if len(newest) == len(wanted):
                break
    return {i: newest[text] for i, text in texts.items()}


def prunable_results(messages: Sequence[Message], protect_last_n: int) -> dict[int, Message]:
    """Stand-ins for the long results in front of the protected end: index → shorter message. Pure.

    Nothing if that would gain too little.
    """
    old = range(max(0, len(messages) - protect_last_n))
    places = [
        i
        for i in old
        if messages[i]["role"] == "tool"
        and not is_stand_in(messages[i])
        and len(text_of(messages[i]["content"])) >= MIN_RESULT_CHARS
    ]
    changes = prune_messages(messages, places)
    gained = sum(
        estimate_message_tokens(messages[i]) - estimate_message_tokens(shorter)
        for i, shorter in changes.items()
    )
    return changes if gained >= MIN_RECLAIM_TOKENS else {}


def clip_result(message: Message, limit_tokens: int) -> Message:
    """A tool result cut to a size, head and tail kept; pictures become a note. For the tail."""
    text = text_of(message["content"])
    if isinstance(message["content"], list) and any(
        p.get("type") != "text" for p in message["content"]
    ):
        text = f"{text}\n[image left out]".strip()
    elif estimate_tokens_rough(text) <= limit_tokens:
        return message
    shorter = clip_to_tokens(text, limit_tokens, reference=recall_reference(message))
    return cast(Message, {**message, "content": shorter, "_kind": "stub"})


def shrink_tail(
    messages: Sequence[Message], indexes: Sequence[int], excess_tokens: int
) -> dict[int, Message]:
    """Shorten results inside the protected tail until ``excess_tokens`` are gained, if possible.

    Oldest first: stand-ins for all but the newest three messages, then for all but the newest
    group, then the newest group's results are cut head-and-tail to an even share. Nothing that a
    person or the assistant said is touched.
    """
    if excess_tokens <= 0 or not indexes:
        return {}
    newest = _last_group(messages) if len(messages) - 1 in indexes else range(0)
    kept = set(newest) if len(newest) > 1 else set()
    recent = set(indexes[-3:]) | kept
    shorter = prune_messages(messages, (i for i in indexes if i not in kept))
    order = [i for i in indexes if i not in recent] + [i for i in indexes if i in recent]
    changes: dict[int, Message] = {}
    gained = 0
    for i in order:
        if gained >= excess_tokens:
            return changes
        if i in shorter:
            gained += estimate_message_tokens(messages[i]) - estimate_message_tokens(shorter[i])
            changes[i] = shorter[i]
    if not kept or gained >= excess_tokens:
        return changes
    results = [i for i in sorted(kept) if messages[i]["role"] == "tool"]
    sizes = {i: estimate_message_tokens(messages[i]) for i in results}
    share = _even_share(list(sizes.values()), sum(sizes.values()) - (excess_tokens - gained))
    for i in results:
        if sizes[i] > share:
            clipped = clip_result(messages[i], max(32, share - 48))
            if estimate_message_tokens(clipped) < sizes[i]:
                changes[i] = clipped
    call = messages[newest.start]
    if (shortened := shorten_arguments(call)) is not call:
        changes[newest.start] = shortened
    return changes


def _last_group(messages: Sequence[Message]) -> range:
    start = len(messages) - 1
    while start > 0 and messages[start]["role"] == "tool":
        start -= 1
    return range(start, len(messages))


def _even_share(sizes: Sequence[int], total: int) -> int:
    """The largest size to which each may be cut so that all together are at most ``total``."""
    left, remaining = max(0, total), sorted(sizes)
    for n, size in enumerate(remaining):
        share = left // (len(remaining) - n)
        if size > share:
            return share
        left -= size
    return remaining[-1] if remaining else 0
