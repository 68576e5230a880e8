"""Conversations out of one store and into another: the same bytes again, whole or not at all."""

from __future__ import annotations

import io
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from agent.clock import RandomIds
from agent.errors import ImportRefused
from agent.exchange.jsonl import read_lines, write_lines
from agent.exchange.markdown import write_markdown
from agent.messages import Draft, Keep
from agent.sessions import CompressionState, SearchScope
from storage.files import read_portables
from storage.sqlite import open_store
from storage.store import SqlStore
from storage.titles import unique_title
from tests.contract.lineage_suite import compress, compress_in_place
from tests.contract.store_suite import (
    KEY,
    OWNER,
    SUMMARY,
    begin,
    calling,
    result,
    rewrite_of,
    said,
    split_of,
    talk,
    thinking,
)
from tests.fakes.clock import FakeClock
from tests.fakes.portables import portable_chain
from tests.fakes.store_invariants import check_invariants


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two homes."""
    async with AsyncExitStack() as stack:
        opened = []
        for name in ("a", "b"):
            path = tmp_path / f"{name}.db"
            store = await open_store(path, clock=FakeClock(), ids=RandomIds())
            stack.push_async_callback(store.close)
            opened.append(store)
        yield opened[0], opened[1]


Stores = tuple[SqlStore, SqlStore]


async def _exported(store: SqlStore, session_id: str) -> str:
    return "".join(write_lines([await store.portable(session_id)]))


async def test_export_import_export_gives_the_same_bytes(stores: Stores, tmp_path: Path) -> None:
    here, there = stores
    session_id = await _lived_conversation(here)
    await talk(there, said("somebody else's row, so that ids differ"))
    first = await _exported(here, session_id)

    taken = await there.take_in(read_lines(io.StringIO(first, newline="\n")))

    assert await _exported(there, taken[0].tip_session_id) == first
    await there.close()
    check_invariants(tmp_path / "b.db")


async def test_what_was_taken_in_is_found_and_its_references_lead_to_it(stores: Stores) -> None:
    store, _ = stores
    await talk(store, said("first"), said("second"))

    await store.take_in([portable_chain()])

    (hit,) = await store.search("hosts", SearchScope(conversation_id="c_one"))
    tip = await store.load("s_two")
    summary = tip.rows[0]
    assert f"recall ref m{hit.message_id}" in str(summary.message["content"])
    assert f"(m{hit.message_id})" in str(summary.message["content"])
    assert tip.rows[1].origin_id == hit.message_id + 1
    assert tip.session.parent_session_id == "s_one"
    assert tip.session.anchor is not None
    assert tip.session.anchor.through_row_id == tip.rows[1].id


async def test_a_compression_inside_a_session_can_be_undone_there_too(
    stores: Stores, tmp_path: Path
) -> None:
    here, there = stores
    await talk(there, said("somebody else's row, so that ids differ"))
    tip = await compress_in_place(here, await talk(here, said("a1"), said("a2")), keep=1)
    await begin(here, "since then")
    tip = await compress_in_place(here, await here.load(tip.session.id), keep=1)
    newest = await here.load(tip.session.id)
    state = CompressionState(
        count=2, seen_row_id=newest.rows[-1].root_id, micro_failed_row=newest.rows[-1].root_id
    )
    await here.set_compression(tip.session.id, state)
    first = await _exported(here, tip.session.id)

    await there.take_in(read_lines(io.StringIO(first, newline="\n")))

    assert await _exported(there, tip.session.id) == first
    whole, again = [await store.uncompressed(tip.session.id) for store in stores]
    assert [row.message for row in again] == [row.message for row in whole]
    arrived = await there.load(tip.session.id)
    seen = arrived.rows[-1].root_id
    assert seen != state.seen_row_id
    assert arrived.session.compression == replace(state, seen_row_id=seen, micro_failed_row=seen)
    await there.close()
    check_invariants(tmp_path / "b.db")


async def test_the_same_file_twice_changes_nothing(stores: Stores) -> None:
    store, _ = stores
    await store.take_in([portable_chain()])
    before = await store.list_sessions()

    with pytest.raises(ImportRefused, match="here already"):
        await store.take_in([portable_chain()])
    other = replace(portable_chain(), conversation_id="c_other")
    with pytest.raises(ImportRefused, match="s_one is here already"):
        await store.take_in([other])

    assert await store.list_sessions() == before


async def test_one_bad_conversation_keeps_all_of_its_file_out(stores: Stores) -> None:
    store, _ = stores
    good = portable_chain()
    first, second = good.sessions
    clash = replace(second.messages[1], seq=1)
    bad = replace(
        good,
        conversation_id="c_bad",
        sessions=(
            replace(first, id="s_three"),
            replace(second, id="s_four", messages=(second.messages[0], clash)),
        ),
    )
    with pytest.raises(ImportRefused, match="message 4 has the place of another one"):
        await store.take_in([good, bad])
    assert await store.list_sessions() == []


async def test_a_chain_that_is_not_whole_is_refused(stores: Stores) -> None:
    store, _ = stores
    chain = portable_chain()
    first, second = chain.sessions
    for sessions, says in (
        ((replace(first, ended_at=None), second), "has not ended"),
        ((first,), "one that is missing"),
        ((first, replace(second, messages=())), "is empty"),
        ((replace(first, end_reason="uncompress"), second), "a compression that is missing"),
    ):
        with pytest.raises(ImportRefused, match=says):
            await store.take_in([replace(chain, sessions=sessions)])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("trip #12", "trip #12"),
        ("x" * 100 + " #3", "x" * 100 + " #3"),
        ("x" * 200_000, "x" * 100),
        ("x" * 200_000 + " #3", "x" * 100 + " #3"),
        ("two\nlines \u202eand\x00 more", "two lines and more"),
        ("\u200b", None),
        ("", None),
    ],
)
async def test_a_name_becomes_one_that_could_be_given_here(
    stores: Stores, given: str, kept: str | None
) -> None:
    """Else its first branch would hold up the writer, and with it everybody, for minutes."""
    store, _ = stores
    chain = portable_chain()
    tip = replace(chain.sessions[-1], title=given)
    await store.take_in([replace(chain, sessions=(chain.sessions[0], tip))])

    assert (await store.session("s_two")).title == kept
    await store.resume(KEY, "c_one")
    fork = await store.branch("s_two", KEY, OWNER)
    assert (fork.title is None) == (kept is None)


def test_a_huge_name_is_counted_in_one_pass() -> None:
    assert unique_title("x" * 200_000, ["x" * 200_000]) == "x" * 96 + " (2)"


async def test_a_branch_stands_on_its_own(stores: Stores) -> None:
    here, there = stores
    loaded = await talk(here, said("answer"), text="the deep well")
    branch = await here.branch(loaded.session.id, KEY, OWNER)
    first = await _exported(here, branch.id)

    taken = await there.take_in(read_lines(io.StringIO(first, newline="\n")))

    assert await _exported(there, taken[0].tip_session_id) == first
    hits = await there.search("deep well", SearchScope(conversation_id=taken[0].conversation_id))
    assert [hit.role for hit in hits] == ["user"]


async def test_a_conversation_comes_in_where_its_chat_is_today(stores: Stores) -> None:
    here, there = stores
    session_id = await _lived_conversation(here)
    exported = await _exported(here, session_id)
    platform, bot_id, chat_id, *_ = json.loads(KEY)
    assert await there.move_chat(platform, bot_id, chat_id, "-100777")
    await there.take_in(read_lines(io.StringIO(exported, newline="\n")))
    (info,) = await there.conversations_of(OWNER)
    assert json.loads(info.session_key)[2] == "-100777"


async def test_what_was_taken_back_is_not_found_there_either(
    stores: Stores, tmp_path: Path
) -> None:
    """The original lies in an older session and looks like any other; only its copy was undone."""
    here, there = stores
    tip = await compress(here, await talk(here, said("the word is swordfish")), keep=2)
    assert (await here.undo(tip.session.conversation_id)).removed
    text = await _exported(here, tip.session.id)
    await there.take_in(read_lines(io.StringIO(text, newline="\n")))
    assert await there.search("swordfish", SearchScope()) == []
    await there.close()
    check_invariants(tmp_path / "b.db")


async def test_markdown_shows_every_original_once(stores: Stores) -> None:
    store, _ = stores
    await store.take_in([portable_chain()])
    text = "".join(write_markdown(await store.portable("s_one")))
    assert text.count("Right there.") == 1
    assert "## Session 2" in text
    assert "### Summary of what came before" in text


# --- files that are not as they should be ---------------------------------------------------------


def _lines() -> list[str]:
    return list(write_lines([portable_chain()]))


def _deep(levels: int) -> dict[str, object]:
    tree: dict[str, object] = {}
    for _ in range(levels - 1):
        tree = {"a": tree}
    return tree


def _refused(lines: list[str]) -> str:
    with pytest.raises(ImportRefused) as caught:
        read_lines(lines)
    return str(caught.value)


@pytest.mark.parametrize("keep", range(len(list(write_lines([portable_chain()])))))
def test_a_file_cut_off_after_any_line_is_refused(keep: int) -> None:
    assert "empty" in _refused([]) if keep == 0 else "cut off" in _refused(_lines()[:keep])


def test_a_file_cut_off_inside_any_line_is_refused() -> None:
    whole = "".join(_lines())
    for end in random.Random(7).sample(range(1, len(whole) - 1), 80):
        _refused(list(io.StringIO(whole[:end], newline="\n")))


def test_a_changed_character_is_noticed() -> None:
    lines = [line.replace("hosts", "ghost") for line in _lines()]
    assert "was changed" in _refused(lines)


def test_a_newer_format_says_what_to_do() -> None:
    lines = _lines()
    lines[0] = '{"posthouse_export":3}\n'
    assert "install the newer program" in _refused(lines)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.update(role="root"), "unknown role"),
        (lambda m: m.update(role=["user"]), "unknown role"),
        (lambda m: m.update(kind="god"), "unknown kind"),
        (lambda m: m.update(origin=9), "origin"),
        (lambda m: m.update(origin=True), "origin"),
        (lambda m: m.update(n=7), "is message 7"),
        (lambda m: m.update(seq=-1), "seq"),
        (lambda m: m.update(seq=2**70), "seq"),
        (lambda m: m.update(at="now"), "time at"),
        (lambda m: m.update(at=1e300), "no time"),
        (lambda m: m.update(at=253_402_300_799.0), "no time"),
        (lambda m: m.update(content=[{"type": "text", "n": float("inf")}]), "Infinity"),
        (lambda m: m.update(blocks=[_deep(201)]), "in one another"),
        (lambda m: m.update(content=5), "content"),
        (lambda m: m.update(content=["x"]), "content"),
        (lambda m: m.update(tool_calls=[{"id": 1}]), "broken tool call"),
        (lambda m: m.update(tool_calls="x"), "tool_calls"),
        (lambda m: m.update(blocks=[1]), "blocks"),
        (lambda m: m.update(blocks=[{"type": ["thinking"]}]), "blocks"),
        (lambda m: m.update(content=[{"type": {}}]), "content"),
        (lambda m: m.update(wire_content=[{"text": "untyped"}]), "content"),
        (lambda m: m.update(left_list="stolen"), "left the list"),
        (lambda m: m.update(type="drop table"), "unknown type"),
    ],
)
def test_a_hostile_message_is_refused_with_its_line(
    change: Callable[[dict[str, object]], None], says: str
) -> None:
    lines = _lines()
    message = json.loads(lines[3])
    change(message)
    lines[3] = json.dumps(message) + "\n"
    text = _refused(lines)
    assert text.startswith("line 4 ")
    assert says in text


@pytest.mark.parametrize(
    "line",
    ["[]", "7", "null", "{", "\u2028", '{"type":"message","n":1e999}', '{"a":NaN}', "[" * 100_000],
)
def test_a_line_that_is_no_object_is_refused(line: str) -> None:
    lines = _lines()
    lines[3] = line + "\n"
    _refused(lines)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../../x"},
        {"compression": {"count": "many"}},
        {"compression": []},
        {"tools": [{"name": 1}]},
        {"end_reason": "boredom"},
        {"ended_at": None, "end_reason": "reset"},
        {"anchor": [1, 2]},
        {"started_at": None},
        {"manifest": 3},
        {"replaced": 3},
        {"replaced": [[1, 1.0, 0]]},
        {"replaced": [[1, 1.0, 0, [9]]]},
        {"replaced": [[1, 1.0, 9, [1]]]},
        {"replaced": [[1, 1.0, 0, [1, 1]]]},
        {"replaced": [[1, 1.0, 0, [1]], [1, 1.0, 0, [1]]]},
        {"replaced": [[1, "then", 0, [1]]]},
        {"replaced": [[True, 1.0, 0, [1]]]},
        {"manifest": _deep(201)},
        {"model_config": _deep(201)},
    ],
)
def test_a_hostile_session_is_refused(change: dict[str, object]) -> None:
    lines = _lines()
    lines[2] = json.dumps({**json.loads(lines[2]), **change}) + "\n"
    _refused(lines)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "c_one",
        "[]",
        '["telegram"]',
        '["telegram","b","7",null]',
        '["telegram","b",7,null,"7"]',
        '["telegram", "b", "7", null, "7"]',
        "[" * 5_000,
        7,
    ],
)
def test_a_place_that_can_not_be_is_refused(key: object) -> None:
    """It would stand in the list of its owner's conversations, and every command reads it."""
    lines = _lines()
    lines[1] = json.dumps({**json.loads(lines[1]), "session_key": key}) + "\n"
    _refused(lines)


async def test_what_is_nested_as_deep_as_it_may_be_comes_through(stores: Stores) -> None:
    here, there = stores
    tool = {"name": "t", "description": "", "parameters": _deep(197)}
    session = replace(
        portable_chain().sessions[0],
        ended_at=None,
        end_reason=None,
        manifest=_deep(199),
        tools=(tool,),
    )
    await here.take_in([replace(portable_chain(), sessions=(session,))])
    first = await _exported(here, "s_one")
    await there.take_in(read_lines(io.StringIO(first, newline="\n")))
    assert await _exported(there, "s_one") == first


def test_a_number_that_json_can_not_give_back_is_refused() -> None:
    lines = _lines()
    lines[3] = lines[3].replace('"at":1.0', '"at":1.0,"content":[{"n":1e999}]')
    assert "line 4 holds the number 1e999" in _refused(lines)


def test_a_line_without_end_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.files.MAX_LINE_CHARS", 1_000)
    monkeypatch.setattr("agent.exchange.jsonl.MAX_LINE_CHARS", 1_000)
    path = tmp_path / "file"
    path.write_text('{"posthouse_export":1,"x":"' + "x" * 5_000, encoding="utf-8")
    with pytest.raises(ImportRefused, match="line 1 is too long"):
        read_portables(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"hello", b"PK\x03\x04", b"\x00" * 100])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ImportRefused):
        read_portables(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="can not be read"):
        read_portables(tmp_path / "none")
    with pytest.raises(ImportRefused, match="can not be read"):
        read_portables(tmp_path)


async def _lived_conversation(store: SqlStore) -> str:
    """Splits, a rewrite, thinking, tools, pictures, odd texts."""
    odd = "zwj 👩‍👩‍👧 \u2028 \x00 \u202e 界"
    loaded = await talk(
        store,
        thinking("because"),
        calling("a", "b"),
        result("a"),
        result("b"),
        Draft(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                ],
            },
            wire_content="as sent: look",
        ),
        said("fine"),
        text=odd,
    )
    kept = loaded.rows[-2:]
    summary = Draft(
        {
            "role": "user",
            "content": f"{SUMMARY.message['content']}\n(m{loaded.rows[0].id})\n"
            f"recall ref m{loaded.rows[3].id}, recall ref m999999",
        },
        kind="summary",
    )
    split = await store.split(
        replace(
            split_of(loaded, summary, *(Keep(row.id) for row in kept)),
            manifest={
                "covered": {"first_row": loaded.rows[0].id, "last_row": loaded.rows[4].id},
                "user_messages": {"quoted": [loaded.rows[0].id], "listed": []},
            },
        )
    )
    await begin(store, "go on")
    loaded = await store.load(split.tip.id)
    await store.rewrite(
        replace(
            rewrite_of(loaded, Keep(loaded.rows[0].id), Keep(loaded.rows[-1].id)),
        )
    )
    return split.tip.id
