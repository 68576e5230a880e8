"""Making one question fit: counted borders, pictures that leave for good, what a crash left."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cache_watch import CacheWatch
from agent.errors import ModelBadRequest, ModelOverloaded
from agent.history import IMAGE_LEFT_OUT, images_left_out
from agent.image_tokens import ImageTokens
from agent.llm.images import MANY_IMAGES, MAX_ALL_IMAGES_CHARS, limit_images, newest_that_fit
from agent.llm.wire import map_messages
from agent.loop import LoopSettings, TurnLoop, TurnResult
from agent.messages import Draft, Keep, Message, Row
from agent.model_metadata import measure
from agent.ports import (
    CompactionDecision,
    CompactionResult,
    CompactionTrigger,
    ModelRequest,
    ToolContext,
    Usage,
)
from agent.sessions import LoadedSession
from agent.verdicts import GO_ON
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.scripted_model import ScriptedModel, answer, call, thought
from tests.unit.agent.test_loop import FakeCompactor, Rig

THRESHOLD = 1000


@pytest.fixture
def rig(clock: FakeClock, ids: SequentialIds) -> Rig:
    return Rig(clock, ids)


def unmarked(value: Any) -> Any:
    """The same without cache marks."""
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def picture(side: int = 10, filling: int = 0) -> dict[str, Any]:
    """A PNG as far as anybody looks: its head says how large it is."""
    raw = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", side, side) + b"\0" * filling
    url = "data:image/png;base64," + base64.b64encode(raw).decode()
    return {"type": "image_url", "image_url": {"url": url}}


# --- a size that is near the trigger


@dataclass
class MeasuringCompactor(FakeCompactor):
    """Decides as the real one does: by what is measured."""

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        size = measure(loaded, prefix_tokens=0)
        return CompactionDecision(size.reaches(THRESHOLD), size.tokens, THRESHOLD)


class Counting(ScriptedModel):
    """A model whose provider counts prompts."""

    def __init__(self, *items: Any, tokens: int | None) -> None:
        super().__init__(*items)
        self.tokens = tokens
        self.counted: list[ModelRequest] = []

    async def count_tokens(self, request: ModelRequest) -> int | None:
        self.counted.append(request)
        return self.tokens


@pytest.mark.parametrize(
    ("estimate", "counted", "asks", "compresses"),
    [
        (900, 1100, True, True),
        (900, 990, True, False),
        (1100, 900, True, False),
        (1100, 1001, True, True),
        (900, None, True, False),
        (1100, None, True, True),
        (1100, 0, True, True),
        (800, 5000, False, False),
        (1200, 10, False, True),
    ],
)
async def test_only_near_the_trigger_the_provider_is_asked(
    rig: Rig, estimate: int, counted: int | None, asks: bool, compresses: bool
) -> None:
    rig.compactor = MeasuringCompactor(rig.store)
    model = Counting("done", tokens=counted)
    assert (await rig.run(model, "word" * (estimate - 4))).text == "done"
    assert len(model.counted) == asks
    assert bool(rig.compactor.triggers) == compresses


async def test_what_was_measured_is_not_counted(rig: Rig) -> None:
    rig.compactor = MeasuringCompactor(rig.store)
    model = Counting("ok", "done", tokens=10)
    await rig.finish(await rig.run(model, "hello"))
    model.script.clear()
    model.script.append(answer("fine", usage=Usage(900, 20)))
    await rig.finish(await rig.run(model, "again"))
    model.script.append("done")
    await rig.run(model, "more")
    assert model.counted == []
    model.verify()


async def test_a_turn_counts_once_at_most(rig: Rig) -> None:
    rig.compactor = MeasuringCompactor(rig.store)
    model = Counting(answer("", call("echo")), answer("", call("echo")), "done", tokens=None)
    assert (await rig.run(model, "word" * 900)).text == "done"
    assert len(model.counted) == 1


# --- pictures


async def test_pictures_that_do_not_fit_leave_for_good_and_with_room_to_spare(rig: Rig) -> None:
    model = ScriptedModel(*["ok"] * (MANY_IMAGES + 5))
    revisions = []
    for n in range(MANY_IMAGES + 5):
        result = await rig.run(model, [{"type": "text", "text": f"{n}"}, picture(3000)])
        await rig.finish(result)
        revisions.append((await rig.store.session(result.session_id)).revision)
    assert revisions == [0] * MANY_IMAGES + [1] * 5
    model.verify()
    # Between the changes each request begins as the one before.
    for before, after in ((5, 6), (MANY_IMAGES + 1, MANY_IMAGES + 2)):
        old, new = (unmarked(model.bodies[n]["messages"]) for n in (before, after))
        assert new[: len(old)] == old
    assert str(model.bodies[-1]).count(IMAGE_LEFT_OUT) == MANY_IMAGES // 2 + 1


picture_lists = st.lists(
    st.tuples(st.sampled_from([10, 1999, 2001, 7000]), st.sampled_from([0, 10, 200_000])),
    max_size=60,
)


@given(picture_lists)
def test_what_is_kept_fits_and_stays(sizes: list[tuple[int, int]]) -> None:
    parts = [picture(*size) for size in sizes]
    keep = newest_that_fit(parts)
    kept = parts if keep is None else parts[len(parts) - keep :]
    assert keep is None or 0 < keep < len(parts)
    assert newest_that_fit(kept) is None
    turns = map_messages(
        [{"role": "user", "content": [p]} for p in parts[len(parts) - len(kept) :]]
    )
    before = repr(turns)
    limit_images([t["content"] for t in turns])
    assert repr(turns) == before


def test_many_bytes_are_too_many() -> None:
    url = "data:image/png;base64," + "A" * 4_000_000
    keep = newest_that_fit([{"type": "image_url", "image_url": {"url": url}}] * 8)
    assert keep is not None
    assert keep * 4_000_000 <= MAX_ALL_IMAGES_CHARS // 2


def rows_of(*contents: Any) -> list[Row]:
    rows: list[Row] = []
    for n, content in enumerate(contents, 1):
        message: Message = {"role": "user" if n % 2 else "assistant", "content": content}
        rows.append(Row(n, "s", n, message, 0.0))
    return rows


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 8))
def test_the_newest_pictures_are_kept_and_what_was_said_stays(counts: list[int], keep: int) -> None:
    rows = rows_of(*([{"type": "text", "text": "t"}, *[picture()] * n] for n in counts))
    entries = images_left_out(rows, keep)
    if sum(counts) <= keep:
        assert entries is None
        return
    assert entries is not None
    left = []
    for row, entry in zip(rows, entries, strict=True):
        if isinstance(entry, Keep):
            assert entry.row_id == row.id
            content: Any = row.message["content"]
        else:
            assert entry.message == row.message
            content = entry.wire_content
        left.extend(part["type"] == "image_url" for part in content[1:])
    assert left == [False] * (sum(counts) - keep) + [True] * keep


# --- what a crash left


async def test_an_answer_paused_before_a_crash_is_gone_on_with_by_a_stored_word(rig: Rig) -> None:
    ticket = await rig.begin("a long question")
    paused = Draft(answer("Half of", stop="pause_turn").message)
    await rig.store.append(ticket, ticket.session_id, [paused])
    model = ScriptedModel(answer(" it.", thought()), "fine")
    result = await rig.run(model)
    await rig.finish(result)
    assert await rig.roles() == ["user", "assistant", "user", "assistant"]
    await rig.run(model, "more")
    first, second = (unmarked(body["messages"]) for body in model.bodies)
    assert GO_ON in str(first[-1])
    assert second[: len(first)] == first
    model.verify()


async def test_thinking_in_place_of_an_answer_is_shown_as_well(rig: Rig) -> None:
    model = ScriptedModel(answer("", thought("So it is 42.")), answer("", thought("So it is 42.")))
    result = await rig.run(model)
    assert result.text == rig.watcher.shown == "So it is 42."


# --- what an answer tells


class Learning(Rig):
    """A rig whose loop learns."""

    def __init__(self, clock: FakeClock, ids: SequentialIds) -> None:
        super().__init__(clock, ids)
        self.image_tokens = ImageTokens()
        self.watch = CacheWatch(clock)

    async def run(self, model: ScriptedModel, content: Any = "hello") -> TurnResult:
        ticket = self.ticket or await self.begin(content)
        loop = TurnLoop(
            store=self.store,
            model=model,
            tools=self.tools,
            settings=lambda: self.settings,
            cache_watch=self.watch,
            image_tokens=self.image_tokens,
        )
        return await loop(
            ticket,
            await self.store.load(ticket.session_id),
            compactor=self.compactor,
            context=ToolContext(ticket.conversation_id, "test:1", True, ticket.turn_id),
            observer=self.watcher,
        )


def took(prompt: int, *, read: int = 0, model: str = "m-2026") -> Any:
    usage = Usage(0, 4, read, prompt - read)
    return replace(answer("ok", usage=usage), model=model)


async def test_pictures_are_priced_by_what_they_took(clock: FakeClock, ids: SequentialIds) -> None:
    rig = Learning(clock, ids)
    model = ScriptedModel(took(2000), took(2404), took(9999, model="fallback"))
    for content in ("hello", [picture()], [picture()]):
        await rig.finish(await rig.run(model, content))
    assert 385 <= rig.image_tokens.of("m") <= 400


async def test_usage_says_who_answered_and_why_the_cache_was_missed(
    clock: FakeClock, ids: SequentialIds
) -> None:
    rig = Learning(clock, ids)
    rig.settings = LoopSettings(max_tokens=1000, cache_ttl="auto")
    model = ScriptedModel(took(2000), took(2100, read=2000), took(2200))
    seen: list[Usage | None] = []
    for content in ("a", "b", "c"):
        result = await rig.run(model, content)
        await rig.finish(result)
        seen.append(result.usage)
    usages = [u for u in seen if u is not None]
    assert [u.cache_miss for u in usages] == ["first", "", "provider"]
    assert {u.model for u in usages} == {"m-2026"}
    assert [r.cache_ttl for r in model.requests] == ["1h"] * 3


async def test_the_room_for_an_answer_follows_the_settings_of_the_moment(
    clock: FakeClock, ids: SequentialIds
) -> None:
    rig = Learning(clock, ids)
    model = ScriptedModel("a", "b")
    await rig.finish(await rig.run(model))
    rig.settings = LoopSettings(max_tokens=250)
    await rig.run(model, "more")
    assert [r.max_tokens for r in model.requests] == [1000, 250]


# --- somebody else's engine


@dataclass
class AskingCompactor(FakeCompactor):
    """Decides by itself when it is asked; chooses what is sent."""

    outcomes: tuple[str, ...] = ()
    chosen: tuple[Message, ...] | None = None
    asked_for: list[str] = field(default_factory=list)

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        return CompactionDecision(False, 10, 0, ask=True)

    async def compact(
        self, loaded: LoadedSession, trigger: CompactionTrigger, **more: Any
    ) -> CompactionResult:
        self.asked_for.append(trigger)
        outcome, *rest = self.outcomes or ("not_needed",)
        self.outcomes = tuple(rest)
        if outcome == "compressed":
            return await super().compact(loaded, trigger, **more)
        return CompactionResult(outcome, loaded, reason="so")  # type: ignore[arg-type]

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, answer_tokens: int
    ) -> Sequence[Message]:
        return messages if self.chosen is None else self.chosen


@pytest.mark.parametrize(
    ("outcomes", "triggers"),
    [
        ((), ["preflight", "loop"]),
        (("compressed",), ["preflight", "preflight", "loop"]),
        (("compressed",) * 9, ["preflight"] * 3),
        (("aborted",), ["preflight"]),
        (("not_needed", "aborted"), ["preflight", "loop"]),
    ],
)
async def test_an_engine_is_asked_until_it_is_content(
    rig: Rig, outcomes: tuple[str, ...], triggers: list[str]
) -> None:
    rig.compactor = compactor = AskingCompactor(rig.store, outcomes=outcomes)
    await rig.run(ScriptedModel(answer("", call("echo")), "done"))
    assert compactor.asked_for == triggers


async def test_a_chosen_request_that_is_refused_is_sent_as_it_was(rig: Rig) -> None:
    rig.compactor = AskingCompactor(rig.store, chosen=({"role": "user", "content": "chosen"},))
    model = ScriptedModel(ModelBadRequest("no"), answer("", call("echo")), "done")
    await rig.run(model)
    sent = [str(body["messages"][0]["content"]) for body in model.bodies]
    assert "chosen" in sent[0]
    assert not any("chosen" in one for one in sent[1:])  # nor after the tool
    rig.compactor = FakeCompactor(rig.store)
    with pytest.raises(ModelBadRequest):  # one that nobody has chosen is refused for good
        await rig.run(ScriptedModel(ModelBadRequest("no")))


async def test_what_is_chosen_is_no_reason_to_give_up_on_a_busy_provider(rig: Rig) -> None:
    rig.compactor = AskingCompactor(rig.store, chosen=({"role": "user", "content": "chosen"},))
    with pytest.raises(ModelOverloaded):
        await rig.run(ScriptedModel(ModelOverloaded("busy")))
