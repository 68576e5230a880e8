"""Commands: on every platform, at once or in order, never as text to the model."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from agent.composition import fill
from gateway import texts
from gateway.commands import context, registry
from gateway.commands.compression_text import aborted_text
from gateway.intake.access import AccessRules, PlatformPolicy
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
SHARED = PlatformPolicy(
    AccessRules(allow_chats=frozenset({"-100"}), admins=frozenset({"111"})),
    group_sessions_per_user=False,
)


async def say(rig: Rig, text: str, **changes: Any) -> None:
    say.counter += 1  # type: ignore[attr-defined]
    await rig.intake.receive(inbound(text, message_id=f"c{say.counter}", **changes))  # type: ignore[attr-defined]


say.counter = 0  # type: ignore[attr-defined]


async def test_stop_ends_a_turn_at_once_and_the_queue_goes_on(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("long", asyncio.Event())
    await say(rig, "long")
    await rig.settle()
    await say(rig, "/stop")
    await say(rig, "hello")
    await rig.settle()
    assert rig.platform.texts() == [texts.stopped(1), "re: hello"]
    assert await rig.rows(KEY) == [("user", "long"), ("user", "hello"), ("assistant", "re: hello")]
    assert not any("/stop" in str(m["content"]) for seen in rig.loop.seen for m in seen)
    await say(rig, "/stop")
    await rig.settle()
    assert rig.platform.texts()[-1] == texts.NOTHING_RUNNING
    assert await rig.store.open_inbox() == []


async def test_stop_acts_within_a_second_on_a_tool_that_ignores_it(clock: FakeClock) -> None:
    rig = Rig(clock)
    release = asyncio.Event()
    written: list[str] = []

    async def stubborn(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Any:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        try:
            await rig.store.append(ticket, loaded.session.id, [])
        except Exception as exc:
            written.append(type(exc).__name__)
        raise asyncio.CancelledError

    rig.loop.scripts["long"] = stubborn
    await say(rig, "long")
    await rig.settle()
    await say(rig, "/stop")
    await say(rig, "hello")
    await rig.settle()
    await clock.advance(0.99)
    await rig.settle()
    assert rig.platform.texts() == [texts.stopped(1), "re: hello"]
    release.set()
    await rig.settle()
    assert written == ["StaleTurn"]


async def test_stop_right_behind_a_message_stops_that_message(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("hi", asyncio.Event())
    await say(rig, "hi")
    await say(rig, "/stop")
    await rig.settle()
    assert rig.platform.texts() == [texts.STOPPED]
    assert await rig.rows(KEY) == [("user", "hi")]


async def test_new_leads_on_and_keeps_the_old(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "one")
    await say(rig, "/new")
    await say(rig, "two")
    await rig.settle()
    assert rig.platform.texts() == ["re: one", texts.NEW_CONVERSATION_ALONE, "re: two"]
    assert await rig.rows(KEY) == [("user", "two"), ("assistant", "re: two")]
    sessions = await rig.store.list_sessions()
    assert {s.end_reason for s in sessions} == {None, "reset"}


async def test_new_waits_for_a_compression_and_a_failed_one_does_not_stop_it(
    clock: FakeClock,
) -> None:
    rig = Rig(clock)
    await say(rig, "one")
    await rig.settle()
    rig.compactor.gate = asyncio.Event()
    rig.compactor.outcome, rig.compactor.reason = "aborted", "the summary model is overloaded"
    await say(rig, "/compress")
    await say(rig, "/new")
    await rig.settle()
    assert rig.platform.texts() == ["re: one"]
    rig.compactor.gate.set()
    await rig.settle()
    assert rig.platform.texts()[1:] == [
        aborted_text("the summary model is overloaded"),
        texts.NEW_CONVERSATION_ALONE,
    ]


async def test_compress_is_queued_behind_a_run_and_tells_the_numbers(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "/compress")
    await rig.settle()
    assert rig.platform.texts() == [texts.NO_CONVERSATION]
    gate = asyncio.Event()
    rig.hold("long", gate)
    await say(rig, "long")
    await say(rig, "/compress the deploy key")
    await rig.settle()
    assert rig.compactor.asked == []
    gate.set()
    await rig.settle()
    assert rig.compactor.asked == [("manual", "the deploy key")]
    said = "".join(rig.platform.texts())
    for words in ("about 5,000 tokens", "about 900", "Kept in more detail: the deploy key"):
        assert words in said
    rig.compactor.outcome = "not_needed"
    await say(rig, "/compress")
    await rig.settle()
    assert "Nothing to compress: " in "".join(rig.platform.texts())


async def test_stop_detaches_a_compression(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "one")
    await rig.settle()
    rig.compactor.gate = asyncio.Event()
    await say(rig, "/compress")
    await rig.settle()
    await say(rig, "/stop")
    await say(rig, "two")
    await rig.settle()
    assert sorted(rig.platform.texts()) == sorted(
        ["re: one", texts.COMMAND_STOPPED, texts.stopped(1), "re: two"]
    )


@pytest.mark.parametrize("command", ["/new", "/compress"])
async def test_shared_conversations_need_an_admin(clock: FakeClock, command: str) -> None:
    rig = Rig(clock, policy=SHARED)
    group = {"chat_kind": "group", "chat_id": "-100"}
    await say(rig, "hi", sender_id="222", **group)
    await say(rig, command, sender_id="222", **group)
    await rig.settle()
    assert rig.platform.texts()[-1] == texts.ADMIN_ONLY
    await say(rig, command, sender_id="111", **group)
    await rig.settle()
    assert rig.platform.texts()[-1] != texts.ADMIN_ONLY
    # one's own conversation in a group is one's own
    rig = Rig(clock, policy=replace(SHARED, group_sessions_per_user=True))
    await say(rig, command, sender_id="222", **group)
    await rig.settle()
    assert rig.platform.texts()[-1] != texts.ADMIN_ONLY


async def test_status_while_busy_and_idle(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "/status")
    await rig.settle()
    before = rig.platform.texts()
    assert "model-1" in "".join(before)
    rig.hold("long", asyncio.Event())
    await say(rig, "hi")
    await say(rig, "long")
    await say(rig, "/status")
    await rig.settle()
    shown = "".join(rig.platform.texts()[len(before) :])
    for fact in ("model-1", "200,000", "100,000", "1,234 tokens (measured)", "s_1", "working"):
        assert fact in shown
    assert "other: failed-config (bad token)" in shown
    assert "Context engine: lossless (plugin lossless)" in shown
    assert "something for operators" in shown


@pytest.mark.parametrize(
    ("sender", "changes"),
    [
        ("222", {}),
        ("111", {"chat_kind": "group", "chat_id": "-100"}),
    ],
)
async def test_what_is_for_operators_is_told_to_admins_alone(
    clock: FakeClock, sender: str, changes: dict[str, Any]
) -> None:
    """Somebody who only talks here, and a group in which an admin asks, hear of themselves."""
    everybody = AccessRules(
        allow_from=frozenset({"111", "222"}),
        allow_chats=frozenset({"-100"}),
        admins=frozenset({"111"}),
    )
    rig = Rig(clock, policy=PlatformPolicy(everybody))
    await say(rig, "/status", sender_id=sender, **changes)
    await rig.settle()
    shown = "".join(rig.platform.texts())
    assert "This conversation: idle" in shown
    assert "operators" not in shown
    assert "bad token" not in shown


async def test_lineage_lists_the_chain(clock: FakeClock) -> None:
    from tests.unit.gateway.test_turns import split_at_end

    rig = Rig(clock)
    await say(rig, "hi")
    await rig.settle()
    session = "s_1"
    for _ in range(30):
        session = await split_at_end(rig, session)
    await say(rig, "/lineage")
    await rig.settle()
    shown = "".join(rig.platform.texts()[1:])
    assert "31 sessions" in shown
    assert "1. s_1: " in shown
    assert "ended by compression" in shown
    assert "more …" in shown
    assert "31. s_31: 2 messages" in shown


async def test_help_and_whoami_and_the_unknown(clock: FakeClock) -> None:
    rig = Rig(clock)
    for text in (
        "/help",
        "/start",
        "/whoami",
        "/hlep",
        "/nonsense",
        "/exit",
        "/HELP@posthouse_bot",
    ):
        await say(rig, text)
        await rig.settle()
    shown = "".join(rig.platform.texts())
    assert shown.count("I also know:") == 3
    assert all(f"/{name}" in shown for name in registry.COMMANDS)
    assert "fake:111, an admin" in shown
    assert "Did you mean /help" in shown
    assert "I do not know /nonsense. /help" in shown
    assert "I do not know /exit." in shown, "only a console can be left"
    assert rig.loop.seen == []


async def test_a_path_is_a_message(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "/etc/hosts what is it?")
    await rig.settle()
    assert rig.platform.texts() == ["re: /etc/hosts what is it?"]


async def test_a_command_that_fails_says_so(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    rig.store.lineage = broken
    await say(rig, "hi")
    await say(rig, "/lineage")
    await rig.settle()
    assert texts.COMMAND_FAILED in rig.platform.texts()
    assert await rig.store.open_inbox() == []


async def test_context_tells_what_fills_the_window(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "/context")
    await rig.settle()
    assert rig.platform.texts() == [texts.NO_CONVERSATION]
    await say(rig, "hi")
    await rig.settle()
    before = len(rig.platform.texts())
    await say(rig, "/context")
    await rig.settle()
    shown = "".join(rig.platform.texts()[before:])
    for words in ("of 200,000 tokens", "my instructions", "your messages", "my answers"):
        assert words in shown
    assert "Next: at 100,000 tokens" in shown
    assert rig.compactor.asked == []


async def test_context_tells_of_the_last_compression_until_it_is_undone(clock: FakeClock) -> None:
    from tests.unit.gateway.test_turns import split_at_end

    rig = Rig(clock)
    await say(rig, "hi")
    await rig.settle()
    await split_at_end(rig, "s_1", manifest={"mode": "prune", "pruned": 3})
    before = len(rig.platform.texts())
    await say(rig, "/context")
    await rig.settle()
    shown = "".join(rig.platform.texts()[before:])
    assert "Last compression, just now" in shown
    assert "3 bulky messages" in shown
    before = len(rig.platform.texts())
    await say(rig, "/uncompress")
    await say(rig, "/context")
    await rig.settle()
    shown = "".join(rig.platform.texts()[before:])
    assert "Last compression" not in shown
    assert "Next: at 160,000 tokens" in shown


async def test_a_compression_is_not_paid_twice_because_of_a_crash(clock: FakeClock) -> None:
    """The command's row is still open, and what it asked for is done: it only has to be said."""
    from tests.unit.gateway.test_turns import split_at_end

    rig = Rig(clock)
    await say(rig, "hi")
    await rig.settle()
    rig.compactor.gate = asyncio.Event()
    await say(rig, "/compress")
    await rig.settle()
    assert len(rig.compactor.asked) == 1
    await split_at_end(rig, "s_1", manifest={"mode": "prune", "pruned": 3})
    rig.kill()
    rig.compactor.gate = None
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert len(rig.compactor.asked) == 1
    shown = "".join(rig.platform.texts())
    assert "Compressed: 2 messages" in shown
    assert "3 bulky messages are there in a shorter form." in shown
    await clock.advance(1)
    await say(rig, "/compress")
    await rig.settle()
    assert len(rig.compactor.asked) == 2, "another command is another wish"


async def test_context_of_a_long_conversation_does_not_hold_the_loop(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says the same, but the work is done on a thread of its own."""
    rig = Rig(clock)
    await say(rig, "hi")
    await rig.settle()

    async def asked() -> list[str]:
        before = len(rig.platform.texts())
        await say(rig, "/context")
        while not (shown := rig.platform.texts()[before:]) or "Next:" not in shown[-1]:
            await rig.settle()
        return shown

    short = await asked()
    threads: list[str] = []

    def noting(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread().name)
        return fill(*args, **kwargs)

    monkeypatch.setattr(context, "MANY_ROWS", 2)
    monkeypatch.setattr(context, "fill", noting)
    assert await asked() == short
    assert threads == ["context"]


@pytest.mark.parametrize("command", ["/retry", "/compress"])
async def test_what_a_person_asks_for_is_asked_at_once(clock: FakeClock, command: str) -> None:
    """After a refused key the model is left alone for a minute, but not by who wants to know."""
    rig = Rig(clock)
    await say(rig, "hi")
    await rig.settle()
    assert rig.asked_anew == []
    await say(rig, command)
    await rig.settle()
    assert len(rig.asked_anew) == 1
