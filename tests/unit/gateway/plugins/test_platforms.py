"""Plugins' platforms: on a loop of their own, supervised, with our gate before them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.errors import StoreUnavailable
from agent.mail import Address, Cursor, OutboxDraft, OutboxPart
from agent.plugin_contract import ChatMessage, NeverSendable, NotSent, NotTaken, WrongSettings
from gateway.platforms.contract import (
    InboundMessage,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.plugins.calling import PluginCalls
from gateway.plugins.collected import Collected, PluginPlatform
from gateway.plugins.discovery import Found, Role, Source
from gateway.plugins.door import inbound_of
from gateway.plugins.loops import PluginLoops
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.manifest import Manifest
from gateway.plugins.platforms import ForeignPlatform
from gateway.plugins.settings import PluginSettings
from gateway.wiring.plugin_platforms import foreign_platforms
from tests.fakes.clock import FakeClock

ADDRESS = Address("post", "post", "room", None)
MESSAGE = ChatMessage("1", "room", "7", "hello", direct=True)


class Taking:
    """An intake that keeps what it is given."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.taken: list[InboundMessage] = []
        self.threads: set[str] = set()
        self.problem = problem

    async def receive(self, message: InboundMessage, cursor: Cursor | None = None) -> bool:
        self.threads.add(threading.current_thread().name)
        if self.problem is not None:
            raise self.problem
        self.taken.append(message)
        return True


class Adapter:
    """A chat in memory."""

    max_chars = 200

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.outcome: Exception | None = None
        self.script: Callable[[Any], Any] | None = None
        self.given: Any = None
        self.closed = False

    async def run(self, door: Any) -> None:
        if self.script is not None:
            await self.script(door)
        door.working()
        try:
            self.given = await door.receive(MESSAGE)
        except NotTaken as exc:
            self.given = exc
        await asyncio.Event().wait()

    async def send(self, chat_id: str, text: str, thread_id: str | None) -> str:
        if self.outcome is not None:
            raise self.outcome
        self.sent.append((chat_id, text))
        return f"m{len(self.sent)}"

    async def close(self) -> None:
        self.closed = True


def platform(adapter: Any, clock: Any = None) -> ForeignPlatform:
    factory = adapter if callable(adapter) else lambda settings: adapter
    clock, loops = clock or SystemClock(), PluginLoops()
    given = PluginPlatform("post", "Post", factory, plugin="plug")
    return ForeignPlatform(given, {"a": 1}, PluginCalls(clock, loops=loops), loops, clock)


def part(text: str) -> OutboxPart:
    return OutboxPart(1, 1, 0, "sending", {"text": text})


class Running:
    """A platform that runs until the block is left."""

    def __init__(self, one: ForeignPlatform, intake: Any) -> None:
        self.one = one
        self.intake = intake
        self.reports: list[tuple[PlatformState, str]] = []

    async def __aenter__(self) -> Running:
        self.task = asyncio.create_task(
            self.one.run(self.intake, lambda state, why: self.reports.append((state, why)))
        )
        return self

    async def until(self, it_is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while True:
                if it_is_so():
                    return
                await asyncio.sleep(0.005)

    async def __aexit__(self, *_: Any) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.one.close()


async def test_a_message_comes_in_and_an_answer_goes_out() -> None:
    adapter, intake = Adapter(), Taking()
    async with Running(platform(adapter), intake) as running:
        await running.until(lambda: adapter.given is not None)
        (message,) = intake.taken
        assert (message.platform, message.bot_id, message.text) == ("post", "post", "hello")
        assert intake.threads == {threading.current_thread().name}
        # Told by way of two loops: behind the message, as it may be.
        await running.until(lambda: running.reports[-1:] == [(PlatformState.RUNNING, "")])
        assert await running.one.send(ADDRESS, part("hi")) == "m1"
        assert await running.one.send(ADDRESS, part("hi"), repeat=True) == "m2"
        assert adapter.sent[0] == ("room", "hi")
        assert adapter.sent[1][1].endswith(" hi")
        assert len(adapter.sent[1][1]) > 3
    assert adapter.closed


async def test_long_answers_are_split_as_its_limit_wants() -> None:
    one = platform(Adapter())
    async with Running(one, Taking()) as running:
        await running.until(lambda: bool(running.reports))
        parts = one.render(OutboxDraft(ADDRESS, "word " * 300, "reply"))
        assert len(parts) > 4
        assert all(len(p.payload["text"]) <= 200 for p in parts)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (NotSent("later"), SendUnavailable),
        (NeverSendable("blocked"), SendRefused),
        (RuntimeError("?"), SendUnknown),
    ],
)
async def test_what_a_send_raises(raised: Exception, expected: type[Exception]) -> None:
    adapter = Adapter()
    async with Running(platform(adapter), Taking()) as running:
        await running.until(lambda: adapter.given is not None)
        adapter.outcome = raised
        with pytest.raises(expected):
            await running.one.send(ADDRESS, part("hi"))


async def test_before_it_runs_nothing_is_sent() -> None:
    with pytest.raises(SendUnavailable):
        await platform(Adapter()).send(ADDRESS, part("hi"))


async def test_a_message_that_is_not_stored_is_not_forgotten() -> None:
    adapter = Adapter()
    async with Running(platform(adapter), Taking(StoreUnavailable("full"))) as running:
        await running.until(lambda: adapter.given is not None)
        assert isinstance(adapter.given, NotTaken)


async def test_one_that_blocks_its_loop_is_degraded_and_can_be_stopped() -> None:
    adapter, clock, free = Adapter(), FakeClock(), threading.Event()

    async def blocks(door: Any) -> None:
        free.wait()

    adapter.script = blocks
    async with Running(platform(adapter, clock), Taking()) as running:
        # Were our loop held up by its own, nobody would ever set it free.
        async with asyncio.timeout(60):
            while not any(state is PlatformState.DEGRADED for state, _ in running.reports):
                await asyncio.sleep(0.002)
                await clock.advance(1)
        sending = asyncio.create_task(running.one.send(ADDRESS, part("hi")))
        while not sending.done():
            await asyncio.sleep(0.001)
            await clock.advance(1)
        assert isinstance(sending.exception(), SendUnknown)
        running.task.cancel()
        await asyncio.wait({running.task}, timeout=60)
        assert running.task.cancelled()
        free.set()


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (WrongSettings("no token"), PlatformConfigError),
        (RuntimeError("lost"), PlatformUnavailable),
        (SystemExit(), PlatformUnavailable),
        (None, PlatformUnavailable),
    ],
)
async def test_how_it_ends(problem: BaseException | None, expected: type[Exception]) -> None:
    class Ends(Adapter):
        async def run(self, door: Any) -> None:
            if problem is not None:
                raise problem

    with pytest.raises(expected):
        await platform(Ends()).run(Taking(), lambda state, why: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [lambda settings: object(), lambda settings: 1 / 0, lambda: 0])
async def test_a_factory_that_makes_none(made: Any) -> None:
    with pytest.raises(PlatformUnavailable):
        await platform(made).run(Taking(), lambda state, why: None)  # type: ignore[arg-type]


async def test_a_factory_says_what_is_wrong_with_its_settings() -> None:
    def made(settings: Any) -> None:
        raise WrongSettings(f"a is {settings['a']}")

    with pytest.raises(PlatformConfigError, match="a is 1"):
        await platform(made).run(Taking(), lambda state, why: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"message_id": ""},
        {"sender_id": 7},
        {"chat_id": "x" * 201},
        {"text": None},
        {"thread_id": 3},
    ],
)
def test_what_is_no_message(changes: dict[str, Any]) -> None:
    fields = {"message_id": "1", "chat_id": "c", "sender_id": "7", "text": "x", "direct": True}
    with pytest.raises(ValueError, match="must be text"):
        inbound_of(ChatMessage(**{**fields, **changes}), "post", 1.0)


def test_in_a_group_only_what_is_addressed_is_for_the_bot() -> None:
    group = ChatMessage("1", "c", "7", "x", direct=False, addressed=False, from_bot=True)
    message = inbound_of(group, "post", 5.0)
    assert (message.chat_kind, message.addressed, message.sender_is_bot) == ("group", False, True)
    assert message.sent_at == 5.0


def policies(entry: Any) -> Any:
    collected = Collected(
        platforms=[PluginPlatform("post", "Post", lambda settings: None, plugin="plug")]
    )
    found = Found("plug", Source.USER, Role.GENERAL, Manifest(name="plug"))
    manager = PluginManager([PluginRecord(found, PluginState.LOADED, collected=collected)])
    settings = PluginSettings(entries={"plug": entry})
    clock, loops = FakeClock(), PluginLoops()
    return foreign_platforms(manager, settings, PluginCalls(clock), loops, clock)


def test_nobody_may_talk_until_the_operator_says_so() -> None:
    assert policies({}).policies["post"].access.lets_nobody_in
    some = policies(
        {"allow_from": [7], "admins": ["7"], "settings": {}, "user_allowed_commands": ["/X"]}
    )
    assert some.policies["post"].access.allow_from == {"7"}
    assert some.policies["post"].access.admins == {"7"}
    assert some.policies["post"].commands.direct.allowed == {"x"}


def test_a_broken_list_lets_nobody_in_and_is_said() -> None:
    broken = policies({"allow_from": {"a": 1}})
    assert broken.policies["post"].access.lets_nobody_in
    assert broken.troubles[0].startswith("plugins.entries.plug.allow_from: ")
