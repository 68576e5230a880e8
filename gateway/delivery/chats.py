"""Owns what is known of each chat on the way out: its silence, its pace, whether it is gone."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass

from agent.mail import Address
from agent.ports import Clock
from gateway.platforms.contract import PreviewBounds

ChatKey = tuple[str, str, str]
"""Platform, bot, chat: platforms count floods by chat, its threads included."""

LONGEST_SILENCE_SECONDS = 24 * 3600.0
PREVIEW_SHARE = 0.75
"""Of what a chat takes; the rest is for what is owed."""
REMEMBERED_SECONDS = 60.0
"""The longest time over which a platform counts."""
REMEMBERED_CALLS = 64
REMEMBERED_GONE = 10_000
FORSAKEN_TIMES, FORSAKEN_SECONDS = 3, 86_400.0
"""Rights that are missing for an afternoon are no end."""
PRUNE_EVERY_SECONDS = 5.0


class FloodBudget:
    """One chat's silence and pace: everything that is sent there asks here, typing included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf
        self._calls: deque[float] = deque(maxlen=REMEMBERED_CALLS)

    def silence(self, seconds: float) -> None:
        """The platform wants quiet for this long."""
        if not math.isfinite(seconds):
            seconds = LONGEST_SILENCE_SECONDS
        seconds = min(max(seconds, 0.0), LONGEST_SILENCE_SECONDS)
        self._until = max(self._until, self._clock.monotonic() + seconds)

    def called(self) -> None:
        """A message or an edit goes out now."""
        self._calls.append(self._clock.monotonic())

    @property
    def wait_seconds(self) -> float:
        """How long nothing may be sent; 0: go."""
        return max(0.0, self._until - self._clock.monotonic())

    def spare_seconds(self, bounds: PreviewBounds) -> float:
        """How long no preview may be sent: they leave room for what is owed; 0: go."""
        share = spare_calls(bounds)
        wait = self.wait_seconds
        if len(self._calls) >= share:
            wait = max(wait, self._calls[-share] + bounds.seconds - self._clock.monotonic())
        return wait

    @property
    def is_quiet(self) -> bool:
        """Nothing about it has to be remembered."""
        last = self._calls[-1] if self._calls else -math.inf
        long_ago = self._clock.monotonic() - last > REMEMBERED_SECONDS
        return long_ago and self.wait_seconds <= 0


def spare_calls(bounds: PreviewBounds) -> int:
    """After how many calls in the time of the bounds no preview is sent."""
    return min(max(1, int(bounds.calls * PREVIEW_SHARE)), REMEMBERED_CALLS)


@dataclass(slots=True)
class _Lost:
    """A chat that takes nothing."""

    since: float
    times: int = 0


class Chats:
    """All chats; what nobody needs any more is forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budgets: dict[ChatKey, FloodBudget] = {}
        self._gone: OrderedDict[ChatKey, _Lost] = OrderedDict()
        self._prune_at = -math.inf

    def __len__(self) -> int:
        return len(self._budgets)

    def budget(self, address: Address) -> FloodBudget:
        """The chat's own, shared by all that is sent there."""
        key = chat_of(address)
        budget = self._budgets.get(key)
        if budget is None:
            self._prune()
            budget = self._budgets[key] = FloodBudget(self._clock)
        return budget

    def lost(self, address: Address) -> None:
        """The chat takes nothing any more: no ornaments are sent there until somebody writes."""
        lost = self._gone.setdefault(chat_of(address), _Lost(self._clock.monotonic()))
        lost.times += 1
        while len(self._gone) > REMEMBERED_GONE:
            self._gone.popitem(last=False)

    def heard(self, address: Address) -> None:
        """Somebody wrote there, or something arrived."""
        self._gone.pop(chat_of(address), None)

    def is_gone(self, address: Address) -> bool:
        """Is everything that is not owed in vain?"""
        return chat_of(address) in self._gone

    def is_forsaken(self, address: Address) -> bool:
        """Has it taken nothing for so long, and so often, that it is no passing trouble?"""
        lost = self._gone.get(chat_of(address))
        if lost is None or lost.times < FORSAKEN_TIMES:
            return False
        return self._clock.monotonic() - lost.since >= FORSAKEN_SECONDS

    def _prune(self) -> None:
        now = self._clock.monotonic()
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE_EVERY_SECONDS
        for key in [key for key, budget in self._budgets.items() if budget.is_quiet]:
            del self._budgets[key]


def chat_of(address: Address) -> ChatKey:
    """Which chat's budget an address falls under."""
    return (address.platform, address.bot_id, address.chat_id)
