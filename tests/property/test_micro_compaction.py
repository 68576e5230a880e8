"""Micro-compaction among everything else that happens: no word of a person lost, one digest.

Turns with tools, pictures and thinking, gates, failures, restarts, undo, batch compressions, other
prompts and messages that come in the middle of a call, in any order.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.compaction.host.session import CompactionSettings
from agent.compaction.micro.marker import parse_marker
from agent.compaction.micro.progress import MAX_FAILURES, MicroSettings
from agent.compaction.micro.splice import absorb, rolling_digest
from agent.compaction.micro.window import find_cursor, find_exchange, find_window, is_said, stays
from agent.compaction.plan.boundary import CutRules
from agent.errors import ModelConnectionError
from agent.lineages import UncompressRequest
from agent.messages import Draft, Keep, Message, Row
from agent.model_metadata import estimate_message_tokens
from agent.sessions import SplitRequest
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.message_lists import texts
from tests.fakes.micro_bench import (
    MicroBench,
    answer,
    check_list,
    cumulative,
    markers,
    tool_step,
)
from tests.fakes.side_model import Asked
from tests.fakes.store_invariants import check_invariants

# --- one list


Turn = tuple[int, int, bool, int, bool]
turns = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 3),
        st.booleans(),
        st.sampled_from((1, 30, 300, 3000)),
        st.booleans(),
    ),
    max_size=9,
)
"""Of each: rounds of tools, calls in each, a note of the host, characters, was it answered?"""


def rows_of(shape: list[Turn]) -> list[Row]:
    """As a store would give them; the estimate of each as it counts."""
    drafts: list[Draft] = []
    for number, (rounds, calls, noted, chars, answered) in enumerate(shape):
        drafts.append(Draft({"role": "user", "content": "q" * chars}))
        for k in range(rounds):
            parts = [tool_step(f"c{number}_{k}_{c}", "r" * chars) for c in range(calls)]
            asked = [part[0].message["tool_calls"][0] for part in parts]
            drafts.append(Draft({"role": "assistant", "content": None, "tool_calls": asked}))
            drafts += [part[1] for part in parts]
        if noted:
            drafts.append(Draft({"role": "user", "content": "go on"}, kind="notice"))
        if answered:
            drafts.append(answer("a" * chars))
    return [
        Row(
            100 + i, "s", i, draft.message, 0.0,
            kind=draft.kind, tokens=estimate_message_tokens(draft.message),
        )
        for i, draft in enumerate(drafts)
    ]  # fmt: skip


rules = st.builds(
    CutRules,
    protect_first_n=st.integers(0, 4),
    protect_last_n=st.integers(1, 25),
    tail_tokens=st.integers(1, 600),
    head_tokens=st.integers(0, 400),
)


@given(turns, rules, st.one_of(st.none(), st.integers(0, 500)))
def test_a_window_and_its_exchange_are_whole(
    shape: list[Turn], cut: CutRules, coming: int | None
) -> None:
    rows = rows_of(shape)
    window = find_window(rows, cut, coming)
    assert 0 <= window.head_end <= len(rows)
    assert 0 <= window.tail_start <= len(rows)
    # the tail begins with a person's message, or is everything
    assert window.tail_start == 0 or is_said(rows[window.tail_start])
    if rows:
        tail = sum(row.tokens for row in rows[window.tail_start :]) + (coming or 0)
        assert window.tail_start == 0 or tail > 0
        newest = max((i for i, row in enumerate(rows) if is_said(row)), default=0)
        assert window.tail_start <= newest
    exchange = find_exchange(rows, find_cursor(rows), window)
    if exchange is None:
        return
    assert window.head_end <= exchange.start < exchange.stop <= window.tail_start
    assert all(not is_said(rows[i]) for i in exchange)
    assert rows[exchange.start].message["role"] == "assistant"
    assert is_said(rows[exchange.stop])
    # no tool group is cut
    assert rows[exchange.stop].message["role"] != "tool"
    digest = rolling_digest(rows).grown("- done", [rows[i] for i in exchange])
    splice = absorb(rows, exchange, digest)
    kept = [entry.row_id for entry in splice.entries if isinstance(entry, Keep)]
    gone = {rows[i].id for i in exchange}
    assert kept == [row.id for row in rows if row.id not in gone]
    assert sum(isinstance(entry, Draft) for entry in splice.entries) == 1
    # the cursor of the new list is right behind the digest
    assert isinstance(splice.entries[splice.cursor - 1], Draft)


@given(turns, rules)
def test_looking_again_and_again_takes_each_exchange_once(shape: list[Turn], cut: CutRules) -> None:
    """Passes over one list until there is nothing left: each reply in front of the tail once."""
    rows = rows_of(shape)
    said = [row.id for row in rows if is_said(row)]
    absorbed: list[int] = []
    for number in range(100):
        window = find_window(rows, cut)
        exchange = find_exchange(rows, find_cursor(rows), window)
        if exchange is None:
            break
        absorbed += [rows[i].id for i in exchange]
        digest = rolling_digest(rows).grown(f"- {number}", [rows[i] for i in exchange])
        by_id = {row.id: row for row in rows}
        new: list[Row] = []
        for entry in absorb(rows, exchange, digest).entries:
            if isinstance(entry, Keep):
                new.append(by_id[entry.row_id])
            else:
                size = estimate_message_tokens(entry.message)
                row = Row(1000 + number, "s", 0, entry.message, 0.0, kind="micro", tokens=size)
                new.append(row)
        rows = new
    else:
        raise AssertionError("it never ends")
    assert len(absorbed) == len(set(absorbed))
    assert [row.id for row in rows if is_said(row)] == said
    assert sum(stays(row) for row in rows) == (1 if absorbed else 0)
    if absorbed:
        digest = parse_marker(next(row for row in rows if stays(row)).message)
        assert (digest.first_row, digest.last_row) == (min(absorbed), max(absorbed))


# --- a whole life

acts = st.lists(
    st.sampled_from(
        [
            "turn", "turn", "turn", "turn", "tools", "tools", "thinking", "picture", "blank",
            "failing", "empty", "healing", "restart", "undo", "compress", "refreeze", "uncompress",
            "message in the middle", "compress in the middle", "on", "off",
        ]
    ),
    min_size=4,
    max_size=25,
)  # fmt: skip


class Life:
    """One conversation, one act after the other, checked after each."""

    def __init__(
        self, clock: FakeClock, every: int, in_place: bool, first_n: int, store: Any = None
    ) -> None:
        self.answers: Any = self.good
        self.bench = MicroBench(
            clock,
            lambda asked: self.answers(asked),
            micro=MicroSettings(True, every, defrag_threshold_tokens=120),
            settings=CompactionSettings(in_place=in_place),
            protect_first_n=first_n,
            store=store,
        )
        self.loop = asyncio.get_running_loop()

    @staticmethod
    def good(asked: Asked) -> str:
        if "<summary_so_far>" not in asked.prompt and "gave" in asked.prompt:
            return "- gave many"  # shortened
        return cumulative(asked)

    async def do(self, act: str, text: str) -> None:
        bench, k = self.bench, self.bench.turns + 1
        match act:
            case "turn":
                await bench.turn(self._says(text, k))
            case "tools":
                steps = [*tool_step(f"c{k}a"), *tool_step(f"c{k}b", "r" * 900)]
                await bench.turn(self._says(text, k), steps)
            case "thinking":
                await bench.turn(self._says(text, k), final=thought(f"answer {k} " + "a" * 900))
            case "picture":
                part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
                said = self._says(text, k)
                await bench.turn([{"type": "text", "text": said}, part])
            case "blank":
                await bench.turn(self._says(text, k), final=answer(" "))
            case "failing":
                self.answers = self._failing
            case "empty":
                self.answers = lambda asked: ""
            case "healing":
                self.answers = self.good
            case "restart":
                bench.restart()
            case "on" | "off":
                session = (await bench.load()).session
                await bench.store.set_option(session.id, "micro_compact_override", act)
            case "undo":
                await self._undo()
            case "compress":
                await bench.compactor.compact(await bench.load(), "manual")
            case "uncompress":
                await self._uncompress()
            case "refreeze":
                await self._refreeze()
            case "message in the middle":
                self._meanwhile(lambda: bench.talk(self._says(text, k)))
            case "compress in the middle":
                self._meanwhile(self._compress_unless_asked)

    def _says(self, text: str, k: int) -> str:
        return f"question {k} {text} " + "q" * 300

    def _failing(self, asked: Asked) -> str:
        raise ModelConnectionError("gone")

    def _meanwhile(self, act: Any) -> None:
        usual = self.answers

        def answers(asked: Asked) -> str:
            self.answers = usual
            asyncio.run_coroutine_threadsafe(act(), self.loop).result(20)
            return cast(str, usual(asked))

        self.answers = answers

    async def _compress_unless_asked(self) -> None:
        compactor = self.bench.compactor
        if compactor._job is None or not compactor._job.running:
            await compactor.compact(await self.bench.load(), "manual")

    async def _undo(self) -> None:
        conversation = await self.bench.store.conversation_for_key("key")
        await self.bench.store.undo(conversation.id, 1)

    async def _uncompress(self) -> None:
        loaded = await self.bench.load()
        if await self.bench.store.uncompressed(loaded.session.id):
            await self.bench.store.uncompress(
                UncompressRequest(
                    conversation_id=loaded.session.conversation_id,
                    tip_id=loaded.session.id,
                    expected_revision=loaded.session.revision,
                    covered_row_id=loaded.last_row_id,
                    compression=loaded.session.compression.changed(hold_tokens=100_000),
                )
            )

    async def _refreeze(self) -> None:
        loaded = await self.bench.load()
        if not loaded.rows:
            return
        await self.bench.store.split(
            SplitRequest(
                conversation_id=loaded.session.conversation_id,
                parent_id=loaded.session.id,
                expected_revision=loaded.session.revision,
                covered_row_id=loaded.last_row_id,
                entries=tuple(Keep(r.id) for r in loaded.rows),
                compression=loaded.session.compression,
                end_reason="switch",
                prefix=replace(loaded.session.prefix, system_prompt=f"v{self.bench.ids.new('v')}"),
            )
        )

    async def check(self) -> None:
        bench = self.bench
        loaded = await bench.load()
        check_list(loaded)
        rows = {row.id: row for row in await bench.store.all_rows(loaded.session.id)}
        for row in loaded.rows:  # the list is what is stored
            assert rows[row.id] == row
        # nothing of a person is out of the list, but what an undo or a batch summary took
        compressed = loaded.session.compression.count > 0
        if not compressed:
            active = {row.root_id for row in loaded.rows}
            for row in await self._originals():
                assert row.root_id in active or row.id in await self._undone()
        marker = markers(loaded)
        if marker:
            digest = parse_marker(marker[0].message)
            assert digest.body
            assert digest.first_row <= digest.last_row
            places = [i for i, row in enumerate(loaded.rows) if row.kind in ("summary", "micro")]
            assert loaded.rows[places[-1]].kind == "micro"
        assert loaded.session.compression.micro_failures < MAX_FAILURES + 1

    async def _originals(self) -> list[Row]:
        conversation = await self.bench.store.conversation_for_key("key")
        found: list[Row] = []
        for session in await self.bench.store.lineage(conversation.tip_session_id):
            found += await self.bench.store.all_rows(session.id)
        return [r for r in found if is_said(r) and r.origin_id is None]

    async def _undone(self) -> set[int]:
        """What an undo took out of its list: neither there nor replaced."""
        tables = getattr(self.bench.store, "_tables", None)
        if tables is None:
            return set()
        return {r.root_id for segment in tables.segments.values() for r in segment.taken_back}


def thought(text: str) -> Draft:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": text},
    ]
    message = {"role": "assistant", "content": text, "anthropic_content_blocks": blocks}
    return Draft(cast(Message, message))


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    acts,
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 3),
    texts.map(lambda text: text[:60]),
)
@example(["turn", "turn", "message in the middle", "turn", "restart", "turn"], 1, False, 0, "x")
@example(["turn"] * 6 + ["compress", "turn", "uncompress", "turn", "turn"], 1, False, 3, "x")
@example(["turn"] * 6 + ["compress", "turn", "uncompress", "turn", "turn"], 1, True, 0, "x")
@example(["turn", "turn", "failing", *["turn"] * 4, "healing", *["turn"] * 3], 1, False, 0, "x")
async def test_whatever_happens(
    acts: list[str], every: int, in_place: bool, first_n: int, text: str
) -> None:
    life = Life(FakeClock(), every, in_place, first_n)
    await life.bench.turn()
    for act in acts:
        await life.do(act, text)
        await life.check()


@pytest.mark.parametrize("in_place", [False, True])
async def test_the_same_in_a_database(tmp_path: Path, in_place: bool) -> None:
    clock, path = FakeClock(), tmp_path / "state.db"
    store = await open_store(path, clock=clock, ids=SequentialIds())
    try:
        life = Life(clock, 1, in_place, 2, store)
        for act in (
            *("turn", "tools", "thinking", "message in the middle", "turn", "restart", "tools"),
            *("failing", "turn", "turn", "turn", "healing", "turn", "refreeze", "turn", "picture"),
            *("compress", "turn", "turn", "uncompress", "turn", "compress in the middle", "turn"),
        ):
            await life.do(act, "数据库 👩‍👩‍👧‍👦")
            if life.bench.turns:
                await life.check()
                check_invariants(path, integrity=False)
        assert (await life.bench.load()).session.compression.micro_passes > 4
    finally:
        await store.close()
    check_invariants(path)
