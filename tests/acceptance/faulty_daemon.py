"""The real daemon over a store that kills its own process at a named point.

`python -m tests.acceptance.faulty_daemon --point P --platform NAME --occurrence N --hits FILE
--armed FILE --config FILE`. It counts from when the second file exists. Before it dies it appends
the hit to the first one and waits until that is on the disk, so that a test can tell a kill at the
point from any other end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agent.mail import Cursor, InboxRecord, OutboxItem, OutboxPart, PartDraft, Receipt, SendState
from agent.messages import Draft
from agent.sessions import (
    ChangeResult,
    InterruptedTurn,
    LoadedSession,
    SplitRequest,
    TurnOpening,
    TurnTicket,
)
from agent.store_ports import Appended, Store
from storage import faultpoint

POINTS: Final = (
    "after-inbox-commit",
    "before-tool-result-row",
    "inside-split",
    "after-final-before-send",
    "between-parts",
    "after-send-before-mark",
)
"""Where a talk of messages passes again and again."""
RESTART_POINTS: Final = ("after-restart-commit", "after-news-commit")


def platform_of_key(session_key: str) -> str:
    return str(json.loads(session_key)[0])


class Trap:
    """Counts how often the point is passed for its platform, and dies the n-th time."""

    def __init__(
        self, point: str, platform: str, occurrence: int, *, hits: Path, armed: Path
    ) -> None:
        self.point = point
        self.platform = platform
        self._left = occurrence
        self._hits = hits
        self._armed = armed

    def passed(self, point: str, platform: str | None, detail: str = "") -> None:
        if point != self.point or platform != self.platform or not self._armed.exists():
            return
        self._left -= 1
        if self._left > 0:
            return
        line = json.dumps({"point": point, "platform": platform, "detail": detail}) + "\n"
        handle = os.open(self._hits, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, line.encode())
        os.fsync(handle)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()


class FaultyStore:
    """Delegates everything to the real store and passes the named points on the way."""

    def __init__(self, inner: Store, trap: Trap) -> None:
        self._inner = inner
        self._trap = trap
        self._turns: dict[str, str] = {}
        self._conversations: dict[str, str] = {}
        self._answers: dict[int, str] = {}
        self._parts: dict[int, tuple[str, bool]] = {}
        # One split at a time, so that a point inside it belongs to a known platform.
        self._splitting = asyncio.Lock()
        self._split_platform: str | None = None
        faultpoint.install(self._inside)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _inside(self, name: str) -> None:
        if name.startswith("split."):
            self._trap.passed("inside-split", self._split_platform, name)

    # --- the ways in

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        receipt = await self._inner.accept(record, cursor)
        if receipt.fresh and record.kind == "message":
            self._trap.passed("after-inbox-commit", record.address.platform, record.text[:40])
        return receipt

    async def begin_turn(self, opening: TurnOpening) -> TurnTicket:
        ticket = await self._inner.begin_turn(opening)
        self._know(ticket, platform_of_key(opening.session_key))
        return ticket

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        turns = await self._inner.recover_turns(crash_limit=crash_limit)
        for turn in turns:
            self._know(turn.ticket, platform_of_key(turn.session_key))
        return turns

    async def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        loaded = await self._inner.resume_turn(ticket)
        self._know(ticket, loaded.session.prefix.source)
        return loaded

    def _know(self, ticket: TurnTicket, platform: str) -> None:
        self._turns[ticket.turn_id] = platform
        self._conversations[ticket.conversation_id] = platform

    # --- the turn

    async def append(
        self, ticket: TurnTicket, session_id: str, messages: Sequence[Draft], **options: Any
    ) -> Appended:
        if any(draft.message["role"] == "tool" for draft in messages):
            self._trap.passed("before-tool-result-row", self._turns.get(ticket.turn_id))
        return await self._inner.append(ticket, session_id, messages, **options)

    async def split(self, request: SplitRequest) -> ChangeResult:
        async with self._splitting:
            self._split_platform = self._conversations.get(request.conversation_id)
            try:
                return await self._inner.split(request)
            finally:
                self._split_platform = None

    async def finish_turn(
        self, ticket: TurnTicket, session_id: str, outcome: Any, **options: Any
    ) -> tuple[OutboxItem, ...]:
        items = await self._inner.finish_turn(ticket, session_id, outcome, **options)
        self._owe(items)
        if items and options.get("final") is not None:
            self._trap.passed("after-final-before-send", self._turns.get(ticket.turn_id))
        return items

    # --- the way out

    def _owe(self, items: Sequence[OutboxItem]) -> None:
        for item in items:
            self._answers[item.id] = item.draft.address.platform
            self._plan(item.id, item.parts)

    def _plan(self, outbox_id: int, parts: Sequence[OutboxPart]) -> None:
        for part in parts:
            last = part.n == max(p.n for p in parts)
            self._parts[part.id] = (self._answers.get(outbox_id, ""), last)

    async def owed(self) -> list[OutboxItem]:
        items = await self._inner.owed()
        self._owe(items)
        return items

    async def answer_inbox(self, *arguments: Any, **options: Any) -> tuple[OutboxItem, ...]:
        items = await self._inner.answer_inbox(*arguments, **options)
        self._owe(items)
        return items

    async def await_restart(self, *arguments: Any, **options: Any) -> tuple[OutboxItem, ...]:
        items = await self._inner.await_restart(*arguments, **options)
        self._owe(items)
        for item in items:
            self._trap.passed("after-restart-commit", item.draft.address.platform)
        return items

    async def say_restarted(self, text: str) -> tuple[OutboxItem, ...]:
        items = await self._inner.say_restarted(text)
        self._owe(items)
        for item in items:
            self._trap.passed("after-news-commit", item.draft.address.platform)
        return items

    async def owe(self, *arguments: Any, **options: Any) -> OutboxItem:
        item = await self._inner.owe(*arguments, **options)
        self._owe([item])
        return item

    async def plan_parts(
        self, outbox_id: int, parts: Sequence[PartDraft]
    ) -> tuple[OutboxPart, ...]:
        planned = await self._inner.plan_parts(outbox_id, parts)
        self._plan(outbox_id, planned)
        return planned

    async def mark_part(self, part_id: int, state: SendState, **options: Any) -> None:
        platform, last = self._parts.get(part_id, ("", True))
        if state == "sent":
            self._trap.passed("after-send-before-mark", platform)
        await self._inner.mark_part(part_id, state, **options)
        if state == "sent" and not last:
            self._trap.passed("between-parts", platform)


def main(argv: Sequence[str]) -> int:
    """Run the daemon with its trap set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--point", choices=(*POINTS, *RESTART_POINTS), required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--occurrence", type=int, default=1)
    parser.add_argument("--hits", type=Path, required=True)
    parser.add_argument("--armed", type=Path, required=True)
    parser.add_argument("--config", required=True)
    options = parser.parse_args(argv)
    trap = Trap(
        options.point,
        options.platform,
        options.occurrence,
        hits=options.hits,
        armed=options.armed,
    )

    from gateway.cli.main import build_parser
    from gateway.cli.run import serve

    arguments = build_parser().parse_args(["run", "--config", options.config])
    return int(serve(arguments, decorate_store=lambda store: FaultyStore(store, trap)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
