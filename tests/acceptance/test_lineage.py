"""Conversations as their owners handle them: back, fork, elsewhere; new settings; kills."""

from __future__ import annotations

import json
import re

import pytest

from tests.acceptance.harness import Daemon, TelegramChat, World, answered, eventually, settled
from tests.fakes.anthropic_server import Answer, MessageRequest, text, thinking, tool_use
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

THRESHOLD_TOKENS = 4000
"""Half of the window of these tests."""
FILLER = "the quartz lighthouse stands in the fog of the northern harbour " * 16


async def told(chat: TelegramChat, command: str, daemon: Daemon) -> str:
    """Give a command and wait for the one answer to it; a pressure notice may come between."""
    before = len(chat.shown())

    def answers() -> list[str]:
        return [text for text in chat.shown()[before:] if not text.startswith("Context ▰")]

    chat.say(command)
    await eventually(lambda: bool(answers()), 20.0, f"an answer to {command}", alive=daemon)
    return answers()[0]


async def test_back_through_a_compression_a_fork_and_home_again(world: World) -> None:
    """/uncompress holds for three turns; /branch leaves the old one alone, /resume leads back."""
    # A window so small that ahead of time, below the threshold, there is nothing to gain yet.
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    database = world.database()
    count = 0
    while count < 3 or not any(len(chain) == 2 for chain in database.chains().values()):
        count += 1
        assert count < 30
        chat.say(f"part {count}: {FILLER}")
        await answered(chat, f"reply to: part {count}:", daemon)
    ((conversation_id, chain),) = database.chains().items()
    assert world.anthropic.summary_requests

    assert "word for word again" in await told(chat, "/uncompress", daemon)
    chain = database.chains()[conversation_id]
    assert [
        database.one("SELECT end_reason FROM sessions WHERE id = ?", session_id)
        for session_id in chain
    ] == ["compression", "uncompress", None]
    said = [row["content"] for row in database.active(chain[-1]) if row["role"] == "user"]
    assert [s.split(":")[0] for s in said] == [f"part {n}" for n in range(1, count + 1)]
    for word in ("first", "second", "third"):
        answer = await told(chat, f"{word} question: {FILLER}", daemon)
        assert answer.startswith(f"reply to: {word} question")
    assert world.anthropic.main_requests[-1].input_tokens > THRESHOLD_TOKENS
    assert len(database.chains()[conversation_id]) == 3
    assert f"part 1: {FILLER[:40]}" in json.dumps(world.anthropic.main_requests[-1].messages)

    way_back = re.search(r"/resume (c_\w+)", await told(chat, "/branch", daemon))
    assert way_back is not None
    assert way_back[1] == conversation_id
    assert await told(chat, "only in the copy", daemon) == "reply to: only in the copy"
    assert "Back in" in await told(chat, way_back[0], daemon)
    await told(chat, "at home", daemon)
    asked = json.dumps(world.anthropic.main_requests[-1].messages)
    assert "third question" in asked
    assert "only in the copy" not in asked
    assert "at home" in await told(chat, "/undo", daemon)
    await told(chat, "at home again", daemon)
    listed = await told(chat, "/sessions", daemon)
    assert re.search(r"^1\. .*← here$", listed, re.MULTILINE)
    assert re.search(r"^2\. ", listed, re.MULTILINE)
    assert world.anthropic.rejected == []
    await settled(world)
    code, _ = await daemon.terminate()
    assert code == 0
    check_invariants(database.path)


def respond(request: MessageRequest) -> Answer:
    """Thinks, calls a tool, thinks again, answers: what is bound to its prefix is everywhere."""
    asked = request.last_user_text
    if not any(block["type"] == "tool_result" for block in request.last_blocks):
        return Answer([thinking("what time is it"), tool_use("current_time", {})])
    return Answer([thinking("now I know"), text(f"answer to: {asked}")])


async def test_a_retry_over_a_kill_and_new_settings(world: World) -> None:
    """Killed while the message is asked again; it comes back to another prompt and model."""
    world.configure(agent={"system_prompt": "Be kind."}, model={"name": "claude-sonnet-5-5"})
    world.anthropic.responder = respond
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    for word in ("one", "two"):
        assert await told(chat, word, daemon) == f"answer to: {word}"
    world.anthropic.fault_next("hang", text="two")
    chat.say("/retry")
    await eventually(
        lambda: world.anthropic.records.in_flight == 1, 10.0, "the retry", alive=daemon
    )
    await daemon.kill()

    world.configure(agent={"system_prompt": "Be brief."}, model={"name": "claude-opus-5-5"})
    daemon = await world.run("telegram")
    await eventually(lambda: len(chat.shown()) == 3, 20.0, "the answer", alive=daemon)
    assert await told(chat, "three", daemon) == "answer to: three"
    assert chat.shown() == [f"answer to: {word}" for word in ("one", "two", "two", "three")]
    database = world.database()
    await settled(world)
    (chain,) = database.chains().values()
    sessions = [
        database.rows("SELECT * FROM sessions WHERE id = ?", session_id)[0] for session_id in chain
    ]
    assert [s["end_reason"] for s in sessions] == ["switch", None]
    assert [s["system_prompt"] for s in sessions] == ["Be kind.", "Be brief."]
    said = [row["content"] for row in database.active(chain[-1]) if row["role"] == "user"]
    assert said == ["one", "two", "three"]
    last = world.anthropic.main_requests[-1]
    assert last.body["model"] == "claude-opus-5-5"
    assert last.body["system"][0]["text"] == "Be brief."
    assert world.anthropic.rejected == []
    await daemon.terminate()
    check_invariants(database.path)
