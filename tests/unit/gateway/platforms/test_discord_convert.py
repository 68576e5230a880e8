from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.messages import is_blank
from gateway import texts
from gateway.delivery.splitting import utf16_len
from gateway.platforms.discord.convert import (
    Facts,
    Replied,
    convert,
    is_blank_for_lack_of_intent,
)
from gateway.platforms.discord.render import nonce, render

BOT = 900
BASE = Facts(
    id=5,
    channel_id=10,
    author_id=7,
    author_name="Ada",
    text="hello",
    sent_at=12.5,
    guild_id=3,
    role_ids=frozenset({11}),
    mentions={BOT: "posthouse", 8: "Bob"},
    role_names={11: "staff"},
    channel_names={12: "general"},
)


def said(text: str, **changes: Any) -> str:
    message = convert(replace(BASE, text=text, **changes), BOT)
    assert message is not None
    return message.text


def test_what_a_channel_is_called() -> None:
    names = [convert(replace(BASE, channel_name=name), BOT) for name in ("general", " ", "")]
    assert [message and message.chat_name for message in names] == ["general", None, None]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@900> hello", "hello"),
        ("<@!900>, <@900>: hello", "hello"),
        ("hello <@900>!", "hello @posthouse!"),
        ("<@900>", "@posthouse"),
        (
            "<@8> and <@999> in <#12> <#13> for <@&11> <@&99>",
            "@Bob and @unknown-user in #general #unknown-channel for @staff @unknown-role",
        ),
        ("nice <:party:123> <a:wave:456>", "nice :party: :wave:"),
        ("  spaced  ", "spaced"),
        ("<@9001> not me", "@unknown-user not me"),
    ],
)
def test_ids_are_read_as_names(text: str, shown: str) -> None:
    assert said(text) == shown


@pytest.mark.parametrize(
    "changes",
    [
        {"is_person": False},
        {"is_ordinary": False},
        {"author_id": BOT},
        {"text": ""},
        {"text": " \n"},
    ],
)
def test_what_is_nothing(changes: dict[str, Any]) -> None:
    assert convert(replace(BASE, **changes), BOT) is None


def test_addressing_and_quotes() -> None:
    quiet = replace(BASE, mentions={})
    plain = convert(quiet, BOT)
    assert plain is not None
    assert not plain.addressed
    answer = replace(quiet, replied=Replied("77", str(BOT), "before"))
    message = convert(answer, BOT, {"10": "78"})
    assert message is not None
    assert (message.addressed, message.quoted_text) == (True, "before")
    newest = convert(answer, BOT, {"10": "77"})
    assert newest is not None
    assert (newest.addressed, newest.quoted_text) == (True, None)
    direct = convert(replace(quiet, guild_id=None), BOT)
    assert direct is not None
    assert (direct.addressed, direct.chat_kind) == (True, "direct")


def test_a_thread_names_its_channel() -> None:
    message = convert(replace(BASE, is_thread=True, parent_id=4), BOT)
    assert message is not None
    assert (message.chat_id, message.thread_id, message.parent_chat_id) == ("10", "10", "4")
    assert message.sender_role_ids == {"11"}


def test_withheld_text_is_told_from_a_message_without_one() -> None:
    assert is_blank_for_lack_of_intent(replace(BASE, text=""))
    for changes in (
        {"enclosures": ("[photo: a.png]",)},
        {"has_unseen_content": True},
        {"guild_id": None},
        {"is_person": False},
    ):
        assert not is_blank_for_lack_of_intent(replace(BASE, text="", **changes))  # type: ignore[arg-type]
    assert said("", enclosures=("[photo: a.png]",)) == "[photo: a.png]"


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    message = convert(replace(BASE, text=text), BOT)
    if message is not None:
        message.text.encode("utf-8")


# --- the way out --------------------------------------------------------------------------------

PIECES = [
    "word ",
    "\n\n",
    "😀",
    "👨‍👩‍👧",
    "漢字",
    "שלום ",
    "```py\nx = 1\n",
    "```\n",
    "~~~\n",
    "**b** ",
    "\u200b",
    "\ud83d",
    "\x00",
    "a" * 1999,
    "😀" * 900,
    "- item\n",
    "`c` ",
    "https://h/a_b ",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text())
def test_every_message_is_within_the_limit(text: str) -> None:
    plan = [draft.payload["content"] for draft in render(text)]
    assert plan
    for content in plan:
        content.encode("utf-8")
        assert 0 < utf16_len(content) <= 2000
        assert content == content.strip()
        assert not is_blank(content)


@pytest.mark.parametrize(("length", "count"), [(2000, 1), (2001, 2), (4500, 3), (19_999, 10)])
def test_a_text_without_breaks_is_cut_into_as_few_as_possible(length: int, count: int) -> None:
    plan = [draft.payload["content"] for draft in render("x" * length)]
    assert len(plan) == count
    assert "".join(plan) == "x" * length


@pytest.mark.parametrize("text", ["", " \n ", "\u200b", "\x07"])
def test_a_blank_answer_says_so(text: str) -> None:
    assert [draft.payload for draft in render(text)] == [{"content": texts.NOTHING_SAID}]


def test_nonces_are_short_stable_and_never_shared() -> None:
    made = [nonce(scope, part_id) for scope in ("a", "b", "a1") for part_id in range(1, 400)]
    assert len(set(made)) == len(made)
    assert all(0 < len(one) <= 25 for one in made)
    assert nonce("a", 1) == made[0]
    assert nonce("a1", 1) != nonce("a", 11)
