"""Owns /restart: for admins, everywhere, where something starts the process again."""

from __future__ import annotations

from gateway import texts
from gateway.commands.contract import Answer, Call, CommandHost, Settled
from gateway.intake.records import answer_to


async def restart(host: CommandHost, call: Call) -> Answer:
    """Say so and end, as after SIGTERM; this command is nothing that the end waits for."""
    if host.restarts is None or not host.restarts.possible:
        return texts.NOBODY_STARTS_ME_AGAIN
    draft = answer_to(call.record, texts.RESTARTING, "command")
    return Settled(await host.restarts.ask(call.inbox_id, draft))
