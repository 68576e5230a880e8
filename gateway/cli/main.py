"""Owns the entry point: arguments, dispatch, and errors as exit codes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from gateway import __version__
from gateway.cli import exits

MOST_ROWS = 1_000_000_000
"""What SQLite can count to is less than what a person can type."""
AN_ID = "a session's id, or its beginning"


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Imports nothing: `--help` has to be instant."""
    parser = argparse.ArgumentParser(
        prog="posthouse",
        description="A chat-bot gateway whose conversations go on for ever.",
        epilog="`posthouse run` starts the gateway, `posthouse demo` shows what it does.",
    )
    parser.add_argument("--version", action="version", version=f"posthouse {__version__}")
    parser.set_defaults(is_process=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, module: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(module=module, action=name)
        return command

    config_file = argparse.ArgumentParser(add_help=False)
    config_file.add_argument("--config", metavar="FILE", help="instead of the home's config.yaml")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="machine-readable output")

    def group(
        name: str, module: str, text: str
    ) -> argparse._SubParsersAction[argparse.ArgumentParser]:
        parent = add(name, module, text)
        return parent.add_subparsers(dest="action", metavar="ACTION", required=True)

    for name, text in (
        ("run", "start the gateway"),
        ("chat", "talk to it here: through the running gateway, else through one of its own"),
    ):
        command = add(name, "run", text)
        command.add_argument("--config", metavar="FILE", help="instead of the home's config.yaml")
    add("demo", "demo", "see a conversation grow, get compressed, and remember (a few seconds)")
    status = add("status", "status", "how the running gateway is; exit 0: ready, 1: not running")
    status.add_argument("--config", metavar="FILE", help="instead of the home's config.yaml")
    status.add_argument("--json", action="store_true", help="machine-readable output")

    usage = add("usage", "usage", "requests, tokens and money of the last days")
    usage.add_argument(
        "--days", type=_positive, default=7, metavar="N", help="how many, today included (7)"
    )
    usage.add_argument("--config", metavar="FILE", help="instead of the home's config.yaml")
    usage.add_argument("--json", action="store_true", help="machine-readable output")

    pair = group("pair", "pairing", "let in people who have got a code from the bot")
    pair.add_parser("list", parents=[config_file, as_json], **_said("who asks, and who was let in"))
    approving = pair.add_parser(
        "approve", parents=[config_file], **_said("let in whose code this is")
    )
    approving.add_argument("code", metavar="CODE", type=_text, help="as the bot has told it")
    revoking = pair.add_parser(
        "revoke", parents=[config_file], **_said("take a request or a yes back")
    )
    revoking.add_argument(
        "platform", metavar="PLATFORM", choices=("telegram", "discord"), help="telegram or discord"
    )
    revoking.add_argument("user", metavar="USER", type=_text, help="a numeric id")

    plugins = group("plugins", "plugins", "which plugins there are, and how they are")
    plugins.add_parser(
        "list", parents=[config_file, as_json], **_said("all that were found, and their state")
    )
    checking = plugins.add_parser(
        "check", parents=[config_file, as_json], **_said("load one here and say all about it")
    )
    checking.add_argument("name", metavar="NAME", type=_text, help="as `plugins list` has it")

    config = group("config", "config", "check or show the configuration")
    config.add_parser(
        "check", parents=[config_file, as_json], **_said("say what is wrong, and where")
    )
    config.add_parser("show", parents=[config_file, as_json], **_said("what holds, secrets hidden"))
    config.add_parser("schema", **_said("JSON schema, for editors"))

    sessions = group("sessions", "sessions", "look at what is stored")
    listing = sessions.add_parser("list", parents=[as_json], **_said("newest first"))
    listing.add_argument("--limit", type=_positive, default=50, metavar="N", help="at most (50)")
    show = sessions.add_parser("show", parents=[as_json], **_said("the messages of one"))
    show.add_argument("id", metavar="ID", type=_text, help=AN_ID)
    search = sessions.add_parser("search", parents=[as_json], **_said("full text over everything"))
    search.add_argument("query", metavar="QUERY", type=_text, help='words, or "a phrase"')
    search.add_argument("--limit", type=_positive, default=10, metavar="N", help="at most (10)")

    export = sessions.add_parser(
        "export", **_said("a whole conversation, of any of its sessions' ids")
    )
    export.set_defaults(module="exchange")
    export.add_argument("id", metavar="ID", type=_text, help=AN_ID)
    export.add_argument(
        "--format",
        choices=("jsonl", "markdown"),
        default="jsonl",
        help="jsonl: can be imported; markdown: to read (jsonl)",
    )
    export.add_argument("--output", metavar="FILE", help="instead of standard output")
    taking = sessions.add_parser(
        "import", parents=[config_file, as_json], **_said("an export, or Hermes Agent's state.db")
    )
    taking.set_defaults(module="exchange")
    taking.add_argument("file", metavar="FILE", help="what `sessions export` wrote, or state.db")
    taking.add_argument(
        "--owner", metavar="PLATFORM:ID", type=_text, help="whose it shall be, e.g. telegram:123"
    )

    simulate = add(
        "simulate", "simulate", "what a conversation costs and who waits, by setting: a replay"
    )
    simulate.add_argument(
        "trace", metavar="TRACE", nargs="?", help="a file, or one of daily, coding, group"
    )
    simulate.add_argument(
        "--from",
        dest="session",
        metavar="SESSION_ID",
        type=_text,
        help="write the trace of a stored conversation: sizes and times, no text",
    )
    simulate.add_argument("--output", metavar="FILE", help="for --from, instead of standard output")
    simulate.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one more row: the defaults but for this, e.g. compression.threshold=0.3",
    )
    simulate.add_argument("--config", metavar="FILE", help="one more row: what this file says")
    simulate.add_argument("--model", metavar="NAME", help="whose prices and window count")
    simulate.add_argument(
        "--window", type=_positive, metavar="TOKENS", help="instead of the model's"
    )
    simulate.add_argument("--plot", metavar="FILE.svg", help="draw how full the window was")
    simulate.add_argument("--json", action="store_true", help="machine-readable output")

    lineage = add("lineage", "sessions", "the chain of sessions, root first, of any of its ids")
    lineage.add_argument("id", metavar="ID", type=_text, help=AN_ID)
    lineage.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _said(text: str) -> dict[str, Any]:
    """The same words in the list above it and in its own help."""
    return {"help": text, "description": text}


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number of at least 1")
    return min(value, MOST_ROWS)


def _text(argument: str) -> str:
    """Bytes that are no UTF-8 arrive as half surrogates, which no database takes."""
    return argument.encode("utf-8", "replace").decode()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give back its exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return exits.MISTYPED
    arguments.is_process = argv is None  # and not a call in another one
    if arguments.command == "run" and arguments.is_process:
        from gateway.cli.leaving import leave_on_sigterm  # noqa: PLC0415

        leave_on_sigterm()
    # Only here, so that `--version` and `--help` load nothing that they do not need.
    from agent import errors  # noqa: PLC0415

    module = importlib.import_module(f"gateway.cli.{arguments.module}")
    try:
        code = int(module.run(arguments))
        if arguments.is_process:
            from gateway.cli.leaving import leave_for_sure  # noqa: PLC0415

            leave_for_sure(code)
        return code
    except errors.ConfigError as exc:
        return _fail(exits.BAD_CONFIG, *exc.problems)
    except errors.HomeInUse as exc:
        return _fail(exits.HOME_IN_USE, str(exc))
    except errors.DatabaseTooNew as exc:
        return _fail(exits.BAD_CONFIG, str(exc))
    except errors.SessionNotFound as exc:
        return _fail(
            exits.FAILED,
            f"there is no session {str(exc)[:80]!r}; `posthouse sessions list` shows what there is",
        )
    except errors.PosthouseError as exc:
        return _fail(exits.FAILED, str(exc))
    except BrokenPipeError:  # `posthouse sessions list | head`
        return exits.OK
    except KeyboardInterrupt:
        return 130
    finally:
        _let_go_of_output()


def _let_go_of_output() -> None:
    """Flush now: at the interpreter's end a reader that has left would become exit code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(code: int, *lines: str) -> int:
    for line in lines:
        print(f"posthouse: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
