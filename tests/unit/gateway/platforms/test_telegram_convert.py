from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.platforms.contract import InboundMessage
from gateway.platforms.telegram.convert import Me, Said, convert, update_id

ME = Me(42, "Post_Bot", {"-100": "77"})
PHOTO = [{"file_id": "f1", "width": 90, "height": 90, "file_size": 5000}]


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def mark(text: str, part: str, kind: str = "mention", **fields: Any) -> dict[str, Any]:
    at = text.index(part)
    return {"type": kind, "offset": utf16(text[:at]), "length": utf16(part), **fields}


def update(kind: str = "supergroup", **fields: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "message_id": 5,
        "date": 1_800_000_000,
        "chat": {"id": 9 if kind == "private" else -100, "type": kind},
        "from": {"id": 9, "is_bot": False, "first_name": "Ada", "last_name": "L"},
        **fields,
    }
    return {"update_id": 1, "message": {k: v for k, v in message.items() if v is not None}}


def read(raw: dict[str, Any]) -> InboundMessage:
    news = convert(raw, ME)
    assert isinstance(news, Said)
    return news.message


def test_a_private_message() -> None:
    message = read(update("private", text=" hi there "))
    assert message == InboundMessage(
        platform="telegram",
        bot_id="42",
        chat_id="9",
        chat_kind="direct",
        message_id="5",
        sender_id="9",
        sender_name="Ada L",
        text="hi there",
        sent_at=1_800_000_000.0,
        update_id="1",
        addressed=True,
        text_limit=4096,
    )


@pytest.mark.parametrize(
    ("text", "kind", "addressed", "said"),
    [
        ("hello all", None, False, "hello all"),
        ("@post_bot hello", "mention", True, "hello"),
        ("@POST_BOT: 😀 hello", "mention", True, "😀 hello"),
        ("😀 @post_bot hello", "mention", True, "😀 @post_bot hello"),
        ("@post_bot", "mention", True, "@post_bot"),
        ("@post_bot\n\n hello", "mention", True, "hello"),
        ("@post_botany hello", None, False, "@post_botany hello"),
    ],
)
def test_mentions_in_groups(text: str, kind: str | None, addressed: bool, said: str) -> None:
    part = next((w.rstrip(":") for w in text.split() if w.lower().startswith("@post_bot")), "")
    entities = [mark(text, part, kind)] if kind else []
    message = read(update(text=text, entities=entities))
    assert (message.addressed, message.text, message.chat_kind) == (addressed, said, "group")


def test_a_mention_by_id_counts_and_one_of_somebody_else_does_not() -> None:
    text = "Bot, look"
    mine = read(update(text=text, entities=[mark(text, "Bot", "text_mention", user={"id": 42})]))
    other = read(update(text=text, entities=[mark(text, "Bot", "text_mention", user={"id": 43})]))
    assert (mine.addressed, mine.text) == (True, "look")
    assert (other.addressed, other.text) == (False, text)


def test_offsets_count_utf16_units() -> None:
    text = "👨‍👩‍👧😀 @post_bot"
    assert read(update(text=text, entities=[mark(text, "@post_bot")])).addressed
    # The same numbers taken as characters would point elsewhere.
    wrong = {"type": "mention", "offset": text.index("@"), "length": 9}
    assert not read(update(text=text, entities=[wrong])).addressed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/new", "/new"),
        ("/new@Post_Bot", "/new"),
        ("/compress@post_bot the 😀 plan", "/compress the 😀 plan"),
        ("/new@other_bot", None),
    ],
)
def test_commands(text: str, said: str | None) -> None:
    raw = update(text=text, entities=[mark(text, text.split()[0], "bot_command")])
    if said is None:
        assert convert(raw, ME) is None
    else:
        message = read(raw)
        assert (message.text, message.addressed) == (said, True)


def test_a_command_in_the_middle_is_only_text() -> None:
    text = "try /new@other_bot"
    raw = update(text=text, entities=[mark(text, "/new@other_bot", "bot_command")])
    message = read(raw)
    assert (message.text, message.addressed) == (text, False)


@pytest.mark.parametrize(
    "raw",
    [
        {"update_id": 1, "channel_post": update("channel", text="x")["message"]},
        {"update_id": 1, "callback_query": {"id": "1"}},
        {"update_id": 1, "hologram": {}},
        {"update_id": 1},
        update("channel", text="x"),
        update(new_chat_members=[{"id": 1}]),
        update(pinned_message={}),
        update(text="beep", **{"from": {"id": 3, "is_bot": True, "first_name": "R"}}),
        update(text="x", **{"from": None}),
        update(text="copied", is_automatic_forward=True, sender_chat={"id": -5, "title": "C"}),
        update(text="x", **{"from": {"id": 777000, "is_bot": False, "first_name": "Telegram"}}),
        update(text="  \n "),
        update(text=""),
    ],
)
def test_what_is_nothing(raw: dict[str, Any]) -> None:
    assert convert(raw, ME) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"update_id": 1, "message": "text"},
        {"update_id": 1, "message": [1]},
        {"update_id": 1, "message": {"message_id": 1}},
        update(text=7),
        update(text="x", chat={"id": "abc", "type": "private"}),
        update(text="x", entities=[{"type": "mention"}]),
        "text",
        None,
    ],
)
def test_what_is_no_update_raises(raw: Any) -> None:
    with pytest.raises((TypeError, ValueError, LookupError, AttributeError)):
        convert(raw, ME)


def test_an_anonymous_admin_and_a_channel_speak_as_themselves() -> None:
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    message = read(update(text="x", **{"from": anonymous}, sender_chat={"id": -100, "title": "G"}))
    assert (message.sender_id, message.sender_name, message.sender_is_bot) == ("-100", "G", False)


def test_a_caption_addresses_and_commands_as_a_text_does() -> None:
    caption = "@post_bot what is it"
    raw = update(photo=PHOTO, caption=caption, caption_entities=[mark(caption, "@post_bot")])
    message = read(raw)
    assert (message.addressed, message.text) == (True, "what is it")
    assert [file.ref for file in message.attachments] == ["f1"]
    caption = "/compress@post_bot plans"
    command = mark(caption, "/compress@post_bot", "bot_command")
    raw = update(photo=PHOTO, caption=caption, caption_entities=[command])
    assert (read(raw).text, read(raw).addressed) == ("/compress plans", True)
    assert read(update(photo=PHOTO, media_group_id="7")).album_id == "7"


def replied(user_id: int, message_id: int = 70, **fields: Any) -> dict[str, Any]:
    return {"message_id": message_id, "from": {"id": user_id}, "text": "before", **fields}


def test_replies() -> None:
    to_bot = read(update(text="why", reply_to_message=replied(42)))
    assert (to_bot.addressed, to_bot.quoted_text) == (True, "before")
    to_newest = read(update(text="why", reply_to_message=replied(42, 77)))
    assert (to_newest.addressed, to_newest.quoted_text) == (True, None)
    to_other = read(update(text="why", reply_to_message=replied(8)))
    assert (to_other.addressed, to_other.quoted_text) == (False, "before")
    chosen = update(text="why", reply_to_message=replied(42, 77), quote={"text": "for"})
    assert read(chosen).quoted_text == "for"
    assert read(update(text="why", reply_to_message={"message_id": 3})).quoted_text is None
    photo = {"message_id": 3, "photo": PHOTO}
    assert read(update(text="why", reply_to_message=photo)).quoted_text == "[photo]"


def test_topics() -> None:
    born = {**replied(42, 7), "forum_topic_created": {"name": "t"}}
    born.pop("text")
    topic = read(
        update(text="x", message_thread_id=7, is_topic_message=True, reply_to_message=born)
    )
    # The bot made the topic; that alone does not make everything in it a reply to the bot.
    assert (topic.thread_id, topic.addressed, topic.quoted_text) == ("7", False, None)
    answer = read(update(text="x", message_thread_id=70, reply_to_message=replied(8)))
    assert answer.thread_id is None, "a chain of replies is no topic"


def test_half_surrogates_become_harmless() -> None:
    message = read(update("private", text="a\ud83d b"))
    message.text.encode("utf-8")
    assert message.text.endswith("b")


@given(
    st.text(),
    st.lists(
        st.tuples(
            st.integers(-3, 40),
            st.integers(-3, 40),
            st.sampled_from(["mention", "bot_command", "text_mention", "bold", "url"]),
        )
    ),
)
def test_no_text_and_no_marks_break_it(text: str, marks: list[tuple[int, int, str]]) -> None:
    entities = [
        {"type": kind, "offset": offset, "length": length, "user": {"id": 42}}
        for offset, length, kind in marks
    ]
    news = convert(update(text=text, entities=entities), ME)
    if news is not None:
        assert isinstance(news, Said)
        news.message.text.encode("utf-8")
        assert news.message.text.strip()


@pytest.mark.parametrize("value", [None, [], "x", {}, {"update_id": "1"}, {"update_id": True}])
def test_no_number(value: Any) -> None:
    assert update_id(value) is None
