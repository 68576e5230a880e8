"""Owns asking the provider for a summary of its own, and what becomes of the answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from agent.compaction.calls.spending import Spending
from agent.compaction.calls.summary import FOCUS_MAX_CHARS
from agent.compaction.host.running import Order, Run
from agent.compaction.native.assembling import NativeResult, assemble_native
from agent.compaction.native.cutting import NativePlan, plan_native
from agent.compaction.native.originals import Past, begins_with_block, own_entries, with_originals
from agent.compaction.plan.policy import after_compression
from agent.errors import (
    BlockUnsendable,
    CompactionRefused,
    ModelError,
    ModelUnavailable,
    StoreError,
)
from agent.ledger import Ledger
from agent.llm.native import INCOMPLETE_TURN, NOT_KNOWN
from agent.messages import wire_message
from agent.model_metadata import Triggers
from agent.ports import Clock, CompactingModel, ModelRequest, ModelResponse, NativeSummary, entry_of
from agent.redact import redact_sensitive_text
from agent.sessions import LoadedSession

log = logging.getLogger(__name__)

Beside = Callable[[Callable[[], Any]], Awaitable[Any]]

MIN_SUMMARY_TOKENS = 2048
MAX_SUMMARY_TOKENS = 16_000
"""Room for the block; what is not used costs nothing, and a cut block is worth nothing."""
PAUSE_SECONDS = 300.0
"""So long after a failure of the provider nobody waits for it twice: ours is asked at once."""
INSTRUCTIONS = """Summarise this conversation so that you can go on with it from the summary alone.
Keep the goal, constraints and preferences, what is done and how, decisions with their reasons, \
open requests of the user word for word, files and exact identifiers, what remained to be done. \
Describe the state as it is now; give no orders. Write in the language of the user."""


class NativePast(Past, Ledger, Protocol):
    """The store, as far as it is needed here."""


class NativeCompaction:
    """The provider's own summaries for one conversation, and the way back from them."""

    def __init__(
        self,
        model: CompactingModel | None,
        past: NativePast,
        clock: Clock,
        *,
        protect_last_n: int = 20,
    ) -> None:
        """``model``: who is asked; None: nobody, and only earlier such summaries are dealt with."""
        self._model = model
        self._past = past
        self._clock = clock
        self._protect_last_n = protect_last_n
        self._paused_until = float("-inf")

    async def run(
        self, order: Order, triggers: Triggers, memory: str, beside: Beside
    ) -> Run | None:
        """The list with the provider's summary; None: it can not be had, ours has to do.

        Args:
            order: What is to be compressed.
            triggers: The numbers in force.
            memory: What the memory wants to be kept.
            beside: Runs what takes a while beside the event loop.
        """
        model = self._model
        if model is None or self._clock.monotonic() < self._paused_until:
            return None
        plan: NativePlan | None = await beside(
            lambda: plan_native(
                order.loaded.rows,
                triggers,
                order.size,
                protect_last_n=self._protect_last_n,
                prefix_tokens=order.prefix_tokens,
                now=self._clock.now(),
            )
        )
        if plan is None:
            return None
        spending = Spending()
        for cut in plan.cuts:
            try:
                summary = await self._asked(model, order, plan, cut, memory, spending)
            except CompactionRefused as exc:
                if exc.code != NOT_KNOWN:  # that was said when it was found out
                    _not_made(order, exc.code)
                if exc.code != INCOMPLETE_TURN:
                    return None
                continue
            except BlockUnsendable:
                _not_made(order, "the earlier block can not be sent")
                return None
            except ModelUnavailable as exc:
                self._paused_until = self._clock.monotonic() + PAUSE_SECONDS
                _not_made(order, type(exc).__name__)
                return None
            except ModelError as exc:
                _not_made(order, type(exc).__name__)
                return None
            made = partial(assemble_native, plan, cut, summary, spending.as_dict())
            result: NativeResult = await beside(made)
            if result.adopted is None:
                _not_made(order, result.problem)
                return None
            return Run(
                result.adopted,
                after_compression(order.state, self._clock.now(), mode="native"),
                result.manifest,
                cost=spending.as_dict(),
            )
        return None

    async def _asked(
        self,
        model: CompactingModel,
        order: Order,
        plan: NativePlan,
        cut: int,
        memory: str,
        spending: Spending,
    ) -> NativeSummary:
        triggers, prefix = plan.triggers, order.loaded.session.prefix
        wanted = max(MIN_SUMMARY_TOKENS, 2 * triggers.summary_ceiling_tokens)
        room = max(MIN_SUMMARY_TOKENS // 2, triggers.window_tokens // 4)
        request = ModelRequest(
            system=prefix.system_prompt,
            # To the letter what was sent before the answer at the cut.
            messages=[wire_message(row) for row in plan.rows[:cut]],
            max_tokens=min(wanted, room, MAX_SUMMARY_TOKENS),
            tools=prefix.tools,
            cache_ttl="5m",
            purpose="background" if order.trigger == "ahead" else "summary",
        )
        started = self._clock.monotonic()
        try:
            summary = await model.compact(request, instructions=instructions(order.focus, memory))
        except ModelError:
            spending.lost(self._clock.monotonic() - started)
            raise
        answered = ModelResponse(
            {"role": "assistant", "content": None}, "compaction", summary.usage, summary.model
        )
        spending.answered(answered, None, self._clock.monotonic() - started)
        if summary.usage is not None:
            usage = replace(summary.usage, model=summary.usage.model or summary.model)
            entry = entry_of(usage, request.purpose, order.loaded.session.conversation_id)
            try:
                await self._past.enter_request(entry)
            except StoreError:
                log.warning("an answer is missing in the ledger", exc_info=True)
        return summary

    async def originals(self, loaded: LoadedSession) -> LoadedSession:
        """The list as our own summary has to read it: without a block, with what it stands for."""
        if not begins_with_block(loaded.rows):
            return loaded
        whole = await with_originals(self._past, loaded)
        log.info(
            "a summary of the provider's own is made anew from the originals",
            extra={"session_id": loaded.session.id, "originals": len(whole.rows)},
        )
        return whole

    @staticmethod
    def taken_back(run: Run, loaded: LoadedSession, whole: LoadedSession) -> Run:
        """What an engine made of the originals, as a plan for the session itself."""
        if run.adopted is None or whole is loaded:
            return run
        seen = {row.id: row for row in whole.rows}
        entries = own_entries(run.adopted.entries, loaded, seen)
        manifest = {**(run.manifest or {}), "from_originals": len(whole.rows) - len(loaded.rows)}
        return replace(run, adopted=replace(run.adopted, entries=entries), manifest=manifest)


def instructions(focus: str | None, memory: str) -> str:
    """What the provider is told beside the messages; "": its own prompt does."""
    parts = []
    if focus:
        wanted = redact_sensitive_text(focus)[:FOCUS_MAX_CHARS]
        parts.append(f"Keep most detail about this topic: {wanted}")
    if memory.strip():
        parts.append(f"Keep this as well, which the assistant remembers:\n{memory.strip()}")
    return "\n\n".join([INSTRUCTIONS, *parts]) if parts else ""


def _not_made(order: Order, why: str) -> None:
    log.warning(
        "no summary by the provider, ours takes its place",
        extra={"session_id": order.loaded.session.id, "reason": why},
    )
