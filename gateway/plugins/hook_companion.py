"""Owns the hooks around a turn: what they add to a message, what they are told of answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.ports import Clock
from agent.turn_companions import Boundary, History, TurnFacts
from gateway.intake.keyed_locks import KeyedLocks
from gateway.plugins.hook_names import (
    POST_LLM_CALL,
    PRE_LLM_CALL,
    SESSION_END,
    SESSION_FINALIZE,
    SESSION_RESET,
    SESSION_START,
)
from gateway.plugins.hooks import HookDispatch, Occasion
from gateway.plugins.whereabouts import Places, Whereabouts, of_turn, platform_of
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

PRE_SECONDS, PRE_ALL_SECONDS = 3.0, 5.0
"""For one hook before the model is asked, and for all: a person waits meanwhile."""
POST_SECONDS, POST_ALL_SECONDS = 10.0, 30.0
"""For one hook that is told of what has happened, and for all: nobody waits."""
MAX_CHARS = 8_000
"""Of what one hook adds."""
MAX_BEHIND = 20
"""So many turns of one conversation may wait to be told of; more are let go."""
_CLOSE_SECONDS = 2.0
_REASONS = {"reset": "new_session", "resume": "resume", "branch": "branch"}


class HookCompanion:
    """`agent.turn_companions.TurnCompanion` for hooks of plugins."""

    name = "notes by plugins"

    def __init__(
        self,
        hooks: HookDispatch,
        places: Places,
        clock: Clock,
    ) -> None:
        self.engine_of: Callable[[str], Any] = lambda conversation_id: None
        """The plugin's context engine that a conversation has by now; None: it has none."""
        self._hooks = hooks
        self._places = places
        self._tasks = TaskOwner(clock)
        self._order = KeyedLocks()
        self._behind: dict[str, int] = {}

    @property
    def needs_session(self) -> bool:
        """They are told the session's id."""
        return self._hooks.has(PRE_LLM_CALL, SESSION_START)

    async def before(self, facts: TurnFacts, history: History) -> str:
        where = of_turn(facts)
        self._places.note(where)
        occasions = []
        if facts.is_first_turn and not facts.is_retry:
            occasions.append(Occasion(SESSION_START, self._common(facts), where))
        payload = {
            **self._common(facts),
            "task_id": facts.conversation_id,
            "turn_id": facts.turn_id,
            "user_message": facts.user_text,
            "is_first_turn": facts.is_first_turn,
            "sender_id": facts.user_id,
        }
        occasions.append(Occasion(PRE_LLM_CALL, payload, where, history))
        given = await self._hooks.call(occasions, PRE_SECONDS, PRE_ALL_SECONDS)
        texts = (_text_in(result) for name, result in given if name == PRE_LLM_CALL)
        return "\n\n".join(text for text in texts if text)

    async def after(
        self,
        facts: TurnFacts,
        answer: str,
        history: History,
        *,
        completed: bool,
        interrupted: bool,
    ) -> None:
        where = of_turn(facts)
        self._places.note(where)
        turn = {**self._common(facts), "task_id": facts.conversation_id, "turn_id": facts.turn_id}
        said = {"user_message": facts.user_text, "assistant_response": answer}
        ending = {"completed": completed, "interrupted": interrupted}
        occasions = [Occasion(SESSION_END, {**turn, **ending}, where)]
        if completed and answer:
            occasions.insert(0, Occasion(POST_LLM_CALL, {**turn, **said}, where, history))
        self._later(facts.session_key, occasions)

    async def crossed(self, boundary: Boundary, history: History) -> None:
        reason = _REASONS.get(boundary.reason)
        if reason is None:
            return  # the session is the same one
        platform = platform_of(boundary.session_key)
        both = {
            "old_session_id": boundary.old_session_id or None,
            "new_session_id": boundary.new_session_id or None,
            "platform": platform,
            "reason": reason,
            "conversation_id": boundary.session_key,
            "gateway_session_key": boundary.session_key,
        }
        occasions = []
        for name, conversation_id, session_id in (
            (SESSION_FINALIZE, boundary.old_conversation_id, boundary.old_session_id),
            (SESSION_RESET, boundary.new_conversation_id, boundary.new_session_id),
        ):
            if session_id:
                where = Whereabouts(conversation_id, session_id, boundary.session_key, platform)
                about = {
                    "session_id": session_id,
                    "context_compressor": self.engine_of(conversation_id),
                }
                occasions.append(Occasion(name, {**both, **about}, where))
        self._later(boundary.session_key, occasions)

    async def close(self) -> None:
        """Let those that are being told end, for a moment."""
        await self._tasks.wait(_CLOSE_SECONDS)
        await self._tasks.cancel(_CLOSE_SECONDS)

    def _common(self, facts: TurnFacts) -> Mapping[str, Any]:
        return {
            "session_id": facts.session_id,
            "model": facts.model,
            "platform": facts.platform,
            # As engines are told of it; a plugin looks for its engine by this.
            "conversation_id": facts.session_key,
            "gateway_session_key": facts.session_key,
            "context_compressor": self.engine_of(facts.conversation_id),
        }

    def _later(self, key: str, occasions: Iterable[Occasion]) -> None:
        """Tell them, in the order of what happened in one conversation; nobody waits for it."""
        due = [occasion for occasion in occasions if self._hooks.any_for(occasion)]
        if not due:
            return
        if self._behind.get(key, 0) >= MAX_BEHIND:
            log.warning("hooks of plugins are too slow: they are not told of a turn")
            return
        self._behind[key] = self._behind.get(key, 0) + 1
        self._tasks.spawn(self._told(key, due), name="hooks of plugins")

    async def _told(self, key: str, occasions: Iterable[Occasion]) -> None:
        try:
            async with self._order.hold(key):
                await self._hooks.call(occasions, POST_SECONDS, POST_ALL_SECONDS)
        finally:
            self._behind[key] -= 1
            if not self._behind[key]:
                del self._behind[key]


def _text_in(given: Any) -> str:
    """What a hook adds: its text, or the one under ``context``."""
    text = given.get("context") if type(given) is dict else given
    return text.strip()[:MAX_CHARS] if type(text) is str else ""
