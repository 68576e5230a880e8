"""Owns `posthouse demo`: a long conversation on a tiny window, in a throw-away home."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

from agent.errors import PosthouseError
from agent.sessions import SessionInfo
from agent.store_ports import Archive
from gateway.cli import exits
from gateway.cli.output import out, plain, table
from gateway.config.environment import Home, Secrets, environment
from gateway.config.models import Compression, Config, Model
from gateway.logs import set_up

WINDOW_TOKENS = 4_500
PAUSE_SECONDS = 0.3
WIDTH = 79

OPENING = f"""\
posthouse demo: one conversation with the built-in offline model, whose window
is set to only {WINDOW_TOKENS:,} tokens here. Real ones have 200,000 and more; a small one
shows in seconds what otherwise takes weeks.
"""
DIARY = (
    "We walked along the river to the old mill, had soup, and missed the bus back.",
    "Rain all day; museum of clocks, then tea with Mr. Okafor, who repairs violins.",
    "Took the night train. Berth 12, a draughty window, a talkative conductor.",
    "The market: plums, rye bread, two kinds of cheese, and a map from 1911 for 14.50.",
    "Climbed to the tower before breakfast: 312 steps, fog, then all at once the sea.",
    "The ferry was full, so we stayed; letters written, shoes mended, early to bed.",
    "Island day. Seals on the north beach, a lighthouse keeper with three grey cats.",
    "Back on the mainland. The bicycle has a flat tyre; the smith at the corner helps.",
    "Long ride through the fens, herons everywhere, sandwiches under a poplar.",
    "Concert in the church: the second violin was Mr. Okafor's, and it sang.",
    "Packing. The old map goes into the tube, the cheese unfortunately into us.",
    "Last evening: supper with everybody, far too many toasts, one short speech.",
)
TRIP = tuple(
    f"Day {day} of the trip. {text} Later, at the desk: {DIARY[(day * 5) % len(DIARY)]}"
    for day, text in enumerate(DIARY, start=1)
)
LOCKER = "Please remember: the locker at the station is number 47, and its code is BLUE-HERON-1183."
SCRIPT = ("hello", "what time is it", *TRIP[:2], LOCKER, *TRIP[2:], "recall locker code")


def run(arguments: argparse.Namespace) -> int:
    """Play it."""
    set_up(level="ERROR", style="plain", secrets=[], env=environment())
    with tempfile.TemporaryDirectory(prefix="posthouse-demo-") as folder:
        return asyncio.run(_play(Home(Path(folder), "the demo's own")))


async def _play(home: Home) -> int:
    # Inside: the composition brings the database driver.
    from gateway.wiring import Surroundings, archive, build_daemon  # noqa: PLC0415

    config = Config(
        model=Model(provider="offline", context_length=WINDOW_TOKENS, max_tokens=600),
        compression=Compression(protect_last_n=4),
    )
    out(OPENING)
    stage = _Stage()
    around = Surroundings(home, Secrets(), {}, console=stage, only_console=True)
    daemon = await build_daemon(config, around)
    async with archive(home) as store:
        stage.watch(store)
        code = await daemon.serve()
        await _epilogue(store)
    return exits.OK if code == exits.OK and stage.compressions else exits.FAILED


class _Stage:
    """The console's terminal: says the script's lines and shows what happens behind them."""

    def __init__(self) -> None:
        self.compressions = 0
        self._left = False
        self._store: Archive | None = None
        self._answered = asyncio.Event()

    def watch(self, store: Archive) -> None:
        """Where to look for what happened."""
        self._store = store

    async def lines(self) -> AsyncIterator[str]:
        """The script, each line once the one before is answered."""
        for line in SCRIPT:
            self._answered.clear()
            self._print(_spoken("you", line))
            yield line
            await self._answered.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            await self._look()
            if self._left:
                return

    async def show(self, text: str) -> None:
        """An answer or a notice."""
        self._print(_spoken("bot", textwrap.shorten(plain(text), 260, placeholder=" …")))
        self._answered.set()

    def _print(self, text: str) -> None:
        """Whoever watches may leave (`posthouse demo | head`): then the play ends."""
        try:
            out(text)
        except (BrokenPipeError, PosthouseError):
            self._left = True

    async def _look(self) -> None:
        assert self._store is not None
        infos = await self._store.list_sessions()
        tip = next(info for info in infos if info.ended_at is None)
        bar = "#" * min(40, tip.tokens * 40 // (WINDOW_TOKENS // 2))
        self._print(
            f"     session {len(infos)}: {tip.message_count} messages, ~{tip.tokens} tokens {bar}"
        )
        if len(infos) - 1 > self.compressions:
            self.compressions = len(infos) - 1
            parent = next(info for info in infos if info.id == tip.parent_session_id)
            self._print(
                f"\n  == the context was full: session {len(infos) - 1} "
                f"({parent.message_count} messages, ~{parent.tokens} tokens)\n"
                f"  == is closed and kept; session {len(infos)} goes on with a summary and the "
                "last messages\n"
            )


def _spoken(who: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"{who}: ", subsequent_indent="     ")


async def _epilogue(store: Archive) -> None:
    infos = sorted(await store.list_sessions(), key=lambda info: info.started_at)
    out("\nThe locker's code was said in the first session, long before the last summary;")
    out("recall found the original. This is the lineage, root first (`posthouse lineage ID`):\n")
    out(table(("SESSION", "PARENT", "END", "MESSAGES", "TOKENS"), [_row(i) for i in infos]))
    out("\nNothing was deleted: every message is still in the session in which it was said.")


def _row(info: SessionInfo) -> tuple[str, ...]:
    return (
        info.id,
        info.parent_session_id or "-",
        info.end_reason or "live",
        str(info.message_count),
        f"~{info.tokens}",
    )
