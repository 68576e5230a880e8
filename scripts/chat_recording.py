"""Owns the conversation of the README's pictures, as the loopback servers recorded it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agent.tools.paths import folder_name
from tests.acceptance.harness import (
    DISCORD_USER,
    TELEGRAM_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    eventually,
    open_world,
    settled,
)
from tests.fakes.anthropic_server.script import Answer, text, tool_use

Message = dict[str, Any]
"""``who`` (ada, bot), ``text``; as sent: ``entities``, ``photo``; ``buttons`` (labels)."""

SLOWEST = """**eu-central** is, by a wide margin:

| region | median | slowest 1 % |
|---|--:|--:|
| eu-central | 212 ms | 1.9 s |
| us-east | 88 ms | 0.4 s |
| ap-south | 97 ms | 0.5 s |

To look for yourself:

```bash
curl -s status.example.org/latency.json |
  jq '.regions'
```
The [dashboard](https://status.example.org) shows it by the hour."""
PLAN = """That is your plan for the weekend:
- **Saturday**: Bo looks after it
- **Sunday**: you do, from 9 o'clock
> Whoever is woken writes down why."""
REMEMBERED = "It was **eu-central**: 212 ms in the middle, 1.9 s for the slowest 1 %."
RELEASE = """### Before the release
- [x] Translations are in
- [ ] Migration tried on a copy
  - it takes about `4 min`
- [ ] Notes read by somebody else

```python
def ready(steps: list[bool]) -> bool:
    return all(steps)
```
And the name will be ||Heron||, but you did not hear that from me."""
COUNTED = "There are **2** open reports: `login.md` and `sync.md`."
EARLIER = (
    "Here is what I know about part {}. " + "It has a history of its own, as all of them. " * 24
)
REPORTS = "ls -1 reports/open"
_ID = re.compile(r"(/(?:approve|deny) )[0-9a-z]+")


async def record(folder: Path) -> dict[str, list[Message]]:
    """Both chats as the people in them see them, by platform."""
    async with open_world(folder) as world:
        # Wide enough for the chat, narrow enough that there is something to compress.
        world.configure(model={"context_length": 10_000}, agent={"tools": {"shell": True}})
        daemon = await world.run()
        return {
            "telegram": await _telegram(world, daemon),
            "discord": await _discord(world, daemon),
        }


async def _turn(world: World, chat: TelegramChat | DiscordChat, daemon: Daemon, more: int) -> None:
    before = len(chat.shown())
    await eventually(lambda: len(chat.shown()) >= before + more, 30.0, "an answer", alive=daemon)
    await settled(world)


async def _telegram(world: World, daemon: Daemon) -> list[Message]:
    chat = TelegramChat(world)
    for part in range(1, 7):
        world.anthropic.script(EARLIER.format(part))
        chat.say(f"Tell me about part {part} of the system, please, and why it is there.")
        await _turn(world, chat, daemon, 1)
    stored = world.telegram.state.chats[TELEGRAM_USER].messages
    hidden = len(stored)
    world.anthropic.script(SLOWEST)
    chat.say("Which region is slowest this week? And how do I look for myself?")
    await _turn(world, chat, daemon, 1)
    world.anthropic.script(PLAN)
    world.telegram.photo(caption="From the office wall. What does it say?")
    await _turn(world, chat, daemon, 1)
    chat.say("/compress the regions")
    await _turn(world, chat, daemon, 1)
    world.anthropic.script(REMEMBERED)
    chat.say("Which one was slow again?")
    await _turn(world, chat, daemon, 1)
    return [
        _from_telegram(one.message, one.sent is not None)
        for one in list(stored.values())[hidden:]
        if not one.deleted
    ]


def _from_telegram(message: dict[str, Any], is_bot: bool) -> Message:
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {
        "who": "bot" if is_bot else "ada",
        "text": _steady(message.get("text", message.get("caption", ""))),
        "entities": message.get("entities", []) if is_bot else [],
        "photo": "photo" in message,
        "buttons": [button["text"] for row in rows for button in row],
    }


async def _discord(world: World, daemon: Daemon) -> list[Message]:
    chat = DiscordChat(world)
    world.anthropic.script(RELEASE)
    chat.say("What is left before the release?")
    await _turn(world, chat, daemon, 1)
    reports = world.home / "workspace" / folder_name(f"discord:{DISCORD_USER}") / "reports" / "open"
    reports.mkdir(parents=True, mode=0o700)
    for name in ("login.md", "sync.md"):
        (reports / name).write_text("It does not work.\n", encoding="utf-8")
    world.anthropic.script(Answer([text(""), tool_use("shell", {"command": REPORTS})]), COUNTED)
    chat.say("How many reports are open?")
    await eventually(lambda: _asked(world), 30.0, "the question", alive=daemon)
    message = _asked(world)
    asked = _from_discord(message, world)
    approve = message.components[0]["components"][0]["custom_id"]
    world.discord.click(message, DISCORD_USER, approve)
    await eventually(lambda: COUNTED in chat.shown(), 30.0, "the answer", alive=daemon)
    await settled(world)
    told = str(world.anthropic.main_requests[-1].body)
    assert re.search("login.md.*sync.md", told), "the command saw what the answer says"
    seen = [_from_discord(one, world) for one in world.discord.visible(chat.channel)]
    at = next(n for n, one in enumerate(seen) if REPORTS in one["text"])
    return [*seen[:at], asked, *seen[at + 1 :]]


def _asked(world: World) -> Any:
    return next((one for one in world.discord.world.messages.values() if one.components), None)


def _from_discord(message: Any, world: World) -> Message:
    return {
        "who": "bot" if message.author_id == world.discord.bot.id else "ada",
        "text": _steady(message.content),
        "buttons": [b["label"] for row in message.components for b in row["components"]],
    }


def _steady(text: str) -> str:
    return _ID.sub(r"\1k7f2", text)
