"""Owns what a provider said that only an admin can mend: of which model, since when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agent.errors import ModelAuthError, ModelError, ModelNotFound, ModelQuotaError
from agent.ports import Clock

TroubleKind = Literal["key", "credit", "name"]
"""The key is refused, the account can not pay, the model is not known."""
MOST_MODELS = 20
"""Plugins may name any."""


@dataclass(frozen=True, slots=True)
class ModelTrouble:
    """It lasts until this model gives an answer. Times are Unix seconds."""

    model: str
    kind: TroubleKind
    since: float
    last_at: float
    """When the provider said so last."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the provider stands to us, as far as requests have shown."""

    answered_at: float | None = None
    """Unix seconds: when a model answered last; None: not since the start."""
    troubles: tuple[ModelTrouble, ...] = ()


class StandingBook:
    """Told of what becomes of requests that were really sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered_at: float | None = None
        self._troubles: dict[str, ModelTrouble] = {}

    @property
    def standing(self) -> Standing:
        """As of now."""
        return Standing(self._answered_at, tuple(self._troubles.values()))

    def answered(self, model: str) -> None:
        """Whatever there was with this model is over."""
        self._answered_at = self._clock.now()
        self._troubles.pop(model, None)

    def failed(self, model: str, error: ModelError) -> None:
        """What passes by itself changes nothing: a broken connection says nothing of the key."""
        kind = _kind_of(error)
        if kind is None:
            return
        now, known = self._clock.now(), self._troubles.get(model)
        if known is not None and known.kind == kind:
            self._troubles[model] = replace(known, last_at=now)
        elif known is not None or len(self._troubles) < MOST_MODELS:
            self._troubles[model] = ModelTrouble(model, kind, now, now)


def _kind_of(error: ModelError) -> TroubleKind | None:
    match error:
        case ModelAuthError():
            return "key"
        case ModelQuotaError():
            return "credit"
        case ModelNotFound():
            return "name"
        case _:
            return None
