"""Owns the way in without what lies behind it: gate, pairing and intake on the store in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from agent.mail import Address, InboxItem, InboxRecord
from agent.ports import Clock
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.gate import Gate
from gateway.intake.intake import GatewayIntake, IntakeLimits
from gateway.intake.pairing import PairingDesk
from gateway.intake.pairing_office import PairingOffice
from storage.memory import MemoryStore
from tests.fakes.clock import SequentialIds


def letting_in(*users: str, chats: tuple[str, ...] = (), **more: Any) -> PlatformPolicy:
    """A policy with these lists."""
    return PlatformPolicy(AccessRules(frozenset(users), frozenset(chats)), **more)


class RecordingDispatcher:
    """A `gateway.intake.intake.Dispatcher` behind which nothing ever happens."""

    def __init__(self) -> None:
        self.items: list[InboxItem] = []
        self.moves: list[tuple[str, str]] = []

    def submit(self, item: InboxItem) -> None:
        self.items.append(item)

    def holds(self, inbox_id: int) -> bool:
        return any(item.id == inbox_id for item in self.items)

    def queues(self, record: InboxRecord) -> bool:
        return True

    def waiting(self, session_key: str) -> int:
        return 0

    def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        self.moves.append((old_chat_id, new_chat_id))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Whatever else the port may learn: told, and nothing done."""
        return lambda *args, **kwargs: None


class Door:
    """Everything that a message passes before its lane; `traces` tells what anybody has left."""

    gate_type: type[Gate] = Gate

    def __init__(
        self,
        clock: Clock,
        policies: dict[str, PlatformPolicy],
        *,
        store: Any = None,
        limits: IntakeLimits | None = None,
    ) -> None:
        self.clock = clock
        self.store: Any = store or MemoryStore(clock, SequentialIds())
        self.policies = policies
        self.said: list[tuple[Address, str]] = []
        self.codes: list[str] = []
        self._numbers = itertools.count(1)
        self.limits = limits
        self.open()

    def open(self) -> None:
        """As at a start: nothing is known but what is stored."""
        self.dispatcher = RecordingDispatcher()
        self.gate = self.gate_type(self.policies, self.store, self.store)
        self.pairing = PairingDesk(
            self.gate,
            self.store,
            lambda address, text: self.said.append((address, text)),
            self.clock,
            draw=self._draw,
        )
        self.office = PairingOffice(
            self.store,
            self.clock,
            pairing_on=lambda: {name for name, p in self.policies.items() if p.pairing},
            changed=self.gate.changed,
        )
        self.intake = GatewayIntake(
            mailbox=self.store,
            gate=self.gate,
            pairing=self.pairing,
            dispatcher=self.dispatcher,
            hand_over=lambda items: self.said.extend(
                (i.draft.address, i.draft.text) for i in items
            ),
            clock=self.clock,
            limits=self.limits,
        )

    @property
    def texts(self) -> list[str]:
        """What was let in, in order."""
        return [item.record.text for item in self.dispatcher.items]

    async def rows(self) -> list[InboxItem]:
        """Every inbox row in any state."""
        found: list[InboxItem] = await self.store.inbox_items(range(1, 1000))
        return found

    async def traces(self) -> list[str]:
        """What is stored or was said, in words; nothing: nobody was here."""
        book = await self.store.pairings()
        found = {
            "rows": await self.rows(),
            "owed": await self.store.owed(),
            "sessions": await self.store.list_sessions(),
            "pairing": [*book.requests, *book.paired, *book.failures],
            "said": self.said,
            "dispatched": self.dispatcher.items,
        }
        for platform in self.policies:
            for bot in ("900", "7", "8", "42"):
                found[f"cursors {platform} {bot}"] = list(await self.store.cursors(platform, bot))
                found[f"moves {platform} {bot}"] = list(await self.store.moved_chats(platform, bot))
        return [name for name, things in found.items() if things]

    def _draw(self) -> str:
        self.codes.append(f"CDE{next(self._numbers):05}".replace("0", "Z").replace("1", "Y"))
        return self.codes[-1]
