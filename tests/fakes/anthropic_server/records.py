"""Owns the memory of the server: every request with its verdict, counters, warnings."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.anthropic_server.units import Json

HEADERS_OF_INTEREST = (
    "anthropic-version",
    "anthropic-beta",
    "content-type",
    "user-agent",
    "x-stainless-retry-count",
)
WARNINGS_KEPT = 1000

# Verdicts: "open" while it is judged, then
#   "ok"            answered
#   "rejected"      a rule of the API was broken (400 and 413)
#   "too_long"      the input, or input plus output, does not fit the window
#   "unauthorized"  401
#   "not_found"     unknown model or path
#   "fault"         a scripted fault
#   "crashed"       a responder raised, or the script makes no sense
VERDICTS = ("ok", "rejected", "too_long", "unauthorized", "not_found", "fault", "crashed")


@dataclass
class RequestRecord:
    """One request as it came and how it was answered."""

    number: int
    path: str
    at: float
    headers: Mapping[str, str]
    body: Json | None = None
    size: int = 0
    verdict: str = "open"
    rule: str = ""
    message: str = ""
    status: int = 0
    fault: str = ""
    summary: bool = False
    stream: bool = False
    input_tokens: int = 0
    usage: Json = field(default_factory=dict)
    stop_reason: str | None = None
    answer: list[Json] = field(default_factory=list)
    transformations: list[Json] = field(default_factory=list)
    client_gone: bool = False
    done: bool = False

    @property
    def model(self) -> str:
        return str((self.body or {}).get("model", ""))

    @property
    def messages(self) -> list[Json]:
        return list((self.body or {}).get("messages", []))

    def to_json(self) -> Json:
        """For the control API."""
        return {**self.__dict__, "headers": dict(self.headers)}


class Records:
    """All requests, or the last `keep` of them; rejected ones are always kept."""

    def __init__(self, clock: Callable[[], float], keep: int | None) -> None:
        self._clock = clock
        self.requests: deque[RequestRecord] = deque(maxlen=keep)
        self.others: deque[RequestRecord] = deque(maxlen=keep)
        self.rejected: list[RequestRecord] = []
        self.warnings: deque[tuple[int, str, str]] = deque(maxlen=WARNINGS_KEPT)
        self.counts: Counter[str] = Counter()
        self.warning_counts: Counter[str] = Counter()
        self.in_flight = 0
        self.max_in_flight = 0
        self._number = 0
        self._changed = asyncio.Event()

    def clear(self) -> None:
        """Forget everything but the running number."""
        for store in (self.requests, self.others, self.rejected, self.warnings):
            store.clear()
        self.counts.clear()
        self.warning_counts.clear()
        self.max_in_flight = self.in_flight

    def open(self, path: str, headers: Mapping[str, str], size: int) -> RequestRecord:
        """A new record, in flight from now on."""
        self._number += 1
        seen = {name: headers[name] for name in HEADERS_OF_INTEREST if name in headers}
        record = RequestRecord(self._number, path, self._clock(), seen, size=size)
        target = self.requests if path == "/v1/messages" else self.others
        target.append(record)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.counts["requests" if target is self.requests else "other"] += 1
        self._notify()
        return record

    def judge(self, record: RequestRecord, verdict: str, **facts: Any) -> None:
        """Write the verdict down; the first one counts."""
        for name, value in facts.items():
            setattr(record, name, value)
        if record.verdict != "open":
            return
        record.verdict = verdict
        self.counts[verdict] += 1
        if record.summary:
            self.counts["summary"] += 1
        if verdict == "rejected":
            self.rejected.append(record)
            self.counts[f"rule:{record.rule}"] += 1

    def warn(self, record: RequestRecord, found: list[tuple[str, str]]) -> None:
        """Write doubtful points down."""
        for rule, message in found:
            self.warnings.append((record.number, rule, message))
            self.warning_counts[rule] += 1

    def close(self, record: RequestRecord) -> None:
        """The answer is out, or the client went away."""
        record.done = True
        self.in_flight -= 1
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Whether `holds` became true in time; looked at after each request."""
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    await self._changed.wait()
        except TimeoutError:
            return holds()
        return True

    def stats(self) -> Json:
        """Counters for the control API."""
        return {
            **{name: self.counts[name] for name in ("requests", "summary", "other", *VERDICTS)},
            "rules": {k[5:]: v for k, v in self.counts.items() if k.startswith("rule:")},
            "warnings": dict(self.warning_counts),
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "last_number": self._number,
        }
