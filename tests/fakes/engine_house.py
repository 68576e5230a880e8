"""Owns a whole daemon with an engine of a plugin, a chat without a network and a strict model."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from agent.clock import RandomIds, SystemClock
from agent.llm.background import in_daemon_thread
from agent.llm.pictures import PictureLoader
from agent.mail import Address, OutboxPart
from agent.sessions import session_key
from agent.store_ports import Store
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config, Console, Context, Model, Plugins, Telegram
from gateway.platforms.contract import InboundMessage
from gateway.wiring.assembling import assemble
from gateway.wiring.models import build_model
from gateway.wiring.plugins import load_plugins
from gateway.wiring.surroundings import Surroundings
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from tests.bench.turn import BenchPlatform

WINDOW = 20_000


class Chat(BenchPlatform):
    """Keeps what is sent, by chat."""

    def __init__(self) -> None:
        super().__init__()
        self.said: defaultdict[str, list[str]] = defaultdict(list)
        self.news = asyncio.Condition()

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        async with self.news:
            self.said[address.chat_id].append(part.payload["text"])
            self.news.notify_all()
        return await super().send(address, part, repeat=repeat)


class EngineHouse:
    """One home; the daemon in it can be started several times."""

    def __init__(self, folder: Path, base_url: str, engine: str, **settings: Any) -> None:
        self.folder = folder
        self.numbers = itertools.count(1)
        self.config = Config(
            model=Model(base_url=base_url, context_length=settings.pop("window", WINDOW)),
            context=Context(engine=engine),
            plugins=Plugins(enabled=settings.pop("enabled", [])),
            telegram=Telegram(allow_from=["*"], admins=[11]),
            console=Console(enabled=False),
            **settings,
        )
        self.store: Store
        self.chat: Chat
        self.plugins: Any = None

    async def __aenter__(self) -> EngineHouse:
        clock, ids = SystemClock(), RandomIds()
        home = Home(self.folder, "a test")
        around = Surroundings(home, Secrets(anthropic_api_key="test-key"), {})
        self.store = await open_store(home.database, clock=clock, ids=ids)
        self.chat = Chat()
        files = FolderAttachments(home.attachments, self.store, clock, in_daemon_thread)
        self.plugins = await load_plugins(self.config, around, clock, self.store)
        self.daemon = assemble(
            self.config,
            around,
            clock,
            ids,
            build_model(self.config, around.secrets, clock, PictureLoader(files)),
            self.store,
            {"telegram": self.chat},  # type: ignore[dict-item]
            attachments=files,
            plugins=self.plugins,
        )
        self.task = asyncio.ensure_future(self.daemon.serve())
        self.intake = await self.chat.intake
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.daemon.stop()
        await self.task

    async def say(
        self, text: str, chat: str = "11", *, answers: int = 1, sender: str = ""
    ) -> list[str]:
        """What comes back."""
        n, said = str(next(self.numbers)), self.chat.said[chat]
        before = len(said)
        message = InboundMessage(
            "telegram", "1", chat, "direct", n, sender or chat, "u", text, time.time(), update_id=n
        )
        assert await self.intake.receive(message)
        async with asyncio.timeout(30), self.chat.news:
            await self.chat.news.wait_for(lambda: len(said) >= before + answers)
        return said[before:]

    async def tip(self, chat: str = "11") -> Any:
        """Where the chat's conversation is."""
        key = session_key("telegram", "1", chat, None, chat)
        conversation = await self.store.conversation_for_key(key)
        if conversation is not None:
            return await self.store.load(conversation.tip_session_id)
        raise AssertionError(f"chat {chat} has no conversation")
