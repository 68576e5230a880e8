"""Runs the loopback Discord server as a process of its own, driven over `/_control`."""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import signal
from typing import Any

from tests.fakes.discord_server.control import METHODS, invoke
from tests.fakes.discord_server.server import DiscordServer


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.discord_server")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--token", default="discord-test-token")
    parser.add_argument("--bot-id", type=int, default=900_000_000_000_000_001)
    parser.add_argument("--bot-name", default="posthouse")
    parser.add_argument("--privileged", default="message_content", help="comma-separated intents")
    parser.add_argument("--heartbeat-interval", type=float, default=41.25)
    parser.add_argument("--session-ttl", type=float, default=60.0)
    parser.add_argument("--nonce-window", type=float, default=180.0)
    parser.add_argument("--no-compress", action="store_true", help="plain text frames")
    parser.add_argument("--seed", type=pathlib.Path, help='JSON: [["add_user", {"name": …}], …]')
    parser.add_argument("--ready-file", type=pathlib.Path, help="written with the addresses")
    return parser.parse_args()


async def seed(server: DiscordServer, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Make some calls before anybody can connect."""
    for name, arguments in calls:
        if name not in METHODS:
            raise SystemExit(f"no helper {name!r}")
        await invoke(server, name, arguments)


def announce(addresses: str, ready_file: pathlib.Path | None) -> None:
    if ready_file is not None:
        # Renamed into place, so that a reader never sees half of it.
        draft = ready_file.with_suffix(".tmp")
        draft.write_text(addresses)
        draft.rename(ready_file)
    print(addresses, flush=True)


async def serve(options: argparse.Namespace, calls: list[tuple[str, dict[str, Any]]]) -> None:
    server = DiscordServer(
        options.token,
        port=options.port,
        bot_id=options.bot_id,
        bot_name=options.bot_name,
        privileged=[name for name in options.privileged.split(",") if name],
        heartbeat_interval=options.heartbeat_interval,
        session_ttl=options.session_ttl,
        nonce_window=options.nonce_window,
        compress=not options.no_compress,
    )
    await seed(server, calls)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server:
        addresses = json.dumps(
            {
                "port": server.port,
                "base_url": server.base_url,
                "api_base": server.api_base,
                "gateway_url": server.gateway_url,
                "control_url": server.control_url,
            }
        )
        announce(addresses, options.ready_file)
        await stopped.wait()


if __name__ == "__main__":
    chosen = parse()
    asyncio.run(serve(chosen, json.loads(chosen.seed.read_text()) if chosen.seed else []))
