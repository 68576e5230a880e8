"""Owns what a network's errors mean to whoever has to heal them. Pure."""

from __future__ import annotations

_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "name or service not known",
            "name resolution",
            "nodename nor servname",
            "no address associated",
        ),
        "the server's name can not be resolved: is the network up, and its name service (DNS)?",
    ),
    (
        ("not yet valid", "certificate has expired"),
        "the server's certificate does not hold today: is the clock of this machine right?",
    ),
    (
        ("certificate verify failed", "self-signed", "hostname mismatch"),
        "the server's certificate is not trusted: something stands between here and there",
    ),
    (
        ("http status 5", "bad gateway", "internal server error"),
        "the server is in trouble; it is asked again and again",
    ),
    (
        ("but no json",),
        "something else answers in the server's place: a proxy, or a network that wants a sign-in",
    ),
    (
        (
            "connection attempts failed",
            "connect call failed",
            "connection refused",
            "unreachable",
            "no route",
        ),
        "no connection: is the network up?",
    ),
    (("timed out", "no complete answer"), "no answer in time"),
)


def in_words(error: str) -> str:
    """What an error's text means, with the text itself behind it; as it is if nobody knows it."""
    lower = error.lower()
    for signs, words in _WORDS:
        if any(sign in lower for sign in signs):
            return f"{words} ({error})"
    return error
