"""posthouse as a service of the machine: installed, spoken to, looked at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.harness import (
    DISCORD_USER,
    TelegramChat,
    World,
    eventually,
)
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.discord_server import DiscordServer
from tests.fakes.telegram_server import TelegramServer
from tests.systemd.machine import PROGRAM, Machine

UNIT = "posthouse.service"
HOME = "/var/lib/private/posthouse"
SECRETS = "/etc/posthouse"
PYTHON_THERE = "/opt/posthouse/.venv/bin/python"
SOON = "[Service]\nRestartSec=300ms\n"
"""Tests do not wait five seconds for each start."""


@dataclass
class Service:
    """The unit, the servers that it talks to, and what it keeps."""

    machine: Machine
    world: World
    cursor: str

    @property
    def home(self) -> Path:
        """Seen from here."""
        return self.machine.root / HOME.removeprefix("/")

    async def run(self, *command: str, **options: Any) -> str:
        """A command in there, while the servers of this process go on."""
        done = await asyncio.to_thread(lambda: self.machine.run(*command, **options))
        return done.stdout + done.stderr

    async def systemctl(self, *words: str, **options: Any) -> str:
        return await self.run("systemctl", *words, **options)

    async def posthouse(self, *words: str, **options: Any) -> str:
        return await self.run(PROGRAM, *words, **options)

    def write(self, path: str, text: str, mode: int = 0o600) -> None:
        """A file in there."""
        file = self.machine.root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def configure(self, **sections: Any) -> None:
        """As `World.configure`, for the journal; over a running service as its owner would."""
        sections.setdefault("logging", {"format": "auto"})
        owner = self.home.stat() if self.home.exists() else None
        path = self.world.configure(**sections)
        if owner is not None:
            os.chown(path, owner.st_uid, owner.st_gid)

    def keep_secrets(self, **values: str) -> None:
        for name, value in values.items():
            self.write(f"{SECRETS}/{name}", value + "\n")

    def drop_in(self, text: str) -> None:
        """What this test wants otherwise."""
        self.write(f"/run/systemd/system/{UNIT}.d/test.conf", text, 0o644)

    async def start(self, *platforms: str, **sections: Any) -> None:
        """Installed and ready, with these platforms on; none named: Telegram."""
        wanted = platforms or ("telegram",)
        self.configure(**sections)
        self.keep_secrets(**self.world.secrets_for(*wanted))
        try:
            await self.posthouse("service", "install", "--now")
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{(await self.words())[-4000:]}") from exc

    async def show(self, name: str) -> str:
        return (await self.systemctl("show", UNIT, "--value", "-p", name)).strip()

    async def main_pid(self) -> int:
        return int(await self.show("MainPID"))

    async def kill(self, signal: str = "KILL") -> None:
        """To the daemon alone."""
        await self.systemctl("kill", "--kill-who=main", "-s", signal, UNIT)

    async def until(self, name: str, value: str, seconds: float = 60.0) -> None:
        """A property of the unit is this."""
        for _ in range(round(seconds / 0.1)):
            if (found := await self.show(name)) == value:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} is {found!r}, not {value!r}\n{await self.words()}")

    async def entries(self, *matches: str) -> list[dict[str, Any]]:
        """The journal since this test began."""
        options = ("-o", "json", "--no-pager", f"--after-cursor={self.cursor}")
        said = await self.run("journalctl", "--sync", check=False)
        said = await self.run("journalctl", *options, *matches, check=False)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    async def words(self, *matches: str) -> str:
        """The same as text."""
        return "\n".join(str(entry.get("MESSAGE")) for entry in await self.entries(*matches))

    def chat(self) -> TelegramChat:
        return TelegramChat(self.world)

    async def stored(self, query: str, value: object, seconds: float = 20.0) -> None:
        """What the database says to it becomes this."""
        found: object = None
        for _ in range(round(seconds / 0.2)):
            if (found := await self.one(query)) == value:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"{query}: {found!r}, not {value!r}")

    async def one(self, query: str) -> object:
        """The first column of the first row. Asked in there: SQLite goes by real paths."""
        code = "import json,sqlite3,sys; c=sqlite3.connect(f'file:{sys.argv[1]}?mode=ro',uri=True)"
        code += "; print(json.dumps(c.execute(sys.argv[2]).fetchone()[0]))"
        return json.loads(await self.run(PYTHON_THERE, "-c", code, f"{HOME}/state.db", query))

    async def answered(self, chat: TelegramChat, text: str, seconds: float = 30.0) -> list[str]:
        """Wait until the bot has said this; all that it has said by then."""
        try:
            await eventually(
                lambda: any(text in shown for shown in chat.shown()),
                seconds,
                f"an answer with {text!r}",
                seen=chat.shown,
            )
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{(await self.words())[-6000:]}") from exc
        return chat.shown()

    async def at_work(self, count: int = 1) -> None:
        """So many requests wait at the model's server."""
        records = self.world.anthropic.records
        await eventually(lambda: records.in_flight == count, 20.0, f"{count} turns at work")


@contextlib.asynccontextmanager
async def open_service(machine: Machine) -> AsyncIterator[Service]:
    """The servers, up; the machine as if posthouse had never been there."""
    async with (
        AnthropicServer(window=8000) as anthropic,
        TelegramServer() as telegram,
        DiscordServer(nonce_window=600.0) as discord,
    ):
        discord.add_user("ada", id_=DISCORD_USER)
        world = World(machine.root / HOME.removeprefix("/"), anthropic, telegram, discord)
        service = Service(machine, world, "")
        await _forget(service)
        last = await service.run("journalctl", "-n", "1", "-o", "json", "--no-pager")
        service.cursor = json.loads(last.splitlines()[-1])["__CURSOR"]
        service.drop_in(SOON)
        try:
            yield service
            await _no_secret_was_said(service)
        finally:
            await _forget(service)


async def _no_secret_was_said(service: Service) -> None:
    journal = json.dumps(await service.entries())
    for name, value in service.world.secrets.items():
        assert value not in journal, name


async def _forget(service: Service) -> None:
    await service.systemctl("stop", UNIT, "posthouse-tools.socket", check=False, seconds=90)
    await service.systemctl("reset-failed", check=False)
    gone: Sequence[str] = (
        "/etc/systemd/system/posthouse*",
        "/etc/systemd/system/*.wants/posthouse*",
        f"/run/systemd/system/{UNIT}.d",
        SECRETS,
        HOME,
        "/var/lib/posthouse",
        "/root/.posthouse",
    )
    await service.run("sh", "-c", f"rm -rf {' '.join(gone)}; systemctl daemon-reload")
