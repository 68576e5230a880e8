"""Owns what an answer's status means to whoever wanted the page (pure)."""

from __future__ import annotations

from http import HTTPStatus

MOVED = (301, 302, 303, 307, 308)
_WORDS = {
    401: "the site wants a sign-in, and I have none: try another source",
    402: "the site wants money: try another source",
    403: "the site does not let programs read that: try another source",
    404: "there is no such page: is the address right?",
    410: "that page is gone for good",
    407: "a proxy stands in the way",
    429: "the site says that it was asked too often: try later, or another source",
    451: "that page may not be shown here by law",
}


def refusal_words(status: int) -> str:
    """Why there is no page; "": there is one."""
    if 200 <= status < 300:
        return ""
    if status in _WORDS:
        words = _WORDS[status]
    elif status >= 500:
        words = "the site is in trouble: try again later"
    else:
        words = "the site does not give that page"
    return f"{words} (HTTP {status}{_phrase(status)})"


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""
