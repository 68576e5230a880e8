"""Owns finding the daemon of a home: at the socket that it has noted, else where it would be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.config.environment import Home
from gateway.control import ANSWER_SECONDS, Listener, ask, socket_path
from gateway.home_lock import holder, noted

SILENT = (
    "process {process} holds this home and does not answer: a gateway that starts, ends or hangs, "
    "or a command that works on it"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A socket, and who has to listen there; None: whoever may."""

    socket: Path
    listener: Listener | None = None


class RunningDaemon:
    """That of one home, if it runs."""

    def __init__(self, home: Home, env: Mapping[str, str], configured: str | None) -> None:
        """``configured``: what the settings of whoever asks say of `gateway.control_socket`."""
        self._home = home
        self._env = env
        self._configured = configured

    def ask(
        self, request: Mapping[str, Any], *, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any] | None:
        """What it answers; None: it does not run.

        Raises:
            NotAnswering: it runs, and says nothing.
            RequestFailed: it runs, and could not.
            PosthouseError: it belongs to another user, or is no gateway.
        """
        return next((answer for _, answer in self._asked(request, seconds)), None)

    def socket(self) -> Path | None:
        """Where it answers; None: it does not run.

        Raises:
            NotAnswering, RequestFailed, PosthouseError: as `ask`.
        """
        return next((path for path, _ in self._asked({"op": "status"}, ANSWER_SECONDS)), None)

    def silence(self) -> str | None:
        """Why nobody answers, where somebody holds the home all the same; None: nobody does."""
        found = holder(self._home.lock)
        return None if found is None else SILENT.format(process=found.process)

    def _asked(
        self, request: Mapping[str, Any], seconds: float
    ) -> Iterator[tuple[Path, dict[str, Any]]]:
        for place in self._places():
            answer = ask(place.socket, request, seconds=seconds, listener=place.listener)
            if answer is not None:
                yield place.socket, answer

    def _places(self) -> Iterator[Place]:
        """What is noted may be of one that was killed: only its process is believed there."""
        found = noted(self._home.lock)
        if found is not None and found.socket is not None:
            yield Place(found.socket, Listener(found.process, found.user))
        if self._configured is not None:
            yield Place(socket_path(self._configured, self._home.path, self._env))
        # Of a daemon that is older than the note, or than the key.
        yield Place(socket_path(None, self._home.path, self._env))
