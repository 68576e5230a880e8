"""The server as a process: prints one line of JSON with its addresses, then serves."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

from tests.fakes.telegram_server.server import TOKEN, TelegramServer


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.telegram_server")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--token", default=TOKEN)
    parser.add_argument("--username", default="posthouse_test_bot")
    parser.add_argument("--first-update-id", type=int, default=1)
    return parser.parse_args()


async def serve(options: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = TelegramServer(
        options.token,
        username=options.username,
        port=options.port,
        first_update_id=options.first_update_id,
    )
    async with server:
        addresses = {
            "root": server.root,
            "port": server.port,
            "base_url": server.base_url,
            "base_file_url": server.base_file_url,
            "control": f"{server.root}/_control",
        }
        print(json.dumps(addresses), flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(serve(arguments()))
