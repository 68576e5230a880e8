"""Discord's menu, buttons, files and interactions, whatever is put into them."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.commands.menu import MenuEntry
from gateway.platforms.discord.convert import convert
from gateway.platforms.discord.native.menu import fingerprint, payload_of
from gateway.platforms.discord.native.pressed import Key, parse_key, read_pressed
from gateway.platforms.discord.out.parcels import Enclosed, Parcel
from gateway.platforms.discord.out.rows import rows_of
from tests.fakes.discord_server.errors import ApiError
from tests.fakes.discord_server.forms import check_components, check_files, command_problem

WORDS = st.text(max_size=120)
NAMES = st.one_of(st.sampled_from(["new", "status", "Ünï", "a b", "x" * 40, ""]), WORDS)
ENTRIES = st.lists(
    st.builds(
        MenuEntry,
        NAMES,
        WORDS,
        st.one_of(st.sampled_from(["", "[on|off]", "[a|a]", "<x|>", "[|]", "a|" * 40]), WORDS),
        admin_only=st.booleans(),
    ),
    max_size=8,
)
IDS = st.one_of(st.integers(0, 2**63 - 1).map(str), st.sampled_from(["", "x", "-1", None, 5, 1.5]))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
DATA = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {"name": st.one_of(NAMES, JSON), "type": st.one_of(st.just(1), JSON)},
        optional={
            "options": st.one_of(
                JSON, st.lists(st.fixed_dictionaries({"name": WORDS, "value": JSON}), max_size=3)
            )
        },
    ),
    st.fixed_dictionaries(
        {"component_type": st.one_of(st.just(2), JSON), "custom_id": st.one_of(WORDS, JSON)}
    ),
)
EVENTS = st.fixed_dictionaries(
    {
        "id": IDS,
        "application_id": IDS,
        "token": st.one_of(st.just("aW50ZXJhY3Rpb24"), WORDS, JSON),
        "type": st.one_of(st.integers(0, 7), JSON),
        "channel_id": IDS,
        "data": DATA,
    },
    optional={
        "guild_id": IDS,
        "member": st.one_of(JSON, st.fixed_dictionaries({"user": st.fixed_dictionaries({"id": IDS}),
                                                         "roles": JSON, "nick": JSON})),
        "user": st.one_of(JSON, st.fixed_dictionaries({"id": IDS, "username": JSON})),
        "channel": st.one_of(JSON, st.fixed_dictionaries({"id": IDS, "type": JSON})),
        "message": st.one_of(JSON, st.fixed_dictionaries({"id": IDS, "flags": JSON})),
        "context": JSON,
    },
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(ENTRIES)
def test_any_menu_is_one_that_discord_takes(entries: list[MenuEntry]) -> None:
    payload = payload_of(entries)
    problem = command_problem(payload)
    assert problem is None or problem.body() is None
    assert fingerprint(payload) == fingerprint(payload_of(entries))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=100), st.text(max_size=120)), max_size=30))
@example([("\ud800", "/a"), ("\u200b", "/b"), ("", "/b")])
def test_any_buttons_are_ones_that_discord_takes(buttons: list[tuple[str, str]]) -> None:
    rows = rows_of(buttons)
    check_components(rows)
    said = [button["custom_id"] for row in rows for button in row["components"]]
    assert set(said) <= {command for _, command in buttons}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=200), st.text(max_size=1_024)), max_size=5), st.text())
def test_bodies_with_files_ping_nobody(files: list[tuple[str, str]], content: str) -> None:
    enclosed = tuple(Enclosed(name, b"x", "x/y", told) for name, told in files)
    parcel = Parcel(content, (), enclosed)
    for quiet in (False, True):
        body = parcel.body(quiet=quiet)
        check_files(body, [(file.name, file.data, file.media_type) for file in enclosed])
        assert body["allowed_mentions"] == {"parse": []}


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_an_interaction_is_read_or_refused(event: dict[str, Any]) -> None:
    try:
        pressed = read_pressed(event)
    except ValueError:
        return
    assert parse_key(str(pressed.key)) == pressed.key
    message = convert(pressed.facts, 1)
    if pressed.name:
        assert message is None or message.text.startswith(f"/{pressed.name}")
    pressed.facts.text.encode()


@given(JSON)
def test_any_event_is_read_or_refused(event: Any) -> None:
    try:
        read_pressed(event)
    except ValueError:
        return


KEYS = st.builds(
    Key,
    st.integers(0, 10**20 - 1),
    st.integers(0, 10**20 - 1),
    st.from_regex(r"[A-Za-z0-9_.:=+-]{1,80}", fullmatch=True),
    is_press=st.booleans(),
    quiet=st.booleans(),
    private=st.booleans(),
    pressed_id=st.one_of(st.none(), st.integers(0, 10**20 - 1)),
)


@given(KEYS)
def test_a_key_outlives_a_restart(key: Key) -> None:
    assert parse_key(str(key)) == key


@given(st.one_of(st.text(), JSON, KEYS.map(lambda key: str(key).replace("/", "//"))))
def test_what_is_no_key_is_none(text: Any) -> None:
    key = parse_key(text)
    assert key is None or str(key) == text


def test_the_judge_of_menus_has_something_against_bad_ones() -> None:
    problem = command_problem([{"name": "Bad Name", "description": "x"}])
    assert isinstance(problem, ApiError)
