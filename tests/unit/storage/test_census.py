"""The census: what waits and what the day brought, counted in the real store."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from agent.census import Census, RefusingChat
from agent.ledger import LedgerScope
from agent.mail import NOT_AWAITED, Address, OutboxDraft, PartDraft
from agent.messages import Keep
from agent.sessions import CompressionState
from storage.census import census
from storage.migrate import migrate
from storage.sqlite import open_archive, open_store
from tests.contract.store_suite import (
    CHAT,
    SUMMARY,
    begin,
    inbound,
    rewrite_of,
    said,
    split_of,
    talk,
)
from tests.fakes.clock import FakeClock, SequentialIds

DAY = 86_400.0


async def test_what_waits_and_what_the_day_brought(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "state.db"
    store = await open_store(path, clock=clock, ids=SequentialIds())
    try:
        began = clock.now() - DAY / 2
        assert await store.census(clock.now(), began) == Census()
        await talk(store, said("an answer of yesterday"))
        await clock.advance(DAY)
        today = clock.now() - DAY / 4
        first = await store.accept(inbound(1))
        await store.accept(inbound(2))
        await store.quarantine("telegram", "1", "77", "{", "no JSON")
        owed_at = clock.now()
        await store.owe(OutboxDraft(CHAT, "owed", "notice"))
        await clock.advance(60)
        await store.owe(OutboxDraft(CHAT, "owed too", "notice"))
        loaded = await talk(store, said("an answer of today"), text="again")
        await store.split(split_of(loaded, SUMMARY))
        split_at = clock.now()
        ticket = await begin(store, "now", (first.inbox_id,))
        cooling = CompressionState(cooldown_until=clock.now() + 600)
        await store.set_compression(ticket.session_id, cooling)
        found = await store.census(clock.now(), today)
        assert found == Census(
            inbox_new=1,
            inbox_oldest_at=inbound(2).received_at,
            quarantined=1,
            owed=2,
            owed_oldest_at=owed_at,
            turns={"done": 1, "running": 1},
            compressions=1,
            compressed_at=split_at,
            cooling_down=1,
        )
        assert (await store.census(clock.now() + 601, today)).cooling_down == 0
        # The turns of yesterday count with it.
        assert (await store.census(clock.now(), 0.0)).turns == {"done": 2, "running": 1}
        # Of the next day nothing has happened yet; the newest compression is still known.
        tomorrow = await store.census(clock.now(), clock.now() + DAY)
        assert (tomorrow.turns, tomorrow.compressions) == ({}, 0)
        assert tomorrow.compressed_at == split_at
    finally:
        await store.close()
    archive = await open_archive(path)
    try:
        assert (await archive.census(clock.now(), today)).owed == 2
    finally:
        await archive.close()


async def test_another_model_is_no_compression_and_one_inside_a_session_is(
    tmp_path: Path, clock: FakeClock
) -> None:
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    try:
        loaded = await talk(store, said("one"))
        keep = [Keep(row.id) for row in loaded.rows]
        switched = await store.split(split_of(loaded, *keep, end_reason="switch"))
        assert switched.applied
        found = await store.census(clock.now(), 0.0)
        assert (found.compressions, found.compressed_at) == (0, None)
        await clock.advance(10)
        loaded = await store.load(switched.tip.id)
        state = CompressionState(count=2)
        changed = await store.rewrite(rewrite_of(loaded, SUMMARY, compression=state))
        assert changed.applied
        found = await store.census(clock.now(), 0.0)
        assert (found.compressions, found.compressed_at) == (1, clock.now())
        # As the ledger counts them.
        assert await store.compressions(LedgerScope(0.0, clock.now() + 1)) == 1
    finally:
        await store.close()


async def test_chats_that_take_nothing_are_seen_until_one_answer_arrives(
    tmp_path: Path, clock: FakeClock
) -> None:
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    other = replace(CHAT, chat_id="other")

    async def owe(to: Address, fate: str) -> None:
        item = await store.owe(OutboxDraft(to, "words", "notice"))
        await clock.advance(10)
        if fate == "sent":
            (part,) = await store.plan_parts(item.id, [PartDraft({})])
            await store.mark_part(part.id, "sent")
        elif fate != "owed":
            await store.fail_outbox(item.id, fate)

    try:
        await owe(other, "blocked")
        await owe(CHAT, "sent")
        since = clock.now()
        await owe(CHAT, "blocked")
        await owe(CHAT, NOT_AWAITED)
        await owe(CHAT, "blocked by the user")
        await owe(CHAT, "owed")
        first, second = (await store.census(clock.now(), 0.0)).refusing
        assert first == RefusingChat(CHAT.platform, CHAT.chat_id, 2, since, "blocked by the user")
        assert (second.chat_id, second.answers) == ("other", 1)
        await owe(CHAT, "sent")
        assert [c.chat_id for c in (await store.census(clock.now(), 0.0)).refusing] == ["other"]
        assert (await store.census(clock.now() + 8 * DAY, 0.0)).refusing == ()
    finally:
        await store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*), min(received_at) FROM inbox WHERE state = 'new'",
        "SELECT count(*), min(created_at), coalesce(sum(state = 'unknown'), 0) FROM outbox"
        " WHERE state IN ('planned', 'sending', 'unknown')",
    ],
)
def test_what_waits_is_found_by_an_index(sql: str) -> None:
    """It is asked every second by `posthouse top`, and these tables grow for years."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, 0.0)
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    census(connection, 1.0, 0.0)
    connection.set_trace_callback(None)
    assert sql in seen
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}"))
    assert "USING INDEX inbox_waiting" in plan or "USING INDEX outbox_owed" in plan
    assert all(
        "LIMIT" in statement
        or statement == sql
        or "state IN" in statement
        or "state = 'new'" in statement
        for statement in seen
    )
    connection.close()
