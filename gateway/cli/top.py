"""Owns `posthouse top`: the running daemon, looked at again and again, until a key ends it."""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent.errors import PosthouseError
from gateway.cli import exits
from gateway.cli.output import out
from gateway.cli.settings import Settings
from gateway.cli.top_view import picture
from gateway.config.environment import environment, find_home

_ENTER = "\x1b[?1049h\x1b[?25l"
"""The terminal's second page, without a cursor; what was on the first one comes back."""
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_REST_OF_LINE = "\x1b[K"
_REST_OF_PAGE = "\x1b[J"
_ENOUGH = (b"q", b"Q", b"\x03", b"\x04", b"\x1b")
NOT_RUNNING = "no gateway runs on this home; `posthouse run` starts one"
GONE = "the gateway does not answer (any more); trying again … (q ends)"
OLD = "the running gateway is of an older version, which has no `top`: restart it"

Look = Callable[[], Mapping[str, Any] | None]


def run(arguments: argparse.Namespace) -> int:
    """Show it live in a terminal; once where there is none."""
    env = environment()
    home = find_home(env)

    settings = Settings(arguments.config, home, env)
    settings.tell()

    def look() -> Mapping[str, Any] | None:
        return settings.ask({"op": "top"})

    first = look()
    if first is None:
        raise PosthouseError(settings.silence() or NOT_RUNNING)
    if "rows" not in first:
        raise PosthouseError(OLD)
    if arguments.json:
        out(json.dumps(first, ensure_ascii=False))
    elif not _is_terminal():
        out("\n".join(picture(first, 200, None)))
    else:
        live(look, first, arguments.every)
    return exits.OK


def live(look: Look, found: Mapping[str, Any] | None, every_seconds: float) -> None:
    """Until a key that means enough, or Ctrl-C."""
    with _second_page() as keys:
        while True:
            _draw(found)
            if _enough(keys, every_seconds):
                return
            try:
                found = look()
            except PosthouseError:
                found = None


def _is_terminal() -> bool:
    return all(s is not None and s.isatty() for s in (sys.stdin, sys.stdout))


def _draw(found: Mapping[str, Any] | None) -> None:
    width, height = shutil.get_terminal_size()
    lines = [GONE[:width]] if found is None else picture(found, width, height)
    body = "\r\n".join(line + _REST_OF_LINE for line in lines)
    sys.stdout.write(_HOME + _encodable(body) + _REST_OF_PAGE)
    sys.stdout.flush()


def _encodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _enough(keys: int, seconds: float) -> bool:
    """Wait for the next look; True: somebody has pressed a key that ends it."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        # A window that changes its size wakes nobody; it is measured at the next look.
        ready, _, _ = select.select([keys], [], [], left)
        if ready:
            pressed = os.read(keys, 64)
            # Keys that move a cursor begin with an escape as well; they, as any other, look now.
            return not pressed or pressed in _ENOUGH or pressed[:1] in _ENOUGH[:-1]
    return False


@contextmanager
def _second_page() -> Iterator[int]:
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # the terminal is put back for them too
    try:
        tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        yield keys
    except KeyboardInterrupt:
        pass  # Ctrl-C is the usual way to have enough
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
