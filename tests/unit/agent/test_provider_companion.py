"""A memory provider that a conversation can not have: what each message costs by it."""

from __future__ import annotations

from collections.abc import Sequence

from agent.memory.provider_companion import REST_SECONDS, ProviderCompanion
from agent.memory_provider import MemoryProvider
from agent.messages import Row
from agent.turn_companions import TurnFacts
from tests.fakes.clock import FakeClock

FACTS = TurnFacts(
    turn_id="",
    conversation_id="conv_1",
    session_id="sess_1",
    title="",
    session_key="key",
    owner="telegram:7",
    place="telegram:7",
    platform="telegram",
    model="model-x",
    user_text="hello",
    user_id="7",
    chat_id="7",
)


async def no_rows() -> Sequence[Row]:
    return ()


async def rows_of(session_id: str) -> list[Row]:
    return []


async def test_one_that_can_not_be_made_is_not_tried_at_each_message() -> None:
    tries = 0

    async def make() -> MemoryProvider | None:
        nonlocal tries
        tries += 1
        return None

    clock = FakeClock()
    memory = ProviderCompanion("some", make, clock, rows_of=rows_of, hermes_home="", identity="i")
    for _ in range(3):
        assert await memory.before(FACTS, no_rows) == ""
    assert tries == 1
    await clock.advance(REST_SECONDS + 1)
    assert await memory.before(FACTS, no_rows) == ""
    assert tries == 2
