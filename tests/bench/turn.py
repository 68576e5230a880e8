"""Owns the bench of a whole turn (rows 5a, 5b): the real gateway, store and SDK, a fake provider.

The limit twin does the same work with bare calls: as many durable commits as ours (group commit, a
writer thread of its own) and one streamed SDK call with as large a request, the same tools in it.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.clock import RandomIds, SystemClock
from agent.llm.background import in_daemon_thread
from agent.llm.pictures import PictureLoader
from agent.mail import Address, OutboxDraft, OutboxPart, PartDraft
from agent.tools.attachments import OpenAttachmentTool
from agent.tools.clock import CurrentTimeTool
from agent.tools.files import FilesTool
from agent.tools.recall import RecallTool
from agent.tools.shell import ShellTool
from gateway.config.environment import Home, Secrets
from gateway.config.models import Agent as AgentConfig
from gateway.config.models import Config, Console, Model, Telegram, Tools
from gateway.platforms.contract import (
    SIGN_OF_LIFE_SECONDS,
    InboundMessage,
    Intake,
    PlatformState,
    PreviewBounds,
    PreviewKind,
    Report,
)
from gateway.wiring.assembling import assemble
from gateway.wiring.models import build_model
from gateway.wiring.surroundings import Surroundings
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from tests.bench.measure import Result, percentile, text

COMMITS_PER_TURN = 6
"""Ours: accept, begin, finish, parts planned, part sending, part sent."""
PROMPT = "You are an assistant. " + "y" * 30_000
TOOLS = [
    {"name": each.name, "description": each.description, "input_schema": each.parameters}
    for each in (
        CurrentTimeTool.schema,
        FilesTool.schema,
        OpenAttachmentTool.schema,
        RecallTool.schema,
        ShellTool.schema,
    )
]
ROUNDS = 3


class BenchPlatform:
    """A platform that only measures: replies end the future of their chat."""

    name = "telegram"
    bot_id = "1"
    dedupes_sends = True

    def __init__(self, preview: PreviewKind = "none") -> None:
        self._preview: PreviewKind = preview
        self.previews = 0
        self.intake: asyncio.Future[Intake] = asyncio.get_running_loop().create_future()
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.sent = itertools.count(1)

    async def run(self, intake: Intake, report: Report) -> None:
        self.intake.set_result(intake)
        while True:  # a platform without a sign of life is started anew
            report(PlatformState.RUNNING, "")
            await asyncio.sleep(SIGN_OF_LIFE_SECONDS / 4)

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        return [PartDraft({"text": draft.text})]

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        return str(next(self.sent))

    def give_up(self) -> None:
        """The daemon has ended, by a signal for example: nobody shall wait for ever."""
        for done in self.waiting.values():
            if not done.done():
                done.set_exception(RuntimeError("the daemon has ended in the middle of a bench"))

    def answered(self, chat_id: str) -> None:
        self.waiting.pop(chat_id).set_result(None)

    def preview_kind(self, address: Address) -> PreviewKind:
        return self._preview

    def preview_bounds(self, address: Address) -> PreviewBounds:
        return PreviewBounds(limit=4096, calls=20, seconds=20.0)

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        self.previews += 1
        return message_id or str(next(self.sent))

    async def take_buttons(self, address: Address, message_id: str) -> None:
        return None

    async def typing(self, address: Address) -> None:
        return None

    async def close(self) -> None:
        return None


class Ours:
    """The daemon's parts, put together by the real wiring."""

    def __init__(self, base_url: str, folder: Path, *, preview: PreviewKind = "none") -> None:
        self.base_url, self.folder, self.preview = base_url, folder, preview
        self.numbers = itertools.count(1)

    async def __aenter__(self) -> Ours:
        clock, ids = SystemClock(), RandomIds()
        config = Config(
            model=Model(base_url=self.base_url, context_length=200_000),
            agent=AgentConfig(system_prompt=PROMPT, tools=Tools(shell=True, files=True)),
            telegram=Telegram(allow_from=["*"]),
            console=Console(enabled=False),
        )
        home = Home(self.folder, "bench")
        around = Surroundings(home, Secrets(anthropic_api_key="test-key"), {})
        store = await open_store(home.database, clock=clock, ids=ids)
        self.platform = BenchPlatform(self.preview)
        self.marked = _MarkWatcher(store, self.platform)
        files = FolderAttachments(home.attachments, store, clock, in_daemon_thread)
        model = build_model(config, around.secrets, clock, PictureLoader(files))
        self.daemon = assemble(
            config,
            around,
            clock,
            ids,
            model,
            self.marked,
            {"telegram": self.platform},  # type: ignore[arg-type, dict-item]
            attachments=files,
        )
        self.task = asyncio.ensure_future(self.daemon.serve())
        self.task.add_done_callback(lambda _: self.platform.give_up())
        self.intake = await self.platform.intake
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.daemon.stop()
        await self.task

    async def turn(self, chat: int, words: str) -> float:
        start = time.perf_counter()
        n = str(next(self.numbers))
        done = asyncio.get_running_loop().create_future()
        self.platform.waiting[str(chat)] = done
        message = InboundMessage(
            "telegram", "1", str(chat), "direct", n, str(chat), "u", words, time.time(), update_id=n
        )
        if not await self.intake.receive(message):
            raise AssertionError(f"chat {chat} gets no turn: its message was not taken")
        await done
        return time.perf_counter() - start


class _MarkWatcher:
    """The store as it is, telling the bench when a reply's last commit is done."""

    def __init__(self, store: Any, platform: BenchPlatform) -> None:
        self._store, self._platform = store, platform
        self._chats: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def finish_turn(self, *args: Any, **kwargs: Any) -> Any:
        items = await self._store.finish_turn(*args, **kwargs)
        for item in items:
            if item.draft.kind == "reply":
                self._chats[item.id] = item.draft.address.chat_id
        return items

    async def plan_parts(self, outbox_id: int, parts: Any) -> Any:
        planned = await self._store.plan_parts(outbox_id, parts)
        if (chat_id := self._chats.pop(outbox_id, None)) is not None:
            self._chats[-planned[-1].id] = chat_id
        return planned

    async def mark_part(self, part_id: int, state: str, **kwargs: Any) -> None:
        await self._store.mark_part(part_id, state, **kwargs)
        if state == "sent" and -part_id in self._chats:
            self._platform.answered(self._chats.pop(-part_id))


class Twin:
    """Bare library calls."""

    def __init__(self, base_url: str, folder: Path) -> None:
        self.base_url = base_url
        self.db = folder / "twin.db"
        self.history: dict[int, list[dict[str, Any]]] = {}

    async def __aenter__(self) -> Twin:
        import anthropic

        self.client = anthropic.AsyncAnthropic(
            api_key="test-key", base_url=self.base_url, max_retries=0, timeout=120.0
        )
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(
            target=write_in_groups, args=(self.db, self.jobs, asyncio.get_running_loop())
        )
        self.thread.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.jobs.put(None)
        self.thread.join()
        await self.client.close()

    async def commit(self, chat: int, words: str) -> None:
        done = asyncio.get_running_loop().create_future()
        self.jobs.put((chat, words, done))
        await done

    async def turn(self, chat: int, words: str) -> float:
        start = time.perf_counter()
        history = self.history.setdefault(chat, [])
        history.append({"role": "user", "content": words})
        for _ in range(2):
            await self.commit(chat, words)
        async with self.client.messages.stream(
            model="claude-sonnet-5-5",
            max_tokens=8192,
            system=PROMPT,
            messages=history,  # type: ignore[arg-type]
            tools=TOOLS,  # type: ignore[arg-type]
        ) as stream:
            reply = (await stream.get_final_message()).content[0].text  # type: ignore[union-attr]
        history.append({"role": "assistant", "content": reply})
        for _ in range(COMMITS_PER_TURN - 2):
            await self.commit(chat, reply)
        return time.perf_counter() - start


def write_in_groups(
    db: Path, jobs: Any, loop: asyncio.AbstractEventLoop, *, unique: bool = False
) -> None:
    """The limit of durable rows: whatever waits is one transaction, on a thread of its own."""
    connection = sqlite3.connect(db, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        f"CREATE TABLE m (id INTEGER PRIMARY KEY, chat INT{' UNIQUE' * unique}, words TEXT)"
    )
    while (job := jobs.get()) is not None:
        group = [job]
        while not jobs.empty() and len(group) < 256:
            if (job := jobs.get()) is None:
                jobs.put(None)
                break
            group.append(job)
        connection.execute("BEGIN IMMEDIATE")
        for chat, words, _ in group:
            connection.execute("INSERT INTO m (chat, words) VALUES (?, ?)", (chat, words))
        connection.execute("COMMIT")
        loop.call_soon_threadsafe(lambda done: [f.set_result(None) for _, _, f in done], group)
    connection.close()


@contextmanager
def provider(*options: str) -> Iterator[str]:
    """The strict fake as a process of its own."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.fakes.anthropic_server", "--port", "0"]
    command += ["--api-key", "test-key", "--thinking", "never", "--keep", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()


async def _one(side: Ours | Twin, turns: int, base: int) -> tuple[float, float]:
    """p50 in ms and CPU ms a turn, one chat after its first turns."""
    source = random.Random(base)
    for _ in range(3):
        await side.turn(base, text(source, 200))
    cpu = time.process_time()
    times = [await side.turn(base, text(source, 200)) for _ in range(turns)]
    spent = time.process_time() - cpu
    return percentile(times, 50) * 1000, spent / turns * 1000


async def _many(side: Ours | Twin, chats: int, rounds: int, base: int) -> float:
    """Turns a second, so many chats at once."""
    source = random.Random(base)
    await asyncio.gather(*(side.turn(base + c, text(source, 200)) for c in range(chats)))
    start = time.perf_counter()
    for _ in range(rounds):
        await asyncio.gather(*(side.turn(base + c, text(source, 200)) for c in range(chats)))
    return chats * rounds / (time.perf_counter() - start)


async def _run() -> list[Result]:
    ours_one, twin_one, ours_cpu, twin_cpu, ours_many, twin_many = ([] for _ in range(6))  # type: ignore[var-annotated]
    with provider() as url, tempfile.TemporaryDirectory(dir=".") as folder:
        async with Ours(url, Path(folder)) as ours, Twin(url, Path(folder)) as twin:
            for n in range(ROUNDS):
                wall, cpu = await _one(ours, 40, 1000 + n)
                ours_one.append(wall), ours_cpu.append(cpu)
                wall, cpu = await _one(twin, 40, 1000 + n)
                twin_one.append(wall), twin_cpu.append(cpu)
                ours_many.append(await _many(ours, 50, 4, 10_000 + n * 100))
                twin_many.append(await _many(twin, 50, 4, 10_000 + n * 100))
    return [
        Result("5a turn, one chat, p50", "ms", ours_one, twin_one, at_most=2.6),
        Result("5a turn, one chat, CPU", "ms", ours_cpu, twin_cpu, at_most=2.9),
        Result("5b turns, 50 chats at once", "per s", ours_many, twin_many, at_least=0.38),
    ]


def run() -> list[Result]:
    return asyncio.run(_run())
