"""Owns the life of somebody else's engine in one conversation: what it is told, in which order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.compaction.host.foreign_compressing import ForeignCompressing
from agent.compaction.host.foreign_extras import ForeignExtras
from agent.compaction.host.foreign_lists import copied
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.engine_host import QUICK_SECONDS, EngineHost
from agent.errors import EngineError
from agent.keywords import accepted
from agent.ports import Clock
from agent.sessions import LoadedSession, Session

log = logging.getLogger(__name__)

SessionDb = Callable[[], object | None]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What an engine is told of its host."""

    home: str = ""
    """The folder that plugins take for their host's home."""
    base_url: str = ""
    provider: str = ""
    api_mode: str = ""
    model_thresholds: Mapping[str, float] = field(default_factory=dict)
    session_db: SessionDb = lambda: None
    """Makes what an engine is given as its host's list of sessions."""
    before_boundary: Callable[[], Awaitable[None]] | None = None
    """Brings that list up to date, before an engine is told of a session. Never raises."""
    on_tools: Callable[[object], None] = lambda schemas: None
    """Told which tools an instance says that it has. Called on the engine's thread."""
    on_threshold: Callable[[int, int], None] = lambda window_tokens, threshold_tokens: None
    """Told from where on an instance compresses that knows its window; 0: it does not say."""


class ForeignEngine:
    """One engine of somebody else's, for one conversation. All of its code runs on its threads.

    What fails there is an `EngineError` where something was wanted of it, and a line in the log
    where it was only told something.
    """

    def __init__(
        self,
        engine: ContextEngine,
        threads: DaemonThreads,
        clock: Clock,
        *,
        timeout_seconds: float,
        name: str = "",
        facts: HostFacts | None = None,
        window: Callable[[], int] | None = None,
    ) -> None:
        """Take the conversation's own instance.

        Args:
            engine: Nobody else uses it.
            threads: Where it runs; shared with other engines of others.
            clock: Time.
            timeout_seconds: For `compress`.
            name: As it is called in texts.
            facts: What it is told of its host.
            window: The model's window as known now; None: it has been told (`update_model` done).
        """
        self.engine = engine
        self.host = EngineHost(engine, threads, clock, name=name)
        self._facts = facts or HostFacts()
        self._window = window
        self._told_window = 0
        self._lowered: int | None = None
        self._introduced = False
        self._awaits_usage = False
        self._unsaid: dict[str, Any] | None = None
        self.extras = ForeignExtras(self.host, lambda: self.window_tokens)
        self.compressing = ForeignCompressing(self.host, self.mind_the_window, timeout_seconds)

    @property
    def window_tokens(self) -> int:
        """The window that counts for this conversation; 0: nobody knows."""
        known = self._window() if self._window is not None else self.host.context_length
        return known if self._lowered is None else min(known, self._lowered)

    # --- the model and its window ----------------------------------------------------------------

    async def introduce(self, model: str) -> None:
        """The first thing that it hears: thresholds per model, then the model and its window.

        Raises:
            EngineError: It can not be used.
        """
        thresholds = dict(self._facts.model_thresholds)

        def work() -> None:
            if thresholds:
                self.engine.model_thresholds = thresholds
            self._update_model(model, self.window_tokens)

        await self.host.run(work, "update_model", QUICK_SECONDS)
        self._knows(self.window_tokens)

    def lower_window(self, limit_tokens: int) -> None:
        """The provider named a smaller window; the engine hears of it before it is used again."""
        self._lowered = limit_tokens

    async def mind_the_window(self, model: str) -> None:
        """Before it decides anything: another window than it was told is told now.

        Raises:
            EngineError: It failed, or it is busy.
        """
        wanted = self.window_tokens
        known = self._told_window or self.host.context_length
        if wanted != known and wanted > 0:
            await self.host.run(
                lambda: self._update_model(model, wanted), "update_model", QUICK_SECONDS
            )
            self._knows(wanted)

    def _knows(self, window_tokens: int) -> None:
        self._told_window = window_tokens
        self._facts.on_threshold(window_tokens, self.host.threshold_tokens)

    def _update_model(self, model: str, window_tokens: int) -> None:
        more = {
            "base_url": self._facts.base_url,
            "api_key": "",  # never ours: a plugin that needs one declares it
            "provider": self._facts.provider,
            "api_mode": self._facts.api_mode,
        }
        call = self.engine.update_model
        call(model, window_tokens, **accepted(call, more))

    # --- the life of the conversation ------------------------------------------------------------

    async def starts(self, session: Session, key: str, *, branched: bool = False) -> None:
        """It is in this session now, the first that it hears of, or the key is another one now.

        ``branched``: it was copied from another conversation, and nothing was answered in it yet.
        """
        await self._before_boundary()
        if not self._introduced:
            self._introduced = True
            await self._bind(session)
        more: dict[str, Any] = {"hermes_home": self._facts.home} if self._facts.home else {}
        if branched:
            more |= {"old_session_id": session.parent_session_id, "boundary_reason": "branch"}
        await self.host.tell("on_session_start", session.id, **self._where(session, key), **more)

    async def _bind(self, session: Session) -> None:
        database = self._facts.session_db()

        def work() -> None:
            bind = getattr(self.engine, "bind_session_state", None)
            if callable(bind):
                keywords = {"session_db": database, "session_id": session.id}
                bind(**accepted(bind, keywords))
            if not self.host.inherits("get_tool_schemas"):
                self._facts.on_tools(self.engine.get_tool_schemas())

        try:
            await self.host.run(work, "bind_session_state", QUICK_SECONDS)
        except EngineError:
            log.warning("context engine was not bound to its session", exc_info=True)

    async def moves(self, session: Session, key: str, old: LoadedSession) -> None:
        """From one session of the conversation to the next: the old one has ended."""
        await self._ended(old)
        await self._before_boundary()
        await self.host.tell(
            "on_session_start",
            session.id,
            boundary_reason=old.session.end_reason,
            old_session_id=old.session.id,
            **self._where(session, key),
        )
        await self.mark_unknown()
        await self.say_usage()

    async def resets(self, session: Session, key: str, old: LoadedSession) -> None:
        """A new conversation begins in the old one's place."""
        await self._ended(old)
        await self.host.tell("on_session_reset")
        await self._before_boundary()
        await self.host.tell(
            "on_session_start",
            session.id,
            old_session_id=old.session.id,
            **self._where(session, key),
        )
        self._unsaid = None

    async def _before_boundary(self) -> None:
        if self._facts.before_boundary is not None:
            await self._facts.before_boundary()

    async def _ended(self, old: LoadedSession) -> None:
        if not self.host.inherits("on_session_end"):
            rows = old.rows
            await self._told(
                lambda: self.engine.on_session_end(old.session.id, copied(rows)), "on_session_end"
            )

    async def ends(self, old: LoadedSession | None) -> None:
        """The daemon goes down (or, without a session, only this instance goes): let it close."""
        if old is not None:
            await self._ended(old)

        def work() -> None:
            shutdown = getattr(self.engine, "shutdown", None)
            if callable(shutdown):
                shutdown()

        await self._told(work, "shutdown")

    def _where(self, session: Session, key: str) -> dict[str, Any]:
        facts = {
            "platform": session.prefix.source,
            "model": session.prefix.model,
            "context_length": self.host.context_length or self.window_tokens,
            "conversation_id": key,
        }
        return {name: value for name, value in facts.items() if value not in (None, "")}

    async def mark_unknown(self) -> None:
        """Another list has another size, which nobody knows before its first answer."""

        def work() -> None:
            self.engine.last_prompt_tokens = -1
            self.engine.last_completion_tokens = 0
            self.engine.awaiting_real_usage_after_compression = True  # type: ignore[attr-defined]

        self._awaits_usage = True
        await self._told(work, "last_prompt_tokens")

    async def _told(self, work: Callable[[], None], what: str) -> None:
        try:
            await self.host.run(work, what, QUICK_SECONDS)
        except EngineError:
            log.warning("context engine was not told", extra={"method": what}, exc_info=True)

    # --- usage -----------------------------------------------------------------------------------

    async def tell_usage(self, figures: dict[str, Any]) -> None:
        """What a response really took; one that compresses hears of it behind that."""
        self._unsaid = figures
        self._awaits_usage = False
        if not self.host.occupied:
            await self.say_usage()

    async def miss_usage(self) -> None:
        """A response came without usage: only the first one behind a compression is told."""
        if self._awaits_usage:
            await self.tell_usage({})

    async def say_usage(self) -> None:
        """What it could not be told while it was busy."""
        figures, self._unsaid = self._unsaid, None
        if figures is not None:
            await self.host.tell("update_from_response", figures)
