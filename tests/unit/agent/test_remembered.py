"""What is remembered of texts: the same as worked out anew, within bounds, from any thread."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.calls.remembered import LARGEST_SHARE, Remembered


class Upper:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, text: str) -> str:
        self.seen.append(text)
        return text.upper()


def test_a_second_use_is_no_work() -> None:
    upper = Upper()
    remembered = Remembered(upper)
    assert [remembered("a"), remembered("b"), remembered("a")] == ["A", "B", "A"]
    assert upper.seen == ["a", "b"]


def test_what_was_not_used_for_longest_goes_first() -> None:
    upper = Upper()
    remembered = Remembered(upper, limit_bytes=20_000)
    for i in range(30):
        remembered("used again and again")
        remembered(f"a{i}" * 250)
    upper.seen.clear()
    remembered("used again and again")
    assert upper.seen == []
    remembered("a0" * 250)
    assert upper.seen == ["a0" * 250]


def test_a_huge_text_drives_nothing_out() -> None:
    upper = Upper()
    remembered = Remembered(upper, limit_bytes=50_000)
    remembered("small")
    huge = "x" * (50_000 // LARGEST_SHARE)
    assert remembered(huge) == huge.upper()
    upper.seen.clear()
    remembered("small")
    remembered(huge)
    assert upper.seen == [huge]


def test_a_text_that_stays_as_it_is_takes_no_room_to_speak_of() -> None:
    remembered = Remembered(str.upper)
    long = "X" * 2_000_000
    assert remembered(long) == long
    again = "X" * 2_000_000
    assert remembered(again) is again
    assert 0 < remembered.size_bytes < 1_000


def test_an_empty_result_counts_too() -> None:
    asked: list[str] = []

    def nothing(text: str) -> tuple[str, ...]:
        asked.append(text)
        return ()

    remembered = Remembered(nothing)
    assert remembered("x") == remembered("x") == ()
    assert asked == ["x"]


@given(st.lists(st.text(max_size=40), max_size=60), st.integers(0, 3000))
def test_always_right_and_never_too_large(texts: list[str], limit_bytes: int) -> None:
    remembered = Remembered(str.upper, limit_bytes=limit_bytes)
    for text in texts:
        assert remembered(text) == text.upper()
        assert 0 <= remembered.size_bytes <= limit_bytes


def test_threads_do_not_get_in_each_others_way() -> None:
    remembered = Remembered(str.upper, limit_bytes=8_000)
    wrong: list[str] = []

    def work(offset: int) -> None:
        for i in range(3000):
            text = f"text {(i * 7 + offset) % 60}"
            if remembered(text) != text.upper():
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 0 < remembered.size_bytes <= 8_000
