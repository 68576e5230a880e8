"""Owns what somebody else's engine does beside compressing: requests, turns, tools, words."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.compaction.host.foreign_lists import as_text, copied, not_too_many, plain
from agent.compaction.plan.selection import selected
from agent.engine_host import QUICK_SECONDS, EngineHost
from agent.errors import EngineError
from agent.keywords import accepted
from agent.messages import Message, clean_text, newest_real_user, to_engine
from agent.ports import CompactionTrigger, TurnEnd, Usage
from agent.sessions import LoadedSession

log = logging.getLogger(__name__)

TOOL_SECONDS = 110.0
"""Shorter than the registry's own deadline: the model reads which engine did not answer."""
MAX_STATUS_CHARS = 500


class ForeignExtras:
    """The optional part of an engine's contract; what is only inherited is never called."""

    def __init__(self, host: EngineHost, window: Callable[[], int]) -> None:
        self._host = host
        self._engine = host.engine
        self._window = window

    @property
    def selects(self) -> bool:
        """Does it choose what is sent with each request?"""
        return not self._host.inherits("select_context")

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, room_tokens: int
    ) -> Sequence[Message]:
        """What is sent in place of these messages; the same object where it is to stay.

        Never raises. ``room_tokens``: what may be sent at most, by estimate; 0: nobody knows.
        """
        if not self.selects or self._host.occupied:
            return messages
        budget = self._window()

        def work() -> Sequence[Message]:
            given = [dict(m) for m in copy.deepcopy(list(messages))]
            said = copied(loaded.rows)
            newest = newest_real_user(to_engine(loaded.rows))
            keywords = {
                "conversation_messages": said,
                "incoming_message": None if newest is None else copy.deepcopy(said[newest]),
                "budget_tokens": budget,
            }
            call = self._engine.select_context
            result = call(given, **accepted(call, keywords))
            if result is None or result == given == list(messages):
                return messages
            not_too_many(result, len(messages))
            return selected(plain(result), messages, room_tokens=room_tokens)

        try:
            chosen: Sequence[Message] = await self._host.run(work, "select_context", QUICK_SECONDS)
        except EngineError as exc:
            log.warning("context engine selected nothing", extra={"error": str(exc)})
            return messages
        return chosen

    async def status_text(self, trigger: CompactionTrigger, tokens: int) -> str:
        """What the user reads while it compresses by itself; "": nothing."""
        if self._host.inherits("get_automatic_compaction_status_message"):
            return ""
        threshold = self._host.threshold_tokens

        def work() -> str:
            call = self._engine.get_automatic_compaction_status_message
            facts = {
                "phase": "preflight" if trigger == "preflight" else "compress",
                "default_message": f"Shortening this conversation (about {tokens:,} tokens)…",
                "approx_tokens": tokens,
                "threshold_tokens": threshold,
            }
            if not self._engine.emit_automatic_compaction_status:
                return ""
            said = call(**accepted(call, facts))
            return clean_text(said.strip()[:MAX_STATUS_CHARS]) if isinstance(said, str) else ""

        try:
            text: str = await self._host.run(work, "status message", QUICK_SECONDS)
        except EngineError:
            return ""
        return text

    async def turn_complete(self, seen: LoadedSession, final: Message, end: TurnEnd) -> None:
        """A turn has come to its normal end."""
        if self._host.inherits("on_turn_complete"):
            return
        keywords = {
            "usage": None if end.usage is None else usage_dict(end.usage),
            "turn_id": end.turn_id,
            "task_id": end.turn_id,
            "api_call_count": end.model_calls,
            "interrupted": False,
            "failed": False,
            "turn_exit_reason": "completed",
        }

        def work() -> None:
            messages = [*copied(seen.rows), dict(copy.deepcopy(final))]
            call = self._engine.on_turn_complete
            call(messages, **accepted(call, keywords))

        try:
            await self._host.run(work, "on_turn_complete", QUICK_SECONDS)
        except EngineError:
            log.warning("context engine was not told of a turn", exc_info=True)

    async def run_tool(
        self, name: str, arguments: Mapping[str, Any], messages: Sequence[Message]
    ) -> str:
        """One call of a tool of its own; what it gives back, as text.

        Raises:
            EngineError: It failed, it is busy, or it took too long.
        """

        def work() -> str:
            call = self._engine.handle_tool_call
            live = [dict(m) for m in copy.deepcopy(list(messages))]
            keywords = accepted(call, {"messages": live})
            return as_text(call(name, copy.deepcopy(dict(arguments)), **keywords))

        text: str = await self._host.run(work, f"tool {name}", TOOL_SECONDS)
        return text


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Usage as engines know it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": 0,
    }
