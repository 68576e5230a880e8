"""Owns the simulated prompt cache: what is read, what is written, and for how long it lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.fakes.anthropic_server.units import THINKING_TYPES, Json, Unit, compact

TTL_SECONDS = {"5m": 300.0, "1h": 3600.0}
LOOK_BACK = 20


@dataclass
class CacheUse:
    """How the prompt of one request was billed."""

    fresh: int = 0
    read: int = 0
    written: dict[str, int] = field(default_factory=lambda: {"5m": 0, "1h": 0})

    def usage(self) -> Json:
        """The input side of a `usage` object."""
        return {
            "input_tokens": self.fresh,
            "cache_creation_input_tokens": sum(self.written.values()),
            "cache_read_input_tokens": self.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written["5m"],
                "ephemeral_1h_input_tokens": self.written["1h"],
            },
        }


@dataclass(frozen=True)
class Breakpoint:
    """A mark: position of its unit, and how long it asks to live."""

    index: int
    ttl: str


def breakpoints_of(units: Sequence[Unit], body: Json) -> list[Breakpoint]:
    """Explicit marks, and the one that a top-level `cache_control` sets by itself."""
    found = [
        Breakpoint(i, str(mark.get("ttl", "5m")))
        for i, unit in enumerate(units)
        if (mark := unit.mark()) is not None
    ]
    automatic = body.get("cache_control")
    if isinstance(automatic, dict):
        last = _last_markable(units)
        if last is not None and all(b.index != last for b in found):
            found.append(Breakpoint(last, str(automatic.get("ttl", "5m"))))
    return sorted(found, key=lambda b: b.index)


def _last_markable(units: Sequence[Unit]) -> int | None:
    for i in range(len(units) - 1, -1, -1):
        if units[i].block.get("type") not in THINKING_TYPES:
            return i
    return None


@dataclass
class _Entry:
    expires: float
    ttl: str


class PromptCache:
    """Prefixes written at breakpoints; a hit renews its entry."""

    def __init__(self, clock: Callable[[], float], limit: int = 100_000) -> None:
        self._clock = clock
        self._limit = limit
        self._entries: dict[tuple[str, str, bytes], _Entry] = {}

    def clear(self) -> None:
        """Forget everything, as a provider does after an outage."""
        self._entries.clear()

    def use(
        self,
        model: str,
        body: Json,
        units: Sequence[Unit],
        digests: Sequence[bytes],
        tokens: Sequence[int],
        minimum: int,
    ) -> CacheUse:
        """Bill one request and update the entries."""
        total = sum(tokens)
        marks = breakpoints_of(units, body)
        if not marks:
            return CacheUse(fresh=total)
        now = self._clock()
        upto = _running(tokens)
        keys = _Keys(model, body, units, digests)
        hit = self._longest_hit(marks, keys, now)
        use = CacheUse(read=upto[hit] if hit >= 0 else 0)
        done = use.read
        for mark in marks:
            if upto[mark.index] < minimum:
                continue  # too small: skipped without a word, as the API does
            if mark.index > hit:
                use.written[mark.ttl] += upto[mark.index] - done
                done = upto[mark.index]
            self._write(keys.at(mark.index), mark.ttl, now)
        use.fresh = total - done
        return use

    def _longest_hit(self, marks: Sequence[Breakpoint], keys: _Keys, now: float) -> int:
        for mark in reversed(marks):
            lowest = max(mark.index - LOOK_BACK, -1)
            for index in range(mark.index, lowest, -1):
                entry = self._entries.get(keys.at(index))
                if entry is not None and entry.expires > now:
                    entry.expires = now + TTL_SECONDS[entry.ttl]
                    return index
        return -1

    def _write(self, key: tuple[str, str, bytes], ttl: str, now: float) -> None:
        entry = self._entries.get(key)
        expires = now + TTL_SECONDS[ttl]
        if entry is None or entry.expires <= expires:
            self._entries.pop(key, None)
            self._entries[key] = _Entry(expires, ttl)
        while len(self._entries) > self._limit:
            self._entries.pop(next(iter(self._entries)))


class _Keys:
    """Cache keys by position; thinking and tool choice count from the messages on."""

    def __init__(
        self, model: str, body: Json, units: Sequence[Unit], digests: Sequence[bytes]
    ) -> None:
        self._model = model
        self._units = units
        self._digests = digests
        thinking = body.get("thinking")
        kind = thinking.get("type") if isinstance(thinking, dict) else None
        kind = None if kind == "disabled" else kind
        budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        self._variant = compact([kind, budget, body.get("tool_choice")])

    def at(self, index: int) -> tuple[str, str, bytes]:
        in_messages = self._units[index].section == "messages"
        return (self._model, self._variant if in_messages else "", self._digests[index])


def _running(tokens: Sequence[int]) -> list[int]:
    total, out = 0, []
    for count in tokens:
        total += count
        out.append(total)
    return out
