"""Owns a process in which an engine of others keeps whole conversations short, over a restart.

``python -m tests.real_plugins.conversation HOME ENGINE``: two chats with a strict model on the
loopback; what came of it is a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tests.fakes.anthropic_server import Answer, AnthropicServer, text
from tests.fakes.engine_house import EngineHouse

WINDOW = 30_000
CHATS = ("11", "12")
TURNS = 20


def question(chat: str, n: int) -> str:
    """Long, and with one thing in it that is said nowhere else."""
    lines = "\n".join(f"Line {i} of the report: nothing of note happened." for i in range(240))
    return f"Chat {chat}, question {n}: the code word is word-{chat}-{n}.\n{lines}"


async def talked(home: Path, engine: str) -> dict[str, Any]:
    """Half of each conversation, a restart, and the rest."""
    answer = Answer([text("Noted.")])
    async with AnthropicServer(window=WINDOW, responder=lambda request: answer) as server:
        where = EngineHouse(home, server.base_url, engine, window=WINDOW, enabled=[engine])
        said: dict[str, Any] = {"answers": [], "compressions": [], "troubles": []}
        for turns in (range(TURNS // 2), range(TURNS // 2, TURNS)):
            async with where:
                for n in turns:
                    for chat in CHATS:
                        said["answers"] += await where.say(question(chat, n), chat)
                said["troubles"] += where.plugins.troubles()
                said["status"] = (await where.say("/status"))[-1]
                said["details"] = where.daemon.status()["details"]
                said["compressions"].append([await compressions(where, chat) for chat in CHATS])
        async with where:
            said["compressed"] = (await where.say("/compress"))[-1]
            for chat in CHATS:
                rows = (await where.tip(chat)).rows
                words = " ".join(str(row.message["content"]) for row in rows)
                others = [other for other in CHATS if other != chat]
                said[f"of the other in {chat}"] = any(f"word-{c}-" in words for c in others)
                said[f"newest in {chat}"] = f"word-{chat}-{TURNS - 1}" in words
        said["refused"] = [str(r.status) for r in server.records.requests if r.status >= 400]
    return said


async def compressions(where: EngineHouse, chat: str) -> int:
    """So many links of this chat's chain were made by a compression."""
    tip = (await where.tip(chat)).session
    chain = await where.store.lineage(tip.id)
    return sum(session.end_reason == "compression" for session in chain)


def main() -> None:
    """Print what came of it."""
    home, engine = sys.argv[1:]
    with redirect_stdout(sys.stderr):  # what plugins print is no answer
        said = json.dumps(asyncio.run(talked(Path(home), engine)))
    print(said, flush=True)
    os._exit(0)  # threads of plugins may never end


if __name__ == "__main__":
    main()
