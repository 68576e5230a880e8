"""The conversation of the README's pictures, had again: it still goes as the pictures say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.chat_pictures import RECORDED
from scripts.chat_recording import record

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


def steady(chats: dict[str, Any]) -> Any:
    """Without figures: what the instructions and tools take changes them."""
    return json.loads(re.sub(r"\d+(?:[.,]\d+)*", "0", json.dumps(chats, ensure_ascii=False)))


async def test_the_conversation_of_the_pictures(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert steady(await record(tmp_path)) == steady(recorded), "python -m scripts.chat_pictures"
