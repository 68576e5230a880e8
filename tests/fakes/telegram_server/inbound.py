"""What people do on the platform: helpers that turn it into updates for the bot."""

from __future__ import annotations

import copy
import re
from typing import Any

from tests.fakes.telegram_server.entities import Entity, utf16_len
from tests.fakes.telegram_server.faults import Fault
from tests.fakes.telegram_server.sending import MAX_TEXT, media_fields
from tests.fakes.telegram_server.state import Chat, State, StoredFile
from tests.fakes.telegram_server.updates import UpdateQueue
from tests.fakes.telegram_server.wire import Json, forbidden

USER = 111
GROUP = -1001000000001
CHANNEL = -1002000000001
_FIRST_SUPERGROUP = -1_000_000_000_000
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8ffff3f0005fe02fea7d6059b0000000049454e44ae426082"
)


class Inbound:
    """Mixin of the server; every helper returns the update it made."""

    state: State
    updates: UpdateQueue

    def _changed(self) -> None:
        raise NotImplementedError

    def push(self, kind: str, body: Json, *, force: bool = False) -> Json:
        """Queue one update of a kind."""
        update = self.updates.push({kind: body}, force=force)
        self._changed()
        return update

    # --- people and places

    def add_user(self, user_id: int = USER, first_name: str = "", *, is_bot: bool = False) -> Json:
        """A person (or another bot) the helpers can let speak."""
        user = self.state.users.get(user_id)
        if user is None or first_name:
            name = first_name or f"User {user_id}"
            user = {"id": user_id, "is_bot": is_bot, "first_name": name, "language_code": "en"}
            if is_bot:
                user["username"] = f"other{user_id}_bot"
            self.state.users[user_id] = user
        return user

    def add_private(
        self, user_id: int = USER, *, started: bool = True, first_name: str = ""
    ) -> Chat:
        """A private chat; before it is started the bot cannot write into it."""
        user = self.add_user(user_id, first_name)
        chat = self.state.chats.get(user_id)
        if chat is None:
            chat = self.state.chats[user_id] = Chat(user_id, "private", user["first_name"])
            if not started:
                chat.trouble = forbidden("bot can't initiate conversation with a user")
        return chat

    def add_group(
        self,
        chat_id: int = GROUP,
        title: str = "Test group",
        *,
        topics: dict[int, str] | None = None,
        username: str | None = None,
        bot_is_admin: bool = False,
    ) -> Chat:
        """A group; ids below -10**12 are supergroups, and topics make one a forum."""
        chat = self.state.chats.get(chat_id)
        if chat is None:
            kind = "supergroup" if chat_id < _FIRST_SUPERGROUP else "group"
            chat = self.state.chats[chat_id] = Chat(chat_id, kind, title, username)
            chat.bot_is_admin = bot_is_admin
        for thread_id, name in (topics or {}).items():
            self.add_topic(chat_id, thread_id, name)
        return chat

    def add_channel(self, chat_id: int = CHANNEL, title: str = "Test channel") -> Chat:
        """A channel the bot is in."""
        return self.state.chats.setdefault(chat_id, Chat(chat_id, "channel", title))

    def add_topic(self, chat_id: int, thread_id: int, name: str = "") -> None:
        """A topic, in a forum or in a private chat."""
        chat = self._chat(chat_id)
        chat.topics.setdefault(thread_id, name or f"Topic {thread_id}")
        chat.is_forum = chat.is_forum or chat.type == "supergroup"

    def set_member(self, chat_id: int, user_id: int, status: str = "member") -> None:
        """What getChatMember says about somebody."""
        self.add_user(user_id)
        self._chat(chat_id).members[user_id] = status

    def _chat(self, chat_id: int) -> Chat:
        if chat_id in self.state.chats:
            return self.state.chats[chat_id]
        return self.add_private(chat_id) if chat_id > 0 else self.add_group(chat_id)

    # --- messages

    def message(
        self,
        body: Json,
        *,
        chat_id: int = USER,
        user_id: int | None = USER,
        thread_id: int | None = None,
        reply_to: int | None = None,
        kind: str = "message",
        is_bot: bool = False,
    ) -> Json:
        """Any message; the other helpers only differ in the body they pass here."""
        chat = self._chat(chat_id)
        if thread_id is not None and thread_id not in chat.topics and thread_id != reply_to:
            self.add_topic(chat_id, thread_id)
        message: Json = {
            "message_id": self.state.next_message_id(chat),
            "date": self.state.now(),
            "chat": chat.wire(),
            **self._author(chat, user_id, is_bot=is_bot),
            **self._place(chat, thread_id, reply_to),
            **body,
        }
        if chat.trouble is not None and chat.type == "private" and kind == "message":
            chat.trouble = None  # who writes to the bot has started it
        self.state.store(chat, copy.deepcopy(message))
        return self.push(kind, message)

    def _author(self, chat: Chat, user_id: int | None, *, is_bot: bool) -> Json:
        if user_id is None or chat.type == "channel":
            return {"sender_chat": chat.wire()}
        chat.members.setdefault(user_id, "member")
        return {"from": self.add_user(user_id, is_bot=is_bot)}

    def _place(self, chat: Chat, thread_id: int | None, reply_to: int | None) -> Json:
        fields = chat.thread_fields(thread_id)
        if reply_to is not None:
            quoted = self.state.quoted(chat, reply_to)
            fields["reply_to_message"] = quoted or {
                "message_id": reply_to,
                "date": 0,
                "chat": chat.wire(),
            }
            if chat.type == "supergroup" and not chat.is_forum:
                # Answers in a plain supergroup name a thread too, though there is no topic.
                fields.setdefault("message_thread_id", reply_to)
        elif thread_id in chat.topics and chat.type == "supergroup":
            # Without an answer a topic message points at the birth of its topic.
            fields["reply_to_message"] = {
                "message_id": thread_id,
                "date": 0,
                "chat": chat.wire(),
                "from": self.state.bot,
                "message_thread_id": thread_id,
                "is_topic_message": True,
                "forum_topic_created": {"name": chat.topics[thread_id], "icon_color": 7322096},
            }
        return fields

    def _text(self, text: str, entities: list[Entity] | None = None) -> Json:
        found = self._found(text) if entities is None else entities
        return {"text": text, **({"entities": found} if found else {})}

    def _found(self, text: str) -> list[Entity]:
        """What the platform marks by itself: commands and mentions."""
        found = []
        for match in re.finditer(r"(?<![\w/@])(/[A-Za-z0-9_]{1,64}(?:@\w+)?|@\w{3,})", text):
            kind = "bot_command" if match.group().startswith("/") else "mention"
            offset, length = utf16_len(text[: match.start()]), utf16_len(match.group())
            found.append({"type": kind, "offset": offset, "length": length})
        return found

    def private_text(
        self, text: str, *, user_id: int = USER, entities: list[Entity] | None = None, **rest: Any
    ) -> Json:
        """A person writes to the bot; rest: thread_id, reply_to."""
        body = self._text(text, entities)
        return self.message(body, chat_id=user_id, user_id=user_id, **rest)

    def group_text(
        self,
        text: str,
        *,
        chat_id: int = GROUP,
        user_id: int = USER,
        mention: bool = False,
        entities: list[Entity] | None = None,
        **rest: Any,
    ) -> Json:
        """A person writes in a group; `mention` puts the bot's name first."""
        if mention:
            text = f"@{self.state.bot['username']} {text}"
        body = self._text(text, entities)
        return self.message(body, chat_id=chat_id, user_id=user_id, **rest)

    def command(
        self,
        text: str,
        *,
        user_id: int = USER,
        chat_id: int | None = None,
        addressed: bool | str = False,
        **rest: Any,
    ) -> Json:
        """ "/cmd args"; `addressed` makes it /cmd@bot (or @ another name)."""
        name, blank, arguments = text.partition(" ")
        if addressed:
            name += f"@{self.state.bot['username'] if addressed is True else addressed}"
        body = self._text(name + blank + arguments)
        where = user_id if chat_id is None else chat_id
        return self.message(body, chat_id=where, user_id=user_id, **rest)

    def paste(
        self, text: str, *, chat_id: int = USER, user_id: int = USER, **rest: Any
    ) -> list[Json]:
        """A text too long for one message: the client cuts it every 4096 units."""
        pieces, piece, size = [], [], 0
        for char in text:
            width = utf16_len(char)
            if size + width > MAX_TEXT:
                pieces.append("".join(piece))
                piece, size = [], 0
            piece.append(char)
            size += width
        pieces.append("".join(piece))
        return [
            self.message(self._text(part), chat_id=chat_id, user_id=user_id, **rest)
            for part in pieces
        ]

    def bot_text(self, text: str, *, chat_id: int = GROUP, user_id: int = 999, **rest: Any) -> Json:
        """Another bot speaks."""
        return self.message(self._text(text), chat_id=chat_id, user_id=user_id, is_bot=True, **rest)

    def channel_post(self, text: str, *, chat_id: int = CHANNEL) -> Json:
        """A post in a channel: it has no author."""
        self.add_channel(chat_id)
        return self.message(self._text(text), chat_id=chat_id, user_id=None, kind="channel_post")

    def edit_message(self, message_id: int, text: str, *, chat_id: int = USER) -> Json:
        """A person changes a message; it keeps its id and place."""
        chat = self.state.chats[chat_id]
        stored = chat.messages[message_id]
        changed = self._text(text)
        if "text" not in stored.message:  # a picture's caption
            changed = {
                {"text": "caption", "entities": "caption_entities"}[key]: value
                for key, value in changed.items()
            }
        stored.message.pop("entities", None)
        stored.message.pop("caption_entities", None)
        stored.message.update(changed, edit_date=self.state.now())
        kind = "edited_channel_post" if chat.type == "channel" else "edited_message"
        return self.push(kind, copy.deepcopy(stored.message))

    # --- files

    def file(
        self, data: bytes, name: str, mime: str, folder: str, size: int | None = None
    ) -> StoredFile:
        """Bytes on the platform; `size` may claim more, to try the limits."""
        return self.state.add_file(data, name, mime, folder, size)

    def photo(
        self,
        data: bytes = PNG,
        *,
        caption: str = "",
        media_group_id: str | None = None,
        size: int | None = None,
        **rest: Any,
    ) -> Json:
        """One picture; rest: chat_id, user_id, thread_id, reply_to."""
        stored = self.file(data, "photo.jpg", "image/jpeg", "photos", size)
        return self._with_file("photo", stored, caption, media_group_id, rest)

    def document(
        self,
        data: bytes,
        name: str = "notes.txt",
        mime: str = "text/plain",
        *,
        caption: str = "",
        media_group_id: str | None = None,
        size: int | None = None,
        **rest: Any,
    ) -> Json:
        """One file."""
        stored = self.file(data, name, mime, "documents", size)
        return self._with_file("document", stored, caption, media_group_id, rest)

    def voice(self, data: bytes = b"OggS" + bytes(60), *, caption: str = "", **rest: Any) -> Json:
        """One voice note."""
        stored = self.file(data, "voice.oga", "audio/ogg", "voice")
        return self._with_file("voice", stored, caption, None, rest)

    def media(
        self,
        kind: str,
        data: bytes = b"bytes",
        name: str = "file.bin",
        mime: str = "application/octet-stream",
        *,
        caption: str = "",
        media_group_id: str | None = None,
        size: int | None = None,
        fields: Json | None = None,
        **rest: Any,
    ) -> Json:
        """Any other file: audio, video, video_note, animation, sticker; fields go into it."""
        stored = self.file(data, name, mime, f"{kind}s", size)
        return self._with_file(kind, stored, caption, media_group_id, rest, fields)

    def forwarded(self, text: str, origin: Json, **rest: Any) -> Json:
        """Somebody passes on a message; its marks come along."""
        body = {"forward_origin": {"date": self.state.now() - 60, **origin}, **self._text(text)}
        return self.message(body, **rest)

    def album(
        self,
        pictures: list[bytes],
        *,
        caption: str = "",
        caption_at: int = 0,
        media_group_id: str = "g1",
        **rest: Any,
    ) -> list[Json]:
        """Pictures sent together: one update each, the caption on one of them."""
        return [
            self.photo(
                data,
                caption=caption if index == caption_at else "",
                media_group_id=media_group_id,
                **rest,
            )
            for index, data in enumerate(pictures)
        ]

    def _with_file(
        self,
        kind: str,
        stored: StoredFile,
        caption: str,
        group: str | None,
        rest: Json,
        fields: Json | None = None,
    ) -> Json:
        body = media_fields(kind, stored)
        if fields:
            body[kind].update(fields)
        if kind == "animation":
            body["document"] = dict(body[kind])
        if caption:
            body["caption"] = caption
            if found := self._found(caption):
                body["caption_entities"] = found
        if group:
            body["media_group_id"] = group
        return self.message(body, **rest)

    # --- what is not a message

    def press(
        self, message_id: int, label: str, *, chat_id: int = USER, user_id: int = USER
    ) -> Json:
        """The button of this label under a message is pressed; there has to be one."""
        markup = self._chat(chat_id).messages[message_id].message["reply_markup"]
        (data,) = [
            button["callback_data"]
            for row in markup["inline_keyboard"]
            for button in row
            if button["text"] == label
        ]
        return self.callback(data, message_id, chat_id=chat_id, user_id=user_id)

    def callback(
        self, data: str, message_id: int, *, chat_id: int = USER, user_id: int = USER
    ) -> Json:
        """A button under a message is pressed; of a message that is gone the app may send any."""
        chat = self._chat(chat_id)
        stored = chat.messages.get(message_id)
        message = (
            copy.deepcopy(stored.message)
            if stored is not None and not stored.deleted
            else {"message_id": message_id, "date": 0, "chat": chat.wire()}
        )
        query_id = str(4_000_000_000 + next(self.state.seq))
        self.state.open_queries.add(query_id)
        query = {
            "id": query_id,
            "from": self.add_user(user_id),
            "chat_instance": str(abs(chat_id) * 7),
            "message": message,
            "data": data,
        }
        return self.push("callback_query", query)

    def service(self, kind: str, value: Any = None, **rest: Any) -> Json:
        """A service message: new_chat_members, pinned_message, forum_topic_created ..."""
        user = self.add_user(rest.get("user_id", USER))
        usual: Json = {
            "new_chat_members": [self.state.bot],
            "left_chat_member": user,
            "new_chat_title": "Renamed",
            "group_chat_created": True,
            "forum_topic_created": {"name": "New topic", "icon_color": 7322096},
            "forum_topic_closed": {},
            "message_auto_delete_timer_changed": {"message_auto_delete_time": 86400},
            "video_chat_started": {},
        }
        return self.message({kind: usual.get(kind, True) if value is None else value}, **rest)

    def reaction(
        self, message_id: int, emoji: str = "👍", *, chat_id: int = USER, user_id: int = USER
    ) -> Json:
        """Somebody reacts; only delivered if allowed_updates asks for it."""
        body = {
            "chat": self._chat(chat_id).wire(),
            "message_id": message_id,
            "user": self.add_user(user_id),
            "date": self.state.now(),
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }
        return self.push("message_reaction", body)

    def member_update(self, status: str, *, chat_id: int = USER, user_id: int = USER) -> Json:
        """my_chat_member: the bot's own standing changed."""
        old = {"user": self.state.bot, "status": "member"}
        new = {"user": self.state.bot, "status": status}
        if status == "kicked":
            new["until_date"] = 0
        body = {
            "chat": self._chat(chat_id).wire(),
            "from": self.add_user(user_id),
            "date": self.state.now(),
            "old_chat_member": old,
            "new_chat_member": new,
        }
        return self.push("my_chat_member", body)

    def block(self, user_id: int = USER, *, tell: bool = True) -> None:
        """A person blocks the bot; `tell` sends the update about it too."""
        self.add_private(user_id).trouble = forbidden("bot was blocked by the user")
        if tell:
            self.member_update("kicked", chat_id=user_id, user_id=user_id)

    def unblock(self, user_id: int = USER) -> None:
        """The bot may write again."""
        self.add_private(user_id).trouble = None

    def kick(self, chat_id: int = GROUP, *, tell: bool = True) -> None:
        """The bot is thrown out of a group or channel."""
        chat = self._chat(chat_id)
        name = "group" if chat.type == "group" else chat.type
        chat.trouble = forbidden(f"bot was kicked from the {name} chat")
        if tell:
            self.member_update("kicked", chat_id=chat_id)

    def migrate(self, chat_id: int, new_id: int, *, user_id: int = USER) -> list[Json]:
        """A group becomes a supergroup: a notice in each, and the old id is refused."""
        old = self._chat(chat_id)
        self.add_group(new_id, old.title)
        told = [
            self.message({"migrate_to_chat_id": new_id}, chat_id=chat_id, user_id=user_id),
            self.message({"migrate_from_chat_id": chat_id}, chat_id=new_id, user_id=user_id),
        ]
        old.trouble = Fault.migrate(new_id).api_error()
        return told

    def garbage(self, variant: str = "no_chat") -> Json:
        """An update with a proper number that python-telegram-bot cannot parse.

        Variants: no_chat, text_chat, list_message (all break the parser), unknown_kind
        (parses, with nothing in it), unknown_fields (a good message with extras).
        """
        number = next(self.state.seq)
        good = {
            "message_id": 700_000 + number,
            "date": self.state.now(),
            "chat": self.add_private(USER).wire(),
            "from": self.add_user(USER),
            "text": f"with extras {number}",
        }
        bodies: dict[str, Json] = {
            "no_chat": {"message": {"message_id": 1, "date": "soon"}},
            "text_chat": {"message": {**good, "chat": "not a chat"}},
            "list_message": {"message": [1, 2, 3]},
            "unknown_kind": {"hologram": {"id": number}},
            "unknown_fields": {"message": {**good, "aura": {"colour": "blue"}, "weight": 3}},
        }
        return self.raw(bodies[variant])

    def raw(self, body: Json) -> Json:
        """Any JSON as an update; a number is added if there is none, no filter applies."""
        update = self.updates.push(copy.deepcopy(body), force=True)
        self._changed()
        return update
