"""A process that does not come on is ended with its stacks in the journal, and started again."""

from __future__ import annotations

import asyncio

import pytest

from tests.systemd.service import PYTHON_THERE, SOON, UNIT, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

IMPATIENT = SOON + "WatchdogSec=3\n"


async def test_a_frozen_process_in_the_middle_of_a_turn(service: Service) -> None:
    service.drop_in(IMPATIENT)
    await service.start()
    chat = service.chat()
    chat.say("before")
    await service.answered(chat, "reply to: before")
    # Python writes the stacks while other threads go on: one now and then breaks off halfway.
    for tries in range(1, 4):
        frozen = f"frozen {tries}"
        service.world.anthropic.fault_next("hang", text=frozen)
        chat.say(frozen)
        await service.at_work()
        await service.kill("STOP")
        await service.until("NRestarts", str(tries))
        await service.answered(chat, f"reply to: {frozen}")
        await service.until("ActiveState", "active")
        said = await service.words()
        assert said.count("Watchdog timeout (limit 3s)!") == tries
        assert said.count("Fatal Python error: Aborted") == tries
        shown = [text for text in chat.shown() if "reply to:" in text]
        assert len(shown) == 1 + tries
        if "base_events.py" in said:
            break
    assert "gateway/cli/main.py" in said, "the loop's thread"
    assert said.count("(most recent call first)") >= 3, "the writer's and the readers' threads"


async def test_a_platform_that_nothing_brings_back(service: Service) -> None:
    start = f"ExecStart=\nExecStart={PYTHON_THERE} -m tests.systemd.wedged_daemon run\n"
    service.drop_in(IMPATIENT + start + "WorkingDirectory=/opt/posthouse\n")
    await service.start()
    await service.until("NRestarts", "1", 60)
    await service.until("ActiveState", "active")
    said = await service.words()
    assert "platform does not end" in said
    assert "only a new start helps this: the watchdog is not fed" in said
    assert "task=platform-telegram" in said
    report = await service.run("sh", "-c", "cat /var/lib/posthouse/crashes/*.txt")
    assert "what: only a new start helps: telegram" in report
    assert "task platform-telegram: " in report
    assert "cut off" in await service.posthouse("status", check=False)
    chat = service.chat()
    chat.say("and now?")
    await service.answered(chat, "reply to: and now?")


async def test_stacks_are_shown_to_who_asks(service: Service) -> None:
    await service.start()
    pid = await service.main_pid()
    await service.kill("USR2")
    for _ in range(50):
        said = await service.words(f"_SYSTEMD_UNIT={UNIT}")
        if "task=watchdog" in said and "most recent call first" in said:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(said)
    assert await service.main_pid() == pid
