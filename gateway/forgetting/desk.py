"""Owns a person's being forgotten, from the question to the last byte: asked, confirmed, done.

What was confirmed is stored before anything goes, so a crash at any moment is made good at the
next start (`resume`). Each step may be done twice.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import tzinfo
from typing import Protocol

from agent.errors import StoreError
from agent.forgetting import Answer, ForgetRequest, Forgetting, Holdings, PluginAnswer
from agent.llm.background import in_daemon_thread
from agent.mail import Address, OutboxDraft, OutboxItem
from agent.ports import Clock
from gateway.backups.shelf import Backup
from gateway.forgetting import words
from gateway.forgetting.leavings import Leavings
from gateway.forgetting.retention import tell_plugins
from gateway.intake.keys import is_personal
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

CODE_SECONDS = 600.0
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
AGAIN_SECONDS = 60.0
"""Before a store that took nothing is asked again."""
MOST_TRIES = 10
PLUGIN_TRIES = 3
"""After so many a plugin that fails is named, and holds up the answer no longer."""


class Stopping(Protocol):
    """The lanes, as far as somebody's conversations have to rest."""

    def resting(self, keys: Collection[str]) -> AbstractContextManager[None]:
        """Nothing begins under these keys while the block runs."""
        ...

    async def quiet(self, keys: Collection[str], owner: str) -> bool:
        """End what runs there: this person's at once, others' when it is done or time is up."""
        ...


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What came of it."""

    erased: Holdings
    plugins: tuple[PluginAnswer, ...] = ()


class _NotYet(Exception):
    """A plugin that is able to could not now."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Something that remembers texts for as long as the process runs."""

    drop: Callable[[Holdings, Sequence[str]], None]
    """Told what was erased, and which files are gone."""


@dataclass(frozen=True, slots=True)
class _Pending:
    code: str
    until: float
    """By the monotonic clock."""


class ForgettingDesk:
    """One for the daemon."""

    def __init__(
        self,
        store: Forgetting,
        leavings: Leavings,
        clock: Clock,
        zone: Callable[[], tzinfo],
        *,
        lanes: Stopping | None = None,
        caches: Iterable[Cache] = (),
        hand_over: Callable[[Iterable[OutboxItem]], None] = lambda items: None,
        withdraw: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Take the parts.

        ``lanes``: None: nothing runs (no daemon). ``withdraw``: takes out of delivery what is not
        owed any more.
        """
        self._store = store
        self._leavings = leavings
        self._clock = clock
        self._zone = zone
        self._lanes = lanes
        self._caches = tuple(caches)
        self._hand_over = hand_over
        self._withdraw = withdraw
        self._pending: dict[str, _Pending] = {}
        self._tasks = TaskOwner(clock)

    async def ask(self, owner: str) -> tuple[str, str | None]:
        """What is held of this person, in words, and the code that confirms; None: nothing is."""
        held = await self._store.holdings(owner)
        if held.nothing:
            return words.NOTHING, None
        now = self._clock.monotonic()
        self._pending = {who: p for who, p in self._pending.items() if p.until > now}
        code = "".join(secrets.choice(_ALPHABET) for _ in range(6))
        self._pending[owner] = _Pending(code, now + CODE_SECONDS)
        able = self._leavings.plugins.can() if self._leavings.plugins is not None else ()
        backups, files = await self._left_behind()
        kept = words.files_left(files, able)
        return words.question(held, backups, kept, code, self._zone(), able), code

    async def _left_behind(self) -> tuple[Sequence[Backup], Sequence[str]]:
        """Backups and files of plugins. A backup may lie on a disk that hangs: not on the loop."""
        leavings = self._leavings
        return await in_daemon_thread(
            lambda: (leavings.backups(), leavings.plugin_files()), "what is left behind"
        )

    async def confirm(
        self, owner: str, code: str, *, inbox_id: int | None = None, to: Address | None = None
    ) -> bool:
        """Begin, if this is the code that this very person was given; False: it is not.

        The row that asked is answered with it. It goes on by itself.
        """
        pending = self._pending.get(owner)
        if pending is None or pending.until <= self._clock.monotonic():
            return False
        if not secrets.compare_digest(pending.code.encode(), code.strip().lower().encode()):
            return False
        request = await self._store.begin_forgetting(owner, inbox_id=inbox_id, answer_to=to)
        self._pending.pop(owner, None)
        self._tasks.spawn(self._patiently(request), name="forgetting")
        return True

    async def survey(self, owner: str) -> Holdings:
        """For the operator."""
        return await self._store.holdings(owner)

    async def forget(self, owner: str) -> Forgotten:
        """At the operator's word: all of it, to the end."""
        request = await self._store.begin_forgetting(owner)
        return await self._carry_out(request)

    async def resume(self) -> int:
        """At a start, before any message: what the last run has begun goes on; how much it was.

        Rows and files are gone when this returns; what may take long goes on by itself.
        """
        requests = await self._store.forgetting()
        for stored in requests:
            request = stored
            log.info("a person is being forgotten since the last run")
            try:
                request, _ = await self._erase(request, by_plugins=False)
            except (StoreError, OSError) as exc:  # no reason not to serve everybody else
                log.warning("forgetting waits", extra={"error": repr(exc)})
            self._tasks.spawn(self._patiently(request), name="forgetting")
        self._tasks.spawn(self._go_on_clearing(), name="retention in plugins")
        return len(requests)

    async def idle(self, seconds: float) -> bool:
        """Wait until nothing is being erased; False if that took too long."""
        return await self._tasks.wait(seconds)

    async def close(self) -> None:
        """What is not done is done after the next start."""
        await self._tasks.cancel(1.0)

    @property
    def leavings(self) -> Leavings:
        """What there is of people beside the store, for whoever else takes it away."""
        return self._leavings

    # step by step

    async def _go_on_clearing(self) -> None:
        """What retention has taken away in the last run, and plugins were not told of."""
        try:
            await tell_plugins(self._store, self._leavings.plugins)
        except StoreError as exc:
            log.warning("retention in plugins waits", extra={"error": repr(exc)})

    async def _patiently(self, request: ForgetRequest) -> None:
        for tries in range(1, MOST_TRIES + 1):
            try:
                await self._carry_out(request, insists=tries < PLUGIN_TRIES)
            except (StoreError, OSError, _NotYet) as exc:
                log.warning("forgetting waits", extra={"tries": tries, "error": repr(exc)})
                await self._clock.sleep(AGAIN_SECONDS)
            else:
                return
        log.error("forgetting is left to the next start")

    async def _carry_out(self, request: ForgetRequest, *, insists: bool = False) -> Forgotten:
        """``insists``: as long as a plugin fails that is able to, it is not done."""
        request, plugins = await self._erase(request)
        failed = [each.name for each in plugins if each.answer is Answer.FAILED]
        if failed and insists:
            raise _NotYet(", ".join(failed))
        erased = request.erased or Holdings()
        rewrite = self._leavings.rewrite
        rewritten = rewrite is None or await rewrite()
        backups, files = await self._left_behind()
        text = words.done(
            erased,
            backups,
            words.files_left(files, words.erased_by(plugins)),
            self._zone(),
            plugins,
            rewritten=rewritten,
        )
        to = request.answer_to
        owed = () if to is None else (OutboxDraft(to, text, "command"),)
        self._hand_over(await self._store.finish_forgetting(request.owner, owed))
        log.info(
            "a person was forgotten",
            extra={
                "messages": erased.messages,
                "conversations": erased.conversations,
                "shared_conversations": erased.shared,
                "files": len(request.file_names),
                "database_rewritten": rewritten,
                "plugins": {each.name: str(each.answer) for each in plugins},
            },
        )
        return Forgotten(erased, tuple(plugins))

    async def _erase(
        self, request: ForgetRequest, *, by_plugins: bool = True
    ) -> tuple[ForgetRequest, Sequence[PluginAnswer]]:
        """Rows, memories of this process, what plugins keep, files, in this order.

        Nothing begins in those conversations before the plugins are done: an engine that is made
        anew would find, and go on with, what is about to be erased.
        """
        held = request.erased or await self._store.holdings(request.owner)
        with self._lanes.resting(held.keys) if self._lanes is not None else nullcontext():
            if self._lanes is not None and not await self._lanes.quiet(held.keys, request.owner):
                log.warning("something still runs in a conversation whose words are erased")
            if request.erased is None:
                request = await self._store.erase(request.owner)
            erased = request.erased or Holdings()
            for cache in self._caches:
                cache.drop(erased, request.file_names)
            plugins = await self._by_plugins(request.owner, erased) if by_plugins else ()
        if self._withdraw is not None:
            await self._withdraw()
        if self._leavings.files is not None and request.file_names:
            await self._leavings.files.remove(request.file_names)
        if self._leavings.clear_workspace is not None:
            for place in (request.owner, *filter(is_personal, erased.keys)):
                await self._leavings.clear_workspace(place)
        return request, plugins

    async def _by_plugins(self, owner: str, erased: Holdings) -> Sequence[PluginAnswer]:
        others = self._leavings.plugins
        if others is None:
            return ()
        return await others.forget(
            owner,
            keys=tuple(filter(is_personal, erased.keys)),
            conversations=erased.conversation_ids,
            sessions=await self._store.sessions_of(erased.conversation_ids),
        )
