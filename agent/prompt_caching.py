"""Owns the cache marks of a request: one on the system prompt, three that follow the talk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

CacheTtl = Literal["5m", "1h"]
TTL_SECONDS: Mapping[str, float] = {"5m": 300.0, "1h": 3600.0}

MIN_CACHEABLE_TOKENS: Mapping[str, int] = {
    "claude": 1024,
    "claude-opus-4-5": 4096,
    "claude-opus-4-6": 4096,
    "claude-opus-4-7": 2048,
    "claude-haiku-4-5": 4096,
    "claude-opus-5": 512,
    "claude-fable": 512,
}
"""Part of a model's name → the shortest prompt that the provider caches; the longest part wins."""

LOOK_BACK_BLOCKS = 20
"""How far before a mark the provider looks for something that it has cached."""
_MAX_MARKS = 4
_THINKING = ("thinking", "redacted_thinking")

Marked = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CacheMarks:
    """Do requests carry cache marks, and why (in words for the operator)?"""

    on: bool
    why: str


def cache_marks(model: str, base_url: str | None) -> CacheMarks:
    """Marks are set for Claude models, wherever the Messages API is spoken.

    Other models behind such an endpoint have caches of their own, which need no marks, or refuse
    the field.
    """
    if "claude" not in model.lower():
        return CacheMarks(False, "no Claude model")
    if is_native(base_url):
        return CacheMarks(True, "Claude on the native API")
    host = urlsplit(base_url or "").hostname or base_url
    return CacheMarks(True, f"Claude on {host}, which is taken to honour cache marks")


def is_native(base_url: str | None) -> bool:
    """Is this Anthropic's own endpoint?"""
    if base_url is None:
        return True
    host = urlsplit(base_url).hostname or ""
    return host == "anthropic.com" or host.endswith(".anthropic.com")


def ttl_for(wanted: Literal["5m", "1h", "auto"] | None, *, for_person: bool) -> CacheTtl | None:
    """How long an entry shall live: a person thinks longer than five minutes, a job does not."""
    if wanted == "auto":
        return "1h" if for_person else "5m"
    return wanted


def cache_line(model: str, base_url: str | None, wanted: Literal["5m", "1h", "auto"]) -> str:
    """Prompt caching in words, for the start-up log, ``/status`` and the doctor."""
    marks = cache_marks(model, base_url)
    if not marks.on:
        return f"off ({marks.why})"
    life = "1h for people, 5m for jobs" if wanted == "auto" else wanted
    return f"on, {life} ({marks.why})"


def min_cacheable_tokens(model: str) -> int:
    """The shortest prompt that the provider caches; shorter ones it skips without a word."""
    parts = [part for part in MIN_CACHEABLE_TOKENS if part in model.lower()]
    return MIN_CACHEABLE_TOKENS[max(parts, key=len)] if parts else 0


def apply_anthropic_cache_control(
    api_messages: Sequence[Any],
    cache_ttl: str = "5m",
    native_anthropic: bool = False,
) -> list[Any]:
    """A new list with at most four messages replaced by marked copies; the input is not touched.

    Takes OpenAI-shaped messages and turns of the Messages API alike, a system message first if
    there is one. ``native_anthropic``: a message whose content is no list may carry its mark on the
    message itself, from where the adapter puts it on the right block. Any other TTL than ``1h``
    means five minutes.

    The marks stand on the last messages that can carry one. If the newest step added more blocks
    than the provider looks back, one of them goes to where the previous request ended instead:
    that is where its cache entry lies.
    """
    messages = list(api_messages)
    mark = {"type": "ephemeral", "ttl": "1h"} if cache_ttl == "1h" else {"type": "ephemeral"}
    left, first = _MAX_MARKS, 0
    if messages and messages[0].get("role") == "system":
        first = 1
        marked = _marked(messages[0], mark, native_anthropic)
        if marked is not None:
            messages[0] = marked
        left -= 1
    previous_end = _previous_end(messages, first)
    at = len(messages) - 1
    while at >= first and left:
        if left == 1 and previous_end is not None and at > previous_end:
            at = previous_end
        marked = _marked(messages[at], mark, native_anthropic)
        if marked is not None:
            messages[at] = marked
            left -= 1
        at -= 1
    return messages


def _previous_end(messages: Sequence[Any], first: int) -> int | None:
    """Where the previous request ended, if that is out of reach from the end of this one."""
    blocks = 0
    for at in range(len(messages) - 1, first, -1):
        blocks += _block_count(messages[at])
        # The previous request ended right before the newest answer.
        if messages[at].get("role") == "assistant":
            return at - 1 if blocks > LOOK_BACK_BLOCKS else None
    return None


def _block_count(message: Marked) -> int:
    raw = message.get("anthropic_content_blocks")
    if raw:
        return len(raw)
    content = message.get("content")
    size = len(content) if isinstance(content, list) else 1 if content else 0
    return size + len(message.get("tool_calls") or ())


def _marked(message: Marked, mark: dict[str, str], native: bool) -> Marked | None:
    """A copy with a mark, or None if this message can not carry one."""
    content = message.get("content")
    role = message.get("role")
    if native and role == "tool":
        return {**message, "cache_control": mark}
    if isinstance(content, list):
        return _marked_list(message, content, mark)
    if native and role == "assistant" and message.get("tool_calls"):
        return {**message, "cache_control": mark}
    if isinstance(content, str) and content.strip():
        return {
            **message,
            "content": [{"type": "text", "text": content, "cache_control": mark}],
        }
    return None


def _marked_list(message: Marked, content: list[Any], mark: dict[str, str]) -> Marked | None:
    for at in range(len(content) - 1, -1, -1):
        block = content[at]
        if not isinstance(block, dict) or block.get("type") in _THINKING:
            continue
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            continue
        marked = list(content)
        marked[at] = {**block, "cache_control": mark}
        return {**message, "content": marked}
    return None
