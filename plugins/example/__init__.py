"""A worked example: a tool, a command and two hooks in one file. See ../README.md."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import Any

MAX_DICE = 100
DICE = {
    "name": "roll_dice",
    "description": "Roll dice and see what each of them shows.",
    "parameters": {
        "type": "object",
        "properties": {
            "dice": {"type": "integer", "description": f"How many: 1 to {MAX_DICE}."},
            "sides": {"type": "integer", "description": "Of each die; 6 if left out."},
        },
        "required": ["dice"],
    },
}


class WordCount:
    """Words of answers, by conversation. Hooks and commands run on several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._words: Counter[str] = Counter()

    def note(self, conversation_id: str, assistant_response: str, **more: Any) -> None:
        """The hook ``post_llm_call``: an answer is stored and goes out."""
        with self._lock:
            self._words[conversation_id] += len(assistant_response.split())

    def show(self, raw_args: str) -> str:
        """The command ``/words``."""
        with self._lock:
            total, chats = sum(self._words.values()), len(self._words)
        return f"{total} words in {chats} conversations since I was started."


def roll_dice(args: dict[str, Any], **more: Any) -> str:
    """The tool. Its arguments fit the schema's types; what they say is still to be checked."""
    dice, sides = args["dice"], args.get("sides", 6)
    if not (1 <= dice <= MAX_DICE and 2 <= sides <= 1000):
        return json.dumps({"error": f"roll 1 to {MAX_DICE} dice with 2 to 1000 sides"})
    rolled = [random.randint(1, sides) for _ in range(dice)]
    return json.dumps({"rolled": rolled, "sum": sum(rolled)})


def time_of_day(user_message: str, **more: Any) -> str | None:
    """The hook ``pre_llm_call``: what it gives rides in the message; None: nothing does."""
    if "time" not in user_message.lower():
        return None
    return f"It is {time.strftime('%H:%M', time.gmtime())} in Greenwich."


def register(ctx: Any) -> None:
    """Called once, at the start."""
    words = WordCount()
    ctx.register_tool("roll_dice", "example", DICE, roll_dice)
    ctx.register_command("words", words.show, description="how many words I have answered")
    ctx.register_hook("post_llm_call", words.note)
    if ctx.get_config("time", True):
        ctx.register_hook("pre_llm_call", time_of_day)
