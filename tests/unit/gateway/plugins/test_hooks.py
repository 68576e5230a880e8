"""Hooks: what they are called with, on which thread, for whom; what comes of what they give."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

from agent.messages import Row
from agent.turn_companions import Boundary, TurnFacts
from gateway.plugins.calling import PluginCalls
from gateway.plugins.collected import Collected, Hook
from gateway.plugins.discovery import Found, Role, Source
from gateway.plugins.hook_companion import MAX_CHARS, HookCompanion
from gateway.plugins.hooks import HookDispatch
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.manifest import Manifest
from gateway.plugins.report import in_words, row
from gateway.plugins.whereabouts import Places
from gateway.session_context import get_session_env
from tests.fakes.clock import FakeClock
from tests.fakes.recording_provider import Recording

FACTS = TurnFacts(
    turn_id="turn_1",
    conversation_id="conv_1",
    session_id="sess_1",
    title="",
    session_key='["telegram","1","7",null,"7"]',
    owner="telegram:7",
    place="telegram:7",
    platform="telegram",
    model="model-x",
    user_text="hello",
    user_id="7",
    chat_id="7",
)
ROW = Row(1, "sess_1", 1, {"role": "user", "content": "before"}, 123.0)


async def history() -> Sequence[Row]:
    return [ROW]


def record(key: str, hooks: dict[str, Hook]) -> PluginRecord:
    found = Found(key, Source.USER, Role.GENERAL, Manifest(name=key))
    return PluginRecord(found, PluginState.LOADED, collected=Collected(hooks=list(hooks.items())))


class Rig:
    """Hooks of one plugin, called as by turns."""

    def __init__(self, own: Any = None, **hooks: Hook) -> None:
        self.clock = FakeClock()
        self.manager = PluginManager([record("plug", hooks)])
        self.dispatch = HookDispatch(self.manager, PluginCalls(self.clock), own)
        self.places = Places()
        self.companion = HookCompanion(self.dispatch, self.places, self.clock)
        self.companion.engine_of = lambda conversation_id: "engine"

    async def before(self, facts: TurnFacts = FACTS) -> str:
        return await self.companion.before(facts, history)

    async def after(self, answer: str = "hi", *, stopped: bool = False) -> None:
        await self.companion.after(
            FACTS, answer, history, completed=bool(answer), interrupted=stopped
        )
        await self.companion.close()


async def test_before_the_model_is_asked() -> None:
    seen: dict[str, Any] = {}
    thread = threading.current_thread()

    def hook(**given: Any) -> str:
        seen.update(given, thread=threading.current_thread())
        seen["env"] = get_session_env("HERMES_SESSION_ID"), get_session_env("HERMES_SESSION_KEY")
        return " a note "

    rig = Rig(pre_llm_call=hook)
    assert await rig.before() == "a note"
    assert seen.pop("thread") is not thread
    assert seen.pop("env") == ("sess_1", FACTS.session_key)
    assert seen == {
        "session_id": "sess_1",
        "task_id": "conv_1",
        "turn_id": "turn_1",
        "user_message": "hello",
        "conversation_history": [{"role": "user", "content": "before", "timestamp": 123.0}],
        "is_first_turn": False,
        "model": "model-x",
        "platform": "telegram",
        "sender_id": "7",
        "conversation_id": FACTS.session_key,
        "gateway_session_key": FACTS.session_key,
        "context_compressor": "engine",
    }
    assert (await rig.places.of("conv_1")).session_id == "sess_1"


async def test_hooks_get_what_they_take_and_can_not_change_what_is_ours() -> None:
    def spoils(conversation_history: list[dict[str, Any]], user_message: str) -> None:
        conversation_history[0]["content"] = "spoilt"
        conversation_history.clear()

    seen: list[Any] = []
    rig = Rig(pre_llm_call=spoils)
    rig.manager.hooks["pre_llm_call"].append(
        lambda conversation_history: seen.append(conversation_history)
    )
    assert await rig.before() == ""
    assert seen == [[{"role": "user", "content": "before", "timestamp": 123.0}]]
    assert ROW.message["content"] == "before"


async def test_what_hooks_give_is_text_or_context_and_bounded() -> None:
    rig = Rig(pre_llm_call=lambda: {"context": "one"})
    more: list[Hook] = [
        lambda: "x" * 100_000,
        lambda: None,
        lambda: ["no", "text"],
        lambda: {"other": 1},
        lambda: 1 / 0,
    ]
    rig.manager.hooks["pre_llm_call"] += more
    rig.manager.hooks["pre_llm_call"].append("no function")  # type: ignore[arg-type]
    assert await rig.before() == "one\n\n" + "x" * MAX_CHARS


async def test_a_first_turn_starts_a_session() -> None:
    seen: list[str] = []
    rig = Rig(
        on_session_start=lambda session_id, model, platform: seen.append(session_id),
        pre_llm_call=lambda is_first_turn: seen.append(str(is_first_turn)),
    )
    assert rig.companion.needs_session
    await rig.before()
    facts = TurnFacts(**{f: getattr(FACTS, f) for f in FACTS.__slots__} | {"is_first_turn": True})
    await rig.before(facts)
    assert seen == ["False", "sess_1", "True"]


async def test_after_an_answer_and_after_none() -> None:
    seen: list[Any] = []
    rig = Rig(
        post_llm_call=lambda user_message, assistant_response, conversation_history, turn_id: (
            seen.append((user_message, assistant_response, len(conversation_history), turn_id))
        ),
        on_session_end=lambda completed, interrupted, session_id: seen.append(
            (completed, interrupted, session_id)
        ),
    )
    await rig.after()
    assert seen == [("hello", "hi", 1, "turn_1"), (True, False, "sess_1")]
    seen.clear()
    await rig.after("", stopped=True)
    assert seen == [(False, True, "sess_1")]


async def test_nobody_waits_for_those_that_are_only_told_and_they_keep_their_order() -> None:
    free, seen = threading.Event(), list[str]()

    def slow(assistant_response: str) -> None:
        free.wait(5)
        seen.append(assistant_response)

    rig = Rig(post_llm_call=slow)
    for answer in "abc":
        await rig.companion.after(FACTS, answer, history, completed=True, interrupted=False)
    assert seen == []
    free.set()
    await rig.companion.close()
    assert seen == ["a", "b", "c"]


async def test_a_new_conversation_ends_the_old_one() -> None:
    seen: list[Any] = []
    rig = Rig(
        on_session_finalize=lambda session_id, platform, reason: seen.append(
            ("finalize", session_id, platform, reason)
        ),
        on_session_reset=lambda session_id, old_session_id, **more: seen.append(
            ("reset", session_id, old_session_id)
        ),
    )
    boundary = Boundary(
        "reset", FACTS.session_key, FACTS.owner, "conv_1", "sess_1", "conv_2", "sess_2"
    )
    await rig.companion.crossed(boundary, history)
    await rig.companion.close()
    assert seen == [
        ("finalize", "sess_1", "telegram", "new_session"),
        ("reset", "sess_2", "sess_1"),
    ]


async def test_ones_own_hooks_take_the_place_of_the_shared_ones() -> None:
    class Own:
        plugin = "plug"

        def hooks_of(self, conversation_id: str, hook: str) -> Sequence[Hook]:
            return [lambda: "own"] if conversation_id == "conv_1" else []

    rig = Rig(Own(), pre_llm_call=lambda: "shared")
    assert await rig.before() == "own"
    other = TurnFacts(
        **{f: getattr(FACTS, f) for f in FACTS.__slots__} | {"conversation_id": "conv_2"}
    )
    assert await rig.before(other) == "shared"


async def test_a_hook_that_hangs_holds_up_one_turn_for_its_time_and_no_other() -> None:
    free = threading.Event()
    rig = Rig(pre_llm_call=lambda: free.wait())
    rig.manager.hooks["pre_llm_call"].append(lambda: "the other")
    task = asyncio.create_task(rig.before())
    while not task.done():
        await asyncio.sleep(0.001)
        await rig.clock.advance(1)
    assert task.result() == "the other"
    assert await rig.before() == "the other"  # at once: no time has passed
    free.set()


def test_hooks_that_have_no_moment_here_are_listed() -> None:
    one = record("plug", {"pre_llm_call": print, "subagent_stop": print, "nonsense": print})
    about = row(one)
    assert about["never_called"] == ["subagent_stop", "nonsense"]
    assert "never called here: subagent_stop, nonsense" in in_words(about)


def test_methods_that_have_no_moment_here_are_listed() -> None:
    """A plugin's author is told, instead of wondering why nothing ever comes."""

    class Provider(Recording):
        def on_delegation(self, task: str, result: str, **_: Any) -> None:
            raise AssertionError

    one = record("plug", {})
    assert one.collected is not None
    one.collected.memory_provider = Recording()
    assert row(one)["methods_never_called"] == []
    one.collected.memory_provider = Provider()
    assert row(one)["methods_never_called"] == ["on_delegation"]
    assert "methods never called here: on_delegation" in in_words(row(one))


async def test_names_are_resolved_and_others_answered_beside_ten_that_hang() -> None:
    free = threading.Event()
    hanging = Rig(pre_llm_call=lambda: free.wait())
    hanging.manager.hooks["pre_llm_call"] *= 10
    asking = asyncio.create_task(hanging.before())
    other = Rig(pre_llm_call=lambda: "at once")
    async with asyncio.timeout(30):
        for _ in range(20):
            assert await other.before() == "at once"
            loop = asyncio.get_running_loop()
            assert await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert not asking.done()
    free.set()
    await hanging.clock.advance(10)
    await asking
