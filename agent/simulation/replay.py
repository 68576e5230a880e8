"""Owns the replay of one conversation under one setting: a clock, a list, and what is due. Pure.

The decisions are the product's own wherever they go by sizes: triggers, anti-thrash, boundaries,
the level and the budget of summaries that are made ahead, the window of micro-compaction.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass

from agent.compaction.host.ahead import HOUR_SECONDS, LEVEL, MAX_CALLS_AN_HOUR, MIN_NEW_RATIO
from agent.compaction.host.session import MAX_PER_TURN
from agent.compaction.micro.progress import after_call
from agent.compaction.plan.policy import (
    after_compression,
    after_nothing,
    after_progress,
    after_usage,
    verdict,
)
from agent.compaction.plan.prune import MIN_RECLAIM_TOKENS
from agent.messages import Row
from agent.model_metadata import Measurement
from agent.prices import Price
from agent.sessions import CompressionState
from agent.simulation.cache import PrefixCache
from agent.simulation.digesting import Digests
from agent.simulation.outcome import Bill, Compression, CompressionKind, Outcome
from agent.simulation.script import Script, Step
from agent.simulation.settings import Assumptions, Setting
from agent.simulation.squeezing import (
    Scene,
    Squeezed,
    SummarySize,
    pruned_results,
    squeeze,
)

_NET_MIN_ROWS = 4
"""The last net lets shorter lists be (`gateway.hygiene`)."""
_SEEN = 1
"""There was a compression; which row it saw last is counted in tokens here."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of the model that answers, and of the one that summarises."""

    main: Price
    side: Price


@dataclass(slots=True)
class _Prepared:
    """A compression that was made ahead; until ``ready_at`` it is being made."""

    squeezed: Squeezed
    ready_at: float
    covered: int
    """How many rows it has seen."""


def replay(
    script: Script,
    setting: Setting,
    *,
    prefix_tokens: int,
    assumed: Assumptions | None = None,
    prices: Prices | None = None,
) -> Outcome:
    """Replay a conversation; the same always comes of the same."""
    return _Replay(script, setting, prefix_tokens, assumed or Assumptions()).run(prices)


class _Replay:
    """The conversation as it is at one moment."""

    def __init__(
        self, script: Script, setting: Setting, prefix_tokens: int, assumed: Assumptions
    ) -> None:
        self._script = script
        self._setting = setting
        self._assumed = assumed
        self._threshold = setting.triggers.threshold_tokens
        self._fixed_tokens = prefix_tokens
        self._rows: list[Row] = []
        self._tokens = prefix_tokens
        """Of the next prompt."""
        self._now = self._answered_at = 0.0
        self._at = 0
        """Which step it is."""
        self._cache = PrefixCache(prefix_tokens, setting.cache_seconds, setting.min_cache_tokens)
        self._state = CompressionState()
        self._summary = SummarySize()
        self._next_row_id = script.next_row_id
        self._said_since = 0
        """Tokens, since the last compression."""
        self._in_turn = 0
        """Compressions since somebody said something."""
        self._turn_begins = False
        self._failed_in_turn = False
        self._prepared: _Prepared | None = None
        self._ahead_calls: deque[float] = deque(maxlen=MAX_CALLS_AN_HOUR)
        self._new_since_ahead: int | None = None
        """Tokens, since a compression was made ahead; None: there was none."""
        self._bill = Bill()
        self._digests = Digests(setting, assumed, self._bill)
        self._sizes, self._sent = array("q"), array("d")
        self._compressions: list[Compression] = []
        self._pauses: list[float] = []
        self._prune_at_tokens = 0
        self._wasted = self._passes = self._prunings = self._overflows = 0

    def run(self, prices: Prices | None) -> Outcome:
        """All steps, and what they came to."""
        for at, step in enumerate(self._script.steps):
            self._at = at
            match step.kind:
                case "said":
                    self._now += step.gap_seconds
                    self._in_turn, self._turn_begins, self._failed_in_turn = 0, True, False
                    self._append(step)
                case "result":
                    self._now += step.gap_seconds
                    self._append(step)
                    if step.ends_turn:
                        self._after_turn()
                case "answer":
                    self._answer(step)
        if self._prepared is not None:
            self._wasted += 1
        setting, bill = self._setting, self._bill
        usd = None
        if prices is not None:
            usd = bill.usd(prices.main, prices.side, setting.cache_ttl)
        return Outcome(
            name=setting.name,
            window_tokens=setting.triggers.window_tokens,
            threshold_tokens=setting.triggers.effective_tokens,
            cache_ttl=setting.cache_ttl,
            bill=bill,
            sizes=self._sizes,
            seconds=self._sent,
            compressions=tuple(self._compressions),
            wasted=self._wasted,
            micro_passes=self._passes,
            prunings=self._prunings,
            pauses_seconds=tuple(self._pauses),
            overflows=self._overflows,
            usd=usd,
        )

    def _append(self, step: Step) -> None:
        tokens = step.row.tokens
        self._rows.append(step.row)
        self._tokens += tokens
        self._said_since += tokens
        if self._new_since_ahead is not None:
            self._new_since_ahead += tokens

    # --- a request ------------------------------------------------------------------------------

    def _answer(self, step: Step) -> None:
        self._make_room()
        rows, size = self._rows, self._tokens
        billed = self._cache.ask(
            len(rows),
            size,
            self._now,
            lambda at: _blocks(rows[at]),
            lambda at: rows[at].tokens,
        )
        bill = self._bill
        bill.plain += billed.plain
        bill.read += billed.read
        bill.written += billed.written
        bill.output += step.row.tokens
        self._sizes.append(size)
        self._sent.append(self._now)
        self._state = after_usage(self._state, size, self._threshold, self._now)
        self._now += step.gap_seconds
        self._answered_at = self._now
        self._append(step)
        self._turn_begins = False
        if step.ends_turn:
            self._after_turn()

    def _make_room(self) -> None:
        """What is done before a request, in the order of the product."""
        triggers = self._setting.triggers
        begins = self._turn_begins
        if self._prepared is not None and begins and self._is_cold():
            self._take("cold")
        if begins and self._tokens >= triggers.hygiene_tokens and len(self._rows) >= _NET_MIN_ROWS:
            self._compress_if_allowed(last_net=True)
        elif self._tokens >= self._threshold and not self._state.awaiting_usage:
            self._compress_if_allowed(last_net=False)
        elif not begins:
            self._prune_if_due()
        limit = triggers.window_tokens - triggers.max_tokens
        if self._tokens > limit and self._setting.enabled and self._in_turn < MAX_PER_TURN:
            self._compress_now()  # the provider says so: cool-downs and blocks do not count
        if self._tokens > limit:
            self._overflows += 1

    def _is_cold(self) -> bool:
        """Has the provider forgotten the prompt by itself?"""
        seconds = self._setting.cache_seconds
        return seconds is None or self._now - self._answered_at >= seconds

    def _compress_if_allowed(self, *, last_net: bool) -> None:
        if not self._setting.enabled or self._in_turn >= MAX_PER_TURN or self._failed_in_turn:
            return
        size = Measurement(self._tokens, "usage")
        if not verdict(self._state, self._now, size, ignore_block=last_net).allowed:
            return
        if self._prepared is not None and self._now < self._prepared.ready_at and not last_net:
            return  # it is there soon, and until then there is room behind the trigger
        self._compress_now()

    def _prune_if_due(self) -> None:
        """Old results become short between two rounds of tools, without a compression."""
        setting, limit = self._setting, self._setting.prune_from_tokens
        if not setting.enabled or limit <= 0 or self._state.awaiting_usage:
            return
        if self._tokens < max(limit, self._prune_at_tokens) or self._prepared is not None:
            return
        shorter = pruned_results(self._scene())
        gained = sum(a.tokens - b.tokens for a, b in zip(self._rows, shorter, strict=True))
        if gained < MIN_RECLAIM_TOKENS:
            self._prune_at_tokens = self._tokens + MIN_RECLAIM_TOKENS
            return
        first = next(i for i, row in enumerate(shorter) if row is not self._rows[i])
        self._cache.changed_from(first)
        self._rows = shorter
        self._tokens -= gained
        self._digests.list_changed(shorter)
        self._prune_at_tokens = self._tokens + max(gained, limit, MIN_RECLAIM_TOKENS)
        self._prunings += 1

    # --- compressing ----------------------------------------------------------------------------

    def _compress_now(self) -> None:
        """What is ready, or nearly; else somebody waits for this one."""
        if self._prepared is not None and self._prepared.ready_at > self._now:
            self._pauses.append(self._prepared.ready_at - self._now)
            self._now = self._prepared.ready_at
        if self._take("prepared"):
            return
        squeezed = squeeze(self._scene())
        if squeezed is None:
            self._state = after_nothing(self._state, self._now, Measurement(self._tokens, "usage"))
            self._failed_in_turn = True
            return
        kind: CompressionKind = "pruned"
        if squeezed.mode == "summary":
            kind = "waited"
            seconds = self._pay(squeezed)
            self._pauses.append(seconds)
            self._now += seconds
        self._adopt(squeezed, squeezed.rows, kind)

    def _scene(self, *, ahead: bool = False) -> Scene:
        return Scene(
            rows=self._rows,
            setting=self._setting,
            assumed=self._assumed,
            pruned_tokens=self._script.pruned_tokens,
            fixed_tokens=self._fixed_tokens,
            next_row_id=self._next_row_id,
            decayed=self._state.count > 0,
            previous=self._summary,
            ahead=ahead,
        )

    def _pay(self, squeezed: Squeezed) -> float:
        """Bill a summary; how many seconds it takes."""
        self._bill.side_input += squeezed.input_tokens
        self._bill.side_output += squeezed.output_tokens
        calls = squeezed.calls
        assumed = self._assumed
        once = assumed.seconds(squeezed.input_tokens, squeezed.output_tokens)
        return once + (calls - 1) * assumed.call_seconds

    def _adopt(self, squeezed: Squeezed, rows: list[Row], kind: CompressionKind) -> None:
        before = self._tokens
        self._drop_prepared()
        self._rows = list(rows)
        self._tokens = self._fixed_tokens + sum(row.tokens for row in rows)
        self._cache.changed_from(squeezed.changed_from)
        if squeezed.mode == "summary":
            self._summary = squeezed.summary
            self._next_row_id += 2
        self._digests.list_changed(rows)
        self._prune_at_tokens = 0
        gained = self._said_since if self._state.count else None
        state = after_compression(self._state, self._now, mode=squeezed.mode)
        self._state = after_progress(
            state,
            self._now,
            gained_tokens=gained,
            threshold_tokens=self._threshold,
            after=Measurement(self._tokens, "unknown"),
            seen_row_id=_SEEN,
        )
        self._said_since = 0
        self._in_turn += 1
        self._compressions.append(Compression(len(self._sizes), kind, before, self._tokens))

    # --- ahead of time --------------------------------------------------------------------------

    def _after_turn(self) -> None:
        if self._setting.background and self._setting.enabled:
            self._prepare()
        if self._setting.micro.enabled:
            self._condense()

    def _prepare(self) -> None:
        if self._state.awaiting_usage or self._tokens < LEVEL * self._threshold:
            return
        if self._prepared is not None:
            if not self._problem(self._prepared):
                return
            self._drop_prepared()
        fresh = self._new_since_ahead
        if fresh is not None and fresh < MIN_NEW_RATIO * self._threshold:
            return
        recent = sum(self._now - at < HOUR_SECONDS for at in self._ahead_calls)
        if recent >= MAX_CALLS_AN_HOUR:
            return
        if not verdict(self._state, self._now, Measurement(self._tokens, "usage")).allowed:
            return
        self._new_since_ahead = 0
        self._ahead_calls.append(self._now)
        squeezed = squeeze(self._scene(ahead=True))
        if squeezed is None:
            return
        seconds = self._pay(squeezed) if squeezed.mode == "summary" else 0.0
        self._prepared = _Prepared(squeezed, self._now + seconds, len(self._rows))

    def _take(self, kind: CompressionKind) -> bool:
        """Put the prepared list in the place of the one that it has seen; later rows follow it."""
        prepared = self._prepared
        if prepared is None or self._now < prepared.ready_at:
            return False
        if self._problem(prepared):
            self._drop_prepared()
            return False
        later = self._rows[prepared.covered :]
        self._prepared = None
        self._adopt(prepared.squeezed, [*prepared.squeezed.rows, *later], kind)
        self._said_since = sum(row.tokens for row in later)
        return True

    def _problem(self, prepared: _Prepared) -> bool:
        """Would it not fit any more?"""
        later = sum(row.tokens for row in self._rows[prepared.covered :])
        after = self._fixed_tokens + prepared.squeezed.tokens_after + later
        return after >= self._threshold or after >= self._tokens

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared = None
            self._wasted += 1

    # --- micro-compaction -----------------------------------------------------------------------

    def _condense(self) -> None:
        """Beside the conversation, unless a compression will take it all in."""
        self._state, due = after_call(self._state, self._setting.micro.every_n_turns)
        if not due or self._prepared is not None:
            return
        spliced = self._digests.pass_over(
            self._rows,
            self._now,
            decayed=self._state.count > 0,
            row_id=self._next_row_id,
            rests_until=self._rests_until,
        )
        if spliced is None:
            return
        self._next_row_id += 1
        self._rows = spliced.rows
        self._tokens -= spliced.gained_tokens
        self._cache.changed_from(spliced.changed_from)
        self._passes += 1

    def _rests_until(self, moment: float) -> bool:
        """Does nobody say anything before that?"""
        at = self._at + 1
        steps = self._script.steps
        return at >= len(steps) or self._now + steps[at].gap_seconds > moment


def _blocks(row: Row) -> int:
    """Content blocks of a message on the wire."""
    message = row.message
    return max(1, (message["content"] is not None) + len(message.get("tool_calls") or ()))
