"""Owns the way of a whole conversation into a store, and what of it can be found again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from agent.messages import Draft, Message, Row, public, text_of
from agent.model_metadata import estimate_messages_tokens_rough
from agent.sessions import LoadedSession, SearchScope, SessionPrefix, TurnOpening, TurnTicket
from agent.store_ports import Store

KEY = "test-key"
OWNER = "test:1"
PREFIX = SessionPrefix("test", "m", "You are an assistant.")


async def open_turn(store: Store, text: Any) -> TurnTicket:
    """A turn of the conversation of these tests, begun with what a person said."""
    said = Draft(cast(Message, {"role": "user", "content": text}))
    return await store.begin_turn(TurnOpening(KEY, OWNER, (), said, PREFIX))


async def stored(store: Store, messages: Sequence[Message]) -> LoadedSession:
    """The session that holds these messages, each as one row; the first one may be anybody's."""
    drafts = [Draft(public(m)) for m in messages if m["role"] != "system"]
    ticket = await store.begin_turn(TurnOpening(KEY, OWNER, (), drafts[0], PREFIX))
    if drafts[1:]:
        await store.append(ticket, ticket.session_id, drafts[1:])
    await store.finish_turn(ticket, ticket.session_id, "done")
    return await store.load(ticket.session_id)


async def originals(store: Store, session_id: str) -> list[Row]:
    """All that was ever said in a lineage, from its root to its tip; no copies, no stand-ins."""
    rows: list[Row] = []
    for session in await store.lineage(session_id):
        rows.extend(await store.all_rows(session.id))
    return [row for row in rows if row.origin_id is None and row.kind is None]


async def recalled(store: Store, text: str, conversation_id: str) -> bool:
    """Does a search lead to an original that holds these words?

    In the phrasings of somebody who remembers all of it, or only its number or name.
    """
    scope = SearchScope(conversation_id=conversation_id)
    telling = max(re.findall(r"[\w.,/-]*\d[\w.,/-]*", text) or [text], key=len)
    for query in dict.fromkeys((text, telling)):
        for hit in await store.search(query, scope, limit=10):
            rows = await store.window(hit.message_id, before=0, after=0)
            if any(text in all_text(row.message) for row in rows):
                return True
    return False


def all_text(message: Message) -> str:
    """All that a message says, the arguments of its calls included."""
    calls = (call["function"]["arguments"] for call in message.get("tool_calls") or ())
    return "\n".join((text_of(message["content"]), *calls))


def context_text(messages: Iterable[Message]) -> str:
    """All that a list says."""
    return "\n".join(map(all_text, messages))


def size_of(loaded: LoadedSession) -> int:
    """Estimated tokens of a session's messages."""
    return estimate_messages_tokens_rough(row.message for row in loaded.rows)
