"""SIGHUP and `posthouse config reload` on a running daemon: what changes, what a bad file does."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.acceptance.harness import (
    OTHER_TELEGRAM_USER,
    TELEGRAM_USER,
    Daemon,
    TelegramChat,
    World,
    answered,
    eventually,
    run_command,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

BAD_CONFIG = 78
REFUSED = "CONFIGURATION REFUSED"


async def reloaded(daemon: Daemon, times: int) -> None:
    await eventually(
        lambda: daemon.log_text().count('"configuration reloaded"') >= times,
        20.0,
        f"reload {times}",
        alive=daemon,
    )


def details(daemon: Daemon) -> dict[str, str]:
    status = daemon.status()
    assert status is not None
    return dict(status["details"])


async def test_who_may_talk_changes_at_once_and_nobody_else_notices(world: World) -> None:
    world.configure(telegram={"allow_from": [TELEGRAM_USER]})
    daemon = await world.run("telegram")
    ada, bob = TelegramChat(world), TelegramChat(world, OTHER_TELEGRAM_USER)
    ada.say("one")
    await answered(ada, "reply to: one", daemon)
    bob.say("let me in")

    world.configure(telegram={"allow_from": [OTHER_TELEGRAM_USER]}, model={"name": "claude-other"})
    daemon.process.send_signal(signal.SIGHUP)
    await reloaded(daemon, 1)
    bob.say("two")
    await answered(bob, "reply to: two", daemon)
    asked = len(world.anthropic.main_requests)
    ada.say("three")
    bob.say("four")
    await answered(bob, "reply to: four", daemon)
    assert not any("three" in text for text in ada.shown())
    assert len(world.anthropic.main_requests) == asked + 1
    (line,) = [x for x in daemon.log_lines() if x["message"] == "configuration reloaded"]
    assert line["changed"] == "telegram.allow_from"
    assert line["waits_for_a_restart"] == "model.name"
    assert details(daemon)["waits for a restart"] == "model.name"
    said = [x for x in daemon.log_lines() if x["message"] == "who may talk"]
    # At the start of both, and when it changed.
    assert [x["platform"] for x in said] == ["telegram", "console", "telegram"]
    code, _ = await daemon.terminate()
    assert code == 0


async def test_a_bad_file_keeps_the_last_good_one_and_is_seen(world: World) -> None:
    path = world.configure()
    good = path.read_text(encoding="utf-8")
    daemon = await world.run("telegram")
    chat = TelegramChat(world)

    path.write_text("telegram:\n  allow_frm: [1]\n", encoding="utf-8")
    daemon.process.send_signal(signal.SIGHUP)
    await eventually(lambda: REFUSED in details(daemon), 20.0, "the refusal", alive=daemon)
    assert f"{path}:2:3: telegram.allow_frm: unknown key" in details(daemon)[REFUSED]
    (line,) = [x for x in daemon.log_lines() if "was not reloaded" in x["message"]]
    assert line["level"] == "ERROR"
    chat.say("still there?")
    await answered(chat, "reply to: still there?", daemon)

    result = await run_command(world.home, "config", "reload", secrets=world.secrets)
    assert result.returncode == BAD_CONFIG
    assert "did you mean telegram.allow_from?" in result.stdout
    assert "nothing was changed" in result.stdout

    path.write_text("", encoding="utf-8")
    result = await run_command(world.home, "config", "reload", secrets=world.secrets)
    assert result.returncode == BAD_CONFIG
    assert "is empty or gone" in result.stdout

    path.write_text(good, encoding="utf-8")
    result = await run_command(world.home, "config", "reload", secrets=world.secrets)
    assert (result.returncode, result.stdout.strip()) == (0, "nothing has changed")
    assert REFUSED not in details(daemon)
    chat.say("and now?")
    await answered(chat, "reply to: and now?", daemon)


async def test_another_prompt_counts_from_the_next_turn_on(world: World, tmp_path: Path) -> None:
    world.configure(agent={"system_prompt": "You are a lighthouse."})
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("one")
    await answered(chat, "reply to: one", daemon)

    world.configure(
        agent={"system_prompt": "You are a ferry."}, compression={"threshold": 0.4}, budget={}
    )
    result = await run_command(world.home, "config", "reload", secrets=world.secrets)
    assert set(result.stdout.splitlines()) == {
        "in force now: agent.system_prompt",
        "in force now: compression.threshold",
    }
    chat.say("two")
    await answered(chat, "reply to: two", daemon)
    first, last = world.anthropic.main_requests[0], world.anthropic.requests[-1]
    assert "lighthouse" in str((first.body or {})["system"])
    assert "ferry" in str((last.body or {})["system"])
    assert "one" in str((last.body or {})["messages"])


async def test_a_signal_before_and_after_the_daemon_is_no_end(world: World) -> None:
    """A death by SIGHUP is a wanted end to the service manager: nobody would start it again."""
    world.configure()
    daemon = world.daemon(secrets=world.secrets_for("telegram")).start()
    lock = world.home / "posthouse.lock"
    await eventually(lock.exists, 20.0, "the beginning of a start", alive=daemon)
    daemon.process.send_signal(signal.SIGHUP)
    await daemon.ready("telegram")
    await reloaded(daemon, 1)
    daemon.process.send_signal(signal.SIGTERM)
    while daemon.exit_code is None:
        daemon.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.002)
    assert daemon.exit_code == 0
