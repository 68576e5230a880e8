"""Owns the Bot API's calls about messages, buttons and menus; part of the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gateway.platforms.contract import SendRefused, SendUnknown
from gateway.platforms.telegram.failures import Failures, NotModified

if TYPE_CHECKING:
    from telegram import Bot

log = logging.getLogger(__name__)
T = TypeVar("T")

UPLOAD_BYTES_PER_SECOND = 64_000
"""Slower than this, an upload has failed."""
Action = Literal["typing", "upload_photo", "upload_document"]


@dataclass(frozen=True, slots=True)
class Form:
    """How a message goes out, beside its words."""

    thread_id: str | None = None
    reply_to: str | None = None
    entities: Sequence[Mapping[str, Any]] = ()
    rows: Sequence[Sequence[tuple[str, str]]] = ()
    """Of buttons: label and command."""

    def plain(self) -> Form:
        """Without what a text may be refused for."""
        return replace(self, entities=())


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to be sent, in full."""

    name: str
    data: bytes
    as_photo: bool = False


class MessageCalls:
    """Each raises a `SendError`, or one of the errors of `failures` where another form may do."""

    def __init__(self, bot: Bot, failures: Failures, request_seconds: float) -> None:
        self._bot = bot
        self._failures = failures
        self._request_seconds = request_seconds

    # --- messages

    async def send(self, chat_id: str, text: str, form: Form) -> str:
        """Send one message and give back its id."""
        chat, more = _number(chat_id), self._more(form)
        entities = _entities(form)

        async def call() -> str:
            message = await self._bot.send_message(chat, text, entities=entities, **more)
            return str(message.message_id)

        return await self._mapped(call)

    async def upload(self, chat_id: str, upload: Upload, caption: str, form: Form) -> str:
        """Send a file with some words and give back the message's id."""
        chat, more = _number(chat_id), self._more(form)
        more.update(caption=caption or None, caption_entities=_entities(form), filename=upload.name)

        async def call() -> str:
            if upload.as_photo:
                message = await self._bot.send_photo(chat, upload.data, **more)
            else:
                # What it is was decided here: a picture that is sent as a file is meant as one.
                message = await self._bot.send_document(
                    chat, upload.data, disable_content_type_detection=True, **more
                )
            return str(message.message_id)

        return await self._mapped(call, len(upload.data) / UPLOAD_BYTES_PER_SECOND)

    async def edit(self, chat_id: str, message_id: str, text: str, form: Form) -> None:
        """Change a message; one that says this already counts as changed."""
        chat, message = _number(chat_id), _number(message_id)
        entities, keyboard = _entities(form), _keyboard(form.rows)

        async def call() -> None:
            await self._bot.edit_message_text(
                text, chat, message, entities=entities, reply_markup=keyboard
            )

        try:
            await self._mapped(call)
        except NotModified:
            return

    async def take_buttons(self, chat_id: str, message_id: str) -> None:
        """Leave a message without its buttons."""
        chat, message = _number(chat_id), _number(message_id)

        async def call() -> None:
            await self._bot.edit_message_reply_markup(chat, message, reply_markup=None)

        try:
            await self._mapped(call)
        except NotModified:
            return

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Take a message away."""
        chat, message = _number(chat_id), _number(message_id)

        async def call() -> None:
            await self._bot.delete_message(chat, message)

        await self._mapped(call)

    # --- what passes

    async def draft(self, chat_id: str, draft_id: int, text: str, form: Form) -> None:
        """Show what is being written, in a private chat."""
        chat, thread = _number(chat_id), _optional(form.thread_id)
        entities = _entities(form)

        async def call() -> None:
            await self._bot.send_message_draft(
                chat, draft_id, text, message_thread_id=thread, entities=entities
            )

        await self._mapped(call)

    async def action(self, chat_id: str, thread_id: str | None, action: Action) -> None:
        """Show for some seconds what the bot is at."""
        chat, thread = _number(chat_id), _optional(thread_id)

        async def call() -> None:
            await self._bot.send_chat_action(chat, action, message_thread_id=thread)

        await self._mapped(call)

    async def answer_press(self, query_id: str, text: str) -> None:
        """Tell the app that a button was seen; with a text it shows that for a moment."""

        async def call() -> None:
            await self._bot.answer_callback_query(query_id, text or None)

        await self._mapped(call)

    # --- the menu

    async def set_menu(
        self, kind: str, chat_id: str | None, commands: Sequence[tuple[str, str]]
    ) -> None:
        """Show these commands (name, what it does) in a kind of chat; empty: none of its own."""
        from telegram import BotCommand, BotCommandScope, BotCommandScopeChat  # noqa: PLC0415

        scope = BotCommandScope(kind)
        if chat_id is not None:
            scope = BotCommandScopeChat(_number(chat_id))

        async def call() -> None:
            if commands:
                await self._bot.set_my_commands([BotCommand(*one) for one in commands], scope)
            else:
                await self._bot.delete_my_commands(scope)

        await self._mapped(call)

    # --- how each is made

    def _more(self, form: Form) -> dict[str, Any]:
        from telegram import ReplyParameters  # noqa: PLC0415 - imported late

        answered = _optional(form.reply_to)
        reply = None
        if answered is not None:
            reply = ReplyParameters(answered, allow_sending_without_reply=True)
        return {
            "message_thread_id": _optional(form.thread_id),
            "reply_parameters": reply,
            "reply_markup": _keyboard(form.rows),
        }

    async def _mapped(self, call: Callable[[], Awaitable[T]], more_seconds: float = 0.0) -> T:
        from telegram.error import TelegramError  # noqa: PLC0415 - imported late

        try:
            # The SDK's own time limits begin anew with every byte that drips in.
            async with asyncio.timeout(self._request_seconds + more_seconds):
                return await call()
        except TelegramError as exc:
            raise self._failures.sending(exc) from self._failures.cause(exc)
        except TimeoutError as exc:
            raise SendUnknown("no complete answer in time") from exc
        except (
            Exception
        ) as exc:  # the SDK could not read the answer; the message is out all the same
            log.exception("telegram answered something strange")
            raise SendUnknown(type(exc).__name__) from self._failures.cause(exc)


def _entities(form: Form) -> Any:
    from telegram import MessageEntity  # noqa: PLC0415 - imported late

    return [MessageEntity(**entity) for entity in form.entities] or None


def _keyboard(rows: Sequence[Sequence[tuple[str, str]]]) -> Any:
    from telegram import InlineKeyboardButton, InlineKeyboardMarkup  # noqa: PLC0415

    if not rows:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(label, callback_data=command) for label, command in row]
         for row in rows]
    )  # fmt: skip


def _optional(text: str | None) -> int | None:
    return None if text is None else _number(text)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SendRefused(f"{text!r} is no number of Telegram's") from None
