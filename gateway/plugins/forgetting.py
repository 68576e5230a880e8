"""Owns how plugins are asked to erase something: the running ones put aside, a fresh one asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent.errors import EngineError
from agent.forgetting import Answer, ClearedConversation, PluginAnswer
from agent.keywords import accepted
from gateway.plugins.engines import EngineSource
from gateway.plugins.names import BUILT_IN_ENGINE
from gateway.plugins.providers import ProviderSource

log = logging.getLogger(__name__)

FORGET_SECONDS = 60.0
"""What writes a file anew takes its time."""
FORGET_PERSON, FORGET_SESSIONS = "on_forget_person", "on_forget_sessions"
"""Methods of both contracts, which may be left out."""
PutAside = Callable[[Sequence[str], Sequence[str]], Awaitable[None]]
"""Of these conversations, and of whichever these keys lead to."""


class PluginForgetting:
    """`gateway.forgetting.leavings.Others`: the configured context engine and memory provider."""

    def __init__(
        self,
        engines: EngineSource,
        providers: ProviderSource,
        hermes_home: str,
        put_aside: PutAside | None = None,
    ) -> None:
        """``put_aside``: ends the instances that are at work there; None: there are none."""
        self._sources = (engines, providers)
        self._hermes_home = hermes_home
        self._put_aside = put_aside

    def can(self) -> list[str]:
        """Those that are able to, by name."""
        return [source.name for source in self._sources if source.has(FORGET_PERSON)]

    async def forget(
        self,
        owner: str,
        *,
        keys: Sequence[str],
        conversations: Sequence[str],
        sessions: Sequence[str],
    ) -> list[PluginAnswer]:
        """What became of it, for each that works. Never raises."""
        if self._put_aside is not None:
            await self._put_aside(conversations, keys)

        def ask(instance: Any) -> object:
            call = instance.on_forget_person
            keywords = {"conversation_ids": list(keys), "session_ids": list(sessions)}
            return call(owner, **accepted(call, {**keywords, "hermes_home": self._hermes_home}))

        return await self._asked(ask, FORGET_PERSON, "erase a person")

    async def forget_sessions(
        self, conversations: Sequence[ClearedConversation]
    ) -> list[PluginAnswer]:
        """The same for conversations that retention has deleted. Never raises.

        One that is configured and did not load may keep them, and has not erased them.
        """
        if self._put_aside is not None:
            await self._put_aside([one.id for one in conversations], ())
        sessions = [each for one in conversations for each in one.session_ids]

        def ask(instance: Any) -> object:
            call = instance.on_forget_sessions
            return call(sessions, **accepted(call, {"hermes_home": self._hermes_home}))

        absent = [
            PluginAnswer(each.name, Answer.FAILED)
            for each in self._sources
            if not each.works and each.name not in ("", BUILT_IN_ENGINE)
        ]
        return [*await self._asked(ask, FORGET_SESSIONS, "erase old conversations"), *absent]

    async def _asked(
        self, ask: Callable[[Any], object], method: str, what: str
    ) -> list[PluginAnswer]:
        answers = []
        for source in self._sources:
            if not source.works:
                continue
            able = source.has(method)
            answer = await self._answer(source, ask, what) if able else Answer.KEEPS
            answers.append(PluginAnswer(source.name, answer))
        return answers

    @staticmethod
    async def _answer(
        source: EngineSource | ProviderSource, ask: Callable[[Any], object], what: str
    ) -> Answer:
        try:
            said = await source.ask_aside(ask, what, FORGET_SECONDS)
        except EngineError as exc:
            told = {"plugin": source.name, "what": what, "reason": str(exc)}
            log.warning("a plugin did not erase what it keeps", extra=told)
            return Answer.FAILED
        if said is None:
            return Answer.KEEPS
        return Answer.ERASED if said is True else Answer.FAILED
