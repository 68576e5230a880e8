"""Owns the command line of the fake: `python -m tests.fakes.anthropic_server --port N`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from tests.fakes.anthropic_server.control import add_control
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.responders import MODES
from tests.fakes.anthropic_server.script import Fault, Match
from tests.fakes.anthropic_server.server import DEFAULT_KEY, AnthropicServer


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.fakes.anthropic_server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path, help="written with the port once it listens")
    parser.add_argument("--api-key", action="append", help=f"accepted key ({DEFAULT_KEY})")
    parser.add_argument("--any-key", action="store_true", help="accept every key")
    parser.add_argument("--mode", choices=sorted(MODES), default="echo")
    parser.add_argument("--window", type=int)
    parser.add_argument("--max-output", type=int)
    parser.add_argument("--min-cacheable", type=int)
    parser.add_argument("--overflow", choices=("auto", "error", "stop"), default="auto")
    parser.add_argument("--thinking", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--binding", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--token-scale", type=float, default=1.0)
    parser.add_argument("--summary-tokens", type=int)
    parser.add_argument("--chunk-delay", type=float, default=0.0)
    parser.add_argument("--first-delay", type=float, default=0.0)
    parser.add_argument("--keep", type=int, default=200, help="requests kept with their bodies")
    parser.add_argument("--model", action="append", default=[], help="a further model id")
    parser.add_argument("--fault-next", metavar="NAME[:N]", help="the next N requests fail")
    parser.add_argument("--fault-summary", metavar="NAME[:N]", help="the next N summaries fail")
    parser.add_argument(
        "--fault-text", metavar="NAME=TEXT", action="append", default=[], help="by user text"
    )
    return parser


def _name_and_times(value: str) -> tuple[Fault, int]:
    name, _, times = value.partition(":")
    return Fault(name), int(times or 1)


def _build(args: argparse.Namespace) -> AnthropicServer:
    server = AnthropicServer(
        api_key=None if args.any_key else (args.api_key or DEFAULT_KEY),
        models=[ModelFacts(id=name) for name in args.model],
        keep=args.keep,
        port=args.port,
        window=args.window,
        max_output=args.max_output,
        min_cacheable=args.min_cacheable,
        overflow=args.overflow,
        thinking=args.thinking,
        binding=args.binding,
        token_scale=args.token_scale,
        mode=args.mode,
        summary_tokens=args.summary_tokens,
        chunk_delay=args.chunk_delay,
        first_delay=args.first_delay,
    )
    for value in args.fault_text:
        name, _, wanted = value.partition("=")
        server.when(Match(text=wanted), Fault(name), None)
    if args.fault_next:
        fault, times = _name_and_times(args.fault_next)
        server.when(Match(summary=False), fault, times)
    if args.fault_summary:
        fault, times = _name_and_times(args.fault_summary)
        server.when(Match(summary=True), fault, times)
    add_control(server)
    return server


async def _serve(args: argparse.Namespace) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with _build(args) as server:
        print(f"listening {server.base_url}", flush=True)
        if args.port_file is not None:
            await asyncio.to_thread(_write_port, args.port_file, server.port)
        await ended.wait()


def _write_port(path: Path, port: int) -> None:
    # Written under another name first: whoever polls for the file reads a whole number.
    draft = path.with_suffix(path.suffix + ".new")
    draft.write_text(str(port))
    draft.replace(path)


def main() -> None:
    """Serve until a signal comes."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(_parser().parse_args()))


if __name__ == "__main__":
    main()
