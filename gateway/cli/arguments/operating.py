"""Owns the arguments of the commands that set the service up and look after it."""

from __future__ import annotations

from gateway.cli.arguments.line import CommandLine, said


def add(line: CommandLine) -> None:
    """Set up, check, look after."""
    options = line.config_file, line.as_json
    doctor = line.add(
        "doctor", "doctor", "look at everything, say what to do; exit 0: no problem", *options
    )
    doctor.add_argument("--offline", action="store_true", help="ask nobody over the network")
    config = line.group("config", "config", "check or show the configuration")
    config.add_parser("check", parents=options, **said("say what is wrong, and where"))
    config.add_parser("show", parents=options, **said("what holds, secrets hidden"))
    config.add_parser("schema", **said("JSON schema, for editors"))
