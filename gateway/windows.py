"""Owns the model's window as the daemon knows it: configured, asked for, remembered on disk."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

from agent.model_metadata import Window, resolve_window
from agent.ports import LanguageModel

log = logging.getLogger(__name__)


class WindowBook:
    """What is known now. Start-up never waits for the provider: the last answer is on disk.

    Order of trust: configuration, the provider (now or remembered), the table, the default.
    """

    def __init__(
        self, model: str, base_url: str | None, configured: int | None, file: Path
    ) -> None:
        self._model = model
        self._key = f"{model}@{base_url or 'default'}"
        self._configured = configured
        self._file = file
        self._window = resolve_window(model, configured=configured, provider=self._remembered())

    @property
    def window(self) -> Window:
        """The window in force."""
        return self._window

    async def ask(self, model: LanguageModel, changed: Callable[[], None]) -> None:
        """Ask the provider, unless the configuration has decided; call ``changed`` if it did."""
        if self._configured is not None:
            return
        told = await model.window_tokens()
        if told is None:
            return
        window = resolve_window(self._model, provider=told)
        self._remember(told)
        if window.tokens != self._window.tokens:
            log.info("window told by the provider", extra={"window_tokens": window.tokens})
            self._window = window
            changed()

    def lower(self, tokens: int) -> None:
        """The provider refused a prompt and named its limit: everybody and every start knows it.

        A configured window is only lowered for this run: the operator may know better tomorrow.
        """
        lowered = self._window.lowered_to(tokens)
        if lowered.tokens < self._window.tokens:
            self._window = lowered
            self._remember(tokens)

    def _read(self) -> dict[str, int]:
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            log.warning("remembered windows not readable", extra={"reason": str(exc)})
            return {}
        if not isinstance(data, dict):
            return {}
        return {str(k): v for k, v in data.items() if isinstance(v, int)}

    def _remembered(self) -> int | None:
        return self._read().get(self._key)

    def _remember(self, tokens: int) -> None:
        known = self._read()
        if known.get(self._key) == tokens:
            return
        fresh = self._file.with_suffix(".new")
        try:
            with fresh.open("w", encoding="utf-8") as stream:
                json.dump({**known, self._key: tokens}, stream, indent=1, sort_keys=True)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(self._file)
        except OSError as exc:  # only a memory: the provider is asked again at the next start
            log.warning("window not remembered", extra={"reason": str(exc)})
