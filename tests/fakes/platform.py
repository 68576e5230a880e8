"""Owns the platform of the tests: a chat in memory whose sends fail as a test says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.mail import Address, Cursor, OutboxDraft, OutboxPart, PartDraft
from gateway.delivery.splitting import split_text
from gateway.platforms.contract import (
    Attachment,
    EditRefused,
    FetchRefused,
    InboundMessage,
    Intake,
    PlatformState,
    PreviewBounds,
    PreviewKind,
    Report,
    SendError,
    SendFlood,
)

BLANK = "(nothing to say)"
REPEAT_MARK = "(may be a repeat) "
BOUNDS = PreviewBounds(limit=180, calls=20, seconds=60.0)


def inbound(text: str = "hello", **changes: Any) -> InboundMessage:
    """A direct message from user 111 on the fake platform, with these fields changed."""
    fields: dict[str, Any] = {
        "platform": "fake",
        "bot_id": "900",
        "chat_id": "111",
        "chat_kind": "direct",
        "message_id": "1",
        "sender_id": "111",
        "sender_name": "Ann",
        "text": text,
        "sent_at": 1_800_000_000.0,
    }
    return InboundMessage(**{**fields, **changes})


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as the people in the chat see it."""

    address: Address
    text: str
    part_id: int
    """0: nothing but a preview so far."""
    at: float
    gone: bool = False
    """Somebody deleted it."""


@dataclass(slots=True)
class Failure:
    """How one send goes wrong. ``delivered``: it shows up in the chat all the same."""

    error: BaseException
    delivered: bool = False


@dataclass(slots=True)
class FakePlatform:
    """A `gateway.platforms.contract.Platform` without a network.

    ``failures`` are taken one per send (None: it goes well), ``blocked`` chats refuse for ever,
    ``gate`` (when set) holds every send until it is released.
    """

    name: str = "fake"
    bot_id: str | None = "900"
    dedupes_sends: bool = False
    limit: int = 200
    now: Any = None
    """A function that tells the time, for the order of what happens."""
    chat: list[Sent] = field(default_factory=list)
    calls: list[tuple[float, str, int, bool]] = field(default_factory=list)
    """Every call of `send`: time, chat, part id, repeat."""
    bare: list[tuple[str, str]] = field(default_factory=list)
    """Every call of `take_buttons`: chat, message id."""
    bare_failures: deque[SendError] = field(default_factory=deque)
    """Taken one per `take_buttons`."""
    typed: list[tuple[float, str]] = field(default_factory=list)
    typing_flood: SendFlood | None = None
    """Raised by every `typing`."""
    failures: deque[Failure | None] = field(default_factory=deque)
    blocked: dict[str, SendError] = field(default_factory=dict)
    refuse: Callable[[OutboxPart], SendError | None] = lambda part: None
    """Raised by a send after it was shown, as by a server that takes it and does not say so."""
    gate: asyncio.Event | None = None
    delay: Callable[[], Awaitable[None]] | None = None
    """What every send takes."""
    rendered: list[OutboxDraft] = field(default_factory=list)
    previews: PreviewKind = "none"
    bounds: PreviewBounds = BOUNDS
    previewed: list[tuple[float, str, str, str | None, int]] = field(default_factory=list)
    """Every call of `preview`: time, chat, text, message id, draft id."""
    preview_failures: deque[Failure | None] = field(default_factory=deque)
    """Taken one per preview."""
    preview_delay: Callable[[], Awaitable[None]] | None = None
    drafts: dict[tuple[str, int], str] = field(default_factory=dict)
    """What chats show as drafts, by draft id, until a message comes."""
    files: dict[str, bytes | BaseException] = field(default_factory=dict)
    """What `fetch` gives back or raises, by ref."""
    fetched: list[str] = field(default_factory=list)
    closed: int = 0
    in_flight: int = 0
    most_in_flight: dict[str, int] = field(default_factory=dict)
    _intake: Intake | None = None
    _running: asyncio.Event = field(default_factory=asyncio.Event)
    _shown: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, intake: Intake, report: Report) -> None:
        self._intake = intake
        report(PlatformState.RUNNING, "")
        self._running.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._intake = None
            self._running.clear()

    async def say(self, message: InboundMessage, cursor: Cursor | None = None) -> None:
        """Somebody writes; returns when the platform could forget the message."""
        await self._running.wait()
        assert self._intake is not None
        await self._intake.receive(message, cursor)

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        self.fetched.append(attachment.ref)
        found = self.files.get(attachment.ref, FetchRefused("it is gone"))
        if isinstance(found, BaseException):
            raise found
        if len(found) > limit_bytes:
            raise FetchRefused("it is too large")
        return found

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        self.rendered.append(draft)
        chunks = [c for c in split_text(draft.text, self.limit - len(REPEAT_MARK)) if c.strip()]
        parts = [PartDraft({"text": chunk}) for chunk in chunks or [BLANK]]
        if draft.edits_message_id is not None:
            parts[0].payload["edits"] = draft.edits_message_id
        if draft.decides:
            parts[-1].payload["spent_buttons"] = draft.interaction
        return parts

    def fail(self, error: BaseException, *, times: int = 1, delivered: bool = False) -> None:
        """The next sends go wrong."""
        self.failures.extend(Failure(error, delivered) for _ in range(times))

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        self.calls.append((self._time(), address.chat_id, part.id, repeat))
        chat = address.chat_id
        self.in_flight += 1
        self.most_in_flight[chat] = max(self.most_in_flight.get(chat, 0), self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.delay is not None:
                await self.delay()
            if chat in self.blocked:
                raise self.blocked[chat]
            failure = self.failures.popleft() if self.failures else None
            if failure is not None and not failure.delivered:
                raise failure.error
            message_id = self._show(address, part, repeat)
            if (silent := self.refuse(part)) is not None:
                raise silent
            if failure is not None:
                raise failure.error
            return message_id
        finally:
            self.in_flight -= 1

    def preview_kind(self, address: Address) -> PreviewKind:
        return self.previews

    def preview_bounds(self, address: Address) -> PreviewBounds:
        return self.bounds

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        self.previewed.append((self._time(), address.chat_id, text, message_id, draft_id))
        if self.preview_delay is not None:
            await self.preview_delay()
        if address.chat_id in self.blocked:
            raise self.blocked[address.chat_id]
        failure = self.preview_failures.popleft() if self.preview_failures else None
        if failure is not None and not failure.delivered:
            raise failure.error
        shown = self._show_preview(address, text, message_id, draft_id)
        if failure is not None:
            raise failure.error
        return shown

    def delete(self, message_id: str) -> None:
        """Somebody takes a message of ours away."""
        n = int(message_id[1:])
        self.chat[n] = replace(self.chat[n], gone=True)

    async def take_buttons(self, address: Address, message_id: str) -> None:
        self.bare.append((address.chat_id, message_id))
        if self.bare_failures:
            raise self.bare_failures.popleft()

    async def typing(self, address: Address) -> None:
        self.typed.append((self._time(), address.chat_id))
        if self.typing_flood is not None:
            raise self.typing_flood

    async def close(self) -> None:
        self.closed += 1

    def texts(self, chat_id: str | None = None) -> list[str]:
        """What the people see, oldest first."""
        return [s.text for s in self.chat if not s.gone and chat_id in (None, s.address.chat_id)]

    async def wait_for(self, count: int, seconds: float = 20) -> None:
        """Until the chats hold so many messages (in real time: for stores with threads)."""
        async with asyncio.timeout(seconds):
            while len(self.chat) < count:
                self._shown.clear()
                await self._shown.wait()

    def _show_preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        if self.previews == "draft":
            self.drafts[address.chat_id, draft_id] = text
            return None
        if message_id is not None:
            self._change(message_id, replace(self._message(message_id), text=text, gone=not text))
            return message_id
        if self.dedupes_sends:
            for n, sent in enumerate(self.chat):
                if sent.part_id == -draft_id:
                    return f"m{n}"
        self.chat.append(Sent(address, text, -draft_id, self._time()))
        return f"m{len(self.chat) - 1}"

    def _message(self, message_id: str) -> Sent:
        sent = self.chat[int(message_id[1:])]
        if sent.gone:
            raise EditRefused("message to edit not found")
        return sent

    def _change(self, message_id: str, sent: Sent) -> None:
        self.chat[int(message_id[1:])] = sent
        self._shown.set()

    def _show(self, address: Address, part: OutboxPart, repeat: bool) -> str:
        for chat_id, draft_id in [key for key in self.drafts if key[0] == address.chat_id]:
            del self.drafts[chat_id, draft_id]
        edits = part.payload.get("edits")
        if edits is not None:
            changed = Sent(address, part.payload["text"], part.id, self._message(edits).at)
            self._change(edits, changed)
            return str(edits)
        if self.dedupes_sends:
            for n, sent in enumerate(self.chat):
                if sent.part_id == part.id:
                    return f"m{n}"
        text = part.payload["text"]
        if repeat and not self.dedupes_sends:
            text = REPEAT_MARK + text
        self.chat.append(Sent(address, text, part.id, self._time()))
        self._shown.set()
        return f"m{len(self.chat) - 1}"

    def _time(self) -> float:
        return float(self.now()) if self.now is not None else 0.0
