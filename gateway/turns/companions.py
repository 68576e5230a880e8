"""Owns the companions of turns: asked in order, their words fenced, their troubles held off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

from agent.brought import fenced
from agent.errors import PosthouseError, StoreError
from agent.mail import InboxItem
from agent.messages import Row, is_real_user, text_of
from agent.sessions import Session
from agent.store_ports import SessionStore
from agent.turn_companions import Boundary, History, TurnCompanion, TurnFacts
from gateway.intake.keys import place_for
from gateway.intake.records import COMMAND
from gateway.intake.wording import readable, set_off
from gateway.lanes.joining import joined_text
from gateway.turns.task import PrefixFor, Task

log = logging.getLogger(__name__)

MAX_BROUGHT_CHARS = 24_000
"""Of one companion: each has its own, smaller bound; this one holds whatever they do."""
_ENDED_ON_PURPOSE = ("reset", "idle", "daily")


class Companions:
    """All that ride along, in their order."""

    def __init__(
        self, each: Sequence[TurnCompanion], sessions: SessionStore, prefix_for: PrefixFor
    ) -> None:
        self._each = list(each)
        self._sessions = sessions
        self._prefix_for = prefix_for

    @asynccontextmanager
    async def asked(
        self, items: Sequence[InboxItem], turn_id: str, *, again: bool = False
    ) -> AsyncIterator[asyncio.Future[str]]:
        """What they bring for these rows, looked for beside whatever is done meanwhile.

        ``turn_id``: of the turn that they are to begin.
        ``again``: the rows are a /retry, the message meant is the last one of the list.
        """
        if not self._each:
            nothing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            nothing.set_result("")
            yield nothing
            return
        asking = asyncio.ensure_future(self._before(items, turn_id, again))
        try:
            yield asking
        finally:
            asking.cancel()
            await asyncio.wait({asking})

    async def _before(self, items: Sequence[InboxItem], turn_id: str, again: bool) -> str:
        try:
            session = await self._session(items)
            facts = self._facts(items, session, turn_id)
            history = _Listed(self._sessions, session.id if session else "", before_last=again)
            if again:
                facts = replace(facts, user_text=await history.asked_again(), is_retry=True)
        except StoreError:
            log.warning("companions were not asked: the store does not answer", exc_info=True)
            return ""
        fences = [await self._of_one(one, facts, history.read) for one in self._each]
        return "".join(fences)

    async def _of_one(self, one: TurnCompanion, facts: TurnFacts, history: History) -> str:
        try:
            text = (await one.before(facts, history))[:MAX_BROUGHT_CHARS]
        except StoreError:
            log.warning("a companion did not get at the store", extra={"companion": one.name})
            return ""
        except Exception:  # the supervised border: a turn goes on without it
            log.exception("a companion failed", extra={"companion": one.name})
            return ""
        return fenced(one.name, set_off(readable(text))) if text.strip() else ""

    async def over(self, task: Task, session_id: str, answer: str, *, stopped: bool) -> None:
        """A turn has ended and is stored."""
        if not self._each:
            return
        try:
            session = await self._sessions.tip(session_id)
            facts = self._facts(task.items, session, task.ticket.turn_id)
            listed = _Listed(self._sessions, session.id)
            if task.items[0].record.kind == COMMAND:  # a /retry
                said = await listed.said_in(task.ticket.user_row_id)
                facts = replace(facts, user_text=said, is_retry=True)
        except PosthouseError:
            log.warning("companions were not told of an answer", exc_info=True)
            return
        for one in self._each:
            try:
                await one.after(
                    facts, answer, listed.read, completed=bool(answer), interrupted=stopped
                )
            except Exception:  # the supervised border
                log.exception("a companion failed", extra={"companion": one.name})

    async def crossed(self, boundary: Boundary) -> None:
        """A person has led a place to another list, or back in one."""
        history = _Listed(self._sessions, boundary.old_session_id).read
        for one in self._each:
            try:
                await one.crossed(boundary, history)
            except Exception:  # the supervised border
                log.exception("a companion failed", extra={"companion": one.name})

    async def _session(self, items: Sequence[InboxItem]) -> Session | None:
        """Where the turn will begin; None: the conversation does not exist yet."""
        record = items[0].record
        conversation = await self._sessions.conversation_for_key(record.session_key)
        if conversation is not None:
            tip = await self._sessions.session(conversation.tip_session_id)
            if tip.ended_at is None or tip.end_reason not in _ENDED_ON_PURPOSE:
                return tip
        if not any(one.needs_session for one in self._each):
            return None
        return await self._sessions.start_conversation(
            record.session_key, record.owner, self._prefix_for(record.address.platform)
        )

    def _facts(
        self, items: Sequence[InboxItem], session: Session | None, turn_id: str
    ) -> TurnFacts:
        record = items[-1].record
        address, payload = record.address, record.payload
        direct = payload.get("chat_kind") == "direct"
        kind: Literal["dm", "group", "thread"] = "dm" if direct else "group"
        return TurnFacts(
            turn_id=turn_id,
            conversation_id=session.conversation_id if session else "",
            session_id=session.id if session else "",
            title=(session.title or "") if session else "",
            session_key=record.session_key,
            owner=record.owner,
            place=place_for(record.owner, record.session_key, direct=direct),
            platform=address.platform,
            model=session.prefix.model if session else self._prefix_for(address.platform).model,
            user_text=joined_text(items),
            revision=session.revision if session else 0,
            is_first_turn=session is None
            or (session.message_count == 0 and session.parent_session_id is None),
            user_id=str(payload.get("sender_id") or record.owner.partition(":")[2]),
            user_name=str(payload.get("sender_name") or ""),
            chat_id=address.chat_id,
            chat_name=str(payload.get("chat_name") or ""),
            chat_type="thread" if address.thread_id and not direct else kind,
            thread_id=address.thread_id or "",
        )


class _Listed:
    """The rows of a session, read once, when somebody asks for them."""

    def __init__(
        self, sessions: SessionStore, session_id: str, *, before_last: bool = False
    ) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._before_last = before_last
        self._rows: Sequence[Row] | None = None

    async def _all(self) -> Sequence[Row]:
        if self._rows is None:
            loaded = self._session_id and await self._sessions.load(self._session_id)
            self._rows = loaded.rows if loaded else ()
        return self._rows

    async def read(self) -> Sequence[Row]:
        rows = await self._all()
        return rows[: _last_said(rows)] if self._before_last else rows

    async def said_in(self, row_id: int) -> str:
        """What a person said in this row; "": it is not in the list any more."""
        rows = await self._all()
        said = [text_of(row.message["content"]) for row in rows if row.root_id == row_id]
        return said[0] if said else ""

    async def asked_again(self) -> str:
        """The last message of a person, which a retry asks again."""
        rows = await self._all()
        said = rows[_last_said(rows) :]
        return text_of(said[0].message["content"]) if said else ""


def _last_said(rows: Sequence[Row]) -> int:
    """The place of the last message of a person."""
    places = [i for i, row in enumerate(rows) if is_real_user(row.message, row.kind)]
    return places[-1] if places else len(rows)
