from __future__ import annotations

import asyncio
import json
from collections import deque
from itertools import islice
from typing import Any

import pytest

from agent.mail import Cursor
from gateway.platforms.contract import InboundMessage, PlatformState
from gateway.platforms.telegram.convert import Me, News, convert
from gateway.platforms.telegram.incoming import MAX_RAW_CHARS, Incoming
from gateway.platforms.telegram.polling import PollLoop, PollTimes
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake, Reports

ME = Me(42, "Post_Bot")
GROUP = -100


def said(number: int, text: str | None = None, **fields: Any) -> dict[str, Any]:
    chat = fields.pop("chat", 9)
    message = {
        "message_id": number,
        "date": 1_800_000_000,
        "chat": {"id": chat, "type": "private" if chat > 0 else "supergroup"},
        "from": {"id": 9, "is_bot": False, "first_name": "A"},
        "text": f"m{number}" if text is None else text,
        **fields,
    }
    return {"update_id": number, "message": message}


def to_bot(number: int, text: str, **fields: Any) -> dict[str, Any]:
    entities = [{"type": "mention", "offset": 0, "length": 9}]
    return said(number, f"@post_bot {text}", chat=GROUP, entities=entities, **fields)


def in_group(number: int, text: str | None = None, **fields: Any) -> dict[str, Any]:
    return said(number, text, chat=GROUP, **fields)


def picture(number: int, caption: str = "", album: str = "a", **fields: Any) -> dict[str, Any]:
    value = in_group(number, photo=[{"file_id": f"f{number}"}], media_group_id=album, **fields)
    del value["message"]["text"]
    if caption:
        value["message"]["caption"] = caption
        value["message"]["caption_entities"] = [{"type": "mention", "offset": 0, "length": 9}]
    return value


class Rig:
    def __init__(self) -> None:
        self.intake = RecordingIntake()
        self.reports = Reports()
        self.clock = FakeClock()
        self.incoming = Incoming(self._convert, "42", self.intake, self.reports, self.clock)

    def _convert(self, update: Any) -> News | None:
        return convert(update, ME)

    async def hand_in(self, *updates: Any) -> None:
        task = asyncio.create_task(self.incoming.hand_in_all(updates))
        while not task.done():
            await self.clock.advance(self.clock.next_wake_seconds or 0.0)
        await task

    @property
    def addressed(self) -> list[bool]:
        return [message.addressed for message in self.intake.messages]


async def test_a_chat_keeps_its_order_and_holds_up_no_other() -> None:
    rig = Rig()
    rig.intake.gate = asyncio.Event()
    many = [said(n, chat=chat) for n in range(100) for chat in (n // 50 + 1,)]
    task = asyncio.create_task(rig.incoming.hand_in_all([*many, said(900, chat=7)]))
    await rig.intake.until(lambda: len(rig.intake.events) == 3)
    assert rig.intake.events == ["waiting m0", "waiting m50", "waiting m900"]
    rig.intake.gate.set()
    await task
    by_chat = {"1": list(range(50)), "2": list(range(50, 100)), "7": [900]}
    for chat, numbers in by_chat.items():
        got = [int(m.message_id) for m in rig.intake.messages if m.chat_id == chat]
        assert got == numbers


class CountingIntake(RecordingIntake):
    """Many messages, at a price that does not grow with them."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, list[int]] = {}
        self.under_way = 0
        self.most_under_way = 0

    async def receive(self, message: InboundMessage, cursor: Cursor | None = None) -> bool:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.numbers.setdefault(message.chat_id, []).append(int(message.message_id))
        self.under_way -= 1
        return True


class Backlog:
    """What has gathered while nobody polled: ``gone`` tells that all of it is confirmed."""

    def __init__(self, updates: list[dict[str, Any]]) -> None:
        self._updates = deque(updates)
        self.gone = asyncio.Event()

    async def updates(self, offset: int | None, *, wait: bool) -> list[Any]:
        while self._updates and self._updates[0]["update_id"] < (offset or 0):
            self._updates.popleft()
        if not self._updates:
            self.gone.set()
            await asyncio.Event().wait()
        return list(islice(self._updates, 100))

    async def renew_polling(self) -> None: ...


async def test_ten_thousand_updates_after_a_downtime() -> None:
    """All of them once, each chat in its order, and never more than a batch under way."""
    intake, clock = CountingIntake(), FakeClock()
    incoming = Incoming(lambda u: convert(u, ME), "42", intake, Reports(), clock)
    backlog = Backlog([said(n, chat=n % 53 + 1) for n in range(10_000)])
    loop = PollLoop(backlog, incoming, Reports(), clock, PollTimes(1, 1))
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        await backlog.gone.wait()
    task.cancel()
    assert sum(map(len, intake.numbers.values())) == 10_000
    for chat, numbers in intake.numbers.items():
        assert numbers == list(range(int(chat) - 1, 10_000, 53))
    assert 1 < intake.most_under_way <= 53


async def test_doubles_and_disorder_in_a_batch_are_handed_in_as_they_come() -> None:
    rig = Rig()
    await rig.hand_in(said(7), said(3), said(7), said(5))
    assert rig.intake.texts == ["m7", "m3", "m5"]
    assert [m.update_id for m in rig.intake.doubles] == ["7"]


async def test_one_that_can_not_be_read_stops_nobody() -> None:
    rig = Rig()
    await rig.hand_in(said(1, 7), "junk", said(2), None, {"update_id": 3, "message": []}, said(4))  # type: ignore[arg-type]
    assert rig.intake.texts == ["m2", "m4"]
    assert sorted(number[:1] for number, *_ in rig.intake.quarantined) == ["1", "3", "?", "?"]


async def test_the_reason_of_a_quarantine_holds_nobodys_words() -> None:
    rig = Rig()
    await rig.hand_in(said(1, "x", entities=[{"offset": "secret words", "length": 1}]))
    ((_, raw, reason),) = rig.intake.quarantined
    assert "secret words" in raw
    assert reason.startswith("unreadable: ValueError in read_text, line ")


async def test_what_has_no_number_is_kept_once_by_its_content() -> None:
    rig = Rig()
    await rig.hand_in("junk", "junk", "other")
    numbers = [number for number, *_ in rig.intake.quarantined]
    assert len(numbers) == 3
    assert len(set(numbers)) == 2, "the store keeps one row per number"


@pytest.mark.parametrize("deep", [10, 100_000])
async def test_whatever_the_json_reader_takes_can_be_set_aside(deep: int) -> None:
    rig = Rig()
    value: Any = "bottom"
    for _ in range(deep):
        value = [value]
    await rig.hand_in({"update_id": 5, "message": value}, {"update_id": 10**5000, "message": 1})
    assert [number[0] for number, *_ in rig.intake.quarantined] == ["5", "?"]
    while isinstance(value, list):  # piece by piece: its own end is too deep as well
        value = value[0]


async def test_what_is_set_aside_has_an_end_and_no_half_letters() -> None:
    rig = Rig()
    await rig.hand_in({"update_id": 5, "message": "\ud800" * 200_000})
    ((_, raw, _),) = rig.intake.quarantined
    assert len(raw) == MAX_RAW_CHARS
    raw.encode()


async def test_the_store_is_away_everybody_waits_and_the_state_comes_back_once() -> None:
    rig = Rig()
    rig.intake.failures = 5
    await rig.hand_in(said(1, chat=1), said(2, chat=2), said(3, chat=1), {"update_id": 4})
    assert sorted(rig.intake.texts) == ["m1", "m2", "m3"]
    assert rig.reports.states.count(PlatformState.RUNNING) >= 1
    assert rig.reports.states[-1] is PlatformState.RUNNING
    first = rig.reports.states.index(PlatformState.RUNNING)
    assert rig.intake.events.index("stored m3") > rig.intake.events.index("stored m1")
    assert first >= 2


async def test_cut_off_while_the_store_is_away_the_next_one_is_well_again() -> None:
    rig = Rig()
    rig.intake.failures = 1
    task = asyncio.create_task(rig.incoming.hand_in_all([said(1)]))
    await rig.reports.wait(PlatformState.DEGRADED)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rig.intake.failures = 1
    await rig.hand_in(said(1))
    assert rig.reports.states[-1] is PlatformState.RUNNING


async def test_edits_and_moves_go_their_way_and_wait_for_the_store_too() -> None:
    rig = Rig()
    rig.intake.failures = 2
    edit = {"update_id": 1, "edited_message": said(1, "new")["message"]}
    move = in_group(2, migrate_to_chat_id=-1005)
    await rig.hand_in(edit, move)
    assert [message.text for message in rig.intake.edits] == ["new"]
    assert rig.intake.moves == [("-100", "-1005")]
    assert rig.intake.messages == []


# --- the pieces of what was addressed -----------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_an_album_is_for_the_bot_if_one_of_its_captions_says_so(at: int) -> None:
    rig = Rig()
    await rig.hand_in(*(picture(n, "@post_bot see" if n == at else "") for n in range(3)))
    assert rig.addressed == [True, True, True]


async def test_albums_of_others_and_other_albums_are_not() -> None:
    rig = Rig()
    other = {"id": 10, "is_bot": False, "first_name": "B"}
    await rig.hand_in(
        picture(1, "@post_bot see"), picture(2, album="b"), picture(3, **{"from": other})
    )
    assert rig.addressed == [True, False, False]


async def test_a_late_picture_of_an_album_belongs_to_it() -> None:
    rig = Rig()
    await rig.hand_in(picture(1, "@post_bot see"))
    await rig.hand_in(in_group(2, "talk"))
    await rig.incoming.hand_in_all([picture(3)])
    assert rig.addressed == [True, False, True]


async def test_the_rest_of_a_long_paste_is_for_the_bot() -> None:
    rig = Rig()
    long = "x" * 4000
    await rig.hand_in(
        to_bot(1, long),
        in_group(2, long, date=1_800_000_001),
        in_group(3, "the end", date=1_800_000_001),
        in_group(4, "to the others", date=1_800_000_002),
    )
    assert rig.addressed == [True, True, True, False]


@pytest.mark.parametrize(
    "follower",
    [
        in_group(2, "later", date=1_800_000_010),
        in_group(2, "somebody else", **{"from": {"id": 10, "is_bot": False, "first_name": "B"}}),
        in_group(2, "elsewhere", message_thread_id=7, is_topic_message=True),
        in_group(2, "passed on", forward_origin={"type": "hidden_user"}),
        picture(2),
    ],
)
async def test_what_is_no_rest_of_it(follower: dict[str, Any]) -> None:
    rig = Rig()
    await rig.hand_in(to_bot(1, "x" * 4000), follower)
    assert rig.addressed == [True, False]


async def test_a_short_question_has_no_rest() -> None:
    rig = Rig()
    await rig.hand_in(to_bot(1, "hello"), in_group(2, "you others"))
    assert rig.addressed == [True, False]


async def test_a_piece_that_comes_again_is_told_the_same() -> None:
    rig = Rig()
    await rig.hand_in(to_bot(1, "x" * 4000))
    for _ in range(2):
        await rig.incoming.hand_in_all([in_group(2, "the end")])
    assert rig.addressed == [True, True]
    assert [message.addressed for message in rig.intake.doubles] == [True]


async def test_a_restart_between_two_pieces_loses_none() -> None:
    before, after = Rig(), Rig()
    after.intake.messages = before.intake.messages
    await before.hand_in(to_bot(1, "x" * 4_000), picture(2, "@post_bot look", "b"))
    after.intake.failures = 1
    await after.incoming.remember()  # not now: no reason to take nothing
    await after.incoming.remember()
    await after.hand_in(in_group(3, "the rest"), picture(4, "", "b"), picture(5, "", "c"))
    assert after.addressed == [True, True, False, True, False]
    again = Rig()
    again.intake.messages = before.intake.messages[:1]
    await again.incoming.remember()
    await again.hand_in(in_group(3, "the rest"))
    assert again.addressed == [True, True]


async def test_what_is_remembered_of_pieces_is_bounded() -> None:
    rig = Rig()
    rig.incoming = Incoming(rig._convert, "42", CountingIntake(), rig.reports, rig.clock)
    for n in range(3_000):
        await rig.incoming.hand_in_all([picture(n, "@post_bot x", album=str(n))])
    state = json.dumps([len(rig.incoming._pieces._albums), len(rig.incoming._pieces._newest)])
    assert state == "[1000, 1]"
