"""Owns what people may see of a configuration: secrets hidden, and where values are from. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gateway.config.models import Config
from gateway.config.taking_effect import changed_paths

if TYPE_CHECKING:
    from gateway.config.loading import Loaded

HIDDEN = "[hidden]"

_SECRET = re.compile(
    r"(?i)secret|passw|credential|api.?key|access.?key|private.?key|authorization|bearer"
    r"|(?:^|[^a-z])(?:key|token|auth|pass|pwd)$|(?-i:[a-z](?:Key|Token)$)"
)
_COUNTED = re.compile(r"(?i)secrets?$|passw|(?:^|[^a-z])(?:key|token|pin)$")
"""Names whose numbers are secrets as well; `max_tokens` is none."""
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_IN_QUERY = re.compile(
    r"(?i)(?<=[?&])([^=&\s]*(?:key|token|secret|passw|auth|sig)[^=&\s]*=)[^&\s#]+"
)
_FLAG = re.compile(r"(?i)--?[a-z-]*(?:key|token|secret|passw|auth)[a-z-]*")


def redacted(value: Any, name: str = "") -> Any:
    """With what looks like a secret hidden: what plugins are handed is not ours to know.

    ``name``: what it is called. A reference such as ``${TOKEN}`` is none.
    """
    if isinstance(value, dict):
        # What is handed to a server of tools, whatever it is called.
        inner = "secret" if name in ("env", "headers", "default_headers", "extra_headers") else ""
        return {key: redacted(item, inner or str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return _words([redacted(item, name) for item in value])
    if isinstance(value, str):
        if value and _SECRET.search(name) and "${" not in value:
            return HIDDEN
        return _IN_QUERY.sub(rf"\1{HIDDEN}", _USER_IN_URL.sub(HIDDEN, value))
    if isinstance(value, int | float) and not isinstance(value, bool) and _COUNTED.search(name):
        return HIDDEN
    return value


def _words(items: list[Any]) -> list[Any]:
    """Of the arguments of a program, those that are secrets: ``--token=x`` and ``--token x``."""
    shown: list[Any] = []
    for item in items:
        before = shown[-1] if shown else ""
        if isinstance(item, str) and isinstance(before, str) and "${" not in item:
            flag, equals, _ = item.partition("=")
            if equals and _FLAG.fullmatch(flag):
                item = f"{flag}={HIDDEN}"
            elif _FLAG.fullmatch(before) and not item.startswith("-"):
                item = HIDDEN
        shown.append(item)
    return shown


def origins(loaded: Loaded) -> dict[str, str]:
    """Of every value that is not the default: file, line and column, or the variable."""
    found: dict[str, str] = {}
    for path in changed_paths(Config(), loaded.config):
        place = loaded.written.place(tuple(path.split(".")))
        if place is not None:
            found[path] = str(place)
    return found
