"""Owns the built-in context engine: names the phases of a compression in order, nothing else."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

from agent.clock import SystemClock
from agent.compaction.calls.default_model import AuxiliarySideModel
from agent.compaction.calls.ladder import SummaryLadder
from agent.compaction.calls.spending import Spending
from agent.compaction.calls.summariser import CALL_TIMEOUT_SECONDS, Summary, SummaryModel
from agent.compaction.calls.summary import Readables, SummaryMaterial
from agent.compaction.plan.assemble import with_changes
from agent.compaction.plan.failures import FailureKind
from agent.compaction.plan.phases import (
    Attempt,
    Plan,
    assembled,
    make_plan,
    pruned_only,
    refusal,
    shrunk_only,
    worth_a_summary,
)
from agent.compaction.plan.policy import (
    after_compression,
    after_nothing,
    after_usage,
    after_waste,
    cooldown_left,
    verdict,
)
from agent.compaction.plan.prune import prunable_results
from agent.context_engine import ContextEngine, sanitize_memory_context
from agent.messages import Message
from agent.model_metadata import (
    IMAGE_TOKENS,
    Measurement,
    TriggerRules,
    Triggers,
    resolve_window,
    triggers_for,
)
from agent.ports import Clock, SideModel
from agent.sessions import CompressionState

log = logging.getLogger(__name__)

ALL_PROTECTED = "there is nothing to compress: all of it is protected"
TOO_LITTLE = "there is nothing to compress: the rest is shorter than a summary of it would be"

AttemptOutcome = Literal["none", "compressed", "nothing_to_do", "aborted"]


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """How the last call of `ContextCompressor.compress` ended."""

    outcome: AttemptOutcome = "none"
    reason: str = ""
    """In words that a user may read."""
    failure: FailureKind | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    """What the summary calls took, useful or not; empty: there were none."""


class ContextCompressor(ContextEngine):
    """The built-in engine: prune, cut, summarise, assemble.

    A summary that can not be made aborts: `compress` gives back the very list it was given. Only
    while `overflow_proven` is set does a summary without a model stand in.
    """

    def __init__(
        self,
        model: str,
        threshold_percent: float = 0.50,
        protect_first_n: int = 3,
        protect_last_n: int = 20,
        summary_target_ratio: float = 0.20,
        quiet_mode: bool = False,
        summary_model_override: str | None = None,
        base_url: str = "",
        api_key: str = "",
        config_context_length: int | None = None,
        provider: str = "",
        api_mode: str = "",
        abort_on_summary_failure: bool = False,
        max_tokens: int | None = None,
        *,
        side_model: SideModel | None = None,
        clock: Clock | None = None,
        rules: TriggerRules | None = None,
        summary_window_tokens: int | None = None,
        summary_timeout_seconds: float | None = None,
    ) -> None:
        """Build the engine of one conversation.

        Args:
            model: The conversation's model.
            threshold_percent: Share of the window that triggers; ``rules`` wins over it.
            protect_first_n: Messages of the head, until the first compression.
            protect_last_n: Messages of the tail, as long as they are not too large.
            summary_target_ratio: Share of the threshold that the tail may take.
            quiet_mode: Accepted; this engine never prints.
            summary_model_override: Makes the summaries; the conversation's model is second.
            base_url: For the default side model.
            api_key: For the default side model.
            config_context_length: The window; None: from the table.
            provider: For per-model thresholds and the default side model.
            api_mode: Accepted.
            abort_on_summary_failure: Abort even if the provider has proven an overflow.
            max_tokens: Of an answer; reserved in every trigger.
            side_model: Who makes the summaries; None: `agent.auxiliary_client.call_llm`.
            clock: Time.
            rules: The configured rules.
            summary_window_tokens: Window of the summary model; None: from the table, or the
                conversation's where that model is not known or not another one.
            summary_timeout_seconds: For each call of that model; None: the usual.
        """
        self.model = model
        self.provider = provider
        self.protect_first_n = protect_first_n
        self.protect_last_n = protect_last_n
        self.threshold_percent = rules.threshold if rules is not None else threshold_percent
        self.overflow_proven = False
        """Set while the provider's word stands that the history does not fit any more."""
        self.fixed_tokens = 0
        """Estimate of what every request carries beside the messages: system prompt and tools."""
        self.image_tokens = IMAGE_TOKENS
        """What a picture takes."""
        self.size_is_estimated = False
        """Set while the size that `compress` is given was not measured."""
        self.ahead = False
        """Set for a compression that is made before it is due: that there is nothing to do then
        says nothing about the one that will be."""
        self.last_attempt = LastAttempt()
        self._rules = rules or TriggerRules(
            threshold=threshold_percent, target_ratio=summary_target_ratio
        )
        self._max_tokens = max_tokens or 0
        self._clock: Clock = clock or SystemClock()
        connection = {"base_url": base_url, "api_key": api_key, "provider": provider}
        self._ladder = SummaryLadder(
            side_model or AuxiliarySideModel(connection),
            self._clock,
            summary_model=summary_model_override,
            summary_window_tokens=summary_window_tokens,
            abort_always=abort_on_summary_failure,
            timeout_seconds=summary_timeout_seconds or CALL_TIMEOUT_SECONDS,
        )
        self._state = CompressionState()
        self._spending = Spending()
        # names that other engines read when they delegate to this one
        self._last_compress_aborted = False
        self._last_summary_error: str | None = None
        self._last_summary_auth_failure = False
        self._last_summary_network_failure = False
        self._last_summary_dropped_count = 0
        self._last_summary_fallback_used = False
        window = resolve_window(model, configured=config_context_length)
        self.update_model(model, window.tokens, provider=provider)

    # --- state ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return "compressor"

    @property
    def state(self) -> CompressionState:
        """What has to survive a restart; the host stores it with the session."""
        return self._state

    @property
    def summary_model(self) -> str | None:
        """Who makes the summaries; None: whoever answers."""
        return self._ladder.summary_model

    def summary_models(self) -> list[SummaryModel]:
        """Who may be asked for a summary, in order, each with its window."""
        return self._ladder.models(SummaryModel(self.model, self.context_length))

    def restore(self, state: CompressionState) -> None:
        """Take over what was stored."""
        self._state = state
        self.compression_count = state.count

    def twin(self, side_model: SideModel | None = None) -> ContextCompressor:
        """Another engine with the same settings, for work beside this one.

        ``side_model``: who makes its summaries; None: whoever makes those of this one.
        """
        twin = copy.copy(self)
        if side_model is not None:
            twin._ladder = self._ladder.asking(side_model)
        twin._spending = Spending()
        twin.last_attempt = LastAttempt()
        return twin

    @property
    def triggers(self) -> Triggers:
        """The numbers in force."""
        return self._triggers

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        self.model = model
        self.provider = provider or self.provider
        self.context_length = context_length
        rules = self._rules
        if self.model_thresholds is not None:
            rules = replace(rules, model_thresholds=self.model_thresholds)
        self._triggers = triggers_for(
            context_length,
            rules,
            max_tokens=self._max_tokens,
            model=model,
            provider=self.provider,
        )
        self.threshold_tokens = self._triggers.threshold_tokens

    def on_session_reset(self) -> None:
        super().on_session_reset()
        self._state = CompressionState()
        self.last_attempt = LastAttempt()

    # --- when -----------------------------------------------------------------------------------

    def update_from_response(self, usage: dict[str, Any]) -> None:
        prompt = int(usage.get("prompt_tokens") or 0)
        completion = int(usage.get("completion_tokens") or 0)
        if prompt <= 0:
            return  # says nothing about the size
        self.last_prompt_tokens = prompt
        self.last_completion_tokens = completion
        self.last_total_tokens = int(usage.get("total_tokens") or prompt + completion)
        self._state = after_usage(self._state, prompt, self.threshold_tokens, self._clock.now())

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return self.should_compress_info(prompt_tokens)[0]

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        size = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        if size <= 0 or size < self.threshold_tokens:
            return False, None
        found = verdict(self._state, self._clock.now(), Measurement(size, "usage"))
        return found.allowed, found.reason

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        return self._state.awaiting_usage

    def get_active_compression_failure_cooldown(self) -> float | None:
        """Seconds for which no summary is tried, or None."""
        return cooldown_left(self._state, self._clock.now()) or None

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        return bool(self._plan(messages, None).new_middle)

    # --- the phases -----------------------------------------------------------------------------

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[dict[str, Any]]:
        self._begin()
        plan = self._plan(messages, current_tokens)
        pruned = None if force else pruned_only(plan, ahead=self.ahead)
        if pruned is not None and (done := self._accept(plan, pruned)):
            return done
        if not plan.new_middle:
            return self._without_summary(plan, messages, force)
        if not worth_a_summary(plan):
            return self._without_summary(plan, messages, force, TOO_LITTLE)
        material = SummaryMaterial(
            budget_tokens=self._triggers.summary_budget(plan.middle_tokens),
            previous=plan.previous.body if plan.previous is not None else "",
            focus=focus_topic or "",
            memory=sanitize_memory_context(memory_context),
            today=datetime.fromtimestamp(self._clock.now(), UTC).date().isoformat(),
        )
        covered = Readables(plan.new_middle)
        summary = self._summary(covered, material, force)
        if summary is None:
            return messages
        mode: Literal["summary", "deterministic"] = (
            "deterministic" if self._last_summary_fallback_used else "summary"
        )
        attempt = assembled(plan, summary.body, mode, calls=summary.calls, cost=self._cost())
        if done := self._accept(plan, attempt):
            return done
        self._wasted(plan, refusal(plan, attempt))
        if mode == "summary" and self._ladder.may_make_shift(self.overflow_proven):
            self._note_makeshift(covered)
            body = self._ladder.makeshift(covered, material).body
            attempt = assembled(plan, body, "deterministic", cost=self._cost())
            if done := self._accept(plan, attempt):
                return done
        return messages

    def prune_tool_results_only(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        given = cast(list[Message], messages)
        changes = prunable_results(given, self.protect_last_n)
        if not changes:
            return messages, 0
        return cast(list[dict[str, Any]], with_changes(given, changes)), len(changes)

    def _begin(self) -> None:
        self.last_attempt = LastAttempt()
        self._spending = Spending()
        self._last_compress_aborted = False
        self._last_summary_error = None
        self._last_summary_auth_failure = False
        self._last_summary_network_failure = False
        self._last_summary_dropped_count = 0
        self._last_summary_fallback_used = False

    def _plan(self, messages: list[dict[str, Any]], current_tokens: int | None) -> Plan:
        return make_plan(
            cast(list[Message], messages),
            self._triggers,
            protect_first_n=self.protect_first_n,
            protect_last_n=self.protect_last_n,
            decayed=self._state.count > 0 or self.compression_count > 0,
            fixed_tokens=self.fixed_tokens,
            image_tokens=self.image_tokens,
            current_tokens=current_tokens,
            now=self._clock.now(),
        )

    def _without_summary(
        self,
        plan: Plan,
        messages: list[dict[str, Any]],
        force: bool,
        reason: str = ALL_PROTECTED,
    ) -> list[dict[str, Any]]:
        """Nothing to summarise lies between head and tail: bulky results shrink, the rest stays."""
        attempt = None if self.ahead else shrunk_only(plan)
        if attempt is not None and (done := self._accept(plan, attempt)):
            return done
        if not force and not self.ahead:
            self._state = after_nothing(self._state, self._clock.now(), self._size(plan))
        self.last_attempt = LastAttempt("nothing_to_do", reason)
        return messages

    def _summary(
        self, covered: Readables, material: SummaryMaterial, force: bool
    ) -> Summary | None:
        """Phase 3, with its failure ladder; None: aborted."""
        rung = self._ladder.climb(
            covered,
            material,
            self._state,
            SummaryModel(self.model, self.context_length),
            self._spending,
            force=force,
            overflow_proven=self.overflow_proven,
        )
        self._state = rung.state
        self._last_summary_error = rung.reason or None
        self._last_summary_auth_failure = rung.failure in ("auth", "missing_key", "quota")
        self._last_summary_network_failure = rung.failure in ("connection", "timeout")
        if rung.makeshift:
            self._note_makeshift(covered)
        if rung.summary is None:
            self._abort(rung.reason, rung.failure)
        return rung.summary

    def _note_makeshift(self, covered: Readables) -> None:
        self._last_summary_fallback_used = True
        self._last_summary_dropped_count = len(covered)

    # --- how it ended ---------------------------------------------------------------------------

    def _accept(self, plan: Plan, attempt: Attempt) -> list[dict[str, Any]] | None:
        """Phase 4's check; the finished list, or None if it must not be taken."""
        if refusal(plan, attempt):
            return None
        self._state = after_compression(self._state, self._clock.now(), mode=attempt.mode)
        self.compression_count = self._state.count
        self._last_compress_aborted = False
        self.last_prompt_tokens = -1
        self.last_completion_tokens = 0
        self.last_attempt = LastAttempt(
            "compressed", manifest=attempt.manifest, cost=self._cost() or {}
        )
        return cast(list[dict[str, Any]], attempt.messages)

    def _wasted(self, plan: Plan, reason: str) -> None:
        """A summary was made and is of no use: as bad as none, and not again at once."""
        self._state = after_waste(self._state, reason, self._clock.now(), self._size(plan))
        self._abort(reason, "unusable")

    def _abort(self, reason: str, kind: FailureKind | None) -> None:
        self._last_compress_aborted = True
        self._last_summary_error = reason
        self.last_attempt = LastAttempt("aborted", reason, kind, cost=self._cost() or {})

    def _cost(self) -> dict[str, Any] | None:
        return self._spending.as_dict() if self._spending.calls else None

    def _size(self, plan: Plan) -> Measurement:
        real = not self.size_is_estimated and plan.current_tokens > 0
        tokens = plan.current_tokens or plan.projected(plan.messages)
        return Measurement(tokens, "usage" if real else "estimate")
