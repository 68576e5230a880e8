"""Owns the contract between the gateway and a platform: what comes in, what goes out, how it fails.

PlatformError
├── PlatformConfigError     supervisor: state failed-config, not retried (bad token, missing intent)
├── PlatformUnavailable     supervisor: state retrying, with back-off (network, server errors)
└── SendError               delivery
    ├── SendUnavailable     certainly not delivered; try again later
    ├── SendFlood           certainly not delivered; this chat is silent for retry_after_seconds
    ├── SendRefused         will never be delivered: give up
    │   └── ChatGone        … nor will anything else: blocked, kicked, chat deleted
    ├── EditRefused         the message to be changed is gone or fixed: send the text anew
    └── SendUnknown         may have been delivered

FetchError                  the turn: a line in the message says what is missing
├── FetchUnavailable        later it may work
└── FetchRefused            will never be had (gone, too large)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol, runtime_checkable

from agent.mail import Address, Cursor, OutboxDraft, OutboxPart, PartDraft, Receipt

ChatKind = Literal["direct", "group"]
PreviewKind = Literal["draft", "message", "none"]
"""How an answer is shown while it is written: as a draft that goes by itself, as a message that is
edited, or not at all."""


class PlatformState(StrEnum):
    """How a platform is."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    RETRYING = "retrying"
    FAILED_CONFIG = "failed-config"


class PlatformError(Exception):
    """Base of what a platform raises."""


class PlatformConfigError(PlatformError):
    """Only the operator can heal this; the text says how."""


class PlatformUnavailable(PlatformError):
    """The platform can not be reached now. ``retry_after_seconds``: nor before that."""

    def __init__(self, reason: str = "", *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class SendError(PlatformError):
    """Base of the ways in which a send fails."""


class SendUnavailable(SendError):
    """Not delivered; later it may work."""


class SendFlood(SendError):
    """Not delivered: too much was sent to this chat."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"flood control: retry after {retry_after_seconds:g} s")
        self.retry_after_seconds = retry_after_seconds


class SendRefused(SendError):
    """Never to be delivered."""


class ChatGone(SendRefused):
    """This chat takes nothing of this bot (any more), until somebody there writes again."""


class EditRefused(SendError):
    """The message to be changed is not there (any more), or it can not be changed."""


class SendUnknown(SendError):
    """The connection broke after the request was sent."""


class FetchError(PlatformError):
    """Base of the ways in which a file can not be had; the text is for people, without names."""


class FetchUnavailable(FetchError):
    """Not now."""


class FetchRefused(FetchError):
    """Never: it is gone, or larger than what was allowed."""


VOICE: Final = "voice message"
"""The label of what somebody has spoken into their device."""
AttachmentKind = Literal["image", "audio", "video", "file"]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that hangs on a message, as its platform describes it. Nothing is loaded yet."""

    kind: AttachmentKind
    ref: str
    """By which `Platform.fetch` finds it again, also days later and after a restart."""
    file_name: str = ""
    """As the sender calls it: any text at all, only ever shown."""
    media_type: str = ""
    """As the platform says; the bytes decide."""
    size_bytes: int | None = None
    """As the platform says; checked before the download and again while it runs."""
    label: str = ""
    """What kind of thing it is to people, if that says more than ``kind``: voice message."""


@dataclass(frozen=True, slots=True)
class PreviewBounds:
    """What previews in one chat have to keep to."""

    limit: int
    """Of one message, in UTF-16 units."""
    calls: int
    """So many messages and edits, of all kinds together, the platform takes …"""
    seconds: float
    """… in so much time."""


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message as every platform says it. Ids are strings; names are only ever shown."""

    platform: str
    bot_id: str
    chat_id: str
    chat_kind: ChatKind
    message_id: str
    sender_id: str
    sender_name: str
    text: str
    sent_at: float
    """Unix seconds by the platform's clock."""
    thread_id: str | None = None
    chat_name: str | None = None
    """What people call this group, channel or thread: any text at all. None: it has no name, as
    direct chats have none, or it is not known."""
    parent_chat_id: str | None = None
    """Of a thread: the channel that it belongs to (allow-lists name channels)."""
    update_id: str | None = None
    sender_role_ids: frozenset[str] = frozenset()
    sender_is_bot: bool = False
    addressed: bool = True
    """To the bot: a direct chat, a mention, a reply to it, or a command."""
    quoted_text: str | None = None
    """Of the message that this one replies to, if it is not the bot's own newest one."""
    forwarded_from: str | None = None
    """Whose words these are, if the sender only passed them on: any text at all, only ever shown.
    Such a message is never a command."""
    attachments: tuple[Attachment, ...] = ()
    album_id: str | None = None
    """Messages of one sender with the same one are one message in pieces."""
    text_limit: int | None = None
    """In UTF-16 units: where the platform's clients cut a long text into several messages."""
    interaction: str | None = None
    """The platform's key to answer a command of its native menu, or a button, in its own way."""


class Intake(Protocol):
    """Where a platform hands in what it received."""

    def admits(self, message: InboundMessage) -> bool | None:
        """May this sender talk here, by what is known in memory? For what must be answered at once.

        None: as far as is known not, but the store may know better; `receive` will tell. Allowed
        by something that has been taken back a moment ago counts as allowed; `receive` refuses it.
        """
        ...

    async def receive(self, message: InboundMessage, cursor: Cursor | None = None) -> bool:
        """Gate, store, hand on. When this returns, the platform may forget the update.

        False: refused, or of no interest (the cursor has moved then, too).

        Raises:
            StoreUnavailable: not stored; the platform must keep the update and try again.
        """
        ...

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        """Keep an update that could not be converted; same guarantee."""
        ...

    async def edited(self, message: InboundMessage) -> None:
        """Somebody changed a message: one that still waits says the new text, another stays.

        Same gate, same guarantee as `receive`. Never a new message.
        """
        ...

    async def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        """A chat has got another id: all that leads to it follows. Said again, it does nothing.

        Raises:
            StoreUnavailable: not stored; say it again.
        """
        ...

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        """Old chat id → id of today, of all that was said to `moved`, also before a restart.

        Raises:
            StoreUnavailable: not known now.
        """
        ...

    async def lately(self, platform: str, bot_id: str) -> list[InboundMessage]:
        """Of the newest messages that were taken from anybody, those of this bot, oldest first.

        So much that what was being said just before a restart is among it.

        Raises:
            StoreUnavailable: not known now.
        """
        ...

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        """Channel id → newest stored message id."""
        ...


Report = Callable[[PlatformState, str], None]
"""State and reason, the same ones again as a sign of life: whoever says RUNNING says so again
within `SIGN_OF_LIFE_SECONDS` (aim at half of it), or the supervisor starts it again. Any state
counts as a sign; see `gateway.liveness` for how long the other states may stay silent."""
SIGN_OF_LIFE_SECONDS = 60.0
UNREADABLE_TRIES = 8
"""At so many tries of a part (about two minutes) a kept file that the disk does not give back is
said to be missing: all that is owed to its chat waits behind it meanwhile."""


class Platform(Protocol):
    """One bot on one platform. Made once, ``run`` again after each failure."""

    @property
    def name(self) -> str:
        """``telegram``, ``discord``, ``console``."""
        ...

    @property
    def bot_id(self) -> str | None:
        """Known once the platform has been running."""
        ...

    @property
    def dedupes_sends(self) -> bool:
        """A part sent again (``repeat=True``) is shown once.

        If not, a part whose outcome is unknown is sent again marked as a possible repeat (ADR 45).
        """
        ...

    async def run(self, intake: Intake, report: Report) -> None:
        """Connect and receive until cancelled.

        Reports RUNNING once messages really arrive (a successful poll, a ready gateway), DEGRADED
        while it heals itself.

        Raises:
            PlatformConfigError: the token or the bot's rights are wrong.
            PlatformUnavailable: anything that another ``run`` may heal.
        """
        ...

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        """Plan the platform messages of an answer (pure): never empty, each within the limits.

        For a blank text: one part that says that there is nothing to say. What else the draft has
        (buttons, files, the preview that it takes the place of) is planned into the payloads: they
        are all that `send` is given, also after a restart. ``spent_buttons`` is for delivery:
        the message that loses its buttons (`take_buttons`) once this part has arrived.
        """
        ...

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        """Send one planned part and give back the platform's message id.

        ``repeat``: the outcome of an earlier try is unknown. Where the platform dedupes sends, the
        earlier message is found and its id given back. Where it does not, the text is marked as a
        possible repeat. If the platform refuses the markup, the part goes out as plain text.

        What another bot owes (``address.bot_id``, after a change of the token) is never sent by
        this one: it is unavailable until that bot is back.

        With ``edits`` in the payload the part takes the place of that message, which is given back.
        That can be repeated without harm, so nothing is marked; a message that says this already
        counts as changed.

        Raises:
            EditRefused: that message can not be changed; to be sent again without ``edits``.
            SendError: the matching class.
        """
        ...

    def preview_kind(self, address: Address) -> PreviewKind:
        """How this chat shows an answer that is being written."""
        ...

    def preview_bounds(self, address: Address) -> PreviewBounds:
        """What its previews have to keep to."""
        ...

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        """Show the beginning of an answer: Markdown, within the limit, cut and closed already.

        A message: sent (``message_id`` None), or changed (given back is the same id); a blank text
        takes it away. A draft: shown under ``draft_id``, given back is None. ``draft_id`` is above
        zero and of this message of the turn alone, also after a restart: where sends are deduped it
        is their key. If the platform refuses the markup, the text is shown plain. Never waits out a
        flood.

        Raises:
            EditRefused: the message is gone.
            SendError: the matching class.
        """
        ...

    async def take_buttons(self, address: Address, message_id: str) -> None:
        """Leave a message of ours as it is, but without its buttons; it may have none already.

        Raises:
            EditRefused: the message is gone, or can not be changed.
            SendError: the matching class.
        """
        ...

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        """Load a file that hangs on a message; at most ``limit_bytes`` are ever read.

        Raises:
            FetchError: the matching class.
        """
        ...

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written; all other failures are swallowed and logged.

        Raises:
            SendFlood: too much was sent to this chat; who sends there has to wait as well.
        """
        ...

    async def close(self) -> None:
        """Let go of connections. May be called twice; sends may come until then."""
        ...


@runtime_checkable
class KnowsRoles(Protocol):
    """A platform whose people have roles, by which the rules may let somebody in."""

    async def roles_of(self, address: Address, user_id: str) -> frozenset[str] | None:
        """Those of a person where this address is, as they are now; of who has left: none.

        None: nobody can tell at this moment. Bounded in time.

        Raises:
            ChatGone: the platform answers, but the bot does not see this place (now).
        """
        ...


__all__ = [
    "SIGN_OF_LIFE_SECONDS",
    "UNREADABLE_TRIES",
    "Address",
    "Attachment",
    "AttachmentKind",
    "ChatGone",
    "ChatKind",
    "Cursor",
    "EditRefused",
    "FetchError",
    "FetchRefused",
    "FetchUnavailable",
    "InboundMessage",
    "Intake",
    "KnowsRoles",
    "OutboxDraft",
    "OutboxPart",
    "PartDraft",
    "Platform",
    "PlatformConfigError",
    "PlatformError",
    "PlatformState",
    "PlatformUnavailable",
    "PreviewBounds",
    "PreviewKind",
    "Receipt",
    "Report",
    "SendError",
    "SendFlood",
    "SendRefused",
    "SendUnavailable",
    "SendUnknown",
]
