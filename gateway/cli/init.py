"""Owns `posthouse init`: asks, tries, shows, writes; until the last yes nothing is changed."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import yaml

from agent.errors import ConfigError, PosthouseError
from gateway.cli import exits
from gateway.cli.doctor import in_words
from gateway.cli.output import out
from gateway.cli.status import how_to_restart
from gateway.config.environment import UNIT_PATH, environment
from gateway.config.tokens import awaited_tokens
from gateway.doctor.areas import all_areas
from gateway.doctor.checkup import examine
from gateway.doctor.ground import Ground, survey
from gateway.service.installed import has_systemd
from gateway.setup.config_edit import edited
from gateway.setup.config_text import changes, rendered
from gateway.setup.discord import ask_discord
from gateway.setup.given import Answers, Servers, from_answers
from gateway.setup.keeping import Written, check_home, write_all
from gateway.setup.model import ask_about_model
from gateway.setup.talk import Talk, Terminal
from gateway.setup.telegram import ask_telegram
from gateway.setup.wishes import Wishes
from gateway.setup.zone import ask_zone

HELLO = """\
This sets posthouse up in {home} ({reason}).
Enter takes what stands in [brackets]. Nothing is written before the end; Ctrl-C ends without."""
NO_TERMINAL = (
    "there is no terminal to ask at; `posthouse init --yes` takes answers from options "
    "(`posthouse init --help`), tokens and keys from the environment"
)
UNCHANGED = "Nothing was changed."


def run(arguments: argparse.Namespace) -> int:
    """Exit 0: it is set up; 1: not, and nothing was changed."""
    ground = survey(environment(), None, offline=arguments.offline)
    if not arguments.yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise PosthouseError(NO_TERMINAL)
    try:
        return _set_up(ground, arguments)
    except (KeyboardInterrupt, EOFError):
        print(f"\n{UNCHANGED}", file=sys.stderr)  # noqa: T201
        return 130


def _set_up(ground: Ground, arguments: argparse.Namespace) -> int:
    for line in ground.secret_problems:
        raise PosthouseError(line)
    check_home(ground.home)  # before anybody has typed anything
    before, existing = _existing(ground, arguments.yes)
    servers = Servers(
        arguments.telegram_base_url or ground.config.telegram.base_url,
        arguments.discord_api_base or ground.config.discord.api_base,
        arguments.model_base_url or ground.config.model.base_url,
    )
    wishes = Wishes({}, _servers(arguments))
    talk = Terminal()
    if arguments.yes:
        answers = Answers(
            arguments.telegram_id,
            arguments.discord_id,
            arguments.telegram_admin,
            arguments.discord_admin,
            arguments.no_admins,
            arguments.model,
            arguments.timezone,
        )
        given, untried = from_answers(answers, ground, servers, offline=arguments.offline)
        wishes = wishes.joined(given)
        for line in untried:
            out(f"note: {line}")
    else:
        wishes = wishes.joined(_asked(talk, ground, servers, offline=arguments.offline))
    wishes = wishes.joined(_switched_on(ground, wishes))
    after = edited(before or "", existing, wishes.settings)
    if before is None and not after:
        after = rendered({})  # not a byte to set is no reason for a file without a word
    config = None if after == before else after
    if not _agreed(talk, before, config, wishes, arguments):
        out(UNCHANGED)
        return exits.FAILED
    _tell(write_all(ground.home, wishes.secrets, config))
    ground = survey(environment(), None, offline=True, as_service=True)
    _look(ground)
    waiting = awaited_tokens(ground.config, ground.secrets)  # the doctor has said where they go
    if not arguments.yes and _wants_service(talk, ground):
        return _install_service(ground)
    if not waiting or ground.secrets.telegram_bot_token or ground.secrets.discord_bot_token:
        out(f"\n{_next_step(ground)}")
    else:
        out("\nOnce the token is there, start the gateway.")
    return exits.OK


def _asked(talk: Talk, ground: Ground, servers: Servers, *, offline: bool) -> Wishes:
    talk.say(HELLO.format(home=ground.home.path, reason=ground.home.reason))
    wishes = ask_telegram(talk, ground, servers.telegram, offline=offline)
    wishes = wishes.joined(ask_discord(talk, ground, servers.discord, offline=offline))
    wishes = wishes.joined(ask_about_model(talk, ground, servers.model, offline=offline))
    zone = ask_zone(talk, ground.config.timezone, ground.env)
    return wishes.joined(Wishes({}, {"timezone": zone} if zone is not None else {}))


def _existing(ground: Ground, scripted: bool) -> tuple[str | None, dict[str, Any]]:
    """The text that is there and what it says; what can not be used says nothing.

    Raises:
        ConfigError: it can not be used, and nobody is there to agree to a new one.
    """
    file = ground.home.path / "config.yaml"
    if not os.path.lexists(file):
        return None, {}
    if ground.config_problems:
        if scripted:
            raise ConfigError(list(ground.config_problems))
        out("There is a config.yaml that can not be used:")
        out("".join(f"  {line}\n" for line in ground.config_problems).rstrip())
        out("Go on, and it is kept beside a new one; Ctrl-C, and you can correct it first.\n")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "", {}
    return text, {} if ground.config_problems else dict(yaml.safe_load(text) or {})


def _servers(arguments: argparse.Namespace) -> dict[str, Any]:
    """Only what was said now; the rest stays as it is."""
    said = {
        "telegram.base_url": arguments.telegram_base_url,
        "discord.api_base": arguments.discord_api_base,
        "model.base_url": arguments.model_base_url,
    }
    return {path: address for path, address in said.items() if address}


def _switched_on(ground: Ground, wishes: Wishes) -> Wishes:
    """Whoever gives a token wants it to be used."""
    off = {
        f"{name}.enabled": "auto"
        for name, secret, section in (
            ("telegram", "TELEGRAM_BOT_TOKEN", ground.config.telegram),
            ("discord", "DISCORD_BOT_TOKEN", ground.config.discord),
        )
        if secret in wishes.secrets and section.enabled is False
    }
    return Wishes({}, off)


def _agreed(
    talk: Talk,
    before: str | None,
    config: str | None,
    wishes: Wishes,
    arguments: argparse.Namespace,
) -> bool:
    """Shown what becomes of what is there, does somebody say yes?"""
    if config is None and not wishes.secrets:
        return True
    if config is not None:
        out("\nThis becomes config.yaml:\n" if before is None else "\nThis changes:\n")
        out(config if before is None else changes(before, config))
    if wishes.secrets:
        out(f"\nkept in the folder secrets, for you only: {', '.join(sorted(wishes.secrets))}")
    if not arguments.yes:
        return talk.sure("\nWrite it?", default=True)
    if before is not None and config is not None and not arguments.replace:
        out("\nThere is a config.yaml already; --replace changes it so, and keeps the old one.")
        return False
    return True


def _tell(written: Written) -> None:
    paths = [path for path in (written.config, *written.secrets) if path is not None]
    for path in paths:
        out(f"written: {path}")
    if not paths:
        out("All is as it was; there was nothing to write.")
    if written.kept_as is not None:
        out(f"the old one is kept: {written.kept_as}")


def _look(ground: Ground) -> None:
    """What a doctor says at once, of what was written."""
    areas = [a for a in all_areas(ground) if a.name in ("home", "configuration", "secrets")]
    findings = examine(areas, ground.secrets.values())
    if troubles := [f for f in findings if f.level in ("warning", "problem")]:
        out(f"\n{in_words(troubles)}")


def _wants_service(talk: Talk, ground: Ground) -> bool:
    """Only asked where a yes can be carried out."""
    if ground.runs or os.geteuid() != 0 or not has_systemd() or UNIT_PATH.exists():
        return False
    return talk.sure("\nInstall it as a service, and start it?", default=False)


def _install_service(ground: Ground) -> int:
    from gateway.cli.main import main  # noqa: PLC0415 - it imports us

    return main(["service", "install", "--from", str(ground.home.path), "--now"])


def _next_step(ground: Ground) -> str:
    if ground.runs:
        return (
            "The gateway runs already: `posthouse config reload` takes over who may talk and the "
            "zone; a new token or another model needs a restart: "
            f"{how_to_restart(ground.home)}."
        )
    lines = [
        "Next: `posthouse run`, and write to your bot. `posthouse doctor` looks at everything."
    ]
    if UNIT_PATH.exists():
        lines = ["Next: `sudo systemctl restart posthouse`, and write to your bot."]
    elif has_systemd():
        source = ground.home.path
        lines.append(f"To keep it running: `sudo posthouse service install --from {source} --now`.")
    return "\n".join(lines)
