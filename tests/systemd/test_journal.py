"""What the journal has of the service: entries with fields, for whoever asks for one turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.systemd.service import UNIT, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def turn_of(service: Service) -> dict[str, Any]:
    """The line of the one turn that is done; it comes behind the answer."""
    async with asyncio.timeout(30):
        while True:
            # Not by a match: behind a cursor journalctl leaves out the first that fits.
            found = [e for e in await service.entries() if e.get("OUTCOME") == "done"]
            if found:
                (entry,) = found
                return entry
            await asyncio.sleep(0.2)


async def test_a_turn_is_found_by_its_fields(service: Service) -> None:
    await service.start()
    chat = service.chat()
    chat.say("hello")
    await service.answered(chat, "reply to: hello")
    turn = await turn_of(service)
    assert turn["_TRANSPORT"] == "journal"
    assert turn["LOGGER"] == "gateway.turns.settling"
    assert turn["SYSLOG_IDENTIFIER"] == "posthouse"
    assert turn["PRIORITY"] == "6"
    assert turn["PLATFORM"] == "telegram"
    assert float(turn["SECONDS"]) >= 0
    assert turn["MESSAGE"].startswith("gateway.turns.settling: turn conversation_id=")
    assert "hello" not in turn["MESSAGE"]
    fields = [f"{name}={turn[name]}" for name in ("TURN", "SESSION", "CONVERSATION")]
    said = await service.run(
        "journalctl", "-o", "cat", "--no-pager", f"_SYSTEMD_UNIT={UNIT}", *fields
    )
    assert turn["MESSAGE"] in said.splitlines()


async def test_the_journal_goes_away_and_comes_back(service: Service) -> None:
    await service.start()
    await service.systemctl("restart", "systemd-journald")
    chat = service.chat()
    chat.say("hello")
    await service.answered(chat, "reply to: hello")
    assert (await turn_of(service))["_TRANSPORT"] == "journal"
    assert await service.show("NRestarts") == "0"
