"""Owns the strict reading of Telegram's numbers: what is none is refused (pure)."""

from __future__ import annotations

LARGEST_NUMBER = 2**53
_LATEST_DATE = 253_402_300_799  # the end of the year 9999


def identifier(value: object) -> str:
    """The id of a user, a chat or a message.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST_NUMBER:
        raise TypeError("an id that is no number of Telegram's")
    return str(value)


def date(value: object) -> float:
    """Unix seconds by Telegram's clock; whether it can be true is not ours to say.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LATEST_DATE:
        raise TypeError("a date that is none")
    return float(value)
