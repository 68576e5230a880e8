"""Owns the arguments of the commands for what is stored: look at it, take it out, in, replay it."""

from __future__ import annotations

from gateway.cli.arguments.line import AN_ID, CommandLine, positive, said, text


def add(line: CommandLine) -> None:
    """sessions, forget, simulate, lineage."""
    sessions = line.group("sessions", "sessions", "look at what is stored")
    listing = sessions.add_parser("list", parents=[line.as_json], **said("newest first"))
    listing.add_argument("--limit", type=positive, default=50, metavar="N", help="at most (50)")
    show = sessions.add_parser("show", parents=[line.as_json], **said("the messages of one"))
    show.add_argument("id", metavar="ID", type=text, help=AN_ID)
    search = sessions.add_parser(
        "search", parents=[line.as_json], **said("full text over everything")
    )
    search.add_argument("query", metavar="QUERY", type=text, help='words, or "a phrase"')
    search.add_argument("--limit", type=positive, default=10, metavar="N", help="at most (10)")

    export = sessions.add_parser(
        "export", **said("a whole conversation, of any of its sessions' ids")
    )
    export.set_defaults(module="exchange")
    export.add_argument("id", metavar="ID", type=text, help=AN_ID)
    export.add_argument(
        "--format",
        choices=("jsonl", "markdown"),
        default="jsonl",
        help="jsonl: can be imported; markdown: to read (jsonl)",
    )
    export.add_argument("--output", metavar="FILE", help="instead of standard output")
    export.add_argument("--force", action="store_true", help="replace FILE if it is there already")
    taking = sessions.add_parser(
        "import",
        parents=[line.config_file, line.as_json],
        **said("an export, or Hermes Agent's state.db"),
    )
    taking.set_defaults(module="exchange")
    taking.add_argument("file", metavar="FILE", help="what `sessions export` wrote, or state.db")
    taking.add_argument(
        "--owner", metavar="PLATFORM:ID", type=text, help="whose it shall be, e.g. telegram:123"
    )

    forget = line.add(
        "forget", "forget", "erase all that is held of one person", line.config_file, line.as_json
    )
    forget.add_argument("person", metavar="PLATFORM:ID", type=text, help="e.g. telegram:123456")
    forget.add_argument("--yes", action="store_true", help="do not ask first")

    simulate = line.add(
        "simulate", "simulate", "what a conversation costs and who waits, by setting: a replay"
    )
    simulate.add_argument(
        "trace", metavar="TRACE", nargs="?", help="a file, or one of daily, coding, group"
    )
    simulate.add_argument(
        "--from",
        dest="session",
        metavar="SESSION_ID",
        type=text,
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
        "--window", type=positive, metavar="TOKENS", help="instead of the model's"
    )
    simulate.add_argument("--plot", metavar="FILE.svg", help="draw how full the window was")
    simulate.add_argument("--json", action="store_true", help="machine-readable output")

    lineage = line.add(
        "lineage", "sessions", "the chain of sessions, root first, of any of its ids"
    )
    lineage.add_argument("id", metavar="ID", type=text, help=AN_ID)
    lineage.add_argument("--json", action="store_true", help="machine-readable output")
