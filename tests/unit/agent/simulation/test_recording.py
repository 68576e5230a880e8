"""A stored conversation as a trace: sizes, times, and nothing that cannot be replayed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.simulation.recording import RowSize, events_of
from agent.simulation.trace import Event, Trace, read_trace, write_trace


def test_text_and_calls_of_an_answer_are_told_apart() -> None:
    rows = [
        RowSize("user", 40, 1000.0),
        RowSize("assistant", 100, 1003.5, True, (80, 40)),
        RowSize("tool", 900, 1004.0),
        RowSize("tool", 12, 1004.0),
        RowSize("assistant", 30, 1009.0, False),
    ]
    assert events_of(rows) == (
        Event(0.0, "user", 40),
        Event(3.5, "text", 54),
        Event(0.0, "call", 28),
        Event(0.0, "call", 18),
        Event(0.5, "result", 900),
        Event(0.0, "result", 12),
        Event(5.0, "text", 30),
    )


def test_a_silent_answer_gives_its_thinking_to_the_call() -> None:
    rows = [RowSize("user", 4, 0.0), RowSize("assistant", 500, 1.0, False, (40,))]
    assert events_of(rows)[1:] == (Event(1.0, "call", 500),)


def test_results_of_nothing_are_left_out_and_a_clock_that_was_set_back_is_a_gap_of_nothing() -> (
    None
):
    rows = [
        RowSize("tool", 5, 0.0),
        RowSize("assistant", 5, 1.0),
        RowSize("user", 5, 50.0),
        RowSize("tool", 5, 51.0),
        RowSize("assistant", 0, 40.0),
    ]
    assert events_of(rows) == (Event(49.0, "user", 5), Event(0.0, "text", 1))


sizes = st.builds(
    RowSize,
    st.sampled_from(["user", "assistant", "tool", "system"]),
    st.integers(0, 10**9),
    st.floats(-1e12, 1e12),
    st.booleans(),
    st.lists(st.integers(0, 10**7), max_size=4).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(sizes, max_size=30))
def test_whatever_is_stored_a_trace_of_it_can_be_read(rows: list[RowSize]) -> None:
    trace = Trace("m", events_of(rows))
    again = read_trace("".join(write_trace(trace)).split("\n"), "t")
    assert [e.kind for e in again.events] == [e.kind for e in trace.events]
