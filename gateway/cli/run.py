"""Owns `posthouse run` and `posthouse chat`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.clock import SystemClock
from gateway import __version__
from gateway.cli import exits
from gateway.cli.leaving import leave_soon
from gateway.cli.settings import Settings
from gateway.config.environment import (
    Home,
    Secrets,
    environment,
    find_home,
)
from gateway.config.loading import Loaded
from gateway.config.models import Config
from gateway.config.reading import Reading, Source
from gateway.control import connect, read_line, send_line, socket_path
from gateway.crashes.catching import caught
from gateway.crashes.runs import recorded
from gateway.crashes.shelf import CrashShelf
from gateway.home_lock import claimed
from gateway.installation import check_installation
from gateway.logs import Redactor, set_up
from gateway.logs.redaction import named_like_secrets
from gateway.ownership import refuse_as_root
from gateway.platforms.console.adapter import StandardStreams, standard_streams
from gateway.terminal_text import harmless

if TYPE_CHECKING:
    from gateway.wiring.assembling import StoreDecorator

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

log = logging.getLogger(__name__)

INTRO = """\
posthouse {version} · home: {home}
Write a message and press Enter. /help shows the commands.
Ctrl-D ends the chat{rest}."""
OFFLINE = """\
No model provider is configured, so the built-in offline model answers.
`posthouse init` sets up a real one: it asks for a key, and tries it."""
NO_PLATFORMS = """\
No chat platform is configured. `posthouse init` sets one up: Telegram,
Discord or both; it asks, tries each answer, and writes {file}."""
NOTHING_LEFT = (
    "nothing left to do: no chat platform is configured and the console's input has ended; "
    "`posthouse init` sets one up, or start it in a terminal"
)
GOES_ON = "The chat here has ended; the gateway goes on, until Ctrl-C."
GONE = """\
The gateway went away. What it had taken is kept and will be answered;
`posthouse chat` shows it."""


def run(arguments: argparse.Namespace) -> int:
    """Start the gateway, or talk to the running one."""
    return serve(arguments)


def serve(arguments: argparse.Namespace, *, decorate_store: StoreDecorator | None = None) -> int:
    """As `run`; ``decorate_store`` is for tests that break the store."""
    check_installation()
    env = environment()
    home = find_home(env)
    chat = arguments.command == "chat"
    person = sys.stdin is not None and sys.stdin.isatty()
    if chat:
        settings = Settings(arguments.config, home, env)
        socket = settings.listening()
        if socket is not None:
            settings.tell()
            if person:
                _say(INTRO.format(version=__version__, home=home.path, rest=", not the gateway"))
            return asyncio.run(_attach(socket))
    refuse_as_root(home, arguments.command)
    source = Source(home, dict(env), arguments.config, _doubts)
    reading = source.reading(source.text())
    config, secrets = reading.config, reading.secrets
    console = chat or _console_wanted(config, secrets, env)
    hidden = set(named_like_secrets(env))
    set_up_log = partial(_log, source=source, quiet=chat or (console and person), hidden=hidden)
    set_up_log(reading)
    for line in reading.warnings:
        log.warning(line)
    now = SystemClock().now
    crashes = CrashShelf(home.path, lambda text: Redactor(hidden)(text), now)
    with (
        claimed(
            home.path,
            home.lock,
            socket=socket_path(config.gateway.control_socket, home.path, env),
        ),
        recorded(home.path, now) as record,
        caught(crashes, process=arguments.is_process),
    ):
        if console and person:
            _introduce(config, secrets, home, reading.file.path, chat=chat)
        with _tidy_output(config), asyncio.Runner() as runner:
            code = runner.run(
                _serve(reading, source, set_up_log, env, console, chat, crashes, decorate_store)
            )
            record.ended(code)
            if arguments.is_process:
                leave_soon(code)  # the runner's end waits for names that are still looked up
            return code


def _doubts(loaded: Loaded, secrets: Secrets, env: Mapping[str, str]) -> Sequence[str]:
    if not loaded.config.jobs:
        return ()
    from gateway.wiring.job_doubts import placed  # noqa: PLC0415 - only where there are some

    return placed(loaded, secrets, env)


def _tidy_output(config: Config) -> AbstractContextManager[object]:
    """What plugins print goes where the log goes: a console's output carries replies only."""
    return redirect_stdout(sys.stderr) if config.wants_plugins else nullcontext()


async def _serve(
    reading: Reading,
    source: Source,
    set_up_log: Callable[[Reading], None],
    env: Mapping[str, str],
    console: bool,
    only_console: bool,
    crashes: CrashShelf,
    decorate_store: StoreDecorator | None,
) -> int:
    # Inside: the composition brings the database driver and, where they are on, the SDKs.
    from gateway.wiring.assembling import build_daemon  # noqa: PLC0415
    from gateway.wiring.platforms import enabled_platforms  # noqa: PLC0415
    from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

    config, secrets = reading.config, reading.secrets
    alone = only_console or not enabled_platforms(config, secrets)
    streams = standard_streams("" if alone else GOES_ON) if console else None
    around = Surroundings(
        source.home,
        secrets,
        env,
        streams,
        only_console=only_console,
        plugin_sections=reading.sections,
        source=source,
        reading=reading,
        set_up_log=set_up_log,
        crashes=crashes,
    )
    daemon = await build_daemon(config, around, decorate_store=decorate_store)
    try:
        code = await daemon.serve()
    finally:
        if streams is not None:
            streams.leave()
    if alone and not only_console and streams is not None and streams.in_turns and streams.at_end:
        log.warning(NOTHING_LEFT)
    return code


def _console_wanted(config: Config, secrets: Secrets, env: Mapping[str, str]) -> bool:
    """``auto``: a person sits there, or there is nothing else and no service manager."""
    if config.console.enabled != "auto":
        return config.console.enabled
    if sys.stdin is None:
        return False
    if sys.stdin.isatty():
        return True
    from gateway.wiring.platforms import enabled_platforms  # noqa: PLC0415 - as above

    managed = bool(env.get("INVOCATION_ID") or env.get("NOTIFY_SOCKET"))
    return not enabled_platforms(config, secrets) and not managed


def _log(reading: Reading, *, source: Source, quiet: bool, hidden: set[str]) -> None:
    """``quiet``: somebody is chatting here; only what matters comes between.

    ``hidden``: what was a secret before still is one, and may still be in use.
    """
    config, env = reading.config, source.env
    level = config.logging.level
    if quiet:
        terminal = all(s is not None and s.isatty() for s in (sys.stdin, sys.stderr))
        level = quiet_level(level, terminal=terminal)
    hidden.update(reading.hidden)
    set_up(level=level, style=config.logging.format, secrets=hidden, env=env)


def quiet_level(level: LogLevel, *, terminal: bool) -> LogLevel:
    """The log's level beside a chat, from the configured one.

    ``terminal``: the log comes onto a person's screen, in between what they read. There warnings
    are left out too: what concerns them is told in the chat. Who wants to see more says DEBUG.
    """
    if terminal and level in ("INFO", "WARNING"):
        return "ERROR"
    return "WARNING" if level == "INFO" else level


def _introduce(
    config: Config, secrets: Secrets, home: Home, file: Path | None, *, chat: bool
) -> None:
    from gateway.wiring.models import is_offline  # noqa: PLC0415 - as above
    from gateway.wiring.platforms import enabled_platforms  # noqa: PLC0415 - as above

    alone = chat or not enabled_platforms(config, secrets)
    rest = "" if alone else ", Ctrl-C the gateway"
    lines = [INTRO.format(version=__version__, home=home.path, rest=rest)]
    if is_offline(config, secrets):
        lines.append(OFFLINE)
    if alone and not chat:
        lines.append(NO_PLATFORMS.format(file=file or home.path / "config.yaml"))
    _say("\n".join(lines))


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


async def _attach(socket: Path) -> int:
    """Be a terminal of the running daemon until the input ends and everything is answered."""
    reader, writer = await connect(socket)
    streams = standard_streams()
    await send_line(writer, {"op": "chat", "in_turns": streams.in_turns})
    typing = asyncio.ensure_future(_send_lines(streams, writer))
    try:
        while (message := await read_line(reader)) is not None:
            if message.get("done"):
                return exits.OK
            if "error" in message and not message.get("ending"):
                _say(f"posthouse: {harmless(str(message['error']))}")
                return exits.FAILED
            if "text" in message:
                await streams.show(str(message["text"]))
    except ConnectionError:
        pass
    finally:
        typing.cancel()
        writer.close()
        streams.leave()
    _say(GONE)
    return exits.FAILED


async def _send_lines(streams: StandardStreams, writer: asyncio.StreamWriter) -> None:
    async for line in streams.lines():
        await send_line(writer, {"text": line})
    await send_line(writer, {"end": True})
