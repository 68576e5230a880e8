"""The Telegram platform, with the real SDK, against the loopback Bot API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.mail import Address, OutboxDraft, OutboxPart
from agent.ports import Clock
from gateway.platforms.contract import (
    ChatGone,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.client import TelegramSettings
from gateway.platforms.telegram.render import REPEAT_MARK
from tests.fakes.intake import RecordingIntake, Reports
from tests.fakes.telegram_server import GROUP, TOKEN, USER, Fault, TelegramServer


class HurriedClock(SystemClock):
    """The real clock, but waiting takes no time; what was waited for is remembered."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0.005)


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as running:
        yield running


def settings(server: TelegramServer, **changes: Any) -> TelegramSettings:
    values: dict[str, Any] = {
        "token": TOKEN,
        "base_url": server.base_url,
        "base_file_url": server.base_file_url,
        "poll_timeout_seconds": 1,
        "poll_grace_seconds": 1.0,
        "conflict_quiet_seconds": 0.2,
        "send_timeout_seconds": 0.5,
        **changes,
    }
    return TelegramSettings(**values)


@pytest.fixture
async def telegram(server: TelegramServer) -> AsyncIterator[TelegramPlatform]:
    platform = TelegramPlatform(settings(server), HurriedClock())
    yield platform
    await platform.close()


@contextlib.asynccontextmanager
async def running(
    platform: TelegramPlatform, intake: RecordingIntake
) -> AsyncIterator[tuple[Reports, asyncio.Task[None]]]:
    reports = Reports()
    task = asyncio.create_task(platform.run(intake, reports))
    try:
        yield reports, task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, PlatformUnavailable):
            await task


BOT = TOKEN.partition(":")[0]


def address(chat_id: int = USER, thread: int | None = None, reply: int | None = None) -> Address:
    return Address(
        "telegram",
        BOT,
        str(chat_id),
        None if thread is None else str(thread),
        None if reply is None else str(reply),
    )


def part(text: str = "hello", entities: Any = (), *, n: int = 0) -> OutboxPart:
    return OutboxPart(1, 1, n, "planned", {"text": text, "entities": list(entities)})


BOLD = {"type": "bold", "offset": 0, "length": 5}


# --- receiving ----------------------------------------------------------------------------------


async def test_the_offset_moves_only_after_the_whole_batch_is_stored(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    intake.gate = asyncio.Event()
    updates = [server.private_text(f"m{i}") for i in range(3)]
    async with running(telegram, intake):
        await intake.until(lambda: intake.events)
        # Nothing is stored yet: no poll may have confirmed anything.
        assert [c.params.get("offset") for c in server.calls_of("getUpdates")] == [None]
        intake.gate.set()
        await server.wait_confirmed(updates[-1]["update_id"])
    assert intake.texts == ["m0", "m1", "m2"]
    offsets = [c.params.get("offset") for c in server.calls_of("getUpdates")]
    assert int(offsets[1]) == updates[-1]["update_id"] + 1


async def test_cut_off_in_the_middle_of_a_batch_everything_comes_again(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    for i in range(3):
        server.private_text(f"m{i}")
    intake.gate = asyncio.Event()
    async with running(telegram, intake):
        await intake.until(lambda: intake.events)
    assert len(server.updates.pending) == 3
    intake.gate = None
    async with running(telegram, intake):
        await intake.wait_messages(3)
    assert intake.texts == ["m0", "m1", "m2"]


async def test_the_store_is_down_the_same_update_is_tried_again_in_order(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    intake.failures = 3  # two questions of the start, and the first message
    server.private_text("first")
    server.private_text("second")
    async with running(telegram, intake) as (reports, _):
        await intake.wait_messages(2)
        await reports.wait(PlatformState.RUNNING)
    assert intake.events == [*["store down"] * 3, "stored first", "stored second"]
    assert (PlatformState.DEGRADED, "the store is not available") in reports.all


async def test_an_unreadable_update_is_quarantined_and_the_next_one_comes(
    server: TelegramServer, telegram: TelegramPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    intake = RecordingIntake()
    bad = server.raw({"message": {"message_id": 5, "text": "private words", "chat": "nonsense"}})
    server.private_text("good")
    async with running(telegram, intake):
        await intake.wait_messages(1)
        await server.wait_confirmed(bad["update_id"])
    assert intake.texts == ["good"]
    ((number, raw, reason),) = intake.quarantined
    assert number == str(bad["update_id"])
    assert "nonsense" in raw
    assert "unreadable" in reason
    assert "private words" not in caplog.text


async def test_a_message_that_breaks_the_intake_blocks_nobody(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    intake.refuse = lambda m: ValueError("bug") if m.text == "bad" else None
    server.private_text("bad")
    server.private_text("good")
    async with running(telegram, intake):
        await intake.wait_messages(1)
    assert intake.texts == ["good"]
    assert len(intake.quarantined) == 1


async def test_numbers_that_begin_anew_are_received(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.updates.renumber(900_000)
    intake = RecordingIntake()
    server.private_text("before the holiday")
    async with running(telegram, intake):
        await intake.wait_messages(1)
        # The empty answer of the next poll proves that the number is confirmed.
        await server.until(lambda: len(server.calls_of("getUpdates")) >= 3)
        server.updates.renumber(17)
        server.private_text("after")
        await intake.wait_messages(2)
    assert intake.texts == ["before the holiday", "after"]


async def test_an_update_that_comes_again_is_handed_in_again_with_its_number(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    async with running(telegram, intake):
        update = server.private_text("once")
        await server.wait_confirmed(update["update_id"])
        server.redeliver(update)
        await intake.until(lambda: intake.doubles)
    assert intake.doubles[0].update_id == str(update["update_id"])
    assert intake.texts == ["once"]


async def test_edits_are_handed_in_as_edits_and_nothing_else_is_asked_for(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    first = server.private_text("said")
    async with running(telegram, intake):
        await intake.wait_messages(1)
        server.edit_message(first["message"]["message_id"], "said differently")
        server.private_text("next")
        await intake.wait_messages(2)
    assert intake.texts == ["said", "next"]
    (edit,) = intake.edits
    assert (edit.message_id, edit.text) == (intake.messages[0].message_id, "said differently")
    allowed = server.calls_of("getUpdates")[0].params["allowed_updates"]
    assert json.loads(allowed) == ["message", "edited_message", "callback_query"]


async def test_an_absurd_number_in_one_update_blocks_nobody(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    # Python itself refuses to read a number of so many digits, and with it all that stands beside.
    intake = RecordingIntake()
    bad = {"update_id": 5, "message": {"message_id": 0, "text": "private words"}}
    absurd = f'"message_id": {"9" * 5000}'
    raw = json.dumps([bad, server.private_text("good")]).replace('"message_id": 0', absurd)
    server.updates.drop_pending()
    server.fault(Fault.odd(f'{{"ok":true,"result":{raw}}}', "getUpdates"))
    async with running(telegram, intake):
        await intake.wait_messages(1)
    assert intake.texts == ["good"]
    assert [number for number, *_ in intake.quarantined] == ["5"]


@pytest.mark.parametrize("answer", ["{}", "7", '"x"', "true", "null"])
async def test_an_answer_that_is_no_list_is_a_failed_poll(
    server: TelegramServer, telegram: TelegramPlatform, answer: str
) -> None:
    intake = RecordingIntake()
    server.fault(Fault.odd(f'{{"ok":true,"result":{answer}}}', "getUpdates"))
    server.private_text("after it")
    async with running(telegram, intake) as (reports, _):
        await intake.wait_messages(1)
    assert PlatformState.DEGRADED in reports.states
    assert intake.texts == ["after it"]


@pytest.mark.parametrize("body", ["[]", "7", "null", "[" * 200_000])
async def test_an_answer_that_is_no_object_is_a_failed_poll(
    server: TelegramServer, telegram: TelegramPlatform, body: str
) -> None:
    intake = RecordingIntake()
    server.fault(Fault.odd(body, "getUpdates"))
    server.private_text("after it")
    async with running(telegram, intake):
        await intake.wait_messages(1)
    server.fault(Fault.odd(body, "sendMessage"))
    with pytest.raises(SendUnknown):
        await telegram.send(address(), part())


# --- states -------------------------------------------------------------------------------------


async def test_running_only_after_an_answered_poll(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.fault(Fault.error(502, "Bad Gateway", "getUpdates", times=2))
    async with running(telegram, RecordingIntake()) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
    states = reports.states
    assert states[:3] == [PlatformState.STARTING, PlatformState.DEGRADED, PlatformState.DEGRADED]
    assert telegram.bot_id == str(server.state.bot_id)


async def test_a_quiet_bot_is_running_without_waiting_for_a_first_message(
    server: TelegramServer,
) -> None:
    platform = TelegramPlatform(settings(server, poll_timeout_seconds=600), HurriedClock())
    async with running(platform, RecordingIntake()) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
        await server.wait_polling()
    await platform.close()
    assert [call.params["timeout"] for call in server.calls_of("getUpdates")] == ["0", "600"]


async def test_a_conflict_degrades_and_is_over_when_the_other_one_is_gone(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    text = "Conflict: terminated by other getUpdates request"
    server.fault(Fault.error(409, text, "getUpdates", times=7))
    async with running(telegram, RecordingIntake()) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
    assert reports.states.count(PlatformState.DEGRADED) >= 7
    assert "another program polls" in reports.all[1][1]


async def test_a_webhook_of_before_is_removed(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    text = (
        "Conflict: can't use getUpdates method while webhook is active; "
        "use deleteWebhook to delete the webhook first"
    )
    server.fault(Fault.error(409, text, "getUpdates"))
    async with running(telegram, RecordingIntake()) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
    assert len(server.calls_of("deleteWebhook")) == 1


async def test_a_stuck_poll_is_noticed(server: TelegramServer) -> None:
    # Bytes keep coming on no connection at all: only the loop's own deadline can tell.
    platform = TelegramPlatform(
        settings(server, poll_timeout_seconds=0, poll_grace_seconds=0.2), HurriedClock()
    )
    server.fault(Fault.hang("getUpdates", times=1))
    async with running(platform, RecordingIntake()) as (reports, _):
        reason = await reports.wait(PlatformState.DEGRADED)
        server.private_text("still here")
        await reports.wait(PlatformState.RUNNING)
    assert "stuck" in reason or "Timed out" in reason
    await platform.close()


@pytest.mark.parametrize("token", ["1234:wrong-token", "", "  ", "has space:x", "malformed"])
async def test_a_bad_token_is_the_operators_business(server: TelegramServer, token: str) -> None:
    platform = TelegramPlatform(settings(server, token=token), SystemClock())
    with pytest.raises(PlatformConfigError, match="TELEGRAM_BOT_TOKEN") as caught:
        await platform.run(RecordingIntake(), Reports())
    if token.strip():
        assert token not in str(caught.value)
    with pytest.raises(SendError):
        await platform.send(address(), part())
    await platform.typing(address())
    await platform.close()


async def test_a_page_of_a_proxy_says_nothing_about_the_token(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.fault(Fault.html(404, "getMe"))
    with pytest.raises(PlatformUnavailable):
        await telegram.run(RecordingIntake(), Reports())


async def test_a_token_revoked_while_running_ends_in_a_configuration_error(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    async with running(telegram, RecordingIntake()) as (reports, task):
        await reports.wait(PlatformState.RUNNING)
        server.token_valid = False
        with pytest.raises(PlatformUnavailable):
            await task
    with pytest.raises(PlatformConfigError):
        await telegram.run(RecordingIntake(), Reports())


async def test_the_network_is_down_and_comes_back(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    await server.pause()
    with pytest.raises(PlatformUnavailable):
        await telegram.run(intake, Reports())
    await server.resume()
    async with running(telegram, intake) as (reports, task):
        await reports.wait(PlatformState.RUNNING)
        await server.pause()
        with pytest.raises(PlatformUnavailable):
            await task
    await server.resume()
    server.private_text("after the outage")
    async with running(telegram, intake):
        await intake.wait_messages(1)


async def test_failed_starts_leak_no_sockets(server: TelegramServer) -> None:
    import os

    platform = TelegramPlatform(settings(server), SystemClock())
    await server.pause()
    before = 0
    for attempt in range(60):
        with pytest.raises(PlatformUnavailable):
            await platform.run(RecordingIntake(), Reports())
        if attempt == 5:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    await platform.close()


# --- sending ------------------------------------------------------------------------------------


async def test_the_first_part_answers_the_message_the_others_do_not(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    asked = server.private_text("question")["message"]["message_id"]
    where = address(reply=asked)
    first = await telegram.send(where, part("one", [{**BOLD, "length": 3}]))
    second = await telegram.send(where, part("two", n=1))
    sent = server.sent
    assert [str(m.message_id) for m in sent] == [first, second]
    assert [m.reply_to for m in sent] == [asked, None]
    assert sent[0].entities[0]["type"] == "bold"


async def test_topics_are_answered_in_the_topic(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.add_group(topics={7: "seven"})
    await telegram.send(address(GROUP, thread=7), part())
    await telegram.typing(address(GROUP, thread=7))
    assert server.sent[0].thread_id == 7
    assert server.state.actions[0]["thread_id"] == 7


async def test_an_answer_to_a_deleted_message_arrives(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.private_text("x")
    await telegram.send(address(reply=4711), part("a"))
    server.fault(Fault.error(400, "Bad Request: message to be replied not found"))
    await telegram.send(address(reply=4712), part("b"))
    assert server.visible_texts(USER) == ["a", "b"]


async def test_an_answer_to_a_topic_that_is_gone_arrives_in_the_chat_itself(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    """A reminder that was set in a topic was lost without a word."""
    server.add_group(GROUP, topics={7: "seven"})
    message = server.group_text("hi", chat_id=GROUP, thread_id=7)["message"]["message_id"]
    del server.state.chats[GROUP].topics[7]
    await telegram.typing(address(GROUP, thread=7))
    await telegram.send(address(GROUP, thread=7, reply=message), part("a"))
    (sent,) = server.sent
    assert (sent.text, sent.thread_id, sent.reply_to) == ("a", None, None)


async def test_refused_markup_goes_out_once_as_plain_text(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.private_text("x")
    server.fault(Fault.error(400, "Bad Request: can't parse entities: unexpected end"))
    await telegram.send(address(), part("hello", [BOLD]))
    (sent,) = server.sent
    assert (sent.text, sent.entities) == ("hello", [])
    assert len(server.calls_of("sendMessage")) == 2


async def test_markup_refused_twice_is_given_up(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.private_text("x")
    server.fault(Fault.error(400, "Bad Request: can't parse entities", times=None))
    with pytest.raises(SendRefused):
        await telegram.send(address(), part("hello", [BOLD]))
    assert len(server.calls_of("sendMessage")) == 2


async def test_a_migrated_group_is_followed_and_remembered(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    asked = server.group_text("hi", mention=True)["message"]["message_id"]
    server.migrate(GROUP, -1009)
    await telegram.send(address(GROUP, reply=asked), part("one"))
    await telegram.send(address(GROUP), part("two", n=1))
    assert server.visible_texts(-1009) == ["one", "two"]
    # The old message's number means nothing in the new chat.
    assert server.sent[0].reply_to is None
    assert len(server.calls_of("sendMessage")) == 3
    # Nobody was there to be told; whoever is there next is told first.
    intake = RecordingIntake()
    server.updates.drop_pending()
    async with running(telegram, intake) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
    assert intake.moves == [(str(GROUP), "-1009")]
    # And a platform made anew knows it from there, without asking the old chat.
    other = TelegramPlatform(settings(server), HurriedClock())
    async with running(other, intake) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
    await other.send(address(GROUP), part("three"))
    assert server.visible_texts(-1009) == ["one", "two", "three"]
    assert len(server.calls_of("sendMessage")) == 4
    assert len(intake.moves) == 1
    await other.close()


async def test_a_move_learned_by_a_send_is_told_and_a_failing_store_does_not_stop_the_send(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    server.group_text("hi", mention=True)
    async with running(telegram, intake):
        await intake.wait_messages(1)
        server.fault(Fault.migrate(-1009, chat_id=GROUP))
        server.add_group(-1009)
        intake.failures = 1
        await telegram.send(address(GROUP), part("one"))
        assert (server.visible_texts(-1009), intake.moves) == (["one"], [])
        server.fault(Fault.migrate(-1010, chat_id=-1009))
        server.add_group(-1010)
        await telegram.send(address(GROUP), part("two"))
    assert server.visible_texts(-1010) == ["two"]
    assert intake.moves == [(str(GROUP), "-1009"), ("-1009", "-1010")]


@pytest.mark.parametrize("where", [GROUP, 77])
async def test_a_move_to_where_no_chat_can_be_is_refused(
    server: TelegramServer, telegram: TelegramPlatform, where: int
) -> None:
    server.group_text("hi", mention=True)
    server.fault(Fault.migrate(where, chat_id=GROUP, times=None))
    with pytest.raises(SendRefused):
        await telegram.send(address(GROUP), part("one"))
    assert len(server.calls_of("sendMessage")) == 1


async def test_both_notices_of_a_move_are_handed_in(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    async with running(telegram, intake) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
        server.migrate(GROUP, -1009)
        await intake.until(lambda: len(intake.moves) == 2)
    assert intake.moves == [(str(GROUP), "-1009")] * 2
    assert intake.messages == []


async def test_nothing_goes_out_for_another_bot(
    server: TelegramServer, telegram: TelegramPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    server.private_text("x")
    other = Address("telegram", "4711", str(USER))
    for _ in range(2):
        with pytest.raises(SendUnavailable, match="another bot"):
            await telegram.send(other, part())
        await telegram.typing(other)
    assert len(server.calls) == 0
    assert caplog.text.count("another bot") == 1
    await telegram.send(address(), part("mine"))
    assert server.visible_texts(USER) == ["mine"]


async def test_flood_control_is_told_with_its_seconds(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.private_text("x")
    server.fault(Fault.flood(37, "sendMessage", chat_id=USER))
    with pytest.raises(SendFlood) as caught:
        await telegram.send(address(), part())
    assert caught.value.retry_after_seconds == 37
    server.fault(Fault.flood(1000, "sendChatAction"))
    with pytest.raises(SendFlood) as caught:
        await telegram.typing(address())
    assert caught.value.retry_after_seconds == 1000


@pytest.mark.parametrize(
    ("fault", "error", "delivered"),
    [
        (Fault.error(403, "Forbidden: bot was blocked by the user"), SendRefused, 0),
        (Fault.error(400, "Bad Request: chat not found"), SendRefused, 0),
        (Fault.error(400, "Bad Request: message thread not found"), SendRefused, 0),
        (Fault.error(400, "Bad Request: TOPIC_CLOSED"), SendRefused, 0),
        (Fault.error(400, "Bad Request: CHAT_WRITE_FORBIDDEN"), ChatGone, 0),
        (
            Fault.error(400, "Bad Request: not enough rights to send text messages to the chat"),
            ChatGone,
            0,
        ),
        (Fault.error(500, "Internal Server Error", after=True), SendUnknown, 1),
        (Fault.html(502, "sendMessage"), SendUnknown, 0),
        (Fault.html(403, "sendMessage"), SendUnknown, 0),
        (Fault.drop(after=True), SendUnknown, 1),
        (Fault.drop(), SendUnknown, 0),
        (Fault.hang(after=True), SendUnknown, 1),
        (Fault.garbage(after=True), SendUnknown, 1),
        (Fault.error(401, "Unauthorized"), SendUnavailable, 0),
        (Fault.error(429, "Too Many Requests"), SendFlood, 0),
    ],
    ids=lambda value: getattr(value, "text", None) and f"{value.kind}-{value.code}-{value.text}",
)
async def test_how_a_send_fails(
    server: TelegramServer,
    telegram: TelegramPlatform,
    fault: Fault,
    error: type[SendError],
    delivered: int,
) -> None:
    server.private_text("x")
    server.fault(Fault(**{**fault.to_json(), "hits": 0}))
    with pytest.raises(error):
        await telegram.send(address(), part())
    await server.until(lambda: len(server.sent) == delivered)
    assert len(server.calls_of("sendMessage")) == 1, "never sent again by itself"


@pytest.mark.parametrize(
    "rest", ['"date":"soon","chat":7', '"date":0,"chat":{"id":7,"type":"private"},"entities":7']
)
async def test_a_message_is_out_if_its_number_is_told(
    server: TelegramServer, telegram: TelegramPlatform, rest: str
) -> None:
    """Whatever else Telegram says of it: as a failure it would be sent again."""
    server.private_text("x")
    server.fault(Fault.odd(f'{{"ok":true,"result":{{"message_id":77,{rest}}}}}'))
    assert await telegram.send(address(), part()) == "77"


async def test_no_connection_means_certainly_not_delivered(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.private_text("x")
    await server.pause()
    with pytest.raises(SendUnavailable):
        await telegram.send(address(), part())
    await telegram.typing(address())
    await server.resume()
    await telegram.send(address(), part())
    assert server.visible_texts(USER) == ["hello"]


async def test_a_repeat_is_marked(server: TelegramServer, telegram: TelegramPlatform) -> None:
    server.private_text("x")
    await telegram.send(address(), part("hello", [BOLD]), repeat=True)
    (sent,) = server.sent
    assert sent.text == REPEAT_MARK + "hello"
    (entity,) = sent.entities
    assert sent.text[entity["offset"] :][: entity["length"]] == "hello"


async def test_a_repeat_without_room_for_the_mark_is_announced(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    asked = server.private_text("x")["message"]["message_id"]
    await telegram.send(address(reply=asked), part("a" * 4096), repeat=True)
    assert server.visible_texts(USER) == [REPEAT_MARK.strip(), "a" * 4096]


async def test_everything_that_render_plans_is_accepted(server: TelegramServer) -> None:
    patient = settings(server, send_timeout_seconds=20.0)
    telegram = TelegramPlatform(patient, HurriedClock())
    server.private_text("x")
    text = "# Title\n\n<b>raw</b> **bold 😀** [x](https://e.org/a_b) [y](javascript:1)\n" * 200
    plan = telegram.render(OutboxDraft(Address("telegram", "1", "1"), text))
    for n, draft in enumerate(plan):
        await telegram.send(address(), OutboxPart(n, 1, n, "planned", draft.payload))
    assert len(server.sent) == len(plan)
    assert len(server.calls_of("sendMessage")) == len(plan), "no part was refused and sent again"
    await telegram.close()


async def test_sends_still_go_out_after_receiving_has_stopped(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.private_text("x")
    async with running(telegram, RecordingIntake()) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
    await telegram.send(address(), part("bye"))
    await telegram.close()
    await telegram.close()
    with pytest.raises(SendUnavailable):
        await telegram.send(address(), part("too late"))
    assert server.visible_texts(USER) == ["bye"]


async def test_an_address_that_is_no_number_is_refused(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    for where in (Address("telegram", BOT, "nonsense"), Address("telegram", BOT, "5", "x")):
        with pytest.raises(SendRefused):
            await telegram.send(where, part())
        await telegram.typing(where)
    assert len(server.calls) == 0


# --- secrets ------------------------------------------------------------------------------------


async def test_the_token_is_in_no_log_line_and_no_exception(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    import traceback

    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    clock: Clock = HurriedClock()
    platform = TelegramPlatform(settings(server), clock)
    server.private_text("x")
    shown: list[str] = [repr(settings(server)), repr(platform)]

    async def provoke(call: Callable[[], Awaitable[Any]]) -> None:
        try:
            await call()
        except Exception as exc:
            shown.append("".join(traceback.format_exception(exc)))

    for fault in (
        Fault.error(500, f"oops https://h/bot{TOKEN}/x", "*"),
        Fault.drop("*"),
        Fault.html(502),
    ):
        server.fault(fault)
        await provoke(lambda: platform.send(address(), part()))
    await provoke(lambda: platform.typing(address()))
    server.fault(Fault.error(500, f"echo {TOKEN}", "getMe"))
    await provoke(lambda: platform.run(RecordingIntake(), Reports()))
    server.token_valid = False
    await provoke(lambda: platform.run(RecordingIntake(), Reports()))
    await platform.close()
    assert len(shown) >= 6
    for text in (*shown, caplog.text):
        assert TOKEN not in text
        assert TOKEN.partition(":")[2] not in text
