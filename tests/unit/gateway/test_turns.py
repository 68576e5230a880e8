"""Turns: from the row to the answer, with everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
    RequestTooLarge,
    SessionEnded,
    StaleTurn,
    StoreUnavailable,
)
from agent.messages import Draft, Keep
from agent.sessions import CompressionState, SplitRequest
from gateway import texts
from gateway.turns.failures import words_for
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said

KEY = '["fake","900","111",null,"111"]'


async def split_at_end(rig: Rig, session_id: str, *, manifest: dict[str, Any] | None = None) -> str:
    """Somebody else compresses this session."""
    loaded = await rig.store.load(session_id)
    result = await rig.store.split(
        SplitRequest(
            conversation_id=loaded.session.conversation_id,
            parent_id=session_id,
            expected_revision=loaded.session.revision,
            covered_row_id=loaded.last_row_id,
            entries=tuple(Keep(row.id) for row in loaded.rows),
            compression=CompressionState(count=1),
            manifest=manifest,
        )
    )
    assert result.applied
    return str(result.tip.id)


async def test_a_message_is_answered(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(clock)
    with caplog.at_level(logging.INFO):
        await rig.intake.receive(inbound("hi"))
        await rig.settle()
    assert rig.platform.texts() == ["re: hi"]
    assert rig.platform.chat[0].address.reply_to_message_id == "1"
    assert await rig.rows(KEY) == [("user", "hi"), ("assistant", "re: hi")]
    assert await rig.store.open_inbox() == []
    assert rig.hygiene_calls == ["s_1"]
    (line,) = [r for r in caplog.records if r.message == "turn"]
    assert line.__dict__["outcome"] == "done"
    assert line.__dict__["model_calls"] == 1
    assert not any("hi" in str(v) for v in line.__dict__.values() if v != "this")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModelAuthError("bad key sk-ant-1"), texts.AUTH_TROUBLE),
        (ModelQuotaError("broke"), texts.QUOTA_TROUBLE),
        (ModelNotFound("?"), texts.MODEL_MISSING),
        (ContextOverflow("long"), texts.OVERFLOW),
        (RequestTooLarge("big"), texts.REQUEST_TOO_LARGE),
        (ModelBadRequest("no"), texts.BAD_REQUEST),
        (ModelRateLimited("slow"), texts.RATE_LIMITED),
        (ModelOverloaded("busy"), texts.OVERLOADED),
        (ModelTimeout("late"), texts.UNREACHABLE),
        (ModelConnectionError("cut"), texts.UNREACHABLE),
        (ModelError("?"), texts.TURN_FAILED),
        (StoreUnavailable("disk"), texts.STORE_TROUBLE_IN_TURN),
        (KeyError("bug"), texts.TURN_FAILED),
    ],
)
async def test_errors_are_told_in_words_and_the_message_stays(
    clock: FakeClock, error: Exception, text: str
) -> None:
    rig = Rig(clock)

    async def fail(*_: Any) -> Draft:
        raise error

    rig.loop.scripts["hi"] = fail
    await rig.intake.receive(inbound("hi"))
    await rig.intake.receive(inbound("again", message_id="2"))
    await rig.settle()
    assert "".join(rig.platform.texts()) == text + "re: again"
    assert await rig.rows(KEY) == [("user", "hi"), ("user", "again"), ("assistant", "re: again")]
    assert await rig.store.open_inbox() == []


@pytest.mark.parametrize(
    ("error", "level", "reason"),
    [
        (
            ModelConnectionError("no connection:\nConnectError"),
            "WARNING",
            "no connection: ConnectError",
        ),
        (ModelRateLimited("slow", request_id="req_1"), "WARNING", "slow (req_1)"),
        (ContextOverflow("long " * 200), "WARNING", ("long " * 200)[:500]),
        (ModelBadRequest("no"), "ERROR", "no"),
        (ModelAuthError("no key"), "ERROR", "no key"),
    ],
)
async def test_a_model_that_fails_is_one_line_on_the_log(
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    error: ModelError,
    level: str,
    reason: str,
) -> None:
    rig = Rig(clock)

    async def fail(*_: Any) -> Draft:
        raise error

    rig.loop.scripts["hi"] = fail
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    (line,) = [r for r in caplog.records if r.message == "turn failed"]
    assert (line.levelname, line.exc_info) == (level, None)
    assert line.__dict__["error"] == type(error).__name__
    assert line.__dict__["reason"] == reason


@pytest.mark.parametrize(
    "error", [ModelTimeout("x"), ModelRateLimited("x"), ModelOverloaded("x"), ModelAuthError("x")]
)
def test_a_kept_message_is_asked_again_with_retry(error: ModelError) -> None:
    assert "/retry asks it again" in words_for(error)


def test_a_long_wait_is_named() -> None:
    assert "20 minutes" in words_for(ModelRateLimited("x", retry_after_seconds=1200))
    for odd in (None, 0.0, 5.0, float("inf"), float("nan"), -1.0):
        assert words_for(ModelOverloaded("x", retry_after_seconds=odd)) == texts.OVERLOADED


async def test_a_blank_answer_is_said_to_be_one(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def blank(*_: Any) -> Draft:
        return said("  \n")

    rig.loop.scripts["hi"] = blank
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == [texts.NOTHING_SAID]


async def test_notices_follow_the_answer_and_are_never_stored_as_messages(
    clock: FakeClock,
) -> None:
    rig = Rig(clock)

    async def notice(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        for text in ("filling up", "filling up", ""):
            observer.on_notice(text)
        return said("ok")

    rig.loop.scripts["hi"] = notice
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["ok", "filling up"]
    assert await rig.rows(KEY) == [("user", "hi"), ("assistant", "ok")]


async def test_a_tip_moved_by_somebody_else_is_adopted(clock: FakeClock) -> None:
    rig = Rig(clock)
    children: list[str] = []

    async def moved(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        if not children:
            children.append(await split_at_end(rig, loaded.session.id))
            raise SessionEnded(loaded.session.id)
        assert loaded.session.id == children[0]
        return said("in the child")

    rig.loop.scripts["hi"] = moved
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["in the child"]
    assert await rig.rows(KEY) == [("user", "hi"), ("assistant", "in the child")]


async def test_a_tip_moved_behind_the_last_call_gets_the_answer_without_thinking(
    clock: FakeClock,
) -> None:
    rig = Rig(clock)

    async def late(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        await split_at_end(rig, loaded.session.id)
        return Draft(
            {
                "role": "assistant",
                "content": "ok",
                "anthropic_content_blocks": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "ok"},
                ],
            }
        )

    rig.loop.scripts["hi"] = late
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["ok"]
    conversation = await rig.store.conversation_for_key(KEY)
    loaded = await rig.store.load(conversation.tip_session_id)
    assert "anthropic_content_blocks" not in loaded.rows[-1].message
    assert loaded.session.anchor is None


async def test_a_tip_that_never_stands_still_ends_in_words(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def moving(*_: Any) -> Draft:
        raise SessionEnded("s_1")

    rig.loop.scripts["hi"] = moving
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert len(rig.platform.texts()) == 1


async def test_an_answer_without_a_place_is_said_and_its_turn_is_over(clock: FakeClock) -> None:
    """As if every commit came just behind somebody's split; nothing may stay open for ever."""
    rig = Rig(clock)
    real = rig.store.finish_turn

    async def always_late(ticket: Any, session_id: str, outcome: Any, **what: Any) -> Any:
        if what["final"] is not None:
            await split_at_end(rig, session_id)
        return await real(ticket, session_id, outcome, **what)

    rig.store.finish_turn = always_late
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["re: hi"]
    assert await rig.rows(KEY) == [("user", "hi")]
    assert await rig.store.recover_turns() == []
    assert await rig.store.open_inbox() == []


async def test_a_turn_is_not_resumed_in_a_conversation_that_was_ended(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("hi", gate)
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    rig.kill()
    await rig.settle()
    rig.loop.scripts.clear()
    prefix = rig.prefix_for("fake")
    await rig.store.start_conversation(KEY, "fake:111", prefix, end_reason="daily")
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert rig.platform.texts() == [texts.CONVERSATION_MOVED]
    assert await rig.rows(KEY) == []
    ended = await rig.store.session("s_1")
    assert ended.end_reason == "daily"
    assert await rig.store.recover_turns() == []


async def test_a_run_that_lost_its_turn_says_nothing(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def stale(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        await rig.store.finish_turn(ticket, loaded.session.id, "stopped")
        raise StaleTurn(ticket.turn_id)

    rig.loop.scripts["hi"] = stale
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == []
    assert await rig.rows(KEY) == [("user", "hi")]


async def test_a_commit_of_unknown_outcome_is_found_out(clock: FakeClock) -> None:
    rig = Rig(clock)
    real = rig.store.finish_turn
    calls = 0

    async def unknown(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        items = await real(*args, **kwargs)
        if calls == 1:
            raise StoreUnavailable("it did happen, in fact")
        return items

    rig.store.finish_turn = unknown
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    await clock.advance(5)
    await rig.settle()
    assert rig.platform.texts() == ["re: hi"]
    assert await rig.rows(KEY) == [("user", "hi"), ("assistant", "re: hi")]


@pytest.mark.parametrize("platform_breaks", [False, True])
async def test_a_store_that_is_away_is_waited_for_and_told(
    clock: FakeClock, platform_breaks: bool
) -> None:
    rig = Rig(clock)
    if platform_breaks:
        rig.platform.fail(RuntimeError("a bug of the SDK"))
    real, broken = rig.store.begin_turn, 5

    async def begin(opening: Any) -> Any:
        nonlocal broken
        if broken:
            broken -= 1
            raise StoreUnavailable("disk full")
        return await real(opening)

    rig.store.begin_turn = begin
    await rig.intake.receive(inbound("hi"))
    for _ in range(30):
        await rig.settle()
        await clock.advance(1)
    await rig.settle()
    told = [] if platform_breaks else [texts.STORE_TROUBLE]
    assert rig.platform.texts() == [*told, "re: hi"]
    assert await rig.rows(KEY) == [("user", "hi"), ("assistant", "re: hi")]


async def test_a_stop_ends_a_turn_that_began_without_anybody_knowing(clock: FakeClock) -> None:
    rig = Rig(clock)
    real, away = rig.store.begin_turn, True

    async def begin(opening: Any) -> Any:
        ticket = await real(opening)
        if away:
            raise StoreUnavailable("it did happen, in fact")
        return ticket

    rig.store.begin_turn = begin
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    await rig.intake.receive(inbound("/stop", message_id="2"))
    away = False
    await rig.settle()
    await clock.advance(5)
    await rig.settle()
    assert await rig.store.recover_turns() == []
    assert await rig.rows(KEY) == [("user", "hi")]


async def test_typing_is_shown_while_the_model_works(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("hi", gate)
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    await clock.advance(1)
    assert len(rig.platform.typed) == 1
    gate.set()
    await rig.settle()
    await clock.advance(20)
    assert len(rig.platform.typed) == 1


async def test_other_chats_do_not_wait(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("slow", gate)
    await rig.intake.receive(inbound("slow"))
    await rig.intake.receive(inbound("quick", chat_id="other", message_id="2"))
    await rig.settle()
    assert rig.platform.texts() == ["re: quick"]
    gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["re: quick", "re: slow"]


async def test_only_direct_chats_are_private(clock: FakeClock) -> None:
    rig = Rig(clock)
    await rig.intake.receive(inbound("a"))
    await rig.intake.receive(inbound("b", chat_kind="group", chat_id="-1", message_id="2"))
    await rig.settle()
    assert [c.direct_chat for c in rig.loop.contexts] == [True, False]
    assert {c.owner for c in rig.loop.contexts} == {"fake:111"}
