"""Owns the terminal of `posthouse demo`: says the lines, shows what happens behind them."""

from __future__ import annotations

import asyncio
import logging
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from agent.archive_ports import Archive
from agent.errors import PosthouseError
from agent.model_metadata import estimate_prefix_tokens, measure
from agent.sessions import LoadedSession, SessionInfo
from gateway.cli.demo_script import QUESTION, WINDOW_TOKENS, Part
from gateway.cli.output import out, plain

PAUSE_SECONDS = 0.15
WIDTH = 79
BAR_CELLS = 40
SHOWN_HITS = 2
_NOTICE = "Context "
"""How a notice begins that the window fills."""
_NET = "gateway.hygiene"
"""The logger that says when the net fires, and nothing else at INFO."""


class Stage:
    """The console's terminal, for one part after the other."""

    def __init__(self) -> None:
        self.compressions = 0
        self.caught = 0
        """How many of them were the net's."""
        self.left = False
        """Whoever watched is gone."""
        self.last_answers: list[str] = []
        """What was said to the newest line, whole."""
        self._hidden = False
        self._asked = ""
        self._part: Part | None = None
        self._store: Archive | None = None
        self._answered = asyncio.Event()

    @property
    def in_turns(self) -> bool:
        """As the port: `lines` waits by itself."""
        return False

    @contextmanager
    def playing(self, part: Part, store: Archive) -> Iterator[None]:
        """What is said now, and where to look for what happened."""
        self._part, self._store, self._hidden = part, store, False
        net, heard = logging.getLogger(_NET), _Heard()
        level, net.propagate = net.level, False
        net.setLevel(logging.INFO)
        net.addHandler(heard)
        try:
            yield
        finally:
            net.removeHandler(heard)
            net.setLevel(level)
            net.propagate = True
            self.caught += heard.times

    async def lines(self) -> AsyncIterator[str]:
        """The part's lines, each once the one before is answered."""
        assert self._part is not None
        for line in self._part.lines:
            self._answered.clear()
            self.last_answers = []
            self._begin(self._part, line)
            yield line
            await self._answered.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            await self._look()
            if self.left:
                return

    async def show(self, text: str) -> None:
        """An answer or a notice."""
        self.last_answers.append(text)
        if self._asked == QUESTION:
            self._print("\n".join(_found(text)))
        elif not self._hidden or text.startswith(_NOTICE):
            self._print(_spoken("bot", self._short(text)))
        self._answered.set()

    def _begin(self, part: Part, line: str) -> None:
        self._asked = line
        if line in part.shown_again:
            self._hidden = False
        if line in part.passed_over:
            self._hidden = True
            self._print(f"     … {part.passed_over[line]} …")
        if not self._hidden:
            self._print(_spoken("you", self._short(line)))

    def _short(self, text: str) -> str:
        assert self._part is not None
        cells = WIDTH * 3 if text.startswith(_NOTICE) else self._part.shown_cells
        return textwrap.shorten(plain(text), cells, placeholder=" …")

    def _print(self, text: str) -> None:
        """Whoever watches may leave (`posthouse demo | head`): then the play ends."""
        try:
            out(text)
        except (BrokenPipeError, PosthouseError):
            self.left = True

    async def _look(self) -> None:
        assert self._store is not None
        assert self._part is not None
        infos = await self._store.list_sessions()
        tip = next(info for info in infos if info.ended_at is None)
        if len(infos) - 1 > self.compressions:
            self.compressions = len(infos) - 1
            parent = next(info for info in infos if info.id == tip.parent_session_id)
            full = await self._size(parent, whole=True)
            self._print(
                f"\n  == {self._part.due}: the prompt would have had {full:,} tokens.\n"
                f"  == Session {len(infos) - 1} ({parent.message_count} messages) is closed and "
                f"kept; session {len(infos)} goes on\n"
                f"  == with a summary and the last messages: {await self._size(tip):,} tokens.\n"
            )
        size = await self._size(tip)
        self._print(
            f"     session {len(infos)}: {tip.message_count} messages, "
            f"prompt {size:,} tokens {'#' * (size * BAR_CELLS // WINDOW_TOKENS)}"
        )

    async def _size(self, info: SessionInfo, *, whole: bool = False) -> int:
        """Of the last prompt, as the notices have it; ``whole``: of the one that did not go out."""
        assert self._store is not None
        lineage = await self._store.lineage(info.id)
        session = next(session for session in lineage if session.id == info.id)
        if session.anchor is not None and not whole:
            return session.anchor.prompt_tokens
        rows = tuple(await self._store.active_rows(session.id))
        prefix_tokens = estimate_prefix_tokens(session.prefix)
        return measure(LoadedSession(session, rows), prefix_tokens=prefix_tokens).tokens


class _Heard(logging.Handler):
    """Counts lines, shows none."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.times = 0

    def emit(self, record: logging.LogRecord) -> None:
        """One more."""
        self.times += 1


def _spoken(who: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"{who}: ", subsequent_indent="     ")


def _found(answer: str) -> list[str]:
    """The answer to the question, without what was found besides."""
    first, *others = answer.splitlines() or [""]
    hits = [n for n, line in enumerate(others) if line.startswith("m")]
    end = hits[SHOWN_HITS] if len(hits) > SHOWN_HITS else len(others)
    shown = [_spoken("bot", plain(first)), *map(_further, others[:end])]
    return [*shown, "     …"] if end < len(others) else shown


def _further(line: str) -> str:
    return textwrap.fill(plain(line), WIDTH, initial_indent="     ", subsequent_indent="     ")
