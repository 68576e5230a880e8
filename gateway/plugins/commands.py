"""Owns plugins' commands as commands of ours: what they are given, what comes of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from agent.messages import clean_text
from gateway.commands.contract import Answer, Call, Command, CommandHost
from gateway.intake.commands import whole_argument
from gateway.plugins import command_text
from gateway.plugins.calling import Callee, CallFailed, PluginCalls, StillHangs, TookTooLong
from gateway.plugins.collected import PluginCommand
from gateway.plugins.whereabouts import Whereabouts

log = logging.getLogger(__name__)

SECONDS = 60.0
MAX_ANSWER_CHARS = 20_000
MAX_HELP_CHARS = 100
MAX_HINT_CHARS = 40
_SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


class OwnCommands(Protocol):
    """Who knows what a plugin registered once more, for the instance of one conversation."""

    def commands_of(self, conversation_id: str) -> Sequence[PluginCommand]:
        """Those that are this conversation's alone."""
        ...


def foreign_commands(
    given: Sequence[PluginCommand], calls: PluginCalls, own: OwnCommands | None = None
) -> Mapping[str, Command]:
    """As the gateway runs them, by name.

    They wait for their turn in a conversation: their plugin's engine may be at work in it. Nobody
    knows what half of one would have done, but whoever says /stop need not wait for it.
    """
    return {
        command.name: Command(
            command.name,
            _line(command.description, MAX_HELP_CHARS) or f"by plugin {command.plugin}",
            _Foreign(command, calls, own).run,
            "From plugins",
            "in order",
            usage=_line(command.args_hint, MAX_HINT_CHARS),
            plugin=command.plugin,
        )
        for command in given
    }


class _Foreign:
    """One of them."""

    def __init__(self, command: PluginCommand, calls: PluginCalls, own: OwnCommands | None) -> None:
        self._command = command
        self._calls = calls
        self._own = own
        self._callee = Callee(command.plugin, f"/{command.name}")

    async def run(self, host: CommandHost, call: Call) -> Answer:
        where = await _where(host, call)
        handler = self._command.handler
        for own in self._own.commands_of(where.conversation_id) if self._own else ():
            if own.name == self._command.name:
                handler = own.handler
        name = self._command.name
        try:
            text: str = await self._calls.one(
                self._callee,
                lambda: handler(whole_argument(call.record.text)),
                SECONDS,
                then=_in_words,
                within=where.bound,
            )
        except StillHangs:
            return command_text.hangs(name)
        except TookTooLong:
            return command_text.took_too_long(name, SECONDS)
        except CallFailed:
            return command_text.failed(name)
        return text or command_text.DONE


async def _where(host: CommandHost, call: Call) -> Whereabouts:
    """The session that the place leads to; none yet: its key only."""
    record, payload = call.record, call.record.payload
    conversation = await host.sessions.conversation_for_key(call.key)
    return Whereabouts(
        conversation.id if conversation else "",
        conversation.tip_session_id if conversation else "",
        call.key,
        record.address.platform,
        record.address.chat_id,
        "",
        record.address.thread_id or "",
        str(payload.get("sender_id") or ""),
        str(payload.get("sender_name") or ""),
    )


def _in_words(given: object) -> str:
    """What a handler gave, as people read it; on the plugin's thread."""
    text = "" if given is None else clean_text(str(given)).strip()
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    return text[:MAX_ANSWER_CHARS] + command_text.CUT


def _line(text: str, most: int) -> str:
    """Somebody else's words, for a list: one line, without what could steer it."""
    line = _SPACES.sub(" ", clean_text(text)).strip().rstrip(".")
    return line if len(line) <= most else f"{line[: most - 1]}…"
