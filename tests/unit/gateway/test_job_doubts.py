"""Jobs of config.yaml that can not run are told of before they are due, with their places."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from gateway.cli.main import main
from gateway.config.environment import Home, Secrets
from gateway.config.loading import parse, parse_config
from gateway.config.reading import Source
from gateway.jobs.doubts import Doubt, doubts_about
from gateway.wiring.job_doubts import placed
from gateway.wiring.platforms import build_policies
from storage.sqlite import open_store
from tests.unit.gateway.job_rig import at

NOW = at("2026-10-20T12:00")


def doubts(job: str, more: str = "", off: Sequence[str] = ()) -> list[Doubt]:
    text = f"jobs:\n  - {{name: tea, text: Tea, {job}}}\n{more}"
    config, _ = parse_config(text, "c.yaml")
    policies = build_policies(config, {"telegram", "discord"})
    return list(doubts_about(config.jobs, now=NOW, zone="UTC", off=off, policies=policies))


USER = "every: 2h, to: {platform: telegram, user: 999}"
GROUP = "every: 2h, to: {platform: telegram, chat: -100, user: 999}"
ALL = "every: 2h, to: {platform: telegram, chat: -100}"
MEMBER = "every: 2h, to: {platform: discord, chat: 7, user: 999}"


@pytest.mark.parametrize(
    ("job", "more", "said"),
    [
        (USER, "", "user 999 may not use the bot there: not in telegram.allow_from"),
        (USER, "telegram: {allow_chats: [-100]}", "may not use the bot there"),
        (USER, "telegram: {pairing: true}", "once a code has let them in"),
        (GROUP, "telegram: {allow_chats: [-101]}", "its chat not in telegram.allow_chats"),
        (ALL, "telegram: {allow_from: [1]}", "-100 is not in telegram.allow_chats"),
        (MEMBER, "", "its chat not in discord.allow_channels"),
        (USER.replace("every: 2h", "at: 2020-01-01 09:00"), "", "2020-01-01 09:00:00 (UTC) has"),
    ],
)
def test_what_can_not_run(job: str, more: str, said: str) -> None:
    (doubt,) = doubts(job, more)
    assert said in doubt.text


@pytest.mark.parametrize(
    ("job", "more"),
    [
        (USER, "telegram: {allow_from: [999]}"),
        (USER, "telegram: {allow_from: ['*']}"),
        (GROUP, "telegram: {allow_chats: [-100]}"),
        (ALL, "telegram: {allow_chats: [-100]}"),
        (MEMBER, "discord: {allow_roles: [5]}"),
        (MEMBER, "discord: {allow_channels: [6]}"),
        ("at: 2026-10-20 12:01, to: {platform: console}", ""),
        ("every: 2h, to: {platform: of_a_plugin, user: 9}", ""),
    ],
)
def test_what_may_run_is_not_doubted(job: str, more: str) -> None:
    """By a list, a role that counts, a thread's channel; of a plugin's platform nobody knows."""
    assert doubts(job, more) == []


def test_a_platform_that_is_off() -> None:
    (doubt,) = doubts(USER, off=["telegram"])
    assert doubt.text == "telegram is off here, so it waits until that is on"


FILE = """\
jobs:
  - name: tea
    text: Tea
    every: 2h
    to: {platform: telegram, user: 999}
  - name: old
    text: Old
    at: 2020-01-01 09:00
    to: {platform: console}
telegram:
  allow_from: [1]
"""
TOKEN = Secrets(telegram_bot_token="1:a")


def test_each_is_told_with_its_place() -> None:
    first, second = placed(parse(FILE, "c.yaml", {}), TOKEN, {})
    assert first.startswith("c.yaml:5:5: jobs: tea: user 999 may not")
    assert second.startswith("c.yaml:8:5: jobs: old: 2020-01-01 09:00:00")


def test_start_and_reload_hear_of_them(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    source = Source(Home(tmp_path, "here"), {"TELEGRAM_BOT_TOKEN": "1:a"}, None, placed)
    warnings = source.reading(source.text()).warnings
    assert [line.split(": ")[2] for line in warnings if "jobs:" in line] == ["tea", "old"]


async def test_check_and_the_listing_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    (tmp_path / "config.yaml").write_text(FILE)
    assert await asyncio.to_thread(main, ["config", "check", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("config.yaml:5:5: jobs: tea: telegram is off here" in line for line in warnings)
    await (await open_store(tmp_path / "state.db", clock=SystemClock(), ids=RandomIds())).close()
    assert await asyncio.to_thread(main, ["jobs"]) == 0
    said = capsys.readouterr().out
    assert "in config.yaml, tea: user 999 may not use the bot there" in said
    assert "in config.yaml, old: 2020-01-01" in said
