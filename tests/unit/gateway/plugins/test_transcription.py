"""A plugin that hears: recordings as files, on its own thread, its words or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.calling import CallFailed, PluginCalls
from gateway.plugins.hearing import ForeignTranscriber
from tests.fakes.clock import FakeClock


class Provider:
    """Says what is asked for, and keeps what it was given."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.path = Path()
        self.data = b""

    def transcribe(self, file_path: str, *, model: str | None = None) -> Any:
        self.path = Path(file_path)
        self.data = self.path.read_bytes()
        return self.outcome


async def heard(outcome: Any) -> tuple[str, Provider]:
    provider = Provider(outcome)
    transcriber = ForeignTranscriber("plug", provider, PluginCalls(FakeClock()))
    return await transcriber.transcribe(b"OggS", media_type="audio/ogg"), provider


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({"success": True, "transcript": "hello"}, "hello"),
        ("hello", "hello"),
        ({"text": "hello"}, "hello"),
        ({"success": True, "transcript": ""}, ""),
    ],
)
async def test_its_words(outcome: Any, words: str) -> None:
    text, provider = await heard(outcome)
    assert text == words
    assert provider.data == b"OggS"
    assert provider.path.suffix in (".ogg", ".oga")
    assert not provider.path.exists()


@pytest.mark.parametrize("outcome", [{"success": False, "error": "no"}, None, 7])
async def test_nothing_that_could_be_used(outcome: Any) -> None:
    with pytest.raises(CallFailed):
        await heard(outcome)
