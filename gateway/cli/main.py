"""Owns the entry point: arguments, dispatch, and errors as exit codes."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence

from gateway import __version__, hangups
from gateway.cli import exits
from gateway.cli.arguments import beginning, jobs, operating, stored, talking
from gateway.cli.arguments.line import CommandLine
from gateway.cli.arguments.parsing import Parser


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Imports nothing: `--help` has to be instant."""
    parser = Parser(
        prog="posthouse",
        description="A chat-bot gateway whose conversations go on for ever.",
        epilog="`posthouse init` sets it up, `posthouse run` starts it, `posthouse demo` shows "
        "what it does, `posthouse doctor` says what is wrong.",
    )
    parser.add_argument("--version", action="version", version=f"posthouse {__version__}")
    parser.set_defaults(is_process=False)
    line = CommandLine(parser)
    for kind in (beginning, talking, operating, jobs, stored):
        kind.add(line)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give back its exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return exits.MISTYPED
    arguments.is_process = argv is None  # and not a call in another one
    if arguments.is_process and arguments.command != "service":  # units are for all to read
        from gateway.concealing import keep_to_the_owner  # noqa: PLC0415

        keep_to_the_owner()
    if arguments.command == "run" and arguments.is_process:
        from gateway.cli.leaving import leave_on_sigterm  # noqa: PLC0415

        leave_on_sigterm()
        hangups.outlive()
        # What a start loads is no garbage, and each collection would walk all of it: a seventh of
        # the way to READY. `wiring.warming_up` switches it on once all is loaded.
        gc.disable()
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
    except (errors.DatabaseTooNew, errors.DatabaseDamaged) as exc:
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
        if arguments.command == "run" and arguments.is_process:
            hangups.ignore()
        _let_go_of_output()


def _let_go_of_output() -> None:
    """Flush now: at the interpreter's end a reader that has left would become exit code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(code: int, *lines: str) -> int:
    from gateway.terminal_text import harmless  # noqa: PLC0415

    for line in map(harmless, lines):
        print(f"posthouse: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
