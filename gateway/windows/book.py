"""Owns the model's window as the daemon knows it: configured, asked for, learned, remembered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.clock import SystemClock
from agent.image_tokens import ImageTokens
from agent.model_metadata import Window, resolve_window
from agent.ports import Clock, LanguageModel
from gateway.windows.remembered import RememberedFacts

log = logging.getLogger(__name__)

LEARNED_DAYS = 7
"""A limit from an error is believed for so long: the account or the server may be another one then.
Learning it again costs one refused request."""
_DAY_SECONDS = 86_400


class WindowBook:
    """What is known now. Start-up never waits for the provider: the last answer is on disk.

    Order of trust: configuration, the provider (now or remembered), the table, the default. What
    an error has named lowers whatever the others say, and never raises it.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None,
        configured: int | None,
        file: Path,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._model = model
        self._key = f"{model}@{base_url or 'default'}"
        self._configured = configured
        self._facts = RememberedFacts(file)
        self._clock = clock if clock is not None else SystemClock()
        facts = self._facts.read()
        self._learned = self._learned_in(facts) if configured is None else None
        self._window = self._resolved(_whole(facts.get(self._key)))

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
        window = self._resolved(told)
        self._facts.update({self._key: told})
        if window.tokens != self._window.tokens:
            log.info("window told by the provider", extra={"window_tokens": window.tokens})
            self._window = window
            changed()

    def lower(self, tokens: int) -> None:
        """The provider refused a prompt and named its limit: everybody and every start knows it.

        A configured window is only lowered for this run: the operator may know better tomorrow.
        """
        lowered = self._window.lowered_to(tokens)
        if lowered.tokens >= self._window.tokens:
            return
        self._window = lowered
        if self._configured is None:
            self._learned = tokens
            until = int(self._clock.now()) + LEARNED_DAYS * _DAY_SECONDS
            self._facts.update({self._limit_key: tokens, self._until_key: until})

    @property
    def _limit_key(self) -> str:
        return f"{self._key} limit"

    @property
    def _until_key(self) -> str:
        return f"{self._key} limit until"

    def _resolved(self, told: int | None) -> Window:
        window = resolve_window(self._model, configured=self._configured, provider=told)
        return window.lowered_to(self._learned)

    def _learned_in(self, facts: Mapping[str, Any]) -> int | None:
        until = _whole(facts.get(self._until_key)) or 0
        now = self._clock.now()
        # Further off than it can have been set: the clock was set back since.
        current = now < until <= now + LEARNED_DAYS * _DAY_SECONDS + 1
        return _whole(facts.get(self._limit_key)) if current else None


def remembered_image_tokens(file: Path) -> ImageTokens:
    """What pictures cost, as far as it was learned in an earlier run; what is learned is kept."""
    facts = RememberedFacts(file)
    return ImageTokens(
        {
            model: [n for n in figures if _whole(n) is not None]
            for model, figures in facts.read().items()
            if isinstance(figures, list)
        },
        on_learned=lambda samples: facts.update(_as_lists(samples)),
    )


def _as_lists(samples: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {model: list(figures) for model, figures in samples.items()}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
