"""Owns sessions and messages as objects of an export, written and read. Pure.

What is read may be anything: whatever does not fit is named, its line by whoever reads lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any, cast, get_args

from agent.exchange.fields import (
    count_in,
    id_in,
    is_count,
    is_part,
    map_in,
    optional_text_in,
    refuse,
    session_key_in,
    text_in,
    time_in,
)
from agent.exchange.records import (
    LATEST_TIME,
    Portable,
    PortableAnchor,
    PortableList,
    PortableMessage,
    PortableSession,
)
from agent.messages import Content, MessageKind, Role
from agent.sessions import CompressionState, EndReason

_ROLES = get_args(Role)
_KINDS = get_args(MessageKind)
_END_REASONS = get_args(EndReason)


# --- writing ------------------------------------------------------------------------------------


def conversation_object(portable: Portable) -> dict[str, Any]:
    """Its head; its sessions follow."""
    return {
        "type": "conversation",
        "id": portable.conversation_id,
        "owner": portable.owner,
        "session_key": portable.session_key,
        "created_at": portable.created_at,
    }


def session_object(session: PortableSession) -> dict[str, Any]:
    """Its head; its messages follow."""
    anchor = session.anchor
    return {
        "type": "session",
        "id": session.id,
        "revision": session.revision,
        "source": session.source,
        "model": session.model,
        "model_config": session.model_config,
        "system_prompt": session.system_prompt,
        "tools": list(session.tools),
        "title": session.title,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "last_seq": session.last_seq,
        "anchor": [anchor.prompt_tokens, anchor.output_tokens, anchor.through] if anchor else None,
        "compression": session.compression,
        "manifest": session.manifest,
        "replaced": [
            [one.revision, one.made_at, one.carried, list(one.messages)] for one in session.replaced
        ],
    }


def message_object(message: PortableMessage) -> dict[str, Any]:
    """Without what is as it mostly is: files are read by people too."""
    value: dict[str, Any] = {
        "type": "message",
        "n": message.number,
        "seq": message.seq,
        "at": message.created_at,
        "role": message.role,
        "content": message.content,
    }
    optional = {
        "wire_content": message.wire_content,
        "tool_calls": list(message.tool_calls) or None,
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name,
        "blocks": list(message.blocks) or None,
        "kind": message.kind,
        "origin": message.origin,
    }
    value.update({key: item for key, item in optional.items() if item is not None})
    if not message.active:
        value["left_list"] = "compacted" if message.compacted else "undone"
    return value


# --- reading ------------------------------------------------------------------------------------


def read_conversation(value: dict[str, Any], sessions: Sequence[PortableSession]) -> Portable:
    """With the sessions that followed it.

    Raises:
        BrokenObject
    """
    if not sessions:
        refuse("follows a conversation without a session")
    return Portable(
        conversation_id=id_in(value, "id"),
        owner=text_in(value, "owner"),
        session_key=session_key_in(value),
        created_at=time_in(value, "created_at"),
        sessions=tuple(sessions),
    )


def read_session(
    value: dict[str, Any], messages: Sequence[PortableMessage], next_number: int
) -> PortableSession:
    """With the messages that followed it; ``next_number``: of the message after these.

    Raises:
        BrokenObject
    """
    reason = value.get("end_reason")
    if reason is not None and reason not in _END_REASONS:
        refuse(f"belongs to a session with the unknown end_reason {reason!r:.40}")
    ended_at = None if value.get("ended_at") is None else time_in(value, "ended_at")
    if reason is not None and ended_at is None:
        refuse("belongs to a session with an end_reason and no end")
    title = value.get("title")
    return PortableSession(
        id=id_in(value, "id"),
        revision=count_in(value, "revision"),
        source=text_in(value, "source"),
        model=text_in(value, "model"),
        model_config=map_in(value, "model_config"),
        system_prompt=text_in(value, "system_prompt"),
        tools=tuple(_tools(value)),
        title=None if title is None else text_in(value, "title"),
        started_at=time_in(value, "started_at"),
        ended_at=ended_at,
        end_reason=reason,
        last_seq=count_in(value, "last_seq"),
        anchor=_anchor(value),
        compression=_compression(value),
        manifest=None if value.get("manifest") is None else map_in(value, "manifest"),
        messages=tuple(messages),
        replaced=tuple(_replaced(value, {message.number for message in messages}, next_number)),
    )


def _anchor(value: dict[str, Any]) -> PortableAnchor | None:
    anchor = value.get("anchor")
    if anchor is None:
        return None
    if not (isinstance(anchor, list) and len(anchor) == 3 and all(map(is_count, anchor))):
        refuse("belongs to a session with a broken anchor")
    return PortableAnchor(*anchor)


def _replaced(value: dict[str, Any], own: set[int], next_number: int) -> Iterator[PortableList]:
    last = -1
    lists = value.get("replaced", [])
    for one in lists if isinstance(lists, list) else [None]:
        match one:
            case [revision, float() | int() as made_at, carried, [*numbers]] if (
                all(map(is_count, (revision, carried, *numbers)))
                and last < revision
                and 0 <= made_at < LATEST_TIME
                and carried < next_number
                and own.issuperset(numbers)
                and len(set(numbers)) == len(numbers)
            ):
                last = revision
                yield PortableList(revision, float(made_at), carried, tuple(numbers))
            case _:
                refuse("belongs to a session with a broken replaced list")


def _compression(value: dict[str, Any]) -> dict[str, Any]:
    """What compaction remembers; fields of another version are taken along unread."""
    found = map_in(value, "compression")
    for field in fields(CompressionState):
        expected = (int, float) if isinstance(field.default, float) else type(field.default)
        if field.name in found and not isinstance(found[field.name], expected):
            refuse(f"belongs to a session whose compression.{field.name} is broken")
    return found


def _tools(value: dict[str, Any]) -> list[dict[str, Any]]:
    tools = value.get("tools")
    if not isinstance(tools, list):
        refuse("belongs to a session without tools")
    for tool in tools:
        if not (
            isinstance(tool, dict)
            and tool.keys() == {"name", "description", "parameters"}
            and isinstance(tool["name"], str)
            and isinstance(tool["description"], str)
            and isinstance(tool["parameters"], dict)
        ):
            refuse("belongs to a session with a broken tool")
    return tools


def read_message(value: dict[str, Any], due: int, copies: Collection[int]) -> PortableMessage:
    """The message that has to have number ``due``; ``copies``: those before it with an origin.

    Raises:
        BrokenObject
    """
    number = count_in(value, "n")
    if number != due:
        refuse(f"is message {number} where {due} was due")
    role, kind, origin = value.get("role"), value.get("kind"), value.get("origin")
    if role not in _ROLES:
        refuse(f"has the unknown role {role!r:.40}")
    if kind is not None and kind not in _KINDS:
        refuse(f"has the unknown kind {kind!r:.40}")
    if origin is not None and not (is_count(origin) and 0 < origin < number):
        refuse("has an origin that does not stand before it")
    if origin in copies:
        refuse("has an origin that is a copy itself")
    left = value.get("left_list")
    if left not in (None, "compacted", "undone"):
        refuse("left the list in an unknown way")
    return PortableMessage(
        number=number,
        seq=count_in(value, "seq"),
        active=left is None,
        compacted=left == "compacted",
        created_at=time_in(value, "at"),
        role=cast(Role, role),
        content=_content(value.get("content")),
        wire_content=_content(value.get("wire_content")),
        tool_calls=tuple(_calls(value)),
        tool_call_id=optional_text_in(value, "tool_call_id"),
        tool_name=optional_text_in(value, "tool_name"),
        blocks=tuple(_blocks(value)),
        kind=kind,
        origin=origin,
    )


def _content(content: Any) -> Content:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(map(is_part, content)):
        return content
    refuse("has content of an unknown shape")


def _calls(value: dict[str, Any]) -> list[Any]:
    calls = value.get("tool_calls", [])
    if not isinstance(calls, list):
        refuse("has tool_calls of an unknown shape")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not (
            isinstance(function, dict)
            and isinstance(call.get("id"), str)
            and isinstance(function.get("name"), str)
            and isinstance(function.get("arguments"), str)
        ):
            refuse("has a broken tool call")
    return calls


def _blocks(value: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = value.get("blocks", [])
    if not isinstance(blocks, list) or not all(map(is_part, blocks)):
        refuse("has blocks of an unknown shape")
    return blocks
