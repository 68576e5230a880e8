"""Owns the commands of everyday talk: /new, /stop, /whoami."""

from __future__ import annotations

from gateway import texts
from gateway.commands.contract import Call, CommandHost, boundary


async def new(host: CommandHost, call: Call) -> str:
    """Lead this place to a new, empty conversation."""
    old = await host.sessions.conversation_for_key(call.key)
    fresh = await host.sessions.start_conversation(
        call.key, call.record.owner, host.prefix_for(call.record.address.platform)
    )
    if old is not None:
        host.compactors.succeed(old.id, fresh.conversation_id)
    await host.crossed(boundary("reset", call, old, fresh))
    alone = old is not None and call.direct
    return texts.NEW_CONVERSATION_ALONE if alone else texts.NEW_CONVERSATION


async def stop(host: CommandHost, call: Call) -> str:
    """Say what came of the stop, which has happened already."""
    if call.over is None:
        return texts.NOTHING_RUNNING
    another = call.over.done() and host.busy(call.key)
    waiting = host.waiting(call.key) + (1 if another else 0)
    return texts.stopped(waiting)


async def whoami(host: CommandHost, call: Call) -> str:
    """The ids that the access lists want."""
    address = call.record.address
    return texts.who_and_where(
        call.record.owner, address.chat_id, address.thread_id, address.platform, admin=call.admin
    )
