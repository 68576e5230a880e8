"""Owns the menu of commands at Discord: what it says, and that it is said only when it changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import StoreError
from agent.messages import clean_text
from agent.ports import Clock
from agent.remembered import Remembered
from gateway.commands.menu import MenuEntry
from gateway.intake.commands import MAX_ARGUMENT_CHARS
from gateway.platforms.contract import SendError, SendFlood, SendUnavailable
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.refusals import Refusal, by_a_guard

log = logging.getLogger(__name__)

SETTLE_SECONDS = 3.0
"""Behind the first moment of a connection: messages come first."""
FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 3_600.0
LONGEST_BAN_SECONDS = 24 * 3600.0
"""A ban that is stored and ends later than this was stored by a clock that went wrong."""
MAX_COMMANDS = 100
TEXT_CHARS = 100
MAX_CHOICES = 25
FAILURES_TOLD = 3
NOT_YET = "discord takes no menu of commands right now; tried again later, typed commands work"
REFUSED = "discord refuses the menu of commands; typed commands work"
MISSING_SCOPE = (
    "discord refuses the menu of commands; typed commands work (invite the bot again with the "
    "scopes bot and applications.commands)"
)
_REQUEST_SECONDS = 30.0
_NAME = re.compile(r"[-_a-z0-9]{1,32}")
_BRACKETS = re.compile(r"[][<>]+")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_STRING, _CHAT_INPUT, _IN_GUILDS = 3, 1, 0
_GUILD, _DIRECT = 0, 1
_ONLY_GUILD_ADMINS = "0"


def payload_of(menu: Sequence[MenuEntry]) -> list[dict[str, Any]]:
    """The menu as Discord takes it (pure)."""
    by_name = {entry.name: entry for entry in menu if _NAME.fullmatch(entry.name)}
    return [_command(entry) for entry in list(by_name.values())[:MAX_COMMANDS]]


def _command(entry: MenuEntry) -> dict[str, Any]:
    command: dict[str, Any] = {
        "name": entry.name,
        "type": _CHAT_INPUT,
        "description": _short(entry.help) or entry.name,
        "options": _options(entry.usage),
        "integration_types": [_IN_GUILDS],
        "contexts": [_GUILD, _DIRECT],
        "default_member_permissions": _ONLY_GUILD_ADMINS if entry.admin_only else None,
    }
    return command


def _options(usage: str) -> list[dict[str, Any]]:
    """One text, named after what may stand behind the command, or words to choose from."""
    inside = ", ".join(filter(None, map(str.strip, _BRACKETS.split(usage))))
    if not inside:
        return []
    words = list(dict.fromkeys(_short(word) for word in inside.split("|")))
    is_choice = 1 < len(words) <= MAX_CHOICES and all(words)
    name = "setting" if is_choice else _NOT_IN_NAMES.sub("-", inside.lower()).strip("-")
    option: dict[str, Any] = {
        "name": name if _NAME.fullmatch(name) else "text",
        "type": _STRING,
        "description": _short(" or ".join(filter(None, words))) or "text",
        "required": False,
    }
    if is_choice:
        option["choices"] = [{"name": _short(word), "value": _short(word)} for word in words]
    else:
        option["max_length"] = MAX_ARGUMENT_CHARS
    return [option]


def _short(text: str) -> str:
    text = clean_text(text).strip()
    return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…"


def fingerprint(payload: list[dict[str, Any]]) -> str:
    """The same for the same menu (pure)."""
    return hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class _Note:
    """What is remembered of a bot's menu."""

    fingerprint: str = ""
    """Of what Discord has."""
    not_before: float = 0.0
    """Unix seconds: Discord wants no menu earlier."""

    def __str__(self) -> str:
        return json.dumps({"fingerprint": self.fingerprint, "not_before": self.not_before})


def _read(text: str | None) -> _Note:
    try:
        fields = json.loads(text or "{}")
        return _Note(str(fields.get("fingerprint", "")), float(fields.get("not_before", 0.0)))
    except (ValueError, TypeError, AttributeError):
        return _Note()


class Publishing:
    """Says the menu of one bot, in the background: nobody ever waits for it."""

    def __init__(
        self, menu: Sequence[MenuEntry], remembered: Remembered | None, clock: Clock
    ) -> None:
        """``remembered``: None: nothing outlives this process, so nothing is published."""
        self._payload = payload_of(menu)
        self._remembered = remembered
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._settled: set[int] = set()
        """Applications whose menu is known to be right, or hopeless, in this process."""
        self.trouble = ""
        """Why there is no menu, or an old one; empty: all is well, or not yet known."""

    def ready(self, direct: Direct, application_id: int) -> None:
        """The bot is there; said again, and while it is being published, nothing happens."""
        if self._remembered is None or not self._payload or application_id in self._settled:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                self._supervised(self._remembered, direct, application_id), name="discord menu"
            )

    async def stop(self) -> None:
        """Leave it; what Discord said of it is stored."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _supervised(
        self, remembered: Remembered, direct: Direct, application_id: int
    ) -> None:
        try:
            await self._publish(remembered, direct, application_id)
        except Exception:  # the supervised border: a menu is no reason for anything to end
            log.exception("the menu could not be published")

    async def _publish(self, remembered: Remembered, direct: Direct, application_id: int) -> None:
        pause: float | None = SETTLE_SECONDS
        failures = 0
        while pause is not None:
            await self._clock.sleep(pause)
            try:
                pause = await self._step(remembered, direct, application_id)
            except (SendError, StoreError) as exc:
                log.warning("the menu is not published yet", extra={"error": str(exc)})
                failures += 1
                if failures >= FAILURES_TOLD:
                    self.trouble = NOT_YET
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures, 10))
        self._settled.add(application_id)

    async def _step(
        self, remembered: Remembered, direct: Direct, application_id: int
    ) -> float | None:
        """Look, and say it if that may be; after how many seconds again (None: that was all)."""
        name, mark = f"discord.menu.{application_id}", fingerprint(self._payload)
        note = _read(await remembered.fact(name))
        if note.fingerprint == mark:
            return None
        left = note.not_before - self._clock.now()
        if 0 < left <= LONGEST_BAN_SECONDS:
            return left
        path = f"/applications/{application_id}/commands"
        try:
            await direct.call(
                "PUT", path, self._payload, signed=True, timeout_seconds=_REQUEST_SECONDS
            )
        except SendFlood as exc:
            seconds = min(max(1.0, exc.retry_after_seconds), LONGEST_BAN_SECONDS)
            log.warning("discord wants no menu now", extra={"seconds": seconds})
            self.trouble = NOT_YET
            banned = _Note(note.fingerprint, self._clock.now() + seconds)
            await remembered.set_fact(name, str(banned))
            return seconds
        except Refusal as exc:
            if by_a_guard(exc.status, exc.code):
                raise SendUnavailable(str(exc)) from exc
            log.error("discord does not take the menu of commands", extra={"error": str(exc)})
            if exc.status in (401, 403):  # the operator may heal that any time
                self.trouble = MISSING_SCOPE
                return LONGEST_PAUSE_SECONDS
            self.trouble = f"{REFUSED}: {exc.text}"
            return None
        self.trouble = ""
        log.info("menu published", extra={"commands": len(self._payload)})
        await remembered.set_fact(name, str(_Note(mark)))
        return None
