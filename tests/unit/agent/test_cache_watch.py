"""Why a prompt was not read from the cache: each cause, alone and where several would fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.cache_watch import CacheWatch, Chain
from agent.messages import Message, ToolSchema
from agent.ports import ModelRequest, ModelResponse, Usage
from agent.sessions import CompressionState, Session, SessionPrefix
from tests.fakes.clock import FakeClock

TOOL = ToolSchema("look", "Looks.", {"type": "object", "properties": {"q": {"type": "string"}}})
SESSION = Session(
    id="s1",
    conversation_id="c1",
    parent_session_id=None,
    link=None,
    revision=0,
    prefix=SessionPrefix("t", "claude-sonnet-5-5", "You help.", (TOOL,)),
    title=None,
    started_at=0.0,
    ended_at=None,
    end_reason=None,
    message_count=0,
    anchor=None,
    compression=CompressionState(),
)


def said(*texts: str) -> tuple[Message, ...]:
    return tuple(
        {"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)
    )


def request(*messages: Message, **changes: Any) -> ModelRequest:
    asked = ModelRequest("You help.", messages, 100, tools=(TOOL,), cache_ttl="5m")
    return replace(asked, **changes)


def usage(read: int, written: int = 0, fresh: int = 10, model: str = "claude-sonnet-5-5") -> Usage:
    return Usage(fresh, 50, read, written, model=model)


def answered(
    watch: CacheWatch,
    asked: ModelRequest,
    took: Usage,
    session: Session = SESSION,
    **said_by_provider: Any,
) -> str:
    """One request in a turn of its own."""
    turn = watch.turn()
    turn.sends()
    response = ModelResponse({"role": "assistant", "content": "ok"}, "end_turn", took, took.model)
    return turn.answered(asked, session, took, replace(response, **said_by_provider))


class Talk:
    """A watch that has seen a first, cached request."""

    def __init__(self, clock: FakeClock, **first: Any) -> None:
        self.clock = clock
        self.watch = CacheWatch(clock)
        self.tell(request(*said("a")), usage(0, 5000), **first)

    def tell(self, asked: ModelRequest, took: Usage, session: Session = SESSION) -> str:
        return answered(self.watch, asked, took, session)


@pytest.fixture
def talk(clock: FakeClock) -> Talk:
    return Talk(clock)


LONGER = said("a", "b", "c")


def test_the_first_request_has_nothing_to_read(clock: FakeClock) -> None:
    watch = CacheWatch(clock)
    assert answered(watch, request(*said("a")), usage(0, 5000)) == "first"


def test_after_a_restart_a_hit_is_a_hit(clock: FakeClock) -> None:
    watch = CacheWatch(clock)
    assert answered(watch, request(*LONGER), usage(5000)) == ""


def test_each_miss_is_told(clock: FakeClock) -> None:
    told: list[str] = []
    watch = CacheWatch(clock, on_miss=told.append)
    answered(watch, request(*said("a")), usage(0, 5000))
    answered(watch, request(*LONGER), usage(5000))
    assert told == ["first"]


def test_what_was_read_is_no_miss(talk: Talk) -> None:
    assert talk.tell(request(*LONGER), usage(5000, 300)) == ""
    assert talk.tell(request(*LONGER, *said("d")), usage(5300, 10)) == ""


@pytest.mark.parametrize(
    ("changes", "session", "took", "cause"),
    [
        ({}, SESSION, usage(0, 5300, model="claude-opus-5-5"), "model"),
        ({"system": "Now it is Tuesday."}, SESSION, usage(0, 5300), "system"),
        ({"tools": ()}, SESSION, usage(0, 5300), "tools"),
        ({"tools": (replace(TOOL, description="Other."),)}, SESSION, usage(0, 5300), "tools"),
        ({}, replace(SESSION, revision=1), usage(300, 5000), "revision"),
        ({}, replace(SESSION, id="s2"), usage(300, 5000), "revision"),
        ({"messages": said("A", "b", "c")}, SESSION, usage(300, 5000), "messages"),
        ({"messages": ()}, SESSION, usage(300, 5000), "messages"),
        ({}, SESSION, usage(0, 5300), "provider"),
    ],
)
def test_causes(
    talk: Talk, changes: dict[str, Any], session: Session, took: Usage, cause: str
) -> None:
    assert talk.tell(replace(request(*LONGER), **changes), took, session) == cause


def test_a_changed_list_within_a_revision_is_called_a_bug(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    blocks: Message = {
        "role": "user",
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "x"}},
        ],
    }
    talk.tell(request(blocks), usage(0, 5000), replace(SESSION, revision=1))
    changed: Message = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    assert talk.tell(request(changed), usage(0), replace(SESSION, revision=1)) == "messages"
    assert "the list of messages changed within a revision" in caplog.messages


@pytest.mark.parametrize(
    ("ttl", "idle", "cause"),
    [
        ("5m", 299, "provider"),
        ("5m", 301, "expired"),
        ("1h", 301, "provider"),
        ("1h", 3601, "expired"),
    ],
)
async def test_the_life_of_an_entry_is_that_of_the_request_that_wrote_it(
    clock: FakeClock, ttl: Any, idle: float, cause: str
) -> None:
    watch = CacheWatch(clock)
    answered(watch, request(*said("a"), cache_ttl=ttl), usage(0, 5000))
    await clock.advance(idle)
    # Configured otherwise since: that changes nothing about the entry that is there.
    other = "1h" if ttl == "5m" else "5m"
    asked = request(*LONGER, cache_ttl=other)
    assert answered(watch, asked, usage(0, 5300)) == cause


def test_a_prompt_that_was_too_short_to_be_kept(clock: FakeClock) -> None:
    watch = CacheWatch(clock)
    answered(watch, request(*said("a")), usage(0, fresh=900))
    assert answered(watch, request(*LONGER), usage(0, 1100)) == "short"


def test_without_marks_nothing_is_missed(clock: FakeClock) -> None:
    watch = CacheWatch(clock)
    asked = request(*said("a"), cache_ttl=None)
    assert answered(watch, asked, usage(0)) == ""


def test_only_the_busiest_conversations_are_remembered(clock: FakeClock) -> None:
    watch = CacheWatch(clock, max_conversations=2)
    for name in ("c1", "c2", "c3"):
        session = replace(SESSION, conversation_id=name)
        assert answered(watch, request(), usage(0, 5000), session) == "first"
    for name, cause in (("c2", "provider"), ("c3", "provider"), ("c1", "first")):
        session = replace(SESSION, conversation_id=name)
        assert answered(watch, request(), usage(0, 5000), session) == cause


def test_the_providers_diagnosis_counts_where_we_know_of_nothing(talk: Talk) -> None:
    watch, asked = talk.watch, request(*LONGER)
    assert answered(watch, asked, usage(0, 5300), cache_diagnosis="system") == "system"
    assert answered(watch, asked, usage(0, 5300), cache_diagnosis="unavailable") == "provider"
    other = replace(asked, tools=())
    assert answered(watch, other, usage(0, 5300), cache_diagnosis="system") == "tools"


def test_the_last_answer_is_known_by_its_name(talk: Talk) -> None:
    assert talk.watch.answer_before("c1") == ""
    answered(talk.watch, request(*LONGER), usage(5000), answer_id="msg_1")
    assert talk.watch.turn().answer_before("c1") == "msg_1"
    assert talk.watch.answer_before("c2") == ""


def test_a_turn_hashes_what_is_new_and_notices_another_list() -> None:
    talk = list(said("a", "b", "c", "d"))
    running = Chain()
    whole = Chain()
    assert running.over(talk[:2]) == Chain().over(talk[:2])
    assert running.over(talk) == whole.over(talk)
    changed: list[Message] = [{**talk[0], "content": "A"}, *said("a", "b", "c", "d")[1:]]
    assert running.over(changed) == Chain().over(changed) != whole.over(talk)
    assert running.over(talk[:1]) == Chain().over(talk[:1])
    assert running.over([]) == Chain().over([])
