"""The daemon killed while code of others runs: in a compression, a memory, beside our own notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.texts import POSSIBLE_REPEAT
from tests.acceptance.harness import Daemon, TelegramChat, World, settled
from tests.fakes.plugins import write_plugin
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

KILLS = """
import os, signal

def once(name):
    flag = os.environ["HERMES_HOME"] + "/killed-" + name
    if not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""
ENGINE = f"""{KILLS}
from agent.context_engine import ContextEngine

class Engine(ContextEngine):
    name = "deadly"
    threshold_tokens = 3000
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return (prompt_tokens or 0) >= 3000
    def compress(self, messages, **more):
        once("compress")
        return [{{"role": "user", "content": "[what was said before]"}}, *messages[-2:]]

def register(ctx):
    ctx.register_context_engine(Engine())
"""
PROVIDER = f"""{KILLS}
from agent.memory_provider import MemoryProvider

class Provider(MemoryProvider):
    name = "mortal"
    def is_available(self): return True
    def initialize(self, session_id, **more): once("initialize")
    def get_tool_schemas(self): return []
    def prefetch(self, query, **more): once("prefetch"); return ""
    def sync_turn(self, user, assistant, **more): once("sync_turn")
    def on_memory_write(self, *args, **more): once("on_memory_write")

def register(ctx):
    ctx.register_memory_provider(Provider())
"""


async def kept_running(world: World, daemon: Daemon, until: Callable[[], bool]) -> Daemon:
    """As by a service manager: started anew whenever it is gone, until something is so."""
    async with asyncio.timeout(90):
        while not until():
            if daemon.exit_code is not None:
                check_invariants(world.database().path)
                daemon = world.daemon(secrets=world.secrets_for("telegram")).start()
            await asyncio.sleep(0.05)
    return daemon


async def test_killed_in_every_place_and_each_message_is_answered_once(world: World) -> None:
    write_plugin(world.home / "plugins" / "context_engine", "deadly", ENGINE)
    write_plugin(world.home / "plugins" / "memory", "mortal", PROVIDER)
    world.configure(context={"engine": "deadly"}, memory={"provider": "mortal"})
    chat = TelegramChat(world)

    def killed_in() -> list[str]:
        there = sorted((world.home / "hermes").glob("killed-*"))
        return [path.name.removeprefix("killed-") for path in there]

    def says(part: str) -> bool:
        return any(part in text for text in chat.shown())

    daemon = await world.run("telegram")
    chat.say("hello")
    places = ["initialize", "prefetch", "sync_turn"]
    daemon = await kept_running(
        world, daemon, lambda: says("reply to: hello") and killed_in() == places
    )
    chat.say('[[tool remember {"text": "likes tea"}]]')
    daemon = await kept_running(
        world, daemon, lambda: says("tool said:") and "on_memory_write" in killed_in()
    )
    chat.say("/memory")
    daemon = await kept_running(world, daemon, lambda: says("What I remember here (1 note)"))
    for number in range(6):
        before = len(chat.shown())
        chat.say(f"{number}: {'the quartz lighthouse stands in the fog ' * 80}")
        daemon = await kept_running(world, daemon, lambda n=before: len(chat.shown()) > n)  # type: ignore[misc]
    assert sorted(killed_in()) == sorted([*places, "on_memory_write", "compress"])
    await settled(world)
    assert sum(len(chain) - 1 for chain in world.database().chains().values()) >= 1
    # Killed in the middle of a send, Telegram may show an answer again: marked, never silently.
    shown = chat.shown()
    repeats = [text for text in shown if text.removeprefix(f"{POSSIBLE_REPEAT}\n") in shown]
    assert len(shown) - sum(text.startswith(POSSIBLE_REPEAT) for text in repeats) == 9
    assert set(world.database().states("outbox")) == {"sent"}
    code, _ = await daemon.terminate()
    assert code == 0
    check_invariants(world.database().path)
