"""Owns the wizard's questions on a terminal: plain lines, secrets unseen."""

from __future__ import annotations

import getpass
from typing import Protocol

from gateway.cli.output import out


class Talk(Protocol):
    """Somebody who answers."""

    def say(self, text: str) -> None:
        """Tell something."""

    def ask(self, question: str, default: str = "") -> str:
        """One line; nothing typed means the default."""

    def secret(self, question: str) -> str:
        """One line that is not shown."""

    def sure(self, question: str, *, default: bool) -> bool:
        """Yes or no."""


class Terminal:
    """A person at a terminal. Ctrl-C is a KeyboardInterrupt, the end of the input an EOFError."""

    def say(self, text: str) -> None:
        """As the port."""
        out(text)

    def ask(self, question: str, default: str = "") -> str:
        """As the port."""
        shown = f"{question} [{default}]: " if default else f"{question}: "
        while True:
            try:
                return input(shown).strip() or default
            except UnicodeDecodeError:
                out("That was no text that I can read; once more, please.")

    def secret(self, question: str) -> str:
        """As the port."""
        while True:
            try:
                return getpass.getpass(f"{question} (not shown): ").strip()
            except UnicodeDecodeError:
                out("That was no text that I can read; once more, please.")

    def sure(self, question: str, *, default: bool) -> bool:
        """As the port."""
        while True:
            answer = self.ask(f"{question} {'[Y/n]' if default else '[y/N]'}").lower()
            if not answer:
                return default
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")
            out("Please answer y or n.")
