"""Owns what a command knows of the configuration, which may be broken: most commands do without.

Whoever looks after a gateway at night may have come because of a config.yaml that is half edited.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import ConfigError, PosthouseError
from gateway.config.environment import Home, find_config_file
from gateway.config.loading import Loaded, load, read_text
from gateway.config.models import Config
from gateway.control import ANSWER_SECONDS
from gateway.running_daemon import RunningDaemon
from gateway.terminal_text import harmless

_SOCKET = re.compile(r"""(?m)^\s+control_socket:\s*["']?([^\s"'#]+)""")
_SOCKET_VARIABLE = "POSTHOUSE__GATEWAY__CONTROL_SOCKET"
_LONGEST_PROBLEM = 300


class Settings:
    """Of one home, as they stand now."""

    def __init__(self, option: str | None, home: Home, env: Mapping[str, str]) -> None:
        """``option``: ``--config``.

        Raises:
            ConfigError: there is no such file as the option names.
        """
        self.home = home
        self._env = env
        self._file = find_config_file(option, home)
        self._loaded: Loaded | None = None
        self._error = ConfigError([])
        try:
            self._loaded = load(self._file, env)
        except ConfigError as exc:
            self._error = exc

    @property
    def are_broken(self) -> bool:
        """What they say can not be known."""
        return self._loaded is None

    def needed(self) -> Loaded:
        """For what can not be done without them.

        Raises:
            ConfigError: they are broken.
        """
        if self._loaded is None:
            raise self._error
        return self._loaded

    def or_defaults(self) -> Config:
        """For what is better done by the defaults than not at all; `tell` says so."""
        return Config() if self._loaded is None else self._loaded.config

    def tell(self, so: str = "") -> None:
        """Say in one line that they are broken, if so; ``so``: what that means for the answer."""
        if self._loaded is not None:
            return
        first, *more = self._error.problems
        others = f", and {len(more)} more" if more else ""
        words = " ".join(first.split())[:_LONGEST_PROBLEM]
        line = f"config.yaml is broken ({words}{others}){so}; `posthouse config check` shows it"
        print(f"posthouse: {harmless(line)}", file=sys.stderr)  # noqa: T201

    def ask(
        self, request: Mapping[str, Any], *, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any] | None:
        """What the daemon of this home answers; None: it does not run.

        Raises:
            NotAnswering: it runs, and says nothing.
            RequestFailed: it runs, and could not.
        """
        return self._daemon().ask(request, seconds=seconds)

    def tell_of_index(self) -> bool:
        """Have the daemon look at the search index; False: none does."""
        try:
            return self.ask({"op": "index"}) is not None
        except PosthouseError:  # it looks at it at its next start
            return False

    def listening(self) -> Path | None:
        """At which socket the daemon answers; None: it does not run.

        Raises:
            NotAnswering, RequestFailed: as `ask`.
        """
        return self._daemon().socket()

    def silence(self) -> str | None:
        """Who holds the home, in words, where `ask` finds nobody; None: nobody does."""
        return self._daemon().silence()

    def _daemon(self) -> RunningDaemon:
        return RunningDaemon(self.home, self._env, self._said_socket())

    def _said_socket(self) -> str | None:
        if self._loaded is not None:
            return self._loaded.config.gateway.control_socket
        if said := self._env.get(_SOCKET_VARIABLE):
            return said
        try:
            found = _SOCKET.search(read_text(self._file)) if self._file is not None else None
        except ConfigError:
            return None
        return found[1] if found is not None and found[1] not in ("null", "~") else None
