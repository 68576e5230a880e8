"""Owns how one planned part gets to Discord: as an answer to an interaction, an edit, a message."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from gateway import texts
from gateway.platforms.contract import (
    Address,
    ChatGone,
    OutboxPart,
    SendError,
    SendRefused,
)
from gateway.platforms.discord.native.hooks import Hooks, KeyGone
from gateway.platforms.discord.native.pressed import Key, parse_key
from gateway.platforms.discord.out.looking import Looked
from gateway.platforms.discord.out.parcels import CONTENT_CHARS, Packing, Parcel
from gateway.platforms.discord.out.refusals import (
    BadButtons,
    Guarded,
    MissingRight,
    NoSuchReference,
    TooLarge,
)
from gateway.platforms.discord.out.sending import Sending
from gateway.platforms.discord.render import nonce

log = logging.getLogger(__name__)

GUARDED_TRIES = 6
"""So often a part is stopped in front of Discord before it is asked what it is stopped for."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a part."""

    message_id: str
    quiet: bool = False
    """Only one person sees it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """By one login."""

    sending: Sending
    hooks: Hooks
    packing: Packing
    limit_bytes: int
    """Of one file, in the chat that is sent to."""
    nonce_scope: str

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool) -> Sent:
        """As `gateway.platforms.contract.Platform.send`."""
        async with self.packing.packed(part.payload, self.limit_bytes, part.attempts) as parcel:
            return await self._in_some_form(address, part, parcel, repeat=repeat)

    async def _in_some_form(
        self, address: Address, part: OutboxPart, parcel: Parcel, *, repeat: bool
    ) -> Sent:
        """Without what Discord refuses the message for: the words arrive whatever becomes of it."""
        stopped = 0
        while True:
            try:
                return await self._send(address, part, parcel, repeat=repeat)
            except Guarded as exc:
                if part.attempts < GUARDED_TRIES or not await self._lets_through(address):
                    raise
                stopped += 1
                less = _past_a_guard(parcel) if stopped > 1 else parcel
                reason = str(exc)
                if less is None:
                    raise
            except SendRefused as exc:
                less, reason = _with_less(parcel, exc), str(exc)
                if less is None:
                    raise
            if less is not parcel:
                log.warning(
                    "sent with less than was meant to go out",
                    extra={"part_id": part.id, "error": reason},
                )
            parcel = less

    async def _lets_through(self, address: Address) -> bool:
        """Is it this message that the guard has something against? Others pass, then."""
        try:
            await self.sending.typing(channel_of(address))
        except (SendError, NoSuchReference):
            return False
        return True

    async def _send(
        self, address: Address, part: OutboxPart, parcel: Parcel, *, repeat: bool
    ) -> Sent:
        key = parse_key(part.payload.get("interaction"))
        if key is not None and key.is_press and part.payload.get("aside"):
            key = replace(key, quiet=True)
        mark = nonce(self.nonce_scope, part.id)
        if key is not None:
            try:
                id_ = await self._by_interaction(key, address, part, parcel, repeat=repeat)
                return Sent(id_, key.quiet)
            except KeyGone as exc:
                log.info(
                    "interaction takes no answer any more",
                    extra={"interaction_id": key.interaction_id, "code": exc.code},
                )
            if key.private:
                # Said once for the whole answer: its parts share the nonce.
                parcel = Parcel(texts.PRIVATE_TOO_LATE)
                mark = nonce(f"{self.nonce_scope}\0private", part.outbox_id)
        elif part.payload.get("edits"):
            message_id = number_of(str(part.payload["edits"]))
            if message_id is not None:
                return Sent(await self.sending.edit(channel_of(address), message_id, parcel))
        return Sent(await self._by_message(key, address, part, parcel, mark, repeat=repeat))

    async def _by_interaction(
        self, key: Key, address: Address, part: OutboxPart, parcel: Parcel, *, repeat: bool
    ) -> str:
        """What was announced is filled in, which can be repeated; all else follows it.

        Discord takes no nonce there. What everybody sees is looked for in the history before it is
        said again. What only one person sees stands in no history: its repeat is marked.
        """
        if part.n == 0 and not key.is_press:
            return await self.hooks.fill_in(key, parcel)
        if repeat and key.quiet:
            marked = f"{texts.POSSIBLE_REPEAT}\n{parcel.content}".strip()
            if len(marked) <= CONTENT_CHARS:
                parcel = replace(parcel, content=marked)
        elif repeat:
            found = await self._find(key, address, part, parcel, "")
            if found is not None:
                return found
        return await self.hooks.follow_up(key, parcel)

    async def _by_message(
        self,
        key: Key | None,
        address: Address,
        part: OutboxPart,
        parcel: Parcel,
        mark: str,
        *,
        repeat: bool,
    ) -> str:
        if repeat:
            # Discord forgets a nonce after some minutes, so its own memory is not enough.
            found = await self._find(key, address, part, parcel, mark)
            if found is not None:
                return found
        channel_id = channel_of(address)
        reply_to = number_of(address.reply_to_message_id) if part.n == 0 and key is None else None
        try:
            return await self.sending.send(channel_id, parcel, mark, reply_to)
        except NoSuchReference as exc:
            if reply_to is None:
                raise SendRefused(str(exc)) from exc
        # What it answers is gone; the answer itself still counts.
        try:
            return await self.sending.send(channel_id, parcel, mark, None)
        except NoSuchReference as exc:
            raise SendRefused(str(exc)) from exc

    async def _find(
        self, key: Key | None, address: Address, part: OutboxPart, parcel: Parcel, mark: str
    ) -> str | None:
        reply_to = number_of(address.reply_to_message_id)
        looked = Looked(
            self.sending.own_id,
            parcel.content,
            parcel.sizes,
            mark,
            reply_to=reply_to if part.n == 0 else None,
            interaction_id=None if key is None else key.interaction_id,
        )
        before = number_of(part.follows_message_id)
        after = before if before is not None else reply_to
        return await self.sending.find_own(channel_of(address), looked, after)


def _with_less(parcel: Parcel, exc: SendRefused) -> Parcel | None:
    """What is left out after this refusal; None: it was neither the files nor the buttons."""
    if isinstance(exc, ChatGone) and not isinstance(exc, MissingRight):
        return None
    if parcel.rows and (isinstance(exc, BadButtons) or not parcel.files):
        return None if isinstance(exc, MissingRight) else replace(parcel, rows=())
    if not parcel.files:
        return None
    if isinstance(exc, MissingRight):
        return parcel.without_files(texts.FILE_NOT_ALLOWED)
    # Of several that are too large together, the largest is in the way of the others.
    return parcel.without_largest() if isinstance(exc, TooLarge) else parcel.without_files()


def _past_a_guard(parcel: Parcel) -> Parcel | None:
    """What is left out, or said instead; None: that was it already."""
    if parcel.files:
        return parcel.without_files(texts.FILE_STOPPED)
    return None if parcel.content == texts.PART_REFUSED else Parcel(texts.PART_REFUSED)


def channel_of(address: Address) -> int:
    """A thread is a channel of its own to Discord.

    Raises:
        SendRefused: it names none.
    """
    number = number_of(address.thread_id or address.chat_id)
    if number is None:
        raise SendRefused("the address names no channel")
    return number


def number_of(id_: str | None) -> int | None:
    """An id of an address, if it is one of Discord's."""
    return int(id_) if id_ is not None and id_.isascii() and id_.isdigit() else None
