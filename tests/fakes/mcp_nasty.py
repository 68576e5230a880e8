"""Owns an MCP server of the older protocol, by hand, that misbehaves as its first argument says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
SCHEMA = {"type": "object", "properties": {}}


def say(**message: Any) -> None:
    """One message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def raw(data: bytes) -> None:
    """Bytes that are no message."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def tools(cursor: str | None) -> dict[str, Any]:
    """The answer to ``tools/list``."""
    if MODE == "endless-list":
        page = int(cursor or 0)
        found = [{"name": f"t{page}", "inputSchema": SCHEMA}]
        return {"tools": found, "nextCursor": str(page + 1)}
    if MODE == "odd-list":
        return {
            "tools": [
                {"name": "good", "inputSchema": SCHEMA},
                {
                    "name": "bad",
                    "inputSchema": {"type": "object", "properties": {"a": {"type": 5}}},
                },
                {"name": "évil name\n", "description": "no rules " * 900, "inputSchema": SCHEMA},
            ]
        }
    return {"tools": [{"name": "go", "inputSchema": SCHEMA}]}


def called(number: Any) -> None:
    """A call."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": "fine"}]}
    match MODE:
        case "silent":
            return
        case "garbage":
            raw(b'\x00\xff\xfe not json\n{"jsonrpc": 5}\n[[[[\n' + b"[" * 5000 + b"\n")
        case "long-line":
            raw(b"x" * 9_000_000 + b"\n")
        case "dies":
            sys.stderr.write("it hurts\n")
            sys.stderr.flush()
            os._exit(7)
        case "twice":
            say(id=number, result=result)
        case "asks":
            for other, method in enumerate(
                ("sampling/createMessage", "elicitation/create", "roots/list", "no/such")
            ):
                params: dict[str, Any] = {"messages": [], "maxTokens": 5}
                if method.startswith("elic"):
                    params = {"message": "your password?", "requestedSchema": SCHEMA}
                say(id=f"ask{other}", method=method, params=params)
            answers = [json.loads(sys.stdin.readline()) for _ in range(4)]
            words = ["error" if "error" in answer else "yes" for answer in answers]
            result = {"content": [{"type": "text", "text": " ".join(words)}]}
        case "flood":
            line = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            raw((json.dumps(line) + "\n").encode() * 3_000)
        case "many-parts":
            result = {"content": result["content"] * 100_000}
        case "no-result":
            result = {"content": "five"}
        case "bad-picture":
            part = {"type": "image", "data": "***", "mimeType": "image/png"}
            result = {"content": [part, {**part, "data": "aGVsbG8="}], "isError": True}
        case "parts":
            text = {"uri": "x://a/b", "text": "inside"}
            blob = {"uri": "x://a/c.bin", "blob": "AAEC", "mimeType": "application/x-thing"}
            link = {"type": "resource_link", "name": "more", "uri": "x://more"}
            resources = [{"type": "resource", "resource": r} for r in (text, blob)]
            result = {"content": [*resources, link], "structuredContent": {"n": [1, 2]}}
    say(id=number, result=result)


def main() -> None:
    """Serve until the input ends, and in some ways beyond that."""
    if MODE == "exits":
        sys.stderr.write("no token\n")
        sys.exit(3)
    if MODE == "mute":
        time.sleep(3600)
    if MODE == "stays":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = [sys.executable, "-c", "import time; time.sleep(3600)"]
        stray = subprocess.Popen(child, start_new_session=True)
        with open(sys.argv[2], "w") as file:
            file.write(f"{os.getpid()} {stray.pid}")
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "nasty", "version": "1"}
            say(
                id=number,
                result={
                    "protocolVersion": version,
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": info,
                },
            )
        elif method == "tools/list":
            say(id=number, result=tools(message.get("params", {}).get("cursor")))
        elif method == "tools/call":
            called(number)
        elif number is not None and method is not None:
            if MODE == "touchy":
                os._exit(9)
            say(id=number, error={"code": -32601, "message": "no such method"})
    while MODE == "stays":
        time.sleep(1)


if __name__ == "__main__":
    main()
