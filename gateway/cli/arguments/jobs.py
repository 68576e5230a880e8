"""Owns the arguments of `posthouse jobs`."""

from __future__ import annotations

import argparse

from gateway.cli.arguments.line import CommandLine, said, text


def add(line: CommandLine) -> None:
    """Jobs: without an action, their list."""
    options = line.config_file, line.as_json
    jobs = line.add("jobs", "jobs", "what runs at set times; pause, resume, cancel it", *options)
    jobs.add_argument("--all", action="store_true", help="also those that are over")
    actions = jobs.add_subparsers(dest="action", metavar="ACTION")
    # Said before the action or behind it: what is not said behind it leaves alone what was before.
    again = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    again.add_argument("--config", metavar="FILE", help="instead of the home's config.yaml")
    again.add_argument("--json", action="store_true", help="machine-readable output")
    listing = actions.add_parser("list", parents=[again], **said("all of them, the next one first"))
    listing.add_argument(
        "--all",
        action="store_true",
        default=argparse.SUPPRESS,
        help="also those that are over",
    )
    for action, words in (
        ("runs", "what came of its last runs"),
        ("pause", "let it not run until it is resumed"),
        ("resume", "let it go on"),
        ("cancel", "end it for good"),
    ):
        parser = actions.add_parser(action, parents=[again], **said(words))
        parser.add_argument(
            "id", metavar="ID", type=text, help="as the list has it, or its beginning"
        )
    jobs.set_defaults(action="list")
