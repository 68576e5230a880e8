"""Engines of plugins that do their worst in a conversation: it goes on, and so do all others."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import engine_host
from tests.fakes.anthropic_server import Answer, AnthropicServer, text
from tests.fakes.engine_house import WINDOW, EngineHouse
from tests.fakes.plugins import clean_modules, write_plugin

LONG = "All work and no play makes a long message. " * 350
ENGINE = """
import sys, threading, time
from agent.context_engine import ContextEngine

class Nasty(ContextEngine):
    name = "nasty"
    def update_model(self, model, context_length, **more):
        self.context_length, self.threshold_tokens = context_length, 8000
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return (prompt_tokens or 0) >= 8000
    def compress(self, messages, **more): return messages
{more}

def register(ctx):
    ctx.register_context_engine(Nasty())
"""


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    for name in ("HERMES_HOME", "LCM_DATABASE_PATH"):
        monkeypatch.setenv(name, "x")
    opened = threading.Event()
    monkeypatch.setattr(sys, "gate_of_nasty", opened, raising=False)
    with clean_modules():
        yield opened
    opened.set()


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    answer = Answer([text("fine")])
    async with AnthropicServer(window=WINDOW, responder=lambda request: answer) as running:
        yield running


def house(tmp_path: Path, server: AnthropicServer, more: str, **settings: Any) -> EngineHouse:
    folder = tmp_path / "home"
    lines = "\n".join(f"    {line}" for line in more.strip().splitlines())
    code = ENGINE.format(more=lines)
    write_plugin(folder / "plugins" / "context_engine", "nasty", code)
    return EngineHouse(folder, server.base_url, "nasty", **settings)


NO_RESULT = {
    "raises": "raise ValueError('no')",
    "leaves": "sys.exit(3)",
    "odd": "raise type('Odd', (BaseException,), {})('x')",
    "stops": "raise StopIteration",
    "none": "return None",
    "empty": "return []",
    "garbage": "return [1, {'role': 'wizard'}]",
    "same": "return messages",
    "changed in place": "messages[0]['content'] = 'mine'; return messages[:0]",
    "not smaller": "return [*messages, {'role': 'user', 'content': 'more ' * 9000}]",
    "a million": "return [{'role': 'user', 'content': 'x'}] * 1_000_000",
    "not to be stored": "return [{'role': 'user', 'content': [{'type': 'text', 'text': {1, 2}}]}]",
    "a field not to be stored": (
        "return [{'role': 'user', 'content': 'S', 'reasoning_details': {1, 2}}, messages[-1]]"
    ),
    "goes on for ever": (
        "L = type('L', (list,), {'__iter__': lambda s: iter(dict, 1), '__len__': lambda s: 1}); "
        "return L(messages)"
    ),
    "our own error": "from agent.errors import EngineError; raise EngineError('x\\n' * 9000)",
    "loops in itself": "x = []; x.append(x); return [{'role': 'user', 'content': [{'a': x}]}]",
}


@pytest.mark.parametrize("body", NO_RESULT.values(), ids=NO_RESULT.keys())
async def test_a_compression_that_is_none_splits_nothing(
    tmp_path: Path, server: AnthropicServer, body: str
) -> None:
    async with house(tmp_path, server, f"def compress(self, messages, **more): {body}") as where:
        await where.say(LONG)
        before = (await where.tip()).session.id
        assert (await where.say(LONG))[0] == "fine"
        assert all(len(said) < 600 for said in where.chat.said["11"])
        after = await where.tip()
        assert after.session.id == before
        said = [r.message["content"] for r in after.rows]
        assert said == [LONG, "fine", LONG, "fine"]


async def test_everything_raises_and_every_property(
    tmp_path: Path, server: AnthropicServer
) -> None:
    more = """
def fails(self, *args, **more): raise SystemExit(1)
should_compress = should_compress_info = on_session_start = on_session_end = fails
update_from_response = on_turn_complete = select_context = on_session_reset = shutdown = fails
pending_compression_operation = prune_tool_results_only = bind_session_state = fails
should_defer_preflight_to_real_usage = get_automatic_compaction_status_message = fails
threshold_tokens = property(fails, lambda self, value: None)
context_length = property(fails, lambda self, value: None)
last_prompt_tokens = property(fails, fails)
compression_count = property(fails)
"""
    async with house(tmp_path, server, more) as where:
        for command in ("hello", "/status", "/context", "/new", "hello again", "/compress"):
            assert await where.say(command)
        assert (await where.say("and now?"))[0] == "fine"


async def test_it_is_called_otherwise_by_now(tmp_path: Path, server: AnthropicServer) -> None:
    more = "def compress(self, messages, **more):\n    type(self).name = '../../etc'; raise OSError"
    async with house(tmp_path, server, more) as where:
        await where.say(LONG)
        said = await where.say("/compress")
        assert "nasty" in said[0]
        assert "etc" not in said[0]


async def test_ten_hang_at_once_and_nobody_else_waits(
    tmp_path: Path,
    server: AnthropicServer,
    monkeypatch: pytest.MonkeyPatch,
    gate: threading.Event,
) -> None:
    patient = engine_host.EngineHost.call.__kwdefaults__
    assert patient is not None
    monkeypatch.setitem(patient, "timeout_seconds", 3600.0)
    more = """
def update_from_response(self, usage):
    global hanging
    hanging += 1
    if hanging <= 10: sys.gate_of_nasty.wait(60)
"""
    where = house(tmp_path, server, more)
    code = tmp_path / "home" / "plugins" / "context_engine" / "nasty" / "__init__.py"
    code.write_text("hanging = 0\n" + code.read_text())
    async with where:
        stuck = [asyncio.ensure_future(where.say("hello", str(n))) for n in range(20, 30)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(until_asked(server, n) for n in range(1, 11)))
            assert await where.say("hello", "11") == ["fine"]
            assert await where.say("/status", "12")
            await asyncio.get_running_loop().getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        assert not any(task.done() for task in stuck)
        assert not where.plugins.troubles()  # each has its engine, and a thread for it
        gate.set()
        await asyncio.gather(*stuck)


async def until_asked(server: AnthropicServer, times: int) -> None:
    while len(server.records.requests) < times:  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.01)


async def test_one_that_hangs_at_the_end_does_not_hold_up_the_exit(
    tmp_path: Path, server: AnthropicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.daemon.CLOSE_SECONDS", 0.2)
    where = house(tmp_path, server, "def shutdown(self): sys.gate_of_nasty.wait(60)")
    async with where:
        await where.say("hello")
    async with asyncio.timeout(20):  # it can be started again at once
        async with where:
            await where.say("hello again")


REFUSED = {
    "the same one": (
        "def clone_for_agent(self): return self\ndef __deepcopy__(self, memo): return self",
        "it gave the same engine",
    ),
    "raises": ("def __deepcopy__(self, memo): raise SystemExit(1)", "SystemExit"),
    "something else": ("def __deepcopy__(self, memo): return 7", "it gave no engine"),
}


@pytest.mark.parametrize(("more", "why"), REFUSED.values(), ids=REFUSED.keys())
async def test_one_that_can_not_be_had_twice_is_refused_aloud(
    tmp_path: Path, server: AnthropicServer, more: str, why: str
) -> None:
    where = house(tmp_path, server, more)
    code = tmp_path / "home" / "plugins" / "context_engine" / "nasty" / "__init__.py"
    once = "ONLY = Nasty()\ndef register(ctx):\n    ctx.register_context_engine(ONLY)"
    text_of = code.read_text()
    code.write_text(text_of[: text_of.index("def register")] + once)
    async with where:
        assert await where.say("hello") == ["fine"]
        status = (await where.say("/status"))[0]
        details = str(where.daemon.status()["details"])
        for shown in (status, details):
            assert "context.engine nasty is not used" in shown
            assert why in shown
            assert "the built-in compressor works in its place" in shown


async def test_one_that_was_taken_from_the_disk_goes_on_until_a_restart(
    tmp_path: Path, server: AnthropicServer
) -> None:
    more = """
def compress(self, messages, **more): return [{'role': 'user', 'content': 'S'}, messages[-1]]
"""
    where = house(tmp_path, server, more)
    async with where:
        await where.say(LONG)
        folder = tmp_path / "home" / "plugins" / "context_engine" / "nasty"
        for path in folder.rglob("*"):
            if path.is_file():
                path.unlink()
        before = (await where.tip()).session.id
        await where.say(LONG)
        assert (await where.tip()).session.id != before
        assert await where.say("another chat", "12") == ["fine"]
    async with where:
        assert await where.say("hello") == ["fine"]
        assert "nasty is not used" in (await where.say("/status"))[0]


async def test_one_that_is_of_no_use_in_one_conversation(
    tmp_path: Path, server: AnthropicServer
) -> None:
    more = """
def update_model(self, model, context_length, **more):
    global told
    told += 1
    if told == 2: raise OSError("the disk is full")
    self.context_length, self.threshold_tokens = context_length, 8000
def shutdown(self):
    global ended
    ended += 1
"""
    where = house(tmp_path, server, more)
    code = tmp_path / "home" / "plugins" / "context_engine" / "nasty" / "__init__.py"
    code.write_text("told = ended = 0\n" + code.read_text())
    async with where:
        for chat in ("11", "12", "13"):
            assert await where.say("hello", chat) == ["fine"]
        status = (await where.say("/status"))[0]
        assert "nasty does not work in every conversation" in status
        assert "failed (OSError); the built-in compressor works in its place" in status
        nasty = sys.modules["plugins.context_engine.nasty"]
        assert nasty.told == 3  # the third one is not given up
        assert nasty.ended == 1  # nobody uses that one
