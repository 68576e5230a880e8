"""/restart: for admins, durable before the end, once however often it comes, told afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import StoreUnavailable
from agent.llm.offline import OfflineModel
from gateway import __version__, texts
from gateway.daemon import CLEAN, RESTART_WANTED
from gateway.intake.access import AccessRules
from gateway.restarting import RestartDesk, is_managed
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import OPEN_TO_111, Rig
from tests.unit.gateway.test_daemon import daemon

BACK = texts.restarted(__version__, 0)


class Life:
    """A daemon that serves, and serves again on the same store."""

    def __init__(self, clock: FakeClock, home: Path) -> None:
        self.clock = clock
        self.platform = FakePlatform(now=clock.monotonic)
        self.rig = Rig(clock, platform=self.platform)
        self.home = home

    async def start(self) -> asyncio.Task[int]:
        self.daemon = daemon(
            self.rig, self.home, [self.platform], OfflineModel(window_tokens=10_000)
        )
        serving = asyncio.create_task(self.daemon.serve())
        await self.rig.settle()
        assert self.daemon.ready
        return serving

    async def again(self) -> asyncio.Task[int]:
        self.rig.loop.scripts.clear()
        self.rig.boot()
        return await self.start()

    async def end(self, serving: asyncio.Task[int], seconds: float = 60.0) -> tuple[int, float]:
        """Its exit code, and how long that took."""
        before = self.clock.monotonic()
        while not serving.done() and self.clock.monotonic() - before < seconds:
            await self.rig.settle()
            await asyncio.sleep(0.01)  # sockets and threads have no fake clock
            if not serving.done():
                await self.clock.advance(0.1)
        return serving.result(), self.clock.monotonic() - before


@pytest.fixture
def life(clock: FakeClock, tmp_path: Path) -> Life:
    return Life(clock, tmp_path)


async def test_it_ends_with_its_own_code_and_says_when_it_is_back(life: Life) -> None:
    serving = await life.start()
    await life.platform.say(inbound("/restart"))
    code, seconds = await life.end(serving)
    assert code == RESTART_WANTED
    assert seconds < 5.0
    assert life.platform.texts() == [texts.RESTARTING]
    serving = await life.again()
    assert life.platform.texts() == [texts.RESTARTING, BACK]
    assert __version__ in BACK
    # What Telegram had not been told that it was taken comes again, in whatever dress.
    await life.platform.say(inbound("/restart"))
    await life.platform.say(inbound("/restart", update_id="77"))
    await life.rig.settle()
    assert not serving.done()
    life.daemon.stop()
    assert (await life.end(serving))[0] == CLEAN
    serving = await life.again()
    assert life.platform.texts() == [texts.RESTARTING, BACK]
    life.daemon.stop()
    await life.end(serving)


async def test_the_command_is_nothing_that_the_drain_waits_for(life: Life) -> None:
    """In the middle of a turn of the same chat: the turn ends first, and it is answered."""
    serving = await life.start()
    gate = asyncio.Event()
    life.rig.hold("slow", gate)
    await life.platform.say(inbound("slow"))
    await life.rig.settle()
    await life.platform.say(inbound("/restart", message_id="2"))
    await life.rig.settle()
    assert not serving.done()
    gate.set()
    code, seconds = await life.end(serving)
    assert (code, seconds < 5.0) == (RESTART_WANTED, True)
    assert life.platform.texts() == [texts.RESTARTING, "re: slow"]


async def test_a_turn_that_outlasts_the_drain_goes_on_afterwards(life: Life) -> None:
    serving = await life.start()
    life.rig.hold("slow", asyncio.Event())
    await life.platform.say(inbound("slow"))
    await life.rig.settle()
    await life.platform.say(inbound("/restart", message_id="2"))
    code, _ = await life.end(serving)
    assert code == RESTART_WANTED
    serving = await life.again()
    shown = life.platform.texts()
    assert shown[0] == texts.RESTARTING
    assert sorted(shown[1:]) == sorted([texts.restarted(__version__, 1), "re: slow"])
    life.daemon.stop()
    await life.end(serving)


async def test_a_stop_on_the_way_down_is_the_later_word(life: Life) -> None:
    serving = await life.start()
    life.rig.hold("slow", asyncio.Event())
    await life.platform.say(inbound("slow"))
    await life.rig.settle()
    await life.platform.say(inbound("/restart", message_id="2"))
    await life.rig.settle()
    life.daemon.stop()
    assert (await life.end(serving))[0] == CLEAN


@pytest.mark.parametrize("kind", ["direct", "group"])
async def test_only_admins_may(clock: FakeClock, kind: Any) -> None:
    rules = AccessRules(
        allow_from=frozenset({"111", "222"}),
        allow_chats=frozenset({"-1"}),
        admins=frozenset({"111"}),
    )
    rig = Rig(clock, policy=replace(OPEN_TO_111, access=rules))
    where = {"chat_kind": kind, "chat_id": "-1" if kind == "group" else "222"}
    await rig.intake.receive(inbound("/restart", sender_id="222", **where))
    await rig.settle()
    assert rig.platform.texts() == [texts.ADMINS_ONLY]
    assert not rig.restarts.wanted
    await rig.intake.receive(inbound("/help", sender_id="222", message_id="2", **where))
    await rig.settle()
    assert "/restart" not in "".join(rig.platform.texts())
    await rig.intake.receive(inbound("/help", message_id="3"))
    await rig.settle()
    assert "/restart" in "".join(rig.platform.texts())


async def test_where_nothing_would_start_it_again_it_stays(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.restarts.possible = False
    await rig.intake.receive(inbound("/restart"))
    await rig.settle()
    assert "".join(rig.platform.texts()) == texts.NOBODY_STARTS_ME_AGAIN
    assert not rig.restarts.wanted
    assert await rig.store.say_restarted("back") == ()


@pytest.mark.parametrize("answered", [False, True])
async def test_killed_around_the_answer(clock: FakeClock, answered: bool) -> None:
    """Whichever side of the commit: the start that follows is the restart, and there is no other"""
    rig = Rig(clock)
    real = rig.store.await_restart
    gone = asyncio.Event()

    async def killed(*arguments: Any) -> Any:
        if answered:
            await real(*arguments)
        gone.set()
        await asyncio.Event().wait()

    rig.store.await_restart = killed
    await rig.intake.receive(inbound("/restart"))
    await gone.wait()
    rig.kill()
    await rig.settle()
    rig.store.await_restart = real
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert not rig.restarts.wanted
    assert rig.platform.texts() == ([texts.RESTARTING, BACK] if answered else [BACK])
    assert await rig.store.open_inbox() == []


async def test_one_that_waited_in_the_downtime_is_answered_by_the_start(clock: FakeClock) -> None:
    """And whoever is no admin is told so, as at any time."""
    rig = Rig(clock, policy=replace(OPEN_TO_111, access=AccessRules(
        allow_from=frozenset({"111", "222"}), admins=frozenset({"111"})
    )))  # fmt: skip
    rig.dispatch.submit = lambda item: None  # type: ignore[method-assign]
    await rig.intake.receive(inbound("/restart"))
    await rig.intake.receive(inbound("/restart", message_id="2"))
    await rig.intake.receive(inbound("/restart", sender_id="222", chat_id="222", message_id="3"))
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert not rig.restarts.wanted
    said = {(sent.address.chat_id, sent.text) for sent in rig.platform.chat}
    assert said == {("111", BACK), ("222", texts.ADMINS_ONLY)}
    assert len(rig.platform.chat) == 2


async def test_a_store_that_takes_nothing_is_no_restart(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def out(*_: Any) -> Any:
        raise StoreUnavailable("disk full")

    rig.store.await_restart = out
    await rig.intake.receive(inbound("/restart"))
    await rig.settle()
    assert rig.platform.texts() == [texts.COMMAND_FAILED]
    assert not rig.restarts.wanted


async def test_a_row_that_was_answered_wants_nothing(clock: FakeClock) -> None:
    rig = Rig(clock)
    await rig.intake.receive(inbound("/restart"))
    await rig.settle()
    assert rig.restarts.wanted
    desk = RestartDesk(rig.store, possible=True)
    (item,) = await rig.store.inbox_items([1])
    await rig.dispatch._host.restarts.ask(item.id, None)  # type: ignore[union-attr,arg-type]
    assert await desk.ask(item.id, None) == ()  # type: ignore[arg-type]
    assert not desk.wanted


@pytest.mark.parametrize(
    ("env", "managed"),
    [
        ({}, False),
        ({"INVOCATION_ID": "a"}, True),
        ({"NOTIFY_SOCKET": "/run/x"}, True),
        ({"INVOCATION_ID": "a", "SYSTEMD_EXEC_PID": "42"}, True),
        # a terminal of a desktop session: the variables are those of the desktop's service
        ({"INVOCATION_ID": "a", "SYSTEMD_EXEC_PID": "41"}, False),
        ({"INVOCATION_ID": "a", "SYSTEMD_EXEC_PID": "x"}, True),
        ({"INVOCATION_ID": "", "NOTIFY_SOCKET": ""}, False),
    ],
)
def test_who_is_looked_after(env: dict[str, str], managed: bool) -> None:
    assert is_managed(env, 42) is managed
