"""Owns that no secret leaves in text, in whichever form a library or a URL has put it (pure)."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "[secret]"
SHORTEST = 6
"""Characters; of shorter ones everything would be full."""
_SHORTEST_PIECE = 10
"""Of what stands for a secret in another form: its beginning or end may be cut by neighbours."""
_SHORTEST_HALF = 20
_SHORTEST_UNKNOWN = 12
_BY_PERCENT = re.compile("%[0-9A-F]{2}")
_NAMES = re.compile(r"(?i)(?:^|_)(?:api_?key|key|token|secret|password|passwd|pass)$")


class Redactor:
    """Replaces known secrets in finished lines: whatever a library puts there, it is found."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        # The longest first: one may contain another.
        self._forms = sorted(forms, key=len, reverse=True)
        self._shortest = min(map(len, forms), default=0)

    def __call__(self, text: str) -> str:
        if len(text) < self._shortest:  # most fields of a line
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text


def named_like_secrets(env: Mapping[str, str]) -> list[str]:
    """Values of variables that are called like secrets: those of plugins, of whom nobody knows."""
    return [
        value.strip()
        for name, value in env.items()
        if _NAMES.search(name) and len(value.strip()) >= _SHORTEST_UNKNOWN and value[:1] != "/"
    ]


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield from _halves(secret)
    for one in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield one
        yield _BY_PERCENT.sub(lambda found: found[0].lower(), one)
        yield quote(one, safe="")  # a URL within a URL
    for one in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        yield one[1:-1]
        yield one[1:-1].replace("/", "\\/")  # as PHP and others write it
        yield json.dumps(one[1:-1])[1:-1]  # a body within a body
    raw = secret.encode("utf-8", "surrogatepass")
    yield repr(secret)[1:-1]
    yield repr(raw)[2:-1]
    yield html.escape(secret)
    yield raw.hex()
    yield from _inside_base64(secret)


def _halves(secret: str) -> Iterator[str]:
    """What is secret in a bot's token is behind its id, and may stand there alone."""
    head, colon, tail = secret.partition(":")
    if colon and head.isdecimal() and len(tail) >= _SHORTEST_HALF:
        yield tail


def _inside_base64(secret: str) -> Iterator[str]:
    """What is the same in the Base64 of all texts with it, at each of the three places it may have.

    As in ``Authorization: Basic``, where a name stands before it.
    """
    raw = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode("ascii")
        # Characters that depend on what stands before and behind it as well are left out.
        first = (before * 8 + 5) // 6
        last = (before + len(raw)) * 8 // 6
        piece = whole[first:last]
        if len(piece) >= _SHORTEST_PIECE:
            yield piece
            yield piece.replace("+", "-").replace("/", "_")
