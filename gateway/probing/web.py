"""Owns one question over HTTP: asked once, never redirected, its answer as JSON with its date."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

from agent.errors import PosthouseError
from gateway import __version__
from gateway.probing.patience import within

SECONDS = 6.0
"""For one answer, names looked up included."""
MAX_BYTES = 4_000_000
USER_AGENT = f"DiscordBot (posthouse, {__version__})"
"""Discord turns away what does not begin so; the others do not mind."""


class Unreachable(PosthouseError):
    """Nobody answered, or nobody who knows the protocol; its text says which, never the address."""


class Refused(PosthouseError):
    """The token or key is not taken."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    """Parsed; None where it was no JSON."""
    server_time: float | None
    """Unix seconds, from its Date header."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the token in the header to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def get(url: str, headers: Mapping[str, str] | None = None, *, seconds: float = SECONDS) -> Answer:
    """Ask once.

    Raises:
        Unreachable: no answer. Its text never has the address in it: that may hold a token.
    """
    try:
        return within(seconds, lambda: _get(url, headers or {}, seconds))
    except TimeoutError:
        raise Unreachable(f"no answer within {seconds:g} seconds") from None


def _get(url: str, headers: Mapping[str, str], seconds: float) -> Answer:
    try:
        request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, **headers})
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=seconds) as reply:
            return _answer(reply.status, reply.read(MAX_BYTES), reply.headers)
    except urllib.error.HTTPError as exc:
        with exc:
            return _answer(exc.code, exc.read(MAX_BYTES), exc.headers)
    except urllib.error.URLError as exc:
        raise Unreachable(in_words(exc.reason)) from None
    except (OSError, HTTPException, ValueError) as exc:
        raise Unreachable(in_words(exc)) from None


def _answer(status: int, raw: bytes, headers: Message) -> Answer:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    try:
        date = parsedate_to_datetime(headers["Date"]).timestamp() if headers["Date"] else None
    except (ValueError, OverflowError):
        date = None
    return Answer(status, body, date)


def in_words(reason: object) -> str:
    """What went wrong with a connection, without its address."""
    match reason:
        case socket.gaierror():
            return "its name can not be looked up (no network, or no DNS)"
        case ssl.SSLError():
            return f"no safe connection: {reason.reason or 'TLS failed'}"
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "the connection was refused"
        case OSError() if reason.strerror:
            return reason.strerror
        case ValueError():
            return "the address or the token has characters that do not belong there"
        case _:
            return "the connection broke off"
