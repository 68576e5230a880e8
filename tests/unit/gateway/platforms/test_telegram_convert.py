from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.platforms.contract import InboundMessage
from gateway.platforms.telegram.convert import (
    ALLOWED_UPDATES,
    Edited,
    Me,
    Moved,
    Said,
    chat_of,
    convert,
    update_id,
)

ME = Me(42, "Post_Bot", {"-100": "77"}, commands=frozenset({"new", "compress"}))
DOCUMENT = {"file_id": "d", "file_name": "a.b"}
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


@pytest.mark.parametrize(
    ("chat", "name"),
    [
        ({"title": " Crew of the Wren\ud800 "}, "Crew of the Wren\ufffd"),
        ({"title": "x" * 500}, "x" * 200),
        ({"title": ""}, None),
        ({}, None),
    ],
)
def test_what_a_group_is_called(chat: dict[str, str], name: str | None) -> None:
    raw = update("supergroup", text="hello")
    raw["message"]["chat"].update(chat)
    assert read(raw).chat_name == name


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
        ("say @post_bot, what?", "mention", True, "say @post_bot, what?"),
        ("👨‍👩‍👧‍👦 hi @Post_BOT", "mention", True, "👨‍👩‍👧‍👦 hi @Post_BOT"),
        ("@post_botany hello", None, False, "@post_botany hello"),
    ],
)
def test_mentions_in_groups(text: str, kind: str | None, addressed: bool, said: str) -> None:
    part = next((w.rstrip(":,") for w in text.split() if w.lower().startswith("@post_bot")), "")
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


@pytest.mark.parametrize(
    ("text", "addressed"),
    [("/New", True), ("/warn", False), ("/warn @other_bot", False), ("/warn@post_bot", True)],
)
def test_a_command_that_is_not_ours_is_for_one_of_the_other_bots(
    text: str, addressed: bool
) -> None:
    """In a group all bots hear it; who does not know it keeps silent, unless it is named."""
    marks = [mark(text, text.split()[0], "bot_command")]
    assert read(update(text=text, entities=marks)).addressed is addressed
    assert read(update("private", text=text, entities=marks)).addressed


def test_a_command_counts_only_where_telegram_marks_it() -> None:
    # Without a mark (as in a text that was only pasted) it is not even another bot's command.
    unmarked = read(update(text="/new@other_bot"))
    assert (unmarked.text, unmarked.addressed) == ("/new@other_bot", False)
    second = "hey /new@other_bot /new@post_bot"
    marks = [mark(second, part, "bot_command") for part in second.split()[1:]]
    assert read(update(text=second, entities=marks)).addressed
    bold_first = update(
        text="/new x",
        entities=[mark("/new x", "/new", "bot_command"), mark("/new x", "/new x", "bold")],
    )
    assert read(bold_first).addressed


def test_a_bot_without_a_name_is_addressed_by_nobody() -> None:
    text = "/new@ @"
    entities = [mark(text, "/new@", "bot_command"), {"type": "mention", "offset": 6, "length": 1}]
    assert convert(update(text=text, entities=entities), Me(42, "")) is None


def test_a_command_in_the_middle_is_only_text() -> None:
    text = "try /new@other_bot"
    raw = update(text=text, entities=[mark(text, "/new@other_bot", "bot_command")])
    message = read(raw)
    assert (message.text, message.addressed) == (text, False)


@pytest.mark.parametrize(
    "raw",
    [
        {"update_id": 1, "channel_post": update("channel", text="x")["message"]},
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
        {"update_id": 1, "edited_message": update(new_chat_title="t")["message"]},
        {"update_id": 1, "edited_message": None},
        {"update_id": 1, "business_message": update("private", text="x")["message"]},
        {"update_id": 1, "guest_message": update(text="x")["message"]},
        {"update_id": 1, "message_reaction": {"chat": {"id": -100}, "new_reaction": []}},
        {"update_id": 1, "my_chat_member": {"chat": {"id": -100}}},
        update("private", text="x", business_connection_id="b"),
        update(text="x", guest_query_id="g"),
        update(text="x", chat={"id": -100, "type": "supergroup", "is_direct_messages": True}),
        update("sender", text="x"),
        update(text="mine", **{"from": {"id": 42, "is_bot": False, "first_name": "me"}}),
    ],
)
def test_what_is_nothing(raw: dict[str, Any]) -> None:
    assert convert(raw, ME) is None


SERVICE = """
    new_chat_members left_chat_member new_chat_title new_chat_photo delete_chat_photo
    group_chat_created supergroup_chat_created channel_chat_created pinned_message
    message_auto_delete_timer_changed successful_payment users_shared chat_shared
    write_access_allowed boost_added chat_background_set forum_topic_created
    forum_topic_edited forum_topic_closed forum_topic_reopened
    general_forum_topic_hidden general_forum_topic_unhidden giveaway_created giveaway
    giveaway_winners video_chat_scheduled video_chat_started video_chat_ended
    video_chat_participants_invited web_app_data gift checklist_tasks_done
    checklist_tasks_added poll_option_added hologram
"""


@pytest.mark.parametrize(
    "service",
    SERVICE.split(),
)
def test_what_telegram_itself_says_in_a_chat_is_nothing(service: str) -> None:
    value = {"text": "words", "title": "t", "chat": {"id": 1}, "message_id": 1}
    assert convert(update(**{service: value}), ME) is None
    assert convert(update("private", **{service: value}), ME) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"update_id": 1, "message": "text"},
        {"update_id": 1, "message": [1]},
        {"update_id": 1, "message": {"message_id": 1}},
        update(text=7),
        update(text="x", chat={"id": "abc", "type": "private"}),
        update(text="x", entities=[{"type": "mention"}]),
        update(text="x", entities=7),
        update(text="x", message_id=True),
        update(text="x", message_id=2**80),
        update(text="x", date="soon"),
        update(text="x", date=float("nan")),
        update(text="x", date=-1),
        update(text="x", date=10**400),
        update(text="x", **{"from": {"id": "9", "first_name": "A"}}),
        update(text="x", **{"from": {"id": 9.0, "first_name": "A"}}),
        update(migrate_to_chat_id="-5"),
        update(migrate_to_chat_id=-100),
        update(migrate_from_chat_id=5),
        update(document={"file_name": "x"}),
        # A chat that speaks is none of the people, whose ids are above zero.
        update(text="x", sender_chat={"id": 9, "title": "not Ada"}),
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


@pytest.mark.parametrize(
    ("value", "chat"),
    [
        (update(text="x"), "-100"),
        ({"edited_message": {"chat": {"id": 5}}}, "5"),
        ({"message": {"chat": {"id": "5"}}}, None),
        ({"message": {"chat": {"id": 10**5000}}}, None),
        ({"message": [], "edited_message": {"chat": 7}}, None),
        ({"callback_query": {}}, None),
        ("text", None),
    ],
)
def test_the_chat_of_an_update(value: Any, chat: str | None) -> None:
    assert chat_of(value) == chat


@pytest.mark.parametrize("number", [-1, 2**80, 10**5000], ids=["negative", "huge", "absurd"])
def test_a_number_that_would_confirm_what_nobody_has_read_is_none(number: int) -> None:
    assert update_id({"update_id": number}) is None
    news = convert({**update(text="x"), "update_id": number}, ME)
    assert isinstance(news, Said)
    assert news.message.update_id is None


# --- edits and moves ----------------------------------------------------------------------------


def test_an_edit_is_the_whole_message_as_it_is_now() -> None:
    raw = update("private", text="changed", edit_date=1_800_000_009)
    news = convert({"update_id": 1, "edited_message": raw["message"]}, ME)
    assert news == Edited(read(raw))
    assert "edited_message" in ALLOWED_UPDATES


def test_a_move_is_said_by_both_chats() -> None:
    old = update("group", chat={"id": -5, "type": "group"}, migrate_to_chat_id=-100_5)
    new = update(chat={"id": -100_5, "type": "supergroup"}, migrate_from_chat_id=-5)
    assert convert(old, ME) == convert(new, ME) == Moved("-5", "-1005")


# --- whose words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        (
            {"type": "user", "sender_user": {"id": 3, "first_name": "Eve", "last_name": "X"}},
            "Eve X",
        ),
        ({"type": "hidden_user", "sender_user_name": 'E"]\n[x'}, 'E"]\n[x'),
        ({"type": "chat", "sender_chat": {"id": -7, "title": "Club"}}, "Club"),
        ({"type": "channel", "chat": {"id": -7, "title": "News"}, "message_id": 1}, "News"),
        ({"type": "channel", "chat": {"id": -7, "username": "news"}}, "news"),
        ({"type": "something new"}, ""),
        ({}, ""),
    ],
)
def test_forwarded_words_are_somebody_elses(origin: dict[str, Any], name: str) -> None:
    message = read(update("private", text="hello", forward_origin=origin))
    assert (message.forwarded_from, message.text, message.sender_id) == (name, "hello", "9")


def test_forwarded_words_address_and_order_nobody() -> None:
    origin = {"type": "hidden_user", "sender_user_name": "Eve"}
    text = "/new@other_bot @post_bot"
    marks = [mark(text, "/new@other_bot", "bot_command"), mark(text, "@post_bot")]
    message = read(update(text=text, entities=marks, forward_origin=origin))
    assert (message.addressed, message.text) == (False, text)
    assert read(update("private", text=text, entities=marks, forward_origin=origin)).addressed


def test_what_an_inline_bot_wrote_is_passed_on_too() -> None:
    bot = {"id": 5, "is_bot": True, "first_name": "Wiki"}
    assert read(update("private", text="facts", via_bot=bot)).forwarded_from == "Wiki"
    assert read(update("private", text="x", forward_date=1)).forwarded_from == ""


@pytest.mark.parametrize("fields", [{"is_from_offline": True}, {"sender_tag": "x"}, {"aura": 1}])
def test_what_changes_nothing(fields: dict[str, Any]) -> None:
    assert read(update("private", text="x", **fields)) == read(update("private", text="x"))


@pytest.mark.parametrize("at", [0, 1, 1_800_003_600, 4_000_000_000, 253_402_300_799])
def test_a_clock_that_is_wrong_loses_no_message(at: int) -> None:
    assert read(update("private", text="x", date=at)).sent_at == float(at)


# --- topics and answers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields", "thread"),
    [
        ("supergroup", {"message_thread_id": 7, "is_topic_message": True}, "7"),
        ("supergroup", {"message_thread_id": 7}, None),  # a chain of answers
        ("supergroup", {"message_thread_id": 1, "is_topic_message": True}, None),  # General
        ("supergroup", {}, None),
        ("private", {"message_thread_id": 7, "is_topic_message": True}, "7"),
        ("private", {"message_thread_id": 1, "is_topic_message": True}, "1"),
        ("private", {"message_thread_id": 7}, None),
    ],
)
def test_which_topic(kind: str, fields: dict[str, Any], thread: str | None) -> None:
    assert read(update(kind, text="x", **fields)).thread_id == thread


def test_answers_inside_topics() -> None:
    topic = {"message_thread_id": 7, "is_topic_message": True}
    to_bot = read(update(text="why", reply_to_message=replied(42, 71), **topic))
    assert (to_bot.addressed, to_bot.quoted_text, to_bot.thread_id) == (True, "before", "7")
    # The root of a topic that the bot made, told by its number alone.
    root = {"message_id": 7, "from": {"id": 42}, "text": "x", "chat": {"id": -100}}
    to_root = read(update(text="why", reply_to_message=root, **topic))
    assert (to_root.addressed, to_root.quoted_text) == (False, None)


@pytest.mark.parametrize(
    ("fields", "quoted"),
    [
        ({"external_reply": {"origin": {}, "photo": PHOTO}}, "[photo]"),
        ({"external_reply": {"origin": {}, "photo": PHOTO}, "quote": {"text": "part"}}, "part"),
        ({"external_reply": {"origin": {}}}, None),
        ({"reply_to_story": {"id": 1}}, "[story]"),
        ({"reply_to_message": replied(8, photo=PHOTO, text=None, caption="cat")}, "cat"),
        (
            {"reply_to_message": replied(8, text=None, dice={"emoji": "🎲", "value": 4})},
            "[dice 🎲: 4]",
        ),
        (
            {"reply_to_message": replied(8, text=None, document=DOCUMENT)},
            "[file: a.b]",
        ),
        ({"reply_to_message": {"message_id": 3, "date": 0, "chat": {"id": -100}}}, None),
    ],
)  # fmt: skip
def test_what_is_answered_in_words(fields: dict[str, Any], quoted: str | None) -> None:
    assert read(update(text="and?", **fields)).quoted_text == quoted
