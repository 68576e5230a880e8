"""Owns the arguments of the commands of the first hour."""

from __future__ import annotations

from gateway.cli.arguments.line import CommandLine, text


def add(line: CommandLine) -> None:
    """init, completion."""
    init = line.add(
        "init", "init", "set it up: asks for tokens and ids, tries each, writes it down"
    )
    init.add_argument(
        "--yes",
        action="store_true",
        help="ask nothing: TELEGRAM_BOT_TOKEN, DISCORD_BOT_TOKEN and ANTHROPIC_API_KEY of the "
        "environment are kept, all else comes from these options",
    )
    for platform in ("telegram", "discord"):
        init.add_argument(
            f"--{platform}-id",
            metavar="ID",
            action="append",
            default=[],
            type=text,
            help="who may talk, a numeric id; as often as you like",
        )
        init.add_argument(
            f"--{platform}-admin",
            metavar="ID",
            action="append",
            default=[],
            type=text,
            help="who of them is an admin; else whoever is the only one",
        )
    init.add_argument("--no-admins", action="store_true", help="the only one is no admin either")
    init.add_argument("--model", metavar="NAME", type=text, help="which model answers")
    init.add_argument("--timezone", metavar="ZONE", type=text, help="e.g. Europe/Berlin")
    init.add_argument(
        "--replace", action="store_true", help="with --yes: change a config.yaml that is there"
    )
    init.add_argument("--offline", action="store_true", help="try nothing over the network")
    init.add_argument("--telegram-base-url", metavar="URL", help="a Bot API server of your own")
    init.add_argument("--discord-api-base", metavar="URL", help="another one than Discord's")
    init.add_argument("--model-base-url", metavar="URL", help="any server for the Messages API")

    completion = line.add(
        "completion", "completion", "a script that completes our commands at the Tab key"
    )
    completion.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )
