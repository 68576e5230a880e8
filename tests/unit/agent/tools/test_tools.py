"""The registry, and the tools that come with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.errors import ToolError
from agent.messages import Draft, ToolCall, ToolSchema, text_of
from agent.model_metadata import estimate_tokens_rough
from agent.ports import ToolContext, ToolResult
from agent.sessions import Hit, SessionPrefix, TurnOpening, session_key
from agent.tools.clock import CurrentTimeTool
from agent.tools.recall import RecallTool, merge_hits
from agent.tools.registry import ToolRegistry, files_of
from storage.memory import MemoryStore
from storage.segment import UNINDEXED_TOOLS
from tests.fakes.clock import FakeClock, SequentialIds

CONTEXT = ToolContext("c", "test:1", True, "t")


class Fixed:
    """Answers with what it was made with."""

    def __init__(
        self, outcome: ToolResult | BaseException, name: str = "fixed", **schema: Any
    ) -> None:
        self.schema = ToolSchema(name, "A tool.", {"type": "object", "properties": {}, **schema})
        self.outcome = outcome
        self.got: list[Mapping[str, Any]] = []

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.got.append(arguments)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def call(name: str = "fixed", arguments: str = "{}", id: str = "c1") -> ToolCall:  # noqa: A002
    return {"id": id, "function": {"name": name, "arguments": arguments}}


async def said(registry: ToolRegistry, made: ToolCall | None = None) -> str:
    draft = await registry.run(made or call(), CONTEXT)
    assert draft.message["role"] == "tool"
    assert draft.message["tool_call_id"] == (made or call())["id"]
    return text_of(draft.message["content"])


# --- the registry


def test_schemas_are_sorted_and_names_unique() -> None:
    tools = [Fixed(ToolResult("x"), name) for name in ("b", "a", "c")]
    assert [s.name for s in ToolRegistry(tools).schemas] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="two tools"):
        ToolRegistry([*tools, Fixed(ToolResult("y"), "a")])


def test_a_source_brings_all_its_tools_at_once_and_takes_none_of_ours() -> None:
    def named(*names: str) -> list[Fixed]:
        return [Fixed(ToolResult("x"), name) for name in names]

    ours = named("b")
    registry = ToolRegistry(ours)
    assert registry.replace("engine", named("c", "a", "b", "c")) == ["b", "c"]
    assert [s.name for s in registry.schemas] == ["a", "b", "c"]
    assert registry.replace("plugins", named("a", "d")) == ["a"]
    assert registry.replace("engine", []) == []
    assert [s.name for s in registry.schemas] == ["a", "b", "d"]
    assert registry.schemas[1] is ours[0].schema


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ToolResult("fine"), "fine"),
        (ToolResult(""), "(no output)"),
        (ToolResult(" \n"), "(no output)"),
        (ToolResult("a\ud83d"), "a\ufffd"),
        (ToolResult("bad", is_error=True), "[error] bad"),
        (ToolResult("", is_error=True), "[error] (no output)"),
        (ToolError("no such file"), "[error] no such file"),
        (RuntimeError("secret detail"), "[error] fixed failed unexpectedly"),
        (TimeoutError("inner"), "[error] fixed failed unexpectedly"),
        # Something that the tool waited for was cancelled, but nobody said stop.
        (asyncio.CancelledError(), "[error] fixed failed unexpectedly"),
    ],
)
async def test_every_outcome_is_a_result(
    outcome: ToolResult | BaseException, expected: str
) -> None:
    assert await said(ToolRegistry([Fixed(outcome)])) == expected


@pytest.mark.parametrize("about", [True, {"type": ["integer", "null"]}, {"enum": 5}, {}])
async def test_a_schema_that_says_nothing_understood_demands_nothing(about: Any) -> None:
    odd = Fixed(ToolResult("x"), properties={"n": about})
    assert await said(ToolRegistry([odd]), call(arguments='{"n": 1}')) == "x"


class Hanging(Fixed):
    """Never comes back."""

    def __init__(self) -> None:
        super().__init__(ToolResult("x"))
        self.running = asyncio.Event()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.running.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_a_stop_passes() -> None:
    tool = Hanging()
    running = asyncio.ensure_future(said(ToolRegistry([tool])))
    async with asyncio.timeout(10):
        await tool.running.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_tool_that_hangs_is_given_up() -> None:
    registry = ToolRegistry([Hanging()], deadline_seconds=0.01)
    assert await said(registry) == "[error] fixed took longer than 0.01 s"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ""),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a JSON object"),
        ('"x"', "not a JSON object"),
        ("{}", ""),
        ('{"n": "1"}', "'n' must be of type integer"),
        ('{"n": true}', "'n' must be of type integer"),
        ('{"n": 1}', ""),
        ('{"mode": "c"}', "'mode' must be one of 'a', 'b'"),
        ('{"what": 1}', "'what' is not known"),
    ],
)
async def test_wrong_arguments_are_named(arguments: str, expected: str) -> None:
    tool = Fixed(
        ToolResult("ran"),
        properties={"n": {"type": "integer"}, "mode": {"type": "string", "enum": ["a", "b"]}},
        additionalProperties=False,
    )
    text = await said(ToolRegistry([tool]), call(arguments=arguments))
    assert (text == "ran") == (expected == "")
    assert expected in text
    assert len(tool.got) == (1 if expected == "" else 0)


class Watching:
    """Forbids one call, changes the result of another."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.seen: list[Any] = []

    async def before(
        self, call: ToolCall, arguments: Mapping[str, Any], context: ToolContext
    ) -> str:
        self.seen.append(("before", call["id"], dict(arguments)))
        return self.refusal

    async def after(
        self,
        call: ToolCall,
        arguments: Mapping[str, Any],
        context: ToolContext,
        result: ToolResult,
    ) -> ToolResult:
        self.seen.append(("after", result.text))
        return ToolResult("changed")


async def test_a_watcher_sees_every_call_that_runs() -> None:
    registry, watching = ToolRegistry([Fixed(ToolResult("ran"))]), Watching()
    registry.watched_by(watching)
    assert await said(registry, call(arguments="{}")) == "changed"
    assert watching.seen == [("before", "c1", {}), ("after", "ran")]
    watching.seen.clear()
    await said(registry, call(arguments="{"))  # never runs
    assert watching.seen == []


async def test_a_watcher_forbids_a_call() -> None:
    tool = Fixed(ToolResult("ran"))
    registry = ToolRegistry([tool])
    registry.watched_by(Watching("not on a Sunday"))
    assert "not on a Sunday" in await said(registry, call())
    assert tool.got == []


async def test_a_missing_argument_is_named() -> None:
    tool = Fixed(ToolResult("ran"), properties={"q": {"type": "string"}}, required=["q"])
    assert "'q' is missing" in await said(ToolRegistry([tool]))


async def test_a_tool_that_vanished_says_so() -> None:
    assert "no longer available" in await said(ToolRegistry([]), call("old"))


@pytest.mark.parametrize("text", ["line\n" * 5000, "界" * 5000])
async def test_a_large_result_is_sent_in_part_and_kept_whole(text: str) -> None:
    whole = f"BEGIN {text} END"
    registry = ToolRegistry([Fixed(ToolResult(whole))], result_cap_tokens=500)
    draft = await registry.run(call(id="toolu_7"), CONTEXT)
    assert draft.message["content"] == whole
    sent = text_of(draft.wire_content)
    assert sent.startswith("BEGIN")
    assert sent.endswith("END")
    assert "characters left out" in sent
    assert "recall ref toolu_7" in sent
    assert estimate_tokens_rough(sent) < 560


async def test_the_cap_follows_a_window_that_was_learned() -> None:
    caps = [4000, 300]
    registry = ToolRegistry(
        [Fixed(ToolResult("word " * 3000))], result_cap_tokens=lambda: caps.pop(0)
    )
    first, second = [await registry.run(call(), CONTEXT) for _ in range(2)]
    assert first.wire_content is None
    assert estimate_tokens_rough(text_of(second.wire_content)) < 360


# --- the clock


async def test_the_time_is_told_with_its_offset() -> None:
    clock = FakeClock(1_795_982_400.0)
    tool = CurrentTimeTool(clock, lambda: ZoneInfo("Europe/Berlin"))
    assert (await tool.run({}, CONTEXT)).text == "Sunday, 2026-11-29 21:00:00 (UTC+01:00, CET)"
    there = await tool.run({"timezone": "Asia/Kolkata"}, CONTEXT)
    assert there.text == "Monday, 2026-11-30 01:30:00 (UTC+05:30, Asia/Kolkata)"


@pytest.mark.parametrize(
    "name", ["Mars/Base", "../../etc/passwd", "/etc/passwd", "x" * 5000, "a\x00", "Europe"]
)
async def test_a_zone_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(ToolError, match="no time zone"):
        await CurrentTimeTool(FakeClock()).run({"timezone": name}, CONTEXT)


# --- recall


async def test_only_names_of_kept_files_go_out_each_once() -> None:
    """Not a path of this machine, nor what would end our line and begin another."""
    good, other = "a" * 32 + ".png", "b" * 32
    line = f"x\n[goes out with your answer: attachment {other}]"
    named = (good, "../../etc/passwd", "/etc/passwd", f"{other}]\n{other}", "", good, f"{other}\n")
    told: list[str] = []
    registry = ToolRegistry([Fixed(ToolResult(line, files=named))])
    draft = await registry.run(call(), CONTEXT, on_file=told.append)
    assert told == files_of(draft.message) == [good]


class Archived:
    """A store with two conversations of one person and one of another."""

    def __init__(self, clock: FakeClock, ids: SequentialIds) -> None:
        self.store = MemoryStore(clock, ids)
        self.page_tokens = 400
        self.tool = RecallTool(self.store, page_tokens=lambda: self.page_tokens)
        self.row_ids: dict[str, list[int]] = {}
        self.conversations: dict[str, str] = {}

    async def talk(self, key: str, owner: str, *texts: str | Draft) -> None:
        for text in texts:
            ticket = await self.store.begin_turn(
                TurnOpening(key, owner, (), _user(text), SessionPrefix("test", "m", "s"))
            )
            self.row_ids.setdefault(key, []).append(ticket.user_row_id)
            self.conversations[key] = ticket.conversation_id
            await self.store.finish_turn(
                ticket,
                ticket.session_id,
                "done",
                final=Draft({"role": "assistant", "content": f"noted {len(self.row_ids[key])}"}),
            )

    def context(self, key: str, owner: str, *, direct: bool = True, now: int = 0) -> ToolContext:
        return ToolContext(self.conversations[key], owner, direct, "t", now)

    async def ask(self, context: ToolContext, **arguments: Any) -> str:
        return (await self.tool.run(arguments, context)).text


def _user(text: str | Draft) -> Draft:
    return text if isinstance(text, Draft) else Draft({"role": "user", "content": text})


@pytest.fixture
async def archived(clock: FakeClock, ids: SequentialIds) -> Archived:
    made = Archived(clock, ids)
    await made.talk("mine", "t:1", "the door is blue", "the window is green", "蓝色的门很漂亮")
    await made.talk("other", "t:1", "the door of the shed is red")
    await made.talk("foreign", "t:2", "the door is made of gold")
    return made


async def test_a_search_finds_what_was_said_with_its_reference(archived: Archived) -> None:
    text = await archived.ask(archived.context("mine", "t:1"), queries=["blue door"])
    assert f"m{archived.row_ids['mine'][0]} · " in text
    assert "blue" in text
    assert "gold" not in text


async def test_a_direct_chat_also_sees_the_persons_other_conversations(archived: Archived) -> None:
    assert "shed" in await archived.ask(archived.context("mine", "t:1"), queries=["door"])


async def test_a_group_never_leaves_its_own(archived: Archived) -> None:
    context = archived.context("mine", "t:1", direct=False)
    text = await archived.ask(context, queries=["door"])
    assert "blue" in text
    assert "shed" not in text
    for key in ("other", "foreign"):
        with pytest.raises(ToolError, match="there is no message"):
            await archived.ask(context, ref=f"m{archived.row_ids[key][0]}")
        with pytest.raises(ToolError, match="there is no message"):
            await archived.ask(context, around=f"m{archived.row_ids[key][0]}")


@pytest.mark.parametrize(
    "ref", ["m999999", "999999", "nothing", "recall ref m77777", "m-1", "!", "m" * 500]
)
async def test_what_is_not_there_is_said_like_what_is_not_allowed(
    archived: Archived, ref: str
) -> None:
    with pytest.raises(ToolError, match="there is no message"):
        await archived.ask(archived.context("mine", "t:1"), ref=ref)


async def test_the_question_does_not_find_itself(archived: Archived) -> None:
    await archived.talk("mine", "t:1", "what about the blue door?")
    asked = archived.row_ids["mine"][-1]
    text = await archived.ask(
        archived.context("mine", "t:1", now=asked),
        queries=["blue door", "what about the blue door"],
    )
    assert f"m{asked} " not in text
    assert f"m{archived.row_ids['mine'][0]} " in text


async def test_a_question_does_not_make_what_it_asks_for_outdated(archived: Archived) -> None:
    await archived.talk("mine", "t:1", "The locker code is ZEBRA-1.", "It rained 12 days.")
    fact = archived.row_ids["mine"][-2]
    await archived.talk("mine", "t:1", "what is the locker code number?")
    asked = archived.row_ids["mine"][-1]
    text = await archived.ask(
        archived.context("mine", "t:1", now=asked),
        queries=["what is the locker code number?", "locker code"],
    )
    best = text.splitlines()[1]
    assert best.startswith(f"m{fact} · ")
    assert "newer" not in best
    assert f"m{asked}" not in text


def test_the_model_is_told_where_recall_looks() -> None:
    described = RecallTool.schema.description
    assert "in a direct chat" in described
    assert "other conversations" in described


async def test_short_cjk_words_are_found(archived: Archived) -> None:
    text = await archived.ask(archived.context("mine", "t:1"), queries=["蓝色"])
    assert f"m{archived.row_ids['mine'][2]} " in text


@pytest.mark.parametrize("queries", [[], "", ["  "], [""]])
async def test_nothing_asked_is_an_error_that_helps(archived: Archived, queries: Any) -> None:
    with pytest.raises(ToolError, match="give queries"):
        await archived.ask(archived.context("mine", "t:1"), queries=queries)


@pytest.mark.parametrize("query", ["'\"*()?", "NOT OR AND", "\ud83d", "x" * 5000, "\x00"])
async def test_any_query_is_fine(archived: Archived, query: str) -> None:
    assert await archived.ask(archived.context("mine", "t:1"), queries=[query])


async def test_a_long_message_is_read_page_by_page(archived: Archived) -> None:
    whole = " ".join(f"word{n}" for n in range(2000))
    await archived.talk("mine", "t:1", whole)
    ref = f"m{archived.row_ids['mine'][-1]}"
    read, offset = "", 0
    for _ in range(50):
        text = await archived.ask(archived.context("mine", "t:1"), ref=ref, offset=offset)
        assert estimate_tokens_rough(text) < 460
        head, _, page = text.partition("\n")
        page, _, more = page.partition("\n[goes on: ")
        read += page
        assert ref in head
        if not more:
            break
        offset = int(more.rpartition(" ")[2].rstrip("]"))
    assert read == whole


async def test_reading_past_the_end_is_harmless(archived: Archived) -> None:
    ref = str(archived.row_ids["mine"][0])
    assert await archived.ask(archived.context("mine", "t:1"), ref=ref, offset=10**9)


async def test_a_page_follows_the_window(archived: Archived) -> None:
    """The cap of results does, and a page over the cap would be cut in its middle."""
    await archived.talk("mine", "t:1", "word " * 400)
    ref, context = f"m{archived.row_ids['mine'][-1]}", archived.context("mine", "t:1")
    assert "goes on" in await archived.ask(context, ref=ref)
    archived.page_tokens = 600
    assert "goes on" not in await archived.ask(context, ref=ref)


async def test_a_capped_result_is_opened_by_its_call(archived: Archived, clock: FakeClock) -> None:
    store = archived.store
    ticket = await store.begin_turn(
        TurnOpening("mine", "t:1", (), _user("run it"), SessionPrefix("test", "m", "s"))
    )
    made = call(id="toolu_9")
    assistant = Draft({"role": "assistant", "content": None, "tool_calls": [made]})
    whole = Draft(
        {"role": "tool", "tool_call_id": "toolu_9", "name": "fixed", "content": "ALL OF IT"},
        wire_content="ALL …",
    )
    await store.append(ticket, ticket.session_id, [assistant])
    await store.append(ticket, ticket.session_id, [whole])
    context = archived.context("mine", "t:1")
    assert "ALL OF IT" in await archived.ask(context, ref="recall ref toolu_9")
    # The same person may see it from another direct chat; a group and somebody else may not.
    assert "ALL OF IT" in await archived.ask(archived.context("other", "t:1"), ref="toolu_9")
    for elsewhere in (
        archived.context("other", "t:1", direct=False),
        archived.context("foreign", "t:2"),
    ):
        with pytest.raises(ToolError):
            await archived.ask(elsewhere, ref="toolu_9")


async def _run_call(archived: Archived, call_id: str, content: str) -> int:
    """A turn with one call and its result; gives back the row of the result."""
    store = archived.store
    ticket = await store.begin_turn(
        TurnOpening("mine", "t:1", (), _user("run"), SessionPrefix("test", "m", "s"))
    )
    made = Draft(
        {"role": "assistant", "content": None, "tool_calls": [call(id=call_id)]},
    )
    result = Draft({"role": "tool", "tool_call_id": call_id, "name": "fixed", "content": content})
    appended = await store.append(ticket, ticket.session_id, [made, result])
    await store.finish_turn(ticket, ticket.session_id, "done")
    return appended.rows[1].id


@pytest.mark.parametrize("call_id", ["2", "functions.grep:0", "m3", "99999999999999999999"])
async def test_ids_of_calls_may_look_like_anything(archived: Archived, call_id: str) -> None:
    row_id = await _run_call(archived, call_id, "FOUND BY ITS CALL")
    context = archived.context("mine", "t:1")
    if call_id == "m3":  # like the mark of a message: that message wins
        assert "FOUND" not in await archived.ask(context, ref=call_id)
    else:
        assert "FOUND BY ITS CALL" in await archived.ask(context, ref=f"recall ref {call_id}")
    assert "FOUND BY ITS CALL" in await archived.ask(context, ref=f"m{row_id}")
    assert "FOUND BY ITS CALL" in await archived.ask(context, around=f"m{row_id}")


async def test_a_number_without_a_call_is_a_message(archived: Archived) -> None:
    first = archived.row_ids["mine"][0]
    assert "the door is blue" in await archived.ask(archived.context("mine", "t:1"), ref=str(first))


async def test_a_repeated_call_id_gives_the_newest_result(archived: Archived) -> None:
    await _run_call(archived, "call_1", "the old output")
    await _run_call(archived, "call_1", "the new output")
    assert "the new output" in await archived.ask(archived.context("mine", "t:1"), ref="call_1")


async def test_recall_does_not_find_what_recall_has_shown(archived: Archived) -> None:
    store, context = archived.store, archived.context("mine", "t:1")
    shown = await archived.ask(context, queries=["blue door"])
    ticket = await store.begin_turn(
        TurnOpening("mine", "t:1", (), _user("?"), SessionPrefix("test", "m", "s"))
    )
    asked = call("recall", '{"queries": ["blue door"]}', id="call_r")
    await store.append(
        ticket,
        ticket.session_id,
        [
            Draft({"role": "assistant", "content": None, "tool_calls": [asked]}),
            Draft({"role": "tool", "tool_call_id": "call_r", "name": "recall", "content": shown}),
        ],
    )
    assert await archived.ask(context, queries=["blue door"]) == shown
    assert RecallTool.schema.name in UNINDEXED_TOOLS


async def test_a_hit_says_that_a_newer_one_has_the_same_words(archived: Archived) -> None:
    await archived.talk("mine", "t:1", "the gate code is 1111", "the gate code is 2222")
    old, new = archived.row_ids["mine"][-2:]
    lines = (await archived.ask(archived.context("mine", "t:1"), queries=["gate code"])).split("\n")
    assert lines[1].startswith(f"m{new} ")
    (stale,) = [line for line in lines if line.startswith(f"m{old} ")]
    assert f"newer with the same words: m{new}" in stale


async def test_hits_are_paged(archived: Archived) -> None:
    await archived.talk("mine", "t:1", *(f"budget entry {n}" for n in range(30)))
    context = archived.context("mine", "t:1")
    seen: list[str] = []
    skip = 0
    for _ in range(20):
        lines = (await archived.ask(context, queries=["budget"], limit=7, skip=skip)).split("\n")
        hits = [line.split(" ")[0] for line in lines if line.startswith("m")]
        seen += hits
        skip += len(hits)
        if not lines[-1].startswith("[more"):
            break
        assert lines[-1] == f"[more: the same queries with skip {skip}]"
    assert len(seen) == len(set(seen)) == 30
    assert "No more hits" in await archived.ask(context, queries=["budget"], skip=skip)


async def test_what_a_group_shares_is_nobodys_own(archived: Archived) -> None:
    """Else whoever began a group's conversation could read it from outside for ever."""
    shared = session_key("telegram", "1", "-5", None, None)
    await archived.talk(shared, "t:1", "the door of the club is purple")
    text = await archived.ask(archived.context("mine", "t:1"), queries=["door"])
    assert "purple" not in text
    with pytest.raises(ToolError, match="there is no message"):
        await archived.ask(archived.context("mine", "t:1"), ref=f"m{archived.row_ids[shared][0]}")
    inside = archived.context(shared, "t:9", direct=False)
    assert "purple" in await archived.ask(inside, queries=["door"])


async def test_a_long_turn_finds_its_own_results(archived: Archived) -> None:
    """They may be out of view by now: a compression does not wait for the end of a turn."""
    row_id = await _run_call(archived, "call_5", "the zebra counter stands at 17")
    asked = archived.row_ids["mine"][-1]
    text = await archived.ask(archived.context("mine", "t:1", now=asked), queries=["zebra counter"])
    assert f"m{row_id} " in text


async def test_reading_around_a_hit(archived: Archived) -> None:
    rows = archived.row_ids["mine"]
    text = await archived.ask(
        archived.context("mine", "t:1"), around=f"m{rows[1]}", before=2, after=1
    )
    lines = text.splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"m{rows[0] + n}" for n in range(4)]
    assert "the window is green" in lines[2]


async def test_reading_around_stays_within_a_page(archived: Archived) -> None:
    await archived.talk("mine", "t:1", *["long " * 900] * 6)
    middle = archived.row_ids["mine"][5]
    context = archived.context("mine", "t:1")
    text = await archived.ask(context, around=str(middle), before=99, after=99)
    assert estimate_tokens_rough(text) < 700
    assert f"m{middle} · " in text


def _hit(message_id: int, score: float) -> Hit:
    return Hit(message_id, "s", "user", "…", score, 0.0)


def test_several_phrasings_are_one_list() -> None:
    found: Sequence[Sequence[Hit]] = [
        [_hit(1, 10.0), _hit(2, 9.0)],
        [_hit(2, 0.4), _hit(3, 0.1)],
        [],
    ]
    assert [h.message_id for h in merge_hits(found)] == [2, 1, 3]
    assert merge_hits([]) == []
    assert [h.message_id for h in merge_hits([[_hit(1, 0.0), _hit(2, 0.0)]])] == [2, 1]
