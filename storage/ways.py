"""Owns the ways from a method of the port to the thread that does its work.

What a method does is one function, which is given a transaction or a reading connection in front of
the method's own arguments. So a method is declared by its way and that function, and the function's
signature is the port's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol

from agent.store_ports import StoreWork
from storage.archive import A, Reading, T
from storage.database import Transaction

P = ParamSpec("P")


class Writing(Protocol):
    """The way to the one writer."""

    def write(self, function: Callable[[Transaction, *A], T], *args: *A) -> Awaitable[T]:
        """Run this in a transaction that it may share with other calls."""
        ...

    def write_alone(self, function: Callable[[Transaction, *A], T], *args: *A) -> Awaitable[T]:
        """Run this in a transaction of its own: it takes long."""
        ...

    def outside(self, function: Callable[[sqlite3.Connection, *A], T], *args: *A) -> Awaitable[T]:
        """Run this with the writing connection itself, outside any transaction."""
        ...

    def trouble(self) -> str | None:
        """Why the last transaction failed, or the next one will; None: they do not."""
        ...

    def at_work(self) -> StoreWork | None:
        """As `agent.store_ports.Store.at_work`."""
        ...

    def now(self) -> float:
        """The time that a call is given now."""
        ...

    def condemn(self, reason: str) -> None:
        """Take nothing more, for this reason, which `trouble` says from now on."""
        ...

    @property
    def idle_seconds(self) -> float:
        """For how long nothing was written."""
        ...

    async def close(self) -> None:
        """Finish what is queued and let go. May be called twice."""
        ...


class Ways(Protocol):
    """Who has them all."""

    _writing: Writing
    _quick: Reading
    _reading: Reading
    """For what may take long."""


Method = Callable[Concatenate[Ways, P], Coroutine[Any, Any, T]]


def written(function: Callable[Concatenate[Transaction, P], T]) -> Method[P, T]:
    """In a transaction that it may share with other calls."""

    @wraps(function)
    async def method(self: Ways, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._writing.write(_with(function, kwargs), *_own(args))

    return method


def written_alone(function: Callable[Concatenate[Transaction, P], T]) -> Method[P, T]:
    """In a transaction of its own: it takes long."""

    @wraps(function)
    async def method(self: Ways, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._writing.write_alone(_with(function, kwargs), *_own(args))

    return method


def read(function: Callable[Concatenate[sqlite3.Connection, P], T]) -> Method[P, T]:
    """At once: behind nothing that takes long."""

    @wraps(function)
    async def method(self: Ways, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._quick.read(_with(function, kwargs), *_own(args))

    return method


def read_at_leisure(function: Callable[Concatenate[sqlite3.Connection, P], T]) -> Method[P, T]:
    """It may take long, and wait for others that do."""

    @wraps(function)
    async def method(self: Ways, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._reading.read(_with(function, kwargs), *_own(args))

    return method


def _with(function: Callable[..., T], keywords: Mapping[str, Any]) -> Callable[..., T]:
    if not keywords:
        return function
    return partial(function, **dict(zip(keywords, _own(tuple(keywords.values())), strict=True)))


def _own(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lists stay with the caller, who may change them while the other thread reads."""
    if list not in map(type, arguments):
        return arguments
    return tuple(tuple(each) if isinstance(each, list) else each for each in arguments)
