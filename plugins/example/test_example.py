"""The example, by what authors of plugins can use: `plugins.testing`, and plain calls."""

from __future__ import annotations

import json

import pytest

from plugins.example import MAX_DICE, register
from plugins.testing.recorder import registered
from plugins.testing.tools import ToolSuite


class TestDice(ToolSuite):
    """What is promised of every tool holds for this one."""

    register = staticmethod(register)
    name = "roll_dice"
    arguments = {"dice": 3}  # noqa: RUF012


def test_dice() -> None:
    handler = registered(register).tools["roll_dice"].handler
    shown = json.loads(handler({"dice": 3, "sides": 2}))
    assert len(shown["rolled"]) == 3
    assert shown["sum"] == sum(shown["rolled"])


@pytest.mark.parametrize("dice", [0, -1, MAX_DICE + 1])
def test_too_many_dice(dice: int) -> None:
    handler = registered(register).tools["roll_dice"].handler
    assert "error" in json.loads(handler({"dice": dice}))


def test_words_of_answers_are_counted() -> None:
    given = registered(register)
    given.call("post_llm_call", conversation_id="a", assistant_response="three short words")
    given.call("post_llm_call", conversation_id="b", assistant_response="more")
    assert given.commands["words"]("") == "4 words in 2 conversations since I was started."


def test_the_time_is_added_where_it_is_asked_for() -> None:
    given = registered(register)
    (added,) = given.call("pre_llm_call", user_message="What time is it?")
    assert "in Greenwich" in added
    assert given.call("pre_llm_call", user_message="Hello") == [None]
    assert registered(register, {"time": False}).hooks.get("pre_llm_call") is None
