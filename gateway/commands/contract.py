"""Owns what a command is: what it is called with, what it works on, what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from agent.archive_ports import Archive
from agent.compaction.micro.progress import MicroSettings
from agent.lineages import Lineages
from agent.mail import Button, InboxRecord, OutboxItem
from agent.memory.desk import NoteDesk
from agent.model_metadata import Triggers
from agent.prompt_caching import CacheTtl
from agent.sessions import Conversation, LoadedSession, Session, SessionPrefix
from agent.store_ports import SessionStore
from agent.turn_companions import Boundary, BoundaryReason
from gateway.accounts import Accounts
from gateway.approvals import ApprovalDesk
from gateway.commands.listings import Listings
from gateway.jobs.desk import JobDesk
from gateway.lanes.jobs import BusyMode, LaneView
from gateway.restarting import RestartDesk
from gateway.turns.compactors import CompactorCache

if TYPE_CHECKING:
    from gateway.forgetting.desk import ForgettingDesk


class Status(Protocol):
    """What the daemon knows about itself, for ``/status``."""

    def window_tokens(self) -> int | None:
        """The model's window, or None while nobody has told."""
        ...

    def triggers(self) -> Triggers:
        """Window, threshold and what else follows from them, as in force now."""
        ...

    def cache(self) -> str:
        """Is the provider asked to keep what it has read, for how long, and why (in words)?"""
        ...

    def cache_ttl(self) -> CacheTtl | None:
        """How long it is kept for a person; None: it is not."""
        ...

    def summary_model(self) -> str | None:
        """Who writes summaries; None: whoever answers."""
        ...

    def micro(self) -> MicroSettings | str:
        """Micro-compaction as configured; a text: why it can not run, in words."""
        ...

    def image_tokens(self, model: str) -> int:
        """What a picture takes in this model's prompts, as far as is known."""
        ...

    def platforms(self) -> Mapping[str, tuple[str, str]]:
        """Name → state and reason."""
        ...

    def memory(self) -> str:
        """The memory provider of a plugin, in words; "": none is asked for."""
        ...

    def engine(self) -> str:
        """The context engine of a plugin, in words; "": the built-in one is asked for."""
        ...

    def remarks(self) -> list[str]:
        """Lines that an operator should see (a refused key, a stand-in engine, a small window)."""
        ...


async def _nobody(boundary: Boundary) -> None:
    pass


@dataclass(frozen=True, slots=True)
class CommandHost:
    """What commands work on."""

    sessions: SessionStore
    archive: Archive
    lineages: Lineages
    """What people do to conversations as a whole, and the ledger of their requests."""
    compactors: CompactorCache
    notes: NoteDesk
    prefix_for: Callable[[str], SessionPrefix]
    status: Status
    waiting: Callable[[str], int]
    """Messages that wait in a conversation's lane, by session key."""
    busy: Callable[[str], bool]
    accounts: Accounts
    listings: Listings = field(default_factory=Listings)
    lane: Callable[[str], LaneView] = lambda session_key: LaneView()
    """How a conversation's lane is, by session key."""
    busy_mode: Callable[[], BusyMode] = lambda: "queue"
    restarts: RestartDesk | None = None
    """None: there is no process of its own that could be started again."""
    approvals: ApprovalDesk | None = None
    """None: nothing ever has to be allowed."""
    forgetting: ForgettingDesk | None = None
    """None: there is nobody who could erase a person."""
    crossed: Callable[[Boundary], Awaitable[None]] = _nobody
    """Who rides along with turns is told where a person has led a place."""
    jobs: JobDesk | None = None
    """None: nothing happens by itself."""
    foreign: Mapping[str, Command] = field(default_factory=dict)
    """Commands of plugins, by their names; none has one of ours."""
    ask_anew: Callable[[], None] = lambda: None
    """A person wants the model asked now, also where it was left alone after a refused key."""


@dataclass(frozen=True, slots=True)
class Call:
    """One command as somebody gave it."""

    record: InboxRecord
    argument: str
    admin: bool
    shared: bool
    """Several people talk in this conversation."""
    over: asyncio.Future[None] | None = None
    """For /stop: done if what was running has ended by now; None: nothing was running."""
    inbox_id: int = 0
    """The command's own row."""
    foreign: Callable[[str], bool] = lambda name: False
    """May the sender give this command of a plugin here?"""

    @property
    def key(self) -> str:
        """The session key."""
        return self.record.session_key

    @property
    def direct(self) -> bool:
        """Nobody but the sender reads the answer."""
        return self.record.payload.get("chat_kind") == "direct"


@dataclass(frozen=True, slots=True)
class Settled:
    """The command's row was answered in the transaction of its effect: this is owed for it."""

    owed: tuple[OutboxItem, ...]


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The command's row becomes a turn, which asks the last message again."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer with more to it than its words."""

    text: str
    """Enough by itself: not everybody sees buttons."""
    buttons: tuple[Button, ...] = ()
    decides: bool = False
    """If it was a button: those of that message are of no use any more."""
    aside: bool = False
    """If it was a button: this only concerns whoever pressed it."""


Answer = str | Said | Settled | AskAgain
Place = Literal["at once", "in order"]
Group = Literal[
    "Talking",
    "This conversation",
    "Going back",
    "Other conversations",
    "About me",
    "From plugins",
    "For admins",
]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: ``in order`` waits for its turn in the lane, ``at once`` does not."""

    name: str
    help: str
    run: Callable[[CommandHost, Call], Awaitable[Answer]]
    group: Group
    """Where /help lists it."""
    place: Place = "at once"
    admin_if_shared: bool = False
    usage: str = ""
    stoppable: bool = True
    """False: done in a moment, and half done it could not be told from done."""
    admin_only: bool = False
    """For admins, also where one person talks alone; others are not even told of it."""
    plugin: str = ""
    """The key of the plugin that it is from; "": it is ours."""


async def tip(host: CommandHost, call: Call) -> LoadedSession | None:
    """The conversation that this place leads to, or None if there is none yet."""
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return None
    return await host.sessions.load(conversation.tip_session_id)


def boundary(
    reason: BoundaryReason, call: Call, old: Conversation | None, new: Session
) -> Boundary:
    """What a command has led its place to; ``old``: where it led before."""
    return Boundary(
        reason,
        call.key,
        call.record.owner,
        old.id if old else "",
        old.tip_session_id if old else "",
        new.conversation_id,
        new.id,
    )
