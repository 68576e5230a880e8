"""Owns what is owed: every answer on its way to its chat, each chat in its own order and pace."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from agent.mail import Address, OutboxDraft, OutboxItem, OutboxPart
from agent.mail_ports import Mailbox
from agent.ports import Clock
from gateway.delivery.beside import Beside
from gateway.delivery.chat import ChatSender
from gateway.delivery.chats import ChatKey, Chats, chat_of
from gateway.delivery.parts import Means
from gateway.delivery.preview import Previews
from gateway.delivery.preview_place import PreviewNotes
from gateway.delivery.tries import DeliverySettings
from gateway.delivery.waiting import Queues
from gateway.platforms.contract import ChatGone, Platform, SendFlood
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

REMEMBERED_ITEMS = 10_000
"""Ids of answers that were settled."""

HALT_SECONDS = 1.0
"""What a send that is under way may still take at the very end."""


class Delivery:
    """Sends what the outbox owes. An item is owed from its commit on, whatever happens here."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        platforms: Mapping[str, Platform],
        clock: Clock,
        settings: DeliverySettings | None = None,
        jitter: Callable[[], float] = random.random,
        awaited: Callable[[int], bool] = lambda outbox_id: False,
        asks: Callable[[Address], bool] = lambda address: False,
        works: Callable[[str], bool] = lambda platform: True,
        stands: Callable[[int, str], None] = lambda outbox_id, message_id: None,
    ) -> None:
        """``awaited``: does anybody here wait for an answer to this question (by its id)?

        ``asks``: does a turn wait for an answer in this chat? Then nobody is shown as writing.
        ``works``: is this platform in no trouble, as far as is known?
        ``stands`` is told of a question that was sent: its id, and which message it is.
        """
        self._mailbox = mailbox
        self._platforms = platforms
        self._clock = clock
        self._settings = settings or DeliverySettings()
        self._asks = asks
        self._chats = Chats(clock)
        self._means = Means(
            mailbox,
            clock,
            self._chats,
            Queues(),
            self._settings,
            jitter,
            awaited,
            works,
            stands,
            self.take_buttons,
        )
        self._senders: dict[ChatKey, ChatSender] = {}
        self._overtaking: dict[ChatKey, ChatSender] = {}
        """Of those chats in which what is being sent hangs: what a command said."""
        self._tasks = TaskOwner(clock)
        self._typing = TaskOwner(clock)
        self._asides = TaskOwner(clock)
        self._under_way: set[int] = set()
        """Ids that are in some chat's queue; none is forgotten before it is settled."""
        self._settled: OrderedDict[int, None] = OrderedDict()
        self._off: set[str] = set()
        """Platforms that are not there, and for which answers are owed."""
        self._leaving = False

    async def start(self) -> int:
        """Take up everything that is owed since the last run; how much that is."""
        return await self.refresh()

    async def refresh(self) -> int:
        """Take up what is owed and not on its way yet: for answers that nobody handed over."""
        fresh = [item for item in await self._mailbox.owed() if not self._knows(item.id)]
        self.hand_over(fresh)
        return len(fresh)

    def hand_over(self, items: Iterable[OutboxItem]) -> None:
        """Send these, in this order, behind what their chats wait for already. Never waits."""
        for item in items:
            # Seen once is enough: a second copy may be older than what was sent meanwhile.
            if self._leaving or self._knows(item.id) or item.state in ("sent", "failed"):
                continue
            address = item.draft.address
            platform = self._platforms.get(address.platform)
            if platform is None:
                self._stays_owed(address.platform)
                continue
            self._under_way.add(item.id)
            key = chat_of(address)
            waits = key in self._senders
            self._enqueue(self._senders, key, platform, item)
            if waits and item.draft.kind == "command":
                self._asides.spawn(self._overtake(key, platform, item), name="overtaking")

    async def withdraw(self) -> None:
        """Send nothing of what is not owed any more: it was erased while it waited here."""
        waiting = [(sender, item.id) for sender in self._all_senders() for item in sender.items]
        owed = {item.id for item in await self._mailbox.owed()}
        for sender, outbox_id in waiting:
            if outbox_id not in owed and sender.take_out(outbox_id):
                self._settle(outbox_id, crashed=False)

    def _stays_owed(self, platform: str) -> None:
        """Said once: they are found again each time that somebody looks what is owed."""
        if platform not in self._off:
            self._off.add(platform)
            log.warning("answers stay owed: their platform is off", extra={"platform": platform})

    def heard(self, address: Address) -> None:
        """Somebody wrote there: whatever the chat was, it is open now."""
        self._chats.heard(address)

    def is_forsaken(self, address: Address) -> bool:
        """Has this chat refused everything for a day, as far as this process knows?"""
        return self._chats.is_forsaken(address)

    def previews(self, notes: PreviewNotes) -> Previews:
        """What shows answers while they are written, in step with everything that is sent here."""
        return Previews(
            platforms=self._platforms,
            notes=notes,
            chats=self._chats,
            is_busy=self.pending,
            tasks=self._asides,
            clock=self._clock,
        )

    def nudge(self, platform: str) -> None:
        """This platform works again: do not sit out the back-off."""
        for senders in (self._senders, self._overtaking):
            for key, sender in senders.items():
                if key[0] == platform:
                    sender.nudge()

    def pending(self, address: Address) -> bool:
        """Is anything on its way to this chat, beside what is in doubt?"""
        key = chat_of(address)
        senders = (self._senders.get(key), self._overtaking.get(key))
        return any(sender is not None and sender.items for sender in senders)

    @property
    def under_way(self) -> int:
        """How many answers are on their way, over all chats."""
        return sum(map(len, self._all_senders()))

    async def idle(self, seconds: float) -> bool:
        """Wait until nothing is on its way; False if that took too long."""
        return await self._tasks.wait(seconds)

    async def stop(self, seconds: float) -> None:
        """End: what can be sent at once may go out within the time, the rest stays owed."""
        self._leaving = True
        for sender in self._all_senders():
            sender.leave()
        await self._typing.cancel(HALT_SECONDS)
        await self._asides.cancel(HALT_SECONDS)
        if await self._tasks.wait(seconds):
            return
        for sender in self._all_senders():
            sender.halt()
        if not await self._tasks.wait(HALT_SECONDS):
            log.warning("sends cut off by the shutdown", extra={"chats": len(self._tasks)})
            await self._tasks.cancel(HALT_SECONDS)

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncIterator[None]:
        """Show that an answer is being written, while the block runs and the chat takes it."""
        task = self._typing.spawn(self._keep_typing(address), name="typing")
        try:
            yield
        finally:
            task.cancel()

    def say_now(self, address: Address, text: str) -> None:
        """Say something now or never, without a row: a receipt, or that the store is the trouble.

        Returns at once. Not said in a chat that has to be silent, nor while the daemon goes down
        and everything that is owed still wants to go out.
        """
        platform = self._platforms.get(address.platform)
        silent = self._chats.is_gone(address) or self._chats.budget(address).wait_seconds > 0
        if platform is not None and not silent and not self._leaving:
            self._asides.spawn(self._say(platform, address, text), name="said in passing")

    async def _say(self, platform: Platform, address: Address, text: str) -> None:
        try:
            for n, draft in enumerate(platform.render(OutboxDraft(address, text, "notice"))):
                # No row, so no id of one; never the same twice, also after a restart: some
                # platforms tell sends by it. Negative, so that no stored part ever has it.
                part_id = -secrets.randbits(62) - 1
                part = OutboxPart(part_id, part_id, n, "sending", draft.payload)
                self._chats.budget(address).called()
                await platform.send(address, part)
        except SendFlood as exc:
            self._chats.budget(address).silence(exc.retry_after_seconds)
        except ChatGone:
            self._chats.lost(address)
        except Exception:  # the supervised border of a platform: the work itself must go on
            log.warning("could not be said in passing", exc_info=True)

    def _all_senders(self) -> list[ChatSender]:
        return [*self._senders.values(), *self._overtaking.values()]

    def take_buttons(self, address: Address, message_id: str) -> None:
        """Leave a message without its buttons, when its chat takes that. Returns at once.

        If they stay, that is no harm: pressing one says that it is over.
        """
        platform = self._platforms.get(address.platform)
        silent = self._chats.is_gone(address) or self._leaving
        if platform is not None and not silent:
            taking = Beside(platform, self._chats).take_buttons(address, message_id, self._clock)
            self._asides.spawn(taking, name="buttons taken off")

    def _enqueue(
        self,
        senders: dict[ChatKey, ChatSender],
        key: ChatKey,
        platform: Platform,
        item: OutboxItem,
    ) -> None:
        sender = senders.get(key)
        if sender is not None:
            sender.put(item)
            return
        sender = senders[key] = ChatSender(platform, key[:2], self._means)
        sender.put(item)
        # In a context of its own: the turn whose answer happens to be first is not the only one.
        contextvars.Context().run(
            self._tasks.spawn, self._run(senders, key, sender), name=f"delivery to {key[0]}"
        )

    async def _overtake(self, key: ChatKey, platform: Platform, item: OutboxItem) -> None:
        """What a command said does not wait behind a send that hangs: a person stands there."""
        await self._clock.sleep(self._settings.overtake_seconds)
        sender = self._senders.get(key)
        if sender is not None and not self._leaving and sender.take_out(item.id):
            self._enqueue(self._overtaking, key, platform, item)

    async def _run(
        self, senders: dict[ChatKey, ChatSender], key: ChatKey, sender: ChatSender
    ) -> None:
        try:
            await sender.run(self._settle)
        finally:
            # In the same step as the sender's last look at its queue: nothing slips in between.
            senders.pop(key, None)

    def _knows(self, outbox_id: int) -> bool:
        return outbox_id in self._under_way or outbox_id in self._settled

    def _settle(self, outbox_id: int, crashed: bool) -> None:
        """Whoever has an old copy of a settled answer does not send it again."""
        self._under_way.discard(outbox_id)
        if crashed:  # it stays owed, and may be taken up again
            return
        self._settled[outbox_id] = None
        while len(self._settled) > REMEMBERED_ITEMS:
            self._settled.popitem(last=False)

    async def _keep_typing(self, address: Address) -> None:
        platform = self._platforms.get(address.platform)
        if platform is None:
            return
        await self._clock.sleep(self._settings.typing_delay_seconds)
        while True:
            budget = self._chats.budget(address)
            still = self._asks(address) or self._chats.is_gone(address)
            if budget.wait_seconds <= 0 and not still:
                try:
                    await platform.typing(address)
                except asyncio.CancelledError:
                    raise
                except SendFlood as exc:
                    self._chats.budget(address).silence(exc.retry_after_seconds)
                except Exception:  # the supervised border of a platform: only an ornament
                    log.debug("typing failed", exc_info=True)
            await self._clock.sleep(self._settings.typing_every_seconds)


__all__ = ["ChatKey", "Delivery", "DeliverySettings"]
