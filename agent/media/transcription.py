"""Owns the port by which recorded speech becomes words. None comes with us: a plugin brings one."""

from __future__ import annotations

from typing import Protocol


class Transcriber(Protocol):
    """Hears voice messages; one for the daemon, asked for several at once."""

    async def transcribe(self, data: bytes, *, media_type: str) -> str:
        """What is said in it; ``""``: nothing that could be made out.

        Awaited on the event loop for a bounded time, then cancelled: what blocks belongs into a
        thread or process of its own. Whatever it raises is logged, and the message goes on without
        the words. A message may be heard again after a restart.

        Args:
            data: The recording, at most 20 MB of it.
            media_type: By its bytes: ``audio/ogg``.
        """
        ...
