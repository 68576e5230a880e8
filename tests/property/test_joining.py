"""Which rows are pieces of one message: however they are mixed, nothing is lost or moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mail import InboxItem
from gateway.delivery.splitting import utf16_len
from gateway.intake.pastes import CLOSE_SECONDS
from gateway.intake.records import COMMAND, MESSAGE, record_of
from gateway.lanes.joining import continues, joined_text, may_go_on
from gateway.platforms.contract import Attachment
from tests.fakes.platform import inbound

LIMIT = 40
PICTURE = Attachment("image", "ref")


def row(
    number: int, text: str, *, kind: str = MESSAGE, shared: bool = True, **say: Any
) -> InboxItem:
    message = inbound(text, message_id=str(number), **{"text_limit": LIMIT, **say})
    record = record_of(message, kind=kind, group_sessions_per_user=not shared, now=message.sent_at)
    return InboxItem(number, record, "new")


def groups(items: Sequence[InboxItem]) -> list[list[InboxItem]]:
    """As a lane puts rows together that all wait: with the newest that their sender said."""
    found: list[list[InboxItem]] = []
    for item in items:
        theirs = (g for g in reversed(found) if g[-1].record.owner == item.record.owner)
        newest = next(theirs, None)
        if newest is not None and continues(newest, item):
            newest.append(item)
        else:
            found.append([item])
    return found


class TestPastes:
    def test_cut_in_a_word(self) -> None:
        text = "x" * LIMIT
        pieces = [row(1, text), row(2, "yz")]
        assert groups(pieces) == [pieces]
        assert joined_text(pieces) == f"{text}yz"

    def test_cut_at_white_space_that_the_client_took_out(self) -> None:
        pieces = [row(1, "word " * 7 + "end"), row(2, "of it")]
        assert groups(pieces) == [pieces]
        assert joined_text(pieces) == "word " * 7 + "end\nof it"

    def test_white_space_that_is_still_there_is_enough(self) -> None:
        pieces = [row(1, "x" * 35 + "\n"), row(2, "y")]
        assert joined_text(pieces) == "x" * 35 + "\ny"

    def test_a_pair_that_did_not_fit_was_no_white_space(self) -> None:
        pieces = [row(1, "x" * (LIMIT - 1)), row(2, "😀 there")]
        assert joined_text(pieces) == "x" * (LIMIT - 1) + "😀 there"

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"sender_id": "222"}, "somebody else"),
            ({"chat_id": "9"}, "somewhere else"),
            ({"thread_id": "7"}, "another topic"),
            ({"sent_at": 1_800_000_000.0 + CLOSE_SECONDS + 0.1}, "later"),
            ({"quoted_text": "what?"}, "an answer to something else"),
            ({"album_id": "a"}, "an album"),
            ({"attachments": (PICTURE,)}, "a picture"),
            ({"forwarded_from": "Eve"}, "somebody else's words"),
            ({"kind": COMMAND}, "a command"),
        ],
    )
    def test_what_does_not_go_on(self, change: dict[str, Any], why: str) -> None:
        assert not continues([row(1, "x" * LIMIT)], row(2, "y", **change)), why
        if "quoted_text" not in change:  # the first piece may well be an answer
            assert not continues([row(1, "x" * LIMIT, **change)], row(2, "y")), why

    def test_the_reply_goes_on_with_its_own_quote(self) -> None:
        first = row(1, "x" * LIMIT, quoted_text="q")
        assert continues([first], row(2, "y"))
        assert continues([first], row(2, "y", quoted_text="q"))

    def test_a_short_text_or_an_unknown_limit_begins_nothing(self) -> None:
        assert not may_go_on([row(1, "x" * (LIMIT // 2))])
        for limit in (None, 0, -1, "4096"):
            assert not may_go_on([row(1, "x" * LIMIT, text_limit=limit)])

    @given(
        text=st.text(
            st.one_of(st.sampled_from("ab 😀\n漢"), st.characters(exclude_categories=["Cs"])),
            max_size=300,
        ),
        back=st.integers(0, 9),
    )
    def test_no_character_is_lost_or_moved(self, text: str, back: int) -> None:
        """A client that cuts at white space up to ``back`` units before its limit."""
        cut = _cut(text, back)
        pieces = [row(n, piece) for n, piece in enumerate(cut, 1)]
        assert groups(pieces) == [pieces]
        joined = joined_text(pieces)
        assert joined.split() == text.split() or "".join(joined.split()) == "".join(text.split())
        assert len(joined) <= len(text)
        if back == 0:
            assert joined == text


def _cut(text: str, back: int) -> list[str]:
    pieces: list[str] = []
    while utf16_len(text) > LIMIT:
        at = max(n for n in range(len(text) + 1) if utf16_len(text[:n]) <= LIMIT)
        spaces = [n for n in range(max(1, at - back), at) if text[n].isspace()] if back else []
        if spaces:
            pieces.append(text[: spaces[-1]])
            text = text[spaces[-1] + 1 :]
        else:
            pieces.append(text[:at])
            text = text[at:]
    return [*pieces, text]


class TestAlbums:
    def test_the_caption_stands_once_wherever_it_is(self) -> None:
        for at in range(3):
            pieces = [
                row(n, "look" if n == at else "", album_id="a", attachments=(PICTURE,))
                for n in range(3)
            ]
            assert groups(pieces) == [pieces]
            assert joined_text(pieces) == "look"

    def test_several_captions_stand_in_order(self) -> None:
        pieces = [row(n, t, album_id="a") for n, t in enumerate(["one", " ", "two"])]
        assert joined_text(pieces) == "one\n\ntwo"

    def test_another_chat_or_person_with_the_same_id(self) -> None:
        first = row(1, "", album_id="a")
        assert not continues([first], row(2, "", album_id="a", chat_id="5"))
        assert not continues([first], row(2, "", album_id="a", sender_id="5"))
        assert not continues([first], row(2, "", album_id="b"))

    def test_one_that_never_ends(self) -> None:
        pieces = [row(n, "", album_id="a") for n in range(25)]
        assert [len(group) for group in groups(pieces)] == [10, 10, 5]


SAID = st.tuples(
    st.sampled_from(["111", "222"]),
    st.sampled_from(["short", "x" * LIMIT, "", "y" * 33]),
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([MESSAGE, MESSAGE, COMMAND]),
    st.floats(0, 10),
)


@given(st.lists(SAID, max_size=30))
def test_every_row_is_in_one_message_and_the_order_stays(said: list[Any]) -> None:
    items = [
        row(n, text, kind=kind, sender_id=sender, album_id=album, sent_at=1.8e9 + at,
            chat_kind="group", chat_id="-1")
        for n, (sender, text, album, kind, at) in enumerate(said)
    ]  # fmt: skip
    found = groups(items)
    assert sorted(item.id for group in found for item in group) == [item.id for item in items]
    assert [group[0].id for group in found] == sorted(group[0].id for group in found)
    for group in found:
        assert [item.id for item in group] == sorted(item.id for item in group)
        assert len({item.record.owner for item in group}) == 1
        if len(group) > 1:
            assert all(item.record.kind == MESSAGE for item in group)
            between = [i for i in items if group[0].id < i.id < group[-1].id and i not in group]
            assert all(i.record.owner != group[0].record.owner for i in between)
