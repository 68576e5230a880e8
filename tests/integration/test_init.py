"""`posthouse init`: a person at a terminal, a script with flags, and the servers that they ask."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.discord_server import DiscordServer
from tests.fakes.person import ROOT, Person
from tests.fakes.telegram_server import TelegramServer

HIDDEN = "(not shown): "
KEY = "sk-ant-loopback-key-for-tests-only"


@dataclass
class Town:
    """Where somebody sets posthouse up, and who is asked."""

    telegram: TelegramServer
    discord: DiscordServer
    anthropic: AnthropicServer
    home: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "POSTHOUSE_HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "TERM": "dumb",
            "TZ": "Europe/Berlin",
            "LANG": "C.UTF-8",
        }

    @property
    def flags(self) -> list[str]:
        return [
            "--telegram-base-url", self.telegram.base_url,
            "--discord-api-base", self.discord.api_base,
            "--model-base-url", self.anthropic.base_url,
        ]  # fmt: skip

    @property
    def config(self) -> Path:
        return self.home / "config.yaml"

    def person(self, *more: str) -> Person:
        return Person(["init", *self.flags, *more], self.env)

    async def script(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "gateway", *arguments],
            cwd=ROOT,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=30,
        )


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with (
        TelegramServer() as telegram,
        DiscordServer(token="discord.test.token") as discord,
        AnthropicServer(api_key=KEY) as anthropic,
    ):
        yield Town(telegram, discord, anthropic, tmp_path / "home")


async def test_a_person_is_led_through_every_mistake(town: Town) -> None:
    town.discord.set_privileged()
    wrong = "111:AA-no-such-bot-token"
    async with town.person() as person:
        await person.answers((HIDDEN, wrong), (HIDDEN, ""))
        await person.sees("2. Discord")
        assert await person.interrupts() == 130
        assert "Nothing was changed." in person.seen
        assert not town.home.exists()

    async with town.person() as person:
        await person.answers((HIDDEN, wrong), (HIDDEN, town.telegram.token))
        await person.sees("That is @posthouse_test_bot.")
        await person.answers(("nobody yet", "@anna"), ("Names change hands", "find"))
        await person.sees("Now send @posthouse_test_bot")
        town.telegram.private_text("let me in", user_id=4711)
        await person.answers(("id 4711: is that you?", "y"), ("[4711]", ""))
        await person.answers(("Shall 4711 be an admin", ""))
        await person.answers((HIDDEN, town.discord.token), ("MESSAGE CONTENT INTENT", ""))
        await person.sees("MESSAGE CONTENT INTENT")
        town.discord.set_privileged("message_content")
        person.types("")
        await person.sees("client_id=900000000000000001&scope=bot+applications.commands")
        await person.answers(("nobody yet", "find"), ("is that you?", "y"), ("[9000", ""))
        await person.answers(("be an admin", "n"))
        await person.answers((HIDDEN, "sk-wrong"), ("Model", ""), ("Keep it", ""))
        await person.answers((HIDDEN, KEY), ("Model", "claude-sonet-5-5"))
        await person.answers(("Near it: claude-sonnet-5-5", ""), ("tokens.", ""))
        await person.answers(("Zone", ""), ("Write it?", ""))
        assert await person.ends() == 0
    assert "Telegram does not know this token." in person.seen
    assert "The provider does not take this key." in person.seen
    for secret in (town.telegram.token, town.discord.token, KEY, wrong):
        assert secret not in person.seen
    kept = yaml.safe_load(town.config.read_text())
    assert kept["telegram"]["allow_from"] == [4711]
    assert kept["telegram"]["admins"] == [4711]
    assert kept["discord"]["allow_from"] == [900_000_000_000_000_002]
    assert "admins" not in kept["discord"]
    assert kept["timezone"] == "Europe/Berlin"
    assert list(kept["model"]) == ["base_url"]  # the default needs no line
    # Looking who writes has taken nothing away from the daemon.
    assert [u["message"]["text"] for u in town.telegram.updates.pending] == ["let me in"]
    for path, mode in (
        (town.home, 0o700),
        (town.home / "secrets", 0o700),
        (town.home / "secrets/TELEGRAM_BOT_TOKEN", 0o600),
        (town.home / "secrets/ANTHROPIC_API_KEY", 0o600),
        (town.config, 0o600),
    ):
        assert path.stat().st_mode & 0o777 == mode, path
    # A plain start finds all of it: nothing is in the environment here.
    examined = await town.script("doctor", "--json")
    findings = json.loads(examined.stdout)["findings"]
    assert examined.returncode == 0, findings
    said = " ".join(f["text"] for f in findings)
    assert "the bot is @posthouse_test_bot" in said
    assert "the key is taken" in said
    assert KEY not in examined.stdout


@pytest.mark.parametrize(
    "stage", ["1. Telegram", "2. Discord", "3. The model", "Zone", "Write it?"]
)
async def test_ctrl_c_leaves_nothing_at_any_stage(town: Town, stage: str) -> None:
    async with town.person("--offline") as person:
        stages = {
            "1. Telegram": ((HIDDEN, town.telegram.token), ("nobody yet", "4711"), ("admin", "")),
            "2. Discord": ((HIDDEN, ""),),
            "3. The model": ((HIDDEN, ""), ("Model", "")),
            "Zone": (("[Europe/Berlin]", ""),),
            "Write it?": (),
        }
        for name, pairs in stages.items():
            if name == stage:
                break
            await person.sees(name)
            await person.answers(*pairs)
        await person.sees(stage)
        assert await person.interrupts() == 130
    assert not town.home.exists()


async def test_what_is_there_is_shown_asked_for_and_kept(town: Town) -> None:
    town.home.mkdir()
    before = "# mine\ntelegram:\n  allow_from: [1]   # me\n  pairing: true\n"
    town.config.write_text(before)
    steps = (
        (HIDDEN, town.telegram.token),
        ("[1]", "1, 2"),
        ("nobody yet", "2"),
        (HIDDEN, ""),
        (HIDDEN, ""),
        ("Model", ""),
        ("Zone", ""),
    )
    for answer, code in (("n", 1), ("y", 0)):
        async with town.person("--offline") as person:
            await person.answers(*steps)
            await person.sees("+  admins: [2]")
            await person.sees("+  allow_from: [1, 2]   # me")
            await person.answers(("Write it?", answer))
            assert await person.ends() == code
        assert (town.config.read_text() == before) is (answer == "n")
    assert "pairing: true" in town.config.read_text()
    assert "# mine" in town.config.read_text()
    assert (town.home / "config.yaml.bak").read_text() == before


@pytest.mark.parametrize(
    ("typed", "asked", "kept"),
    [("sk-ant-good-only-later", "Keep it all the same?", True), ("", "Go on without one?", False)],
)
async def test_a_key_that_is_refused_is_no_dead_end(
    town: Town, typed: str, asked: str, kept: bool
) -> None:
    """With an address of the model's no key is an answer too, and was refused for ever."""
    async with town.person() as person:
        await person.answers((HIDDEN, ""), (HIDDEN, ""), (HIDDEN, typed))
        await person.answers(("Model", "claude-haiku-5-5"), (asked, "n"))
        await person.answers((HIDDEN, typed), ("Model [claude-haiku-5-5]", ""), (asked, "y"))
        await person.answers(("Zone", ""), ("Write it?", ""))
        assert await person.ends() == 0
    assert yaml.safe_load(town.config.read_text())["model"]["name"] == "claude-haiku-5-5"
    assert (town.home / "secrets/ANTHROPIC_API_KEY").exists() is kept


async def test_without_a_network_a_token_can_be_kept_untried(town: Town) -> None:
    await town.telegram.pause()
    async with town.person() as person:
        await person.answers((HIDDEN, town.telegram.token), ("Keep the token untried?", "y"))
        await person.answers(("nobody yet", "find"), ("I can not look now", "4711"), ("admin", ""))
        await person.sees(HIDDEN)
        person.presses("d")
        assert await person.ends() == 130
    assert "connection was refused" in person.seen


async def test_a_script_sets_it_up_by_flags(town: Town) -> None:
    arguments = ["init", "--yes", *town.flags, "--telegram-id", "4711,-100200"]
    secrets = {"TELEGRAM_BOT_TOKEN": town.telegram.token, "ANTHROPIC_API_KEY": KEY}
    done = await town.script(*arguments, "--model", "claude-haiku-5-5", **secrets)
    assert done.returncode == 0, done.stderr
    kept = yaml.safe_load(town.config.read_text())
    assert kept["telegram"]["allow_from"] == [4711]
    assert kept["telegram"]["allow_chats"] == [-100_200]
    assert kept["telegram"]["admins"] == [4711]
    assert kept["model"]["name"] == "claude-haiku-5-5"
    assert (town.home / "secrets/ANTHROPIC_API_KEY").read_text().strip() == KEY
    assert KEY not in done.stdout + done.stderr

    before = town.config.read_text()
    same = await town.script(*arguments)
    assert same.returncode == 0
    assert "there was nothing to write" in same.stdout
    again = await town.script(*arguments, "--telegram-id", "5", **secrets)
    assert again.returncode == 1
    assert "+  allow_from: [4711, 5]" in again.stdout
    assert town.config.read_text() == before
    replaced = await town.script(*arguments, "--telegram-id", "5", "--replace", **secrets)
    assert replaced.returncode == 0
    assert yaml.safe_load(town.config.read_text())["telegram"]["allow_from"] == [4711, 5]
    assert (town.home / "config.yaml.bak").read_text() == before


@pytest.mark.parametrize(
    ("flags", "admins"),
    [
        (["--telegram-id", "1", "--telegram-id", "2"], None),
        (["--telegram-id", "1,2", "--telegram-admin", "2"], [2]),
        (["--telegram-id", "1", "--no-admins"], None),
        (["--telegram-id", "*"], None),
        (["--telegram-id", "1"], [1]),
    ],
)
async def test_who_is_an_admin_by_flags(
    town: Town, flags: list[str], admins: list[int] | None
) -> None:
    done = await town.script("init", "--yes", "--offline", *flags)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(town.config.read_text())["telegram"].get("admins") == admins


async def test_an_admin_who_may_not_talk_is_a_slip(town: Town) -> None:
    flags = ("--telegram-id", "1", "--telegram-admin", "2", "--discord-admin", "@anna")
    done = await town.script("init", "--yes", "--offline", *flags)
    assert done.returncode == 1
    assert "--telegram-admin 2: nobody of this id may talk (--telegram-id)" in done.stderr
    assert "--discord-admin @anna" in done.stderr
    assert not town.home.exists()


@pytest.mark.parametrize(("name", "user"), [("telegram", "4711"), ("discord", "471100")])
async def test_an_id_without_a_token_is_told_what_is_missing(
    town: Town, name: str, user: str
) -> None:
    variable = f"{name.upper()}_BOT_TOKEN"
    done = await town.script("init", "--yes", "--offline", f"--{name}-id", user)
    assert done.returncode == 0, done.stderr
    assert f"{name} lets people in, but there is no {variable}, so it stays off" in done.stdout
    assert str(town.home / "secrets" / variable) in done.stdout
    assert "write to your bot" not in done.stdout
    assert "Its token is in" not in town.config.read_text()
    flags = ["--offline", f"--{name}-id", user, "--replace"]
    done = await town.script("init", "--yes", *flags, **{variable: "1:a-token"})
    assert done.returncode == 0, done.stderr
    assert "stays off" not in done.stdout
    assert "write to your bot" in done.stdout


async def test_nothing_to_set_is_a_file_that_says_what_there_is(town: Town) -> None:
    done = await town.script("init", "--yes", "--offline")
    assert done.returncode == 0, done.stderr
    assert "#   allow_from: [123456789]" in town.config.read_text()
    assert "written by `posthouse init`" in town.config.read_text()
    checked = await town.script("config", "check")
    assert checked.returncode == 0, checked.stderr
    again = await town.script("init", "--yes", "--offline")
    assert (again.returncode, "there was nothing to write" in again.stdout) == (0, True)


async def test_wrong_flags_are_said_all_at_once_and_nothing_is_written(town: Town) -> None:
    done = await town.script(
        *("init", "--yes", *town.flags, "--telegram-id", "@anna", "--timezone", "Europe/Berln"),
        TELEGRAM_BOT_TOKEN="111:AA-no-such-token",
        ANTHROPIC_API_KEY="sk-wrong-key",
    )
    assert done.returncode == 1
    for words in ("'@anna' is no numeric id", "did you mean Europe/Berlin?", "does not know this"):
        assert words in done.stderr
    assert "does not take this key" in done.stderr
    assert not town.home.exists()


async def test_without_a_terminal_it_says_how(town: Town) -> None:
    done = await town.script("init")
    assert (done.returncode, "posthouse init --yes" in done.stderr) == (1, True)
