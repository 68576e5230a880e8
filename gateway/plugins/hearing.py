"""Owns a plugin's transcription as the daemon's: `agent.media.transcription.Transcriber`."""

from __future__ import annotations

import mimetypes
import tempfile
from pathlib import Path
from typing import Any

from agent.keywords import accepted
from gateway.plugins.calling import (
    Callee,
    PluginCalls,
)

SECONDS = 30.0
MAX_CHARS = 100_000


class NothingHeard(Exception):
    """It says itself that it did not work."""


class ForeignTranscriber:
    """Hands each recording over as a file, on a thread of plugins."""

    def __init__(self, plugin: str, provider: Any, calls: PluginCalls) -> None:
        self._provider = provider
        self._calls = calls
        self._callee = Callee(plugin, "transcription")

    async def transcribe(self, data: bytes, *, media_type: str) -> str:
        suffix = mimetypes.guess_extension(media_type) or ".bin"

        def call() -> Any:
            with tempfile.TemporaryDirectory(prefix="posthouse-heard-") as folder:
                path = Path(folder, f"recording{suffix}")
                path.write_bytes(data)
                transcribe = self._provider.transcribe
                more = accepted(transcribe, {"mime_type": media_type})
                # In here, while the file is there; what has to be awaited reads it too late.
                return _words(transcribe(str(path), **more))

        text: str = await self._calls.one(self._callee, call, SECONDS)
        return text


def _words(given: Any) -> str:
    if isinstance(given, dict):
        if given.get("success") is False:
            raise NothingHeard(str(given.get("error") or "no reason")[:200])
        given = given.get("transcript") or given.get("text") or ""
    if not isinstance(given, str):
        raise TypeError(f"transcribe gave {type(given).__name__}, not text")
    return str(given)[:MAX_CHARS]
