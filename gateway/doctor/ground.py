"""Owns what all checks stand on: the home, the configuration, the secrets, as far as readable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.errors import ConfigError, PosthouseError
from gateway.config.environment import Home, Secrets, find_config_file, find_home, read_secrets
from gateway.config.loading import PassedThrough, load
from gateway.config.models import Config
from gateway.probing.patience import within
from gateway.running_daemon import RunningDaemon
from gateway.service.unit import CREDENTIALS

ANSWER_SECONDS = 3.0
"""A daemon that lives answers at once."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Read once, before the areas are looked at."""

    env: Mapping[str, str]
    home: Home
    file: Path | None
    config: Config
    """The defaults where the file can not be used."""
    sections: PassedThrough
    config_problems: tuple[str, ...]
    config_notes: tuple[str, ...]
    """Keys with old names."""
    secrets: Secrets
    secret_problems: tuple[str, ...]
    status: Mapping[str, Any] | None
    """What the running daemon says; None: none answers."""
    status_problem: str
    offline: bool
    checkout: Path = field(default_factory=lambda: Path(__file__).resolve().parents[2])

    @property
    def runs(self) -> bool:
        """A daemon runs on this home, also where it does not answer, or not to us."""
        return self.status is not None or bool(self.status_problem)


def readable(folder: Path) -> bool:
    """May we look into it? Where it is not there, that is no matter of rights."""
    return not os.path.lexists(folder) or os.access(folder, os.R_OK | os.X_OK, effective_ids=True)


def as_the_service(
    env: Mapping[str, str], home: Home, folder: Path = CREDENTIALS
) -> Mapping[str, str]:
    """With the secrets that the installed unit hands out, for whoever may read those files."""
    of_the_unit = home.is_services and not env.get("CREDENTIALS_DIRECTORY")
    if of_the_unit and folder.is_dir() and readable(folder):
        return {**env, "CREDENTIALS_DIRECTORY": str(folder)}
    return env


def survey(
    env: Mapping[str, str], config_option: str | None, *, offline: bool, as_service: bool = False
) -> Ground:
    """Read what there is; what can not be read is a finding and no error.

    ``as_service``: where the home is the installed service's, with its secrets.
    """
    home = find_home(env)
    if as_service:
        env = as_the_service(env, home)
    file, config, sections, notes = None, Config(), PassedThrough(), tuple[str, ...]()
    config_problems: tuple[str, ...] = ()
    try:
        file = find_config_file(config_option, home)
        loaded = load(file, env)
        config, sections, notes = loaded.config, loaded.sections, loaded.notes
    except ConfigError as exc:
        config_problems = tuple(exc.problems)
    secrets, secret_problems = Secrets(), tuple[str, ...]()
    try:
        secrets = read_secrets(env, home.secrets)
    except ConfigError as exc:
        secret_problems = tuple(exc.problems)
    status, trouble = None, ""
    try:
        daemon = RunningDaemon(home, env, config.gateway.control_socket)
        status = within(ANSWER_SECONDS, lambda: daemon.ask({"op": "status"}))
        trouble = "" if status is not None else daemon.silence() or ""
    except TimeoutError:
        trouble = "the running daemon does not answer"
    except (PosthouseError, OSError, ValueError) as exc:
        trouble = str(exc)
    return Ground(
        env,
        home,
        file,
        config,
        sections,
        config_problems,
        notes,
        secrets,
        secret_problems,
        status,
        trouble,
        offline,
    )
