"""Owns an MCP server made with the `mcp` package; a program for stdio, an app for HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.context import Context
from mcp_types import ToolAnnotations

from tests.fakes.files import png

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def demo() -> MCPServer:
    """A server with one tool of each kind."""
    app = MCPServer("demo", version="1")
    begun: list[float] = []
    stopped: list[str] = []

    def note_that_it_came() -> None:
        if note := os.environ.get("DEMO_SLOW_FILE"):
            Path(note).touch()

    @app.tool(annotations=READS)
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @app.tool(annotations=READS)
    def told() -> str:
        """What it was started with, what came, and which calls were called off."""
        secret = "ANTHROPIC_API_KEY" in os.environ
        came = f"{len(begun)} slow calls"
        return f"{os.environ.get('DEMO_TOKEN')} {secret} {os.getcwd()} {came} {stopped}"

    @app.tool()
    def write(text: str) -> str:
        """Writes."""
        return f"wrote {text}"

    @app.tool(annotations=READS)
    async def slow(seconds: float) -> str:
        """Takes its time."""
        begun.append(seconds)
        note_that_it_came()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            stopped.append("slow")
            raise
        return "at last"

    @app.tool(annotations=READS)
    def picture() -> Image:
        """Shows a picture."""
        return Image(data=png(), format="png")

    @app.tool(annotations=READS)
    def broken() -> str:
        """Fails."""
        raise ValueError("no such thing")

    @app.tool(annotations=READS)
    def huge() -> str:
        """Says very much."""
        return "x" * 700_000

    @app.tool(annotations=READS)
    def dies() -> str:
        """Ends the server."""
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    @app.tool(annotations=READS)
    async def grows(ctx: Context[Any, Any]) -> str:
        """Has one tool more from now on."""

        def more() -> str:
            return "more"

        app.add_tool(more, name="more", description="New.", annotations=READS)
        await ctx.notify_tools_changed()  # the newer protocol's way, then the older one's
        await ctx.session.send_tool_list_changed()
        return "grown"

    return app


def serve_http() -> None:
    """On loopback, at the port of the second argument; the first line of output tells it."""
    import socket

    import uvicorn

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(sys.argv[2])))
        listening.listen()
        print(listening.getsockname()[1], flush=True)
        app = demo().streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none")).run([listening])


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        serve_http()
    else:
        if note := os.environ.get("DEMO_PID_FILE"):
            with open(note, "a") as file:
                file.write(f"{os.getpid()}\n")
        print("a greeting, where only the protocol belongs", flush=True)
        print("words on standard error", file=sys.stderr, flush=True)
        demo().run("stdio")
