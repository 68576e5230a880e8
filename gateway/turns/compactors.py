"""Owns the compactors of the conversations that were busy lately."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from agent.ports import Compactor

log = logging.getLogger(__name__)

MAX_COMPACTORS = 128

Make = Callable[[str], Compactor | Awaitable[Compactor]]


class Keeper(Protocol):
    """Looks after compactors that have more than the store knows: those with engines of others."""

    def survives(self, compactor: Compactor) -> bool:
        """Does it stay when all are made anew, because it minds a changed window by itself?"""
        ...

    async def succeed(self, compactor: Compactor, old_id: str, new_id: str) -> Compactor:
        """The compactor of a conversation that begins in the place of another one."""
        ...

    async def let_go(self, compactor: Compactor, conversation_id: str) -> None:
        """Nobody uses it any more; its conversation goes on."""
        ...

    async def close(self, compactors: Iterable[tuple[str, Compactor]]) -> None:
        """The daemon goes down, with these in use."""
        ...


@dataclass(slots=True)
class _Entry:
    making: asyncio.Future[Compactor]
    users: int = 0

    @property
    def is_made(self) -> bool:
        return self.making.done() and not self.making.cancelled() and not self.making.exception()


class CompactorCache:
    """One compactor per conversation; the longest unused goes when there are too many.

    What a compactor has to remember is stored with its session, so a new one goes on where the old
    one was. Whoever asks for one that is being made waits for that one.
    """

    def __init__(
        self,
        factory: Make,
        *,
        max_compactors: int = MAX_COMPACTORS,
        keeper: Keeper | None = None,
    ) -> None:
        self._factory = factory
        self._max = max_compactors
        self._keeper = keeper
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._going: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, conversation_id: str) -> Compactor:
        """The conversation's compactor, made if it is missing.

        Cancelled, it is made all the same, for whoever asks next.
        """
        return await self._made(self._entry(conversation_id), conversation_id)

    @asynccontextmanager
    async def using(self, conversation_id: str) -> AsyncIterator[Compactor]:
        """The same for longer: as long as somebody uses it, it is not let go."""
        entry = self._entry(conversation_id)
        entry.users += 1
        try:
            yield await self._made(entry, conversation_id)
        finally:
            entry.users -= 1

    def clear(self) -> None:
        """Make every compactor anew at its next use: the window has changed."""
        for conversation_id, entry in list(self._entries.items()):
            if self._keeper is not None and not entry.making.done():
                continue
            stays = self._keeper is not None and entry.is_made
            if not (stays and self._keeper and self._keeper.survives(entry.making.result())):
                del self._entries[conversation_id]

    def drop(self, conversation_ids: Iterable[str]) -> None:
        """What was said there is erased: nothing that was made of it stays in memory."""
        for conversation_id in conversation_ids:
            entry = self._entries.pop(conversation_id, None)
            if entry is not None:
                self._send_off(entry, conversation_id)

    async def at_rest(self) -> None:
        """Wait until what was let go has been told so; each has its own deadline."""
        if self._going:
            await asyncio.wait(set(self._going))

    async def close(self) -> None:
        """The daemon goes down: those in use are told, who was told just now may finish.

        Whoever waits sets the limit: when this ends, also by a cancellation, nothing goes on.
        """
        keeper = self._keeper
        if keeper is None:
            return
        making = [(name, e.making) for name, e in self._entries.items() if not e.making.done()]
        late = [asyncio.ensure_future(self._made_late(*one)) for one in making]
        closing = asyncio.ensure_future(keeper.close(self.made()))
        told: list[asyncio.Future[None]] = [closing, *late, *self._going]
        try:
            await asyncio.wait(told)
        finally:
            for task in told:
                task.cancel()
            for _, each in making:
                each.cancel()
        closing.result()

    async def _made_late(self, conversation_id: str, making: asyncio.Future[Compactor]) -> None:
        """Nobody has used it, and nobody will."""
        await asyncio.wait({making})
        if not making.cancelled() and making.exception() is None:
            await self._let_go(making.result(), conversation_id)

    def succeed(self, old_id: str, new_id: str) -> None:
        """A conversation is over, and another one begins in its place. Returns at once."""
        entry = self._entries.pop(old_id, None)
        keeper = self._keeper
        if keeper is None or (entry is None and new_id in self._entries):
            return

        async def successor() -> Compactor:
            old = await (entry.making if entry is not None else self._making(old_id))
            return await keeper.succeed(old, old_id, new_id)

        task = asyncio.get_running_loop().create_task(successor(), name=f"engine of {new_id}")
        self._entries[new_id] = _Entry(task)

    def made(self) -> Sequence[tuple[str, Compactor]]:
        """Those that are there, with their conversations."""
        return [(name, e.making.result()) for name, e in self._entries.items() if e.is_made]

    def _entry(self, conversation_id: str) -> _Entry:
        entry = self._entries.get(conversation_id)
        if entry is None or (entry.making.done() and not entry.is_made):
            entry = self._entries[conversation_id] = _Entry(self._making(conversation_id))
        self._entries.move_to_end(conversation_id)
        self._trim(conversation_id)
        return entry

    def _making(self, conversation_id: str) -> asyncio.Future[Compactor]:
        """In a task of its own where it takes a while; done already where it does not."""
        made = self._factory(conversation_id)
        if inspect.isawaitable(made):
            return asyncio.ensure_future(made)
        done: asyncio.Future[Compactor] = asyncio.get_running_loop().create_future()
        done.set_result(made)
        return done

    async def _made(self, entry: _Entry, conversation_id: str) -> Compactor:
        if not entry.making.done():
            await asyncio.wait({entry.making})
        return entry.making.result()

    def _trim(self, wanted: str) -> None:
        spare = [
            name
            for name, entry in self._entries.items()
            if name != wanted and not entry.users and entry.making.done()
        ]
        for name in spare[: max(0, len(self._entries) - self._max)]:
            self._send_off(self._entries.pop(name), name)

    def _send_off(self, entry: _Entry, conversation_id: str) -> None:
        if self._keeper is not None and entry.is_made:
            task = asyncio.ensure_future(self._let_go(entry.making.result(), conversation_id))
            self._going.add(task)
            task.add_done_callback(self._going.discard)

    async def _let_go(self, compactor: Compactor, conversation_id: str) -> None:
        assert self._keeper is not None
        try:
            await self._keeper.let_go(compactor, conversation_id)
        except Exception:  # a task of its own: nobody else would hear of it
            log.exception("a compactor was not let go")
