"""Owns the parser of the command line: a mistyped word is answered with the nearest one."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """As argparse's, with `did you mean`; its subcommands are of the same kind."""

    # One signature where argparse has three.
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse, but for an option that nobody knows: this is the one place that can help.

        A subcommand's parser is asked by this method too, and it alone knows its options.
        """
        found, extras = super().parse_known_args(args, namespace)
        unknown = next((word for word in extras if word.startswith("--") and len(word) > 2), None)
        if unknown is not None:
            known = [name for action in self._actions for name in action.option_strings]
            option = unknown.partition("=")[0]
            self.error(f"there is no option {option[:60]}{meant(option, known)}")
        return found, extras

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse's own words would list every command there is."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        word = str(value)[:60]
        if isinstance(action, argparse._SubParsersAction):
            what = "command" if action.dest == "command" else f"{self.prog.split()[-1]} action"
            hint = meant(word, known) or f"; there are {', '.join(known)}"
            self.error(f"there is no {what} {word!r}{hint}")
        hint = meant(word, known) or f"; it can be {', '.join(known)}"
        raise argparse.ArgumentError(action, f"{word!r} is not possible{hint}")

    def error(self, message: str) -> Any:
        """Exit 2: the usage in one line, what is wrong, where more is said."""
        self.exit(2, f"posthouse: {message}\n{self.format_usage()}`{self.prog} --help` says more\n")


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?``, or nothing if there is nothing near it."""
    import difflib  # noqa: PLC0415 - only when something is wrong

    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
