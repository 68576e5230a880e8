"""What the fake platform knows: chats, messages, files, and everything the bot sent."""

from __future__ import annotations

import copy
import itertools
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.telegram_server.entities import Entity
from tests.fakes.telegram_server.wire import ApiError, Json, bad_request

KEPT_RECORDS = 10_000


@dataclass
class Edit:
    """One accepted change of a message."""

    seq: int
    at: float
    text: str
    entities: list[Entity]
    reply_markup: Json | None


@dataclass
class SentMessage:
    """A message the server accepted from the bot; `text` is what it says now."""

    seq: int
    at: float
    date: int
    chat_id: int
    message_id: int
    kind: str
    text: str
    first_text: str
    entities: list[Entity]
    thread_id: int | None = None
    parse_mode: str | None = None
    reply_parameters: Json | None = None
    reply_markup: Json | None = None
    silent: bool = False
    file_id: str | None = None
    file_name: str | None = None
    edits: list[Edit] = field(default_factory=list)
    deleted: bool = False

    @property
    def reply_to(self) -> int | None:
        """The message this one answers."""
        return (self.reply_parameters or {}).get("message_id")


@dataclass
class Call:
    """One request to the Bot API, right or wrong."""

    seq: int
    at: float
    method: str
    params: Json
    chat_id: int | None
    files: dict[str, str]
    status: int | None = None
    description: str = ""
    fault: str | None = None


@dataclass
class StoredFile:
    """Bytes behind a file id; `size` may claim more than there is."""

    file_id: str
    path: str
    name: str
    mime: str
    data: bytes
    size: int
    open_until: float = 0.0
    """getFile opens the path for an hour."""

    @property
    def unique_id(self) -> str:
        """The id that is the same for every bot."""
        return f"u{self.file_id}"


@dataclass
class Stored:
    """A message of a chat in its wire form, whoever wrote it."""

    message: Json
    sent: SentMessage | None = None
    deleted: bool = False


@dataclass
class Chat:
    """A chat the bot can see; `trouble` is what every write to it gets."""

    id: int
    type: str
    title: str = ""
    username: str | None = None
    is_forum: bool = False
    bot_is_admin: bool = False
    topics: dict[int, str] = field(default_factory=dict)
    members: dict[int, str] = field(default_factory=dict)
    messages: dict[int, Stored] = field(default_factory=dict)
    trouble: ApiError | None = None

    def wire(self) -> Json:
        """The short form inside messages."""
        body: Json = {"id": self.id, "type": self.type}
        body["first_name" if self.type == "private" else "title"] = self.title
        if self.username:
            body["username"] = self.username
        if self.is_forum:
            body["is_forum"] = True
        return body

    def thread_fields(self, thread_id: int | None) -> Json:
        """How a message in a topic is marked."""
        if thread_id is None:
            return {}
        marks: Json = {"message_thread_id": thread_id}
        if thread_id in self.topics:
            marks["is_topic_message"] = True
        return marks

    def alive(self, message_id: int) -> Stored | None:
        """A message that is there and not deleted."""
        stored = self.messages.get(message_id)
        return None if stored is None or stored.deleted else stored


class State:
    """All of it, with the two clocks and one counter that puts everything in order."""

    def __init__(self, token: str, username: str, clock: Callable[[], float], at: Any) -> None:
        self.token = token
        self.bot_id = int(token.partition(":")[0])
        self.bot: Json = {
            "id": self.bot_id,
            "is_bot": True,
            "first_name": "Posthouse test",
            "username": username,
        }
        self.clock = clock
        self.monotonic = at
        self.chats: dict[int, Chat] = {}
        self.users: dict[int, Json] = {}
        self.files: dict[str, StoredFile] = {}
        self.sent: list[SentMessage] = []
        self.calls: deque[Call] = deque(maxlen=KEPT_RECORDS)
        self.drafts: dict[int, Json] = {}
        self.draft_history: deque[Json] = deque(maxlen=KEPT_RECORDS)
        self.actions: deque[Json] = deque(maxlen=KEPT_RECORDS)
        self.reactions: dict[tuple[int, int], list[Json]] = {}
        self.commands: dict[tuple[str, str], list[Json]] = {}
        self.open_queries: set[str] = set()
        self.callback_answers: list[Json] = []
        self.seq = itertools.count(1)
        self._file_numbers = itertools.count(1)
        self._shared_ids = itertools.count(1)
        self._own_ids: dict[int, itertools.count[int]] = {}

    def now(self) -> int:
        """Unix seconds of the injected clock; every `date` comes from here."""
        return int(self.clock())

    # --- chats

    def chat(self, raw: str) -> Chat:
        """The chat a request means, or the platform's error."""
        if not raw.strip():
            raise bad_request("chat_id is empty")
        chat = self._find(raw.strip())
        if chat is None:
            raise bad_request("chat not found")
        return chat

    def _find(self, raw: str) -> Chat | None:
        if raw.startswith("@"):
            return next((c for c in self.chats.values() if c.username == raw[1:]), None)
        return self.chats.get(int(raw)) if re.fullmatch(r"-?\d{1,19}", raw) else None

    def next_message_id(self, chat: Chat) -> int:
        """Supergroups and channels count for themselves, all other chats share one counter."""
        if chat.type in {"private", "group"}:
            return next(self._shared_ids)
        return next(self._own_ids.setdefault(chat.id, itertools.count(1)))

    def store(self, chat: Chat, message: Json, sent: SentMessage | None = None) -> Stored:
        """Keep a message so that it can be answered, edited and deleted."""
        stored = Stored(message, sent)
        chat.messages[message["message_id"]] = stored
        return stored

    def quoted(self, chat: Chat, message_id: int) -> Json | None:
        """A message as it stands inside an answer: without the one it answers itself."""
        stored = chat.alive(message_id)
        if stored is None:
            return None
        copied = copy.deepcopy(stored.message)
        copied.pop("reply_to_message", None)
        return copied

    # --- files

    def add_file(
        self, data: bytes, name: str, mime: str, folder: str, size: int | None = None
    ) -> StoredFile:
        """Keep bytes under a new file id."""
        number = next(self._file_numbers)
        suffix = name.rpartition(".")[2] if "." in name else "bin"
        stored = StoredFile(
            f"file{number:06d}",
            f"{folder}/file_{number}.{suffix}",
            name,
            mime,
            data,
            len(data) if size is None else size,
        )
        self.files[stored.file_id] = stored
        return stored

    # --- what can be seen

    def visible(self, chat_id: int, thread_id: int | None = None) -> list[SentMessage]:
        """The bot's messages a reader of this chat sees now, in order."""
        return [
            message
            for message in self.sent
            if message.chat_id == chat_id
            and not message.deleted
            and (thread_id is None or message.thread_id == thread_id)
        ]
