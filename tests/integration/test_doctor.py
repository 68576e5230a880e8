"""The doctor asks Telegram, Discord and the model: what each says of a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.doctor.areas import all_areas
from gateway.doctor.checkup import examine
from gateway.doctor.finding import Finding
from gateway.doctor.ground import survey
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.discord_server import DiscordServer
from tests.fakes.telegram_server import Fault, TelegramServer

KEY = "sk-ant-loopback-key-for-tests-only"
DISCORD_TOKEN = "discord.test.token"


@dataclass
class World:
    """Three servers, and what the configuration says of them."""

    telegram: TelegramServer
    discord: DiscordServer
    anthropic: AnthropicServer
    home: Path
    model: str = "claude-sonnet-5-5"
    more: str = ""
    gateway_url: str = "null"
    secrets: dict[str, str] = field(default_factory=dict)

    async def of(self, area: str) -> list[Finding]:
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.yaml").write_text(
            f"model: {{name: {self.model}, base_url: '{self.anthropic.base_url}'}}\n"
            f"telegram: {{base_url: '{self.telegram.base_url}', allow_from: [1]{self.more}}}\n"
            f"discord: {{api_base: '{self.discord.api_base}', allow_from: [1], "
            f"gateway_url: {self.gateway_url}}}\n"
        )
        tokens = {
            "TELEGRAM_BOT_TOKEN": self.telegram.token,
            "DISCORD_BOT_TOKEN": DISCORD_TOKEN,
            "ANTHROPIC_API_KEY": KEY,
        }
        env = {"POSTHOUSE_HOME": str(self.home), **tokens, **self.secrets}
        ground = survey(env, None, offline=False)
        areas = [found for found in all_areas(ground) if found.name == area]
        findings = await asyncio.to_thread(examine, areas, ground.secrets.values())
        said = " ".join(f.text + f.remedy for f in findings)
        assert not any(secret in said for secret in {**tokens, **self.secrets}.values())
        return findings


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        TelegramServer() as telegram,
        DiscordServer(token=DISCORD_TOKEN) as discord,
        AnthropicServer(api_key=KEY) as anthropic,
    ):
        yield World(telegram, discord, anthropic, tmp_path / "home")


@pytest.mark.parametrize("area", ["telegram", "discord", "model"])
async def test_where_all_is_well_nothing_is_wrong(world: World, area: str) -> None:
    found = await world.of(area)
    assert found
    assert {f.level for f in found} <= {"ok", "note"}


async def test_nothing_is_taken_from_the_queue_and_nothing_sent(world: World) -> None:
    world.telegram.private_text("hello", user_id=1)
    for area in ("telegram", "discord"):
        await world.of(area)
    assert {call.method for call in world.telegram.calls} == {"getMe", "getWebhookInfo"}
    assert {call.method for call in world.discord.rest.calls} == {"GET"}
    assert len(world.telegram.updates.pending) == 1


def _webhook(world: World) -> None:
    world.telegram.webhook.url = "https://elsewhere.example.org/hook"


@dataclass(frozen=True)
class Case:
    breaks: Callable[[World], object]
    area: str
    level: str
    text: str
    remedy: str


CASES = {
    "telegram: another token": Case(
        lambda w: w.secrets.update(TELEGRAM_BOT_TOKEN="111:AA-no-such-token"),
        *("telegram", "problem", "does not know this token", "@BotFather"),
    ),
    "telegram: a token with a path in it": Case(
        lambda w: w.secrets.update(TELEGRAM_BOT_TOKEN="111:AA/../../elsewhere x"),
        *("telegram", "problem", "does not know this token", "@BotFather"),
    ),
    "telegram: cut off": Case(
        lambda w: w.telegram.fault(Fault.drop("getMe")),
        *("telegram", "warning", "can not be reached", "tries again by itself"),
    ),
    "telegram: a page of a proxy": Case(
        lambda w: w.telegram.fault(Fault.html(502, "getMe")),
        *("telegram", "warning", "none of Telegram's (HTTP 502)", "telegram.base_url"),
    ),
    "telegram: garbage": Case(
        lambda w: w.telegram.fault(Fault.garbage("getMe")),
        *("telegram", "warning", "none of Telegram's", "telegram.base_url"),
    ),
    "telegram: a webhook": Case(
        _webhook, "telegram", "warning", "a webhook is set", "give each its own bot"
    ),
    "telegram: privacy": Case(
        lambda w: (
            setattr(w.telegram.methods, "reads_groups", False)
            or setattr(w, "more", ", require_mention: false")
        ),
        *("telegram", "warning", "privacy mode hides", "/setprivacy"),
    ),
    "discord: another token": Case(
        lambda w: w.secrets.update(DISCORD_BOT_TOKEN="an.other.token"),
        *("discord", "problem", "does not know this token", "Reset Token"),
    ),
    "discord: no intent": Case(
        lambda w: w.discord.set_privileged(),
        *("discord", "problem", "message content intent is off", "developers/applications/9000"),
    ),
    "discord: no server": Case(
        lambda w: None, "discord", "note", "in no server", "scope=bot+applications.commands"
    ),
    "discord: no gateway": Case(
        lambda w: setattr(w, "gateway_url", "'ws://127.0.0.1:1/'"),
        *("discord", "warning", "gateway can not be reached: 127.0.0.1, port 1", "gateway_url"),
    ),
    "discord: an error": Case(
        lambda w: w.discord.rest.faults.add("status", path="/users/@me", status=503),
        *("discord", "warning", "(HTTP 503)", "tries again by itself"),
    ),
    "model: another key": Case(
        lambda w: w.secrets.update(ANTHROPIC_API_KEY="sk-ant-wrong-key"),
        *("model", "problem", "does not take this key", "posthouse init"),
    ),
    "model: a key of another alphabet": Case(
        lambda w: w.secrets.update(ANTHROPIC_API_KEY="sk-ключ-ключ"),
        *("model", "problem", "no key looks like this", "posthouse init"),
    ),
    "model: a slip": Case(
        lambda w: setattr(w, "model", "claude-sonet-5-5"),
        *("model", "problem", "near it: claude-sonnet-5-5", "model.name"),
    ),
    "model: old": Case(
        lambda w: setattr(w, "model", "claude-sonnet-4-5"),
        *("model", "warning", "out of service", "another model.name"),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_what_is_wrong_is_found_with_its_remedy(world: World, name: str) -> None:
    case = CASES[name]
    case.breaks(world)
    found = [f for f in await world.of(case.area) if f.level == case.level]
    assert any(case.text in f.text and case.remedy in f.remedy for f in found), found


@pytest.mark.parametrize(
    ("area", "words"), [("telegram", "refused"), ("discord", "refused"), ("model", "refused")]
)
async def test_nobody_is_there(world: World, area: str, words: str) -> None:
    await world.telegram.pause()
    await world.discord.stop()
    await world.anthropic.stop()
    (found,) = [f for f in await world.of(area) if f.level != "ok"]
    assert found.level == "warning"
    assert words in found.text
    assert "check the network" in found.remedy
    # A turn that has failed is not answered by itself, as platforms are joined again.
    assert ("/retry" in found.remedy) == (area == "model")
