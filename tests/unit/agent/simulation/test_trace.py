"""Traces: what is written is read again, and what is none is refused by its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.simulation.trace import (
    BUNDLED,
    MAX_EVENT_TOKENS,
    Event,
    Trace,
    TraceError,
    bundled,
    read_trace,
    write_trace,
)

HEADER = {"posthouse_trace": 1, "model": "claude-sonnet-5-5", "events": 3}
GOOD = [[0, "user", 40], [2.5, "call", 30], [1, "result", 900]]


def lines(header: Any = HEADER, events: Any = GOOD) -> list[str]:
    return [value if isinstance(value, str) else json.dumps(value) for value in (header, *events)]


def problem(found: list[str]) -> TraceError:
    with pytest.raises(TraceError) as caught:
        read_trace(found, "t.jsonl")
    assert str(caught.value).startswith(f"t.jsonl:{caught.value.line}: ")
    assert len(str(caught.value)) < 200
    return caught.value


events = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["user", "text"])),
        st.integers(1, 3).map(lambda n: ("call",) * n + ("result",) * n),
    ),
    max_size=20,
).flatmap(
    lambda groups: st.tuples(
        *(
            st.builds(
                Event,
                st.integers(0, 10**7).map(lambda tenths: tenths / 10),
                st.just(kind),
                st.integers(1, MAX_EVENT_TOKENS),
            )
            for group in groups
            for kind in group
        )
    )
)


@settings(max_examples=30, deadline=None)
@given(
    events=events,
    window=st.none() | st.integers(1000, 10_000_000),
    prefix=st.integers(0, 100_000),
    job=st.booleans(),
    about=st.text(max_size=60),
)
def test_what_is_written_is_read_again(
    events: tuple[Event, ...], window: int | None, prefix: int, job: bool, about: str
) -> None:
    about = about.encode("utf-8", "replace").decode()
    trace = Trace("m", events, window_tokens=window, prefix_tokens=prefix, job=job, about=about)
    text = "".join(write_trace(trace))
    assert read_trace(text.split("\n"), "t") == trace


def test_blank_lines_and_a_byte_order_mark_are_skipped() -> None:
    first, *rest = lines()
    assert read_trace(["", "\ufeff" + first + "\r", " ", *rest, ""], "t").events[2].tokens == 900


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", "the file is empty"),
        ("{", "no JSON"),
        ("[" * 100_000, "longer than 4096 characters"),
        ("[" * 4000, "no JSON"),
        ([], "no trace"),
        ({"model": "m", "events": 3}, "no trace"),
        ({**HEADER, "posthouse_trace": 2}, "a trace of format 2"),
        ({**HEADER, "posthouse_trace": True}, "a trace of format true"),
        ({"posthouse_trace": 1, "events": 3}, "the header has no model"),
        ({"posthouse_trace": 1, "model": "m"}, "the header has no events"),
        ({**HEADER, "model": ""}, "model must be a name"),
        ({**HEADER, "model": 5}, "model must be a name"),
        ({**HEADER, "events": -1}, "events must be a whole number"),
        ({**HEADER, "events": 3.0}, "events must be a whole number"),
        ({**HEADER, "events": 10**30}, "events must be a whole number"),
        ({**HEADER, "window_tokens": 0}, "window_tokens must be"),
        ({**HEADER, "max_tokens": 0}, "max_tokens must be"),
        ({**HEADER, "prefix_tokens": True}, "prefix_tokens must be"),
        ({**HEADER, "job": "yes"}, "job must be true or false"),
        ({**HEADER, "about": "x" * 301}, "about must be"),
        ({**HEADER, "text": "secret"}, 'the header knows no "text"'),
    ],
)
def test_a_header_that_is_none(header: Any, said: str) -> None:
    assert said in str(problem(lines(header, [] if header == "" else GOOD)))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("nonsense", "no JSON"),
        ('[1, "user", 5', "no JSON"),
        ('[NaN, "user", 5]', "NaN is no number"),
        ('[1e999, "user", 5]', "longer than ten years"),
        ({"gap": 1}, "an event is [gap in seconds, kind, tokens]"),
        ([1, "user"], "an event is"),
        ([-0.1, "user", 5], "the gap is negative"),
        ([10**400, "user", 5], "the gap is longer than ten years"),
        (["1", "user", 5], "the gap must be a number"),
        ([True, "user", 5], "the gap must be a number"),
        ([1, "system", 5], "unknown kind"),
        ([1, ["user"], 5], "unknown kind"),
        ([1, "user\u001b[31m", 5], "unknown kind"),
        ([1, "user", 0], "tokens must be"),
        ([1, "user", -3], "tokens must be"),
        ([1, "user", 1.5], "tokens must be"),
        ([1, "user", MAX_EVENT_TOKENS + 1], "tokens must be"),
        ([1, "user", None], "tokens must be"),
        ([1, "result", 5], "a result without a call"),
    ],
)
def test_an_event_that_is_none(event: Any, said: str) -> None:
    found = problem(lines(events=[GOOD[0], event, GOOD[1]]))
    assert said in str(found)
    assert found.line == 3
    assert "\u001b" not in str(found)


def test_a_file_that_was_cut_off() -> None:
    assert "ends after 2 of 3 events" in str(problem(lines(events=GOOD[:2])))


def test_a_file_with_more_than_it_promises() -> None:
    found = problem(lines(events=[*GOOD, [1, "text", 5]]))
    assert found.line == 5
    assert "no more" in str(found)


@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_ones_are_whole(name: str) -> None:
    trace = bundled(name)
    assert len(trace.events) > 2000
    assert trace.about
