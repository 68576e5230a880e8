"""Whose conversation a message is: no two people, chats or bots ever share a key by accident."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.mail import InboxRecord
from agent.sessions import is_session_key
from gateway.intake.keys import is_personal, key_for, owner_of
from gateway.intake.records import COMMAND, MESSAGE, message_of, record_of
from gateway.platforms.contract import Attachment, InboundMessage
from tests.fakes.platform import inbound

anything = st.text(st.characters(), max_size=12)
awkward = st.sampled_from(
    ["", ":", "%", "/", "a:b", '"', '","', "null", "[]", "\\", "\x00", "\ud83d", "-100"]
)
part = anything | awkward
places = st.builds(
    dict,
    platform=st.sampled_from(["telegram", "discord", "fake"]),
    bot_id=part,
    chat_id=part,
    thread_id=st.none() | part,
    sender_id=part,
    chat_kind=st.sampled_from(["direct", "group"]),
)


@given(st.lists(places, min_size=2, max_size=8))
def test_a_key_says_exactly_whose_it_is(found: list[dict[str, Any]]) -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for place, per_user in itertools.product(found, (True, False)):
        message = inbound(**place)
        key = key_for(message, group_sessions_per_user=per_user)
        personal = place["chat_kind"] == "direct" or per_user
        identity = (
            place["platform"], place["bot_id"], place["chat_id"], place["thread_id"],
            place["sender_id"] if personal else None,
        )  # fmt: skip
        assert seen.setdefault(key, identity) == identity
        assert tuple(json.loads(key)) == identity
        assert is_personal(key) == personal
        assert is_session_key(key)
        assert key.isascii()
        assert key == key_for(message, group_sessions_per_user=per_user)
    assert len(set(seen.values())) == len(seen)


def test_those_that_were_mixed_up_elsewhere() -> None:
    messages = [
        inbound(chat_id="a:b", thread_id="c"),
        inbound(chat_id="a", thread_id="b:c"),
        inbound(platform="telegram", chat_id="555", sender_id="555"),
        inbound(platform="discord", chat_id="555", sender_id="555"),
        inbound(chat_id="", sender_id="111"),
        inbound(chat_id="", sender_id="222"),
        inbound(chat_kind="group", chat_id="-100", sender_id="111"),
        inbound(chat_kind="group", chat_id="-100", sender_id="222"),
        inbound(chat_kind="group", chat_id="-100", sender_id="111", bot_id="901"),
        inbound(chat_kind="group", chat_id="-100", sender_id="111", thread_id="5"),
        inbound(chat_kind="group", chat_id="-1001", sender_id="11"),
    ]
    keys = [key_for(m, group_sessions_per_user=True) for m in messages]
    assert len(set(keys)) == len(messages)
    shared = [key_for(m, group_sessions_per_user=False) for m in messages[6:8]]
    assert len(set(shared)) == 1
    assert not set(shared) & set(keys)


@given(
    places,
    st.builds(
        dict,
        text=anything,
        sender_name=anything,
        quoted_text=st.none() | anything,
        forwarded_from=st.none() | anything,
        album_id=st.none() | anything,
        text_limit=st.none() | st.integers(1, 5000),
        parent_chat_id=st.none() | part,
        sender_role_ids=st.frozensets(anything, max_size=3),
        attachments=st.lists(
            st.builds(Attachment, kind=st.just("file"), ref=anything, file_name=anything),
            max_size=2,
        ).map(tuple),
    ),
)
def test_a_row_gives_back_the_message_for_the_gate(
    place: dict[str, Any], said: dict[str, Any]
) -> None:
    """What waits is judged again, by all that was known when it came."""
    message = inbound(**place, **said)
    for kind in (MESSAGE, COMMAND):
        record = record_of(message, kind=kind, group_sessions_per_user=True, now=5.0)
        assert _back(record) == _judged(message)
        stored = json.loads(json.dumps(record.payload))
        again = InboxRecord(
            record.address, record.message_id, kind, record.session_key, record.owner,
            record.text, 5.0, record.sent_at, record.update_id, stored,
        )  # fmt: skip
        assert _back(again) == _judged(message)
        assert record.owner == owner_of(message)


def _back(record: InboxRecord) -> dict[str, Any]:
    return _judged(message_of(record))


def _judged(message: InboundMessage) -> dict[str, Any]:
    names = (
        "platform", "bot_id", "chat_id", "chat_kind", "sender_id", "sender_name", "text",
        "thread_id", "parent_chat_id", "sender_role_ids", "quoted_text", "forwarded_from",
        "attachments", "album_id", "text_limit",
    )  # fmt: skip
    return {name: getattr(message, name) for name in names}
