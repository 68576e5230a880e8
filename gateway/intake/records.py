"""Owns the inbox row of a message: all that its turn needs, also after a crash."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from agent.mail import Address, InboxRecord, OutboxDraft, OutboxKind
from gateway.intake.keys import key_for, owner_of
from gateway.platforms.contract import Attachment, InboundMessage

MESSAGE = "message"
COMMAND = "command"
_SELDOM = (
    "chat_name", "parent_chat_id", "quoted_text", "forwarded_from", "album_id", "text_limit",
    "interaction",
)  # fmt: skip
"""Fields of a message that are None in most of them."""


def record_of(
    message: InboundMessage, *, kind: str, group_sessions_per_user: bool, now: float
) -> InboxRecord:
    """The row to be stored for a message that passed the gate."""
    return InboxRecord(
        address=Address(
            message.platform,
            message.bot_id,
            message.chat_id,
            message.thread_id,
            reply_to_message_id=message.message_id or None,
        ),
        message_id=message.message_id,
        kind=kind,
        session_key=key_for(message, group_sessions_per_user=group_sessions_per_user),
        owner=owner_of(message),
        text=message.text,
        received_at=now,
        sent_at=message.sent_at,
        update_id=message.update_id,
        payload=_payload(message, group_sessions_per_user=group_sessions_per_user),
    )


def _payload(message: InboundMessage, *, group_sessions_per_user: bool) -> dict[str, Any]:
    """The rest of the message. What says nothing is left out: most of it, in most messages."""
    payload: dict[str, Any] = {
        "chat_kind": message.chat_kind,
        "sender_id": message.sender_id,
        "sender_name": message.sender_name,
    }
    for name in _SELDOM:
        value = getattr(message, name)
        if value is not None:
            payload[name] = value
    if message.sender_role_ids:
        payload["sender_role_ids"] = sorted(message.sender_role_ids)
    if message.attachments:
        payload["attachments"] = [asdict(attachment) for attachment in message.attachments]
    if message.chat_kind == "group" and not group_sessions_per_user:
        payload["shared"] = True
    return payload


def message_of(record: InboxRecord) -> InboundMessage:
    """The message behind a row, for the gate to be asked again after a restart."""
    payload = record.payload
    sender = payload.get("sender_id")
    return InboundMessage(
        platform=record.address.platform,
        bot_id=record.address.bot_id,
        chat_id=record.address.chat_id,
        chat_kind="direct" if payload.get("chat_kind") == "direct" else "group",
        message_id=record.message_id,
        sender_id=str(sender) if sender is not None else record.owner.partition(":")[2],
        sender_name=str(payload.get("sender_name") or ""),
        text=record.text,
        sent_at=record.sent_at,
        thread_id=record.address.thread_id,
        chat_name=payload.get("chat_name"),
        parent_chat_id=payload.get("parent_chat_id"),
        update_id=record.update_id,
        sender_role_ids=frozenset(str(r) for r in payload.get("sender_role_ids") or ()),
        quoted_text=payload.get("quoted_text"),
        forwarded_from=payload.get("forwarded_from"),
        attachments=attachments_of(record),
        album_id=payload.get("album_id"),
        text_limit=payload.get("text_limit"),
        interaction=payload.get("interaction"),
    )


def answer_to(record: InboxRecord, text: str, kind: OutboxKind) -> OutboxDraft:
    """What is owed to whoever said this, in the way in which it was said."""
    return OutboxDraft(record.address, text, kind, interaction=record.payload.get("interaction"))


def refused(record: InboxRecord, why: str, kept_chars: int) -> InboxRecord:
    """The row of a message that is not taken: so much of it is kept, and the words for it."""
    return replace(
        record, text=record.text[:kept_chars], payload={**record.payload, "refusal": why}
    )


def refusal_of(record: InboxRecord) -> str | None:
    """Why this message is not taken, in words; None: it is."""
    return record.payload.get("refusal")


def attachments_of(record: InboxRecord) -> tuple[Attachment, ...]:
    """The files that hang on a row's message."""
    return tuple(Attachment(**fields) for fields in record.payload.get("attachments") or ())


def is_shared(record: InboxRecord) -> bool:
    """Do several people talk in this row's conversation?"""
    return record.payload.get("shared") is True
