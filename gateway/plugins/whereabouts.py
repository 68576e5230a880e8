"""Owns where plugin code runs: the conversation that it is called for, as it may be told of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from agent.auxiliary_client import charged_to
from agent.turn_companions import TurnFacts
from gateway.session_context import session_bound

MAX_CONVERSATIONS = 2000


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

    def __init__(self) -> None:
        self._by_conversation: OrderedDict[str, Whereabouts] = OrderedDict()

    def note(self, where: Whereabouts) -> None:
        """A turn takes place here."""
        if not where.conversation_id:
            return
        self._by_conversation[where.conversation_id] = where
        self._by_conversation.move_to_end(where.conversation_id)
        while len(self._by_conversation) > MAX_CONVERSATIONS:
            self._by_conversation.popitem(last=False)

    def of(self, conversation_id: str) -> Whereabouts:
        """As far as is known."""
        return self._by_conversation.get(conversation_id) or Whereabouts(conversation_id)
