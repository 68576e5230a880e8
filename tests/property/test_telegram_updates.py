"""Whatever Telegram (or whoever answers in its place) sends: a value, nothing, or quarantine."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.mail import InboxRecord
from gateway.intake.records import message_of, record_of
from gateway.platforms.contract import InboundMessage
from gateway.platforms.telegram.convert import Edited, Me, Moved, Said, convert, update_id
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.marks import read_text, without_address
from gateway.platforms.telegram.polling import PollLoop, PollTimes
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake, Reports

ME = Me(42, "Post_Bot", {"-100": "77"})
PERSON = {"id": 9, "is_bot": False, "first_name": "Ada", "last_name": "L", "username": "ada"}
CHAT = {"id": -100, "type": "supergroup", "title": "G", "is_forum": True}
FILE = {"file_id": "f", "file_size": 5, "file_name": "a.b", "mime_type": "image/png", "title": "t"}
REPLIED = {"message_id": 3, "date": 5, "chat": CHAT, "from": {"id": 42}, "text": "before"}
WHOLE: dict[str, Any] = {
    "message_id": 5,
    "date": 1_800_000_000,
    "edit_date": 1_800_000_001,
    "chat": CHAT,
    "from": PERSON,
    "sender_chat": {"id": -7, "title": "Club", "username": "club"},
    "text": "@post_bot /new@other 😀 text",
    "entities": [
        {"type": "mention", "offset": 0, "length": 9},
        {"type": "bot_command", "offset": 10, "length": 10},
        {"type": "text_mention", "offset": 21, "length": 2, "user": {"id": 42}},
    ],
    "caption": "/new@post_bot see",
    "caption_entities": [{"type": "bot_command", "offset": 0, "length": 13}],
    "message_thread_id": 7,
    "is_topic_message": True,
    "reply_to_message": REPLIED,
    "external_reply": {"origin": {}, "photo": [{**FILE, "width": 9, "height": 9}]},
    "quote": {"text": "part", "position": 0},
    "reply_to_story": {"id": 1, "chat": CHAT},
    "forward_origin": {"type": "user", "sender_user": PERSON, "date": 1},
    "forward_date": 1,
    "forward_sender_name": "Eve",
    "via_bot": {"id": 5, "is_bot": True, "first_name": "Wiki"},
    "media_group_id": "77",
    "photo": [{**FILE, "width": 90, "height": 90}, {**FILE, "width": 9, "height": 9}],
    "live_photo": {**FILE, "photo": [{**FILE, "width": 9, "height": 9}]},
    "animation": FILE,
    "document": FILE,
    "audio": FILE,
    "voice": FILE,
    "video": FILE,
    "video_note": FILE,
    "sticker": {**FILE, "emoji": "😀", "is_animated": False, "is_video": False},
    "location": {"latitude": 1.5, "longitude": 2.5, "live_period": 5},
    "venue": {"title": "Inn", "address": "x", "location": {"latitude": 1, "longitude": 2}},
    "contact": {"first_name": "A", "last_name": "B", "phone_number": "+1"},
    "poll": {"question": "q", "options": [{"text": "a"}, {"text": "b"}]},
    "dice": {"emoji": "🎲", "value": 4},
    "checklist": {"title": "t", "tasks": [{"id": 1, "text": "x", "completion_date": 1}]},
    "story": {"id": 1, "chat": CHAT},
    "paid_media": {"star_count": 1},
    "game": {"title": "g"},
    "invoice": {"title": "i"},
    "migrate_to_chat_id": -1005,
    "migrate_from_chat_id": -1006,
    "is_automatic_forward": True,
    "business_connection_id": "b",
    "guest_query_id": "g",
    "forum_topic_created": {"name": "t"},
    "pinned_message": REPLIED,
}
NEEDED = ("message_id", "date", "chat", "from")

letters = st.characters(exclude_categories=()) | st.sampled_from("\ud800\udfff\x00\u2028@/[]😀")
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**64, 10**100, -(10**100)])
    | st.floats()
    | st.text(letters, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "text", "type", "file_id", "offset", "user", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
deletion = object()


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """A message as Telegram makes it, with some things in it replaced, taken out or added."""
    optional = [key for key in WHOLE if key not in NEEDED]
    chosen = draw(st.lists(st.sampled_from(optional), max_size=6, unique=True))
    message: Any = copy.deepcopy({key: WHOLE[key] for key in (*NEEDED, *chosen)})
    for _ in range(draw(st.integers(0, 3))):
        _spoil(draw, message)
    return message


def _spoil(draw: st.DrawFn, value: Any) -> None:
    """Go down somewhere, and do something to what is there."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw(st.booleans()):
            value = inner
            continue
        what = draw(st.sampled_from(["replace", "remove", "add", "null"]))
        if what == "remove":
            del value[key]
        elif what == "add" and isinstance(value, dict):
            value[draw(st.text(letters, max_size=5))] = draw(junk)
        else:
            value[key] = None if what == "null" else draw(junk)
        return


numbers = st.integers(-3, 3) | st.integers() | st.sampled_from([None, "5", True, 2**53 + 1])


@st.composite
def updates(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(junk)
    kinds = ["message", "message", "edited_message", "channel_post", "callback_query"]
    kind = draw(st.sampled_from(kinds))
    update: dict[str, Any] = {"update_id": draw(numbers), kind: draw(messages() | junk)}
    if draw(st.booleans()):
        update[draw(st.sampled_from(["edited_message", "my_chat_member", "hologram"]))] = draw(junk)
    if draw(st.integers(0, 9)) == 0:
        del update["update_id"]
    return update


def _check(message: InboundMessage) -> None:
    """What every border behind it takes for granted."""
    assert message.text.strip() or message.attachments
    assert message.sender_id.lstrip("-").isdecimal()
    assert message.chat_id.lstrip("-").isdecimal()
    assert message.sender_id != "42"
    record = record_of(message, kind="message", group_sessions_per_user=True, now=1.0)
    payload = json.loads(json.dumps(record.payload, allow_nan=False))
    again = InboxRecord(**{
        field: payload if field == "payload" else getattr(record, field)
        for field in InboxRecord.__dataclass_fields__
    })  # fmt: skip
    assert message_of(again) == replace(message, addressed=True)
    for text in (message.text, message.sender_name, message.quoted_text, message.forwarded_from):
        (text or "").encode()
    for file in message.attachments:
        assert file.ref
        assert file.size_bytes is None or file.size_bytes >= 0
        f"{file.ref}{file.file_name}{file.media_type}{file.label}".encode()


@settings(max_examples=300)
@given(updates())
def test_a_value_or_nothing_or_a_clean_error(update: Any) -> None:
    try:
        news = convert(update, ME)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return
    match news:
        case Said(message) | Edited(message):
            _check(message)
        case Moved(old, new):
            assert old != new
            assert old.startswith("-")
            assert new.startswith("-")
        case None:
            pass


class _Server:
    """Keeps updates until an offset confirms them, as Telegram does; those without a number too."""

    def __init__(self, updates: list[Any]) -> None:
        self.left = list(updates)
        self.polls = 0
        self.drained = asyncio.Event()

    async def updates(self, offset: int | None, *, wait: bool) -> list[Any]:
        self.polls += 1
        if offset is not None:
            assert offset >= 0, "Telegram would forget what nobody has read"
            self.left = [u for u in self.left if (update_id(u) is None or update_id(u) >= offset)]
        confirmable = [u for u in self.left if update_id(u) is not None]
        if not confirmable and (self.polls > 1 or not self.left):
            self.drained.set()
            await asyncio.Event().wait()
        return list(self.left)

    async def renew_polling(self) -> None: ...


@settings(max_examples=100)
@given(st.lists(updates(), max_size=8), st.integers(0, 3))
async def test_nothing_stops_the_loop_and_the_offset_moves(batch: list[Any], failures: int) -> None:
    good = {"update_id": 2**40, "message": {key: WHOLE[key] for key in (*NEEDED, "text")}}
    intake, clock = RecordingIntake(), FakeClock()
    intake.failures = failures
    server = _Server([*batch, good])
    reports = Reports()
    incoming = Incoming(lambda u: convert(u, ME), "42", intake, reports, clock)
    loop = PollLoop(server, incoming, reports, clock, PollTimes(1, 1))
    task = asyncio.create_task(loop.run())
    while not server.drained.is_set():
        await clock.advance(clock.next_wake_seconds or 0.0)
        assert not task.done()
    task.cancel()
    assert any(m.update_id == str(2**40) for m in (*intake.messages, *intake.doubles))
    for _, raw, reason in intake.quarantined:
        f"{raw}{reason}".encode()


@given(
    st.text(letters, max_size=40),
    st.lists(st.tuples(st.integers(-2, 45), st.integers(-2, 45)), max_size=5),
)
def test_marks_of_any_text(text: str, spans: list[tuple[int, int]]) -> None:
    """Each stands where it says in UTF-16, and taking an address away takes nothing else."""
    entities = [{"type": "mention", "offset": at, "length": size} for at, size in spans]
    got, marks = read_text({"text": text, "entities": entities})
    units = text.encode("utf-16-le", "surrogatepass")
    assert got == text
    for mark in marks:
        assert (
            mark.text.encode("utf-16-le", "surrogatepass") == units[mark.start * 2 : mark.end * 2]
        )
    if not any(mark.names(42, "Post_Bot") for mark in marks):
        assert without_address(text, marks, 42, "Post_Bot") == text.strip()


def _joined(text: str) -> str:
    """Two halves that stand side by side are one letter, to UTF-16 and so to Telegram."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@given(
    st.text(letters.filter(lambda ch: ch not in " \t\r\n,:"), min_size=1, max_size=20),
    st.sampled_from(["", " ", "  ", ": ", ", ", "\n"]),
    st.sampled_from(["@post_bot", "@POST_BOT", "@Post_Bot"]),
    st.text(letters, max_size=10),
)
def test_an_address_in_front_goes_and_one_behind_stays(
    said: str, between: str, name: str, before: str
) -> None:
    said = _joined(said).strip()
    if not said:
        return
    text = f"{name}{between}{said}"
    marks = read_text({"text": text, "entities": [{"type": "mention", "offset": 0, "length": 9}]})[
        1
    ]
    assert without_address(text, marks, 42, "Post_Bot") == said
    text = f"x{_joined(before)}{said} {name}"
    at = len(text.encode("utf-16-le", "surrogatepass")) // 2 - 9
    marks = read_text({"text": text, "entities": [{"type": "mention", "offset": at, "length": 9}]})[
        1
    ]
    assert without_address(text, marks, 42, "Post_Bot") == _joined(text).strip()
    assert any(mark.names(42, "Post_Bot") for mark in marks)
