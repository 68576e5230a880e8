"""Owns what the host remembers of a session between calls: its state, the size of its prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, replace

from agent.compaction.host.row_sums import RowSums
from agent.model_metadata import IMAGE_TOKENS, Measurement, estimate_prefix_tokens, measure
from agent.sessions import CompressionState, LoadedSession, SessionPrefix
from agent.store_ports import SessionStore

MAX_STATES = 4


class StateMemory:
    """The newest compression states of the sessions at hand, and the store behind them."""

    def __init__(
        self, store: SessionStore, image_tokens: Callable[[str], int] = lambda model: IMAGE_TOKENS
    ) -> None:
        """``image_tokens``: what a picture takes in a model's prompts."""
        self._store = store
        self._image_tokens = image_tokens
        self._sums = RowSums()
        self._states: OrderedDict[str, CompressionState] = OrderedDict()
        self._prefix: tuple[SessionPrefix, int] | None = None

    def state(self, loaded: LoadedSession) -> CompressionState:
        """What is remembered about a session: the newest that was stored from here."""
        return self._states.get(loaded.session.id, loaded.session.compression)

    def current(self, loaded: LoadedSession) -> LoadedSession:
        """The session with what is remembered about it, whoever loaded it when."""
        state = self.state(loaded)
        if state == loaded.session.compression:
            return loaded
        return replace(loaded, session=replace(loaded.session, compression=state))

    def adopt(self, session_id: str, state: CompressionState) -> None:
        """This was stored together with something else."""
        self._states[session_id] = state
        self._states.move_to_end(session_id)
        while len(self._states) > MAX_STATES:
            self._states.popitem(last=False)

    async def store(self, loaded: LoadedSession, state: CompressionState) -> LoadedSession:
        """Keep a state, where it is another one; gives back the session with it."""
        if state == self.state(loaded):
            return loaded
        self.adopt(loaded.session.id, state)
        await self._store.set_compression(loaded.session.id, state)
        return self.current(loaded)

    def rebased(self, loaded: LoadedSession, changed: CompressionState) -> CompressionState:
        """What is remembered by now, with the changes that were made to the state in ``loaded``.

        A compression that outlived its turn must not undo what was noted meanwhile.
        """
        base, newest = loaded.session.compression, self.state(loaded)
        if newest == base:
            return changed
        values = {
            field.name: value
            for field in fields(CompressionState)
            if (value := getattr(changed, field.name)) != getattr(base, field.name)
        }
        return newest.changed(**values)

    def measure(self, loaded: LoadedSession) -> Measurement:
        """The size of the session's next prompt, and how far to trust it."""
        prefix = loaded.session.prefix
        return measure(
            self.current(loaded),
            prefix_tokens=self.prefix_tokens(prefix),
            image_tokens=self.image_tokens(prefix),
            count=self._sums,
        )

    def image_tokens(self, prefix: SessionPrefix) -> int:
        """What a picture takes in this session."""
        return self._image_tokens(prefix.model)

    def prefix_tokens(self, prefix: SessionPrefix) -> int:
        """Estimate of what every request of the session carries beside its messages."""
        if self._prefix is None or self._prefix[0] is not prefix:
            self._prefix = (prefix, estimate_prefix_tokens(prefix))
        return self._prefix[1]
