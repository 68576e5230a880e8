"""Owns the nouns around MCP servers: how one is reached, what it offers, what a call came to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from agent.messages import ToolSchema

ApproveRule = Literal["always", "never", "writes"]
"""Before which calls a person is asked; ``writes``: all but those of tools that only read."""


class ServerFailed(Exception):
    """It can not be reached, or is gone; another try may do. The text is for a log and a status."""


class ServerHopeless(ServerFailed):
    """Only the operator can help."""


class Refused(Exception):
    """The server said no to a call; the text, its own words, is for the model."""


@dataclass(frozen=True, slots=True)
class StdioWay:
    """A program that is started and spoken to through its standard streams."""

    command: tuple[str, ...]
    folder: Path
    """Where it begins."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All of its environment."""


@dataclass(frozen=True, slots=True)
class HttpWay:
    """A server that somebody else runs (streamable HTTP)."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server, as the configuration has it, its secrets filled in."""

    name: str
    way: StdioWay | HttpWay
    timeout_seconds: float = 60.0
    """Of one call."""
    approve: ApproveRule | frozenset[str] = "writes"
    """A set: before calls of these tools."""
    only: frozenset[str] | None = None
    """The tools that may be used, by the server's own names; None: all."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not be repeated of its own words about itself."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool of a server, made fit for a model."""

    tool: str
    """The server's own name for it."""
    schema: ToolSchema
    read_only: bool = False
    """The server says so; so do the others."""
    destructive: bool = True
    open_world: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers, and what of that is left out, a line each."""

    offers: tuple[Offer, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Words of a result."""

    text: str


@dataclass(frozen=True, slots=True)
class DataPiece:
    """Bytes of a result, whatever they are."""

    data: bytes
    media_type: str
    name: str = ""


Piece = TextPiece | DataPiece


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to."""

    pieces: Sequence[Piece]
    is_error: bool = False


class Connection(Protocol):
    """A server that has been reached."""

    @property
    def changed(self) -> asyncio.Event:
        """Set whenever the server says that it offers something else now."""
        ...

    @property
    def lost(self) -> asyncio.Event:
        """Set once nothing more will come from it."""
        ...

    @property
    def reason(self) -> str:
        """Why it is lost."""
        ...

    async def listing(self) -> Listing:
        """What it offers.

        Raises:
            ServerFailed: it does not say.
        """
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> Answer:
        """Call a tool; the server is told if nobody wants the result any more.

        Raises:
            Refused: the server does not do it.
            ServerFailed: it is gone, or what it said is no answer.
            TimeoutError: no answer in time.
            asyncio.CancelledError: the caller was cancelled.
        """
        ...


class Connector(Protocol):
    """Something that reaches servers."""

    def __call__(
        self, server: ServerSettings, *, legacy: bool = False
    ) -> AbstractAsyncContextManager[Connection]:
        """Reach it, for as long as the block runs; what was started for it is ended then.

        ``legacy``: only by the older way to begin, because the newer one came to nothing.

        Raises:
            ServerHopeless: the operator has to do something.
            ServerFailed: it can not be reached.
        """
        ...
