"""Owns what is told of Discord: whether its lines are up, whether the store is, signs of life."""

from __future__ import annotations

from collections.abc import Callable

from agent.ports import Clock
from gateway.platforms.contract import PlatformState, Report

SIGN_EVERY_SECONDS = 15.0
DISCONNECTED = "disconnected; trying again"
NO_STORE = "the store is not available"


class Lines:
    """One line to Discord per shard, each from its new session to the loss of it.

    Once every line is ready, `on_ready` is called, again after each new session. In between, what
    comes live may lie behind a gap.
    """

    def __init__(
        self,
        on_new: Callable[[], None],
        on_ready: Callable[[], None],
        on_change: Callable[[bool], None],
    ) -> None:
        """``on_change`` is told after each event whether every line is up."""
        self._on_new = on_new
        self._on_ready = on_ready
        self._on_change = on_change
        self._unbegun: set[int] = {0}
        """Lines that are asking for a new session and have not got it."""
        self._unready: set[int] = {0}
        """Lines whose session is not complete."""
        self._lost: set[int] = set()

    def expect(self, shards: int) -> None:
        """So many lines there will be."""
        self._unbegun, self._unready = set(range(shards)), set(range(shards))

    @property
    def up(self) -> bool:
        """Every line has a session and a connection."""
        return not self._unready and not self._lost

    def identifying(self, shard_id: int) -> None:
        """A new session begins: what came before it is not replayed."""
        self._unbegun.add(shard_id)
        self._unready.add(shard_id)
        self._on_new()

    def begun(self, shard_id: int) -> None:
        """The session is there: from here on nothing is lost while it lives."""
        self._unbegun.discard(shard_id)
        self._lost.discard(shard_id)

    def ready(self, shard_id: int) -> None:
        """Its guilds are known; may be said again. Ignored if it is of the session before."""
        if shard_id in self._unbegun or shard_id not in self._unready:
            return
        self._unready.discard(shard_id)
        if not self._unready:
            self._on_ready()
        self._on_change(self.up)

    def resumed(self, shard_id: int) -> None:
        """The old session goes on; Discord has replayed what was missed."""
        self._lost.discard(shard_id)
        self._on_change(self.up)

    def lost(self, shard_id: int) -> None:
        """No connection; the SDK tries again."""
        self._lost.add(shard_id)
        self._on_change(self.up)


class Health:
    """Says the worse of what it knows: the supervisor takes only one."""

    def __init__(
        self, report: Report, clock: Clock, *, remark: Callable[[], str] = lambda: ""
    ) -> None:
        """``remark``: what is worth knowing while all is well; empty: nothing."""
        self._report = report
        self._clock = clock
        self._remark = remark
        self._connected: bool | None = None
        self._store_ok = True
        self._said_at = clock.monotonic()

    def connection(self, up: bool) -> None:
        """All lines are up, or one is not."""
        if up or self._connected is not None:  # before, it still starts
            self._connected = up
            self._say()

    def store(self, ok: bool) -> None:
        """The store takes messages, or not."""
        if ok != self._store_ok:
            self._store_ok = ok
            self._say()

    def alive(self) -> None:
        """Something was heard; said on from time to time."""
        if self._clock.monotonic() - self._said_at >= SIGN_EVERY_SECONDS:
            self._say()

    def _say(self) -> None:
        self._said_at = self._clock.monotonic()
        if self._connected is None:
            return
        if not self._connected:
            self._report(PlatformState.DEGRADED, DISCONNECTED)
        elif not self._store_ok:
            self._report(PlatformState.DEGRADED, NO_STORE)
        else:
            self._report(PlatformState.RUNNING, self._remark())
