"""One turn of the agent: stop reasons, stored steps, tools, recoveries, limits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent import verdicts
from agent.asking import MAX_COMPACTIONS
from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelBadRequest,
    OutputLimitTooHigh,
    RequestTooLarge,
    SessionEnded,
    StaleTurn,
    ThinkingMismatch,
    ToolError,
)
from agent.history import IMAGE_LEFT_OUT, History
from agent.loop import LoopSettings, TurnLoop, TurnResult
from agent.messages import Draft, Keep, Message, Row, ToolSchema, text_of, without_thinking
from agent.ports import (
    CompactionDecision,
    CompactionResult,
    CompactionTrigger,
    ModelResponse,
    ToolContext,
    ToolResult,
    Usage,
)
from agent.sessions import (
    CompressionState,
    LoadedSession,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnTicket,
)
from agent.store_ports import SessionStore
from agent.tools.registry import ToolRegistry
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.scripted_model import ScriptedModel, answer, call, thought

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


class EchoTool:
    """Gives back what it gets; waits, fails or stops on request."""

    schema = ToolSchema(
        "echo", "Echo.", {"type": "object", "properties": {"say": {"type": "string"}}}
    )

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.running = 0
        self.most_at_once = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.progress = asyncio.Event()

    async def finished(self, *said: str) -> None:
        """Wait until these calls are through."""
        async with asyncio.timeout(10):
            while not set(said) <= set(self.ran):
                self.progress.clear()
                await self.progress.wait()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        said = str(arguments.get("say", ""))
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(0)
            if said in self.gates:
                await self.gates[said].wait()
            if said == "fail":
                raise ToolError("told to fail")
        finally:
            self.running -= 1
        self.ran.append(said)
        self.progress.set()
        return ToolResult(f"echo: {said}" if said else "")


@dataclass
class FakeCompactor:
    """Splits when told to: everything but the newest user message and its turn is summarised."""

    store: SessionStore
    due_at: set[int] = field(default_factory=set)
    works: bool = True
    triggers: list[tuple[CompactionTrigger, bool]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    asked: int = 0

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        self.asked += 1
        return CompactionDecision(self.asked in self.due_at)

    async def compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
        notify: Any = None,
    ) -> CompactionResult:
        self.triggers.append((trigger, overflow_proven))
        if not self.works:
            if notify is not None:
                notify("could not")
            return CompactionResult("aborted", loaded, reason="told not to")
        rows = loaded.rows
        at = max(i for i, row in enumerate(rows) if row.message["role"] == "user")
        summary = Draft({"role": "user", "content": "summary"}, kind="summary")
        reply = Draft({"role": "assistant", "content": "I know."})
        change = await self.store.split(
            SplitRequest(
                conversation_id=loaded.session.conversation_id,
                parent_id=loaded.session.id,
                expected_revision=loaded.session.revision,
                covered_row_id=loaded.last_row_id,
                entries=(summary, reply, *(Keep(row.id) for row in rows[at:])),
                compression=CompressionState(count=1),
            )
        )
        assert change.applied
        return CompactionResult("compressed", await self.store.load(change.tip.id))

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, answer_tokens: int
    ) -> Sequence[Message]:
        return messages

    async def note_usage(
        self, loaded: LoadedSession, usage: Usage | None, *, notify: object = None
    ) -> LoadedSession:
        if usage is not None:
            self.usages.append(usage)
        return loaded

    def note_limit(self, limit_tokens: int) -> None:
        self.limits.append(limit_tokens)


class Watcher:
    """What a user would have seen."""

    def __init__(self) -> None:
        self.shown = ""
        self.voids = 0
        self.tools: list[str] = []
        self.notices: list[str] = []

    def on_text(self, delta: str) -> None:
        if not delta:
            self.voids += 1
            self.shown = ""
        self.shown += delta

    def on_tool(self, name: str) -> None:
        self.tools.append(name)

    def on_file(self, name: str) -> None: ...

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Rig:
    """A conversation with one turn running in it."""

    def __init__(self, clock: FakeClock, ids: SequentialIds) -> None:
        self.store = MemoryStore(clock, ids)
        self.tool = EchoTool()
        self.tools = ToolRegistry([self.tool])
        self.compactor = FakeCompactor(self.store)
        self.watcher = Watcher()
        self.settings = LoopSettings(max_tokens=1000)
        self.ticket: TurnTicket | None = None

    async def begin(self, content: Any = "hello") -> TurnTicket:
        self.ticket = await self.store.begin_turn(
            TurnOpening(
                session_key="k",
                owner="test:1",
                inbox_ids=(),
                message=Draft({"role": "user", "content": content}),
                prefix=SessionPrefix("test", "m", "You help.", self.tools.schemas),
            )
        )
        return self.ticket

    async def run(self, model: ScriptedModel, content: Any = "hello") -> TurnResult:
        ticket = self.ticket or await self.begin(content)
        loop = TurnLoop(store=self.store, model=model, tools=self.tools, settings=self.settings)
        return await loop(
            ticket,
            await self.store.load(ticket.session_id),
            compactor=self.compactor,
            context=ToolContext(ticket.conversation_id, "test:1", True, ticket.turn_id),
            observer=self.watcher,
        )

    async def finish(self, result: TurnResult) -> None:
        assert self.ticket is not None
        await self.store.finish_turn(
            self.ticket, result.session_id, "done", final=result.final, anchor_usage=result.usage
        )
        self.ticket = None

    async def rows(self) -> Sequence[Row]:
        conversation = await self.store.conversation_for_key("k")
        assert conversation is not None
        return (await self.store.load(conversation.tip_session_id)).rows

    async def roles(self) -> list[str]:
        return [row.message["role"] for row in await self.rows()]


@pytest.fixture
def rig(clock: FakeClock, ids: SequentialIds) -> Rig:
    return Rig(clock, ids)


# --- the plain road


async def test_an_answer_is_handed_over_and_not_stored(rig: Rig) -> None:
    model = ScriptedModel("hi there")
    result = await rig.run(model)
    assert result.final == Draft({"role": "assistant", "content": "hi there"})
    assert result.text == "hi there"
    assert result.usage is not None
    assert (result.model_calls, result.tool_calls) == (1, 0)
    assert await rig.roles() == ["user"]
    assert rig.watcher.shown.strip() == "hi there"
    model.verify()


async def test_every_step_is_stored_before_the_next_one(rig: Rig) -> None:
    seen: list[list[str]] = []

    async def spy() -> None:
        # Not `load`: that would repair the list of the running turn.
        assert rig.ticket is not None
        rows = await rig.store.all_rows(rig.ticket.session_id)
        seen.append([row.message["role"] for row in rows])

    model = ScriptedModel(answer("one moment", call("echo", {"say": "x"})), "done")
    original = rig.tool.run

    async def run(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await spy()
        return await original(arguments, context)

    rig.tool.run = run  # type: ignore[method-assign]
    result = await rig.run(model)
    assert seen == [["user", "assistant"]]
    assert await rig.roles() == ["user", "assistant", "tool"]
    assert (await rig.rows())[-1].message["content"] == "echo: x"
    assert result.text == "done"
    assert rig.watcher.tools == ["echo"]
    # What was said before the tool ran is not part of the answer.
    assert rig.watcher.shown.strip() == "done"
    model.verify()


async def test_the_anchor_follows_the_responses(rig: Rig) -> None:
    model = ScriptedModel(answer("", call("echo"), usage=Usage(10, 5, 100, 3)), "done")
    await rig.run(model)
    conversation = await rig.store.conversation_for_key("k")
    assert conversation is not None
    anchor = (await rig.store.session(conversation.tip_session_id)).anchor
    assert anchor is not None
    assert (anchor.prompt_tokens, anchor.output_tokens) == (113, 5)
    assert anchor.through_row_id == (await rig.rows())[1].id
    assert rig.compactor.usages[0].prompt_tokens == 113


async def test_a_usage_of_nothing_is_no_measurement(rig: Rig) -> None:
    """The list in memory and the stored session know the same anchor."""
    ticket = await rig.begin()
    loaded = await rig.store.load(ticket.session_id)
    history, said = History(loaded), Draft({"role": "assistant", "content": "a"})
    for usage in (Usage(50, 5), Usage(0, 5)):
        appended = await rig.store.append(ticket, ticket.session_id, [said], anchor_usage=usage)
        history.append(appended.rows, usage)
    stored = (await rig.store.session(loaded.session.id)).anchor
    assert history.loaded.session.anchor == stored
    assert stored is not None
    assert stored.prompt_tokens == 50


async def test_requests_grow_and_nothing_before_changes(rig: Rig) -> None:
    model = ScriptedModel(
        *[answer("", thought(), call("echo", {"say": str(n)})) for n in range(4)], "done"
    )
    await rig.finish(await rig.run(model))
    model.script.append("again")
    rig.ticket = None
    await rig.run(model, "and more")
    model.verify()
    plain = [_without_marks(body) for body in model.bodies]
    for before, after in itertools.pairwise(plain):
        assert after["system"] == before["system"]
        assert after["tools"] == before["tools"]
        assert after["messages"][: len(before["messages"])] == before["messages"]


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [_without_marks(v) for v in value] if isinstance(value, list) else value


# --- tools


async def test_calls_run_at_once_and_are_stored_in_their_order(rig: Rig) -> None:
    rig.tool.gates["first"] = asyncio.Event()
    calls = [call("echo", {"say": s}) for s in ("first", "second", "third")]
    model = ScriptedModel(answer("", *calls), "done")
    running = asyncio.ensure_future(rig.run(model))
    await rig.tool.finished("second", "third")
    rig.tool.gates["first"].set()
    await running
    rows = await rig.rows()
    assert [r.message.get("tool_call_id") for r in rows[2:]] == [c["id"] for c in calls]
    assert rig.tool.most_at_once == 3
    model.verify()


class OrderedEcho(EchoTool):
    schema = replace(EchoTool.schema, name="write")
    in_order = "the file"


async def test_calls_that_change_the_same_go_one_after_the_other(rig: Rig) -> None:
    ordered = OrderedEcho()
    rig.tools = ToolRegistry([rig.tool, ordered])
    rig.settings = LoopSettings(parallel_tools=2)
    gate = ordered.gates["a"] = asyncio.Event()
    said = [("write", "a"), ("write", "b"), ("write", "c"), ("echo", "d"), ("echo", "e")]
    calls = [call(name, {"say": text}) for name, text in said]
    running = asyncio.ensure_future(rig.run(ScriptedModel(answer("", *calls), "done")))
    await rig.tool.finished("d", "e")  # nobody else waits for them, nor for their slots
    assert ordered.ran == []
    gate.set()
    await running
    assert ordered.ran == ["a", "b", "c"]
    assert ordered.most_at_once == 1


async def test_no_more_tools_at_once_than_allowed(rig: Rig) -> None:
    rig.settings = LoopSettings(parallel_tools=2)
    model = ScriptedModel(answer("", *[call("echo", {"say": str(n)}) for n in range(9)]), "done")
    await rig.run(model)
    assert rig.tool.most_at_once == 2
    assert len(rig.tool.ran) == 9


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (call("gone"), "no longer available"),
        (call("echo", {"say": "fail"}), "told to fail"),
        (call("echo", {"say": 3}), "must be of type string"),
        (call("echo", {}), "(no output)"),
    ],
)
async def test_every_call_gets_a_result_whatever_happens(
    rig: Rig, block: dict[str, Any], said: str
) -> None:
    model = ScriptedModel(answer("", block, call("echo", {"say": "ok"})), "done")
    await rig.run(model)
    rows = await rig.rows()
    assert said in text_of(rows[2].message["content"])
    assert rows[3].message["content"] == "echo: ok"
    model.verify()


async def test_a_stop_in_the_middle_leaves_a_list_that_is_repaired(rig: Rig) -> None:
    rig.tool.gates["slow"] = asyncio.Event()
    blocks = [call("echo", {"say": s}) for s in ("quick", "slow")]
    running = asyncio.ensure_future(rig.run(ScriptedModel(answer("", *blocks))))
    await rig.tool.finished("quick")
    assert rig.tool.running == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert rig.tool.running == 0
    assert await rig.roles() == ["user", "assistant", "tool", "tool"]
    assert rig.ticket is not None
    await rig.store.finish_turn(rig.ticket, rig.ticket.session_id, "stopped")
    rig.ticket = None
    model = ScriptedModel("hello again")
    assert (await rig.run(model, "still there?")).text == "hello again"
    model.verify()


async def test_a_turn_that_is_over_writes_nothing_more(rig: Rig) -> None:
    ticket = await rig.begin()
    await rig.store.finish_turn(ticket, ticket.session_id, "stopped")
    with pytest.raises(StaleTurn):
        await rig.run(ScriptedModel(answer("", call("echo"), call("echo"))))
    assert await rig.roles() == ["user"]
    assert rig.tool.ran == []


async def test_a_turn_that_ends_while_tools_run_is_said_plainly(rig: Rig) -> None:
    rig.tool.gates["slow"] = asyncio.Event()
    blocks = [call("echo", {"say": s}) for s in ("slow", "quick", "slow")]
    running = asyncio.ensure_future(rig.run(ScriptedModel(answer("", *blocks))))
    await rig.tool.finished("quick")
    assert rig.ticket is not None
    await rig.store.finish_turn(rig.ticket, rig.ticket.session_id, "stopped")
    rig.tool.gates["slow"].set()
    with pytest.raises(StaleTurn):
        await running
    assert rig.tool.running == 0


async def test_a_tip_that_moved_is_said(rig: Rig) -> None:
    ticket = await rig.begin()
    loaded = await rig.store.load(ticket.session_id)
    model = ScriptedModel(answer("", call("echo")))
    loop = TurnLoop(store=rig.store, model=model, tools=rig.tools)
    await rig.compactor.compact(loaded, "manual")
    with pytest.raises(SessionEnded):
        await loop(
            ticket,
            loaded,
            compactor=rig.compactor,
            context=ToolContext(ticket.conversation_id, "test:1", True, ticket.turn_id),
            observer=rig.watcher,
        )
    assert rig.tool.ran == []


# --- stop reasons


async def test_a_refusal_is_told_and_the_next_message_works(rig: Rig) -> None:
    model = ScriptedModel(answer("I will n", stop="refusal"), "fine")
    result = await rig.run(model)
    assert result.text == verdicts.REFUSED
    assert result.final.kind == "notice"
    assert rig.watcher.shown == ""
    await rig.finish(result)
    assert (await rig.run(model, "something else")).text == "fine"
    model.verify()


async def test_an_empty_answer_is_asked_for_once_more(rig: Rig) -> None:
    assert (await rig.run(ScriptedModel(answer(), "there"))).text == "there"
    rig.ticket = None
    result = await rig.run(ScriptedModel(answer(), answer("  \n")))
    assert result.text == verdicts.NOTHING
    assert result.usage is None


async def test_an_answer_that_came_as_thinking_reaches_the_user(rig: Rig) -> None:
    said = [answer("", thought("hm")), answer("", thought("It is 42."))]
    result = await rig.run(ScriptedModel(*said))
    assert result.text == "It is 42."
    assert "anthropic_content_blocks" not in result.final.message


@pytest.mark.parametrize("stop", ["brand_new", "stop_sequence", "end_turn"])
async def test_calls_of_an_answer_that_ended_are_not_run(rig: Rig, stop: str) -> None:
    model = ScriptedModel(answer("so be it", thought(), call("echo"), stop=stop))
    result = await rig.run(model)
    assert result.final.message == {"role": "assistant", "content": "so be it"}
    assert rig.tool.ran == []


async def test_a_cut_text_is_kept_and_said_to_be_cut(rig: Rig) -> None:
    result = await rig.run(ScriptedModel(answer("half a sent", stop="max_tokens")))
    assert result.text == f"half a sent\n\n{verdicts.CUT_NOTE}"
    assert result.final.wire_content == "half a sent"
    assert text_of(result.final.message["content"]) == result.text


async def test_a_cut_call_is_never_run_and_retried_twice_at_most(rig: Rig) -> None:
    cut = [answer("", call("echo"), call("echo"), stop="max_tokens") for _ in range(3)]
    model = ScriptedModel(*cut)
    result = await rig.run(model)
    assert result.text == verdicts.CALL_TOO_LONG
    assert rig.tool.ran == []
    assert [r.max_tokens for r in model.requests] == [1000, 2000, 2000]
    assert await rig.roles() == ["user", "assistant", "user"]
    model.verify()


async def test_more_room_heals_a_cut_call(rig: Rig) -> None:
    cut = answer("", call("echo"), stop="max_tokens")
    model = ScriptedModel(cut, answer("", call("echo", {"say": "x"})), "done")
    assert (await rig.run(model)).text == "done"
    assert rig.tool.ran == ["x"]
    model.verify()


async def test_only_thinking_at_the_output_limit_is_no_answer(rig: Rig) -> None:
    model = ScriptedModel(answer("", thought(), stop="max_tokens"), "done")
    assert (await rig.run(model)).text == "done"


async def test_a_pause_is_sent_back_and_the_user_gets_both_parts(rig: Rig) -> None:
    model = ScriptedModel(answer("First.", stop="pause_turn"), "Second.")
    result = await rig.run(model)
    assert result.text == "First.\n\nSecond."
    assert [r.continues_pause for r in model.requests] == [False, True]
    assert model.requests[1].messages[-1]["role"] == "assistant"
    assert rig.watcher.shown == "First. \n\nSecond. "
    model.verify()


async def test_what_was_said_before_a_pause_stays_shown_when_the_rest_is_taken_back(
    rig: Rig,
) -> None:
    cut = answer("Sec", stop="model_context_window_exceeded")
    model = ScriptedModel(answer("First.", stop="pause_turn"), cut, "Second.")
    result = await rig.run(model)
    assert rig.watcher.voids == 1
    assert rig.watcher.shown.split() == result.text.split() == ["First.", "Second."]


async def test_what_was_said_before_a_pause_goes_when_tools_follow(rig: Rig) -> None:
    model = ScriptedModel(answer("First.", stop="pause_turn"), answer("", call("echo")), "done")
    result = await rig.run(model)
    assert rig.watcher.shown.split() == result.text.split() == ["done"]


async def test_pauses_are_bounded(rig: Rig) -> None:
    model = ScriptedModel(*[answer("wait", stop="pause_turn") for _ in range(6)])
    assert (await rig.run(model)).text == verdicts.PAUSED_TOO_OFTEN


async def test_a_full_window_is_compressed_and_asked_again(rig: Rig) -> None:
    model = ScriptedModel(answer("hal", stop="model_context_window_exceeded"), "done")
    result = await rig.run(model)
    assert result.text == "done"
    assert rig.compactor.triggers == [("overflow", True)]
    assert rig.watcher.shown.strip() == "done"
    assert result.session_id != (rig.ticket.session_id if rig.ticket else "")


async def test_a_full_window_that_can_not_be_helped_keeps_what_there_is(rig: Rig) -> None:
    rig.compactor.works = False
    model = ScriptedModel(answer("hal", stop="model_context_window_exceeded"))
    assert (await rig.run(model)).text == f"hal\n\n{verdicts.CUT_NOTE}"


# --- recoveries


async def test_overflow_is_compressed_and_the_window_learned(rig: Rig) -> None:
    model = ScriptedModel(ContextOverflow("too long", limit_tokens=8000), "done")
    assert (await rig.run(model)).text == "done"
    assert rig.compactor.limits == [8000]
    assert rig.compactor.triggers == [("overflow", True)]
    model.verify()


async def test_overflow_is_not_fought_for_ever(rig: Rig) -> None:
    model = ScriptedModel(*[ContextOverflow("too long") for _ in range(9)])
    with pytest.raises(ContextOverflow):
        await rig.run(model)
    assert len(rig.compactor.triggers) == MAX_COMPACTIONS
    assert model.problems == []


async def test_overflow_without_a_compression_is_said_at_once(rig: Rig) -> None:
    rig.compactor.works = False
    model = ScriptedModel(ContextOverflow("too long"))
    with pytest.raises(ContextOverflow):
        await rig.run(model)
    assert rig.watcher.notices == ["could not"]
    assert await rig.roles() == ["user"]


async def test_too_high_an_output_limit_is_lowered_without_compressing(rig: Rig) -> None:
    model = ScriptedModel(
        OutputLimitTooHigh("no", limit_tokens=600), OutputLimitTooHigh("no"), "done"
    )
    assert (await rig.run(model)).text == "done"
    assert [r.max_tokens for r in model.requests] == [1000, 600, 300]
    assert rig.compactor.triggers == []


async def test_hardly_any_room_for_the_answer_is_an_overflow(rig: Rig) -> None:
    model = ScriptedModel(OutputLimitTooHigh("no", limit_tokens=7), "done")
    assert (await rig.run(model)).text == "done"
    assert rig.compactor.triggers == [("overflow", True)]
    assert [r.max_tokens for r in model.requests] == [1000, 1000]


async def test_a_cut_call_is_not_retried_above_a_limit_that_is_known(rig: Rig) -> None:
    model = ScriptedModel(
        OutputLimitTooHigh("no", limit_tokens=500),
        answer("", call("echo"), stop="max_tokens"),
        "smaller",
    )
    assert (await rig.run(model)).text == "smaller"
    assert [r.max_tokens for r in model.requests] == [1000, 500, 500]
    assert verdicts.CALL_SMALLER in str(model.bodies[-1])


async def test_images_go_oldest_first_when_the_request_is_too_large(rig: Rig) -> None:
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    model = ScriptedModel(
        RequestTooLarge("413"), RequestTooLarge("413"), answer("", call("echo")), "done"
    )
    parts = [{"type": "text", "text": "see"}, image, dict(image)]
    assert (await rig.run(model, parts)).text == "done"
    kinds = [[b["type"] for b in body["messages"][0]["content"]] for body in model.bodies]
    assert kinds == [
        ["text", "image", "image"],
        ["text", "text", "image"],
        ["text", "text", "text"],
        ["text", "text", "text"],
    ]
    assert IMAGE_LEFT_OUT in str(model.bodies[1])
    first = (await rig.rows())[0]
    assert first.message["content"] == parts
    # For good: what was sent without them is never sent with them again.
    assert [p["type"] for p in first.wire_content or ()] == ["text", "text", "text"]
    model.verify()


async def test_too_large_without_images_is_an_overflow(rig: Rig) -> None:
    model = ScriptedModel(RequestTooLarge("413"), "done")
    assert (await rig.run(model)).text == "done"
    assert rig.compactor.triggers == [("overflow", True)]


async def test_thinking_that_lost_its_prefix_is_taken_out_once_and_for_good(rig: Rig) -> None:
    model = ScriptedModel(
        answer("", thought(), call("echo")), ThinkingMismatch("bound elsewhere"), "done"
    )
    result = await rig.run(model)
    assert result.text == "done"
    assert "thinking" not in str(model.bodies[-1])
    rows = await rig.rows()
    assert all(row.message == without_thinking(row.message) for row in rows)
    conversation = await rig.store.conversation_for_key("k")
    assert conversation is not None
    assert (await rig.store.session(conversation.tip_session_id)).revision == 1
    await rig.finish(result)
    model.script.append("fine")
    assert (await rig.run(model, "more")).text == "fine"
    model.verify()


async def test_thinking_is_not_taken_out_twice(rig: Rig) -> None:
    model = ScriptedModel(
        answer("", thought(), call("echo")), ThinkingMismatch("no"), ThinkingMismatch("still no")
    )
    with pytest.raises(ThinkingMismatch):
        await rig.run(model)


@pytest.mark.parametrize("error", [ModelAuthError("no"), ModelBadRequest("no")])
async def test_what_can_not_be_helped_is_raised_and_the_question_stays(
    rig: Rig, error: ModelAuthError | ModelBadRequest
) -> None:
    with pytest.raises(type(error)):
        await rig.run(ScriptedModel(error))
    assert await rig.roles() == ["user"]


# --- compaction on the way


async def test_compression_is_looked_at_before_the_first_call_and_after_each_round(
    rig: Rig,
) -> None:
    rig.compactor.due_at = {1, 2}
    model = ScriptedModel(answer("", call("echo")), "done")
    result = await rig.run(model)
    assert rig.compactor.triggers == [("preflight", False), ("loop", False)]
    assert result.compactions == 2
    assert model.bodies[0]["messages"][0]["content"][0]["text"] == "summary"
    model.verify()


async def test_a_failed_compression_is_no_obstacle_and_not_tried_in_each_round(rig: Rig) -> None:
    rig.compactor.due_at = {1, 2, 3}
    rig.compactor.works = False
    model = ScriptedModel(answer("", call("echo")), answer("", call("echo")), "done")
    assert (await rig.run(model)).text == "done"
    assert rig.compactor.triggers == [("preflight", False)]


# --- the budget of steps


async def test_a_spent_budget_ends_in_one_last_answer(rig: Rig) -> None:
    rig.settings = LoopSettings(max_iterations=3)
    model = ScriptedModel(*[answer("", call("echo")) for _ in range(3)], "this far")
    result = await rig.run(model)
    assert result.text == "this far"
    assert verdicts.FINISH_NOW in str(model.bodies[-1]["messages"][-1])
    assert model.bodies[-1]["tools"] == model.bodies[0]["tools"]
    model.verify()


async def test_a_model_that_will_not_stop_is_stopped(rig: Rig) -> None:
    rig.settings = LoopSettings(max_iterations=2)
    model = ScriptedModel(*[answer("", call("echo")) for _ in range(3)])
    result = await rig.run(model)
    assert result.text == verdicts.OUT_OF_STEPS
    assert len(rig.tool.ran) == 2
    await rig.finish(result)
    model.script.append("ok")
    assert (await rig.run(model, "go on")).text == "ok"
    model.verify()


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("max_tokens", f"so far\n\n{verdicts.CUT_NOTE}"),
        ("model_context_window_exceeded", f"so far\n\n{verdicts.CUT_NOTE}"),
        ("refusal", verdicts.REFUSED),
    ],
)
async def test_a_last_answer_that_is_none_is_not_passed_off_as_one(
    rig: Rig, stop: str, expected: str
) -> None:
    rig.settings = LoopSettings(max_iterations=1)
    model = ScriptedModel(answer("", call("echo")), answer("so far", stop=stop))
    assert (await rig.run(model)).text == expected


async def test_a_split_gives_a_fresh_budget_but_not_for_ever(rig: Rig) -> None:
    rig.settings = LoopSettings(max_iterations=2)
    rig.compactor.due_at = {2, 3, 4, 5, 6, 7, 8}
    model = ScriptedModel(*[answer("", call("echo")) for _ in range(5)], "done")
    assert (await rig.run(model)).text == "done"
    assert len(rig.tool.ran) == 5
    rig.ticket = None
    rig.tool.ran.clear()
    model = ScriptedModel(*[answer("", call("echo")) for _ in range(9)])
    rig.compactor.due_at = set(range(100))
    assert (await rig.run(model)).text == verdicts.OUT_OF_STEPS
    assert 2 < len(rig.tool.ran) <= 6


def test_what_an_answer_means() -> None:
    table: list[tuple[ModelResponse, verdicts.Verdict]] = [
        (answer("x"), verdicts.Verdict.ANSWER),
        (answer(""), verdicts.Verdict.EMPTY),
        (answer("", call("echo")), verdicts.Verdict.TOOLS),
        (answer("x", stop="tool_use"), verdicts.Verdict.ANSWER),
        (answer("", stop="tool_use"), verdicts.Verdict.EMPTY),
        (answer("x", stop="max_tokens"), verdicts.Verdict.CUT_TEXT),
        (answer("x", call("echo"), stop="max_tokens"), verdicts.Verdict.CUT_SHORT),
        (answer("", stop="pause_turn"), verdicts.Verdict.PAUSED),
        (answer("x", stop="refusal"), verdicts.Verdict.REFUSED),
        (answer("x", stop="brand_new"), verdicts.Verdict.ANSWER),
        (answer("", call("echo"), stop="brand_new"), verdicts.Verdict.EMPTY),
    ]
    assert [verdicts.judge(r) for r, _ in table] == [v for _, v in table]


def test_final_messages_hold_no_call() -> None:
    message: Message = answer("x", call("echo"), stop="end_turn").message
    assert "tool_calls" not in verdicts.final_answer(message).message
