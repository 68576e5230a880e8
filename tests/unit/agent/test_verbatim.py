"""Exact identifiers and quotes: found where a paraphrase would lose them, in any text."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.calls.summary import BODY_CHARS, Readables, in_parts
from agent.compaction.plan.frame import Quote, SummaryText
from agent.compaction.plan.verbatim import choose_quotes, find_identifiers, search
from agent.messages import Message, orphan_results, pairs_are_whole, unanswered_calls
from agent.model_metadata import estimate_tokens_rough


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("look at /srv/app/main.py, please", ["/srv/app/main.py"]),
        ("see (https://example.org/a?b=1).", ["https://example.org/a?b=1"]),
        ("in ~/notes and ./src/x.ts", ["~/notes", "./src/x.ts"]),
        ("edit config.yaml now", ["config.yaml"]),
        ("id 3f2a9c1d8e7b", ["3f2a9c1d8e7b"]),
        ("123e4567-e89b-12d3-a456-426614174000", ["123e4567-e89b-12d3-a456-426614174000"]),
        ("ticket ABC-1234 is open", ["ABC-1234"]),
        ("it cost 12,345.67 in all", ["12,345.67"]),
        ("会话在/srv/数据库/a.log里", []),
        ("文件 /srv/数据.log 很大", ["/srv/数据.log"]),
        ("x\nValueError: no such file\ny", ["ValueError: no such file"]),
        ("/srv/a.py:3: TypeError: bad", ["/srv/a.py:3: TypeError: bad"]),
        ("出现错误了", ["出现错误了"]),
        ("nothing but plain words. And more!", []),
        ("password: hunter22 in /etc/app", ["/etc/app"]),
        ("", []),
    ],
)
def test_what_is_exact_is_found(text: str, found: list[str]) -> None:
    assert list(search(text)) == found


def test_a_deep_path_is_one_identifier() -> None:
    path = "/" + "/".join(f"name{i}" for i in range(25))
    assert search(f"see {path} there") == (path,)


@pytest.mark.parametrize(
    "text",
    ["/-" * 50_000, "/a" * 50_000, "a-" * 50_000, "1," * 50_000, "a.b" * 30_000, "Error" * 20_000],
)
def test_hostile_texts_are_searched_like_others(text: str) -> None:
    """Not timed: with one quadratic expression this test would take minutes."""
    assert all(3 < len(item) <= 220 for item in search(text))


@given(st.text(st.sampled_from("ab/.-:, 1\n错误Error~+@%"), max_size=120))
def test_identifiers_are_words_of_the_text(text: str) -> None:
    flat = " ".join(text.split())
    for item in search(text):
        assert item in flat


def user(text: str, row: int) -> Message:
    return cast(Message, {"role": "user", "content": text, "_row": row})


@given(
    st.lists(st.text(max_size=300), max_size=30),
    st.integers(0, 400),
    st.lists(st.text(min_size=1, max_size=60), max_size=3),
)
def test_every_message_is_quoted_or_listed(
    texts: list[str], budget: int, earlier: list[str]
) -> None:
    asked = [user(text, i) for i, text in enumerate(texts, start=10)]
    previous = SummaryText("", quotes=tuple(Quote(t, i) for i, t in enumerate(earlier)))
    quotes, left_out = choose_quotes(asked, previous, budget)
    named = [quote.row_id for quote in quotes] + list(left_out)
    assert sorted(n for n in named if n is not None) == sorted(
        [*range(10, 10 + len(texts)), *range(len(earlier))]
    )
    # newest first, and within the budget but for a note about a cut
    new = [q.row_id for q in quotes if q.row_id is not None and q.row_id >= 10]
    assert new == sorted(new, reverse=True)
    assert sum(estimate_tokens_rough(quote.text) for quote in quotes) <= budget + 24


def test_identifiers_come_newest_first_with_their_rows() -> None:
    messages = [user("/srv/one", 1), user("/srv/two and /srv/one", 2)]
    kept, complete = find_identifiers(messages, ("/srv/zero (m0)",), 1000)
    assert kept == ("/srv/two (m2)", "/srv/one (m2)", "/srv/zero (m0)")
    assert complete
    kept, complete = find_identifiers(messages, (), 6)
    assert kept == ("/srv/two (m2)",)
    assert not complete


@given(
    st.lists(st.tuples(st.sampled_from("a会\n"), st.integers(0, 8000)), min_size=1, max_size=25),
    st.integers(200, 6000),
    st.integers(0, 3000),
)
def test_parts_fit_and_hold_every_message_in_order(
    texts: list[tuple[str, int]], limit: int, less: int
) -> None:
    messages = [user(f"<{i}> {char * size}", i) for i, (char, size) in enumerate(texts)]
    parts = in_parts(Readables(messages), limit, limit_of_many=limit - less)
    each = limit if len(parts) == 1 else max(64, limit - less)
    assert all(estimate_tokens_rough(part) <= each + 64 for part in parts)
    whole = "\n".join(parts)
    places = [whole.find(f"<{i}>") for i in range(len(messages))]
    if "messages are not shown here" not in whole:
        assert all(place >= 0 for place in places)
    shown = [place for place in places if place >= 0]
    assert shown == sorted(shown)


def test_little_text_is_shown_whole() -> None:
    long = "x" * (BODY_CHARS[0] + 1000)
    assert long in in_parts(Readables([user(long, 1)]), 50_000)[0]


_ROLES = st.sampled_from(["user", "assistant", "tool"])


@given(
    st.lists(
        st.tuples(_ROLES, st.lists(st.sampled_from("xyz"), max_size=3), st.sampled_from("xyz")),
        max_size=12,
    )
)
def test_pairs_are_whole_says_what_the_long_way_says(
    drawn: list[tuple[str, list[str], str]],
) -> None:
    messages: list[Any] = []
    for role, calls, answers in drawn:
        message: dict[str, Any] = {"role": role, "content": "x"}
        if role == "tool":
            message["tool_call_id"] = answers
        elif calls:
            function = {"name": "f", "arguments": "{}"}
            message["tool_calls"] = [{"id": call, "function": function} for call in calls]
        messages.append(message)
    if pairs_are_whole(messages):
        assert not orphan_results(messages)
        assert not unanswered_calls(messages)
    elif all(len(set(calls)) == len(calls) for _, calls, _ in drawn):
        assistants_only = all(m["role"] == "assistant" or "tool_calls" not in m for m in messages)
        if assistants_only:
            assert orphan_results(messages) or unanswered_calls(messages)
