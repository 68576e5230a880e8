"""What Discord has beside messages, with the real SDK: the menu, interactions, buttons, files."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.errors import StoreUnavailable
from agent.mail import Address, Button, OutboxDraft, OutboxPart, PartDraft
from gateway import texts
from gateway.commands.menu import MenuEntry, entries
from gateway.commands.registry import COMMANDS
from gateway.platforms.contract import (
    UNREADABLE_TRIES,
    ChatGone,
    EditRefused,
    PlatformState,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.discord.adapter import DiscordPlatform
from gateway.platforms.discord.native.menu import MISSING_SCOPE, NOT_YET, REFUSED, payload_of
from gateway.platforms.discord.native.pressed import parse_key
from gateway.platforms.discord.out.outgoing import GUARDED_TRIES
from gateway.platforms.discord.out.parcels import EPHEMERAL, MAX_FILES, SUPPRESS_EMBEDS
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.discord_server import Channel, DiscordServer, Guild, Message, User, discord_py_at
from tests.fakes.discord_server.interactions import (
    ANSWER,
    CHOICES,
    DEFER_ANSWER,
    DEFER_UPDATE,
    Interaction,
)
from tests.fakes.intake import RecordingIntake
from tests.integration.discord_rig import TOKEN, HurriedClock, address, running, settings
from tests.integration.test_telegram_native import Kept

ALLOW = Button("Approve", "/approve 2abcde")
DENY = Button("Deny", "/deny 2abcde")
SHOW = Button("Show all", "/approve 2abcde show")
MENU = entries(COMMANDS)
MB = 1 << 20


class Hands(HurriedClock):
    """Remembers what was waited for, and by so much it is later then."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        return super().now() + sum(self.waits)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await super().sleep(seconds)


class ServerClock:
    """The server's time; a test may let it jump."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture(autouse=True)
def addresses_put_back() -> Iterator[None]:
    """The SDK's addresses are process-wide."""
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        yield


@pytest.fixture
def now() -> ServerClock:
    return ServerClock()


@pytest.fixture
async def server(now: ServerClock) -> AsyncIterator[DiscordServer]:
    async with DiscordServer(TOKEN, clock=now) as running_server:
        yield running_server


@pytest.fixture
def alice(server: DiscordServer) -> User:
    return server.add_user("alice")


@pytest.fixture
def bob(server: DiscordServer) -> User:
    return server.add_user("bob")


@pytest.fixture
def guild(server: DiscordServer) -> Guild:
    return server.add_guild()


@pytest.fixture
def channel(server: DiscordServer, guild: Guild) -> Channel:
    return server.add_channel(guild)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock(), SequentialIds())


@pytest.fixture
def intake() -> RecordingIntake:
    return RecordingIntake()


def made(
    server: DiscordServer,
    kept: Kept | None = None,
    store: MemoryStore | None = None,
    *,
    menu: tuple[MenuEntry, ...] = MENU,
    clock: SystemClock | None = None,
) -> DiscordPlatform:
    return DiscordPlatform(
        settings(server),
        clock or Hands(),
        nonce_scope="db1",
        attachments=kept,
        menu=menu,
        remembered=store,
    )


@pytest.fixture
async def bot(
    server: DiscordServer, kept: Kept, intake: RecordingIntake
) -> AsyncIterator[DiscordPlatform]:
    """Connected; its menu is nobody's business (nothing is remembered)."""
    platform = made(server, kept)
    async with running(platform, intake):
        yield platform
    await platform.close()


async def deliver(
    bot: DiscordPlatform,
    where: Address,
    text: str,
    *,
    repeat: bool = False,
    id_: int = 1,
    **more: Any,
) -> list[str]:
    sent: list[str] = []
    for n, draft in enumerate(bot.render(OutboxDraft(where, text, **more))):
        follows = sent[-1] if sent else None
        part = OutboxPart(id_ + n, id_, n, "planned", draft.payload, follows_message_id=follows)
        sent.append(await bot.send(where, part, repeat=repeat))
        if (spent := draft.payload.get("spent_buttons")) is not None:  # as delivery does
            await bot.take_buttons(where, spent)
    return sent


async def asked(
    server: DiscordServer,
    intake: RecordingIntake,
    channel: Channel,
    user: User,
    name: str,
    options: dict[str, Any] | None = None,
) -> Interaction:
    """A command of the menu, acknowledged and said."""
    before = len(intake.messages)
    interaction = server.slash(channel, user, name, options, force=True)
    await server.wait_for(lambda: interaction.acked)
    await intake.wait_messages(before + 1)
    return interaction


async def pressed(
    server: DiscordServer, intake: RecordingIntake, message: Message, user: User, command: str
) -> Interaction:
    before = len(intake.messages) + len(intake.doubles)
    interaction = server.click(message, user, command)
    await server.wait_for(lambda: interaction.acked)
    await intake.until(lambda: len(intake.messages) + len(intake.doubles) > before)
    return interaction


def shown_to_one(server: DiscordServer, channel: Channel) -> list[str]:
    """What is seen by nobody but whoever asked."""
    messages = server.world.channel(channel).messages.values()
    return [m.content for m in messages if m.ephemeral and not m.deleted]


def buttons_of(message: Message) -> list[tuple[str, str]]:
    return [
        (button["label"], button["custom_id"])
        for row in message.components
        for button in row["components"]
    ]


async def question(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, **more: Any
) -> Message:
    """A message with buttons, as it stands in the channel."""
    (id_,) = await deliver(
        bot, address(server, channel), "may I?", buttons=(ALLOW, DENY), id_=700, **more
    )
    return server.world.message(int(id_))


# --- the menu -----------------------------------------------------------------------------------


def puts(server: DiscordServer) -> int:
    return len(server.calls_to("PUT", "*/commands"))


async def one_run(
    platform: DiscordPlatform, server: DiscordServer, done: Callable[[], object]
) -> list[str]:
    """Run until that, and a moment longer; the reasons that were reported."""
    async with running(platform, RecordingIntake()) as (reports, _):
        await server.wait_for(done)
        await asyncio.sleep(0.05)  # and nothing more comes of it
    await platform.close()
    return [reason for _, reason in reports.all]


async def test_the_menu_is_set_once_and_again_only_when_it_changed(
    server: DiscordServer, store: MemoryStore
) -> None:
    await one_run(made(server, store=store), server, lambda: puts(server) == 1)
    names = [command["name"] for command in server.commands()]
    assert names == [entry.name for entry in MENU]
    await one_run(made(server, store=store), server, lambda: server.connected)
    assert puts(server) == 1
    changed = made(server, store=store, menu=MENU[:3])
    await one_run(changed, server, lambda: puts(server) == 2)
    assert [command["name"] for command in server.commands()] == names[:3]
    restart = next(c for c in payload_of(MENU) if c["name"] == "restart")
    assert restart["default_member_permissions"] == "0"


def test_what_stands_behind_a_command_reads_as_words() -> None:
    options = {command["name"]: command["options"] for command in payload_of(MENU)}
    (why,) = options["deny"]
    assert (why["name"], why["description"]) == ("id-why", "id, why")
    (setting,) = options["micro"]
    assert [choice["value"] for choice in setting["choices"]] == ["on", "off", "inherit"]
    every = [option for found in options.values() for option in found]
    assert not [o for o in every if set(o["name"] + o["description"]) & set("[]<>|")]


async def test_reconnects_set_no_menu_again(server: DiscordServer, store: MemoryStore) -> None:
    platform = made(server, store=store)
    async with running(platform, RecordingIntake()):
        await server.wait_for(lambda: puts(server) == 1)
        for _ in range(2):
            server.forget_sessions()
            server.kill_sockets()
            await server.wait_connected(False)
            await server.wait_connected()
        await asyncio.sleep(0.1)
    await platform.close()
    assert puts(server) == 1


async def test_any_menu_is_within_what_discord_takes(
    server: DiscordServer, store: MemoryStore
) -> None:
    odd = ("Upper", "white space", "ünï", "x" * 33, "", "a/b")
    menu = (
        *(MenuEntry(name, "no command of Discord's") for name in odd),
        MenuEntry("c-1", "twice"),
        *(MenuEntry(f"c-{n}", "h" * (n * 3), "[" + "|".join("w" * 9) + "]") for n in range(60)),
        *(MenuEntry(f"d-{n}", "ü" * 300, f"<{'some words ' * n}>") for n in range(60)),
        MenuEntry("beyond", "the hundredth"),
    )
    reasons = await one_run(
        made(server, store=store, menu=menu), server, lambda: len(server.commands()) == 100
    )
    assert set(reasons) == {""}


async def test_a_flood_is_waited_for_beside_the_messages_also_over_a_restart(
    server: DiscordServer, store: MemoryStore, channel: Channel, alice: User
) -> None:
    server.fault("429", method="PUT", path="*/commands", retry_after=500)

    class Patient(SystemClock):
        """Only the settling is hurried."""

        async def sleep(self, seconds: float) -> None:
            await super().sleep(0.005 if seconds < 60 else seconds)

    platform = made(server, store=store, clock=Patient())
    intake = RecordingIntake()
    async with running(platform, intake):
        await server.wait_for(lambda: puts(server) == 1)
        server.user_says(channel, alice, "meanwhile", mention_bot=True)
        await intake.until(lambda: "meanwhile" in intake.texts)
    await platform.close()
    fact = json.loads(await store.fact(f"discord.menu.{server.bot.id}") or "{}")
    assert fact["not_before"] > time.time() + 400
    hands = Hands()
    await one_run(made(server, store=store, clock=hands), server, lambda: puts(server) == 2)
    assert any(400 < wait <= 500 for wait in hands.waits)
    assert server.commands()


async def test_servers_that_fail_get_it_later_and_the_state_says_so(
    server: DiscordServer, store: MemoryStore
) -> None:
    server.fault("503", method="PUT", path="*/commands", times=2)
    server.fault("500", method="PUT", path="*/commands")
    hands = Hands()
    platform = made(server, store=store, clock=hands)
    async with running(platform, RecordingIntake()) as (reports, _):
        await server.wait_for(server.commands)
        await asyncio.sleep(0.05)
        assert reports.states[-1] is PlatformState.RUNNING
    await platform.close()
    assert [wait for wait in hands.waits if wait >= 30] == [60.0, 120.0, 240.0]


async def test_a_guard_in_front_of_discord_says_nothing_of_the_menus_scope(
    server: DiscordServer, store: MemoryStore
) -> None:
    server.fault("error", status=403, code=0, method="PUT", path="*/commands", times=1)
    hands = Hands()
    platform = made(server, store=store, clock=hands)
    async with running(platform, RecordingIntake()):
        await server.wait_for(server.commands)
    await platform.close()
    assert [wait for wait in hands.waits if wait >= 30] == [60.0]


async def test_a_missing_scope_is_said_and_looked_for_again(
    server: DiscordServer, store: MemoryStore
) -> None:
    hands = Hands()
    platform = made(server, store=store, clock=hands)
    fault = server.fault(
        "error", status=403, code=50001, method="PUT", path="*/commands", times=None
    )
    async with running(platform, RecordingIntake()) as (reports, _):
        await server.wait_for(lambda: puts(server) == 3)
        server.kill_sockets()
        await reports.wait(PlatformState.DEGRADED)
        assert await reports.wait(PlatformState.RUNNING) == MISSING_SCOPE
        assert [wait for wait in hands.waits if wait > 60][:2] == [3_600.0] * 2
        fault.times = 0
        await server.wait_for(server.commands)
        await asyncio.sleep(0.05)
        server.kill_sockets()
        await reports.wait(PlatformState.DEGRADED)
        assert await reports.wait(PlatformState.RUNNING) == ""
    await platform.close()


@pytest.mark.parametrize(("status", "code", "said"), [(400, 50035, REFUSED), (400, 30032, REFUSED)])
async def test_a_menu_that_is_refused_is_in_nobodys_way_and_said(
    server: DiscordServer, store: MemoryStore, alice: User, status: int, code: int, said: str
) -> None:
    server.fault("error", status=status, code=code, method="PUT", path="*/commands", message="No")
    clock = Hands()
    platform = made(server, store=store, clock=clock)
    intake = RecordingIntake()
    async with running(platform, intake) as (reports, _):
        await server.wait_for(lambda: puts(server) == 1)
        server.user_dms(alice, "hello")
        await intake.until(lambda: "hello" in intake.texts)
        server.kill_sockets()
        await server.wait_connected(False)
        await reports.wait(PlatformState.DEGRADED)
        assert (await reports.wait(PlatformState.RUNNING)).startswith(said)
    await platform.close()
    assert puts(server) == 1
    # What was refused is tried again at the next start.
    assert (await one_run(made(server, store=store), server, server.commands))[-1] == ""


async def test_trouble_with_the_menu_is_said_while_it_lasts(
    server: DiscordServer, store: MemoryStore
) -> None:
    fault = server.fault("503", method="PUT", path="*/commands", times=None)
    platform = made(server, store=store)
    async with running(platform, RecordingIntake()) as (reports, _):
        await server.wait_for(lambda: puts(server) > 3)
        server.kill_sockets()
        await reports.wait(PlatformState.DEGRADED)
        assert await reports.wait(PlatformState.RUNNING) == NOT_YET
        fault.times = 0
        await server.wait_for(server.commands)
        await asyncio.sleep(0.05)
        server.kill_sockets()
        await reports.wait(PlatformState.DEGRADED)
        assert await reports.wait(PlatformState.RUNNING) == ""
    await platform.close()


async def test_what_is_remembered_of_a_menu_may_be_anything(
    server: DiscordServer, store: MemoryStore
) -> None:
    for n, text in enumerate(("[]", "{", '{"not_before": "x"}', '{"not_before": NaN}', "null")):
        await store.set_fact(f"discord.menu.{server.bot.id}", text)
        await one_run(made(server, store=store), server, lambda: puts(server) == n + 1)  # noqa: B023


async def test_a_ban_that_no_clock_could_mean_is_not_waited_for(
    server: DiscordServer, store: MemoryStore
) -> None:
    far = json.dumps({"fingerprint": "", "not_before": time.time() + 1e9})
    await store.set_fact(f"discord.menu.{server.bot.id}", far)
    await one_run(made(server, store=store), server, server.commands)


# --- interactions: acknowledged -----------------------------------------------------------------


async def test_a_command_is_acknowledged_said_and_answered_in_its_place(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    interaction = await asked(server, intake, channel, alice, "title", {"text": "Harbours"})
    (said,) = intake.messages
    assert (said.text, said.sender_id, said.chat_kind) == (
        "/title Harbours",
        str(alice.id),
        "group",
    )
    assert said.addressed
    assert interaction.callbacks[0]["type"] == DEFER_ANSWER
    await deliver(bot, address(server, channel), "Called so.", interaction=said.interaction)
    (shown,) = server.visible(channel)
    assert (shown.id, shown.content) == (interaction.response_id, "Called so.")
    assert shown_to_one(server, channel) == []


@pytest.mark.parametrize("name", ["whoami", "sessions", "status", "help"])
async def test_what_concerns_one_person_is_seen_by_one(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    name: str,
) -> None:
    await asked(server, intake, channel, alice, name)
    long = "\n\n".join(f"part {n} {'x' * 1_500}" for n in range(3))
    await deliver(bot, address(server, channel), long, interaction=intake.messages[0].interaction)
    assert [text[:6] for text in shown_to_one(server, channel)] == ["part 0", "part 1", "part 2"]
    assert server.visible(channel) == []
    # Between two people nobody else is there.
    await asked(server, intake, server.open_dm(alice), alice, name)
    dm = server.open_dm(alice)
    await deliver(bot, address(server, dm), "you", interaction=intake.messages[1].interaction)
    assert server.bot_texts(dm) == ["you"]


async def test_a_store_that_takes_its_time_keeps_nobody_waiting_for_the_sign(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    intake.gate = asyncio.Event()
    first = server.slash(channel, alice, "status", force=True)
    second = server.slash(channel, alice, "new", force=True)
    await server.wait_for(lambda: first.acked and second.acked)
    assert intake.messages == []
    intake.gate.set()
    await intake.wait_messages(2)
    assert intake.texts == ["/status", "/new"]


async def test_a_store_that_is_away_gets_it_later(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    intake.failures = 3
    await asked(server, intake, channel, alice, "status")
    assert intake.events.count("store down") == 3


async def test_stopped_before_the_store_took_it_the_person_is_told(
    server: DiscordServer, intake: RecordingIntake, channel: Channel, alice: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("gateway.platforms.discord.native.pressing.STOP_SECONDS", 0.2)
    intake.gate = asyncio.Event()
    platform = made(server)
    async with running(platform, intake):
        interaction = server.slash(channel, alice, "new", force=True)
        await server.wait_for(lambda: interaction.acked)
        await intake.until(lambda: "waiting /new" in intake.events)
    await platform.close()
    assert server.bot_texts(channel) == [texts.NOT_TAKEN]


async def test_catching_up_with_a_long_absence_keeps_nobody_waiting_for_the_sign(
    server: DiscordServer, intake: RecordingIntake, channel: Channel, alice: User
) -> None:
    seen = server.user_says(channel, alice, "seen", mention_bot=True)
    intake.stored[str(channel.id)] = str(seen.id)
    for n in range(400):
        server.user_says(channel, alice, f"missed {n}", mention_bot=True)
    platform = made(server)
    async with running(platform, intake):
        await intake.wait_messages(5)
        interactions = [server.slash(channel, alice, "status", force=True) for _ in range(5)]
        await server.wait_for(lambda: all(one.acked for one in interactions))
        assert len(intake.messages) < 400
        await intake.wait_messages(405)
    await platform.close()
    assert intake.texts.count("/status") == 5


async def test_what_was_asked_while_the_line_was_down_is_answered(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    server.kill_sockets()
    interaction = server.slash(channel, alice, "status", force=True)  # nobody listens
    await server.wait_for(lambda: interaction.acked)
    await intake.wait_messages(1)
    assert server.gateway.stats.resumes == 1


async def test_what_comes_too_late_for_a_sign_is_done_and_answered_as_a_message(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    now: ServerClock,
    channel: Channel,
    alice: User,
) -> None:
    server.kill_sockets()
    interaction = server.slash(channel, alice, "title", {"text": "x"}, force=True)
    now.ahead = 5.0
    await intake.wait_messages(1)
    assert not interaction.acked
    await deliver(
        bot, address(server, channel), "Done.", interaction=intake.messages[0].interaction
    )
    assert server.bot_texts(channel) == ["Done."]


@pytest.mark.parametrize("fault", ["429", "reset", "503"])
@pytest.mark.parametrize("handled", [False, True])
async def test_a_sign_that_fails_is_given_again_while_there_is_time(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    fault: str,
    handled: bool,
) -> None:
    server.fault(fault, method="POST", path="*/callback", times=2, handled=handled)
    interaction = await asked(server, intake, channel, alice, "title", {"text": "x"})
    assert len(interaction.callbacks) == 1
    await deliver(
        bot, address(server, channel), "Done.", interaction=intake.messages[0].interaction
    )
    assert server.bot_texts(channel) == ["Done."]


async def test_a_sign_that_is_refused_or_flooded_for_long_holds_up_nothing(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    server.fault("429", method="POST", path="*/callback", retry_after=60)
    server.fault("error", status=400, code=50035, method="POST", path="*/callback")
    server.slash(channel, alice, "status", force=True)
    server.slash(channel, alice, "help", force=True)
    await intake.wait_messages(2)
    await server.wait_for(lambda: len(server.calls_to("POST", "*/callback")) == 2)
    for n, said in enumerate(intake.messages):
        await deliver(
            bot, address(server, channel), f"Late {n}.", interaction=said.interaction, id_=n + 1
        )
    assert server.bot_texts(channel) == ["Late 0.", "Late 1."]


async def test_a_stuck_sign_keeps_no_command_waiting_and_its_answer_waits_for_it(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    server.fault("hang", method="POST", path="*/callback")
    stuck = server.slash(channel, alice, "branch", force=True)
    await intake.wait_messages(1)  # /stop is in a hurry
    other = await asked(server, intake, channel, alice, "stop")
    assert other.acked
    assert not stuck.acked
    where, (first, second) = address(server, channel), intake.messages
    await deliver(bot, where, "Stopped.", interaction=second.interaction, id_=1)
    answer = asyncio.create_task(
        deliver(bot, where, "Branched.", interaction=first.interaction, id_=2)
    )
    await asyncio.sleep(0.05)
    assert not answer.done()
    server.clear_faults()
    await answer
    assert stuck.acked
    place = server.world.messages[stuck.response_id or 0]
    assert (place.content, server.bot_texts(channel)) == ("Branched.", ["Stopped.", "Branched."])


async def test_no_number_of_stuck_previews_is_in_the_way_of_a_sign(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    server.fault("hang", method="POST", path="*/messages", times=None)
    where = address(server, channel)
    stuck = [asyncio.create_task(bot.preview(where, "begins", None, n + 1)) for n in range(130)]
    await server.wait_for(lambda: len(server.calls_to("POST", "*/messages")) >= 100)
    await asked(server, intake, channel, alice, "status")
    server.clear_faults()
    await asyncio.gather(*stuck, return_exceptions=True)


async def test_a_command_in_a_thread_is_said_there(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    thread = server.add_thread(channel)
    await asked(server, intake, thread, alice, "status")
    (said,) = intake.messages
    assert (said.chat_id, said.thread_id) == (str(thread.id), str(thread.id))
    assert said.parent_chat_id == str(channel.id)


# --- interactions: answered ---------------------------------------------------------------------


async def test_a_long_answer_fills_in_and_goes_on_in_order(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    await asked(server, intake, channel, alice, "lineage")
    key = parse_key(intake.messages[0].interaction)
    assert key is not None
    assert key.quiet
    public = intake.messages[0].interaction
    assert public is not None
    await asked(server, intake, channel, alice, "branch")
    long = "\n\n".join(f"part {n} {'x' * 1_500}" for n in range(3))
    ids = await deliver(
        bot, address(server, channel), long, interaction=intake.messages[1].interaction
    )
    assert [text[:6] for text in server.bot_texts(channel)] == ["part 0", "part 1", "part 2"]
    assert ids == [str(message.id) for message in server.visible(channel)]


async def test_an_answer_after_the_tokens_life_is_a_message(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    now: ServerClock,
    channel: Channel,
    alice: User,
) -> None:
    await asked(server, intake, channel, alice, "compress")
    await asked(server, intake, channel, alice, "sessions")
    now.ahead = 16 * 60.0
    where = address(server, channel)
    open_, private = (message.interaction for message in intake.messages)
    await deliver(bot, where, "Compressed.", interaction=open_, id_=1)
    long = "secret " * 700
    await deliver(bot, where, long, interaction=private, buttons=(ALLOW,), id_=10)
    assert server.bot_texts(channel)[-2:] == ["Compressed.", texts.PRIVATE_TOO_LATE]
    assert not any("secret" in text for text in server.bot_texts(channel))
    assert server.visible(channel)[-1].components == []


async def test_filling_in_is_repeated_without_a_mark_and_what_follows_is_found(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    await asked(server, intake, channel, alice, "branch")
    where, key = address(server, channel), intake.messages[0].interaction
    words = ["x" * 1_500, "y" * 1_500]
    first, second = bot.render(OutboxDraft(where, "\n\n".join(words), interaction=key))
    part = OutboxPart(1, 1, 0, "planned", first.payload)
    server.fault("503", method="PATCH", path="*/@original", handled=True)
    with pytest.raises(SendUnknown):
        await bot.send(where, part)
    id_ = await bot.send(where, part, repeat=True)
    server.fault("reset", method="POST", path="/webhooks/*", handled=True)
    part = OutboxPart(2, 1, 1, "planned", second.payload, follows_message_id=id_)
    with pytest.raises(SendUnknown):
        await bot.send(where, part)
    await bot.send(where, part, repeat=True)
    assert server.bot_texts(channel) == words


async def test_what_one_person_sees_and_may_stand_there_already_is_marked(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    await asked(server, intake, channel, alice, "status")
    where, key = address(server, channel), intake.messages[0].interaction
    (draft,) = bot.render(OutboxDraft(where, "more", interaction=key))
    await deliver(bot, where, "first", interaction=key)
    again = OutboxPart(2, 1, 1, "unknown", draft.payload)
    await bot.send(where, again, repeat=True)
    assert shown_to_one(server, channel) == ["first", f"{texts.POSSIBLE_REPEAT}\nmore"]


async def test_asking_again_is_a_turn_of_its_own(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    interaction = await asked(server, intake, channel, alice, "retry")
    assert interaction.callbacks[0]["type"] == ANSWER
    assert intake.messages[0].interaction is None
    assert server.bot_texts(channel) == [texts.ASKING_AGAIN]


async def test_a_message_that_is_refused_as_it_is_does_not_leave_its_place(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    """A private answer must not come out in the channel for the sake of a button."""
    await asked(server, intake, channel, alice, "sessions")
    server.fault(
        "error", status=400, code=50035, method="PATCH", path="*/@original",
        message="Invalid Form Body: components[0]",
    )  # fmt: skip
    await deliver(
        bot,
        address(server, channel),
        "Yours: 1, 2",
        interaction=intake.messages[0].interaction,
        buttons=(ALLOW,),
    )
    assert shown_to_one(server, channel) == ["Yours: 1, 2"]
    assert server.visible(channel) == []


# --- interactions: whoever may not, and whatever else comes -------------------------------------


async def test_strangers_are_told_so_where_nobody_else_sees_it(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    bob: User,
) -> None:
    message = await question(server, bot, channel)
    intake.admitted = lambda said: said.sender_id == str(alice.id)
    interactions = [
        server.slash(channel, bob, "status", force=True),
        server.slash(server.open_dm(bob), bob, "approve", {"id": "2abcde"}, force=True),
        server.click(message, bob, ALLOW.command),
    ]
    await server.wait_for(lambda: all(one.acked for one in interactions))
    assert [one.callbacks[0]["type"] for one in interactions] == [ANSWER] * 3
    flags = [one.callbacks[0]["data"]["flags"] for one in interactions]
    assert all(flag & EPHEMERAL for flag in flags)
    assert shown_to_one(server, channel) == [texts.NOT_LET_IN] * 2
    # Who is alone with the bot has knocked, as by a message: with pairing on, a code comes.
    await intake.until(lambda: intake.strangers)
    assert [said.text for said in intake.strangers] == ["/approve 2abcde"]
    await asked(server, intake, channel, alice, "status")
    assert intake.texts == ["/status"]


async def test_whoever_only_the_store_knows_is_answered_quietly(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    bob: User,
) -> None:
    intake.admitted = lambda _: None
    intake.takes = lambda said: said.sender_id == str(alice.id)
    await asked(server, intake, channel, alice, "branch")
    server.slash(channel, bob, "branch", force=True)
    await server.wait_for(lambda: texts.NOT_LET_IN in shown_to_one(server, channel))
    assert server.visible(channel) == []


async def test_a_crowd_of_strangers_costs_no_more_than_some_answers(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    bob: User,
) -> None:
    intake.admitted = lambda said: said.sender_id == str(alice.id)
    server.fault("hang", method="POST", path="*/callback", times=20)
    crowd = [server.slash(channel, bob, "status", force=True) for _ in range(60)]
    await asked(server, intake, channel, alice, "status")
    assert len(server.calls_to("POST", "*/callback")) == 21
    assert not any(one.acked for one in crowd)


async def test_other_kinds_of_interactions_are_answered_and_not_done(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    place = server.world.channel(channel)
    server._ensure_member(place, alice)
    completion = server.interactions._open(4, place, alice, "title", {"name": "title", "type": 1})
    menu_of_users = server.interactions._open(2, place, alice, "x", {"name": "x", "type": 2})
    modal = server.interactions._open(5, place, alice, "x", {"custom_id": "/new"})
    others = (completion, menu_of_users, modal)
    await server.wait_for(lambda: all(one.acked for one in others))
    assert [one.callbacks[0]["type"] for one in others] == [CHOICES, ANSWER, ANSWER]
    assert shown_to_one(server, channel) == [texts.MENU_OUTDATED] * 2
    assert intake.messages == []


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"id": "5", "token": "../../channels/1", "type": 2},
        {"id": "x", "token": "t", "type": 2, "application_id": "1"},
        {"id": "5", "token": "t", "type": 2, "application_id": "1", "data": 5, "member": [1]},
        {"id": "5", "token": "t", "type": "2", "application_id": "1", "user": {"id": "9"}},
        {
            "id": "5", "token": "t", "type": 3, "application_id": "1", "channel_id": "7",
            "user": {"id": "9"}, "message": 3, "data": {"component_type": 2, "custom_id": None},
        },
    ],
    ids=["empty", "path", "id", "shapes", "type", "button"],
)  # fmt: skip
async def test_no_interaction_ends_the_connection(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    payload: dict[str, Any],
) -> None:
    server.dispatch("INTERACTION_CREATE", payload)
    await asked(server, intake, channel, alice, "status")
    assert intake.texts == ["/status"]
    assert server.gateway.stats.resumes == 0


# --- buttons ------------------------------------------------------------------------------------


async def test_buttons_stand_below_the_last_words(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    await deliver(bot, address(server, channel), "x" * 3_000, buttons=(ALLOW, DENY, SHOW))
    above, below = server.visible(channel)
    assert above.components == []
    assert buttons_of(below) == [(b.label, b.command) for b in (ALLOW, DENY, SHOW)]
    (row,) = below.components
    assert [button["style"] for button in row["components"]] == [3, 4, 2]


async def test_any_buttons_are_within_what_discord_takes(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    buttons = (
        Button("", "/a"),
        Button("twice", "/b"),
        Button("twice", "/b"),
        Button("l" * 200, "/c"),
        Button("too long", "/" + "d" * 200),
        Button("\ud800\u202e", "/e"),
        *(Button(str(n), f"/resume {n}") for n in range(40)),
    )
    await deliver(bot, address(server, channel), "which?", buttons=buttons)
    (shown,) = server.visible(channel)
    assert len(buttons_of(shown)) == 25
    assert buttons_of(shown)[0] == ("/a", "/a")


async def test_buttons_that_are_refused_keep_no_words_back(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    server.fault(
        "error", status=400, code=50035, method="POST", path="*/messages",
        message="Invalid Form Body: components.0",
    )  # fmt: skip
    await deliver(bot, address(server, channel), "**which?**", buttons=(ALLOW,))
    (shown,) = server.visible(channel)
    assert (shown.content, shown.components) == ("**which?**", [])


async def test_pressing_says_the_command_once_and_is_acknowledged_in_place(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    message = await question(server, bot, channel)
    interaction = await pressed(server, intake, message, alice, ALLOW.command)
    (said,) = intake.messages
    assert (said.text, said.sender_id) == (ALLOW.command, str(alice.id))
    assert interaction.callbacks[0]["type"] == DEFER_UPDATE
    assert buttons_of(message)  # a press decides nothing by itself
    await deliver(bot, address(server, channel), "I do it.", interaction=said.interaction)
    assert server.bot_texts(channel) == ["may I?", "I do it."]


async def test_an_answer_that_decides_takes_the_buttons_away(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    now: ServerClock,
    channel: Channel,
    alice: User,
) -> None:
    message = await question(server, bot, channel)
    await pressed(server, intake, message, alice, ALLOW.command)
    now.ahead = 20 * 60.0  # also when the answer can not be one to the press any more
    key = intake.messages[0].interaction
    await deliver(bot, address(server, channel), "over", interaction=key, decides=True)
    assert (message.content, message.components) == ("may I?", [])
    assert server.bot_texts(channel) == ["may I?", "over"]


async def test_what_concerns_only_who_pressed_is_seen_by_nobody_else(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    bob: User,
) -> None:
    message = await question(server, bot, channel)
    await pressed(server, intake, message, bob, ALLOW.command)
    key = intake.messages[0].interaction
    await deliver(bot, address(server, channel), "Not yours.", interaction=key, aside=True)
    assert shown_to_one(server, channel) == ["Not yours."]
    assert server.bot_texts(channel) == ["may I?"]
    assert buttons_of(message)


async def test_old_buttons_work_also_of_an_earlier_process(
    server: DiscordServer, now: ServerClock, channel: Channel, alice: User
) -> None:
    before = made(server)
    async with running(before, RecordingIntake()):
        message = await question(server, before, channel)
    await before.close()
    now.ahead = 30 * 24 * 3600.0
    after, intake = made(server), RecordingIntake()
    async with running(after, intake):
        await pressed(server, intake, message, alice, DENY.command)
        key = intake.messages[0].interaction
        await deliver(after, address(server, channel), "over", interaction=key, decides=True)
    await after.close()
    assert message.components == []
    assert server.bot_texts(channel)[-1] == "over"


@pytest.mark.parametrize(
    "custom_id", ["hello", "/", "approve 2abcde", "\u202e/approve", "/../x", " ", "{}"]
)
async def test_what_is_no_command_is_answered_and_not_done(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    custom_id: str,
) -> None:
    message = await question(server, bot, channel)
    message.components[0]["components"][0]["custom_id"] = custom_id
    interaction = server.click(message, alice, custom_id)
    await server.wait_for(lambda: interaction.acked)
    assert shown_to_one(server, channel) == [texts.MENU_OUTDATED]
    assert intake.messages == []


async def test_a_press_that_is_told_twice_is_one(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
) -> None:
    message = await question(server, bot, channel)
    interaction = await pressed(server, intake, message, alice, ALLOW.command)
    event = server.interactions._event(
        interaction, server.world.channel(channel), alice, {"component_type": 2}
    )
    event["data"] = {"custom_id": ALLOW.command, "component_type": 2}
    server.dispatch("INTERACTION_CREATE", event)
    await intake.until(lambda: intake.doubles)
    assert len(intake.messages) == 1


async def test_buttons_are_taken_by_the_number_of_their_message(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    message = await question(server, bot, channel)
    where = address(server, channel)
    await bot.take_buttons(where, str(message.id))
    await bot.take_buttons(where, str(message.id))
    assert (message.content, message.components, message.flags) == ("may I?", [], SUPPRESS_EMBEDS)
    server.user_deletes(message)
    with pytest.raises(EditRefused):
        await bot.take_buttons(where, str(message.id))
    server.fault("429", method="PATCH", path="*/messages/*", retry_after=60)
    with pytest.raises(SendFlood):
        await bot.take_buttons(where, str(message.id))


# --- files --------------------------------------------------------------------------------------


async def test_files_go_in_messages_of_their_own_some_at_a_time(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    names = [kept.put(f"n{n}", b"%d" % n, f"f{n}.txt") for n in range(MAX_FILES + 1)]
    await deliver(bot, address(server, channel), "six", files=tuple(names), buttons=(ALLOW,))
    await deliver(bot, address(server, channel), "", files=(names[0],), id_=90)
    words, first, second, alone = server.visible(channel)
    assert (words.content, words.attachments) == ("six", [])
    assert buttons_of(words)
    assert [file["filename"] for file in first.attachments] == [f"f{n}.txt" for n in range(5)]
    assert [file["filename"] for file in second.attachments] == ["f5.txt"]
    assert [file["filename"] for file in alone.attachments] == ["f0.txt"]


async def test_a_files_name_does_no_harm_and_is_told_where_it_is_another(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    odd = (
        '../../etc/"passwd".txt',
        "Übersicht.pdf",
        "a\r\nb: c.png",
        "",
        "x" * 300 + ".tar",
        "a.b",
    )
    names = [kept.put(f"n{n}", b"x", name) for n, name in enumerate(odd)]
    await deliver(bot, address(server, channel), "", files=tuple(names))
    sent = [name for message in server.sent for name in message.files]
    assert not any(set(name) & set('/\\"\r\n') for name in sent)
    assert sent[1] == "Übersicht.pdf"
    assert sent[4].endswith(".tar")
    assert all(0 < len(name) <= 100 for name in sent)
    told = [
        file.get("description", "")
        for call in server.calls_to("POST", "*/messages")
        for file in call.body["attachments"]
    ]
    assert told[0] == odd[0]
    assert told[1] == odd[1]
    assert told[5] == ""


@pytest.mark.parametrize(
    ("tier", "sent"), [(0, False), (1, False), (2, True), (3, True), (9, False)]
)
async def test_how_large_a_file_may_be_is_what_the_server_pays_for(
    server: DiscordServer, intake: RecordingIntake, alice: User, kept: Kept, tier: int, sent: bool
) -> None:
    guild = server.add_guild()
    guild.premium_tier = tier
    place = server.add_channel(guild)
    thread = server.add_thread(place)
    name = kept.put("n", bytes(11 * MB), "a.bin")
    huge = kept.put("h", b"x", "h.bin", size=60 * MB)
    platform = made(server, kept)
    async with running(platform, intake):
        for n, there in enumerate((place, thread)):
            await deliver(platform, address(server, there), "", files=(name,), id_=n + 1)
            assert bool(server.visible(there)[-1].attachments) is sent
        await deliver(platform, address(server, place), "", files=(huge,), id_=8)
        assert "60.0 MB" in server.bot_texts(place)[-1] or "62.9 MB" in server.bot_texts(place)[-1]
        dm = server.open_dm(alice)
        await deliver(platform, address(server, dm), "here", files=(name,), id_=9)
        assert server.bot_texts(dm)[0] == "here"
        assert "MB" in server.bot_texts(dm)[1]
    await platform.close()


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (None, texts.FILE_NOT_KEPT),
        ({"data": b"", "size": 5}, texts.FILE_NOT_KEPT),
        ({"data": b""}, texts.FILE_EMPTY),
        ({"data": b"x", "size": 51 * MB}, "MB"),
    ],
    ids=["unknown", "gone", "empty", "large"],
)
async def test_a_file_that_can_not_go_is_said_and_keeps_no_other_back(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    kept: Kept,
    put: dict[str, Any] | None,
    why: str,
) -> None:
    if put is not None:
        kept.put("n", file_name="a.bin", **put)
    good = kept.put("g", b"good", "good.txt")
    await deliver(bot, address(server, channel), "here", files=("n", good))
    words, files = server.visible(channel)
    assert words.content == "here"
    assert why in files.content
    assert [file["filename"] for file in files.attachments] == ["good.txt"]


@pytest.mark.parametrize(("status", "code"), [(413, 40005), (413, 0), (400, 40005)])
async def test_files_that_are_too_large_together_go_without_the_largest(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    kept: Kept,
    status: int,
    code: int,
) -> None:
    sizes = {"small.txt": 10, "large.txt": 900, "middle.txt": 100}
    names = tuple(kept.put(name, bytes(size), name) for name, size in sizes.items())
    server.fault("error", status=status, code=code, method="POST", path="*/messages", times=2)
    await deliver(bot, address(server, channel), "", files=names)
    (shown,) = server.visible(channel)
    assert [file["filename"] for file in shown.attachments] == ["small.txt"]
    lost = [texts.file_not_sent(n, texts.FILE_NOT_TAKEN) for n in ("large.txt", "middle.txt")]
    assert shown.content.split("\n") == lost


async def test_files_that_are_refused_are_said_to_be_in_an_interaction_too(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    kept: Kept,
) -> None:
    await asked(server, intake, channel, alice, "sessions")
    name = kept.put("n", b"abc", "Übersicht €.pdf")
    await asked(server, intake, channel, alice, "sessions")
    where, (first, second) = address(server, channel), intake.messages
    await deliver(bot, where, "here", files=(name,), interaction=first.interaction)
    assert server.sent[-1].files == ["Übersicht €.pdf"]
    server.fault("error", status=413, code=40005, method="POST", path="/webhooks/*")
    await deliver(bot, where, "there", files=(name,), interaction=second.interaction, id_=9)
    said = texts.file_not_sent("Übersicht €.pdf", texts.FILE_NOT_TAKEN)
    assert sorted(shown_to_one(server, channel)) == sorted(["here", "", "there", said])
    assert server.visible(channel) == []


async def test_who_may_not_attach_files_there_says_so_and_goes_on(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    server.deny(channel, "attach")
    name = kept.put("n", b"abc", "a.bin")
    await deliver(bot, address(server, channel), "here", files=(name,))
    assert server.bot_texts(channel) == [
        "here",
        texts.file_not_sent("a.bin", texts.FILE_NOT_ALLOWED),
    ]
    server.deny(channel, "send")
    with pytest.raises(ChatGone):
        await deliver(bot, address(server, channel), "here", files=(name,))


@pytest.mark.parametrize("code", [0, 40333])
async def test_a_guard_in_front_of_discord_is_no_end_of_a_chat(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    code: int,
) -> None:
    where = address(server, channel)
    server.fault("error", status=403, code=code, method="POST", path="*/messages", message="no")
    with pytest.raises(SendUnavailable):
        await deliver(bot, where, "hello")
    await asked(server, intake, channel, alice, "sessions")
    key = intake.messages[0].interaction
    server.fault("error", status=403, code=code, method="PATCH", path="*/@original", message="no")
    with pytest.raises(SendUnavailable):
        await deliver(bot, where, "yours", interaction=key)
    await deliver(bot, where, "yours", interaction=key)
    assert shown_to_one(server, channel) == ["yours"]
    assert server.visible(channel) == []


async def deliver_patiently(bot: DiscordPlatform, where: Address, parts: list[PartDraft]) -> int:
    """As delivery does, without its pauses; how often the last part was tried."""
    tries = 0
    for n, draft in enumerate(parts):
        for tries in range(1, 20):
            part = OutboxPart(n + 1, 1, n, "sending", draft.payload, attempts=tries)
            with suppress(SendUnavailable):
                await bot.send(where, part)
                break
    return tries


async def test_a_file_that_a_guard_never_lets_through_is_said_to_be_missing(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    """It was tried for ever, and everything that was owed there waited behind it."""
    server.fault(
        "error",
        status=403,
        code=0,
        method="POST",
        path="*/messages",
        contains="filename",
        times=None,
    )
    where = address(server, channel)
    parts = bot.render(OutboxDraft(where, "here", files=(kept.put("n", b"abc", "a.bin"),)))
    assert await deliver_patiently(bot, where, parts) == GUARDED_TRIES
    said = texts.file_not_sent("a.bin", texts.FILE_STOPPED)
    assert server.bot_texts(channel) == ["here", said]


async def test_a_file_that_the_disk_never_gives_back_is_said_to_be_missing(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    kept.error = StoreUnavailable("the file can not be read: Input/output error")
    where = address(server, channel)
    parts = bot.render(OutboxDraft(where, "here", files=(kept.put("n", b"abc", "a.bin"),)))
    assert await deliver_patiently(bot, where, parts) == UNREADABLE_TRIES
    said = texts.file_not_sent("a.bin", texts.FILE_UNREADABLE)
    assert server.bot_texts(channel) == ["here", said]


async def test_words_that_a_guard_never_lets_through_are_said_to_be_missing(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    server.fault(
        "error", status=403, code=0, method="POST", path="*/messages", contains="evil", times=None
    )
    where = address(server, channel)
    await deliver_patiently(bot, where, bot.render(OutboxDraft(where, "cat /evil")))
    assert server.bot_texts(channel) == [texts.PART_REFUSED]


async def test_a_guard_that_lets_nothing_through_costs_no_answer(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    everything = {"method": "POST", "path": "/channels/*", "times": None}
    server.fault("error", status=403, code=0, **everything)
    where = address(server, channel)
    parts = bot.render(OutboxDraft(where, "here", files=(kept.put("n", b"abc", "a.bin"),)))
    assert await deliver_patiently(bot, where, parts) == 19
    server.clear_faults()
    # One that lets most of it through: not what it says is the reason.
    server.fault("error", status=403, code=0, method="POST", path="*/messages", times=GUARDED_TRIES)
    await deliver_patiently(bot, where, parts)
    assert [len(message.attachments) for message in server.visible(channel)] == [0, 1]


async def test_who_may_not_read_the_history_answers_without_a_reference(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    asked_by = server.user_says(channel, alice, "question")
    server.fault("error", status=403, code=160002, method="POST", path="*/messages")
    await deliver(bot, address(server, channel, asked_by), "answer")
    assert server.bot_texts(channel) == ["answer"]


async def test_files_whose_fate_is_unknown_are_found_again(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    name = kept.put("n", b"abc", "a.bin")
    server.rest.tells_nonces = False
    server.rest._nonce_window = 0.0
    where = address(server, channel)
    await deliver(bot, where, "before", id_=50)
    first, second = bot.render(OutboxDraft(where, "here", files=(name,)))
    id_ = await bot.send(where, OutboxPart(1, 1, 0, "planned", first.payload))
    part = OutboxPart(2, 1, 1, "planned", second.payload, follows_message_id=id_)
    server.fault("reset", method="POST", path="*/messages", handled=True)
    with pytest.raises(SendUnknown):
        await bot.send(where, part)
    await bot.send(where, part, repeat=True)
    assert [len(message.attachments) for message in server.visible(channel)] == [0, 0, 1]


async def test_a_very_long_answer_goes_as_its_beginning_and_a_file(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    long = "\n\n".join(f"paragraph {n} {'ä' * 300}" for n in range(200))
    await deliver(bot, address(server, channel), long, buttons=(ALLOW,))
    beginning, whole = server.visible(channel)
    assert long.startswith(beginning.content[:1_000])
    assert [file["filename"] for file in whole.attachments] == ["answer.md"]
    assert whole.attachments[0]["size"] == len(long.encode())


async def test_two_messages_with_files_are_in_memory_at_once_and_no_more(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, kept: Kept
) -> None:
    names = [kept.put(f"n{n}", b"abc", "a.bin") for n in range(5)]
    places = [server.add_channel(guild, f"c{n}") for n in range(5)]
    server.fault("hang", method="POST", path="*/messages", times=None)
    sends = [
        asyncio.create_task(deliver(bot, address(server, place), "", files=(name,), id_=10 * n + 1))
        for n, (place, name) in enumerate(zip(places, names, strict=True))
    ]
    await server.wait_for(lambda: len(server.calls_to("POST", "*/messages")) == 2)
    await asyncio.sleep(0.05)
    assert kept.reads == 2
    # Words are in nobody's way.
    server.rest.faults.clear()
    await deliver(bot, address(server, places[4]), "words", id_=99)
    assert kept.reads == 2
    server.clear_faults()
    for send in sends:
        with suppress(SendUnknown):
            await send
    assert kept.reads == 5


# --- nobody is ever pinged ----------------------------------------------------------------------


async def test_no_way_out_pings_anybody_or_unfolds_a_link(
    server: DiscordServer,
    bot: DiscordPlatform,
    intake: RecordingIntake,
    channel: Channel,
    alice: User,
    bob: User,
    kept: Kept,
) -> None:
    words = f"@everyone @here <@{alice.id}> <@&{channel.guild_id}> https://example.org/"
    where = address(server, channel, server.user_says(channel, alice, "question"))
    name = kept.put("n", b"abc", "@everyone.txt")
    missing = "@everyone"
    shown = await bot.preview(where, words, None, 9)
    await bot.preview(where, f"{words} more", shown, 9)
    await deliver(bot, where, words, edits_message_id=shown, id_=1)
    await deliver(bot, where, words, files=(name, missing), buttons=(ALLOW,), id_=10)
    await deliver(bot, where, f"{words} " * 700, id_=20)
    await asked(server, intake, channel, alice, "branch")
    key = intake.messages[-1].interaction
    await deliver(bot, where, f"{words}\n\n" * 40, files=(name,), interaction=key, id_=30)
    message = await question(server, bot, channel)
    await pressed(server, intake, message, alice, ALLOW.command)
    await deliver(
        bot, where, words, interaction=intake.messages[-1].interaction, decides=True, id_=80
    )
    await asked(server, intake, channel, alice, "retry")
    intake.admitted = lambda _: False
    refused = server.slash(channel, bob, "status", force=True)
    await server.wait_for(lambda: refused.acked)
    bodies = [
        call.body.get("data", call.body)
        for call in server.calls
        if call.method in ("POST", "PATCH") and isinstance(call.body, dict)
    ]
    said = [body for body in bodies if "content" in body or "components" in body]
    assert len(said) > 12
    assert all(body["allowed_mentions"] == {"parse": []} for body in said)
    assert all(body["flags"] & SUPPRESS_EMBEDS for body in said if "content" in body)
    assert not any(sent.pings or sent.pings_everyone for sent in server.sent)


async def test_a_refusal_of_words_is_one(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, kept: Kept
) -> None:
    """What Discord will not have said goes out in no other form either."""
    name = kept.put("n", b"abc", "a.bin")
    server.fault("error", status=400, code=200000, method="POST", path="*/messages", times=None)
    with pytest.raises(SendRefused):
        await deliver(bot, address(server, channel), "bad", buttons=(ALLOW,))
    calls = len(server.calls)
    with pytest.raises(SendRefused):
        await deliver(bot, address(server, channel), "", files=(name,), id_=9)
    assert len(server.calls) - calls <= 2
