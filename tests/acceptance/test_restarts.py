"""What a start finds: owed answers, cut-off turns, messages that came meanwhile, crash loops."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from gateway import __version__
from gateway.texts import (
    ADMINS_ONLY,
    POSSIBLE_REPEAT,
    RESTARTING,
    restarted,
)
from tests.acceptance.faulty_daemon import RESTART_POINTS
from tests.acceptance.harness import (
    DISCORD_USER,
    MANAGED,
    OTHER_DISCORD_USER,
    OTHER_TELEGRAM_USER,
    TELEGRAM_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    run_command,
    settled,
)
from tests.acceptance.held_daemon import HELD_SECONDS, NAMING, PLACES
from tests.fakes.store_invariants import check_invariants

RECEIPT = "I am still at work on something here."


def without_receipts(shown: list[str]) -> list[str]:
    """What was said, without that somebody has to wait: that depends on the machine."""
    return [text for text in shown if not text.rpartition("\n")[2].startswith(RECEIPT)]


pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_owed_replies_go_first(world: World) -> None:
    """An answer that could not be sent is sent before anything that came later."""
    world.configure()
    daemon = await world.run()
    telegram, discord = TelegramChat(world), DiscordChat(world)
    for chat in (telegram, discord):
        chat.say("zero")
        await answered(chat, "reply to: zero", daemon)
    world.telegram.fault("error", "sendMessage", code=502, text="Bad Gateway", times=None)
    world.discord.fault("503", method="POST", path="/channels/*/messages", times=None)
    for chat in (telegram, discord):
        chat.say("first")
    await eventually(
        lambda: world.database().states("turns").get("done") == 4, 20.0, "answers that are owed"
    )
    world.anthropic.fault_next("hang", times=2, text="second")
    for chat in (telegram, discord):
        chat.say("second")
    await eventually(lambda: world.anthropic.records.in_flight == 2, 10.0, "turns at work")
    for chat in (telegram, discord):
        chat.say("third")
    await eventually(lambda: world.database().states("inbox").get("new") == 2, 10.0, "waiting rows")
    await daemon.kill()

    world.telegram.faults.clear()
    world.discord.clear_faults()
    for chat in (telegram, discord):
        chat.say("fourth")
    daemon = await world.run()
    for chat in (telegram, discord):
        shown = await answered(chat, "reply to: fourth", daemon)
        plain = [text.removeprefix(POSSIBLE_REPEAT).strip() for text in without_receipts(shown)]
        assert plain == [f"reply to: {w}" for w in ("zero", "first", "second", "third", "fourth")]
    await settled(world)
    check_invariants(world.database().path)


async def test_discord_is_read_from_where_it_was(world: World) -> None:
    """Messages of the downtime come from the history, before the live ones, each once."""
    world.configure()
    guild = world.discord.add_guild("guild", owner=OTHER_DISCORD_USER)
    direct = DiscordChat(world)
    channel = DiscordChat(world, OTHER_DISCORD_USER, world.discord.add_channel(guild))
    daemon = await world.run("discord")
    for chat in (direct, channel):
        chat.say("before")
        await answered(chat, "reply to: before", daemon)
    code, _ = await daemon.terminate()
    assert code == 0
    # More than one page of history.
    for n in range(5):
        for chat in (direct, channel):
            chat.say(f"while you were away {n}")
    world.discord.user_says(channel.channel, OTHER_DISCORD_USER, "not to the bot")
    daemon = world.daemon(secrets=world.secrets_for("discord")).start()
    for chat in (direct, channel):
        chat.say("just now")
    await daemon.ready("discord")
    words = ["before", *(f"while you were away {n}" for n in range(5)), "just now"]
    for chat in (direct, channel):
        await answered(chat, "reply to: just now", daemon)
        said = [f"reply to: {w}" for w in words]
        heard = [text.rpartition("\n")[2] for text in without_receipts(chat.shown())]
        assert [h if h.startswith("reply") else f"reply to: {h}" for h in heard] == said


async def test_a_turn_that_always_crashes_is_set_aside(world: World) -> None:
    """After three crashes without progress its chat is told, and the others never wait for it."""
    world.configure()
    poisoned, other = TelegramChat(world), TelegramChat(world, OTHER_TELEGRAM_USER)
    world.anthropic.fault_next("hang", times=1000, text="poison")
    poisoned.say("poison")
    for n in range(3):
        daemon = await world.run("telegram")
        await eventually(
            lambda: world.anthropic.records.in_flight >= 1, 10.0, "the poisoned turn", alive=daemon
        )
        # Others' progress is not this turn's.
        other.say(f"hello {n}")
        await answered(other, f"reply to: hello {n}", daemon)
        await daemon.kill()
        await eventually(lambda: world.anthropic.records.in_flight == 0, 5.0, "the client gone")
    asked = len([r for r in world.anthropic.requests if "poison" in str(r.messages[-1])])
    daemon = await world.run("telegram")
    await eventually(lambda: poisoned.shown() != [], 10.0, "a notice", alive=daemon)
    assert len(poisoned.shown()) == 1
    assert "reply to" not in poisoned.shown()[0]
    world.anthropic.clear_script()
    poisoned.say("something else")
    await answered(poisoned, "something else", daemon)
    again = [r for r in world.anthropic.requests if r.fault == "hang"]
    assert asked == 3
    assert len(again) == 3, "set aside is not tried again"
    assert world.database().states("turns") == {"done": 4, "failed": 1}
    assert world.anthropic.rejected == []


async def test_a_tool_is_not_run_again_by_the_host(world: World) -> None:
    """Killed between a tool call and its result: the model is told so, and decides itself."""
    world.configure()
    chat = TelegramChat(world)
    hits = world.home.parent / "hits"
    daemon = world.daemon(
        launcher=(
            "-m", "tests.acceptance.faulty_daemon", "--point", "before-tool-result-row",
            "--platform", "telegram", "--hits", str(hits), "--armed", str(world.home),
        ),
        config=world.home / "config.yaml",
        secrets=world.secrets_for("telegram"),
    ).start()  # fmt: skip
    chat.say('what time is it? [[tool current_time {"timezone": "Asia/Tokyo"}]]')
    assert await daemon.exited(40.0) == -signal.SIGKILL
    daemon = await world.run("telegram")
    shown = await answered(chat, "tool said", daemon)
    assert "unknown" in shown[-1].lower() or "interrupted" in shown[-1].lower()
    results = world.database().rows("SELECT * FROM messages WHERE role = 'tool'")
    assert [row["kind"] for row in results] == ["stub"]
    assert world.anthropic.rejected == []


async def test_a_second_sigterm_ends_it_at_once(world: World) -> None:
    world.configure(gateway={"drain_seconds": 60})
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    world.anthropic.fault_next("hang", text="a slow one")
    chat.say("a slow one")
    await eventually(lambda: world.anthropic.records.in_flight == 1, 10.0, "the slow turn")
    daemon.process.send_signal(signal.SIGTERM)
    await eventually(lambda: '"stopping"' in daemon.log_text(), 5.0, "the drain", alive=daemon)
    daemon.process.send_signal(signal.SIGTERM)
    assert await daemon.exited(5.0) == 1, "long before the drain is over"
    world.anthropic.release()
    daemon = await world.run("telegram")
    await answered(chat, "reply to: a slow one", daemon)
    assert len(chat.shown()) == 1


@pytest.mark.parametrize("place", PLACES)
async def test_sigterm_in_the_middle_of_the_start(world: World, place: str) -> None:
    """Before there is a daemon as well it is a clean end, at once, and nothing is half done."""
    config = world.configure()
    reached = world.home.parent / "reached"
    daemon = world.daemon(
        launcher=(
            "-m", "tests.acceptance.held_daemon", "--at", place, "--reached", str(reached),
        ),
        config=config,
        secrets=world.secrets_for("telegram"),
    ).start()  # fmt: skip
    await eventually(reached.exists, 20.0, "the place", alive=daemon)
    code, seconds = await daemon.terminate()
    assert code == 0
    assert seconds < HELD_SECONDS / 2
    chat = TelegramChat(world)
    chat.say("and now?")
    daemon = await world.run("telegram")
    await answered(chat, "reply to: and now?", daemon)
    assert world.database().integrity() == "ok"
    check_invariants(world.database().path)


async def test_a_name_that_is_still_looked_up_holds_up_no_end(world: World) -> None:
    config = world.configure()
    reached = world.home.parent / "reached"
    daemon = world.daemon(
        launcher=(
            "-m", "tests.acceptance.held_daemon", "--at", NAMING, "--reached", str(reached),
        ),
        config=config,
        secrets=world.secrets_for("telegram"),
    ).start()  # fmt: skip
    await daemon.ready("telegram")
    assert reached.exists()
    code, _ = await daemon.terminate(10.0)
    assert code == 0


async def test_sigterm_during_start_up(world: World) -> None:
    """At any moment of the start it ends soon, cleanly, and the next start works."""
    world.configure()
    for delay_seconds in (0.2, 0.8, 1.2, 1.6):
        daemon = world.daemon().start()
        await asyncio.sleep(delay_seconds)
        # Before its first line runs, the interpreter has not even read what this is.
        listens = heeds_sigterm(daemon)
        code, _ = await daemon.terminate(10.0)
        assert code == 0 or (code == -signal.SIGTERM and not listens)
    chat = TelegramChat(world)
    chat.say("and now?")
    daemon = await world.run("telegram")
    await answered(chat, "reply to: and now?", daemon)
    assert world.database().integrity() == "ok"


def heeds_sigterm(daemon: Daemon) -> bool:
    """Whether the process has said by now what it does when it is asked to end."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


async def test_sigterm_as_soon_as_it_is_heeded(world: World) -> None:
    world.configure()
    daemon = world.daemon().start()
    await eventually(lambda: heeds_sigterm(daemon), 20.0, "its first lines", alive=daemon)
    code, _ = await daemon.terminate(10.0)
    assert code == 0


async def test_a_database_that_was_moved_away_is_said_and_waited_for(world: World) -> None:
    """Nothing is stored anywhere else meanwhile, and all of it once the file is back."""
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("before")
    await answered(chat, "reply to: before", daemon)
    here, away = world.home / "state.db", world.home / "moved.db"
    here.rename(away)
    told = await run_command(world.home, "status")
    assert "STORE TAKES NOTHING: the database file was moved" in told.stdout
    chat.say("meanwhile")
    await eventually(lambda: "write failed" in daemon.log_text(), 10.0, "a try", alive=daemon)
    assert not here.exists()
    away.rename(here)
    await answered(chat, "reply to: meanwhile", daemon)
    assert "STORE TAKES NOTHING" not in (await run_command(world.home, "status")).stdout
    assert await daemon.terminate() == (0, pytest.approx(0, abs=10))
    check_invariants(world.database().path)


# --- /restart -----------------------------------------------------------------------------------

BACK = restarted(__version__, 0)


async def under_a_manager(world: World, *platforms: str) -> Daemon:
    """The next run, as a service manager would start it."""
    return await world.run(*platforms, secrets={**world.secrets_for(*platforms), **MANAGED})


async def test_restart_from_a_chat(world: World) -> None:
    """Out and back with its own exit code; told once; what comes again is no second restart."""
    world.configure(telegram={"admins": [TELEGRAM_USER]}, discord={"admins": [DISCORD_USER]})
    daemon = await under_a_manager(world, "telegram", "discord")
    chats: list[TelegramChat | DiscordChat] = [TelegramChat(world), DiscordChat(world)]
    other = TelegramChat(world, OTHER_TELEGRAM_USER)
    other.say("/restart")
    await answered(other, ADMINS_ONLY, daemon)
    for chat in chats:
        chat.say("/restart")
        assert await daemon.exited(5.0) == 75
        assert chat.shown() == [RESTARTING]
        daemon = await under_a_manager(world, "telegram", "discord")
        assert await answered(chat, BACK, daemon) == [RESTARTING, BACK]
        # Long enough for whatever would come again to have come.
        chat.say("/whoami")
        await answered(chat, "an admin", daemon)
        assert daemon.exit_code is None
        assert len(chat.shown()) == 3
    code, _ = await daemon.terminate()
    assert code == 0
    daemon = await under_a_manager(world, "telegram", "discord")
    for chat in chats:
        chat.say("hello")
        await answered(chat, "reply to: hello", daemon)
        assert len(chat.shown()) == 4
    await settled(world)


async def test_restart_without_anybody_who_would_start_it(world: World) -> None:
    world.configure(telegram={"admins": [TELEGRAM_USER]})
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("/restart")
    assert len(await answered(chat, "nothing would start me again", daemon)) == 1
    chat.say("hello")
    await answered(chat, "reply to: hello", daemon)


async def test_restart_in_the_middle_of_turns(world: World) -> None:
    """The turn in the same chat outlasts the drain: it goes on afterwards, and the news says so."""
    world.configure(telegram={"admins": [TELEGRAM_USER]}, gateway={"drain_seconds": 1})
    daemon = await under_a_manager(world, "telegram")
    chat, other = TelegramChat(world), TelegramChat(world, OTHER_TELEGRAM_USER)
    world.anthropic.fault_next("hang", times=2, text="slow")
    for one in (chat, other):
        one.say("slow")
    await eventually(lambda: world.anthropic.records.in_flight == 2, 10.0, "turns at work")
    chat.say("/restart")
    assert await daemon.exited(10.0) == 75
    world.anthropic.clear_script()
    world.anthropic.release()
    daemon = await under_a_manager(world, "telegram")
    for one in (chat, other):
        await answered(one, "reply to: slow", daemon)
    await answered(chat, "I am back", daemon)
    news = restarted(__version__, 2)
    assert sorted(chat.shown()) == sorted([RESTARTING, news, "reply to: slow"])
    assert other.shown() == ["reply to: slow"]
    await settled(world)


@pytest.mark.parametrize("platform", ["telegram", "discord"])
@pytest.mark.parametrize("point", RESTART_POINTS)
async def test_killed_around_a_restart(world: World, platform: str, point: str) -> None:
    """Right behind either commit: one restart, and the news once."""
    config = world.configure(
        telegram={"admins": [TELEGRAM_USER]}, discord={"admins": [DISCORD_USER]}
    )
    chat = TelegramChat(world) if platform == "telegram" else DiscordChat(world)
    daemon = await under_a_manager(world, platform)
    chat.say("hello")
    await answered(chat, "reply to: hello", daemon)
    if point == "after-news-commit":
        chat.say("/restart")
        assert await daemon.exited(10.0) == 75
    else:
        await daemon.kill()
        chat.say("/restart")
    hits = world.home.parent / "hits"
    daemon = world.daemon(
        launcher=(
            "-m", "tests.acceptance.faulty_daemon", "--point", point, "--platform", platform,
            "--hits", str(hits), "--armed", str(world.home),
        ),
        config=config,
        secrets={**world.secrets_for(platform), **MANAGED},
    ).start()  # fmt: skip
    assert await daemon.exited(40.0) == -signal.SIGKILL
    assert hits.exists()
    daemon = await under_a_manager(world, platform)
    await answered(chat, BACK, daemon)
    chat.say("and now?")
    await answered(chat, "reply to: and now?", daemon)
    assert daemon.exit_code is None
    assert chat.shown().count(BACK) == 1
    assert chat.shown().count(RESTARTING) == 1
    await settled(world)
    check_invariants(world.database().path)
