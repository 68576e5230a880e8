"""Owns one reading of all that a daemon is configured by: file, environment, secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config.environment import (
    Home,
    Secrets,
    find_config_file,
    read_secrets,
    referenced,
    unguarded,
    values_to_hide,
)
from gateway.config.loading import Loaded, parse, read_text
from gateway.config.models import Config


@dataclass(frozen=True, slots=True)
class FileText:
    """What stood in the file at one moment."""

    path: Path | None
    """None: there is no file."""
    text: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """What it is called in sentences."""
        return str(self.path) if self.path else "config.yaml"

    @property
    def fingerprint(self) -> str:
        """Equal for equal text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def is_empty(self) -> bool:
        """Nothing in it, or no file."""
        return not self.text.strip()


@dataclass(frozen=True, slots=True)
class Reading:
    """What all of it says."""

    config: Config
    sections: Mapping[str, Any]
    """Of plugins, as they stand."""
    secrets: Secrets
    file: FileText
    warnings: tuple[str, ...] = ()
    referenced: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """What the configuration asks for as ``${NAME}``; None: there is none."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """What must not appear in a log."""


def _none(loaded: Loaded, secrets: Secrets, env: Mapping[str, str]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration comes from; reads it as often as it is asked, and blocks."""

    home: Home
    env: Mapping[str, str] = field(repr=False)
    """As it was at the start: what plugins must not see is taken out of the process's own."""
    option: str | None = None
    """``--config``."""
    doubts: Callable[[Loaded, Secrets, Mapping[str, str]], Sequence[str]] = _none
    """What else there is to be warned of: by those who know more than the configuration."""

    def text(self) -> FileText:
        """The file as it is now.

        Raises:
            ConfigError: it can not be read.
        """
        path = find_config_file(self.option, self.home)
        return FileText(path, read_text(path) if path is not None else "")

    def reading(self, file: FileText) -> Reading:
        """What this text says, with the environment and the secrets as they are now.

        Raises:
            ConfigError: one line for each problem.
        """
        loaded = parse(file.text, file.name, self.env)
        secrets = read_secrets(self.env, self.home.secrets)
        doubts = self.doubts(loaded, secrets, self.env)
        warnings = *loaded.notes, *unguarded(loaded.config, self.env, file.path), *doubts
        return Reading(
            loaded.config,
            loaded.sections,
            secrets,
            file,
            warnings,
            referenced(loaded.config, self.env, self.home.secrets),
            (*secrets.values(), *values_to_hide(loaded.config, self.env, self.home.secrets)),
        )


def changed_secrets(old: Reading, new: Reading) -> Iterator[str]:
    """The names of those that differ; what was not asked for before is told by its key."""
    now = new.secrets.by_name()
    yield from (name for name, value in old.secrets.by_name().items() if value != now[name])
    for name, value in new.referenced.items():
        if name in old.referenced and old.referenced[name] != value:
            yield name
