"""Owns how plugins are asked to erase a person: the running ones put aside, a fresh one asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent.errors import EngineError
from agent.forgetting import Answer, PluginAnswer
from agent.keywords import accepted
from gateway.plugins.engines import EngineSource
from gateway.plugins.providers import ProviderSource

log = logging.getLogger(__name__)

FORGET_SECONDS = 60.0
"""What writes a file anew takes its time."""
PutAside = Callable[[Sequence[str], Sequence[str]], Awaitable[None]]
"""Of these conversations, and of whichever these keys lead to."""


class PluginForgetting:
    """`gateway.forgetting.desk.Others`: the configured context engine and memory provider."""

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
        return [source.name for source in self._sources if source.forgets]

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

        answers = []
        for source in self._sources:
            if not source.works:
                continue
            answer = await self._answer(source, ask) if source.forgets else Answer.KEEPS
            answers.append(PluginAnswer(source.name, answer))
        return answers

    @staticmethod
    async def _answer(
        source: EngineSource | ProviderSource, ask: Callable[[Any], object]
    ) -> Answer:
        try:
            said = await source.ask_aside(ask, "erase a person", FORGET_SECONDS)
        except EngineError as exc:
            log.warning(
                "a plugin did not erase a person",
                extra={"plugin": source.name, "reason": str(exc)},
            )
            return Answer.FAILED
        if said is None:
            return Answer.KEEPS
        return Answer.ERASED if said is True else Answer.FAILED
