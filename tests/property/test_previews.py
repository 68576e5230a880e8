"""Previews under everything at once: the answer is there once and whole all the same."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.delivery.chats import spare_calls
from gateway.delivery.splitting import MIN_MARKDOWN_LIMIT, split_markdown, utf16_len
from gateway.delivery.unfinished import CURSOR, ROOM_FOR_MARKS, finished, unfinished
from gateway.platforms.contract import (
    EditRefused,
    PreviewKind,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from tests.contract.platform_suite import TEXTS
from tests.fakes.clock import FakeClock
from tests.fakes.platform import Failure, inbound
from tests.unit.gateway.test_previews import Stage

FAILURES = st.sampled_from(
    [
        None,
        None,
        Failure(SendFlood(7.0)),
        Failure(SendUnavailable("down")),
        Failure(SendUnknown("timeout")),
        Failure(SendUnknown("timeout"), delivered=True),
        Failure(SendRefused("no")),
        Failure(EditRefused("gone")),
        Failure(ZeroDivisionError("bug")),
    ]
)
SEND_FAILURES = st.sampled_from(
    [None, None, Failure(SendFlood(11.0)), Failure(SendUnavailable("down"))]
)
DEEDS = st.one_of(
    st.tuples(
        st.just("say"), st.sampled_from(["word ", "A sentence. ", "😀", "```\ncode", "x" * 90])
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 0.7, 1.5, 4.0, 25.0])),
    st.tuples(st.sampled_from(["take back", "delete", "kill", "slow", "quick"]), st.none()),
)
ENDS = st.sampled_from(["answer", "stop"])


class Watched(Stage):
    """Remembers in which order ids were stored and messages were edited."""

    def __init__(self, clock: FakeClock, kind: PreviewKind) -> None:
        super().__init__(clock, kind)
        self.noted: set[str] = set()
        real = self.store.note_preview

        async def note(ticket: Any, address: Any, message_id: str) -> bool:
            await clock.sleep(0.05)
            stored = bool(await real(ticket, address, message_id))
            self.noted.add(message_id)
            return stored

        self.store.note_preview = note


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(["message", "draft"]),
    deeds=st.lists(DEEDS, max_size=14),
    end=ENDS,
    failures=st.lists(FAILURES, max_size=6),
    send_failures=st.lists(SEND_FAILURES, max_size=3),
)
def test_the_answer_is_shown_once_and_whole(
    kind: PreviewKind,
    deeds: list[tuple[str, Any]],
    end: str,
    failures: list[Failure | None],
    send_failures: list[Failure | None],
) -> None:
    asyncio.run(_play(kind, deeds, end, failures, send_failures))


async def _play(
    kind: PreviewKind,
    deeds: list[tuple[str, Any]],
    end: str,
    failures: list[Failure | None],
    send_failures: list[Failure | None],
) -> None:
    clock = FakeClock()
    stage = Watched(clock, kind)
    platform = stage.platform
    platform.preview_failures.extend(failures)
    platform.failures.extend(send_failures)
    await stage.ask()
    kills = 0
    for deed, what in deeds:
        match deed:
            case "say":
                stage.say(what)
            case "wait":
                await stage.pass_time(what)
            case "take back":
                stage.say("")
            case "slow":
                platform.preview_delay = lambda: clock.sleep(1.9)
            case "quick":
                platform.preview_delay = None
            case "delete":
                if platform.chat and not platform.chat[-1].gone:
                    platform.delete(f"m{len(platform.chat) - 1}")
            case "kill" if kills < 2:
                kills += 1
                stage.kill()
                await stage.settle()
                stage.boot()
                await stage.recovery.run()
                await stage.settle()
    ended_at = len(platform.previewed)
    if end == "answer":
        stage.ending.set_result("The answer. " * 30)
    else:
        await stage.intake.receive(inbound("/stop", message_id="2"))
    await stage.pass_time(10)
    before = len(platform.previewed)
    for _ in range(6):
        await stage.pass_time(20)
    assert await stage.store.owed() == []
    # Nothing is shown behind the end; an edit may have been under way.
    assert before - ended_at <= 2
    assert all(text == "" for _, _, text, *_ in platform.previewed[before:])
    texts = platform.texts()
    if end == "answer":
        whole = [text for text in texts if text.startswith("The answer.")]
        assert "".join(whole) == "The answer. " * 30
    # One whose fate nobody knows, or whose id died with the process, may stay: at most one a run.
    doubtful = sum(isinstance(f.error, SendUnknown) and f.delivered for f in failures if f)
    assert len([t for t in texts if CURSOR in t]) <= doubtful + kills
    for _, _, text, message_id, _ in platform.previewed:
        assert not text or message_id is None or message_id in stage.noted
    _check_rate(stage)


def _check_rate(stage: Stage) -> None:
    bounds = stage.platform.bounds
    shown = [at for at, _, text, *_ in stage.platform.previewed if text]
    everything = sorted([*shown, *(at for at, *_ in stage.platform.calls)])
    for at in shown:
        recent = [t for t in everything if at - bounds.seconds < t < at]
        assert len(recent) < spare_calls(bounds) + 3  # after a kill nobody knows of those before


MARKDOWN = st.one_of(
    st.sampled_from(TEXTS),
    st.lists(
        st.sampled_from(
            ["**", "`", "```", "```py\n", "\n", "\n\n", "~~", "||", "[", "](", "http://h/a", ")",
             "| a |", "word ",
             "😀", "👨\u200d👩\u200d👧", "🇩🇪", "\ud83d", "\u202e", "漢字。", "> ", "- "]
        ),
        max_size=40,
    ).map("".join),
    st.text(max_size=300),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(text=MARKDOWN, limit=st.sampled_from([MIN_MARKDOWN_LIMIT + ROOM_FOR_MARKS, 200, 2000, 4096]))
def test_what_is_unfinished_fits_and_has_nothing_half(text: str, limit: int) -> None:
    for end in {len(text), len(text) // 2, len(text) // 3}:
        shown = unfinished(text[:end], limit)
        assert utf16_len(shown) <= limit
        if not shown:
            continue  # blank, or nothing but marks that nothing stands behind yet
        assert CURSOR in shown
        assert CURSOR not in finished(text[:end], limit).replace(CURSOR, "")
        visible = shown.replace(CURSOR, "").rstrip()
        assert not visible.endswith("\u200d")
        assert "\n".join(split_markdown(shown, limit)).strip() == shown.strip()  # all closed
