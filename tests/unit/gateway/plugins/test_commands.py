"""Plugins' commands: behind the gate, never ours, on threads of plugins, failing kindly."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from agent.daemon_threads import DaemonThreads
from gateway import texts
from gateway.commands import registry
from gateway.commands.contract import Command
from gateway.commands.menu import MenuEntry
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.command_rules import CommandRules, Scope, may_give
from gateway.intake.commands import parse_command
from gateway.platforms.discord.native.menu import payload_of
from gateway.platforms.telegram.native.menu import PRIVATE_CHATS, menus
from gateway.plugins import command_text
from gateway.plugins.calling import PluginCalls
from gateway.plugins.collected import PluginCommand
from gateway.plugins.commands import MAX_ANSWER_CHARS, foreign_commands
from gateway.session_context import get_session_env
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

OPEN = AccessRules(allow_from=frozenset({"111", "222"}), admins=frozenset({"111"}))
number = iter(range(1, 1_000_000))


def command(handler: Any, name: str = "tidy", **more: Any) -> PluginCommand:
    return PluginCommand(name, handler, **{"plugin": "plug", **more})


def rig_with(clock: FakeClock, *given: PluginCommand, own: Any = None, policy: Any = None) -> Rig:
    rig = Rig(clock, policy=policy or PlatformPolicy(OPEN))
    rig.foreign.update(foreign_commands(given, PluginCalls(clock), own))
    return rig


async def answer(rig: Rig, text: str, **changes: Any) -> str:
    before = len(rig.platform.texts())
    await rig.intake.receive(inbound(text, message_id=f"p{next(number)}", **changes))
    async with asyncio.timeout(10):
        while len(rig.platform.texts()) == before:  # noqa: ASYNC110 - on a thread
            await asyncio.sleep(0.001)
    return rig.platform.texts()[-1]


async def test_it_gets_what_stands_behind_its_name(clock: FakeClock) -> None:
    seen: list[Any] = []

    def tidy(raw: str) -> str:
        seen.append((raw, threading.current_thread() is threading.main_thread()))
        return f" tidied {raw} "

    rig = rig_with(clock, command(tidy))
    assert await answer(rig, "/tidy the  attic") == "tidied the  attic"
    assert seen == [("the  attic", False)]
    assert await answer(rig, "/tidy@my_bot") == "tidied"
    await answer(rig, f"/tidy {'many words ' * 300}")
    assert seen[-1][0] == ("many words " * 300).strip()
    # It was never text for the model.
    assert rig.loop.seen == []


async def test_it_knows_its_session(clock: FakeClock) -> None:
    async def where(raw: str) -> str:
        await asyncio.sleep(0)
        names = ("HERMES_SESSION_ID", "HERMES_SESSION_KEY", "HERMES_SESSION_USER_ID")
        return " ".join(get_session_env(name, "-") for name in names)

    rig = rig_with(clock, command(where))
    key = '["fake","900","111",null,"111"]'
    assert await answer(rig, "/tidy") == f"- {key} 111"
    await answer(rig, "hello")
    conversation = await rig.store.conversation_for_key(key)
    assert await answer(rig, "/tidy") == f"{conversation.tip_session_id} {key} 111"


async def test_in_a_conversation_with_its_own_instance_that_one_answers(clock: FakeClock) -> None:
    class Own:
        def commands_of(self, conversation_id: str) -> Sequence[PluginCommand]:
            return [command(lambda raw: "own")] if conversation_id else []

    rig = rig_with(clock, command(lambda raw: "shared"), own=Own())
    assert await answer(rig, "/tidy") == "shared"
    await answer(rig, "hello")
    assert await answer(rig, "/tidy") == "own"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, command_text.DONE),
        ("  ", command_text.DONE),
        (7, "7"),
        (["a"], "['a']"),
    ],
)
async def test_results_of_any_kind(clock: FakeClock, given: Any, expected: str) -> None:
    assert await answer(rig_with(clock, command(lambda raw: given)), "/tidy") == expected


async def test_a_very_long_result_is_cut(clock: FakeClock) -> None:
    rig = rig_with(clock, command(lambda raw: "x" * (MAX_ANSWER_CHARS + 1)))
    await answer(rig, "/tidy")
    whole = "".join(rig.platform.texts())
    assert "[the rest is too long to be shown]" in whole
    assert whole.count("x") <= MAX_ANSWER_CHARS + 10


async def test_one_that_fails_says_so_and_no_more(clock: FakeClock) -> None:
    def fails(raw: str) -> str:
        raise SystemExit("secret")

    assert await answer(rig_with(clock, command(fails)), "/tidy") == command_text.failed("tidy")


async def test_one_that_hangs_holds_up_its_conversation_for_a_minute(clock: FakeClock) -> None:
    free = threading.Event()
    rig = rig_with(clock, command(lambda raw: free.wait()))
    for _ in range(2):
        asking = asyncio.create_task(answer(rig, "/tidy"))
        while not asking.done():
            await asyncio.sleep(0.001)
            await clock.advance(10)
        assert asking.result() == command_text.took_too_long("tidy", 60)
    assert await answer(rig, "/tidy") == command_text.hangs("tidy")
    free.set()


async def test_stop_ends_the_wait(clock: FakeClock) -> None:
    free, begun = threading.Event(), threading.Event()

    def hangs(raw: str) -> None:
        begun.set()
        free.wait()

    rig = rig_with(clock, command(hangs))
    await rig.intake.receive(inbound("/tidy", message_id="x1"))
    await asyncio.wrap_future(DaemonThreads(1).submit(begun.wait))
    await rig.intake.receive(inbound("/stop", message_id="x2"))
    await rig.settle()
    assert texts.COMMAND_STOPPED in rig.platform.texts()
    free.set()


# --- who may


async def test_who_is_not_let_in_gives_no_command(clock: FakeClock) -> None:
    ran: list[str] = []
    rig = rig_with(clock, command(ran.append))
    await rig.intake.receive(inbound("/tidy", sender_id="999", message_id="z1"))
    await rig.settle()
    assert (ran, rig.platform.texts()) == ([], [])


async def test_one_that_is_not_open_to_somebody_is_refused_and_not_listed(
    clock: FakeClock,
) -> None:
    rules = CommandRules(direct=Scope(admins=frozenset({"111"}), allowed=frozenset({"look"})))
    policy = PlatformPolicy(OPEN, commands=rules)
    rig = rig_with(
        clock,
        command(lambda raw: "tidied", description="tidy up"),
        command(lambda raw: "looked", name="look", description="look around", args_hint="[where]"),
        policy=policy,
    )
    other = {"sender_id": "222", "chat_id": "222"}
    assert await answer(rig, "/tidy", **other) == texts.NOT_YOUR_COMMAND
    assert await answer(rig, "/look", **other) == "looked"
    listed = await answer(rig, "/help", **other)
    assert "From plugins:\n/look [where]: look around" in listed
    assert "/tidy" not in listed
    assert "/tidy" not in await answer(rig, "/tidi", **other)
    assert await answer(rig, "/tidy") == "tidied"
    await answer(rig, "/help")
    assert "/tidy: tidy up" in "\n".join(rig.platform.texts())


@pytest.mark.parametrize(
    ("rules", "direct", "shared", "admin", "expected"),
    [
        (CommandRules(), True, False, False, True),
        (CommandRules(), False, False, False, True),
        (CommandRules(), False, True, False, False),
        (CommandRules(), False, True, True, True),
        (CommandRules(direct=Scope(frozenset({"1"}))), True, False, False, False),
        (CommandRules(direct=Scope(frozenset({"7"}))), True, False, False, True),
        (CommandRules(direct=Scope(frozenset({"1"}))), False, False, False, True),
        (CommandRules(direct=Scope(frozenset({"1"}))), True, False, True, True),
        (CommandRules(group=Scope(frozenset(), frozenset({"x"}))), False, True, False, True),
        (CommandRules(group=Scope(frozenset(), frozenset({"*"}))), False, True, False, True),
        (CommandRules(group=Scope(frozenset(), frozenset({"y"}))), False, False, False, False),
        (CommandRules(group=Scope(frozenset({"7"}))), False, True, False, True),
        (CommandRules(group=Scope(frozenset({"*"}))), False, True, False, False),
    ],
)
def test_the_lists(
    rules: CommandRules, direct: bool, shared: bool, admin: bool, expected: bool
) -> None:
    assert may_give(rules, "x", "7", direct=direct, shared=shared, admin=admin) is expected


# --- names and menus


def made(name: str, **more: Any) -> Command:
    (only,) = foreign_commands(
        [command(lambda raw: "", name=name, **more)], PluginCalls(FakeClock())
    ).values()
    return only


def test_ours_are_never_shadowed_and_hyphens_may_be_typed_as_underscores() -> None:
    foreign = {"a-b": made("a-b"), "new": made("new"), "start": made("start")}
    assert registry.find("new", foreign) is registry.COMMANDS["new"]
    assert registry.find("start", foreign) is registry.COMMANDS["help"]
    assert registry.find("a_b", foreign) is registry.find("a-b", foreign) is foreign["a-b"]
    asked = parse_command("/a-b now")
    assert asked is not None
    assert (asked.name, asked.argument) == ("a-b", "now")


def test_what_a_plugin_says_of_itself_is_one_short_line() -> None:
    shown = made("x", description="two\nlines\x1b[31m " + "long " * 100, args_hint="a\nb" * 100)
    assert "\n" not in shown.help + shown.usage
    assert len(shown.help) <= 100
    assert "\x1b" not in shown.help
    assert made("x").help == "by plugin plug"


def test_both_menus_take_them() -> None:
    entries = [MenuEntry("a-b", "x"), MenuEntry("Bad Name", "y"), MenuEntry("c", "")]
    telegram = menus(entries, ())[PRIVATE_CHATS]
    assert telegram == (("a_b", "x"), ("c", "c"))
    assert all(re.fullmatch(r"[a-z0-9_]{1,32}", name) and text for name, text in telegram)
    assert [entry["name"] for entry in payload_of(entries)] == ["a-b", "c"]
    many = [MenuEntry(f"c{n}", "x") for n in range(300)]
    assert len(menus(many, ())[PRIVATE_CHATS]) == len(payload_of(many)) == 100
    # Of two that Telegram can not tell apart the first is shown: it is ours.
    assert menus([MenuEntry("a_b", "ours"), MenuEntry("a-b", "x")], ())[PRIVATE_CHATS] == (
        ("a_b", "ours"),
    )
