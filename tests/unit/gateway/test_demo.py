"""What the demo says at its end: what was found again, or that it was not."""

from __future__ import annotations

import pytest

from gateway.cli.demo import epilogue
from gateway.cli.demo_script import CODE, LOCKER
from storage.memory import MemoryStore
from tests.contract.store_suite import said, talk
from tests.fakes.clock import FakeClock, SequentialIds


async def _told(*answers: str, capsys: pytest.CaptureFixture[str]) -> tuple[bool, str]:
    store = MemoryStore(FakeClock(), SequentialIds())
    loaded = await talk(store, said("It is kept."), text=LOCKER)
    number = loaded.rows[0].id
    found = await epilogue(store, [answer.format(number=number) for answer in answers])
    return found, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("behind", ["", " (newer with the same words: m9)"])
async def test_the_line_that_was_found_stands_alone(
    behind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hit = f"m{{number}} · 2026-11-30 01:47 · user: {LOCKER}{behind}"
    answer = f"This is what I found:\n2 found, best first:\nm99 · x 01:47 · user: no\n{hit}\n"
    found, shown = await _told(answer, "Context 87 %", capsys=capsys)
    assert found
    assert f"Found again: “{LOCKER}” (message m1, session 1)" in shown


@pytest.mark.parametrize("answers", [(), ("Nothing found.",), (f"You wrote: “{CODE}”",)])
async def test_what_is_not_in_the_answer_is_not_claimed(
    answers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found, shown = await _told(*answers, capsys=capsys)
    assert not found
    assert f"NOT found: {CODE} is not in the last answer." in shown
    assert "Found again" not in shown
