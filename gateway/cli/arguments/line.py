"""Owns how commands are added to the command line, and the kinds of values that they take."""

from __future__ import annotations

import argparse
from typing import Any

MOST_ROWS = 1_000_000_000
"""What SQLite can count to is less than what a person can type."""
AN_ID = "a session's id, or its beginning"

Group = argparse._SubParsersAction
"""The actions of one command, as in `posthouse sessions list`."""


class CommandLine:
    """Where commands are added; options that many have."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        self.config_file = argparse.ArgumentParser(add_help=False)
        self.config_file.add_argument(
            "--config", metavar="FILE", help="instead of the home's config.yaml"
        )
        self.as_json = argparse.ArgumentParser(add_help=False)
        self.as_json.add_argument("--json", action="store_true", help="machine-readable output")

    def add(
        self, name: str, module: str, text: str, *options: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        """A command; `gateway.cli.<module>` runs it, and is imported only then."""
        command = self._commands.add_parser(name, parents=list(options), **said(text))
        command.set_defaults(module=module, action=name)
        return command

    def group(self, name: str, module: str, text: str) -> Group[argparse.ArgumentParser]:
        """A command with actions, of which one has to be named."""
        parent = self.add(name, module, text)
        return parent.add_subparsers(dest="action", metavar="ACTION", required=True)


def said(text: str) -> dict[str, Any]:
    """The same words in the list above it and in its own help."""
    return {"help": text, "description": text}


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number of at least 1")
    return min(value, MOST_ROWS)


def text(argument: str) -> str:
    """Bytes that are no UTF-8 arrive as half surrogates, which no database takes."""
    return argument.encode("utf-8", "replace").decode()
