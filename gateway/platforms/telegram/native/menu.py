"""Owns the bot's menu of commands: set when it changed, in its own time, never in the way."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from agent.errors import StoreUnavailable
from agent.ports import Clock
from agent.remembered import Remembered
from gateway.commands.menu import MenuEntry
from gateway.platforms.contract import SendError, SendFlood, SendRefused
from gateway.platforms.telegram.failures import BadButtons, BadMarkup, ChatMoved, NoSuchMessage
from gateway.platforms.telegram.out.calls import MessageCalls
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

MAX_COMMANDS: Final = 100
HELP_CHARS: Final = 256
MAX_ADMINS: Final = 50
TRIES: Final = 5
LONGEST_WAIT_SECONDS: Final = 24 * 3600.0
_NAME: Final = re.compile(r"[a-z0-9_]{1,32}")
_BACKOFF_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 1.0

PRIVATE_CHATS: Final = "all_private_chats"
GROUPS: Final = "all_group_chats"
ONE_CHAT: Final = "chat"
Outcome = Literal["set", "refused", "later"]
Commands = tuple[tuple[str, str], ...]
"""Name and what it does."""


def menus(entries: Sequence[MenuEntry], admins: Collection[str]) -> dict[str, Commands]:
    """What is shown where: scope → commands (pure). ``chat:<id>``: one chat, an admin's own."""
    everybody = [entry for entry in entries if not entry.admin_only]
    found = {
        PRIVATE_CHATS: _shown(everybody),
        GROUPS: _shown([entry for entry in everybody if not entry.private]),
    }
    if len(everybody) < len(entries):
        chats = sorted(admin for admin in admins if admin.isascii() and admin.isdecimal())
        for chat_id in chats[:MAX_ADMINS]:
            found[f"{ONE_CHAT}:{chat_id}"] = _shown(entries)
    return found


def _shown(entries: Sequence[MenuEntry]) -> Commands:
    # One name that Telegram does not take, and it takes the whole menu as broken.
    named = {entry.name.replace("-", "_"): entry.help[:HELP_CHARS] for entry in reversed(entries)}
    shown = tuple((name, text or name) for name, text in reversed(named.items()))
    return tuple(command for command in shown if _NAME.fullmatch(command[0]))[:MAX_COMMANDS]


def fingerprint(commands: Commands) -> str:
    """Of what is shown in one place (pure)."""
    return hashlib.sha256(json.dumps(commands).encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Known:
    """What Telegram has, as far as is remembered."""

    scopes: dict[str, str] = field(default_factory=dict)
    """Scope → fingerprint."""
    not_before: float = 0.0
    """Unix seconds until which Telegram wants to hear nothing of menus."""

    @classmethod
    def read(cls, text: str | None) -> _Known:
        """Anything else than what `text` wrote is nothing."""
        try:
            value: Any = json.loads(text or "{}")
            scopes = {str(k): str(v) for k, v in value.get("scopes", {}).items()}
            return cls(scopes, float(value.get("not_before", 0.0)))
        except (ValueError, TypeError, AttributeError):
            return cls()

    def text(self) -> str:
        return json.dumps({"scopes": self.scopes, "not_before": self.not_before}, sort_keys=True)


class Menu:
    """The menu of one bot; `begin` as often as it comes up."""

    def __init__(
        self,
        wanted: Mapping[str, Commands],
        calls: Callable[[], MessageCalls],
        remembered: Remembered | None,
        clock: Clock,
    ) -> None:
        self._wanted = dict(wanted)
        self._calls = calls
        self._remembered = remembered
        self._clock = clock
        self._tasks = TaskOwner(clock)
        self._done = not any(self._wanted.values())

    def begin(self, bot_id: str) -> None:
        """Look after it in the background, unless that has been done or is being done."""
        if not self._done and not len(self._tasks):
            self._tasks.spawn(self._publish(f"telegram menu {bot_id}"), name="telegram menu")

    async def close(self) -> None:
        """What is under way goes on at the next start."""
        await self._tasks.cancel(_CLOSE_SECONDS)

    async def _publish(self, fact: str) -> None:
        known = _Known.read(await self._fact(fact))
        # One that is not wanted any more is taken away: it would show an admin of before too much.
        wanted = {**dict.fromkeys(known.scopes, ()), **self._wanted}
        due = [scope for scope in wanted if known.scopes.get(scope) != fingerprint(wanted[scope])]
        for scope in due:
            outcome = await self._set(scope, wanted[scope], known, fact)
            if outcome == "later":
                return
            known.scopes.pop(scope, None)
            if wanted[scope] and outcome == "set":
                known.scopes[scope] = fingerprint(wanted[scope])
            await self._remember(fact, known)
        self._done = True
        if due:
            log.info("menu set", extra={"platform": "telegram", "scopes": len(due)})

    async def _set(self, scope: str, commands: Commands, known: _Known, fact: str) -> Outcome:
        """Set one, or try to."""
        kind, _, chat_id = scope.partition(":")
        for failures in range(TRIES):
            wait = min(known.not_before - self._clock.now(), LONGEST_WAIT_SECONDS)
            if wait > 0:
                await self._clock.sleep(wait)
            try:
                await self._calls().set_menu(kind, chat_id or None, commands)
            except SendFlood as exc:
                known.not_before = self._clock.now() + exc.retry_after_seconds
                await self._remember(fact, known)
            except (SendRefused, BadMarkup, BadButtons, ChatMoved, NoSuchMessage) as exc:
                if chat_id:  # an admin who has not written yet
                    log.debug("no menu for an admin", extra={"reason": str(exc)})
                else:
                    log.warning("menu refused", extra={"scope": scope, "reason": str(exc)})
                return "refused"
            except SendError as exc:
                log.info("menu not set", extra={"scope": scope, "reason": str(exc)})
                await self._clock.sleep(_BACKOFF_SECONDS * 2**failures * (0.75 + random.random()))
            else:
                return "set"
        log.warning("menu not set; it is tried again later", extra={"scope": scope})
        return "later"

    async def _fact(self, name: str) -> str | None:
        if self._remembered is None:
            return None
        try:
            return await self._remembered.fact(name)
        except StoreUnavailable:
            return None  # set once more, which does no harm

    async def _remember(self, name: str, known: _Known) -> None:
        if self._remembered is None:
            return
        try:
            await self._remembered.set_fact(name, known.text())
        except StoreUnavailable:
            log.warning("the menu could not be remembered", extra={"platform": "telegram"})
