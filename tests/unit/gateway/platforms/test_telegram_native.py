"""Telegram's plans, buttons, presses, menus and file names, without a network."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mail import Address, Button, OutboxDraft
from gateway.commands.menu import MenuEntry, entries
from gateway.commands.registry import COMMANDS
from gateway.delivery.splitting import utf16_len
from gateway.platforms.file_names import NAME_CHARS, safe_name
from gateway.platforms.telegram.convert import ALLOWED_UPDATES, Me, chat_of, convert
from gateway.platforms.telegram.native.buttons import MAX_IN_ROW, Pressed, rows, usable
from gateway.platforms.telegram.native.menu import menus
from gateway.platforms.telegram.out.enclosing import is_photo
from gateway.platforms.telegram.out.outgoing import replied_to
from gateway.platforms.telegram.out.planning import CAPTION_LIMIT, marked_as_repeat, plan

HERE = Address("telegram", "7", "1", reply_to_message_id="5")
ME = Me(7, "bot", commands=frozenset({"new", "approve"}))
words = st.text(st.characters(exclude_categories=()), max_size=1_500)


def query(**changes: Any) -> dict[str, Any]:
    body = {
        "id": "90",
        "from": {"id": 1, "is_bot": False, "first_name": "Ann"},
        "message": {"message_id": 4, "date": 9, "chat": {"id": -3, "type": "group"}},
        "data": "/approve 2abcde",
        **changes,
    }
    return {"update_id": 3, "callback_query": body}


@given(
    text=words,
    files=st.lists(st.sampled_from(["a" * 32, "b" * 32]), max_size=3),
    edits=st.none() | st.just("44"),
    buttons=st.lists(st.builds(Button, words, words), max_size=4),
)
def test_whatever_is_owed_is_planned_whole_and_within_limits(
    text: str, files: list[str], edits: str | None, buttons: list[Button]
) -> None:
    draft = OutboxDraft(HERE, text, files=tuple(files), edits_message_id=edits,
                        buttons=tuple(buttons))  # fmt: skip
    payloads = [part.payload for part in plan(draft)]
    assert payloads
    assert [p["file"] for p in payloads if "file" in p] == files
    assert [n for n, p in enumerate(payloads) if "edits" in p] == ([] if edits is None else [0])
    for payload in payloads:
        carries = "file" in payload or "document" in payload
        assert utf16_len(payload["text"]) <= (CAPTION_LIMIT if carries else 4096)
        assert payload["text"].strip() or "file" in payload
        for label, command in payload.get("buttons", []):
            assert label.strip()
            assert 1 <= len(command.encode()) <= 64
        marked = marked_as_repeat(payload)
        assert marked is None or utf16_len(marked["text"]) <= (CAPTION_LIMIT if carries else 4096)


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=9)), max_size=30))
def test_rows_keep_every_button_in_order(buttons: list[tuple[str, str]]) -> None:
    made = rows(buttons)
    assert [button for row in made for button in row] == buttons
    assert all(1 <= len(row) <= MAX_IN_ROW for row in made)


def test_numbers_stand_among_themselves() -> None:
    labels = [*map(str, range(1, 8)), "Older ›"]
    made = [[label for label, _ in row] for row in rows([(label, "/x") for label in labels])]
    assert made == [["1", "2", "3", "4", "5"], ["6", "7"], ["Older ›"]]


def test_what_a_button_can_not_carry_is_left_to_the_text() -> None:
    fits, long = Button("ok", "/resume " + "é" * 28), Button("long", "/resume " + "é" * 29)
    assert usable([fits, long, Button("", "/new"), Button("x", " ")]) == [
        ["ok", fits.command],
        ["/new", "/new"],
    ]


# --- pressing -----------------------------------------------------------------------------------


def test_a_press_is_the_pressers_word() -> None:
    news = convert(query(), ME)
    assert isinstance(news, Pressed)
    message = news.message
    assert message is not None
    assert (message.text, message.sender_id, message.sender_name) == ("/approve 2abcde", "1", "Ann")
    assert (message.chat_id, message.chat_kind, message.thread_id) == ("-3", "group", None)
    assert (message.message_id, message.interaction, message.update_id) == ("press:90", "4", "3")
    assert news.ours
    assert chat_of(query()) == "-3"
    assert "callback_query" in ALLOWED_UPDATES


@pytest.mark.parametrize(
    "data", [None, 5, "", "approve", "/undo", "/approve@x", "a\ud800", "/approve " + "x" * 60]
)
def test_a_forged_press_says_nothing(data: Any) -> None:
    news = convert(query(data=data), ME)
    assert isinstance(news, Pressed)
    assert not news.ours
    assert news.message is not None
    assert news.message.text == ""


def test_nobody_and_nowhere() -> None:
    assert convert(query(**{"from": {"id": 1, "is_bot": True}}), ME) is None
    news = convert(query(message=None), ME)
    assert isinstance(news, Pressed)
    assert news.message is None
    assert chat_of(query(message=None)) is None


@pytest.mark.parametrize(
    "change",
    [{"id": None}, {"id": ""}, {"id": "a b"}, {"from": None}, {"from": {"id": "x"}},
     {"message": {"message_id": 4, "date": -1, "chat": {"id": -3, "type": "group"}}}],
)  # fmt: skip
def test_what_is_no_press_is_kept_for_somebody_to_look_at(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
        convert(query(**change), ME)


def test_a_press_is_no_message_to_answer() -> None:
    pressed = Address("telegram", "7", "1", reply_to_message_id="press:90")
    assert replied_to(HERE, {}) == "5"
    assert replied_to(pressed, {}) is None
    assert replied_to(pressed, {"pressed": "4"}) == "4"


# --- menus --------------------------------------------------------------------------------------


def test_menus_show_everybody_what_is_for_them() -> None:
    found = menus(entries(COMMANDS), ["9", "-1", "", "٣"])
    names = {scope: [name for name, _ in commands] for scope, commands in found.items()}
    assert set(names) == {"all_private_chats", "all_group_chats", "chat:9"}
    assert "restart" in names["chat:9"]
    assert set(names["all_group_chats"]) < set(names["all_private_chats"]) < set(names["chat:9"])


def test_menus_keep_within_what_telegram_takes() -> None:
    many = [MenuEntry(f"c{n}", "x" * 300) for n in range(120)]
    for commands in menus(many, []).values():
        assert len(commands) == 100
        assert all(1 <= len(help_) <= 256 for _, help_ in commands)


# --- files --------------------------------------------------------------------------------------


@given(words, st.just("f" * 32))
def test_file_names_are_safe(name: str, fallback: str) -> None:
    safe = safe_name(name, fallback)
    assert 0 < len(safe) <= NAME_CHARS
    assert not set(safe) & set('\\/:*?"<>|\r\n\t\u202e\x00')
    assert safe.encode()
    assert safe.strip(" .")


def test_file_names_keep_their_ending() -> None:
    assert safe_name("x" * 300 + ".tar.gz", "").endswith(".gz")
    assert safe_name("../../etc/passwd", "") == "_.._etc_passwd"
    assert safe_name("invoice\u202egpj.exe", "") == "invoicegpj.exe"
    assert safe_name("...", "kept.bin") == "kept.bin"
    assert safe_name("", "") == "file"


def test_bytes_that_are_no_picture_are_none() -> None:
    assert not is_photo(b"")
    assert not is_photo(b"\x89PNG\r\n\x1a\n")
    assert not is_photo(b"\x89PNG\r\n\x1a\n" + bytes(40))
