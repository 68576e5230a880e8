"""Owns `posthouse completion`: a script for the shell, made of the command line as it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gateway.cli import exits
from gateway.cli.output import out

_PATHS = {"FILE": "FILE", "FILE.svg": "FILE", "DIR": "DIRECTORY", "DEST": "DIRECTORY"}
"""Arguments that are paths, by what the help calls them."""


def run(arguments: argparse.Namespace) -> int:
    """Print it; nothing is installed."""
    import shtab  # noqa: PLC0415 - only here

    from gateway.cli.main import build_parser  # noqa: PLC0415 - it imports us

    parser = build_parser()
    kinds = {"FILE": shtab.FILE, "DIRECTORY": shtab.DIRECTORY}
    for action in _actions(parser):
        kind = _PATHS.get(str(action.metavar))
        if kind is not None:
            action.complete = kinds[kind]  # type: ignore[attr-defined]
    out(shtab.complete(parser, arguments.shell).rstrip())
    return exits.OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
