"""Owns what a provider of models says before anything runs: is the key taken, the model known."""

from __future__ import annotations

import difflib
import urllib.parse
from dataclasses import dataclass
from typing import Any

from agent.prompt_caching import is_native
from gateway.probing.web import SECONDS, Answer, Refused, Unreachable, get

OFFICIAL = "https://api.anthropic.com"
_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as its provider describes it."""

    name: str
    window_tokens: int | None
    retires: bool
    """The provider says that it will go."""
    server_time: float | None


class UnknownModel(Refused):
    """There is none of that name; ``nearest`` says which there are."""

    def __init__(self, name: str, nearest: list[str]) -> None:
        super().__init__(f"the provider has no model {name!r}")
        self.nearest = nearest


class NoCatalogue(Unreachable):
    """It answers, and does not say which models it has: many servers do not."""


def ask_model(
    base_url: str | None, key: str | None, name: str, *, seconds: float = SECONDS
) -> ModelFacts:
    """What the provider says of a model.

    Raises:
        UnknownModel: it has none of that name.
        Refused: it does not take the key.
        NoCatalogue: it does not say.
        Unreachable: it did not answer.
    """
    base = (base_url or OFFICIAL).rstrip("/")
    answer = _ask(base, key, f"/v1/models/{urllib.parse.quote(name, safe='')}", seconds)
    if answer.status == 404:
        known = _names(_ask(base, key, "/v1/models?limit=1000", seconds))
        if not known:
            raise NoCatalogue("it does not say which models it has")
        raise UnknownModel(name, difflib.get_close_matches(name, known, n=3, cutoff=0.3))
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise Unreachable(f"an answer that is none of a Messages API (HTTP {answer.status})")
    window = answer.body.get("max_input_tokens")
    return ModelFacts(
        name,
        window if isinstance(window, int) and window > 0 else None,
        answer.body.get("lifecycle") in ("deprecated", "retired"),
        answer.server_time,
    )


def _ask(base: str, key: str | None, path: str, seconds: float) -> Answer:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise Refused("no key looks like this")
    headers = {"anthropic-version": _VERSION}
    if key:
        headers["x-api-key"] = key
    if key and not is_native(base):  # as the adapter sends it
        headers["Authorization"] = f"Bearer {key}"
    answer = get(base + path, headers, seconds=seconds)
    if answer.status in (401, 403):
        raise Refused("the provider does not take this key")
    return answer


def _names(answer: Answer) -> list[str]:
    listed: Any = answer.body.get("data") if isinstance(answer.body, dict) else None
    rows = listed if isinstance(listed, list) else []
    return [str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id")]
