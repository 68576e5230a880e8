"""Owns a conversation as it leaves one store for another: no row ids, only numbers of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.messages import Content, MessageKind, Role, ToolCall
from agent.sessions import EndReason

MAX_MESSAGES = 200_000
"""Of one file: it is taken in as one transaction."""
LATEST_TIME = 253_402_214_400.0
"""The last day of the year 9999: a date in every time zone."""


@dataclass(frozen=True, slots=True)
class PortableMessage:
    """A row. ``number`` counts from 1 through the whole conversation; ``origin`` is such a number.

    References to rows inside texts that the host made (``recall ref m12``) are such numbers too.
    """

    number: int
    seq: int
    active: bool
    compacted: bool
    created_at: float
    role: Role
    content: Content
    wire_content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    blocks: tuple[dict[str, Any], ...] = ()
    """The provider's, as it sent them."""
    kind: MessageKind | None = None
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class PortableAnchor:
    """The last real measurement; ``through`` is a message's number."""

    prompt_tokens: int
    output_tokens: int
    through: int


@dataclass(frozen=True, slots=True)
class PortableList:
    """The list that a compression inside its session replaced, as numbers of messages."""

    revision: int
    """That the compression made."""
    made_at: float
    carried: int
    """The newest message of the conversation right after it."""
    messages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PortableSession:
    """A session with every row it ever had, in the order of their making.

    The parent of the first one is nobody; of each other one the session before it.
    """

    id: str
    revision: int
    source: str
    model: str
    model_config: dict[str, Any]
    system_prompt: str
    tools: tuple[dict[str, Any], ...]
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: EndReason | None
    last_seq: int
    anchor: PortableAnchor | None
    compression: dict[str, Any]
    """What of it names a row is a message's number, or 0."""
    manifest: dict[str, Any] | None
    messages: tuple[PortableMessage, ...] = field(default=())
    replaced: tuple[PortableList, ...] = ()


@dataclass(frozen=True, slots=True)
class Portable:
    """One conversation: its sessions, root first, tip last."""

    conversation_id: str
    owner: str
    session_key: str
    created_at: float
    sessions: tuple[PortableSession, ...]

    @property
    def message_count(self) -> int:
        return sum(len(session.messages) for session in self.sessions)


@dataclass(frozen=True, slots=True)
class PortableFile:
    """A file that messages name (`agent.attachments`). It belongs to the owner of these."""

    name: str
    file_name: str
    media_type: str
    data: bytes | None
    """None: it was gone when the conversation left its store."""


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What an import made."""

    conversation_id: str
    tip_session_id: str
    sessions: int
    messages: int


class Outgoing(Protocol):
    """Reading a conversation whole."""

    async def portable(self, session_id: str) -> Portable:
        """The conversation that this session belongs to.

        Raises:
            SessionNotFound: never existed.
        """
        ...


class Incoming(Protocol):
    """Taking conversations in."""

    async def take_in(self, portables: Sequence[Portable]) -> list[TakenIn]:
        """Store them, all or none. Their ids stay; no session key leads to them.

        Raises:
            ImportRefused: one of their ids is here already, or one of them is not whole.
        """
        ...
