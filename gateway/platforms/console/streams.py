"""Owns the process's own terminal: bytes in, lines out of them, answers back."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import AsyncIterator
from typing import TextIO

from gateway.platforms.console.pumps import InputPump, OutputPump, RawInput, RawOutput
from gateway.terminal_text import harmless

PROMPT = "> "
ERASE_LINE = "\r\x1b[K"
MAX_LINE_BYTES = 1_000_000


class LineSplitter:
    """Cuts a stream of bytes into lines of text; a line that never ends is kept in bounds."""

    def __init__(self) -> None:
        self._rest = b""
        self._cut = False
        self.cut_lines = 0
        """Lines of which only the beginning was kept."""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now."""
        *complete, self._rest = (self._rest + data).split(b"\n")
        lines = [self._line(raw) for raw in complete]
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._cut = self._rest[:MAX_LINE_BYTES], True
        return lines

    def end(self) -> list[str]:
        """What stood behind the last line end."""
        rest, self._rest = self._rest, b""
        return [self._line(rest)] if rest else []

    def _line(self, raw: bytes) -> str:
        cut, self._cut = self._cut or len(raw) > MAX_LINE_BYTES, False
        self.cut_lines += cut
        # A cut may fall inside a character; what is left of it is left out.
        text = raw[:MAX_LINE_BYTES].decode("utf-8", "ignore" if cut else "replace")
        return text.removesuffix("\r")


class StandardStreams:
    """Standard input and output as a `Terminal`; answers only ever go to the output."""

    def __init__(
        self,
        source: RawInput,
        sink: RawOutput,
        *,
        prompt: TextIO | None = None,
        to_terminal: bool = False,
        farewell: str = "",
    ) -> None:
        """``prompt``: where to show that a line is expected; None: nowhere (a pipe).

        ``farewell``: what to say there once nothing more is read.

        ``to_terminal``: answers may quote what others wrote, and must not steer it.
        """
        self._to_terminal = to_terminal
        self._farewell = farewell
        self._source = source
        self._input: InputPump | None = None
        self._output = OutputPump(sink)
        self._splitter = LineSplitter()
        self._prompt = prompt
        self._asked = False
        """The prompt is the last thing on the terminal, as far as we know."""
        self._ended = False
        self._at_end = False

    @property
    def in_turns(self) -> bool:
        """As the port: without a prompt nobody sits there who decides what to say meanwhile."""
        return self._prompt is None

    @property
    def at_end(self) -> bool:
        """Everything that there was to read is read."""
        return self._at_end

    async def lines(self) -> AsyncIterator[str]:
        """Lines as they come. Asked again (after a failure), it goes on where it was."""
        if self._input is None:
            self._input = InputPump(self._source)
        self._ask()
        while True:
            data = await self._input.chunk()
            if not data:
                self.leave()  # an end of input moves no cursor
                if self._farewell:
                    self._write(f"{self._farewell}\n")
            for line in self._splitter.feed(data) if data else self._splitter.end():
                self._asked = False  # Enter was pressed behind the prompt
                yield line
                if not line.strip():
                    self._ask()  # nothing will be answered
            if not data:
                self._at_end = True
                return

    async def show(self, text: str) -> None:
        """Print it; an answer that nobody asked for just now takes the prompt's place."""
        if self._asked:
            self._write(ERASE_LINE)
        shown = harmless(text) if self._to_terminal else text
        await self._output.write(f"{shown}\n".encode("utf-8", "replace"))
        self._ask()

    def leave(self) -> None:
        """Nothing is asked any more: what comes next on the terminal begins a line."""
        self._ended = True
        if self._asked:
            self._write("\n")
        self._asked = False

    def _ask(self) -> None:
        if self._prompt is not None and not self._ended:
            self._asked = True
            self._write(PROMPT)

    def _write(self, text: str) -> None:
        if self._prompt is not None:
            with contextlib.suppress(OSError, ValueError):  # answers say whether anybody is there
                self._prompt.write(text)
                self._prompt.flush()


def standard_streams(farewell: str = "") -> StandardStreams:
    """Of this process; with a prompt if a person sits there. No input at all is one at its end."""
    # Unbuffered: a thread that waits in a buffered read holds a lock that makes the interpreter
    # abort at its end.
    there = sys.stdin is not None
    return StandardStreams(
        io.FileIO(0, "rb", closefd=False) if there else io.BytesIO(),
        io.FileIO(1, "wb", closefd=False),
        prompt=sys.stderr if there and sys.stdin.isatty() else None,
        to_terminal=sys.stdout is not None and sys.stdout.isatty(),
        farewell=farewell,
    )
