"""Owns what users can command: each a small function that gives back the text of its answer."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from agent.mail import InboxRecord
from agent.ports import Archive, CompactionDecision, SessionStore
from agent.sessions import LoadedSession, Session, SessionInfo, SessionPrefix
from gateway import texts
from gateway.compactors import CompactorCache

LINEAGE_LINES = 20


class Status(Protocol):
    """What the daemon knows about itself, for ``/status``."""

    def window_tokens(self) -> int | None:
        """The model's window, or None while nobody has told."""
        ...

    def platforms(self) -> Mapping[str, tuple[str, str]]:
        """Name → state and reason."""
        ...

    def remarks(self) -> list[str]:
        """Lines that an operator should see (a stand-in engine, a small window)."""
        ...


@dataclass(frozen=True, slots=True)
class CommandHost:
    """What commands work on."""

    sessions: SessionStore
    archive: Archive
    compactors: CompactorCache
    prefix_for: Callable[[str], SessionPrefix]
    status: Status
    waiting: Callable[[str], int]
    """Messages that wait in a conversation's lane, by session key."""
    busy: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Call:
    """One command as somebody gave it."""

    record: InboxRecord
    argument: str
    admin: bool
    shared: bool
    """Several people talk in this conversation."""
    over: asyncio.Future[None] | None = None
    """For /stop: done when what was running has ended; None: nothing was running."""

    @property
    def key(self) -> str:
        """The session key."""
        return self.record.session_key


Place = Literal["at once", "in order"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: ``in order`` waits for its turn in the lane, ``at once`` does not."""

    name: str
    help: str
    run: Callable[[CommandHost, Call], Awaitable[str]]
    place: Place = "at once"
    admin_if_shared: bool = False
    usage: str = ""


async def new(host: CommandHost, call: Call) -> str:
    """Lead this place to a new, empty conversation."""
    old = await host.sessions.conversation_for_key(call.key)
    await host.sessions.start_conversation(
        call.key, call.record.owner, host.prefix_for(call.record.address.platform)
    )
    if old is not None:
        host.compactors.forget(old.id)
    return texts.NEW_CONVERSATION


async def stop(host: CommandHost, call: Call) -> str:
    """Say what came of the stop, which has happened already."""
    if call.over is None:
        return texts.NOTHING_RUNNING
    await asyncio.wait({call.over})
    waiting = host.waiting(call.key) + (1 if host.busy(call.key) else 0)
    return texts.stopped(waiting)


async def compress(host: CommandHost, call: Call) -> str:
    """Compress now, whatever the triggers say."""
    loaded = await _tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    notices: list[str] = []
    result = await host.compactors.get(loaded.session.conversation_id).compact(
        loaded, "manual", focus=call.argument or None, notify=notices.append
    )
    if result.outcome == "compressed":
        answer = texts.compressed(result.tokens_before, result.tokens_after)
    else:
        answer = texts.not_compressed(result.reason or "there is nothing to compress yet")
    extra = [notice for notice in notices if notice and notice not in answer]
    return "\n".join([answer, *(extra if result.outcome == "compressed" else [])])


async def status(host: CommandHost, call: Call) -> str:
    """Model, window, trigger, context size, session, platforms."""
    lines: list[str] = []
    loaded = await _tip(host, call)
    if loaded is None:
        lines.append(f"Model: {host.prefix_for(call.record.address.platform).model}")
        lines.append(f"Window: {_tokens(host.status.window_tokens())}")
        lines.append(texts.NO_CONVERSATION)
    else:
        session = loaded.session
        due = host.compactors.get(session.conversation_id).due(loaded)
        lines += [
            f"Model: {session.prefix.model}",
            f"Window: {_tokens(host.status.window_tokens())}, "
            f"compression from {_tokens(due.threshold_tokens)}",
            f"Context: {_context(session, due)}",
            f"Session: {session.id}, {_counted(session.message_count, 'message')}, "
            f"{_counted(session.compression.count, 'compression')} so far",
        ]
    busy = "working" if host.busy(call.key) else "idle"
    waiting = _counted(host.waiting(call.key), "message")
    lines.append(f"This conversation: {busy}, {waiting} waiting")
    for name, (state, reason) in sorted(host.status.platforms().items()):
        lines.append(f"{name}: {state}{f' ({reason})' if reason else ''}")
    lines.extend(host.status.remarks())
    return "\n".join(lines)


async def lineage(host: CommandHost, call: Call) -> str:
    """The chain of sessions, root first, with sizes."""
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return texts.NO_CONVERSATION
    chain = await host.sessions.lineage(conversation.tip_session_id)
    infos = {i.id: i for i in await host.archive.session_infos([s.id for s in chain])}
    lines = [_line(n, s, infos.get(s.id)) for n, s in enumerate(chain, 1)]
    if len(lines) > LINEAGE_LINES:
        left_out = len(lines) - LINEAGE_LINES
        lines = [lines[0], f"… {left_out:,} more …", *lines[left_out + 1 :]]
    what = _counted(len(chain), "session")
    return "\n".join([f"This conversation has {what}, oldest first:", *lines])


def _counted(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


async def whoami(host: CommandHost, call: Call) -> str:
    """The ids that the access lists want."""
    address = call.record.address
    lines = [
        f"You are {call.record.owner}{', an admin' if call.admin else ''}.",
        f"This chat is {address.chat_id} on {address.platform}.",
    ]
    if address.thread_id:
        lines.append(f"This thread is {address.thread_id}.")
    return "\n".join(lines)


async def help_text(host: CommandHost, call: Call) -> str:
    """The list of commands."""
    lines = [f"/{c.name}{f' {c.usage}' if c.usage else ''}: {c.help}" for c in COMMANDS.values()]
    return "\n".join(["Just write to me. I also know:", *lines])


COMMANDS: Mapping[str, Command] = {
    c.name: c
    for c in (
        Command("new", "start a new conversation; the old one is kept", new, "in order", True),
        Command("stop", "end what I am doing right now", stop),
        Command("status", "model, window, context size, platforms", status),
        Command(
            "compress",
            "shorten the conversation now, with a topic to keep in detail",
            compress,
            "in order",
            admin_if_shared=True,
            usage="[focus]",
        ),
        Command("lineage", "the sessions behind this conversation", lineage),
        Command("whoami", "your id here", whoami),
        Command("help", "this list", help_text),
    )
}
ALIASES: Mapping[str, str] = {"start": "help", "reset": "new", "compact": "compress"}


def find(name: str) -> Command | None:
    """The command of this name or alias."""
    return COMMANDS.get(ALIASES.get(name, name))


def near(name: str) -> list[str]:
    """Names that somebody may have meant."""
    return difflib.get_close_matches(name, [*COMMANDS], n=2, cutoff=0.6)


async def _tip(host: CommandHost, call: Call) -> LoadedSession | None:
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return None
    return await host.sessions.load(conversation.tip_session_id)


def _tokens(count: int | None) -> str:
    return "not known yet" if not count else f"{count:,} tokens"


def _context(session: Session, due: CompactionDecision) -> str:
    if session.compression.awaiting_usage:
        return "not known until the next answer (it was just compressed)"
    source = "measured" if session.anchor is not None else "estimated"
    return f"{due.tokens:,} tokens ({source})"


def _line(number: int, session: Session, info: SessionInfo | None) -> str:
    size = _counted(session.message_count, "message")
    if info is not None:
        size += f", about {info.tokens:,} tokens"
    end = "now" if session.ended_at is None else f"ended by {session.end_reason or 'a crash'}"
    return f"{number}. {session.id}: {size}, {end}"
