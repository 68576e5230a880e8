from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mail import Address, OutboxDraft, OutboxPart
from gateway import texts
from gateway.platforms.console.adapter import ConsolePlatform, StandardStreams
from gateway.platforms.console.convert import convert
from gateway.platforms.console.render import REPEAT_MARK, render
from gateway.platforms.console.streams import ERASE_LINE, MAX_LINE_BYTES, LineSplitter
from gateway.platforms.contract import PlatformState, SendUnavailable
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.intake import RecordingIntake, Reports

HERE = Address("console", "local", "local")


def part(text: str) -> OutboxPart:
    return OutboxPart(1, 1, 0, "planned", {"text": text})


async def nothing_owed() -> None:
    return None


def make(
    terminal: StandardStreams | None, clock: FakeClock | None = None, idle: object = nothing_owed
) -> ConsolePlatform:
    return ConsolePlatform(
        clock=clock or FakeClock(),
        ids=SequentialIds(),
        idle=idle,  # type: ignore[arg-type]
        standard=terminal,
    )


class BrokenPipe:
    def write(self, data: bytes, /) -> int:
        raise BrokenPipeError


class Stuttering(io.RawIOBase):
    """Takes three bytes at a time, and nothing every other time."""

    def __init__(self) -> None:
        self.taken = b""
        self._turn = 0

    def write(self, data: bytes, /) -> int | None:  # type: ignore[override]
        self._turn += 1
        if self._turn % 2:
            return None
        self.taken += data[:3]
        return min(3, len(data))


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()
    whole = LineSplitter()
    data = b"".join(chunks)
    assert lines == whole.feed(data) + whole.end()
    for line in lines:
        line.encode("utf-8")
        assert "\n" not in line


def test_a_line_that_never_ends_is_kept_in_bounds() -> None:
    splitter = LineSplitter()
    half = "é".encode()[:1]
    data = b"a" * (MAX_LINE_BYTES - 1) + half
    lines = []
    for _ in range(3):
        lines += splitter.feed(data)
    lines += splitter.feed(b"\nnext\n")
    assert lines == ["a" * (MAX_LINE_BYTES - 1), "next"]
    assert splitter.cut_lines == 1


async def test_lines_become_messages_and_the_end_waits_until_all_is_answered() -> None:
    answered = asyncio.Event()
    source = io.BytesIO("first\n\n  \r\n漢字 😀\r\nlast without end".encode())
    streams = StandardStreams(source, io.BytesIO(), prompt=io.StringIO())
    platform = make(streams, idle=answered.wait)
    intake, reports = RecordingIntake(), Reports()
    run = asyncio.create_task(platform.run(intake, reports))
    await intake.wait_messages(3)
    await asyncio.sleep(0)
    assert not run.done()
    answered.set()
    await run
    assert intake.texts == ["first", "漢字 😀", "last without end"]
    assert len({m.message_id for m in intake.messages}) == 3
    assert {m.chat_kind for m in intake.messages} == {"direct"}
    assert reports.states == [PlatformState.RUNNING]


async def test_a_script_is_taken_line_by_line_as_it_is_answered() -> None:
    """`printf 'hello\\n/whoami\\n' | posthouse chat`: a command would overtake the answer."""
    answers: asyncio.Queue[None] = asyncio.Queue()
    streams = StandardStreams(io.BytesIO(b"hello\n/whoami\nbye"), io.BytesIO())
    platform = make(streams, idle=answers.get)
    intake = RecordingIntake()
    run = asyncio.create_task(platform.run(intake, Reports()))
    for taken in (1, 2, 3):
        await intake.wait_messages(taken)
        for _ in range(20):
            await asyncio.sleep(0.001)  # the terminal's own threads
        assert len(intake.texts) == taken, "the next line waits for the answer"
        answers.put_nowait(None)
    answers.put_nowait(None)
    await run
    assert intake.texts == ["hello", "/whoami", "bye"]
    assert streams.at_end


async def test_the_store_is_down_the_line_waits() -> None:
    clock = FakeClock()
    sink = io.BytesIO()
    platform = make(StandardStreams(io.BytesIO(b"one\ntwo\n"), sink), clock)
    intake = RecordingIntake()
    intake.failures = 6
    run = asyncio.create_task(platform.run(intake, Reports()))
    waited = []
    while not run.done():
        await asyncio.sleep(0.001)  # the terminal's own threads
        if not run.done() and clock.next_wake_seconds is not None:
            waited.append(clock.next_wake_seconds)
            await clock.advance(clock.next_wake_seconds)
    await run
    assert intake.texts == ["one", "two"]
    assert waited == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert sink.getvalue().decode().splitlines() == [texts.NOT_TAKEN_YET], "said once, in words"


async def test_the_store_is_down_and_nobody_reads_the_words() -> None:
    clock = FakeClock()
    platform = make(StandardStreams(io.BytesIO(b"one\n"), BrokenPipe()), clock)
    intake = RecordingIntake()
    intake.failures = 1
    run = asyncio.create_task(platform.run(intake, Reports()))
    await intake.until(lambda: "store down" in intake.events)
    while not run.done():
        await asyncio.sleep(0.001)
        await clock.advance(1.0)
    await run
    assert intake.texts == ["one"]


async def test_a_line_that_breaks_the_intake_does_not_end_the_conversation() -> None:
    platform = make(StandardStreams(io.BytesIO(b"bad\ngood\n"), io.BytesIO()))
    intake = RecordingIntake()
    intake.refuse = lambda m: ValueError("bug") if m.text == "bad" else None
    await platform.run(intake, Reports())
    assert intake.texts == ["good"]


async def test_answers_are_the_only_thing_on_the_output() -> None:
    sink, prompt = io.BytesIO(), io.StringIO()
    platform = make(StandardStreams(io.BytesIO(b"hi\n"), sink, prompt=prompt))
    intake = RecordingIntake()
    hold = asyncio.Event()
    platform = make(StandardStreams(io.BytesIO(b"hi\n"), sink, prompt=prompt), idle=hold.wait)
    run = asyncio.create_task(platform.run(intake, Reports()))
    await intake.wait_messages(1)
    await platform.typing(HERE)
    first = await platform.send(HERE, part("hello 😀"))
    second = await platform.send(HERE, part("again"), repeat=True)
    hold.set()
    await run
    assert sink.getvalue().decode() == f"hello 😀\n{REPEAT_MARK}again\n"
    assert first != second
    assert "> " in prompt.getvalue()
    await platform.close()
    await platform.close()


async def test_whoever_ends_the_chat_is_told_what_goes_on() -> None:
    sink, prompt = io.BytesIO(), io.StringIO()
    streams = StandardStreams(io.BytesIO(b""), sink, prompt=prompt, farewell="it goes on")
    await make(streams).run(RecordingIntake(), Reports())
    assert prompt.getvalue() == "> \nit goes on\n"
    piped = StandardStreams(io.BytesIO(b""), sink, farewell="it goes on")
    await make(piped).run(RecordingIntake(), Reports())
    assert sink.getvalue() == b""


async def test_the_prompt_never_stands_before_an_answer_or_behind_the_end() -> None:
    class Screen(io.BytesIO):
        def write_text(self, text: str) -> int:
            return self.write(text.encode())

    class Prompt(io.StringIO):
        def write(self, text: str, /) -> int:
            return screen.write_text(text)

    screen = Screen()
    streams = StandardStreams(io.BytesIO(b"hi\n"), screen, prompt=Prompt())
    lines = streams.lines()
    assert await anext(lines) == "hi"
    await streams.show("hello")
    await streams.show("and something else")
    assert [line async for line in lines] == []
    await streams.show("the last word")
    streams.leave()
    assert screen.getvalue().decode() == (
        f"> hello\n> {ERASE_LINE}and something else\n> \nthe last word\n"
    )


async def test_a_slow_output_gets_everything_and_blocks_nobody() -> None:
    sink = Stuttering()
    streams = StandardStreams(io.BytesIO(), sink)
    await streams.show("slow but whole")
    assert sink.taken == b"slow but whole\n"


async def test_nobody_reads_the_output_so_the_chat_is_over() -> None:
    # `posthouse chat | head -1`: the answers stay owed, and nothing is left to wait for.
    platform = make(StandardStreams(io.BytesIO(b"hi\n"), BrokenPipe()), idle=asyncio.Event().wait)
    intake = RecordingIntake()
    run = asyncio.create_task(platform.run(intake, Reports()))
    await intake.wait_messages(1)
    with pytest.raises(SendUnavailable):
        await platform.send(HERE, part("hello"))
    await asyncio.wait_for(run, 20)
    with pytest.raises(SendUnavailable):
        await platform.send(HERE, part("nobody is there at all"))


async def test_a_stop_still_shows_what_the_drain_brings() -> None:
    sink = io.BytesIO()
    platform = make(StandardStreams(io.BytesIO(b"hi\n"), sink), idle=asyncio.Event().wait)
    intake = RecordingIntake()
    run = asyncio.create_task(platform.run(intake, Reports()))
    await intake.wait_messages(1)
    run.cancel()
    await asyncio.wait({run})
    await platform.send(HERE, part("done before the end"))
    assert sink.getvalue() == b"done before the end\n"
    await platform.close()
    with pytest.raises(SendUnavailable):
        await platform.send(HERE, part("too late"))


async def test_a_terminal_that_attaches_shares_the_chat() -> None:
    class Remote:
        in_turns = False

        def __init__(self) -> None:
            self.shown: list[str] = []
            self.end = asyncio.Event()

        async def lines(self) -> AsyncIterator[str]:
            yield "from afar"
            await self.end.wait()

        async def show(self, text: str) -> None:
            self.shown.append(text)

    platform = make(None)
    intake, remote = RecordingIntake(), Remote()
    early = asyncio.create_task(platform.attach(remote))  # before the platform runs
    run = asyncio.create_task(platform.run(intake, Reports()))
    await intake.wait_messages(1)
    await platform.send(HERE, part("hello"))
    remote.end.set()
    await early
    assert remote.shown == ["hello"]
    assert not run.done()
    run.cancel()


async def test_reading_never_runs_far_ahead() -> None:
    class Endless:
        reads = 0

        def read(self, size: int, /) -> bytes:
            self.reads += 1
            return b"line\n"

    source = Endless()
    intake = RecordingIntake()
    intake.gate = asyncio.Event()
    platform = make(StandardStreams(source, io.BytesIO()))
    run = asyncio.create_task(platform.run(intake, Reports()))
    await intake.until(lambda: intake.events)
    # The thread stops by itself once it is as far ahead as it may be.
    for _ in range(200):
        await asyncio.sleep(0.001)
    assert source.reads <= 20
    run.cancel()


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_shown(text: str) -> None:
    (draft,) = render(text)
    shown = draft.payload["text"]
    assert shown.strip()
    shown.encode("utf-8")
    assert not any(ord(c) < 32 and c not in "\t\n" for c in shown)
    assert not any(0x7F <= ord(c) <= 0x9F for c in shown)


def test_escape_sequences_lose_their_teeth_and_markdown_stays() -> None:
    assert (
        render("\x1b]0;owned\x07**bold**\x9b2J\x1b[2J")[0].payload["text"]
        == "]0;owned**bold**2J[2J"
    )


def test_blank_lines_are_no_messages() -> None:
    assert convert(" \t ", message_id="1", now=0.0) is None


def test_files_that_belong_to_an_answer_are_said_to_lie_in_the_home() -> None:
    names = [f"{n}" * 32 + ".png" for n in range(2)]
    answer = OutboxDraft(HERE, "see", files=(names[0], "../../etc/passwd"))
    (draft,) = make(None).render(answer)
    assert draft.payload["text"] == (
        f"see\n\nA file belongs to this answer; the home folder has it:\nattachments/{names[0]}"
    )
    (alone,) = make(None).render(OutboxDraft(HERE, "", files=tuple(names)))
    assert alone.payload["text"].startswith("2 files belong to this answer;")
    assert alone.payload["text"].endswith(f"attachments/{names[1]}")


def test_an_open_input_does_not_keep_or_break_the_end_of_the_process() -> None:
    # A thread that waits in a buffered read makes the interpreter abort at its end.
    code = """
import asyncio
from gateway.platforms.console.adapter import standard_streams

async def main():
    streams = standard_streams()
    reading = asyncio.ensure_future(anext(streams.lines()))
    await asyncio.sleep(0.05)
    await streams.show("bye")
    reading.cancel()

asyncio.run(main())
"""
    read_end, write_end = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=read_end,
            capture_output=True,
            timeout=20,
            check=False,
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"bye\n", b"")
