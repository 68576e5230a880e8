"""What Telegram has beside messages, with the real SDK: buttons, menus, previews, edits, files."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.attachments import StoredFile
from agent.clock import SystemClock
from agent.errors import StoreUnavailable
from agent.mail import Address, Button, OutboxDraft, OutboxPart
from gateway import texts
from gateway.commands.menu import MenuEntry, entries
from gateway.commands.registry import COMMANDS
from gateway.platforms.contract import (
    UNREADABLE_TRIES,
    ChatGone,
    EditRefused,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.out.planning import CAPTION_LIMIT, MARK
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.intake import RecordingIntake
from tests.fakes.telegram_server import GROUP, USER, Fault, TelegramServer
from tests.integration.test_telegram import HurriedClock, address, running, settings

ALLOW = Button("Allow", "/approve 2abcde")
DENY = Button("Deny", "/deny 2abcde")
MENU = entries(COMMANDS)


def png(width: int, height: int, size: int = 100) -> bytes:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height)
    return head + bytes(size)


class Kept:
    """`agent.attachments.Attachments` with files of any claimed size."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[StoredFile, bytes]] = {}
        self.reads = 0
        self.error: Exception | None = None
        """Raised by every `read`."""

    def put(self, name: str, data: bytes, file_name: str = "", size: int | None = None) -> str:
        known = StoredFile(name, "o", file_name, "x/y", len(data) if size is None else size, 1.0)
        self.files[name] = (known, data)
        return name

    async def keep(self, data: bytes, *, owner: str, file_name: str, media_type: str) -> StoredFile:
        raise NotImplementedError

    async def find(self, name: str, *, owner: str | None = None) -> StoredFile | None:
        found = self.files.get(name)
        return found[0] if found is not None and owner in (None, found[0].owner) else None

    async def read(self, name: str) -> bytes:
        self.reads += 1
        if self.error is not None:
            raise self.error
        if not self.files[name][1]:
            raise LookupError(name)
        return self.files[name][1]


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as running_server:
        running_server.private_text("hi")
        running_server.group_text("hi")
        yield running_server


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock(), SequentialIds())


@pytest.fixture
async def telegram(
    server: TelegramServer, kept: Kept, store: MemoryStore
) -> AsyncIterator[TelegramPlatform]:
    platform = made(server, kept, store)
    yield platform
    await platform.close()


def made(
    server: TelegramServer,
    kept: Kept,
    store: MemoryStore,
    menu: tuple[MenuEntry, ...] = MENU,
    admins: tuple[str, ...] = (),
    clock: SystemClock | None = None,
) -> TelegramPlatform:
    return TelegramPlatform(
        settings(server),
        clock or HurriedClock(),
        attachments=kept,
        menu=menu,
        remembered=store,
        admins=admins,
    )


async def deliver(
    telegram: TelegramPlatform, where: Address, text: str, *, repeat: bool = False, **more: Any
) -> list[str]:
    plan = telegram.render(OutboxDraft(where, text, **more))
    sent: list[str] = []
    for n, draft in enumerate(plan):
        part = OutboxPart(n + 1, 1, n, "planned", draft.payload)
        sent.append(await telegram.send(where, part, repeat=repeat))
        if (spent := draft.payload.get("spent_buttons")) is not None:  # as delivery does
            await telegram.take_buttons(where, spent)
    return sent


def keyboard(server: TelegramServer, n: int = -1) -> list[list[tuple[str, str]]]:
    markup = server.sent[n].reply_markup or {"inline_keyboard": []}
    return [
        [(button["text"], button["callback_data"]) for button in row]
        for row in markup["inline_keyboard"]
    ]


# --- buttons ------------------------------------------------------------------------------------


async def test_buttons_stand_below_the_last_words(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    await deliver(telegram, address(), "x" * 5_000, buttons=(ALLOW, DENY))
    assert keyboard(server, 0) == []
    assert keyboard(server) == [[("Allow", ALLOW.command), ("Deny", DENY.command)]]


async def test_buttons_that_are_refused_keep_no_words_back(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.fault(Fault.error(400, "Bad Request: BUTTON_DATA_INVALID"))
    await deliver(telegram, address(), "**which?**", buttons=(ALLOW,))
    (shown,) = server.sent
    assert (shown.text, shown.reply_markup) == ("which?", None)
    assert shown.entities


async def test_pressing_says_the_command_once_and_the_app_is_told(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    (message_id,) = await deliver(telegram, address(), "may I?", buttons=(ALLOW, DENY))
    async with running(telegram, intake):
        update = server.press(int(message_id), "Allow")
        await intake.until(lambda: ALLOW.command in intake.texts)
        await server.until(lambda: server.state.callback_answers)
        server.redeliver(update)
        await server.wait_confirmed(update["update_id"])
        server.private_text("behind")
        await intake.until(lambda: "behind" in intake.texts)
    (press,) = [message for message in intake.messages if message.text == ALLOW.command]
    assert (press.sender_id, press.chat_id, press.chat_kind) == (str(USER), str(USER), "direct")
    assert press.interaction == message_id
    assert press.message_id.endswith(update["callback_query"]["id"])
    assert [m.message_id for m in intake.doubles] in ([press.message_id], [])
    assert "text" not in server.state.callback_answers[0]


async def test_a_press_in_a_topic_is_answered_there_below_its_message(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.add_group(-1_000_000_000_777, topics={5: "five"})
    where = address(-1_000_000_000_777, 5)
    (message_id,) = await deliver(telegram, where, "may I?", buttons=(ALLOW,))
    intake = RecordingIntake()
    async with running(telegram, intake):
        server.press(int(message_id), "Allow", chat_id=-1_000_000_000_777)
        await intake.until(lambda: ALLOW.command in intake.texts)
    press = intake.messages[-1]
    assert (press.thread_id, press.chat_kind) == ("5", "group")
    there = replace(where, reply_to_message_id=press.message_id)
    await deliver(telegram, there, "done", interaction=press.interaction, decides=True)
    question, answer = server.sent
    assert answer.reply_to == int(message_id)
    assert answer.thread_id == 5
    assert question.reply_markup is None  # nobody presses it again


@pytest.mark.parametrize("data", ["", "x", "/foreign 1", "hello /new", "/new@other_bot", "/" * 64])
async def test_what_is_no_command_of_ours_is_answered_and_not_done(
    server: TelegramServer, telegram: TelegramPlatform, data: str
) -> None:
    intake = RecordingIntake()
    async with running(telegram, intake):
        server.callback(data, 77)
        await server.until(lambda: server.state.callback_answers)
    assert server.state.callback_answers[0]["text"] == texts.BUTTON_WITHOUT_USE
    assert [text for text in intake.texts if text != "hi"] == []
    assert intake.quarantined == []


@pytest.mark.parametrize(
    "change",
    [
        {"message": None, "inline_message_id": "AAA"},
        {"data": None, "game_short_name": "chess"},
        {"data": 5},
        {"message": {"message_id": 1, "date": 0, "chat": {"id": -5, "type": "channel"}}},
    ],
)
async def test_presses_elsewhere_are_answered_without_harm(
    server: TelegramServer, telegram: TelegramPlatform, change: dict[str, Any]
) -> None:
    intake = RecordingIntake()
    body = server.callback("/new", 77)["callback_query"]
    server.state.open_queries.add("4040")
    async with running(telegram, intake):
        await server.until(lambda: server.state.callback_answers)
        query = {**body, "id": "4040", **change}
        server.push("callback_query", {k: v for k, v in query.items() if v is not None})
        await server.until(lambda: len(server.state.callback_answers) == 2)
    assert [text for text in intake.texts if text != "hi"] == ["/new"]
    assert intake.quarantined == []


async def test_a_query_that_is_too_old_is_done_all_the_same(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    intake = RecordingIntake()
    server.callback("/new", 77)
    server.state.open_queries.clear()
    async with running(telegram, intake):
        await intake.until(lambda: "/new" in intake.texts)
        await server.until(lambda: server.calls_of("answerCallbackQuery"))
        server.private_text("behind")
        await intake.until(lambda: "behind" in intake.texts)
    assert intake.messages[-2].sent_at == 0.0  # a message that is too old to be shown has no date


async def test_a_stuck_answer_to_a_press_holds_up_nothing(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.fault(Fault.hang("answerCallbackQuery", times=None))
    intake = RecordingIntake()
    async with running(telegram, intake):
        for n in range(120):
            server.callback(f"/resume {n}", 77)
        server.private_text("behind")
        await intake.until(lambda: "behind" in intake.texts)
    await telegram.close()
    assert len(intake.messages) == 123


# --- previews and what comes in their place -----------------------------------------------------


async def test_a_private_chat_sees_a_draft_and_then_the_message(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    where = address()
    assert telegram.preview_kind(where) == "draft"
    for text in ("It **begins", "It **begins** here"):
        assert await telegram.preview(where, text, None, 2**31 + 4) is None
    assert [d["text"] for d in server.state.draft_history] == ["It **begins", "It begins here"]
    assert {d["draft_id"] for d in server.state.draft_history} == {5}
    await deliver(telegram, where, "It **begins** here, and ends.")
    assert server.visible_texts(USER) == ["It begins here, and ends."]
    assert not server.state.drafts


async def test_a_server_without_drafts_shows_messages(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.fault(Fault.error(404, "Not Found", "sendMessageDraft", times=None))
    with pytest.raises(SendRefused):
        await telegram.preview(address(), "begins", None, 1)
    assert telegram.preview_kind(address()) == "message"
    assert await telegram.preview(address(), "begins", None, 1) == str(server.sent[0].message_id)
    assert len(server.calls_of("sendMessageDraft")) == 1


async def test_one_chat_that_takes_no_drafts_keeps_them_from_no_other(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.fault(Fault.error(400, "Bad Request: TEXTDRAFT_PEER_INVALID", "sendMessageDraft"))
    with pytest.raises(SendRefused):
        await telegram.preview(address(), "begins", None, 1)
    assert telegram.preview_kind(address()) == "message"
    assert telegram.preview_kind(address(USER + 1)) == "draft"


async def test_a_group_sees_one_message_that_grows_and_is_the_answer(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    asked = server.group_text("long?", mention=True)["message"]["message_id"]
    where = address(GROUP, reply=asked)
    assert telegram.preview_kind(where) == "message"
    shown = await telegram.preview(where, "It `beg`", None, 9)
    assert shown is not None
    assert await telegram.preview(where, "It begins", shown, 9) == shown
    assert await telegram.preview(where, "It begins", shown, 9) == shown  # not modified
    assert await deliver(
        telegram, where, "It **begins**.", edits_message_id=shown, buttons=(ALLOW,)
    ) == [shown]
    (message,) = server.sent
    assert (message.text, message.reply_to) == ("It begins.", asked)
    assert message.entities == [{"type": "bold", "offset": 3, "length": 6}]
    assert keyboard(server) == [[("Allow", ALLOW.command)]]


async def test_an_edit_whose_outcome_is_unknown_is_repeated_without_a_mark(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    where = address(GROUP)
    shown = await telegram.preview(where, "begins", None, 9)
    server.fault(Fault.drop("editMessageText", after=True))
    with pytest.raises(SendUnknown):
        await deliver(telegram, where, "begins and ends", edits_message_id=shown)
    assert await deliver(
        telegram, where, "begins and ends", edits_message_id=shown, repeat=True
    ) == [shown]
    assert server.visible_texts(GROUP) == ["begins and ends"]


@pytest.mark.parametrize(
    "text",
    [
        "Bad Request: message to edit not found",
        "Bad Request: message can't be edited",
        "Bad Request: MESSAGE_ID_INVALID",
        "Bad Request: there is no text in the message to edit",
    ],
)
async def test_a_message_that_can_not_be_changed_is_told_apart(
    server: TelegramServer, telegram: TelegramPlatform, text: str
) -> None:
    shown = await telegram.preview(address(GROUP), "begins", None, 9)
    server.fault(Fault.error(400, text, "editMessageText", times=2))
    with pytest.raises(EditRefused):
        await deliver(telegram, address(GROUP), "ends", edits_message_id=shown)
    with pytest.raises(EditRefused):
        await telegram.preview(address(GROUP), "ends", shown, 9)


async def test_an_edit_whose_markup_is_refused_goes_plain(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    shown = await telegram.preview(address(GROUP), "begins", None, 9)
    server.fault(Fault.error(400, "Bad Request: can't parse entities", "editMessageText"))
    await deliver(telegram, address(GROUP), "**ends**", edits_message_id=shown)
    assert (server.sent[0].text, server.sent[0].entities) == ("ends", [])


async def test_blocked_and_flooded_previews_have_their_class(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    shown = await telegram.preview(address(GROUP), "begins", None, 9)
    server.fault(Fault.flood(31, "editMessageText"))
    with pytest.raises(SendFlood) as flood:
        await telegram.preview(address(GROUP), "ends", shown, 9)
    assert flood.value.retry_after_seconds == 31
    server.kick()
    with pytest.raises(ChatGone):
        await telegram.preview(address(GROUP), "ends", shown, 9)
    with pytest.raises(ChatGone):
        await deliver(telegram, address(GROUP), "ends", edits_message_id=shown)


async def test_a_preview_is_taken_away(server: TelegramServer, telegram: TelegramPlatform) -> None:
    shown = await telegram.preview(address(GROUP), "begins", None, 9)
    await telegram.preview(address(GROUP), "", shown, 9)
    await telegram.preview(address(GROUP), " ", shown, 9)  # it is gone: that was the wish
    assert server.visible_texts(GROUP) == []
    assert await telegram.preview(address(GROUP), " \n", None, 9) is None


async def test_the_preview_of_a_chat_that_moved_is_not_another_message(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    new = -1_000_000_009_999
    server.add_group(-4_000)
    shown = await telegram.preview(address(-4_000), "begins", None, 9)
    server.migrate(-4_000, new)
    with pytest.raises(EditRefused):
        await deliver(telegram, address(-4_000), "ends", edits_message_id=shown)
    await deliver(telegram, address(-4_000), "ends")
    assert server.visible_texts(new) == ["ends"]


# --- files --------------------------------------------------------------------------------------


async def test_a_picture_goes_with_its_words_below_it(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    name = kept.put("a" * 32 + ".png", png(800, 600), "chart.png")
    await deliver(telegram, address(), "the **chart**", files=(name,), buttons=(ALLOW,))
    (message,) = server.sent
    assert (message.kind, message.text) == ("photo", "the chart")
    assert message.entities == [{"type": "bold", "offset": 4, "length": 5}]
    assert keyboard(server) == [[("Allow", ALLOW.command)]]


async def test_files_follow_words_that_are_too_long_or_there_already(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    files = (kept.put("a", b"%PDF-1.4 x", "a.pdf"), kept.put("b", png(10, 10), "b.png"))
    await deliver(telegram, address(), "both", files=files)
    await deliver(telegram, address(), "y" * (CAPTION_LIMIT + 1), files=files[:1])
    shown = await telegram.preview(address(GROUP), "begins", None, 9)
    await deliver(telegram, address(GROUP), "ends", files=files[:1], edits_message_id=shown)
    await deliver(telegram, address(), "", files=files[:1])
    assert [(m.kind, m.text[:5], m.file_name) for m in server.sent] == [
        ("text", "both", None),
        ("document", "", "a.pdf"),
        ("photo", "", None),
        ("text", "yyyyy", None),
        ("document", "", "a.pdf"),
        ("text", "ends", None),
        ("document", "", "a.pdf"),
        ("document", "", "a.pdf"),
    ]


@pytest.mark.parametrize(
    "data",
    [png(9_000, 2_000), png(2_100, 100), png(10, 10, 10 * 1024 * 1024), b"GIF89a" + bytes(60)],
    ids=["large", "thin", "heavy", "moving"],
)
async def test_a_picture_that_is_none_to_telegram_goes_as_a_file(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept, data: bytes
) -> None:
    await deliver(telegram, address(), "", files=(kept.put("n", data, "p.png"),))
    assert [(m.kind, m.file_name) for m in server.sent] == [("document", "p.png")]
    assert not server.calls_of("sendPhoto")


async def test_a_picture_that_telegram_can_not_read_goes_as_a_file(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    server.fault(Fault.error(400, "Bad Request: IMAGE_PROCESS_FAILED", "sendPhoto"))
    await deliver(telegram, address(), "see", files=(kept.put("n", png(8, 8), "p.png"),))
    assert [(m.kind, m.text) for m in server.sent] == [("document", "see")]


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (None, texts.FILE_NOT_KEPT),
        ({"data": b"", "size": 5}, texts.FILE_NOT_KEPT),
        ({"data": b""}, texts.FILE_EMPTY),
        ({"data": b"x", "size": 51 * 1024 * 1024}, "MB"),
    ],
    ids=["unknown", "gone", "empty", "large"],
)
async def test_a_file_that_can_not_go_keeps_no_words_back(
    server: TelegramServer,
    telegram: TelegramPlatform,
    kept: Kept,
    put: dict[str, Any] | None,
    why: str,
) -> None:
    if put is not None:
        kept.put("n", file_name="a.bin", **put)
    await deliver(telegram, address(), "**here** it is", files=("n",))
    (message,) = server.sent
    assert message.text.startswith("here it is\n\n")
    assert why in message.text
    assert message.entities == [{"type": "bold", "offset": 0, "length": 4}]
    assert kept.reads == int(put is not None and put.get("size") == 5)


async def test_only_what_was_kept_for_this_person_goes_out(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    """Whatever a tool or a model names: somebody else's file, or a path of the machine."""
    name = kept.put("n", b"abc", "a.bin")
    for named in (name, "../../etc/passwd", "/etc/passwd"):
        await deliver(telegram, address(), "here", files=(named,), files_owner="somebody else")
    await deliver(telegram, address(), "here", files=(name,), files_owner="o")
    assert [(m.kind, texts.FILE_NOT_KEPT in m.text) for m in server.sent] == [
        *[("text", True)] * 3,
        ("document", False),
    ]
    assert kept.reads == 1


async def test_a_file_that_is_refused_is_said_to_be(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    server.fault(Fault.error(400, "Bad Request: wrong file", "sendDocument"))
    await deliver(telegram, address(), "here", files=(kept.put("n", b"abc", "a.bin"),))
    assert server.visible_texts(USER) == [
        f"here\n\n{texts.file_not_sent('a.bin', texts.FILE_NOT_TAKEN)}"
    ]


async def test_an_upload_whose_outcome_is_unknown_is_marked_when_it_goes_again(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    name = kept.put("n", b"abc", "a.bin")
    server.fault(Fault.drop("sendDocument", after=True))
    with pytest.raises(SendUnknown):
        await deliver(telegram, address(), "here", files=(name,))
    await deliver(telegram, address(), "here", files=(name,), repeat=True)
    await deliver(telegram, address(), "", files=(name,), repeat=True)
    await deliver(telegram, address(), "z" * CAPTION_LIMIT, files=(name,), repeat=True)
    assert [m.text[:60] for m in server.sent] == [
        "here",
        f"{MARK}\nhere"[:60],
        MARK[:60],
        MARK[:60],
        "z" * 60,
    ]


async def test_a_very_long_answer_goes_as_its_beginning_and_a_file(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    long = "\n\n".join(f"paragraph {n} {'ä' * 300}" for n in range(200))
    await deliver(telegram, address(), long, buttons=(ALLOW,))
    beginning, whole = server.sent
    assert long.startswith(beginning.text[:2_000])
    assert (whole.kind, whole.file_name) == ("document", "answer.md")
    assert server.state.files[str(whole.file_id)].data.decode() == long
    assert keyboard(server) == [[("Allow", ALLOW.command)]]


async def test_two_files_are_in_memory_at_once_and_no_more(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    names = [kept.put(f"n{n}", b"abc", "a.bin") for n in range(5)]
    server.fault(Fault.hang("sendDocument", times=None))
    sends = [asyncio.create_task(deliver(telegram, address(), "", files=(name,))) for name in names]
    await server.until(lambda: len(server.calls_of("sendDocument")) == 2)
    await asyncio.sleep(0.05)
    assert kept.reads == 2
    server.faults.clear()
    server.release()
    await asyncio.gather(*sends)
    assert len(server.sent) == 5


# --- the menu -----------------------------------------------------------------------------------


def menu_of(server: TelegramServer, **scope: Any) -> list[str] | None:
    found = server.state.commands.get((json.dumps(scope, sort_keys=True), ""))
    return None if found is None else [command["command"] for command in found]


async def one_run(
    platform: TelegramPlatform, server: TelegramServer, done: Callable[[], object]
) -> None:
    async with running(platform, RecordingIntake()):
        await server.until(done)
        await asyncio.sleep(0.05)  # and nothing more comes of it
    await platform.close()


async def test_the_menu_is_set_once_and_again_only_when_it_changed(
    server: TelegramServer, kept: Kept, store: MemoryStore
) -> None:
    calls = lambda: len(server.calls_of("setMyCommands"))  # noqa: E731
    await one_run(made(server, kept, store), server, lambda: calls() == 2)
    private, groups = (
        menu_of(server, type="all_private_chats"),
        menu_of(server, type="all_group_chats"),
    )
    assert private is not None
    assert groups is not None
    assert {"new", "resume", "whoami"} <= set(private)
    assert "restart" not in private
    assert set(groups) < set(private)
    await one_run(made(server, kept, store), server, lambda: server.updates.polling)
    assert calls() == 2
    changed = made(server, kept, store, menu=MENU[:3])
    await one_run(changed, server, lambda: calls() == 4)
    assert menu_of(server, type="all_private_chats") == [entry.name for entry in MENU[:3]]


async def test_admins_have_a_menu_of_their_own_while_they_are_admins(
    server: TelegramServer, kept: Kept, store: MemoryStore
) -> None:
    platform = made(server, kept, store, admins=(str(USER), "424242", "-5", "x"))
    await one_run(platform, server, lambda: len(server.calls_of("setMyCommands")) == 4)
    assert "restart" in (menu_of(server, type="chat", chat_id=USER) or [])
    await one_run(made(server, kept, store), server, lambda: server.calls_of("deleteMyCommands"))
    assert menu_of(server, type="chat", chat_id=USER) is None


async def test_a_flood_is_waited_for_beside_the_messages_also_over_a_restart(
    server: TelegramServer, kept: Kept, store: MemoryStore
) -> None:
    server.fault(Fault.flood(500, "setMyCommands"))
    platform = made(server, kept, store, clock=SystemClock())
    intake = RecordingIntake()
    async with running(platform, intake):
        await server.until(lambda: len(server.calls_of("setMyCommands")) == 1)
        server.private_text("meanwhile")
        await intake.until(lambda: "meanwhile" in intake.texts)
    await platform.close()
    fact = json.loads(await store.fact(f"telegram menu {server.state.bot_id}") or "{}")
    assert fact["not_before"] > SystemClock().now() + 400
    hurried = HurriedClock()
    again = made(server, kept, store, clock=hurried)
    await one_run(again, server, lambda: len(server.calls_of("setMyCommands")) == 3)
    assert any(400 < wait <= 500 for wait in hurried.waits)


async def test_a_menu_that_fails_is_in_nobodys_way(
    server: TelegramServer, kept: Kept, store: MemoryStore
) -> None:
    server.fault(Fault.error(400, "Bad Request: BOT_COMMAND_INVALID", "setMyCommands"))
    server.fault(Fault.html(502, "setMyCommands", times=2))
    await one_run(
        made(server, kept, store), server, lambda: len(server.calls_of("setMyCommands")) == 4
    )
    # What was refused is tried again at the next start, what was set is not.
    await one_run(
        made(server, kept, store), server, lambda: len(server.calls_of("setMyCommands")) == 5
    )


async def test_what_is_remembered_may_be_anything(
    server: TelegramServer, kept: Kept, store: MemoryStore
) -> None:
    for text in ("[]", "{", '{"scopes": 5}', '{"not_before": NaN}', "null"):
        await store.set_fact(f"telegram menu {server.state.bot_id}", text)
        before = len(server.calls_of("setMyCommands"))
        await one_run(
            made(server, kept, store),
            server,
            lambda: len(server.calls_of("setMyCommands")) == before + 2,  # noqa: B023
        )


# --- buttons of a question that is over -----------------------------------------------------------


async def test_buttons_are_taken_by_the_number_of_their_message(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    (message_id,) = await deliver(telegram, address(), "**may** I?", buttons=(ALLOW, DENY))
    await telegram.take_buttons(address(), message_id)
    await telegram.take_buttons(address(), message_id)  # not modified: that was the wish
    assert keyboard(server) == []
    assert (server.sent[0].text, len(server.sent[0].entities)) == ("may I?", 1)
    server.fault(Fault.flood(31, "editMessageReplyMarkup"))
    with pytest.raises(SendFlood):
        await telegram.take_buttons(address(), message_id)
    with pytest.raises((EditRefused, SendRefused)):
        await telegram.take_buttons(address(), "99999")


async def test_a_chat_that_moved_keeps_its_buttons(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.add_group(-4_000)
    (message_id,) = await deliver(telegram, address(-4_000), "may I?", buttons=(ALLOW,))
    server.migrate(-4_000, -1_000_000_009_999)
    await deliver(telegram, address(-4_000), "moved")
    with pytest.raises(EditRefused):
        await telegram.take_buttons(address(-4_000), message_id)


async def test_a_file_that_the_disk_never_gives_back_is_said_to_be_missing(
    server: TelegramServer, telegram: TelegramPlatform, kept: Kept
) -> None:
    """Its part was tried for ever, and everything that was owed there waited behind it."""
    kept.error = StoreUnavailable("the file can not be read: Input/output error")
    where = address()
    (plan,) = telegram.render(OutboxDraft(where, "here", files=(kept.put("n", b"abc", "a.bin"),)))
    part = OutboxPart(1, 1, 0, "sending", plan.payload)
    for attempts in range(1, UNREADABLE_TRIES):
        with pytest.raises(SendUnavailable):
            await telegram.send(where, replace(part, attempts=attempts))
    await telegram.send(where, replace(part, attempts=UNREADABLE_TRIES))
    (sent,) = server.sent
    assert sent.text == f"here\n\n{texts.file_not_sent('a.bin', texts.FILE_UNREADABLE)}"
