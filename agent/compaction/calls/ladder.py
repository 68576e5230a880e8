"""Owns what is tried for a summary, in order: its model, the main one, none at all."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass

from agent.compaction.calls.spending import Spending
from agent.compaction.calls.summariser import (
    CALL_TIMEOUT_SECONDS,
    Summariser,
    Summary,
    SummaryModel,
)
from agent.compaction.calls.summary import Readables, SummaryMaterial, SummaryRejected
from agent.compaction.plan.failures import FailureKind, classify, describe
from agent.compaction.plan.fallback import deterministic_body
from agent.compaction.plan.policy import after_failure, cooldown_left
from agent.compaction.plan.prune import calls_by_id, stand_in
from agent.errors import ModelError, ModelUnavailable
from agent.messages import text_of
from agent.model_metadata import resolve_window
from agent.ports import Clock, SideModel
from agent.sessions import CompressionState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rung:
    """Where the ladder ended."""

    summary: Summary | None
    """None: nothing may be left out."""
    state: CompressionState
    reason: str = ""
    """Why there is no healthy summary, in words that a user may read."""
    failure: FailureKind | None = None
    makeshift: bool = False
    """Made without a model."""


class SummaryLadder:
    """Makes a summary or says why there is none; remembers the windows that models have named."""

    def __init__(
        self,
        side_model: SideModel,
        clock: Clock,
        *,
        summary_model: str | None,
        summary_window_tokens: int | None,
        abort_always: bool,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> None:
        """Take what stays the same for a conversation.

        Args:
            side_model: Who is asked.
            clock: Time.
            summary_model: Makes the summaries; None: the main model does.
            summary_window_tokens: Of that model; None: from the table, or the conversation's where
                it is not known.
            abort_always: No summary without a model, whatever the provider has proven.
            timeout_seconds: For each call.
        """
        self._side_model = side_model
        self._clock = clock
        self._summary_model = summary_model
        self._window_tokens = summary_window_tokens
        self._abort_always = abort_always
        self._timeout_seconds = timeout_seconds
        self._named_windows: dict[str | None, int] = {}

    @property
    def summary_model(self) -> str | None:
        """Makes the summaries; None: the main model does."""
        return self._summary_model

    def asking(self, side_model: SideModel) -> SummaryLadder:
        """The same ladder, whose calls somebody else makes; what is learned is shared."""
        other = copy.copy(self)
        other._side_model = side_model
        return other

    def climb(
        self,
        covered: Readables,
        material: SummaryMaterial,
        state: CompressionState,
        main: SummaryModel,
        spending: Spending,
        *,
        force: bool,
        overflow_proven: bool,
    ) -> Rung:
        """Ask until somebody gives a summary.

        Args:
            covered: What goes into it.
            material: What else it is made from.
            state: With the cool-down that counts, unless somebody asked (``force``); a proven
                overflow goes past it, once.
            main: The conversation's model.
            spending: Where calls are added up.
            force: Somebody asked for it.
            overflow_proven: The provider has said that the history does not fit.
        """
        makeshift = self.may_make_shift(overflow_proven)
        left = 0.0 if force else cooldown_left(state, self._clock.now())
        if left and overflow_proven and not state.cooldown_ignored:
            state, left = state.changed(cooldown_ignored=True), 0.0
        elif not left:
            state = state.changed(cooldown_ignored=False)
        if left:
            reason = state.cooldown_reason or "the last summary failed"
            if makeshift:
                return Rung(self.makeshift(covered, material), state, reason, makeshift=True)
            return Rung(None, state, f"{reason} (next try in {int(left) + 1} s)")
        summariser = Summariser(
            self._side_model,
            models=self.models(main),
            clock=self._clock,
            spending=spending,
            on_limit=self._note_limit,
            timeout_seconds=self._timeout_seconds,
        )
        try:
            return Rung(summariser.summarise(covered, material), state)
        except Exception as exc:  # noqa: BLE001  (a side model is somebody else's code: abort, never drop)
            kind, reason = classify(exc), describe(classify(exc), exc)
            state = self._after(state, kind, reason, exc)
            summary = self.makeshift(covered, material) if makeshift else None
            return Rung(summary, state, reason, kind, makeshift=makeshift)

    def may_make_shift(self, overflow_proven: bool) -> bool:
        """Is a summary without a model better than none?"""
        return overflow_proven and not self._abort_always

    @staticmethod
    def makeshift(covered: Readables, material: SummaryMaterial) -> Summary:
        """The summary without a model, for when the history is proven not to fit."""
        messages = [item.message for item in covered]
        calls = calls_by_id(messages)
        lines = {
            call_id: text_of(stand_in(message, calls.get(call_id))["content"]).strip("[]")
            for message in messages
            if message["role"] == "tool" and (call_id := message.get("tool_call_id", ""))
        }
        body = deterministic_body(covered, lines, material.previous, material.budget_tokens)
        return Summary(body, 0)

    def _after(
        self, state: CompressionState, kind: FailureKind, reason: str, exc: Exception
    ) -> CompressionState:
        expected = isinstance(exc, ModelError | SummaryRejected | OSError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "compression has no summary",
            extra={"failure": kind, "error": type(exc).__name__},
            exc_info=None if expected else exc,
        )
        wait = exc.retry_after_seconds if isinstance(exc, ModelUnavailable) else None
        return after_failure(state, kind, reason, self._clock.now(), retry_after_seconds=wait)

    def models(self, main: SummaryModel) -> list[SummaryModel]:
        """Who may be asked, in order, each with its own window."""
        name = self._summary_model
        if name is None or name == main.name:
            return [self._lowered(SummaryModel(name, self._window_tokens or main.window_tokens))]
        if self._window_tokens is None:
            found = resolve_window(name)
            known = found.source != "default"
            self._window_tokens = found.tokens if known else min(found.tokens, main.window_tokens)
        return [self._lowered(SummaryModel(name, self._window_tokens)), self._lowered(main)]

    def _lowered(self, model: SummaryModel) -> SummaryModel:
        named = self._named_windows.get(model.name, model.window_tokens)
        return SummaryModel(model.name, min(model.window_tokens, named))

    def _note_limit(self, model: SummaryModel, window_tokens: int) -> None:
        self._named_windows[model.name] = window_tokens
