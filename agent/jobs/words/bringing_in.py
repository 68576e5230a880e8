"""Owns how the words for times come into the process: on a thread, when they are first needed."""

from __future__ import annotations

import importlib
import sys
from functools import partial

from agent.llm.background import in_daemon_thread

_READING = "agent.jobs.words.reading"


async def bring_in_words() -> None:
    """Their patterns take a tenth of a second to be made: not on the event loop's time."""
    if _READING not in sys.modules:
        await in_daemon_thread(partial(importlib.import_module, _READING), "words-import")
