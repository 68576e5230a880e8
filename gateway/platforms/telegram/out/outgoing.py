"""Owns what becomes of one planned part: which call it takes, in which form Telegram accepts it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from agent.mail import Address, OutboxPart
from gateway import texts
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    SendRefused,
)
from gateway.platforms.telegram.failures import (
    BadButtons,
    BadMarkup,
    ChatMoved,
    NoSuchMessage,
    NoSuchTopic,
)
from gateway.platforms.telegram.native.buttons import PRESS, rows
from gateway.platforms.telegram.out.calls import Form, MessageCalls
from gateway.platforms.telegram.out.enclosing import Enclosing, Missing
from gateway.platforms.telegram.out.moves import Moves
from gateway.platforms.telegram.out.planning import MARK, marked_as_repeat

log = logging.getLogger(__name__)
T = TypeVar("T")

_FORMS = 7
"""A chat that moved, and each thing that can be left out, once."""


class Outgoing:
    """Sends parts. ``calls`` opens the connection, or raises SendUnavailable."""

    def __init__(
        self, calls: Callable[[], MessageCalls], moves: Moves, enclosing: Enclosing
    ) -> None:
        self._calls = calls
        self._moves = moves
        self._enclosing = enclosing

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool) -> str:
        """As `gateway.platforms.contract.Platform.send`."""
        if "edits" in part.payload:
            return await self._edit(address, part.payload)
        return await self._deliver(address, part, repeat=repeat)

    async def take_buttons(self, address: Address, message_id: str) -> None:
        """As `gateway.platforms.contract.Platform.take_buttons`."""
        if self._moves.today(address) != address.chat_id:
            raise EditRefused("the chat has moved")
        try:
            await self._calls().take_buttons(address.chat_id, message_id)
        except (ChatMoved, BadButtons, BadMarkup, NoSuchMessage) as exc:
            raise EditRefused(str(exc)) from exc

    async def in_some_form(
        self, address: Address, form: Form, send: Callable[[str, Form], Awaitable[T]]
    ) -> T:
        """Call with the chat's id of today, without what Telegram refuses the message for."""
        for _ in range(_FORMS):
            target = self._moves.today(address)
            if target != address.chat_id:
                # The numbers of messages and topics meant something in the old chat only.
                form = replace(form, reply_to=None, thread_id=None)
            try:
                return await send(target, form)
            except ChatMoved as exc:
                await self._moves.follow(target, exc.new_chat_id)
            except BadMarkup as exc:
                log.warning("markup refused, sent as plain text", extra={"error": str(exc)})
                if not form.entities:
                    raise SendRefused(str(exc)) from exc
                form = form.plain()
            except BadButtons as exc:
                log.warning("buttons refused, sent without", extra={"error": str(exc)})
                if not form.rows:
                    raise SendRefused(str(exc)) from exc
                form = replace(form, rows=())
            except NoSuchTopic as exc:
                if form.thread_id is None:
                    raise SendRefused(str(exc)) from exc
                log.warning("topic gone, sent to the chat itself", extra={"error": str(exc)})
                form = replace(form, thread_id=None, reply_to=None)
            except NoSuchMessage as exc:
                if form.reply_to is None:
                    raise SendRefused(str(exc)) from exc
                form = replace(form, reply_to=None)
        raise SendRefused("refused in every form")

    async def _deliver(self, address: Address, part: OutboxPart, *, repeat: bool) -> str:
        payload = part.payload
        form = Form(
            thread_id=address.thread_id,
            reply_to=replied_to(address, payload) if part.n == 0 else None,
        )
        if repeat:
            marked = marked_as_repeat(payload)
            if marked is None:  # no room in the message itself: the mark goes before it
                await self._say(address, MARK, form)
            else:
                payload = marked
        form = _dressed(form, payload)
        if not ("file" in payload or "document" in payload):
            return await self._say(address, payload["text"], form)
        try:
            return await self._enclose(address, payload, form, part.attempts)
        except Missing as exc:
            text = "\n\n".join(filter(None, (payload["text"], exc.note)))
            return await self._say(address, text, form)

    async def _say(self, address: Address, text: str, form: Form) -> str:
        calls = self._calls()
        return await self.in_some_form(address, form, lambda to, it: calls.send(to, text, it))

    async def _enclose(
        self, address: Address, payload: Mapping[str, Any], form: Form, attempts: int
    ) -> str:
        calls, caption = self._calls(), payload["text"]
        async with self._enclosing.of(payload, attempts) as upload:
            where = (self._moves.today(address), form.thread_id)
            async with self._enclosing.shown(calls, *where, upload):
                if upload.as_photo:
                    try:
                        return await self.in_some_form(
                            address, form, lambda to, it: calls.upload(to, upload, caption, it)
                        )
                    except ChatGone:
                        raise
                    except SendRefused as exc:  # not every picture is one to Telegram
                        log.info("sent as a file, not as a picture", extra={"reason": str(exc)})
                plain = replace(upload, as_photo=False)
                try:
                    return await self.in_some_form(
                        address, form, lambda to, it: calls.upload(to, plain, caption, it)
                    )
                except ChatGone:
                    raise
                except SendRefused as exc:  # the words arrive whatever becomes of the file
                    log.warning("a file was refused", extra={"reason": str(exc)})
                    note = texts.file_not_sent(upload.name, texts.FILE_NOT_TAKEN)
                    raise Missing(note) from exc

    async def _edit(self, address: Address, payload: Mapping[str, Any]) -> str:
        """Put the part into the message that is there already; said twice it is said once."""
        calls, message_id = self._calls(), str(payload["edits"])

        async def edit(target: str, form: Form) -> None:
            if target != address.chat_id:
                raise EditRefused("the chat has moved")
            await calls.edit(target, message_id, payload["text"], form)

        try:
            await self.in_some_form(address, _dressed(Form(), payload), edit)
        except ChatGone:
            raise
        except SendRefused as exc:  # gone, too old, no text of ours: whatever it is, not this one
            raise EditRefused(str(exc)) from exc
        return message_id


def replied_to(address: Address, payload: Mapping[str, Any]) -> str | None:
    """The message to answer: of a press, the one with the button."""
    pressed = payload.get("pressed")
    if pressed is not None:
        return str(pressed)
    reply_to = address.reply_to_message_id
    return None if reply_to is None or reply_to.startswith(PRESS) else reply_to


def _dressed(form: Form, payload: Mapping[str, Any]) -> Form:
    entities = payload.get("entities") or ()
    return replace(form, entities=entities, rows=rows(payload.get("buttons") or ()))
