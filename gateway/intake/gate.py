"""Owns who may talk at this moment: the configured rules, and what the store has learned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from agent.errors import StoreUnavailable
from agent.mail_ports import Mailbox
from agent.pairings import Pairings
from gateway.intake.access import Learned, PlatformPolicy, Verdict, allows_chat, decide
from gateway.platforms.contract import InboundMessage

log = logging.getLogger(__name__)

Bot = tuple[str, str]
"""Platform and bot."""


class Gate:
    """Every entry point asks it.

    What the store has learned of a bot is read before its first message is decided, and again
    after each change. Until the new reading is there, the old one holds.
    """

    def __init__(
        self, policies: Mapping[str, PlatformPolicy], mailbox: Mailbox, pairings: Pairings
    ) -> None:
        self._policies = policies
        self._mailbox = mailbox
        self._pairings = pairings
        self._moved: dict[Bot, dict[str, str]] = {}
        self._paired: dict[str, frozenset[str]] = {}
        self._changes = 0
        self._in_turn = asyncio.Lock()
        """Whoever asks first goes on first: messages keep their order while it is read."""
        self._read_at: dict[Bot, int] = {}
        """As of which change each bot was read."""

    def reconfigure(self, policies: Mapping[str, PlatformPolicy]) -> None:
        """Other rules, for whatever is decided from now on; what waits is decided again."""
        self._policies = policies

    def policy(self, platform: str) -> PlatformPolicy | None:
        """Of a platform that is on; None: it is off."""
        return self._policies.get(platform)

    async def learn(self, platform: str, bot_id: str) -> None:
        """To be awaited before anything of this bot is decided; reads only what is not known.

        Raises:
            StoreUnavailable: nobody knows; ask again.
        """
        bot = (platform, bot_id)
        async with self._in_turn:
            await self._learn(bot)

    async def _learn(self, bot: Bot) -> None:
        platform, bot_id = bot
        while self._read_at.get(bot) != self._changes:
            before = self._changes
            moved = await self._mailbox.moved_chats(platform, bot_id)
            paired = frozenset(
                person.user_id
                for person in (await self._pairings.pairings()).paired
                if person.platform == platform
            )
            if before == self._changes:  # or else it is older than what has happened meanwhile
                self._moved[bot], self._paired[platform] = moved, paired
                self._read_at[bot] = before

    def is_up_to_date(self, platform: str, bot_id: str) -> bool:
        """Is what the store has learned of this bot known as it is now?"""
        return self._read_at.get((platform, bot_id)) == self._changes

    async def learn_all(self, bots: Iterable[Bot]) -> None:
        """The same for several."""
        for bot in set(bots):
            await self.learn(*bot)

    def changed(self) -> None:
        """Somebody was let in or shut out, or a chat has moved: what is known is old."""
        self._changes += 1

    def decide(self, message: InboundMessage) -> Verdict:
        """May this sender talk to the bot here?"""
        policy = self.policy(message.platform)
        if policy is None:
            return decide(message, None)
        learned = Learned(
            self._paired.get(message.platform, frozenset()) if policy.pairing else frozenset(),
            self._moved.get((message.platform, message.bot_id), {}),
        )
        return decide(message, policy.access, learned)

    async def decide_again(self, message: InboundMessage) -> Verdict:
        """The same for what has waited: its sender may have been shut out meanwhile.

        While the store does not answer, what was known last counts.
        """
        try:
            await self.learn(message.platform, message.bot_id)
        except StoreUnavailable:
            log.warning("who was let in is not known anew", exc_info=True)
        return self.decide(message)

    def allows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        """Is everybody in this chat allowed?"""
        policy = self.policy(platform)
        moved = self._moved.get((platform, bot_id), {})
        return policy is not None and allows_chat(chat_id, policy.access, moved)
