"""Owns the Markdown form of a conversation: for people to read; nothing reads it back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from agent.attachments import picture_name
from agent.counting import counted
from agent.exchange.records import Portable, PortableMessage, PortableSession
from agent.messages import text_of

_FENCES = re.compile(r"^\s*(`{3,}|~{3,})", re.MULTILINE)
_HEADING = re.compile(r"^( {0,3})(#{1,6}[ \t])", re.MULTILINE)
_NAMES = {"user": "User", "assistant": "Assistant", "tool": "Tool result", "system": "System"}
_KINDS = {
    "summary": "Summary of what came before",
    "micro": "Digest of earlier replies",
    "note": "Note",
    "notice": "Notice",
}


def write_markdown(portable: Portable, *, zone: tzinfo = UTC) -> Iterator[str]:
    """The pieces of a document: every message once, where it was said; summaries where they stand.

    Copies behind a compression are left out, and so are stand-ins for shortened results.
    """
    title = next((s.title for s in reversed(portable.sessions) if s.title), None)
    yield f"# {title or portable.conversation_id}\n\n"
    shown = sum(1 for s in portable.sessions for m in s.messages if _is_shown(m))
    yield (
        f"Conversation `{portable.conversation_id}` of `{portable.owner}`, begun "
        f"{_when(portable.created_at, zone)}; "
        f"{counted(len(portable.sessions), 'session')}, {counted(shown, 'message')}.\n\n"
    )
    for number, session in enumerate(portable.sessions, start=1):
        yield _session_head(number, session, zone)
        for message in session.messages:
            if _is_shown(message):
                yield _message(message, zone)


def _is_shown(message: PortableMessage) -> bool:
    if message.kind in ("summary", "micro"):
        return message.origin is None
    return message.origin is None and message.kind != "stub"


def _session_head(number: int, session: PortableSession, zone: tzinfo) -> str:
    end = (
        "goes on"
        if session.ended_at is None
        else f"ended {_when(session.ended_at, zone)} ({session.end_reason or 'cut off'})"
    )
    return (
        f"## Session {number}\n\n`{session.id}`, {session.model}, "
        f"begun {_when(session.started_at, zone)}, {end}.\n\n"
    )


def _message(message: PortableMessage, zone: tzinfo) -> str:
    name = _KINDS.get(message.kind or "", _NAMES[message.role])
    if message.tool_name and message.role == "tool":
        name += f" of {message.tool_name}"
    undone = "" if message.active or message.compacted else " (taken back)"
    head = f"### {name}{undone} · {_when(message.created_at, zone)}\n\n"
    text = text_of(message.content)
    pictures = (
        [part for part in message.content if part.get("type") != "text"]
        if isinstance(message.content, list)
        else []
    )
    parts = [_fenced(text) if message.role == "tool" else _prose(text)] if text.strip() else []
    if pictures:
        count = len(pictures)
        names = [f"`{name}`" for name in map(picture_name, pictures) if name is not None]
        named = f": {', '.join(names)} in `attachments`" if names else ""
        parts.append(f"*({count} {'picture' if count == 1 else 'pictures'}{named})*")
    parts += [
        f"Calls `{call['function']['name']}`:\n\n{_fenced(call['function']['arguments'], 'json')}"
        for call in message.tool_calls
    ]
    return head + "\n\n".join(parts or ["*(nothing)*"]) + "\n\n"


def _prose(text: str) -> str:
    """Markdown of the message's own, with headings that do not pass for ours."""
    if len(_FENCES.findall(text)) % 2:
        return _fenced(text)  # an open fence would swallow everything behind it
    return _HEADING.sub(r"\1\\\2", text)


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(m[1]) for m in _FENCES.finditer(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _when(at: float, zone: tzinfo) -> str:
    return f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M}"
