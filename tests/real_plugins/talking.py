"""Owns a whole conversation with a memory provider of others; what came of it is a line of JSON.

``python -m tests.real_plugins.talking HOME``: a daemon with `holographic`, two compressions, a
restart, and the fact that the model had kept comes back by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from agent.brought import split
from gateway.config.models import Compression, Memory
from tests.fakes.anthropic_server import Answer, AnthropicServer, text, tool_use
from tests.fakes.engine_house import WINDOW, EngineHouse

PROVIDER = "holographic"
FACT = {"action": "add", "content": "Ada drinks Darjeeling tea", "category": "user_pref"}
LONG = "All work and no play makes a long message. " * 350


async def talked(home: Path) -> dict[str, Any]:
    """One chat, and a restart in it."""
    async with AnthropicServer(
        window=WINDOW, responder=lambda request: Answer([text("fine")])
    ) as server:
        house = EngineHouse(
            home,
            server.base_url,
            "compressor",
            memory=Memory(provider=PROVIDER),
            compression=Compression(background=False),
        )
        async with house:
            server.script(
                Answer([tool_use("fact_store", FACT)], stop_reason="tool_use"),
                Answer([text("kept")]),
            )
            kept = await house.say("Ada drinks Darjeeling tea, please keep that")
            sessions = [(await house.tip()).session.id]
            for _ in range(2):
                await house.say(LONG)
                await house.say("and more")
                await house.say("/compress")
                sessions.append((await house.tip()).session.id)
            works, tools = (
                house.plugins.memory(),
                sorted(tool.name for tool in (await house.tip()).session.prefix.tools),
            )
        async with house:
            await house.say("Which tea does Ada drink?")
            row = next(r for r in reversed((await house.tip()).rows) if r.message["role"] == "user")
            fences, said = split(row.wire_content)
        problems = [str(request.path) for request in server.rejected]
    return {
        "kept": kept,
        "sessions": sessions,
        "works": works,
        "tools": tools,
        "brought": "".join(fences),
        "said": said,
        "rejected": problems,
    }


def main() -> None:
    """Print what came of it."""
    with redirect_stdout(sys.stderr):
        found = json.dumps(asyncio.run(talked(Path(sys.argv[1]))))
    print(found, flush=True)
    os._exit(0)  # threads of plugins may never end


if __name__ == "__main__":
    main()
