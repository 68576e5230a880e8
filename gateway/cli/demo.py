"""Owns `posthouse demo`: a long conversation on a tiny window, in a throw-away home."""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import textwrap
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from agent.archive_ports import Archive
from agent.errors import PosthouseError
from agent.sessions import SessionInfo
from gateway.cli import exits, session_table
from gateway.cli.output import out, plain, terminal_width
from gateway.config.environment import Home, Secrets, environment
from gateway.config.models import Compression, Config, Model
from gateway.logs import set_up

WINDOW_TOKENS = 8_000
PAUSE_SECONDS = 0.3
WIDTH = 79

OPENING = f"""\
posthouse demo: one conversation with the built-in offline model, whose window
is set to only {WINDOW_TOKENS:,} tokens here. Real ones have 200,000 and more; a small one
shows in seconds what otherwise takes weeks. Instructions and tools take a good
part of it; when half of it is full, older messages are summarised.
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
CODE = "BLUE-HERON-1183"
LOCKER = f"Please remember: the locker at the station is number 47, and its code is {CODE}."
QUESTION = "recall locker code"
SCRIPT = ("hello", "what time is it", *TRIP[:2], LOCKER, *TRIP[2:], QUESTION)
PASSED_OVER = {TRIP[2]: "days 3 to 6", TRIP[8]: "days 9 to 12"}
"""Where lines are left out of what is shown: from this one on."""
SHOWN_AGAIN = (TRIP[6], QUESTION)
ANSWER_CELLS = 130
_HIT = re.compile(r"^m(\d+) · [^:\n]*:\d\d · \w+: (.*?)(?: \(newer .*\))?$", re.MULTILINE)


def run(arguments: argparse.Namespace) -> int:
    """Play it."""
    set_up(level="ERROR", style="plain", secrets=[], env=environment())
    with tempfile.TemporaryDirectory(prefix="posthouse-demo-") as folder:
        return asyncio.run(_play(Home(Path(folder), "the demo's own")))


async def _play(home: Home) -> int:
    # Inside: the composition brings the database driver.
    from gateway.wiring.assembling import build_daemon  # noqa: PLC0415
    from gateway.wiring.beside import archive  # noqa: PLC0415
    from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

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
        if stage.left:
            return exits.OK
        found = await epilogue(store, stage.last_answers)
    return exits.OK if code == exits.OK and stage.compressions and found else exits.FAILED


class _Stage:
    """The console's terminal: says the script's lines and shows what happens behind them."""

    def __init__(self) -> None:
        self.compressions = 0
        self.left = False
        """Whoever watched is gone."""
        self.last_answers: list[str] = []
        """What was said to the newest line, whole."""
        self._hidden = False
        self._asked = ""
        self._store: Archive | None = None
        self._answered = asyncio.Event()

    @property
    def in_turns(self) -> bool:
        """As the port: `lines` waits by itself."""
        return False

    def watch(self, store: Archive) -> None:
        """Where to look for what happened."""
        self._store = store

    async def lines(self) -> AsyncIterator[str]:
        """The script, each line once the one before is answered."""
        for line in SCRIPT:
            self._answered.clear()
            self.last_answers = []
            self._begin(line)
            yield line
            await self._answered.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            await self._look()
            if self.left:
                return

    async def show(self, text: str) -> None:
        """An answer or a notice."""
        self.last_answers.append(text)
        if self._asked == QUESTION:  # the point of it all is somewhere in there
            first, *others = text.splitlines() or [""]
            self._print("\n".join([_spoken("bot", plain(first)), *map(_further, others)]))
        elif not self._hidden:
            self._print(
                _spoken("bot", textwrap.shorten(plain(text), ANSWER_CELLS, placeholder=" …"))
            )
        self._answered.set()

    def _begin(self, line: str) -> None:
        self._asked = line
        if line in SHOWN_AGAIN:
            self._hidden = False
        if line in PASSED_OVER:
            self._hidden = True
            self._print(f"     … {PASSED_OVER[line]} …")
        if not self._hidden:
            self._print(_spoken("you", line))

    def _print(self, text: str) -> None:
        """Whoever watches may leave (`posthouse demo | head`): then the play ends."""
        try:
            out(text)
        except (BrokenPipeError, PosthouseError):
            self.left = True

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
                f"\n  == half of the window was full: session {len(infos) - 1} "
                f"({parent.message_count} messages, ~{parent.tokens} tokens)\n"
                f"  == is closed and kept; session {len(infos)} goes on with a summary and the "
                "last messages\n"
            )


def _spoken(who: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"{who}: ", subsequent_indent="     ")


def _further(line: str) -> str:
    return textwrap.fill(plain(line), WIDTH, initial_indent="     ", subsequent_indent="     ")


async def epilogue(store: Archive, answers: Sequence[str]) -> bool:
    """What became of it all. Was the code found again, by the last answers?"""
    infos = sorted(await store.list_sessions(), key=lambda info: info.started_at)
    found = await _found(store, answers, infos)
    out("")
    out(textwrap.fill(found or f"NOT found: {CODE} is not in the last answer.", WIDTH))
    if found:
        out("It was said long before the last summary; recall looks in what was really said.")
    out("\nThis is the lineage, root first:\n")
    openings = await store.openings([info.conversation_id for info in infos])
    out(session_table.as_table(infos, openings, width=terminal_width()))
    out("\nNothing was deleted: every message is still in the session in which it was said.")
    out("(this demo's store is deleted now; for your own: posthouse sessions list, then")
    out("posthouse lineage ID)")
    return found is not None


async def _found(
    store: Archive, answers: Sequence[str], infos: Sequence[SessionInfo]
) -> str | None:
    """The hit with the code, as the last answer has it, and where it was said."""
    hits = [hit for answer in answers for hit in _HIT.finditer(answer) if CODE in hit[2]]
    if not hits:
        return None
    number = int(hits[0][1])
    row = next(row for row in await store.window(number, before=0, after=0) if row.id == number)
    session = [info.id for info in infos].index(row.session_id) + 1
    return f"Found again: “{plain(hits[0][2])}” (message m{number}, session {session})"
