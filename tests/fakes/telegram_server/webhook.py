"""Delivery by webhook: queued updates are posted in order, each until it is taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp

from tests.fakes.telegram_server.updates import UpdateQueue
from tests.fakes.telegram_server.wire import Json

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"


class Webhook:
    """At most one address; while it is set, polling is refused."""

    def __init__(self, updates: UpdateQueue, retry_seconds: float) -> None:
        self.updates = updates
        self.retry_seconds = retry_seconds
        self.url = ""
        self.secret = ""
        self.max_connections = 40
        self.attempts = 0
        self.last_error: Json = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.on_confirm: Callable[[], None] = lambda: None
        updates.on_push = self._news.set

    async def set(self, url: str, secret: str, max_connections: int) -> None:
        """Deliver to this address from now on."""
        await self.stop()
        self.url, self.secret, self.max_connections = url, secret, max_connections
        self.last_error = {}
        self._news.set()
        self._task = asyncio.create_task(self._deliver())

    async def stop(self) -> None:
        """Forget the address; what was not taken stays in the queue."""
        self.url = ""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def info(self) -> Json:
        """The answer of getWebhookInfo."""
        return {
            "url": self.url,
            "has_custom_certificate": False,
            "pending_update_count": len(self.updates.pending),
            **({"max_connections": self.max_connections} if self.url else {}),
            **self.last_error,
        }

    async def _deliver(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                self._news.clear()
                for update in [*self.updates.take_again(), *self.updates.pending]:
                    await self._insist(session, update)
                await self._news.wait()

    async def _insist(self, session: aiohttp.ClientSession, update: Json) -> None:
        while True:
            if await self._post(session, update):
                self.updates.delivered += 1
                self.updates.confirm(update["update_id"])
                self.on_confirm()
                return
            await asyncio.sleep(self.retry_seconds)

    async def _post(self, session: aiohttp.ClientSession, update: Json) -> bool:
        self.attempts += 1
        headers = {SECRET_HEADER: self.secret} if self.secret else {}
        try:
            async with session.post(self.url, json=update, headers=headers) as answer:
                await answer.read()
                if 200 <= answer.status < 300:
                    return True
                reason = f"Wrong response from the webhook: {answer.status} {answer.reason}"
        except aiohttp.ClientError:
            reason = "Connection refused"
        self.last_error = {
            "last_error_date": int(self.updates.clock()),
            "last_error_message": reason,
        }
        return False
