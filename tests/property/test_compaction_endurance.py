"""A conversation that never ends: five hundred compressions, and no loop, no nest, no growth."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, cast

from agent.compaction.host.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.messages import SUMMARY_END, SUMMARY_HEADER, Message, orphan_results, unanswered_calls
from agent.model_metadata import estimate_messages_tokens_rough
from agent.ports import Usage
from agent.sessions import LoadedSession
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.side_model import ScriptedSideModel
from tests.fakes.stored import KEY, context_text, stored

THREADS = DaemonThreads(1, name="endurance-engine")
WORDS = (
    "ledger",
    "部署",
    "harbor",
    "エラー",
    "pricing",
    "survey",
    "mirror",
    "garden",
    "価格",
    "日志",
)


class LongRun:
    """A conversation, its compactor, and a model that always tells the real size."""

    def __init__(self, window: int) -> None:
        self.clock = FakeClock()
        self.ids = SequentialIds()
        self.store = MemoryStore(self.clock, self.ids)
        self.model = ScriptedSideModel(lambda asked: f"## Goal\nround {len(self.model.asked)}")
        self.engine = ContextCompressor(
            "m", config_context_length=window, side_model=self.model, clock=self.clock
        )
        self.restart()

    def restart(self) -> None:
        self.compactor = SessionCompactor(
            self.engine, self.store, self.clock, self.ids, threads=THREADS
        )

    async def say(self, messages: list[Message]) -> LoadedSession:
        """Store a turn and note the real size of what the next request would be."""
        loaded = await stored(self.store, messages)
        size = estimate_messages_tokens_rough(row.message for row in loaded.rows)
        return await self.compactor.note_usage(loaded, Usage(size, 50))


def turn(rng: random.Random, number: int, result_chars: int) -> list[Message]:
    """A question, perhaps a tool, and the answer."""
    said = " ".join(rng.choices(WORDS, k=rng.randint(5, 60)))
    messages: list[Any] = [{"role": "user", "content": f"question {number} {said}"}]
    if result_chars:
        call = {
            "id": f"t{number}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"path": "/srv/file{number}.txt"}}'},
        }
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = (f"line {number} of the file, exit code 0\n" * (result_chars // 30))[:result_chars]
        messages.append({"role": "tool", "tool_call_id": f"t{number}", "content": text})
    messages.append({"role": "assistant", "content": f"answer {number} {said}"})
    return cast(list[Message], messages)


async def test_five_hundred_compressions_in_a_row() -> None:
    rng = random.Random(500)
    run = LongRun(8_000)
    threshold = run.engine.threshold_tokens
    number = compressions = idle = 0
    sizes: list[int] = []
    summaries: list[int] = []
    while compressions < 500:
        number += 1
        batch = [m for k in range(6) for m in turn(rng, number * 10 + k, rng.choice((0, 0, 1500)))]
        loaded = await run.say(batch)
        if not run.compactor.due(loaded).due:
            idle += 1
            assert idle < 20, "it stopped compressing"
            continue
        idle = 0
        result = await run.compactor.compact(loaded, "loop")
        assert result.outcome == "compressed", result.reason
        compressions += 1
        loaded = result.loaded
        messages = [row.message for row in loaded.rows]
        size = estimate_messages_tokens_rough(messages)
        assert size < threshold
        assert not run.compactor.due(loaded).due
        assert not orphan_results(messages)
        assert not unanswered_calls(messages)
        everything = context_text(messages)
        kinds = [row.kind for row in loaded.rows]
        assert kinds.count("summary") <= 1
        assert everything.count(SUMMARY_HEADER) == kinds.count("summary")
        assert everything.count(SUMMARY_END) == kinds.count("summary")
        head = kinds.index("summary") if "summary" in kinds else 0
        assert compressions == 1 or head <= 1
        sizes.append(size)
        summaries.append(sum(row.tokens for row in loaded.rows if row.kind == "summary"))
        if compressions % 50 == 0:
            run.restart()
        # the real size that comes next says that it helped: nothing blocks the one after
        await run.compactor.note_usage(loaded, Usage(size, 50))
    assert len(run.model.asked) <= 2 * compressions
    assert max(summaries) < threshold // 2
    assert sum(sizes[-100:]) < 1.2 * sum(sizes[50:150])
    assert sum(summaries[-100:]) < 1.2 * sum(summaries[50:150])


async def test_where_pruning_is_enough_the_cache_breaks_at_most_every_tenth_turn() -> None:
    rng = random.Random(10)
    run = LongRun(100_000)
    breaks: list[int] = []
    modes: list[str] = []
    for number in range(150):
        loaded = await run.say(turn(rng, number, 8_000))
        before = loaded.session
        if run.compactor.due(loaded).due:
            result = await run.compactor.compact(loaded, "loop")
            assert result.outcome == "compressed"
        found = await run.store.conversation_for_key(KEY)
        assert found is not None
        after = await run.store.session(found.tip_session_id)
        if (after.id, after.revision) != (before.id, before.revision):
            assert after.manifest is not None
            breaks.append(number)
            modes.append(after.manifest["mode"])
    assert modes[:3] == ["prune"] * 3
    assert all(later - earlier >= 10 for earlier, later in pairwise(breaks))
