"""Any chat's keys, and nobody else's, are in its range; a key in another chat is that chat's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.sessions import key_in, place_of, session_key
from storage.places import keys_of_chat, moved_keys

ids = st.text(alphabet='-1",[]\\é🎉\U0010ffff \ud83dn', max_size=4)
places = st.tuples(
    st.sampled_from(["telegram", "discord"]), ids, ids, st.none() | ids, st.none() | ids
)


@given(chat=st.tuples(st.sampled_from(["telegram", "discord"]), ids, ids), place=places)
def test_a_range_holds_a_chats_keys_and_no_others(
    chat: tuple[str, str, str], place: tuple[str, str, str, str | None, str | None]
) -> None:
    first, end = keys_of_chat(*chat)
    for where in (place, (*chat, *place[3:])):
        assert (first <= session_key(*where) < end) == (where[:3] == chat)


@given(place=places, heir=ids)
def test_a_key_in_another_chat(
    place: tuple[str, str, str, str | None, str | None], heir: str
) -> None:
    key = session_key(*place)
    assert place_of(key) == place
    moved = key_in(key, heir)
    assert place_of(moved) == (*place[:2], heir, None, place[4])
    first, end = keys_of_chat(*place[:2], heir)
    assert first <= moved < end
    assert key_in(moved, heir) == moved


@given(text=st.text(max_size=9) | st.sampled_from(["[1]", '["a","b","c",null,null] ', "[[[[["]))
def test_what_is_no_key_stays(text: str) -> None:
    assert place_of(text) is None
    assert key_in(text, "5") == text


@given(keys=st.lists(places.map(lambda place: session_key(*place)), max_size=6), heir=ids)
def test_the_chats_own_key_comes_first(keys: list[str], heir: str) -> None:
    moved = moved_keys(keys, heir)
    assert set(moved) == set(keys)
    threads = [place is not None and place[3] is not None for place in map(place_of, moved)]
    assert threads == sorted(threads)
