"""Owns where plugin code runs: the conversation that it is called for, as it may be told of it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from agent.auxiliary_client import charged_to
from agent.errors import StoreError
from agent.sessions import Conversation
from agent.turn_companions import TurnFacts
from gateway.session_context import session_bound

MAX_CONVERSATIONS = 2000

LookUp = Callable[[str], Awaitable[Conversation | None]]


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """One conversation, at one turn. What is not known is ""."""

    conversation_id: str = ""
    session_id: str = ""
    session_key: str = ""
    platform: str = ""
    chat_id: str = ""
    chat_name: str = ""
    thread_id: str = ""
    user_id: str = ""
    user_name: str = ""

    @contextmanager
    def bound(self) -> Iterator[None]:
        """To be entered on the thread of the call: `get_session_env` says where it runs.

        What it asks the side model is on the conversation's account.
        """
        paying = charged_to(self.conversation_id) if self.conversation_id else nullcontext()
        with (
            paying,
            session_bound(
                session_id=self.session_id,
                session_key=self.session_key,
                platform=self.platform,
                chat_id=self.chat_id,
                chat_name=self.chat_name,
                thread_id=self.thread_id,
                user_id=self.user_id,
                user_name=self.user_name,
            ),
        ):
            yield


def of_turn(facts: TurnFacts) -> Whereabouts:
    """Where this turn takes place."""
    return Whereabouts(
        facts.conversation_id,
        facts.session_id,
        facts.session_key,
        facts.platform,
        facts.chat_id,
        facts.chat_name,
        facts.thread_id,
        facts.user_id,
        facts.user_name,
    )


class Places:
    """Where the turns of late took place: tools are told the id of their conversation only."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        """``look_up``: asked of turns that nobody noted, such as one that a restart resumes."""
        self._look_up = look_up
        self._by_conversation: OrderedDict[str, Whereabouts] = OrderedDict()

    def note(self, where: Whereabouts) -> None:
        """A turn takes place here."""
        if not where.conversation_id:
            return
        self._by_conversation[where.conversation_id] = where
        self._by_conversation.move_to_end(where.conversation_id)
        while len(self._by_conversation) > MAX_CONVERSATIONS:
            self._by_conversation.popitem(last=False)

    async def of(self, conversation_id: str) -> Whereabouts:
        """As far as is known."""
        noted = self._by_conversation.get(conversation_id)
        if noted is not None or self._look_up is None:
            return noted or Whereabouts(conversation_id)
        try:
            found = await self._look_up(conversation_id)
        except StoreError:
            found = None
        if found is None:
            return Whereabouts(conversation_id)
        key = found.session_key
        where = Whereabouts(conversation_id, found.tip_session_id, key, platform_of(key))
        self.note(where)
        return where


def platform_of(session_key: str) -> str:
    """The platform that a key begins with; "": it is none of a chat."""
    try:
        return str(json.loads(session_key)[0])
    except (ValueError, LookupError, TypeError):
        return ""
