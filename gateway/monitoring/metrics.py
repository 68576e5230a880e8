"""Owns what is counted about the daemon: its metrics, and how each is fed.

No metric names a person, a chat or a conversation; labels hold models, purposes, outcomes and
platforms. Passed by wiring to whoever counts; nothing is global.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.ports import Clock, CompactionResult, CompactionTrigger, Usage
from agent.prices import PriceTable
from gateway import __version__
from gateway.monitoring.exposition import Counter, Gauge, Histogram, Metric, exposition

TURN_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
CALL_SECONDS = (0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(frozen=True, slots=True)
class LastCompression:
    """How one went."""

    at: float
    trigger: str
    outcome: str
    tokens_before: int
    tokens_after: int


PlatformStates = Callable[[], Mapping[str, str]]


class Metrics:
    """Everything that is counted. The methods are called on the event loop and return at once."""

    def __init__(self, clock: Clock, prices: PriceTable) -> None:
        self._clock = clock
        self._prices = prices
        self._started = clock.monotonic()
        self.turns = Counter("posthouse_turns_total", "Turns that ended, by outcome.", ("outcome",))
        self.turn_seconds = Histogram(
            "posthouse_turn_seconds", "How long turns took.", TURN_SECONDS
        )
        self.refusals = Counter(
            "posthouse_budget_refusals_total", "Messages refused because a budget was used up."
        )
        self.requests = Counter(
            "posthouse_model_requests_total",
            "Requests to a model, retries of one counted once, by model, purpose and outcome.",
            ("model", "purpose", "outcome"),
        )
        self.request_seconds = Histogram(
            "posthouse_model_request_seconds",
            "How long answered requests took, retries included.",
            CALL_SECONDS,
            ("purpose",),
        )
        self.tokens = Counter(
            "posthouse_model_tokens_total",
            "Tokens by model, purpose and kind (input is without the cached part).",
            ("model", "purpose", "kind"),
        )
        self.cost = Counter(
            "posthouse_model_cost_usd_total",
            "Cost of requests at list prices, for models whose price is known.",
            ("model", "purpose"),
        )
        self.cache_misses = Counter(
            "posthouse_prompt_cache_misses_total",
            "Requests that did not find their beginning in the prompt cache, by cause.",
            ("cause",),
        )
        self.cleared = Counter(
            "posthouse_provider_cleared_tokens_total",
            "Tokens that the provider left out of prompts by itself (compression.native: edits).",
            ("model",),
        )
        self.compressions = Counter(
            "posthouse_compressions_total",
            "Compressions by trigger, outcome and mode (how it was done).",
            ("trigger", "outcome", "mode"),
        )
        self.compressed_before = Counter(
            "posthouse_compressed_tokens_before_total",
            "Prompt sizes before compressions that were done, added up.",
        )
        self.compressed_after = Counter(
            "posthouse_compressed_tokens_after_total",
            "Prompt sizes after compressions that were done, added up (estimates).",
        )
        self._metrics: list[Metric] = [
            Gauge("posthouse_info", "Always 1.", lambda: {(__version__,): 1.0}, ("version",)),
            self.turns,
            self.turn_seconds,
            self.refusals,
            self.requests,
            self.request_seconds,
            self.tokens,
            self.cost,
            Gauge(
                "posthouse_prompt_cache_hit_ratio",
                "Share of all prompt tokens of turns that came from the cache, since the start.",
                self.cache_share,
            ),
            self.cache_misses,
            self.cleared,
            self.compressions,
            self.compressed_before,
            self.compressed_after,
            Gauge("posthouse_uptime_seconds", "Since the start.", self._uptime),
            Gauge(
                "process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes
            ),
            Gauge(
                "posthouse_asyncio_tasks",
                "Tasks of the event loop; a number that only rises is a leak.",
                _tasks,
            ),
        ]
        self._read_tokens = self._cached_tokens = 0
        self._compressed = 0
        self._last_compression: LastCompression | None = None

    def watch(
        self,
        *,
        waiting: Callable[[], int],
        running: Callable[[], int],
        owed: Callable[[], int],
        prepared: Callable[[], Mapping[str, int]],
        platforms: PlatformStates,
    ) -> None:
        """What is to be asked when somebody reads."""
        self._metrics += [
            Gauge(
                "posthouse_waiting_messages",
                "Messages that wait for their turn.",
                lambda: float(waiting()),
            ),
            Gauge(
                "posthouse_busy_conversations",
                "Conversations in which something is at work.",
                lambda: float(running()),
            ),
            Gauge(
                "posthouse_outbox_owed",
                "Answers that are on their way.",
                lambda: float(owed()),
            ),
            Gauge(
                "posthouse_prepared_total",
                "Compressions made ahead of time, by what became of them.",
                lambda: {(outcome,): float(n) for outcome, n in prepared().items()},
                ("outcome",),
                kind="counter",
            ),
            Gauge(
                "posthouse_platform_state",
                "1 for the state that a platform is in.",
                lambda: dict.fromkeys(platforms().items(), 1.0),
                ("platform", "state"),
            ),
        ]

    def add(self, metrics: Iterable[Metric]) -> None:
        """Metrics that others own."""
        self._metrics += metrics

    def text(self) -> str:
        """All of it, for Prometheus."""
        return exposition(self._metrics)

    # what happens

    def turn_ended(self, outcome: str, seconds: float) -> None:
        """A turn is over."""
        self.turns.add(outcome)
        self.turn_seconds.observe(seconds)

    def answered(self, usage: Usage, purpose: str, seconds: float) -> None:
        """A model has answered."""
        model = usage.model
        self.requests.add(model, purpose, "answered")
        self.request_seconds.observe(seconds, purpose)
        for kind, count in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ):
            self.tokens.add(model, purpose, kind, by=count)
        if purpose == "turn":
            self._read_tokens += usage.prompt_tokens
            self._cached_tokens += usage.cache_read_tokens
        price = self._prices.find(model)
        if price is not None:
            usd = price.usd(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                cache_write_1h_tokens=usage.cache_write_1h_tokens,
            )
            self.cost.add(model, purpose, by=usd)

    def failed(self, model: str, purpose: str, error: str) -> None:
        """A request came to nothing; ``error``: the kind, never its words."""
        self.requests.add(model, purpose, error)

    def cache_missed(self, cause: str) -> None:
        """A prompt's beginning was not in the cache."""
        self.cache_misses.add(cause)

    def compression_ended(self, trigger: CompactionTrigger, result: CompactionResult) -> None:
        """A compression came to an end; one that was not due at all is not counted."""
        mode = ""
        if result.outcome == "compressed":
            manifest = result.loaded.session.manifest or {}
            mode = str(manifest.get("mode") or "engine")
            self.compressed_before.add(by=result.tokens_before)
            self.compressed_after.add(by=result.tokens_after)
            self._compressed += 1
        self.compressions.add(trigger, result.outcome, mode)
        self._last_compression = LastCompression(
            self._clock.now(), trigger, result.outcome, result.tokens_before, result.tokens_after
        )

    def compressed_count(self) -> int:
        """Compressions that were done since the start."""
        return self._compressed

    def last_compression(self) -> dict[str, Any] | None:
        """How the newest one since the start went; None: there was none."""
        return None if self._last_compression is None else asdict(self._last_compression)

    def cache_share(self) -> float | None:
        """Of all prompt tokens of turns; None: there were none yet."""
        return self._cached_tokens / self._read_tokens if self._read_tokens else None

    def _uptime(self) -> float:
        return self._clock.monotonic() - self._started


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> float | None:
    """How much memory the process holds; None where the system does not say."""
    try:
        return float(int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


def _tasks() -> float | None:
    """None where no event loop runs."""
    try:
        return float(len(asyncio.all_tasks()))
    except RuntimeError:
        return None
