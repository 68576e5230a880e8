"""Owns what a picture costs in tokens: flat at first, then learned per model from real usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent.messages import wire_message
from agent.model_metadata import IMAGE_TOKENS, images_in
from agent.sessions import LoadedSession

MIN_TOKENS = 50
MAX_TOKENS = 8000
"""A figure outside these is no picture's."""
MAX_SAMPLES = 9
WORTH_TELLING = 0.05
"""So much of a change is worth writing down."""


def sample(loaded: LoadedSession, prompt_tokens: int) -> int | None:
    """What each of the pictures took that came since the last measurement; None: can not be told.

    The new prompt is the last one, its answer, and what came since. Without the estimate of the
    text among that, the pictures are left; as long as they are the larger part, an error in the
    estimate changes little.

    Args:
        loaded: The session as it was asked with: its anchor is the last measurement.
        prompt_tokens: Of the answer that came now.
    """
    anchor = loaded.session.anchor
    if anchor is None or prompt_tokens <= 0:
        return None
    images = text = 0
    for row in reversed(loaded.rows):
        if row.id == anchor.through_row_id:
            break
        found = images_in(wire_message(row)["content"])
        images += found
        text += row.tokens - found * IMAGE_TOKENS
    else:
        return None
    if not images:
        return None
    rest = prompt_tokens - anchor.prompt_tokens - anchor.output_tokens - text
    each = rest // images
    return each if text <= rest and MIN_TOKENS <= each <= MAX_TOKENS else None


class ImageTokens:
    """The prices in force: the median of the last figures of each model."""

    def __init__(
        self,
        remembered: Mapping[str, Sequence[int]] | None = None,
        *,
        on_learned: Callable[[Mapping[str, Sequence[int]]], None] = lambda samples: None,
    ) -> None:
        """``remembered``: what ``on_learned`` was given in an earlier run."""
        self._samples = {
            model: [n for n in figures if MIN_TOKENS <= n <= MAX_TOKENS][-MAX_SAMPLES:]
            for model, figures in (remembered or {}).items()
        }
        self._told = {model: self.of(model) for model in self._samples}
        self._on_learned = on_learned

    def of(self, model: str) -> int:
        """What a picture takes in this model's prompts."""
        samples = self._samples.get(model)
        if not samples:
            return IMAGE_TOKENS
        from statistics import median  # noqa: PLC0415 - only where pictures were sent

        return round(median(samples))

    def learn(self, model: str, figure: int | None) -> None:
        """Take in what `sample` has found."""
        if figure is None:
            return
        self._samples[model] = [*self._samples.get(model, ()), figure][-MAX_SAMPLES:]
        before = self._told.get(model, IMAGE_TOKENS)
        now = self.of(model)
        if model not in self._told or abs(now - before) > WORTH_TELLING * before:
            self._told[model] = now
            self._on_learned({name: tuple(known) for name, known in self._samples.items()})
