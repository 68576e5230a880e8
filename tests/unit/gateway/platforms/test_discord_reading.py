"""What is read off Discord's message objects, whatever they look like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.contract import FetchRefused
from gateway.platforms.discord.convert import Facts, convert
from gateway.platforms.discord.files import FileRef, address_in, parse_ref
from gateway.platforms.discord.reading import RAW_CHARS, Unreadable, read_or_not

BOT = 900
AUTHOR = {"id": "7", "username": "ada", "global_name": "Ada"}


def payload(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "5",
        "channel_id": "10",
        "guild_id": "3",
        "author": AUTHOR,
        "member": {"nick": None, "roles": ["11", "12"]},
        "content": "hello",
        "timestamp": "2026-01-01T00:00:00.500000+00:00",
        "edited_timestamp": None,
        "mentions": [],
        "type": 0,
        "flags": 0,
    }
    return {**base, **changes}


def read(**changes: Any) -> Facts:
    facts = read_or_not(payload(**changes))
    assert isinstance(facts, Facts), facts
    return facts


def test_a_plain_message() -> None:
    facts = read()
    assert (facts.id, facts.channel_id, facts.author_id, facts.guild_id) == (5, 10, 7, 3)
    assert (facts.author_name, facts.text, facts.role_ids) == ("Ada", "hello", {11, 12})
    assert facts.sent_at == 1767225600.5
    assert (facts.is_person, facts.is_ordinary, facts.place_known) == (True, True, False)
    assert read(member={"nick": "The Countess"}).author_name == "The Countess"
    assert read(guild_id=None).place_known


@pytest.mark.parametrize(
    "changes",
    [
        {"author": {**AUTHOR, "bot": True}},
        {"author": {**AUTHOR, "system": True}},
        {"webhook_id": "4"},
        {"type": 7},
        {"type": 18},
        {"type": 21},
        {"type": 999_999},
        {"channel_type": 3},
    ],
    ids=str,
)
def test_bots_hooks_and_what_discord_says_itself_are_nothing(changes: dict[str, Any]) -> None:
    assert convert(read(**changes), BOT) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None},
        {"id": "5x"},
        {"id": -1},
        {"id": 1 << 64},
        {"id": True},
        {"id": "٥"},
        {"channel_id": {}},
        {"author": None},
        {"author": []},
        {"author": {"username": "x"}},
        {"content": None},
        {"content": ["x"]},
        {"type": "0"},
    ],
    ids=str,
)
def test_what_a_message_has_to_have(changes: dict[str, Any]) -> None:
    item = read_or_not(payload(**changes))
    assert isinstance(item, Unreadable)
    assert item.reason
    assert "hello" in item.raw or "content" in changes


def test_what_only_decorates_may_be_odd() -> None:
    facts = read(
        member="x",
        mentions=[None, {"id": "x"}, {"id": "8", "username": 5}],
        attachments=[{}, {"id": "9", "size": -1, "content_type": 5, "filename": None}, "x"],
        sticker_items=[{"name": None}],
        poll={"question": None, "answers": "x"},
        timestamp="yesterday",
        edited_timestamp=5,
        referenced_message={"author": {}},
        message_reference=[],
        flags="x",
    )
    assert facts.mentions == {8: ""}
    (file,) = facts.attachments
    assert (file.kind, file.size_bytes, file.file_name) == ("file", None, "")
    assert facts.role_ids is None


def test_files_stickers_and_polls() -> None:
    facts = read(
        content="",
        attachments=[
            {
                "id": "9",
                "url": "https://cdn.discordapp.com/a?ex=1",
                "filename": "s.ogg",
                "content_type": "audio/ogg; codecs=opus",
                "size": 5,
            }
        ],
        flags=1 << 13,
        sticker_items=[{"name": "wave\nhand"}],
        poll={
            "question": {"text": "Tea?"},
            "answers": [{"poll_media": {"text": "yes"}}, {"poll_media": {"text": "no"}}],
        },
    )
    message = convert(facts, BOT)
    assert message is not None
    assert message.text == "[sticker: wave hand]\n[poll: Tea? / yes / no]"
    (file,) = message.attachments
    assert (file.kind, file.label, file.size_bytes) == ("audio", "voice message", 5)
    assert parse_ref(file.ref) == FileRef(10, 5, 9, "https://cdn.discordapp.com/a?ex=1")


def test_a_forward_is_somebody_elses_words() -> None:
    original = {"content": "/stop", "attachments": [{"id": "9", "filename": "a"}], "embeds": []}
    changes: dict[str, Any] = {
        "content": "",
        "message_reference": {"type": 1, "message_id": "4"},
        "message_snapshots": [{"message": original}],
    }
    message = convert(read(**changes), BOT)
    assert message is not None
    assert (message.text, message.forwarded_from) == ("/stop", "")
    # It hangs on this message: the other one may be where the bot can not look.
    assert [parse_ref(file.ref) for file in message.attachments] == [FileRef(10, 5, 9)]
    told = payload(**changes)
    told["message_snapshots"][0]["message"]["attachments"][0]["url"] = "https://x/"
    assert address_in(told, 9) == "https://x/"
    odd = read(content="", message_reference={"type": 1}, message_snapshots=[{"message": None}])
    assert convert(odd, BOT) is None


def test_a_reply_quotes_with_names() -> None:
    facts = read(
        type=19,
        mentions=[{"id": "8", "username": "bob"}],
        referenced_message={"id": "4", "author": {"id": "900"}, "content": "ask <@8>"},
    )
    message = convert(facts, BOT)
    assert message is not None
    assert (message.quoted_text, message.addressed) == ("ask @bob", True)


@pytest.mark.parametrize(
    ("raw", "shown", "limit"),
    [
        ("x" * 2000, "x" * 2000, 2000),
        ("x" * 1999, "x" * 1999, 2000),
        ("x" * 2001, "x" * 2001, 4000),
        ("x" * 4000, "x" * 4000, 4000),
        # A full piece is still full if it reads differently here.
        ("<@900> " + "x" * 1993, "x" * 1993, 1993),
        ("<@8>" + "x" * 1996, "@bob" + "x" * 1996, 2000),
        ("😀" * 1000, "😀" * 1000, 2000),
    ],
    ids=range(7),
)
def test_where_a_long_text_would_have_been_cut(raw: str, shown: str, limit: int) -> None:
    facts = read(content=raw, mentions=[{"id": "8", "username": "bob"}])
    message = convert(facts, BOT)
    assert message is not None
    assert (message.text, message.text_limit) == (shown, limit)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = sorted(
    {
        *payload(),
        *("attachments", "sticker_items", "poll", "message_reference", "referenced_message"),
        *("message_snapshots", "webhook_id", "embeds", "components", "channel_type"),
    }
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6), st.sets(st.sampled_from(FIELDS)))
def test_no_payload_breaks_it(odd: dict[str, Any], missing: set[str]) -> None:
    changed = {name: v for name, v in payload(**odd).items() if name not in missing}
    item = read_or_not(changed)
    if isinstance(item, Unreadable):
        assert len(item.raw) <= RAW_CHARS
        return
    message = convert(item, BOT)
    if message is not None:
        for text in (message.text, message.sender_name, *(a.ref for a in message.attachments)):
            text.encode("utf-8")
        json.dumps([a.file_name for a in message.attachments]).encode("utf-8")


@given(JSON)
def test_no_json_breaks_it(value: Any) -> None:
    assert isinstance(read_or_not(value), Unreadable)
    assert address_in(value, 9) is None


@pytest.mark.parametrize("ref", ["", "1/2", "1/2/x", "1/2/3 a b", "1/2/3/4", " 1/2/3", "1/2/3\n"])
def test_what_is_no_ref(ref: str) -> None:
    with pytest.raises(FetchRefused):
        parse_ref(ref)


@given(st.integers(0, 10**20 - 1), st.text(max_size=30))
def test_a_ref_survives_the_store(number: int, url: str) -> None:
    told = parse_ref(str(FileRef(number, number, number, url)))
    assert (told.channel_id, told.message_id, told.attachment_id) == (number, number, number)
    assert told.url in (url, "")
