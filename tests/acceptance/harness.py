"""The daemon as a process, the three servers it talks to, and eyes on its database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gateway.control import RequestFailed, ask, socket_path
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.discord_server import Channel, DiscordServer, User
from tests.fakes.telegram_server import TelegramServer

T = TypeVar("T")

REPO = Path(__file__).resolve().parents[2]
PATIENCE = 3.0
"""What is waited for may take so many times as long as it should: on a starved machine it does,
and only a failure waits to the end. What has to be quick is measured where that is claimed."""
READY_SECONDS = 40.0
EXIT_SECONDS = 20.0
POLL_SECONDS = 0.02
LOG_LINES_SHOWN = 80

TELEGRAM_USER = 111
OTHER_TELEGRAM_USER = 112
STRANGER = 666
MANAGED = {"INVOCATION_ID": "0123456789abcdef0123456789abcdef"}
"""What the environment says where a service manager looks after the process."""
DISCORD_USER = 700_000_000_000_000_111
OTHER_DISCORD_USER = 700_000_000_000_000_112


async def eventually(
    condition: Callable[[], T],
    seconds: float,
    what: str,
    *,
    alive: Daemon | None = None,
    seen: Callable[[], object] = lambda: "",
) -> T:
    """Wait for something to become true and give it back; ``alive`` must not die meanwhile."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if alive is not None and alive.exit_code is not None:
            raise AssertionError(f"the daemon ended ({alive.exit_code}) before: {what}; {seen()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}; {seen()}")
        await asyncio.sleep(POLL_SECONDS)
    return value


# --- the process --------------------------------------------------------------------------------


class Daemon:
    """One run of the daemon, or of another command; its standard error goes to a file."""

    def __init__(
        self,
        home: Path,
        secrets: Mapping[str, str],
        *,
        config: Path | None = None,
        launcher: Sequence[str] = ("-m", "gateway", "run"),
        stdin: int = subprocess.DEVNULL,
        name: str = "daemon",
    ) -> None:
        self.home = home
        self.socket = socket_path(None, home, environment(home, secrets))
        self._secrets = secrets
        self._config = config
        self._launcher = launcher
        self._stdin = stdin
        self.log_path = home.parent / f"{name}.log"
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below zero: minus the signal."""
        return self.process.poll()

    def start(self) -> Daemon:
        """Start the process and come back at once."""
        options = () if self._config is None else ("--config", str(self._config))
        with self.log_path.open("ab") as log:
            self.started_at = time.monotonic()
            self._process = subprocess.Popen(
                [sys.executable, *self._launcher, *options],
                cwd=REPO,
                env=environment(self.home, self._secrets),
                stdin=self._stdin,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        return self

    def status(self) -> dict[str, Any] | None:
        """What it says of itself; None: nobody answers."""
        try:
            return ask(self.socket, {"op": "status"})
        except RequestFailed:  # it is on its way down
            return None

    async def ready(self, *platforms: str, seconds: float = READY_SECONDS) -> Daemon:
        """Wait until it is ready and these platforms are running."""
        seconds *= PATIENCE
        deadline = time.monotonic() + seconds
        answer: dict[str, Any] | None = None
        while True:
            if self.exit_code is not None:
                raise AssertionError(f"the daemon ended with {self.exit_code}\n{self.log_tail()}")
            answer = await asyncio.to_thread(self.status)
            states = {} if answer is None else answer["platforms"]
            running = all(states.get(name, {}).get("state") == "running" for name in platforms)
            if answer is not None and answer["ready"] and running:
                return self
            if time.monotonic() > deadline:
                raise AssertionError(f"not ready within {seconds:g} s: {answer}\n{self.log_tail()}")
            await asyncio.sleep(POLL_SECONDS)

    async def exited(self, seconds: float = EXIT_SECONDS) -> int:
        """Wait for its end; its exit code."""
        await eventually(lambda: self.exit_code is not None, seconds, "the daemon's end")
        assert self.exit_code is not None
        return self.exit_code

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.exit_code is None:
            self.process.send_signal(signal.SIGKILL)
        await self.exited()

    async def terminate(self, seconds: float = EXIT_SECONDS) -> tuple[int, float]:
        """SIGTERM; the exit code and how long it took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return await self.exited(seconds), time.monotonic() - begun

    def destroy(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def log_text(self) -> str:
        """Everything on standard error, of all runs into the same file."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_lines(self) -> list[dict[str, Any]]:
        """The lines of the JSON log."""
        found = []
        for line in self.log_text().splitlines():
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    found.append(value)
        return found

    def log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-LOG_LINES_SHOWN:])


def environment(home: Path, secrets: Mapping[str, str]) -> dict[str, str]:
    """An environment of its own: nothing of this process's but what Python needs."""
    kept = {n: os.environ[n] for n in ("PATH", "LANG", "LC_ALL", "TMPDIR") if n in os.environ}
    return {
        **kept,
        "HOME": str(home.parent),
        "POSTHOUSE_HOME": str(home),
        "PYTHONFAULTHANDLER": "1",
        **secrets,
    }


def command(
    home: Path,
    *arguments: str,
    secrets: Mapping[str, str] | None = None,
    stdin: str | None = None,
    seconds: float = 40.0,
) -> subprocess.CompletedProcess[str]:
    """Run one posthouse command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=REPO,
        env=environment(home, secrets or {}),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
    )


async def run_command(
    home: Path,
    *arguments: str,
    secrets: Mapping[str, str] | None = None,
    stdin: str | None = None,
    seconds: float = 40.0,
) -> subprocess.CompletedProcess[str]:
    """`command`, while the servers of this process go on serving."""
    return await asyncio.to_thread(
        command, home, *arguments, secrets=secrets, stdin=stdin, seconds=seconds
    )


# --- the world ----------------------------------------------------------------------------------


@dataclass
class World:
    """A home, the three servers, and the daemons that ran in it."""

    home: Path
    anthropic: AnthropicServer
    telegram: TelegramServer
    discord: DiscordServer
    daemons: list[Daemon] = field(default_factory=list)

    @property
    def secrets(self) -> dict[str, str]:
        return {
            "TELEGRAM_BOT_TOKEN": self.telegram.token,
            "DISCORD_BOT_TOKEN": self.discord.token,
            "ANTHROPIC_API_KEY": self.anthropic.api_key,
        }

    def secrets_for(self, *platforms: str) -> dict[str, str]:
        """What switches these platforms on, and the model's key."""
        wanted = {"ANTHROPIC_API_KEY", *(f"{name.upper()}_BOT_TOKEN" for name in platforms)}
        return {name: value for name, value in self.secrets.items() if name in wanted}

    def configure(self, **sections: Mapping[str, Any]) -> Path:
        """Write the home's config.yaml; each argument is merged over the section of that name.

        `agent.tools` is one key of its section: who gives it has `fetch_url` on, as people have.
        """
        config: dict[str, dict[str, Any]] = {
            "model": {
                "base_url": self.anthropic.base_url,
                "context_length": 8000,
                "cache_ttl": "5m",
            },
            # The windows of these tests are small, and what fills them is counted.
            "agent": {"tools": {"fetch_url": False}},
            "gateway": {"drain_seconds": 3, "http": {"port": 0}},
            "telegram": {
                "base_url": self.telegram.base_url,
                "base_file_url": self.telegram.base_file_url,
                "allow_from": [TELEGRAM_USER, OTHER_TELEGRAM_USER],
            },
            "discord": {
                "api_base": self.discord.api_base,
                "gateway_url": self.discord.gateway_url,
                "allow_from": [DISCORD_USER, OTHER_DISCORD_USER],
            },
            "console": {"enabled": False},
            "logging": {"level": "INFO", "format": "json"},
        }
        for name, section in sections.items():
            config.setdefault(name, {}).update(section)
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / "config.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
        return path

    def daemon(self, *, secrets: Mapping[str, str] | None = None, **options: Any) -> Daemon:
        """A daemon in this home, not started yet; it is destroyed with the world."""
        made = Daemon(self.home, self.secrets if secrets is None else secrets, **options)
        self.daemons.append(made)
        return made

    async def run(self, *platforms: str, **options: Any) -> Daemon:
        """A daemon that is ready, with these platforms running; no others are on.

        None named: both. With ``secrets`` of its own, those decide what is on.
        """
        names = platforms or ("telegram", "discord")
        options.setdefault("secrets", self.secrets_for(*names))
        return await self.daemon(**options).start().ready(*names)

    def database(self) -> Database:
        return Database(self.home / "state.db")

    def close(self) -> None:
        """End every process and show the log of this world (pytest prints it on a failure)."""
        for daemon in self.daemons:
            daemon.destroy()
        for path in dict.fromkeys(daemon.log_path for daemon in self.daemons):
            if path.exists():
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                print(f"--- {path.name}, last {LOG_LINES_SHOWN} lines")
                print("\n".join(line[:600] for line in lines[-LOG_LINES_SHOWN:]))


@contextlib.asynccontextmanager
async def open_world(folder: Path, *, window: int | None = 8000) -> AsyncIterator[World]:
    """The three servers, up, and an empty home beside them."""
    async with (
        AnthropicServer(window=window) as anthropic,
        TelegramServer() as telegram,
        DiscordServer(nonce_window=600.0) as discord,
    ):
        world = World(folder / "home", anthropic, telegram, discord)
        discord.add_user("ada", id_=DISCORD_USER)
        discord.add_user("bob", id_=OTHER_DISCORD_USER)
        try:
            yield world
        finally:
            world.close()


# --- chats --------------------------------------------------------------------------------------


class TelegramChat:
    """A person's private chat with the bot on Telegram, from now on."""

    platform = "telegram"

    def __init__(self, world: World, user_id: int = TELEGRAM_USER) -> None:
        self._server = world.telegram
        self.user_id = user_id
        self._seen = len(self._server.visible_texts(user_id))

    def say(self, text: str) -> None:
        self._server.private_text(text, user_id=self.user_id)

    def shown(self) -> list[str]:
        """The bot's messages as the chat shows them, in order."""
        return self._server.visible_texts(self.user_id)[self._seen :]


class DiscordChat:
    """A direct channel with the bot, or a guild channel where it is mentioned, from now on."""

    platform = "discord"

    def __init__(
        self, world: World, user: User | int = DISCORD_USER, channel: Channel | None = None
    ) -> None:
        self._server = world.discord
        self._user = user
        self._channel = channel
        self.channel: Channel = channel or world.discord.open_dm(user)
        self._seen = len(self._server.bot_texts(self.channel))

    def say(self, text: str) -> None:
        mention = self._channel is not None
        self._server.user_says(self.channel, self._user, text, mention_bot=mention)

    def shown(self) -> list[str]:
        return self._server.bot_texts(self.channel)[self._seen :]


Chat = TelegramChat | DiscordChat


async def answered(chat: Chat, text: str, daemon: Daemon, seconds: float = 20.0) -> list[str]:
    """Wait until some message of the bot contains this; all that it has said by then."""
    await eventually(
        lambda: any(text in shown for shown in chat.shown()),
        seconds,
        f"an answer with {text!r} on {chat.platform}",
        alive=daemon,
        seen=lambda: chat.shown()[-5:],
    )
    return chat.shown()


async def settled(world: World) -> None:
    """Wait until nothing is owed, claimed, running or given up."""
    database = world.database()
    await eventually(
        lambda: database.unsettled() == {}, 15.0, "everything settled", seen=database.unsettled
    )


# --- the database -------------------------------------------------------------------------------


class Database:
    """Read-only eyes on state.db, also while the daemon has it open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=10.0)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._open() as connection:
            return [dict(row) for row in connection.execute(query, values)]

    def one(self, query: str, *values: Any) -> Any:
        """The first column of the only row."""
        with self._open() as connection:
            return connection.execute(query, values).fetchone()[0]

    def states(self, table: str) -> dict[str, int]:
        """How many rows of inbox, outbox, outbox_parts or turns are in which state."""
        return {
            row["state"]: row["n"]
            for row in self.rows(f"SELECT state, count(*) AS n FROM {table} GROUP BY state")
        }

    def unsettled(self) -> dict[str, dict[str, int]]:
        """What is neither answered, nor sent, nor over."""
        final = {
            "inbox": {"answered", "quarantined"},
            "outbox": {"sent"},
            "outbox_parts": {"sent"},
            "turns": {"done"},
        }
        found: dict[str, dict[str, int]] = {}
        for table, settled in final.items():
            left = {s: n for s, n in self.states(table).items() if s not in settled}
            if left:
                found[table] = left
        return found

    def chains(self) -> dict[str, list[str]]:
        """Conversation id → its session ids, root first, along the continuations."""
        sessions = self.rows("SELECT id, conversation_id, parent_session_id, link FROM sessions")
        child = {s["parent_session_id"]: s["id"] for s in sessions if s["link"] == "continuation"}
        found: dict[str, list[str]] = {}
        for session in sessions:
            if session["link"] == "continuation":
                continue
            chain = [session["id"]]
            while chain[-1] in child:
                chain.append(child[chain[-1]])
            found[session["conversation_id"]] = chain
        return found

    def conversations(self) -> list[dict[str, Any]]:
        """Every conversation with the platform that its session key names."""
        return [
            {**row, "platform": json.loads(row["session_key"])[0]}
            for row in self.rows("SELECT * FROM conversations ORDER BY created_at, id")
        ]

    def originals(self, role: str = "user") -> list[dict[str, Any]]:
        """What was said, each once: no copies, nothing of the host's."""
        return self.rows(
            "SELECT * FROM messages WHERE role = ? AND origin_id IS NULL AND kind IS NULL"
            " ORDER BY id",
            role,
        )

    def active(self, session_id: str) -> list[dict[str, Any]]:
        """A session's list."""
        return self.rows(
            "SELECT * FROM messages WHERE session_id = ? AND active = 1 ORDER BY seq", session_id
        )

    def integrity(self) -> str:
        return str(self.one("PRAGMA integrity_check"))
