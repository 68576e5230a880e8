"""An engine is called once at a time, on a daemon thread, and never waited for beyond its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent.context_engine import ContextEngine, sanitize_memory_context
from agent.daemon_threads import DaemonThreads
from agent.engine_host import EngineHost
from agent.errors import EngineError
from agent.keywords import accepted
from tests.fakes.clock import FakeClock


class Slow(ContextEngine):
    """Waits in `compress` until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.threads: set[str] = set()
        self.calls = 0

    @property
    def name(self) -> str:
        return "slow"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.calls += 1
        self.threads.add(threading.current_thread().name)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True

    def compress(self, messages: list[dict[str, Any]], **kwargs: Any) -> list[dict[str, Any]]:
        self.entered.set()
        assert self.go.wait(20)
        return messages


@pytest.fixture
def host(clock: FakeClock) -> EngineHost:
    return EngineHost(Slow(), DaemonThreads(2), clock)


def slow(host: EngineHost) -> Slow:
    assert isinstance(host.engine, Slow)
    return host.engine


async def until(condition: Callable[[], bool]) -> None:
    """What another thread does can only be looked for."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def entered(host: EngineHost, clock: FakeClock) -> None:
    """The engine is at work, and its deadline runs."""
    await until(lambda: slow(host).entered.is_set() and clock.next_wake_seconds is not None)


async def back(host: EngineHost) -> None:
    slow(host).go.set()
    await until(lambda: not host.late)


async def test_a_late_engine_is_refused_without_waiting_until_it_is_back(
    host: EngineHost, clock: FakeClock
) -> None:
    call = asyncio.ensure_future(host.call("compress", [], timeout_seconds=5))
    await entered(host, clock)
    await clock.advance(5)
    with pytest.raises(EngineError, match="did not answer within 5 s"):
        await call
    assert host.late
    with pytest.raises(EngineError, match="still busy"):
        await host.call("should_compress", 5)
    await back(host)
    assert await host.call("should_compress", 5) is True


async def test_a_cancelled_caller_leaves_a_busy_engine(host: EngineHost, clock: FakeClock) -> None:
    call = asyncio.ensure_future(host.call("compress", []))
    await entered(host, clock)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert host.late
    await back(host)
    assert not host.late


async def test_a_second_caller_waits_for_the_first(host: EngineHost, clock: FakeClock) -> None:
    first = asyncio.ensure_future(host.call("compress", ["a"]))
    await entered(host, clock)
    second = asyncio.ensure_future(host.call("should_compress", 1))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    slow(host).go.set()
    assert await first == ["a"]
    assert await second is True


async def test_calls_run_on_daemon_threads_of_our_own(host: EngineHost) -> None:
    for _ in range(5):
        await host.call("update_from_response", {})
    assert all(name.startswith("engine-") for name in slow(host).threads)
    assert all(
        thread.daemon for thread in threading.enumerate() if thread.name.startswith("engine-")
    )


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), StopIteration()])
async def test_whatever_an_engine_raises_is_an_engine_error(
    host: EngineHost, error: BaseException
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(EngineError, match="slow failed"):
        await host.run(fails, "compress", 5)
    assert await host.call("should_compress") is True


async def test_a_call_that_never_began_is_never_run(clock: FakeClock) -> None:
    threads = DaemonThreads(1)
    blocker, waiter = EngineHost(Slow(), threads, clock), EngineHost(Slow(), threads, clock)
    blocking = asyncio.ensure_future(blocker.call("compress", []))
    await entered(blocker, clock)
    waiting = asyncio.ensure_future(waiter.call("update_from_response", {}, timeout_seconds=3))
    await until(lambda: clock.next_wake_seconds == 3)
    await clock.advance(3)
    with pytest.raises(EngineError, match="did not answer"):
        await waiting
    await asyncio.sleep(0)
    slow(blocker).go.set()
    await blocking
    await waiter.call("should_compress")
    assert slow(waiter).calls == 0


async def test_telling_an_engine_never_fails(host: EngineHost) -> None:
    await host.tell("on_session_start", "s_1", boundary_reason="compression")
    await host.tell("no_such_method")  # duck-typed ones may be missing


def test_keywords_are_filtered_by_signature() -> None:
    def old(messages: list[Any], current_tokens: int | None = None) -> None: ...
    def new(messages: list[Any], **rest: Any) -> None: ...

    keywords = {"current_tokens": 1, "force": True}
    assert accepted(old, keywords) == {"current_tokens": 1}
    assert accepted(new, keywords) == keywords


def test_the_contract_has_a_default_for_everything_optional() -> None:
    engine = Slow()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    engine.model_thresholds = {"son": 0.1, "sonnet": 0.2, "p:sonnet": 0.3}
    engine.update_model("sonnet-5", 100_000, provider="p")
    assert engine.threshold_tokens == 30_000
    engine.last_prompt_tokens = -1
    assert engine.get_status()["last_prompt_tokens"] == 0
    assert engine.should_compress_info(5) == (True, None)
    pruned, count = engine.prune_tool_results_only(messages)
    assert pruned is messages
    assert count == 0
    assert engine.select_context(messages) is None
    assert "error" in engine.handle_tool_call("x", {})
    assert sanitize_memory_context(None) == ""
    assert len(sanitize_memory_context("x" * 10_000)) < 5_600


async def test_a_number_of_its_own_kind_is_made_one_on_its_thread(host: EngineHost) -> None:
    class Number:
        def __int__(self) -> int:
            assert threading.current_thread() is not threading.main_thread()
            return 8000

    slow(host).threshold_tokens = Number()  # type: ignore[assignment]
    assert host.threshold_tokens == 0
    await host.call("update_from_response", {})
    assert host.threshold_tokens == 8000
