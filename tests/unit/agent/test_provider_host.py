"""A memory provider of others, called: in order, in time, and nothing lost in silence."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.compaction.host.foreign_lists import as_text
from agent.daemon_threads import DaemonThreads
from agent.memory.provider_host import MAX_WAITING, ProviderHost, ProviderTrouble
from tests.fakes.recording_provider import Idle, Old


class Slow(Idle):
    """Waits for its gate in every turn that it is told of."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.heard: list[str] = []

    def sync_turn(self, user_content: str, assistant_content: str, **more: Any) -> None:
        self.gate.wait(10)
        self.heard.append(user_content)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        self.heard.append(query)
        return f"about {query}"


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def host(slow: Slow) -> ProviderHost:
    return ProviderHost(slow, "slow", DaemonThreads(2), SystemClock())


async def test_what_is_asked_waits_for_what_was_told(host: ProviderHost, slow: Slow) -> None:
    host.tell("sync_turn", "one", "a")
    with pytest.raises(ProviderTrouble, match="within"):
        await host.ask("prefetch", "two", seconds=0.05)
    slow.gate.set()
    assert await host.ask("prefetch", "three", seconds=5) == "about three"
    assert slow.heard == ["one", "three"]  # nobody waited for "two" any more


async def test_more_than_the_queue_holds_is_lost_aloud(
    host: ProviderHost, slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    host.tell("sync_turn", "first", "a")
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        for n in range(MAX_WAITING + 3):
            host.tell("sync_turn", str(n), "a")
    assert host.lost == 3
    assert caplog.text.count("a call is lost") == 3
    slow.gate.set()
    assert await host.quiet(5)
    assert slow.heard == ["first", *map(str, range(MAX_WAITING))]


async def test_while_a_call_is_overdue_nobody_waits(host: ProviderHost, slow: Slow) -> None:
    slow.heard.clear()

    def hang(query: str, **more: Any) -> str:
        slow.gate.wait(60)
        return "late"

    slow.prefetch = hang  # type: ignore[method-assign]
    with pytest.raises(ProviderTrouble, match="within"):
        await host.ask("prefetch", "one", seconds=0.5)
    async with asyncio.timeout(20):
        while not host.is_late:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    with pytest.raises(ProviderTrouble, match="still busy"):
        await host.ask("prefetch", "two", seconds=60)
    assert not await host.quiet(0.01)
    slow.gate.set()
    assert await host.quiet(5)
    assert not host.is_late


async def test_what_it_does_not_do_is_not_called_and_what_it_lacks_is_left_out() -> None:
    host = ProviderHost(Idle(), "idle", DaemonThreads(1), SystemClock())
    host.tell("sync_turn", "one", "a")
    assert await host.quiet(0)
    assert not host.has("prefetch")
    old = ProviderHost(Old(), "old", DaemonThreads(1), SystemClock())
    assert not old.takes("sync_turn", "messages")
    assert await old.ask("prefetch", "x", session_id="s", seconds=5) == "old facts"


async def test_what_it_is_given_is_its_own_to_change() -> None:
    class Vandal(Idle):
        def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
            messages[0]["tool_calls"][0]["function"]["name"] = "vandalised"
            return str(len(messages))

        def on_memory_write(
            self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
        ) -> None:
            assert metadata is not None
            metadata["note"].clear()

    ours = [{"role": "assistant", "tool_calls": [{"function": {"name": "recall"}}]}]
    note = {"n": 1}
    host = ProviderHost(Vandal(), "vandal", DaemonThreads(1), SystemClock())
    assert await host.ask("on_pre_compress", ours, seconds=5) == "1"
    assert ours[0]["tool_calls"][0]["function"]["name"] == "recall"  # type: ignore[index]
    await host.ask("on_memory_write", "add", "memory", "x", metadata={"note": note}, seconds=5)
    assert note == {"n": 1}


async def test_what_it_takes_is_found_out_without_its_code() -> None:
    class Telling(Idle):
        @property
        def sync_turn(self) -> Any:  # type: ignore[override]
            raise AssertionError("its code runs on its own threads only")

    host = ProviderHost(Telling(), "telling", DaemonThreads(1), SystemClock())
    assert not host.takes("sync_turn", "messages")


async def test_what_is_made_of_what_it_gives_is_made_on_its_thread(
    host: ProviderHost, slow: Slow
) -> None:
    class Odd:
        def __repr__(self) -> str:
            assert threading.current_thread() is not threading.main_thread()
            return "odd"

    slow.prefetch = lambda query, **more: Odd()  # type: ignore[assignment, method-assign, return-value]
    assert await host.ask("prefetch", "x", seconds=5, then=as_text) == '"odd"'
