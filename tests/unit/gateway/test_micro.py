"""/micro, and what runs behind a turn: switched by whom, when, and never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.micro.passes import MicroParts
from agent.compaction.micro.progress import MicroSettings
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.errors import StoreUnavailable
from agent.loop import TurnResult
from agent.messages import text_of
from agent.sessions import LoadedSession, TurnTicket
from gateway import texts
from gateway.config.models import Compression, Config, unavailable
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.monitoring.self_report import SelfReport
from gateway.turns.compactors import CompactorCache
from gateway.turns.micro import MicroDesk
from gateway.windows.rules import micro_of
from tests.fakes.clock import FakeClock
from tests.fakes.micro_bench import cumulative
from tests.fakes.platform import inbound
from tests.fakes.side_model import ScriptedSideModel
from tests.unit.gateway.rig import FakeStatus, Rig, said

KEY = '["fake","900","111",null,"111"]'
SHARED = PlatformPolicy(
    AccessRules(allow_chats=frozenset({"-100"}), admins=frozenset({"111"})),
    group_sessions_per_user=False,
)
THREADS = DaemonThreads(2, name="test-micro-desk")


class Talk:
    """A gateway of which the test says one line after the other."""

    def __init__(self, clock: FakeClock, **options: Any) -> None:
        self.rig = Rig(clock, **options)
        self.count = 0

    async def say(self, text: str, **changes: Any) -> str:
        self.count += 1
        await self.rig.intake.receive(inbound(text, message_id=f"m{self.count}", **changes))
        await self.rig.settle()
        found = self.rig.platform.texts()
        return found[-1] if found else ""

    async def config_of(self, key: str = KEY) -> dict[str, Any]:
        conversation = await self.rig.store.conversation_for_key(key)
        session = await self.rig.store.session(conversation.tip_session_id)
        found: dict[str, Any] = session.prefix.model_config
        return found


# --- the command


async def test_it_is_set_shown_and_taken_back(clock: FakeClock) -> None:
    talk = Talk(clock)
    assert await talk.say("/micro") == texts.NO_CONVERSATION
    assert await talk.say("/micro on") == texts.NO_CONVERSATION
    await talk.say("hi")
    assert (await talk.say("/micro")).startswith("Micro-compaction is off here (as configured)")
    answer = await talk.say("/micro ON")
    assert answer.startswith("Micro-compaction is on here (set with /micro)")
    assert "After each answer" in answer
    assert await talk.config_of() == {"micro_compact_override": "on"}
    assert (await talk.say("/micro off")).startswith("Micro-compaction is off here (set with")
    assert await talk.config_of() == {"micro_compact_override": "off"}
    assert (await talk.say("/micro inherit")).endswith("off here (as configured).")
    assert await talk.config_of() == {}
    answer = await talk.say("/micro maybe")
    assert answer == f"“maybe” is none of on, off, inherit. {texts.MICRO_USAGE}"
    await talk.say("/help")
    assert any("/micro [on|off|inherit]" in text for text in talk.rig.platform.texts())


async def test_a_new_conversation_does_not_inherit_and_a_restart_does(clock: FakeClock) -> None:
    talk = Talk(clock)
    await talk.say("hi")
    await talk.say("/micro on")
    talk.rig.kill()
    talk.rig.boot()
    assert "on here" in await talk.say("/micro status")
    await talk.say("/new")
    assert "off here" in await talk.say("/micro status")


async def test_a_refreeze_keeps_what_was_set(clock: FakeClock) -> None:
    talk = Talk(clock)
    await talk.say("hi")
    await talk.say("/micro on")
    talk.rig.prefix = replace(talk.rig.prefix, system_prompt="be kinder")
    await talk.say("again")
    assert await talk.config_of() == {"micro_compact_override": "on"}
    sessions = await talk.rig.store.list_sessions()
    assert sorted(s.end_reason or "" for s in sessions) == ["", "switch"]


async def test_while_something_runs_it_is_only_shown(clock: FakeClock) -> None:
    talk = Talk(clock)
    await talk.say("hi")
    gate = asyncio.Event()
    talk.rig.hold("long", gate)
    await talk.say("long")
    assert await talk.say("/micro on") == texts.STILL_RUNNING
    assert "off here" in await talk.say("/micro status")
    gate.set()
    await talk.rig.settle()
    assert await talk.config_of() == {}
    assert "on here" in await talk.say("/micro on")


async def test_in_a_shared_conversation_only_an_admin_sets_it(clock: FakeClock) -> None:
    talk = Talk(clock, policy=SHARED)
    group = {"chat_id": "-100", "chat_kind": "group", "addressed": True}
    await talk.say("hi", sender_id="222", **group)
    assert await talk.say("/micro on", sender_id="222", **group) == texts.ADMIN_ONLY
    assert "off here" in await talk.say("/micro", sender_id="222", **group)
    assert "on here" in await talk.say("/micro on", sender_id="111", **group)


async def test_what_keeps_it_from_running_is_said(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeStatus, "micro_rules", "compression.enabled is false")
    talk = Talk(clock)
    await talk.say("hi")
    assert await talk.say("/micro") == (
        "Micro-compaction does not run: compression.enabled is false."
    )
    assert "is set to on" in await talk.say("/micro on")
    monkeypatch.setattr(FakeStatus, "micro_rules", MicroSettings(True, every_n_turns=3))
    assert "every 3 answers" in await talk.say("/micro inherit")


async def test_what_it_has_done_is_told(clock: FakeClock) -> None:
    talk = Talk(clock)
    await talk.say("hi")
    conversation = await talk.rig.store.conversation_for_key(KEY)
    session = await talk.rig.store.session(conversation.tip_session_id)
    state = session.compression.changed(micro_passes=2, micro_saved_tokens=1200, micro_failures=1)
    await talk.rig.store.set_compression(session.id, state)
    answer = await talk.say("/micro")
    assert "2 passes, 1,200 tokens shorter" in answer
    assert "The last 1 try failed" in answer
    worse = state.changed(micro_passes=1, micro_saved_tokens=-40, micro_failures=0)
    await talk.rig.store.set_compression(session.id, worse)
    assert "1 pass, 40 tokens longer" in await talk.say("/micro")


def test_the_configuration_reaches_it() -> None:
    rules = Compression(
        micro_compact=True, micro_compact_every_n_turns=4, micro_compact_defrag_threshold_tokens=900
    )
    config = Config(compression=rules)
    assert micro_of(config) == MicroSettings(True, 4, 900)
    assert not any("micro" in line for line in unavailable(config))
    off = Config(compression=Compression(enabled=False, micro_compact=True))
    report: Any = SelfReport.__new__(SelfReport)
    report._config = lambda: off
    assert "compression.enabled" in str(report.micro())


# --- behind a turn


class Behind(Talk):
    """The same with a real compactor behind each turn."""

    def __init__(self, clock: FakeClock, **options: Any) -> None:
        super().__init__(clock, **options)
        rig = self.rig
        self.model = ScriptedSideModel(cumulative)
        self.compactors = CompactorCache(self._compactor)
        self.desk = MicroDesk(self.compactors, clock)
        rig.turns._aftermath = replace(rig.turns._aftermath, on_answered=self.desk.answered)
        answer = rig.loop.__class__.__call__

        async def with_list(
            loop: Any, ticket: TurnTicket, loaded: LoadedSession, **rest: Any
        ) -> TurnResult:
            return replace(await answer(loop, ticket, loaded, **rest), loaded=loaded)

        rig.turns._loop = lambda *args, **rest: with_list(rig.loop, *args, **rest)

    def _compactor(self, conversation_id: str) -> SessionCompactor:
        rig = self.rig
        engine = ContextCompressor(
            "model-1",
            protect_first_n=0,
            protect_last_n=2,
            config_context_length=6000,
            side_model=self.model,
            clock=rig.clock,
        )
        return SessionCompactor(
            engine,
            rig.store,
            rig.clock,
            rig.store._ids,
            CompactionSettings(),
            threads=THREADS,
            micro=MicroParts(MicroSettings(enabled=True), self.model, THREADS),
        )

    async def long(self, k: int) -> None:
        async def script(*_: object) -> Any:
            return said(f"answer {k} " + "a" * 1200)

        text = f"question {k} " + "q" * 400
        self.rig.loop.scripts[text] = script
        await self.say(text)

    async def over(self) -> None:
        """Until nothing runs behind the turns."""
        while len(self.desk):
            await asyncio.wait(set(self.desk._tasks._tasks))

    async def kinds(self) -> list[str]:
        conversation = await self.rig.store.conversation_for_key(KEY)
        loaded = await self.rig.store.load(conversation.tip_session_id)
        return [row.kind or row.message["role"] for row in loaded.rows]


async def test_an_answer_is_handed_over_before_anything_is_condensed(clock: FakeClock) -> None:
    talk = Behind(clock)
    await talk.long(1)
    loop, gate = asyncio.get_running_loop(), asyncio.Event()

    def slow(asked: Any) -> str:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(20)
        return cumulative(asked)

    talk.model.heal(slow)
    await talk.long(2)
    assert any(text.startswith("answer 2") for text in talk.rig.platform.texts())
    assert len(talk.desk) == 1
    # a message that comes meanwhile is answered at once, on the list as it was
    await talk.say("hello")
    assert talk.rig.platform.texts()[-1] == "re: hello"
    gate.set()
    await talk.over()
    assert "micro" not in await talk.kinds()
    talk.model.heal("never asked")
    await talk.say("and on")
    await talk.over()
    assert (await talk.kinds())[:3] == ["user", "micro", "user"]
    assert len(talk.model.asked) == 1
    await talk.rig.stop()


async def test_only_a_turn_that_was_answered_counts(clock: FakeClock) -> None:
    talk = Behind(clock)
    seen: list[str] = []
    talk.rig.turns._aftermath = replace(
        talk.rig.turns._aftermath,
        on_answered=lambda conversation_id, result: seen.append(result.text),
    )
    await talk.say("hi")
    gate = asyncio.Event()
    talk.rig.hold("long", gate)
    await talk.say("long")
    await talk.say("/stop")

    async def fail(*_: Any) -> Any:
        raise KeyError("bug")

    talk.rig.loop.scripts["bad"] = fail
    await talk.say("bad")
    assert seen == ["re: hi"]


async def test_a_crash_or_a_store_in_trouble_stays_behind_the_turn(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Behind(clock)
    for error in (RuntimeError("bug"), StoreUnavailable("disk")):

        async def broken(*_: Any, error: Exception = error) -> None:
            raise error

        (await talk.compactors.get("c_1")).after_turn = broken  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING):
            await talk.say("hi")
            await talk.over()
        assert talk.rig.platform.texts()[-1] == "re: hi"
    assert [r.levelname for r in caplog.records if "micro compaction" in r.message] == [
        "ERROR",
        "WARNING",
    ]


async def test_at_the_end_of_the_daemon_it_lets_go(clock: FakeClock) -> None:
    talk = Behind(clock)
    await talk.long(1)
    loop, gate = asyncio.get_running_loop(), asyncio.Event()

    def slow(asked: Any) -> str:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(20)
        return cumulative(asked)

    talk.model.heal(slow)
    await talk.long(2)
    await talk.desk.close(1.0)
    assert len(talk.desk) == 0
    gate.set()
    await talk.say("late")
    assert len(talk.desk) == 0
    assert "micro" not in await talk.kinds()
    conversation = await talk.rig.store.conversation_for_key(KEY)
    loaded = await talk.rig.store.load(conversation.tip_session_id)
    assert text_of(loaded.rows[-1].message["content"]) == "re: late"


async def test_while_the_last_turns_end_nothing_more_is_begun(clock: FakeClock) -> None:
    """What a turn of the drain set going would be paid for and cut off."""
    talk = Behind(clock)
    for k in (1, 2, 3):
        await talk.long(k)
    await talk.over()
    asked = len(talk.model.asked)
    talk.desk.hold()
    for k in (4, 5):
        await talk.long(k)
    assert (len(talk.desk), len(talk.model.asked)) == (0, asked)
    assert asked > 0


async def test_nobody_pays_who_may_not(clock: FakeClock) -> None:
    talk = Behind(clock)
    asked: list[str] = []

    async def may_spend(owner: str) -> bool:
        asked.append(owner)
        return False

    for k in (1, 2):
        compactor: Any = await talk.compactors.get("c_1")
        compactor._micro._may_spend = may_spend
        await talk.long(k)
        await talk.over()
    assert asked == ["fake:111"]
    assert talk.model.asked == []
