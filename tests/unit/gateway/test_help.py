"""What the commands are called and how they are explained: in /help and in both native menus."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from gateway.commands import registry
from gateway.commands.contract import Call, Command, Group
from gateway.platforms.discord.render import render as for_discord
from gateway.platforms.telegram.render import render as for_telegram

SHOWN_CHARS = 100
"""Discord's menu takes no more, Telegram's 256."""
each = pytest.mark.parametrize("command", registry.COMMANDS.values(), ids=lambda c: c.name)


@each
def test_a_menu_takes_it(command: Command) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,31}", command.name)
    assert 0 < len(command.help) <= SHOWN_CHARS
    assert command.group in get_args(Group)


@each
def test_it_reads_like_the_others(command: Command) -> None:
    assert command.help[0].islower()
    assert not command.help.endswith(".")
    assert "\n" not in command.help


@each
def test_the_readme_has_it(command: Command) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    usage = f" {command.usage}" if command.usage else ""
    assert f"`/{command.name}{usage}`" in readme.replace("\\|", "|")


def test_no_two_say_the_same() -> None:
    helps = [command.help for command in registry.COMMANDS.values()]
    assert len(set(helps)) == len(helps)


@pytest.mark.parametrize("admin", [True, False])
@pytest.mark.parametrize(("chat_kind", "how"), [("direct", "Just write"), ("group", "Mention me")])
async def test_help_is_one_message_on_both_platforms(admin: bool, chat_kind: str, how: str) -> None:
    host = SimpleNamespace(foreign={})
    record = SimpleNamespace(payload={"chat_kind": chat_kind})
    call = Call(record, argument="", admin=admin, shared=False)  # type: ignore[arg-type]
    text = await registry.help_text(host, call)  # type: ignore[arg-type]
    assert text.startswith(how)
    assert ("For admins:" in text) is admin
    (telegram,), (discord,) = for_telegram(text), for_discord(text)
    for command in registry.COMMANDS.values():
        if registry.may_see(command, call):
            assert f"/{command.name}" in telegram.payload["text"]
            assert f"/{command.name}" in discord.payload["content"]
    assert telegram.payload["entities"] == [], "nothing in it looks like markup"
    assert discord.payload["content"] == text
