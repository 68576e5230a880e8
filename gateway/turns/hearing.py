"""Owns the hearing of voice messages: who is asked, how long is waited, what the model reads of it.

Nobody is asked unless a plugin has brought somebody who can (`agent.media.transcription`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from agent.media.transcription import Transcriber
from agent.ports import Clock
from gateway.intake.wording import HEARD, quoted_words
from gateway.tasks import spawn, wait_all

log = logging.getLogger(__name__)

SECONDS = 30.0
"""For one message; a person waits for the answer meanwhile."""
KEPT_BACK_SECONDS = 2.0
"""Of the time that all files of a turn have: a slow hearing must not cost the file itself."""
MAX_WORDS_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one recording."""

    remark: str = ""
    """For the line that names the file."""
    line: str = ""
    """The words, on a line of their own that nobody else can write; "": there are none."""


UNHEARD = Heard()
IN_VAIN = Heard("could not be transcribed")


class Hearing:
    """Asks for the words of recordings."""

    def __init__(self, transcriber: Transcriber | None, clock: Clock) -> None:
        self._transcriber = transcriber
        self._clock = clock

    async def heard(self, data: bytes, media_type: str, deadline: float) -> Heard:
        """The words of a recording, if there is somebody to ask; ``deadline``: of the whole turn.

        Never raises for what a transcriber does.
        """
        seconds = min(SECONDS, deadline - KEPT_BACK_SECONDS - self._clock.monotonic())
        if self._transcriber is None or seconds <= 0:
            return UNHEARD
        hearing = _asked(self._transcriber, data, media_type)
        task = spawn(hearing, name="transcription of a voice message")
        try:
            in_time = await wait_all((task,), self._clock, seconds)
        finally:
            task.cancel()
        if not in_time:
            log.warning("a transcription took too long", extra={"seconds": seconds})
            return IN_VAIN
        if task.cancelled() or task.exception() is not None:  # logged by its owner
            return IN_VAIN
        words = quoted_words(str(task.result()), MAX_WORDS_CHARS)
        return Heard("transcribed", f"{HEARD}{words}]") if words else IN_VAIN


async def _asked(transcriber: Transcriber, data: bytes, media_type: str) -> str:
    """In a task from its first step on: a plugin may fail before it gives anything to wait for."""
    return await transcriber.transcribe(data, media_type=media_type)
