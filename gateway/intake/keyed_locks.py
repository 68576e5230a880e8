"""Owns the locks of conversations: one for each, for as long as somebody wants it."""

from __future__ import annotations

import asyncio
from types import TracebackType


class KeyedLocks:
    """Whoever asks first has it first."""

    def __init__(self) -> None:
        self._users: dict[str, _Shared] = {}

    @property
    def in_use(self) -> int:
        """How many keys are held or wanted."""
        return len(self._users)

    def hold(self, key: str) -> _Hold:
        """To be entered at once: a lock for as long as the block runs."""
        return _Hold(self._users, key)


class _Shared:
    """The lock of one key, and how many hold it or wait for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Hold:
    """A context manager without a generator: every message passes through one."""

    __slots__ = ("_all", "_key", "_shared")

    def __init__(self, every: dict[str, _Shared], key: str) -> None:
        self._all, self._key = every, key
        self._shared: _Shared | None = None

    async def __aenter__(self) -> None:
        shared = self._all.get(self._key)
        if shared is None:
            shared = self._all[self._key] = _Shared()
        self._shared = shared
        shared.users += 1
        try:
            await shared.lock.acquire()
        except BaseException:
            self._leave(shared)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._shared is not None
        self._shared.lock.release()
        self._leave(self._shared)

    def _leave(self, shared: _Shared) -> None:
        shared.users -= 1
        if not shared.users:
            del self._all[self._key]
