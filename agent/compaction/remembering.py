"""Owns what the host remembers of a session between calls: its state, the size of its prefix."""

from __future__ import annotations

from dataclasses import replace

from agent.model_metadata import Measurement, estimate_prefix_tokens, measure
from agent.ports import SessionStore
from agent.sessions import CompressionState, LoadedSession, SessionPrefix


class StateMemory:
    """The newest compression state of the session at hand, and the store behind it."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._state: tuple[str, CompressionState] | None = None
        self._prefix: tuple[SessionPrefix, int] | None = None

    def state(self, loaded: LoadedSession) -> CompressionState:
        """What is remembered about a session: the newest that was stored from here."""
        if self._state is not None and self._state[0] == loaded.session.id:
            return self._state[1]
        return loaded.session.compression

    def current(self, loaded: LoadedSession) -> LoadedSession:
        """The session with what is remembered about it, whoever loaded it when."""
        state = self.state(loaded)
        if state == loaded.session.compression:
            return loaded
        return replace(loaded, session=replace(loaded.session, compression=state))

    def adopt(self, session_id: str, state: CompressionState) -> None:
        """This was stored together with something else."""
        self._state = (session_id, state)

    async def store(self, loaded: LoadedSession, state: CompressionState) -> LoadedSession:
        """Keep a state, where it is another one; gives back the session with it."""
        if state == self.state(loaded):
            return loaded
        self._state = (loaded.session.id, state)
        await self._store.set_compression(loaded.session.id, state)
        return self.current(loaded)

    def measure(self, loaded: LoadedSession) -> Measurement:
        """The size of the session's next prompt, and how far to trust it."""
        prefix_tokens = self.prefix_tokens(loaded.session.prefix)
        return measure(self.current(loaded), prefix_tokens=prefix_tokens)

    def prefix_tokens(self, prefix: SessionPrefix) -> int:
        """Estimate of what every request of the session carries beside its messages."""
        if self._prefix is None or self._prefix[0] is not prefix:
            self._prefix = (prefix, estimate_prefix_tokens(prefix))
        return self._prefix[1]
