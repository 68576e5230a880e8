"""Owns the properties of what the store does to lists and texts: codec, repair, search pieces."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.messages import (
    Draft,
    Keep,
    Message,
    Row,
    clean_text,
    orphan_results,
    tool_call_ids,
    unanswered_calls,
)
from storage.codec import clean, clean_json, decode_row, dump_json, encode
from storage.repair import is_newer, is_sound, plan_repair, state_of_item
from storage.search.question import read_question
from storage.search.ranking import Candidate, best_first, excerpt, rank, rarity_among
from storage.search.snippet import SNIPPET_CHARS, snippet
from storage.segment import folded, segmented
from storage.titles import next_title

anything = st.text(alphabet=st.characters())  # halves of surrogates included
parts = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"]), "text": anything}),
    max_size=3,
)
contents = st.none() | anything | parts
blocks = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)
functions = st.fixed_dictionaries({"name": anything, "arguments": anything})
calls = st.lists(
    st.fixed_dictionaries({"id": anything, "type": st.just("function"), "function": functions}),
    max_size=2,
)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    message: dict[str, Any] = {
        "role": draw(st.sampled_from(["user", "assistant", "tool"])),
        "content": draw(contents),
    }
    optional = {
        "tool_calls": calls,
        "tool_call_id": anything,
        "name": anything,
        "anthropic_content_blocks": st.lists(
            st.dictionaries(anything, blocks, max_size=3), max_size=2
        ),
        "_row": st.integers(),
        "cache_control": st.just({"type": "ephemeral"}),
    }
    for key, values in optional.items():
        if draw(st.booleans()):
            message[key] = draw(values)
    return Draft(
        message,
        draw(contents),
        draw(st.sampled_from([None, "note"])),
        draw(st.none() | st.integers(1, 9)),
    )  # type: ignore[arg-type]


@given(drafts())
def test_a_row_comes_back_as_it_was_said_to_be_stored(draft: Draft) -> None:
    columns, message, wire = encode(draft)
    db = sqlite3.connect(":memory:")
    marks = ", ".join("?" * len(columns))
    (back,) = db.execute(f"SELECT {marks}", columns).fetchall()
    db.close()
    row = decode_row((7, "s", 3, 1.5, 11, *back))
    assert (row.message, row.wire_content) == (message, wire)
    assert (row.kind, row.origin_id) == (draft.kind, draft.origin_id)
    assert not any(key.startswith("_") or key == "cache_control" for key in row.message)
    # Raw blocks: identical to the character. All else: what can be encoded, unchanged.
    given_blocks = draft.message.get("anthropic_content_blocks") or None
    assert row.message.get("anthropic_content_blocks") == given_blocks
    visible = json.dumps(
        [row.message["content"], row.message.get("tool_calls")], ensure_ascii=False
    )
    visible.encode()
    original = [draft.message["content"], draft.message.get("tool_calls") or None]
    if clean(text := json.dumps(original, ensure_ascii=False)) == text:
        assert [row.message["content"], row.message.get("tool_calls")] == original


@given(anything)
def test_clean_text_can_be_encoded_and_valid_text_is_untouched(text: str) -> None:
    assert clean(text) == clean_text(text)
    clean(text).encode()
    assert clean(clean(text)) == clean(text)


@given(blocks)
def test_json_keeps_every_string(value: Any) -> None:
    text = dump_json(value)
    text.encode()
    assert json.loads(text) == value
    json.dumps(clean_json(value), ensure_ascii=False).encode()


# --- repair -------------------------------------------------------------------------------------

ids = st.sampled_from("abc")


def _message(shape: tuple[str, list[str]]) -> Message:
    kind, names = shape
    if kind == "call" and names:
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": n, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for n in dict.fromkeys(names)
            ],
        }
    if kind == "result" and names:
        return {"role": "tool", "content": "r", "tool_call_id": names[0]}
    return {"role": "user" if kind == "user" else "assistant", "content": "t"}


shapes = st.tuples(st.sampled_from(["user", "said", "call", "result"]), st.lists(ids, max_size=3))
lists = st.lists(shapes.map(_message), max_size=12).map(
    lambda messages: [Row(i, "s", i, message, 0.0) for i, message in enumerate(messages, start=1)]
)


@given(lists)
def test_a_repaired_list_is_sound_and_stays_so(rows: list[Row]) -> None:
    repair = plan_repair(rows)
    messages = [row.message for row in rows]
    if repair is None:
        assert unanswered_calls(messages) == []
        assert orphan_results(messages) == []
        return
    known = {row.id: row for row in rows}
    fixed = [
        known[entry.row_id] if isinstance(entry, Keep) else Row(100 + i, "s", 0, entry.message, 0.0)
        for i, entry in enumerate(repair.entries)
    ]
    after = [row.message for row in fixed]
    assert unanswered_calls(after) == []
    assert orphan_results(after) == []
    assert plan_repair(fixed) is None
    # Nothing but results without a call is taken out, and nothing is moved.
    kept = [entry.row_id for entry in repair.entries if isinstance(entry, Keep)]
    assert kept == sorted(kept)
    assert all(known[i].message["role"] == "tool" for i in known.keys() - set(kept))
    if repair.is_append:
        assert kept == list(known)
        assert [e for e in repair.entries if isinstance(e, Draft)] == list(repair.stubs)
        assert fixed[: len(rows)] == rows


@given(lists)
def test_the_quick_check_agrees_with_the_slow_ones(rows: list[Row]) -> None:
    messages = [row.message for row in rows]
    slow = not unanswered_calls(messages) and not orphan_results(messages)
    assert is_sound(rows) == slow
    assert all(tool_call_ids(m) for m in messages if "tool_calls" in m)


# --- search -------------------------------------------------------------------------------------

mixed = st.text(
    alphabet=st.sampled_from("墨水瓶のカタ𠀀字ab c1.-_'\"*🎉👩\u200d\u0301\ufe0f\n\x00가"),
    max_size=60,
)


@given(mixed, mixed, mixed)
def test_a_run_of_cjk_is_found_by_each_of_its_pieces(before: str, run: str, after: str) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE i USING fts5 (t, content = '', tokenize = 'porter unicode61')")
    text = f"{before} 鯨{run}鷹 {after}"
    db.execute("INSERT INTO i (rowid, t) VALUES (1, ?)", (segmented(text),))
    for query in ("鯨", "鷹", text):
        match = " OR ".join(term.match for term in read_question(query).terms)
        assert db.execute("SELECT rowid FROM i WHERE i MATCH ?", (match,)).fetchall() == [(1,)], (
            query
        )
    db.close()


@given(st.one_of(anything, mixed))
def test_no_question_is_a_syntax_error(query: str) -> None:
    terms = read_question(clean(query)).terms
    if not terms:
        return
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE i USING fts5 (t, content = '', tokenize = 'porter unicode61')")
    db.execute("SELECT rowid FROM i WHERE i MATCH ?", (" OR ".join(t.match for t in terms),))
    db.close()


@given(st.one_of(anything.map(clean), mixed), mixed)
def test_a_snippet_is_short_whole_and_from_the_text(text: str, query: str) -> None:
    cut = snippet(text, [term.needle for term in read_question(query).needles])
    assert len(cut) <= SNIPPET_CHARS + 2 + 16
    cut.encode()
    inside = cut.removeprefix("…").removesuffix("…").strip()
    assert inside in " ".join(text.split())
    if text.strip() and not cut.startswith("…"):
        assert inside[:1] not in {"\u200d", "\u0301", "\ufe0f"} or " ".join(
            text.split()
        ).startswith(inside[:1])


def _candidates(texts: list[str]) -> list[Candidate]:
    return [Candidate(i, "s", "user", 0.0, text, 1.0) for i, text in enumerate(texts, start=1)]


@given(st.lists(mixed, max_size=5), mixed)
def test_every_candidate_comes_back_once_and_in_order(texts: list[str], query: str) -> None:
    question = read_question(query)
    candidates = _candidates(texts)
    rarity = rarity_among(question, texts)
    ordered = best_first(
        question,
        candidates,
        rarity,
        lambda best: {c.message_id: [(1, o) for o in candidates if o != c] for c in best},
        len(texts),
    )
    assert sorted(r.candidate.message_id for r in ordered) == list(range(1, len(texts) + 1))
    scores = [r.score for r in ordered]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)


@given(mixed, mixed)
def test_what_is_held_is_really_there(text: str, query: str) -> None:
    question = read_question(query)
    (ranked,) = rank(question, _candidates([text]), rarity_among(question, [text]))
    assert all(needle in folded(text) for needle in ranked.held)
    present = {t.needle for t in question.needles if t.needle and t.is_in(folded(text))}
    assert ranked.held <= present
    assert bool(ranked.held) == bool(present)


@given(st.text(alphabet="abc İß墨é.\n", max_size=40), st.integers(0, 400), mixed)
def test_an_excerpt_keeps_what_is_looked_for(word: str, times: int, query: str) -> None:
    text = f"{word} " * times + "needle in it " + f"{word} " * times
    terms = [*read_question(query).needles, *read_question("needle").terms]
    low, plain = excerpt(text, terms)
    assert len(low) == len(plain)
    assert "needle in it" in low
    assert len(low) <= 4_000 + 2 * 1_200 or len(text) <= 4_000


@given(st.one_of(anything.map(clean), mixed))
def test_folding_a_folded_text_changes_nothing(text: str) -> None:
    once = folded(text)
    assert folded(once) == once


def test_a_row_in_the_making_becomes_a_row_like_any_other() -> None:
    """It is filled unfrozen and then given its real class: what was saved must not show."""
    made = decode_row((7, "s", 3, 1.5, 11, "user", "hi", 0, None, 0, *[None] * 4, "note", 2))
    built = Row(7, "s", 3, {"role": "user", "content": "hi"}, 1.5, None, "note", 2, 11)
    assert type(made) is Row
    assert (made, repr(made)) == (built, repr(built))
    assert dataclasses.replace(made, seq=4) == dataclasses.replace(built, seq=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.seq = 9  # type: ignore[misc]


def test_json_with_blanks_around_it_is_read_all_the_same() -> None:
    """Nobody here writes it, but somebody's script may."""
    columns = (7, "s", 3, 1.5, 11, "user", ' [{"type":"text"}] ', 1, None, 0, *[None] * 6)
    assert decode_row(columns).message["content"] == [{"type": "text"}]


# --- small decisions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "others", "expected"),
    [
        (None, [], None),
        ("Trip", ["Trip"], "Trip #2"),
        ("Trip #2", ["Trip", "Trip #2"], "Trip #3"),
        ("Trip", ["Trip", "Trip #7", "Other #9", None], "Trip #8"),
        ("#5", ["#5"], "#5 #2"),
        ("a\nb #2", ["a\nb #2"], "a\nb #3"),
        ("C #", ["C #"], "C # #2"),
    ],
)
def test_titles_are_numbered(
    title: str | None, others: list[str | None], expected: str | None
) -> None:
    assert next_title(title, others) == expected


states = st.sampled_from(["planned", "sending", "sent", "unknown", "failed"])


@given(st.lists(states, min_size=1, max_size=4))
def test_an_item_is_what_its_parts_are(parts: list[Any]) -> None:
    state = state_of_item(parts)
    assert (state == "failed") == ("failed" in parts)
    assert (state == "sent") == all(part == "sent" for part in parts)
    if state == "unknown":
        assert not {"planned", "sending"} & set(parts)
    if state == "planned":
        assert set(parts) == {"planned"}


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_numbers_compare_as_numbers(a: int, b: int) -> None:
    assert is_newer(str(a), str(b)) == (a > b)
    assert is_newer("0" + str(a), str(b)) == (a > b)


@given(anything, anything)
def test_ids_have_one_order(a: str, b: str) -> None:
    assert not (is_newer(a, b) and is_newer(b, a))
    assert not is_newer(a, a)
