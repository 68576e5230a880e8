"""Owns the wish to be started again: would anybody do that, and has somebody asked for it?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agent.mail import OutboxDraft, OutboxItem
from agent.mail_ports import Mailbox


class RestartDesk:
    """Takes the wish down, durably, and then tells the daemon of it."""

    def __init__(self, mailbox: Mailbox, *, possible: bool) -> None:
        """``possible``: a process that ends is started again."""
        self._mailbox = mailbox
        self._wanted = asyncio.Event()
        self.possible = possible

    @property
    def wanted(self) -> bool:
        """Has somebody asked?"""
        return self._wanted.is_set()

    async def wait(self) -> None:
        """Until somebody asks."""
        await self._wanted.wait()

    async def ask(self, inbox_id: int, answer: OutboxDraft) -> tuple[OutboxItem, ...]:
        """Answer the row that asks, in the transaction that notes who waits; then it is wanted.

        A row that was answered before asks for nothing: however often a platform brings it again,
        one command is one restart.

        Raises:
            StoreUnavailable: nothing was noted, and nothing is wanted.
        """
        owed = await self._mailbox.await_restart(inbox_id, (answer,))
        if owed:
            self._wanted.set()
        return owed


def is_managed(env: Mapping[str, str], process_id: int) -> bool:
    """Does a service manager look after this process, and start it again when it ends?

    Whatever is started from a service inherits its variables (a terminal of a desktop session, say)
    and is looked after by nobody; newer systemd says for which process they are meant.
    """
    meant_for = env.get("SYSTEMD_EXEC_PID", "")
    if meant_for.isdecimal() and int(meant_for) != process_id:
        return False
    return bool(env.get("INVOCATION_ID") or env.get("NOTIFY_SOCKET"))
