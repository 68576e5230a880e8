"""What a start loads before it says ready: what nobody has asked for stays out of it."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.harness import TelegramChat, World, answered

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

LATE = (
    # the model's SDK, loaded behind READY; its HTTP library, its tracing
    *("anthropic", "httpx2", "httpcore2", "opentelemetry"),
    # only where somebody sends or asks for such a thing
    *("PIL", "pypdf", "mcp", "mcp_types", "dateutil", "apscheduler"),
    # parts of the SDKs that are not used
    *("telegram.ext", "discord.ext"),
    # of the standard library: for what is mistyped, a service's unit, pictures
    *("configparser", "difflib", "statistics"),
    # ours, for what is not configured here or is another command
    *("plugins", "gateway.plugins.loading", "gateway.wiring.plugins"),
    *("gateway.mcp", "gateway.wiring.mcp", "agent.tools.mcp"),
    *(
        "agent.exchange",
        "gateway.wiring.exchange",
        "storage.exchange_in",
        "storage.exchange_out",
        "storage.files",
    ),
    *("agent.simulation", "storage.sizes", "agent.jobs.words.reading"),
    *("gateway.doctor", "gateway.setup", "gateway.service", "gateway.backups.restoring"),
)
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


async def test_a_start_loads_nothing_that_it_does_not_need(world: World) -> None:
    world.configure()
    launcher = ("-X", "importtime", "-m", "gateway", "run")
    daemon = world.daemon(launcher=launcher).start()
    await daemon.ready("telegram", "discord")
    text = daemon.log_path.read_text()
    before, ready, _ = text.partition('"message": "ready"')
    loaded = set(IMPORTED.findall(before))
    assert ready
    assert loaded >= {"telegram", "discord", "storage.store"}
    assert not {m for m in loaded if m in LATE or m.startswith(tuple(f"{n}." for n in LATE))}


async def test_what_comes_behind_ready_is_there_for_the_first_turn(world: World) -> None:
    world.configure()
    launcher = ("-X", "importtime", "-m", "gateway", "run")
    daemon = world.daemon(launcher=launcher).start()
    await daemon.ready("telegram", "discord")
    chat = TelegramChat(world)
    chat.say("hello")
    await answered(chat, "reply to: hello", daemon)
    assert "anthropic" in IMPORTED.findall(daemon.log_path.read_text())
