"""A client for the control API: starts the server as a process and drives it from a test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.fakes.telegram_server.faults import Fault
from tests.fakes.telegram_server.server import TOKEN
from tests.fakes.telegram_server.wire import Json

ROOT = Path(__file__).resolve().parents[3]


class RemoteError(AssertionError):
    """The control API refused something, or a wait ran out."""


class RemoteTelegram:
    """The server in a process of its own: it lives on while the daemon is killed."""

    def __init__(self, token: str = TOKEN, *options: str) -> None:
        self.token = token
        self.options = options
        self.root = ""
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.fakes.telegram_server",
            "--token",
            self.token,
            *self.options,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(20):
                line = await self._process.stdout.readline()
            self.root = json.loads(line)["root"]
        except (ValueError, TimeoutError):
            await self._end()
            raise RemoteError(f"the server did not start: {self.options}") from None
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
        await self._end()

    async def _end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(10):
                await self._process.communicate()
        except TimeoutError:
            self._process.kill()
            await self._process.communicate()

    @property
    def base_url(self) -> str:
        """As for the server in process."""
        return f"{self.root}/bot"

    @property
    def base_file_url(self) -> str:
        """As for the server in process."""
        return f"{self.root}/file/bot"

    async def _ask(self, verb: str, path: str, **rest: Any) -> Any:
        assert self._session is not None
        async with self._session.request(verb, f"{self.root}/_control/{path}", **rest) as answer:
            body = await answer.json()
        if "error" in body:
            raise RemoteError(body["error"])
        return body["result"]

    async def inject(self, helper: str, **args: Any) -> Any:
        """Call a helper of the server by name: inject("private_text", text="hi")."""
        body = {"helper": helper, "args": {key: _wire(value) for key, value in args.items()}}
        return await self._ask("POST", "inject", json=body)

    async def raw(self, update: Json) -> Json:
        """Queue any JSON as an update."""
        return await self._ask("POST", "update", json=update)

    async def fault(self, fault: Fault) -> Json:
        """Script a fault."""
        body = fault.to_json()
        body.pop("hits")
        return await self._ask("POST", "fault", json=body)

    async def clear_faults(self) -> None:
        """No more faults; hanging calls go on."""
        await self._ask("DELETE", "faults")

    async def sent(self, chat_id: int | None = None, since: int = 0) -> list[Json]:
        """Accepted messages as dictionaries."""
        return await self._ask("GET", "sent", params=_query(chat_id=chat_id, since=since))

    async def visible(self, chat_id: int, thread_id: int | None = None) -> list[Json]:
        """What the chat shows of the bot now."""
        query = _query(chat_id=chat_id, thread_id=thread_id)
        return await self._ask("GET", "visible", params=query)

    async def visible_texts(self, chat_id: int) -> list[str]:
        """The texts of `visible`."""
        return [message["text"] for message in await self.visible(chat_id)]

    async def calls(self, method: str = "", since: int = 0) -> list[Json]:
        """Recorded requests."""
        return await self._ask("GET", "calls", params=_query(method=method, since=since))

    async def stats(self) -> Json:
        """The counters."""
        return await self._ask("GET", "stats")

    async def state(self) -> Json:
        """Drafts, actions, commands, reactions, callback answers, pending updates."""
        return await self._ask("GET", "state")

    async def wait_sent(
        self,
        count: int = 1,
        chat_id: int | None = None,
        contains: str = "",
        timeout: float = 30.0,
    ) -> list[Json]:
        """Wait for accepted messages; returns those of the chat."""
        query = _query(sent=count, chat_id=chat_id, contains=contains, timeout=timeout)
        await self._ask("GET", "wait", params=query)
        found = await self.sent(chat_id)
        return [message for message in found if contains in message["text"]]

    async def wait_polling(self, timeout: float = 30.0) -> None:
        """Wait until the daemon polls."""
        await self._ask("GET", "wait", params=_query(polling=1, timeout=timeout))

    async def wait_confirmed(self, update_id: int, timeout: float = 30.0) -> None:
        """Wait until an offset has confirmed this update."""
        await self._ask("GET", "wait", params=_query(confirmed=update_id, timeout=timeout))

    async def set(self, **values: Any) -> None:
        """token_valid, next_update_id."""
        await self._ask("POST", "set", json=values)

    async def pause(self, seconds: float) -> None:
        """Refuse all connections for a while, the control API's too."""
        await self._ask("POST", "pause", json={"seconds": seconds})


def _query(**values: Any) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


def _wire(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return [_wire(item) for item in value] if isinstance(value, list) else value
