"""Owns the arguments of the commands that start the gateway, talk to it or ask how it is."""

from __future__ import annotations

from gateway.cli.arguments.line import CommandLine, positive, said, text


def add(line: CommandLine) -> None:
    """run, chat, demo, status, top, usage, pair, plugins."""
    options = line.config_file, line.as_json
    line.add("run", "run", "start the gateway", line.config_file)
    line.add(
        "chat",
        "run",
        "talk to it here: through the running gateway, else through one of its own",
        line.config_file,
    )
    line.add(
        "demo", "demo", "see a conversation grow, get compressed, and remember (a few seconds)"
    )
    line.add(
        "status",
        "status",
        "how the running gateway is; exit 0: ready, 1: not ready or not running",
        *options,
    )
    top = line.add("top", "top", "the running gateway, live: who is at work, what waits", *options)
    top.add_argument(
        "--every", type=positive, default=1, metavar="SECONDS", help="between two looks (1)"
    )

    usage = line.add("usage", "usage", "requests, tokens and money of the last days", *options)
    usage.add_argument(
        "--days", type=positive, default=7, metavar="N", help="how many, today included (7)"
    )

    pair = line.group("pair", "pairing", "let in people who have got a code from the bot")
    pair.add_parser("list", parents=options, **said("who asks, and who was let in"))
    approving = pair.add_parser(
        "approve", parents=[line.config_file], **said("let in whose code this is")
    )
    approving.add_argument("code", metavar="CODE", type=text, help="as the bot has told it")
    revoking = pair.add_parser(
        "revoke", parents=[line.config_file], **said("take a request or a yes back")
    )
    revoking.add_argument(
        "platform", metavar="PLATFORM", choices=("telegram", "discord"), help="telegram or discord"
    )
    revoking.add_argument("user", metavar="USER", type=text, help="a numeric id")

    plugins = line.group("plugins", "plugins", "which plugins there are, and how they are")
    plugins.add_parser("list", parents=options, **said("all that were found, and their state"))
    checking = plugins.add_parser(
        "check", parents=options, **said("load one here and say all about it")
    )
    checking.add_argument("name", metavar="NAME", type=text, help="as `plugins list` has it")
