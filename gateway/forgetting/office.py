"""Owns the operator's side of forgetting: what is held of somebody, and erasing it, when asked."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

from agent.errors import PosthouseError
from agent.forgetting import Holdings
from gateway.control import send_line
from gateway.forgetting.desk import ForgettingDesk, Forgotten
from gateway.tasks import spawn

log = logging.getLogger(__name__)

PERSON = re.compile(r"[a-z][a-z0-9_-]*:\S{1,200}")
"""``platform:id``, as the store names people."""
ANSWER_SECONDS = 8.0
"""The command line waits for ten."""


class ForgettingOffice:
    """Answers requests ``{"action": "survey" | "erase", "owner": "telegram:123"}``."""

    def __init__(self, desk: ForgettingDesk, *, patience_seconds: float | None = ANSWER_SECONDS):
        """``patience_seconds``: an answer comes by then, and the rest goes on; None: at the end."""
        self._desk = desk
        self._patience_seconds = patience_seconds
        self._under_way: set[asyncio.Task[Forgotten]] = set()

    async def serve(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One request of the command line, at the daemon's control socket."""
        await send_line(writer, await self.answer(request))

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Never fails: what goes wrong is said in words."""
        try:
            match request:
                case {"action": "survey", "owner": str(owner)} if PERSON.fullmatch(owner):
                    return {"held": _numbers(await self._desk.survey(owner))}
                case {"action": "erase", "owner": str(owner)} if PERSON.fullmatch(owner):
                    return await self._erase(owner)
                case _:
                    return {"error": "this request is not known; is it of another version?"}
        except (PosthouseError, OSError) as exc:
            return {"error": f"{exc}. What has begun is finished at the next start"}

    async def _erase(self, owner: str) -> dict[str, Any]:
        task = spawn(self._desk.forget(owner), name="forgetting")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        done, _ = await asyncio.wait({task}, timeout=self._patience_seconds)
        if not done:
            return {"going_on": True}
        result = task.result()
        plugins = {each.name: str(each.answer) for each in result.plugins}
        return {"erased": _numbers(result.erased), **({"plugins": plugins} if plugins else {})}


def _numbers(held: Holdings) -> dict[str, int]:
    return {
        "messages": held.messages,
        "conversations": held.conversations,
        "shared": held.shared,
        "notes": held.notes,
        "files": held.files,
        "jobs": held.jobs,
        "mail": held.mail,
    }
