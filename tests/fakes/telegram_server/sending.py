"""The methods that put something into a chat: send, edit, delete, react, draft."""

from __future__ import annotations

import copy
import struct
from dataclasses import dataclass
from typing import Any

from tests.fakes.telegram_server.entities import Entity, check_entities, tidy, utf16_len
from tests.fakes.telegram_server.markup import parse
from tests.fakes.telegram_server.state import Call, Chat, Edit, SentMessage, State, Stored
from tests.fakes.telegram_server.wire import Json, Params, Upload, bad_request, words

MAX_TEXT = 4096
MAX_CAPTION = 1024
MAX_UPLOAD = 50 * 1024 * 1024
MAX_PHOTO = 10 * 1024 * 1024
MAX_BUTTONS = 100
PHOTO_EDGES, PHOTO_RATIO = 10_000, 20
TWO_DAYS = 48 * 3600
ACTIONS = words(
    "typing upload_photo record_video upload_video record_voice upload_voice upload_document "
    "choose_sticker find_location record_video_note upload_video_note"
)
EMOJI_REACTIONS = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🤡🥱😍🐳💯🤣⚡🍌🏆💔🤨😐🍓😈😴😭🤓👻👀🎃😇😨🤝🤗🫡🎅🎄🙈😎👾😡"
)
_NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly "
    "the same as a current content and reply markup of the message"
)
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")


@dataclass
class _Text:
    """A text or caption on its way: parsed, not yet checked against the chat."""

    text: str
    entities: list[Entity]
    given: object
    mode: str | None


class Sending:
    """Methods as functions of the state; every refusal is an ApiError."""

    def __init__(self, state: State) -> None:
        self.state = state

    def writable(self, params: Params) -> Chat:
        """The chat of a call, if the bot may write there."""
        chat = self.state.chat(params.text("chat_id"))
        if chat.trouble is not None:
            raise chat.trouble
        return chat

    # --- texts

    def _read_text(self, params: Params, name: str, entities: str, *, empty_ok: bool) -> _Text:
        raw = params.text(name)
        if not raw and not empty_ok:
            raise bad_request("message text is empty")
        mode = params.text("parse_mode") or None
        text, found = parse(raw, mode)
        given = None if mode else params.parsed(entities, "entities")
        return _Text(text, found, given, mode)

    def _settle(self, draft: _Text, *, empty_ok: bool) -> tuple[str, list[Entity]]:
        found = draft.entities
        if draft.given is not None:
            found = check_entities(draft.text, draft.given)
        text, found = tidy(draft.text, found)
        if not text and not empty_ok:
            raise bad_request("text must be non-empty")
        return text, found

    def _markup(self, params: Params) -> Json | None:
        markup = params.parsed("reply_markup", "reply keyboard markup")
        if markup is None:
            return None
        if not isinstance(markup, dict):
            raise bad_request("object expected as reply markup")
        keyboard = markup.get("inline_keyboard", [])
        if sum(len(row) for row in keyboard) > MAX_BUTTONS:
            raise bad_request("REPLY_MARKUP_TOO_LONG")
        for row in keyboard:
            for button in row:
                self._check_button(button)
        return markup

    def _check_button(self, button: Json) -> None:
        if not button.get("text"):
            raise bad_request("can't parse inline keyboard button: Text buttons must be non-empty")
        kinds = words("callback_data url login_url web_app switch_inline_query copy_text pay")
        if len(kinds & set(button)) != 1:
            raise bad_request("can't parse inline keyboard button: exactly one action is needed")
        data = button.get("callback_data")
        if data is not None and not 1 <= len(str(data).encode()) <= 64:
            raise bad_request("BUTTON_DATA_INVALID")

    # --- where a message goes

    def _thread(self, chat: Chat, params: Params) -> int | None:
        thread_id = params.integer("message_thread_id") or None
        if thread_id is not None and thread_id not in chat.topics:
            raise bad_request("message thread not found")
        return thread_id

    def _reply(self, chat: Chat, params: Params) -> tuple[Json | None, Json | None]:
        """The reply parameters that count, and the answered message in wire form."""
        wanted = params.parsed("reply_parameters", "reply parameters")
        if wanted is None and params.integer("reply_to_message_id"):
            wanted = {
                "message_id": params.integer("reply_to_message_id"),
                "allow_sending_without_reply": params.flag("allow_sending_without_reply"),
            }
        if wanted is None:
            return None, None
        source = self.state.chat(str(wanted.get("chat_id", chat.id)))
        quoted = self.state.quoted(source, wanted.get("message_id", 0))
        if quoted is None:
            if wanted.get("allow_sending_without_reply"):
                return None, None
            raise bad_request("message to be replied not found")
        quote = wanted.get("quote")
        if quote and quote not in quoted.get("text", quoted.get("caption", "")):
            raise bad_request("QUOTE_TEXT_INVALID")
        return wanted, quoted

    # --- sending

    def send_message(self, params: Params, call: Call) -> Json:
        """sendMessage."""
        draft = self._read_text(params, "text", "entities", empty_ok=False)
        markup = self._markup(params)
        chat = self.writable(params)
        text, entities = self._settle(draft, empty_ok=False)
        if utf16_len(text) > MAX_TEXT:
            raise bad_request("message is too long")
        body: Json = {"text": text, **({"entities": entities} if entities else {})}
        return self._accept(chat, params, call, "text", body, draft.mode, markup)

    def send_file(self, kind: str) -> Any:
        """sendDocument, sendPhoto and their like: one method per kind."""

        def send(params: Params, call: Call) -> Json:
            draft = self._read_text(params, "caption", "caption_entities", empty_ok=True)
            markup = self._markup(params)
            chat = self.writable(params)
            text, entities = self._settle(draft, empty_ok=True)
            if utf16_len(text) > MAX_CAPTION:
                raise bad_request("message caption is too long")
            body: Json = {"caption": text} if text else {}
            if entities:
                body["caption_entities"] = entities
            body.update(self._media(kind, params))
            return self._accept(chat, params, call, kind, body, draft.mode, markup)

        return send

    def _media(self, kind: str, params: Params) -> Json:
        upload = params.files.get(kind)
        reference = params.text(kind)
        if upload is None and reference.startswith("attach://"):
            upload = params.files.get(reference.removeprefix("attach://"))
        if upload is not None:
            self._check_upload(kind, upload)
            stored = self.state.add_file(upload.data, upload.name, upload.mime, f"{kind}s")
            return media_fields(kind, stored)
        if not reference:
            raise bad_request(f"there is no {kind} in the request")
        known = self.state.files.get(reference)
        if known is None:
            raise bad_request("wrong remote file identifier specified: Wrong string length")
        return media_fields(kind, known)

    def _check_upload(self, kind: str, upload: Upload) -> None:
        if not upload.data:
            raise bad_request("file must be non-empty")
        if len(upload.data) > (MAX_PHOTO if kind == "photo" else MAX_UPLOAD):
            raise bad_request("file is too big")
        if kind == "photo":
            _check_picture(upload.data)

    def _accept(
        self,
        chat: Chat,
        params: Params,
        call: Call,
        kind: str,
        body: Json,
        mode: str | None,
        markup: Json | None,
    ) -> Json:
        thread_id = self._thread(chat, params)
        reply, quoted = self._reply(chat, params)
        message: Json = {
            "message_id": self.state.next_message_id(chat),
            "date": self.state.now(),
            "chat": chat.wire(),
            "from": self.state.bot,
            **chat.thread_fields(thread_id),
            **({"reply_to_message": quoted} if quoted else {}),
            **({"reply_markup": markup} if markup and "inline_keyboard" in markup else {}),
            **body,
        }
        text = message.get("text", message.get("caption", ""))
        file_id, file_name = _file_of(message)
        sent = SentMessage(
            seq=call.seq,
            at=self.state.monotonic(),
            date=message["date"],
            chat_id=chat.id,
            message_id=message["message_id"],
            kind=kind,
            text=text,
            first_text=text,
            entities=message.get("entities", message.get("caption_entities", [])),
            thread_id=thread_id,
            parse_mode=mode,
            reply_parameters=reply,
            reply_markup=markup,
            silent=params.flag("disable_notification"),
            file_id=file_id,
            file_name=file_name,
        )
        self.state.sent.append(sent)
        self.state.store(chat, message, sent)
        self.state.drafts.pop(chat.id, None)
        return copy.deepcopy(message)

    # --- changing

    def _own(self, chat: Chat, params: Params) -> tuple[Stored, SentMessage]:
        if not params.integer("message_id"):
            raise bad_request("message identifier is not specified")
        stored = chat.alive(params.integer("message_id"))
        if stored is None:
            raise bad_request("message to edit not found")
        if stored.sent is None:
            raise bad_request("message can't be edited")
        return stored, stored.sent

    def edit_text(self, params: Params, call: Call) -> Json:
        """editMessageText."""
        draft = self._read_text(params, "text", "entities", empty_ok=False)
        markup = self._markup(params)
        chat = self.writable(params)
        stored, sent = self._own(chat, params)
        if "text" not in stored.message:
            raise bad_request("there is no text in the message to edit")
        text, entities = self._settle(draft, empty_ok=False)
        if utf16_len(text) > MAX_TEXT:
            raise bad_request("MESSAGE_TOO_LONG")
        return self._change(call, stored, sent, "text", text, entities, markup)

    def edit_caption(self, params: Params, call: Call) -> Json:
        """editMessageCaption."""
        draft = self._read_text(params, "caption", "caption_entities", empty_ok=True)
        markup = self._markup(params)
        chat = self.writable(params)
        stored, sent = self._own(chat, params)
        if "text" in stored.message:
            raise bad_request("there is no caption in the message to edit")
        text, entities = self._settle(draft, empty_ok=True)
        if utf16_len(text) > MAX_CAPTION:
            raise bad_request("message caption is too long")
        return self._change(call, stored, sent, "caption", text, entities, markup)

    def edit_markup(self, params: Params, call: Call) -> Json:
        """editMessageReplyMarkup."""
        markup = self._markup(params)
        chat = self.writable(params)
        stored, sent = self._own(chat, params)
        name = "text" if "text" in stored.message else "caption"
        return self._change(call, stored, sent, name, sent.text, sent.entities, markup)

    def _change(
        self,
        call: Call,
        stored: Stored,
        sent: SentMessage,
        name: str,
        text: str,
        entities: list[Entity],
        markup: Json | None,
    ) -> Json:
        # An edit without a keyboard takes the keyboard away.
        if (text, entities, markup) == (sent.text, sent.entities, sent.reply_markup):
            raise bad_request(_NOT_MODIFIED)
        sent.text, sent.entities, sent.reply_markup = text, entities, markup
        sent.edits.append(Edit(call.seq, self.state.monotonic(), text, entities, markup))
        message = stored.message
        spans = "entities" if name == "text" else "caption_entities"
        for key, value in ((name, text), (spans, entities), ("reply_markup", markup)):
            message.pop(key, None)
            if value:
                message[key] = value
        message["edit_date"] = self.state.now()
        return copy.deepcopy(message)

    def delete(self, params: Params, call: Call) -> bool:
        """deleteMessage."""
        chat = self.writable(params)
        if not params.integer("message_id"):
            raise bad_request("message identifier is not specified")
        stored = chat.alive(params.integer("message_id"))
        if stored is None:
            raise bad_request("message to delete not found")
        too_old = stored.message["date"] < self.state.now() - TWO_DAYS
        foreign = stored.sent is None and chat.type != "private"
        if (too_old or foreign) and not chat.bot_is_admin:
            raise bad_request("message can't be deleted")
        stored.deleted = True
        if stored.sent is not None:
            stored.sent.deleted = True
        return True

    def react(self, params: Params, call: Call) -> bool:
        """setMessageReaction: a bot may set one emoji, or none."""
        chat = self.writable(params)
        message_id = params.integer("message_id")
        if chat.alive(message_id) is None:
            raise bad_request("message to react not found")
        reactions = params.parsed("reaction", "reaction") or []
        if len(reactions) > 1:
            raise bad_request("REACTIONS_TOO_MANY")
        for reaction in reactions:
            emoji = str(reaction.get("emoji", "")).removesuffix("\ufe0f")
            if reaction.get("type") != "emoji" or emoji not in EMOJI_REACTIONS:
                raise bad_request("REACTION_INVALID")
        self.state.reactions[(chat.id, message_id)] = reactions
        return True

    # --- what is not a message

    def chat_action(self, params: Params, call: Call) -> bool:
        """sendChatAction."""
        action = params.text("action")
        if action not in ACTIONS:
            raise bad_request("wrong parameter action in request")
        chat = self.writable(params)
        # The general topic has no thread of its own for messages, but it has one for typing.
        general = chat.is_forum and params.integer("message_thread_id") == 1
        thread_id = 1 if general else self._thread(chat, params)
        self.state.actions.append(
            {
                "seq": call.seq,
                "at": self.state.monotonic(),
                "chat_id": chat.id,
                "thread_id": thread_id,
                "action": action,
            }
        )
        return True

    def draft(self, params: Params, call: Call) -> bool:
        """sendMessageDraft: a passing preview in a private chat."""
        parsed = self._read_text(params, "text", "entities", empty_ok=True)
        chat = self.writable(params)
        if chat.type != "private":
            raise bad_request("TEXTDRAFT_PEER_INVALID")
        draft_id = params.integer("draft_id")
        if draft_id == 0:
            raise bad_request("RANDOM_ID_INVALID")
        text, entities = self._settle(parsed, empty_ok=True)
        if utf16_len(text) > MAX_TEXT:
            raise bad_request("message is too long")
        draft = {
            "seq": call.seq,
            "at": self.state.monotonic(),
            "chat_id": chat.id,
            "thread_id": self._thread(chat, params),
            "draft_id": draft_id,
            "text": text,
            "entities": entities,
        }
        self.state.drafts[chat.id] = draft
        self.state.draft_history.append(draft)
        return True


def _check_picture(data: bytes) -> None:
    if not data.startswith(_PICTURES):
        raise bad_request("IMAGE_PROCESS_FAILED")
    if data.startswith(b"\x89PNG") and len(data) >= 24:  # the one kind whose size is easy to see
        width, height = struct.unpack(">II", data[16:24])
        short, long = sorted((width, height))
        if short + long > PHOTO_EDGES or long > PHOTO_RATIO * max(short, 1):
            raise bad_request("PHOTO_INVALID_DIMENSIONS")


def media_fields(kind: str, stored: Any) -> Json:
    """The part of a message that carries a file."""
    base = {
        "file_id": stored.file_id,
        "file_unique_id": stored.unique_id,
        "file_size": stored.size,
    }
    if kind == "photo":
        small = {**base, "file_unique_id": f"{stored.unique_id}s", "width": 90, "height": 90}
        return {"photo": [small, {**base, "width": 800, "height": 800}]}
    if kind == "voice":
        return {"voice": {**base, "duration": 1, "mime_type": stored.mime}}
    named = {**base, "file_name": stored.name, "mime_type": stored.mime}
    if kind == "document":
        return {"document": named}
    if kind == "audio":
        return {"audio": {**named, "duration": 1}}
    return {kind: {**named, "duration": 1, "width": 320, "height": 240}}


def _file_of(message: Json) -> tuple[str | None, str | None]:
    if "photo" in message:
        return message["photo"][-1]["file_id"], None
    for kind in ("document", "audio", "voice", "video"):
        if kind in message:
            return message[kind]["file_id"], message[kind].get("file_name")
    return None, None
