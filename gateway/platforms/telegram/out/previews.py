"""Owns how Telegram shows an answer that is being written: drafts where it has them, else edits."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from agent.mail import Address
from gateway.delivery.splitting import TELEGRAM_LIMIT
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    PreviewBounds,
    PreviewKind,
    SendRefused,
)
from gateway.platforms.telegram import render as rendering
from gateway.platforms.telegram.failures import NoSuchMethod
from gateway.platforms.telegram.out.calls import Form, MessageCalls
from gateway.platforms.telegram.out.outgoing import Outgoing, replied_to

log = logging.getLogger(__name__)

LARGEST_DRAFT_ID: Final = 2**31 - 1
_KEPT_CHATS: Final = 10_000


class Showing:
    """The previews of one bot."""

    def __init__(self, calls: Callable[[], MessageCalls], outgoing: Outgoing) -> None:
        self._calls = calls
        self._outgoing = outgoing
        self._no_drafts = False
        """The server is older than drafts."""
        self._draftless: OrderedDict[str, None] = OrderedDict()
        """Private chats that take none, for whatever reason."""

    def kind(self, address: Address) -> PreviewKind:
        """As `gateway.platforms.contract.Platform.preview_kind`."""
        if _is_group(address) or self._no_drafts or address.chat_id in self._draftless:
            return "message"
        return "draft"

    def bounds(self, address: Address) -> PreviewBounds:
        """Groups take 20 messages a minute, and edits count."""
        seconds = 60.0 if _is_group(address) else 20.0
        return PreviewBounds(limit=TELEGRAM_LIMIT, calls=20, seconds=seconds)

    async def show(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        """As `gateway.platforms.contract.Platform.preview`."""
        if message_id is not None:
            await self._change(address, text, message_id)
            return message_id
        if not text.strip():
            return None
        payload = rendering.render(text)[0].payload
        form = Form(thread_id=address.thread_id, entities=payload["entities"])
        if self.kind(address) == "draft":
            await self._draft(address, payload["text"], form, draft_id)
            return None
        calls = self._calls()
        form = Form(form.thread_id, replied_to(address, {}), form.entities)
        return await self._outgoing.in_some_form(
            address, form, lambda to, it: calls.send(to, payload["text"], it)
        )

    async def _draft(self, address: Address, text: str, form: Form, draft_id: int) -> None:
        calls, number = self._calls(), (draft_id - 1) % LARGEST_DRAFT_ID + 1
        try:
            await self._outgoing.in_some_form(
                address, form, lambda to, it: calls.draft(to, number, text, it)
            )
        except NoSuchMethod as exc:
            log.info("the server knows no drafts; answers are shown in messages")
            self._no_drafts = True
            raise SendRefused(str(exc)) from exc
        except ChatGone:
            raise
        except SendRefused:
            self._draftless[address.chat_id] = None
            while len(self._draftless) > _KEPT_CHATS:
                self._draftless.popitem(last=False)
            raise

    async def _change(self, address: Address, text: str, message_id: str) -> None:
        calls = self._calls()
        payload = rendering.render(text)[0].payload if text.strip() else None

        async def change(target: str, form: Form) -> None:
            if target != address.chat_id:
                raise EditRefused("the chat has moved")
            if payload is None:
                await calls.delete(target, message_id)
            else:
                await calls.edit(target, message_id, payload["text"], form)

        form = Form(entities=() if payload is None else payload["entities"])
        try:
            await self._outgoing.in_some_form(address, form, change)
        except ChatGone:
            raise
        except SendRefused as exc:
            if payload is None and "not found" in str(exc).lower():
                return  # somebody else has taken it away
            raise EditRefused(str(exc)) from exc


def _is_group(address: Address) -> bool:
    """Or a channel: their ids are below zero."""
    return address.chat_id.startswith("-")
