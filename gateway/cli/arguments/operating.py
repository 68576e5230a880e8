"""Owns the arguments of the commands that set the service up and look after it."""

from __future__ import annotations

import argparse

from gateway.cli.arguments.line import CommandLine, positive, said


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
    config.add_parser(
        "reload",
        parents=options,
        **said("have the running gateway read it again; a bad one changes nothing (exit code 78)"),
    )
    _backups(line)
    _service(line)


def _backups(line: CommandLine) -> None:
    backup = line.add(
        "backup", "backup", "copy all that is stored, also while it runs", line.as_json
    )
    backup.add_argument(
        "destination",
        metavar="DEST",
        nargs="?",
        help="a folder, or a file that ends with .db (the database only); default: the home's own",
    )
    restore = line.add("restore", "restore", "put a backup back; what is there is put aside")
    restore.add_argument(
        "source",
        metavar="SRC",
        nargs="?",
        help="a backup, or a folder with backups, of which the newest whole one is taken; "
        "default: the home's own",
    )
    restore.add_argument("--yes", action="store_true", help="do not ask")
    restore.add_argument(
        "--with-forgotten",
        action="store_true",
        help="bring back also whoever was forgotten since; else they are forgotten again",
    )


def _service(line: CommandLine) -> None:
    service = line.group("service", "service", "posthouse as a service of systemd")
    change = argparse.ArgumentParser(add_help=False)
    change.add_argument("--dry-run", action="store_true", help="only say what would be done")
    change.add_argument(
        "--home",
        metavar="DIR",
        help="what it keeps, a folder in /var/lib (that of what is installed, else posthouse)",
    )
    install = service.add_parser(
        "install", parents=[change], **said("install it, or bring what is installed up to date")
    )
    install.add_argument(
        "--from", dest="source", metavar="DIR", help="begin with a copy of this home"
    )
    install.add_argument(
        "--import-secrets",
        action="store_true",
        help="write the tokens and keys of this environment into /etc/posthouse",
    )
    install.add_argument("--now", action="store_true", help="start it, or start it again")
    uninstall = service.add_parser(
        "uninstall", parents=[change], **said("take it away; what it keeps stays")
    )
    uninstall.add_argument("--purge", action="store_true", help="delete that and the secrets, too")
    uninstall.add_argument("--yes", action="store_true", help="do not ask")
    logs = service.add_parser("logs", **said("what it has said: journalctl of its units"))
    logs.add_argument("-f", "--follow", action="store_true", help="and what it says from now on")
    logs.add_argument(
        "-n", "--lines", type=positive, default=100, metavar="N", help="so many (100)"
    )
