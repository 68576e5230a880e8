"""Owns what a message says: its text, its identity, what of it a summary may know. Pure."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent.redact import redact_sensitive_text

Message = dict[str, Any]


def public(message: Mapping[str, Any]) -> Message:
    """The message itself, without the host's bookkeeping."""
    return {key: value for key, value in message.items() if not key.startswith("_")}


def stored_form(message: Mapping[str, Any]) -> str:
    """A message as it is kept: JSON in which every character survives, half ones too."""
    return json.dumps(public(message), ensure_ascii=True, separators=(",", ":"))


def digest(*parts: str) -> str:
    """A name made of contents."""
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def sameness(message: Mapping[str, Any]) -> str:
    """Names what a message says, whatever else it carries (thinking, time, cache marks)."""
    said = (message.get("role"), text_of(message), _calls(message), message.get("tool_call_id"))
    return digest(json.dumps(said, ensure_ascii=True, default=str))


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message; what is no text is named."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(part.get("text") or "") if part.get("type") == "text" else f"[{part.get('type')}]"
        for part in content
        if isinstance(part, Mapping)
    )


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            found.append(
                (str(call.get("id")), str(function.get("name")), str(function.get("arguments")))
            )
    return found


def calls_to(prefix: str, message: Mapping[str, Any]) -> set[str]:
    """The ids of its calls of tools whose names begin so."""
    return {call_id for call_id, name, _ in _calls(message) if name.startswith(prefix)}


def readable(message: Mapping[str, Any], *, without: str = "") -> str:
    """All that a message says, its calls with readable arguments.

    ``without``: calls of tools whose names begin so are left out.
    """
    parts = [text_of(message)]
    for _, name, arguments in _calls(message):
        if without and name.startswith(without):
            continue
        with contextlib.suppress(ValueError, RecursionError):  # then as it is
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
        parts.append(f"-> calls {name} with {arguments}")
    return "\n".join(part for part in parts if part)


def transcript(messages: Sequence[Mapping[str, Any]], chars_each: int) -> str:
    """Messages as a summary may read them: secrets out, long ones cut head and tail."""
    blocks = []
    for message in messages:
        said = redact_sensitive_text(readable(message))  # before the cut: half a key is a leak
        blocks.append(f"[{str(message.get('role', '?')).upper()}]\n{shortened(said, chars_each)}")
    return "\n\n".join(blocks)


def shortened(text: str, chars: int) -> str:
    """The text, or its beginning and its end with a mark between them."""
    if len(text) <= chars:
        return text
    mark = f" [… {len(text) - chars} characters …] "
    room = chars - len(mark)
    if room < 8:
        return text[:chars]
    head = room * 2 // 3
    return f"{text[:head]}{mark}{text[len(text) - (room - head) :]}"
